"""Virtual machines of Azure's trace for packing (2020; Protean, OSDI 2020).

Read are the SQLite file as published, or its tables `vm` and `vmType` as CSV, JSON lines or
Parquet. A virtual machine is a job of one task. What a type takes is said for each kind of machine
that hosts it, in parts of that machine: one kind is chosen.
"""

import re
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from weft.model.errors import InputError
from weft.model.job import Job, Stage
from weft.workloads.documents import open_bytes
from weft.workloads.imported import Imported
from weft.workloads.reading import expand, gather, in_order, text_amount
from weft.workloads.table_rows import Row, blank, columns_of, no_table, rows_of, text, whole

FORMAT = "azure_packing2020"
VM = ("vmId", "tenantId", "vmTypeId", "priority", "starttime", "endtime")
VM_TYPE = ("id", "vmTypeId", "machineId", "core", "memory", "hdd", "ssd", "nic")
RESOURCES = VM_TYPE[3:]
SQLITE_MAGIC = b"SQLite format 3\0"
# A plain table is no view and computes no column.
_PLAIN_TABLE = re.compile(r"(?is)CREATE TABLE(?!.*\b(GENERATED|AS)\b)")
_CELL_BYTES_MAX = 2**20
_DAY_S = 86400.0
# The trace has only such times: ends are capped at 90 days.
_DAYS = (-100_000.0, 90.0)


@dataclass(slots=True)
class _Scan:
    result: Imported
    # They are kept by machine, then by type.
    types: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)


def stream(
    sources: Sequence[Path],
    result: Imported,
    *,
    machine: str = "",
    end_days: float = 0.0,
    jobs_max: int = 0,
) -> Iterator[Job]:
    """Yield one job a virtual machine, in order of its start, in bounded memory; the first at 0.

    `machine` is the kind of machine (`machineId`), of which every node has 1 of each resource; by
    default the one that hosts the most types. Machines that ran when the trace began arrive then,
    with what was left of them. `end_days`: when those end that outlived the trace (0: left out).
    """
    if min(end_days, jobs_max) < 0:
        raise InputError("options", "expected numbers >= 0")
    scan = _Scan(result)
    files = expand(sources)
    for place, row in _rows(files, "vmType", result):
        _add_type(place, row, scan)
    if not scan.types:
        said = (
            f"no row of vmType that can be used; {result.why()}"
            if result.dropped
            else "no table vmType"
        )
        raise InputError(", ".join(map(str, files)), f"{said}; sizes are not known")
    chosen = machine or max(scan.types, key=lambda name: (len(scan.types[name]), name))
    if chosen not in scan.types:
        known = ", ".join(sorted(scan.types)[:20])
        raise InputError("--set machine", f"no machineId {machine!r}; there are {known}")
    result.warnings.append(
        f"azure_packing2020: sizes are those on machines of kind {chosen} (option machine), which "
        f"host {len(scan.types[chosen])} types; a node has 1 of {', '.join(RESOURCES)}"
    )
    kinds, given = scan.types[chosen], 0
    machines = (
        job
        for place, row in _rows(files, "vm", result)
        if (job := _job(place, row, kinds, end_days, scan)) is not None
    )
    for job in in_order(machines, (0.0, _DAYS[1] * _DAY_S), jobs_max, result):
        given += 1
        yield job
    what = scan.counts.items()
    result.warnings.extend(f"azure_packing2020: {count} {said}" for said, count in what)
    if not given and not jobs_max:
        why = result.why() if result.dropped else "the table vm is empty or not there"
        raise InputError(
            ", ".join(map(str, sources)), f"no virtual machine that can be used; {why}"
        )


def read(sources: Sequence[Path], **options: Any) -> Imported:
    """Return the machines; options as of `stream`; raises InputError when none is usable."""
    return gather(stream, sources, options)


def _rows(files: Sequence[Path], name: str, result: Imported) -> Iterator[tuple[str, Row]]:
    """Yield rows of a table, from whichever files have it."""
    wanted = VM if name == "vm" else VM_TYPE
    for path in files:
        with open_bytes(path) as raw:
            database = raw.read(len(SQLITE_MAGIC)) == SQLITE_MAGIC
        if database:
            yield from _sqlite_rows(path, name, wanted)
            continue
        columns = columns_of(path)
        if set(wanted[1:]) <= set(columns):
            yield from rows_of(path, result, (), wanted)
        elif not any(set(form[1:]) <= set(columns) for form in (VM, VM_TYPE)):
            raise InputError(str(path), no_table(columns, {"vm": VM[1:], "vmType": VM_TYPE[1:]}))


def _sqlite_rows(path: Path, name: str, columns: Sequence[str]) -> Iterator[tuple[str, Row]]:
    """Yield rows of a table of an SQLite file, which is opened read-only."""
    with path.open("rb") as raw:
        if raw.read(len(SQLITE_MAGIC)) != SQLITE_MAGIC:
            raise InputError(str(path), "is a packed SQLite file: unpack it first")
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
    except sqlite3.Error as error:
        raise InputError(str(path), f"cannot be opened by SQLite: {error}") from None
    try:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _CELL_BYTES_MAX)
        connection.execute("PRAGMA trusted_schema = OFF")
        kind = connection.execute("SELECT type, sql FROM sqlite_master WHERE name = ?", (name,))
        told, made = next(kind, ("", ""))
        if told and (told != "table" or not _PLAIN_TABLE.match(made or "")):
            raise InputError(f"{path} table {name}", "is no plain table: what it runs has no bound")
        found = connection.execute(f"SELECT {', '.join(columns)} FROM {name}")
        for number, values in enumerate(found, 1):
            yield f"{path} table {name} row {number}", dict(zip(columns, values, strict=True))
    except (sqlite3.Error, ValueError) as error:
        # A ValueError means text that is not UTF-8.
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} table {name}", f"cannot be read: {error}") from None
    finally:
        connection.close()


def _add_type(place: str, row: Row, scan: _Scan) -> None:
    try:
        machine, kind = text(row, "machineId"), text(row, "vmTypeId")
        if not machine or not kind:
            raise InputError("vmTypeId", "a type without an id or a machine")
        demand = {
            name: text_amount(str(row[name])[:400], name)
            for name in RESOURCES
            if not blank(row.get(name))
        }
        if not demand:
            raise InputError(RESOURCES[0], "the type takes nothing of its machine")
    except InputError as error:
        scan.result.drop("malformed row of vmType", f"{place}: {error}")
        return
    scan.types.setdefault(machine, {})[kind] = {name: demand.get(name, 0.0) for name in RESOURCES}


def _days(row: Row, name: str) -> float | None:
    """Return a time in days, None for NULL; it may be negative."""
    value = row.get(name)
    if blank(value):
        return None
    said = str(value)[:400].strip()
    sign = -1.0 if said.startswith("-") else 1.0
    days = sign * text_amount(said.removeprefix("-"), name)
    if not _DAYS[0] <= days <= _DAYS[1]:
        raise InputError(name, f"expected days up to {_DAYS[1]:g}, got {said[:40]!r}")
    return days


def _job(
    place: str, row: Row, kinds: Mapping[str, dict[str, float]], end_days: float, scan: _Scan
) -> Job | None:
    """Return a virtual machine as a job; None where it cannot be used, which is counted."""
    try:
        name, kind = text(row, "vmId"), text(row, "vmTypeId")
        start, end = _days(row, "starttime"), _days(row, "endtime")
        if not name or start is None:
            raise InputError("vmId" if not name else "starttime", "is blank")
        priority = whole(row, "priority") or 0
        if priority not in (0, 1):
            raise InputError("priority", f"expected 0 (high) or 1 (low), got {priority}")
    except InputError as error:
        scan.result.drop("malformed row of vm", f"{place}: {error}")
        return None
    if end is None:
        if not end_days:
            scan.result.drop("virtual machine without an end (option end_days)", place)
            return None
        scan.counts[f"machines without an end are taken to end on day {end_days:g}"] += 1
        end = end_days
    if start < 0:
        scan.counts["machines ran before the trace began: what was left of them is used"] += 1
    if end <= max(start, 0.0):
        scan.result.drop("virtual machine that ends before it starts, or before the trace", place)
        return None
    if kind not in kinds:
        scan.result.drop("virtual machine of a type that the kind of machine does not host", place)
        return None
    duration_s = (end - max(start, 0.0)) * _DAY_S
    stage = Stage("vm", 1, duration_s, kinds[kind])
    return Job(
        name,
        (stage,),
        user=text(row, "tenantId"),
        priority=1 - priority,
        arrival_s=max(start, 0.0) * _DAY_S,
        resources=RESOURCES,
    )
