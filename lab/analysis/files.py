"""Which table of Alibaba's trace a file is, told by its columns, and how it is packed.

Schema: `trace_2018.md` of the trace. `batch_instance` and `batch_task` are published without a
header, derived files have one. Only the beginning of a file is looked at.
"""

import csv
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from weft.model.errors import InputError
from weft.workloads.alibaba2018 import BATCH_TASK, DURATIONS, HOUR_SLICE, STATUSES, TASK_USAGE
from weft.workloads.documents import read_head
from weft.workloads.table_rows import PARQUET_MAGIC, columns_of
from weft.workloads.unpacking import is_zstd

BATCH_INSTANCE = (
    "instance_name",
    "task_name",
    "job_name",
    "task_type",
    "status",
    "start_time",
    "end_time",
    "machine_id",
    "seq_no",
    "total_seq_no",
    "cpu_avg",
    "cpu_max",
    "mem_avg",
    "mem_max",
)
FORMS: dict[str, tuple[str, ...]] = {
    "batch_instance": BATCH_INSTANCE,
    "batch_task": BATCH_TASK,
    "hour_slice": HOUR_SLICE,
    "task_usage": TASK_USAGE,
    "durations": DURATIONS,
}
TEXT = {
    "instance_name",
    "task_name",
    "job_name",
    "task_type",
    "status",
    "machine_id",
    "job",
    "name",
}
_HEAD_BYTES = 2**16
_DUCKDB_CSV_REASONS = ("Error when", "Expected", "Value", "Invalid", "Maximum")
# Rows of batch_instance and of batch_task have the status in this column.
_STATUS_COLUMN = 4


class Group(NamedTuple):
    """Files that are read alike. `kind`: parquet, or how the CSV is packed."""

    form: str
    kind: str
    header: bool
    columns: tuple[str, ...]


def groups_of(paths: Sequence[Path]) -> dict[Group, list[str]]:
    """Return the files by how they are read, as patterns of DuckDB.

    Raises InputError where one is no form of the trace, and where one is named twice.
    """
    found: dict[Group, list[str]] = {}
    seen: set[Path] = set()
    for path in paths:
        if not path.is_file():
            raise InputError(str(path), "is not there, or no file")
        if path.resolve() in seen:
            raise InputError(str(path), "is named twice: its rows would count twice")
        seen.add(path.resolve())
        found.setdefault(_look(path), []).append(re.sub(r"([*?\[])", r"[\1]", str(path)))
    return found


def _look(path: Path) -> Group:
    head = read_head(path, _HEAD_BYTES)
    if head.startswith(PARQUET_MAGIC):
        names = columns_of(path)
        return Group(form_of(names, str(path)), "parquet", True, names)
    line = head.split("\n", 1)[0].rstrip("\r")
    place = f"{path} line 1"
    if not head.strip():
        raise InputError(str(path), "is empty")
    if "\ufffd" in line or "\0" in line:
        raise InputError(place, "is no text in UTF-8")
    try:
        first = tuple(cell.strip() for cell in next(csv.reader([line], strict=True), []))
    except csv.Error as error:
        raise InputError(place, f"is no row of CSV: {error}") from None
    for form in ("batch_instance", "batch_task"):
        if len(first) == len(FORMS[form]) and first[_STATUS_COLUMN] in (*STATUSES, "Interrupted"):
            return Group(form, _packing(path), False, FORMS[form])
    if len(set(first)) < len(first) or not set(first) & set(sum(FORMS.values(), ())):
        raise InputError(
            place,
            f"has {len(first)} columns: neither a header nor a row of batch_instance or batch_task",
        )
    return Group(form_of(first, place), _packing(path), True, first)


def _packing(path: Path) -> str:
    """Return how a file is packed, in DuckDB's words, whatever it is called."""
    with path.open("rb") as file:
        magic = file.read(4)
    return "gzip" if magic[:2] == b"\x1f\x8b" else "zstd" if is_zstd(magic) else "none"


def form_of(names: Sequence[str], place: str) -> str:
    """Return the form with these columns; raises InputError with what the nearest one lacks."""
    for form, known in FORMS.items():
        if set(known) <= set(names):
            return form
    near = max(FORMS, key=lambda form: len(set(FORMS[form]) & set(names)))
    lacks = ", ".join(name for name in FORMS[near] if name not in names)
    raise InputError(place, f"no form of {', '.join(FORMS)}: {near} has {lacks} beside")


@contextmanager
def clear_errors(place: str) -> Iterator[None]:
    """Raise errors of the backend as InputError, with file and line where it says them."""
    try:
        yield
    except Exception as error:
        # Backends raise errors of their own.
        module = type(error).__module__.partition(".")[0]
        if module not in ("_duckdb", "duckdb", "ibis", "sqlglot"):
            raise
        raise InputError(*_said(str(error), place)) from error


def _said(text: str, place: str) -> tuple[str, str]:
    """Return place and problem of an error of DuckDB, which says much beside."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    file = next((line.partition(" = ")[2] for line in lines if line.startswith("file = ")), "")
    line = re.search(r"CSV Error on Line: (\d+)", text)
    if not line:
        return place, lines[0] if lines else "no answer"
    why = next(
        (each for each in lines[1:] if each.startswith(_DUCKDB_CSV_REASONS)),
        "is no row of the form",
    )
    return f"{file or place} line {line[1]}", why[:300]
