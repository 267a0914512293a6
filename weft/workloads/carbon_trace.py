"""Carbon intensity over time from a CSV file, as the option of a matcher that holds it whole.

So a recorded run needs no file to be run again. Read are the tables of Electricity Maps
(`carbon_intensity_avg`, or `Carbon intensity gCO2eq/kWh ...`) and any with a column `intensity`;
slots are as long as the first two rows are apart by `timestamp` (s) or by a column of dates, else
an hour.
"""

import csv
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from weft.model.errors import InputError

OPTION = "matcher.carbon"
VALUES = ("carbon_intensity_avg", "intensity", "carbon_intensity")
DATES = ("timestamp", "datetime", "date", "time")
HOUR_S = 3600.0
ROWS_MAX = 100_000


def inlined(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with a carbon trace's content instead of its file; raises InputError."""
    found = dict(options)
    said = found.get(OPTION)
    if isinstance(said, str) and said and ";" not in said and not said.startswith("diurnal:"):
        step_s, values = read_trace(Path(said))
        found[OPTION] = f"{step_s:g};" + ",".join(f"{value:g}" for value in values)
    return found


def read_trace(path: Path) -> tuple[float, list[float]]:
    """Return the length of a slot, s, and the intensities of a file; raises InputError."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            rows = csv.DictReader(lines)
            named = {name.strip().lower(): name for name in rows.fieldnames or () if name}
            value_at = _column(path, named)
            date_at = next((named[name] for name in DATES if name in named), "")
            date_at = date_at or next((n for k, n in named.items() if k.startswith("date")), "")
            dates: list[str] = []
            values: list[float] = []
            for number, row in enumerate(rows, 2):
                if number > ROWS_MAX:
                    raise InputError(str(path), f"more than {ROWS_MAX} rows")
                values.append(_number(row.get(value_at), f"{path}:{number}: {value_at}"))
                if date_at and len(dates) < 2:
                    dates.append(str(row.get(date_at)))
    except OSError as error:
        raise InputError(str(path), error.strerror or "cannot be read") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(str(path), f"is not a CSV file: {error}") from None
    if not values:
        raise InputError(str(path), "has no row")
    return (_apart(dates) if len(dates) == 2 else HOUR_S), values


def _column(path: Path, named: Mapping[str, str]) -> str:
    for name in VALUES:
        if name in named:
            return named[name]
    for name, said in named.items():
        if name.startswith("carbon intensity"):
            return said
    raise InputError(str(path), f"no column of carbon intensity: one of {', '.join(VALUES)}")


def _number(text: object, place: str) -> float:
    try:
        value = float(str(text))
    except ValueError:
        raise InputError(place, f"expected a number, got {text!r}") from None
    if not 0 <= value < 1e9:
        raise InputError(place, f"expected an intensity from 0 on, got {value:g}")
    return value


def _apart(dates: list[str]) -> float:
    """Return seconds between two moments; an hour where they are no dates or do not follow."""
    try:
        first, second = (float(date) for date in dates)
    except ValueError:
        try:
            first, second = (datetime.fromisoformat(date).timestamp() for date in dates)
        except ValueError:
            return HOUR_S
    return second - first if second > first else HOUR_S
