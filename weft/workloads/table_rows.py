"""Rows of a trace's tables by column name, from CSV, lines of JSON or Parquet, one at a time.

Traces are published as CSV with or without a header, exported from warehouses as lines of JSON
(whole numbers as texts) or as Parquet; the same importer reads all of them.
"""

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from weft.model.errors import InputError
from weft.model.extras import require
from weft.workloads.documents import open_bytes, open_counted, parse_json, read_head, read_lines
from weft.workloads.imported import Imported
from weft.workloads.reading import text_amount

Row = Mapping[str, Any]
LINE_BYTES_MAX = 2**20
PARQUET_MAGIC = "PAR1"
_BATCH_ROWS = 4096


def columns_of(path: Path, forms: Sequence[Sequence[str]] = ()) -> tuple[str, ...]:
    """Return a table's columns, without reading its rows; raises InputError where it has none.

    A CSV file without a header has those of the form with as many columns.
    """
    head = read_head(path, 2**16)
    if head.startswith(PARQUET_MAGIC):
        return _parquet_columns(path)
    line = next((line for line in head.splitlines() if line.strip()), "")
    if not line:
        raise InputError(str(path), "is empty")
    if line.lstrip().startswith("{"):
        return tuple(_object(line, f"{path} line 1"))
    return _header(_cells(line, f"{path} line 1"), forms, f"{path} line 1")[0]


def no_table(columns: Sequence[str], forms: Mapping[str, Sequence[str]]) -> str:
    """Return why columns are none of these tables: the nearest one, and what it lacks of it."""
    near = max(forms, key=lambda name: len(set(forms[name]) & set(columns)))
    lacks = [name for name in forms[near] if name not in columns]
    if len(lacks) == len(forms[near]):
        return f"has none of the columns of {', '.join(forms)}"
    return f"is nearest to the table {near}, but has no column {', '.join(lacks)}"


def rows_of(
    path: Path, result: Imported, forms: Sequence[Sequence[str]] = (), columns: Sequence[str] = ()
) -> Iterator[tuple[str, Row]]:
    """Yield place and cells of each row; a broken row is dropped and counted in `result`.

    `columns` are those wanted of a Parquet file (none: all). Raises InputError for a file that
    cannot be read at all.
    """
    with open_bytes(path) as stream:
        packed = stream.read(4) == PARQUET_MAGIC.encode()
    if packed:
        yield from _parquet_rows(path, columns)
        return
    names: tuple[str, ...] | None = None
    # The first line says whether lines are objects of JSON.
    objects = False
    for number, line in read_lines(path, LINE_BYTES_MAX):
        place = f"{path} line {number}"
        if not line.strip():
            continue
        try:
            if names is None and (objects or line.lstrip().startswith("{")):
                row = _object(line, place)
                objects = True
                yield place, row
                continue
            cells = _cells(line, place)
        except InputError as error:
            if names is None and not objects:
                raise
            result.drop("malformed row", str(error))
            continue
        if names is None:
            names, is_header = _header(cells, forms, place)
            if is_header:
                continue
        if len(cells) != len(names):
            result.drop(f"row that has not {len(names)} columns", place)
            continue
        yield place, dict(zip(names, cells, strict=True))


def _cells(line: str, place: str) -> list[str]:
    if "\0" in line:
        raise InputError(place, "holds zero bytes; an archive (.tar) has to be unpacked first")
    if '"' not in line:
        return line.split(",")
    try:
        return next(csv.reader([line], strict=True))
    except csv.Error as error:
        raise InputError(place, f"is no row of CSV: {error}") from None


def _header(
    cells: Sequence[str], forms: Sequence[Sequence[str]], place: str
) -> tuple[tuple[str, ...], bool]:
    """Return the columns' names, and whether the line is a header that says them."""
    known = {name for form in forms for name in form}
    if not forms or cells[0].strip() in known:
        names = tuple(cell.strip() for cell in cells)
        if len(set(names)) < len(names):
            raise InputError(place, "the header names a column twice")
        return names, True
    for form in forms:
        if len(form) == len(cells):
            return tuple(form), False
    counts = " or ".join(str(len(form)) for form in forms)
    raise InputError(place, f"neither a header nor a row of {counts} columns")


def _object(line: str, place: str) -> dict[str, Any]:
    value = parse_json(line, place)
    if not isinstance(value, dict):
        raise InputError(place, f"expected an object, got {type(value).__name__}")
    return value


# -- Parquet ---------------------------------------------------------------------------------------


def _pyarrow() -> Any:
    return require("pyarrow.parquet", "results", "Parquet")


def _parquet_columns(path: Path) -> tuple[str, ...]:
    parquet = _pyarrow()
    try:
        return tuple(parquet.read_schema(path).names)
    except (ValueError, OSError, NotImplementedError) as error:
        raise InputError(str(path), f"is no readable Parquet file: {_line(error)}") from None


def _parquet_rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[str, Row]]:
    parquet = _pyarrow()
    number = 0
    try:
        with open_counted(path) as stream:
            file = parquet.ParquetFile(stream)
            wanted = [n for n in file.schema_arrow.names if n in columns] if columns else None
            for batch in file.iter_batches(_BATCH_ROWS, columns=wanted):
                for row in batch.to_pylist():
                    number += 1
                    yield f"{path} row {number}", row
    except (ValueError, OSError, NotImplementedError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(str(path), f"cannot be read as Parquet: {_line(error)}") from None


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


# -- cells -----------------------------------------------------------------------------------------


def blank(value: object) -> bool:
    """Return whether a cell says nothing: absent, empty, or not a number where one is missing."""
    return (
        value is None
        or (isinstance(value, str) and value.strip().lower() in _BLANK)
        or (
            isinstance(value, float) and value != value  # noqa: PLR0124
        )
    )


_BLANK = ("", "nan", "null", "none", "\\n")


def whole(row: Row, name: str) -> int | None:
    """Return a whole number of a row, also from a text; None if blank; raises InputError."""
    value = row.get(name)
    if blank(value):
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    text = str(value).strip()
    if text.lstrip("-").isascii() and text.lstrip("-").isdigit() and len(text) < 25:
        return int(text)
    number = amount(row, name)
    if number is None or number != int(number) or number > 2**53:
        raise InputError(name, f"expected a whole number, got {text[:40]!r}")
    return int(number)


def amount(row: Row, name: str) -> float | None:
    """Return a finite number >= 0 of a row; None where it is blank; raises InputError."""
    value = row.get(name)
    return None if blank(value) else text_amount(str(value)[:400], name)


def needed(value: float | None, name: str) -> float:
    """Return the value of a cell that may not be blank; raises InputError."""
    if value is None:
        raise InputError(name, "is blank")
    return value


def text(row: Row, name: str) -> str:
    """Return a cell as text, empty where it is blank."""
    value = row.get(name)
    return "" if blank(value) else str(value)
