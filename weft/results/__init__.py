"""A run's files as typed tables, for scripts and notebooks.

```python
import weft.results

run = weft.results.load("runs/g")
run.summary["jct_s"]["p50"]
run.tasks                      # a pyarrow.Table; also jobs, nodes and stages
frames = run.to_pandas()       # or to_polars(): {"jobs": ..., "tasks": ..., ...}
```

Needs `pip install 'weft-rm[results]'`. Times are in s of the run's own clock; what did not happen
is null.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.model.errors import InputError, WeftError
from weft.model.extras import require
from weft.results.shown import as_html, as_text

if TYPE_CHECKING:
    import pyarrow as pa

NAMES = ("jobs", "tasks", "nodes", "stages")
_INT, _SMALL, _FLOAT, _TEXT, _WORD = "int64", "int32", "float64", "string", "word"
# A `word` is a text that repeats, so it is held once and numbered.
SCHEMAS: Mapping[str, Mapping[str, str]] = {
    "jobs": {
        "job": _INT,
        "name": _TEXT,
        "queue": _WORD,
        "arrival_s": _FLOAT,
        "start_s": _FLOAT,
        "finish_s": _FLOAT,
        "jct_s": _FLOAT,
        "tasks": _INT,
        "state": _WORD,
    },
    "tasks": {
        "job": _INT,
        "stage": _WORD,
        "index": _SMALL,
        "attempt": _SMALL,
        "node": _WORD,
        "container": _TEXT,
        "ready_s": _FLOAT,
        "start_s": _FLOAT,
        "end_s": _FLOAT,
        "state": _WORD,
    },
    "nodes": {
        "node": _TEXT,
        "rack": _WORD,
        "tasks": _INT,
        "busy_s": _FLOAT,
        "failed": _INT,
    },
    "stages": {
        "job": _INT,
        "stage": _TEXT,
        "tasks": _INT,
        "duration_s": _FLOAT,
        "parents": _TEXT,
    },
}


@dataclass(frozen=True, slots=True, repr=False)
class Results:
    """The tables of one run, as Arrow; a live run's folder has no summary and no nodes."""

    folder: Path | None
    summary: dict[str, Any]
    jobs: "pa.Table"
    tasks: "pa.Table"
    nodes: "pa.Table"
    stages: "pa.Table"
    decisions: "Path | None" = field(default=None)

    def __repr__(self) -> str:
        return as_text(self.summary, self._rows())

    def _repr_html_(self) -> str:
        return as_html(self.summary, self._rows())

    def _rows(self) -> dict[str, int]:
        return {name: table.num_rows for name, table in self.tables().items()}

    def tables(self) -> dict[str, "pa.Table"]:
        """Return every table by name."""
        return {name: getattr(self, name) for name in NAMES}

    def to_pandas(self) -> dict[str, Any]:
        """Return every table as a pandas DataFrame, by name; raises WeftError without pandas."""
        require("pandas", "results", "a table of a run")
        return {name: table.to_pandas() for name, table in self.tables().items()}

    def to_polars(self) -> dict[str, Any]:
        """Return every table as a polars DataFrame, by name; raises WeftError without polars."""
        polars = require("polars", "results", "a table of a run")
        return {name: polars.from_arrow(table) for name, table in self.tables().items()}


def load(folder: Path | str) -> Results:
    """Read the folder of `weft simulate --out`, or of a live cluster that kept its tasks.

    Parquet files are read where they are as new as the CSV files. Raises InputError naming the
    file that is missing or is no table of a run.
    """
    place = Path(folder)
    if not place.is_dir():
        raise InputError(str(place), "is no folder of a run")
    summary: dict[str, Any] = {}
    path = place / "summary.json"
    if path.exists():
        try:
            summary = dict(json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError):
            raise InputError(str(path), "is not the summary of a run") from None
    log = place / "decisions.jsonl"
    tables = {name: _read(place, name) for name in NAMES}
    return Results(place, summary, **tables, decisions=log if log.exists() else None)


def write_parquet(folder: Path | str) -> list[Path]:
    """Write a Parquet file beside each table of a run's folder; returns their paths."""
    require("pyarrow", "results", "a table of a run")
    from pyarrow import parquet

    place, made = Path(folder), []
    for name in NAMES:
        if (place / f"{name}.csv").exists():
            path = place / f"{name}.parquet"
            partial = place / f".{name}.parquet.partial"
            try:
                parquet.write_table(_read_csv(place, name), partial, compression="zstd")
                partial.replace(path)
            except OSError as error:
                problem = error.strerror or str(error)
                raise WeftError(f"{path}: cannot be written: {problem}") from None
            finally:
                partial.unlink(missing_ok=True)
            made.append(path)
    return made


def table_of(name: str, rows: Iterable[Sequence[Any]]) -> "pa.Table":
    """Return a table from rows in the order of its columns; an empty text is null."""
    pa = require("pyarrow", "results", "a table of a run")
    schema = SCHEMAS[name]
    columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in schema]
    arrays = []
    for (_, kind), given in zip(schema.items(), columns, strict=True):
        number = kind in (_FLOAT, _INT, _SMALL)
        values = [None if number and value == "" else value for value in given]
        made = pa.array(values, _arrow(pa, kind) if kind != _WORD else pa.string())
        arrays.append(made.dictionary_encode() if kind == _WORD else made)
    return pa.table(dict(zip(schema, arrays, strict=True)))


def _read(place: Path, name: str) -> "pa.Table":
    pa = require("pyarrow", "results", "a table of a run")
    fast, plain = place / f"{name}.parquet", place / f"{name}.csv"
    if fast.exists() and (
        not plain.exists() or fast.stat().st_mtime_ns >= plain.stat().st_mtime_ns
    ):
        from pyarrow import parquet

        try:
            return parquet.read_table(fast)
        except (pa.ArrowInvalid, OSError) as error:
            raise InputError(str(fast), f"is no table of a run: {error}") from None
    if name == "nodes" and not plain.exists():
        return table_of("nodes", [])
    return _read_csv(place, name)


def _read_csv(place: Path, name: str) -> "pa.Table":
    pa = require("pyarrow", "results", "a table of a run")
    from pyarrow import csv

    path = place / f"{name}.csv"
    schema = SCHEMAS[name]
    texts = [column for column, kind in schema.items() if kind in (_TEXT, _WORD)]
    options = csv.ConvertOptions(
        column_types={column: _arrow(pa, kind) for column, kind in schema.items()},
        include_columns=list(schema),
        strings_can_be_null=False,
        null_values=[""],
        quoted_strings_can_be_null=not texts,
    )
    try:
        return csv.read_csv(
            path, convert_options=options, parse_options=csv.ParseOptions(newlines_in_values=True)
        )
    except FileNotFoundError:
        raise InputError(str(path), "is missing: is this the folder of a run?") from None
    except (pa.ArrowInvalid, pa.ArrowKeyError, OSError) as error:
        raise InputError(str(path), f"is no table of a run: {error}") from None


def _arrow(pa: Any, kind: str) -> Any:
    return pa.dictionary(pa.int32(), pa.string()) if kind == _WORD else getattr(pa, kind)()
