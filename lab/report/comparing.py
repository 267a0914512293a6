"""Runs side by side: what each finished, its figures, and the gain job by job against the first.

Runs that finished different work are not ranked: a run whose jobs died early looks fast.
"""

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from weft.model.errors import InputError

PERCENTILES = (10, 25, 50, 75, 90)
# Runs of version 0.1.0 and before say FINISHED.
SUCCEEDED = frozenset({"SUCCEEDED", "FINISHED"})


@dataclass(frozen=True, slots=True)
class Compared:
    """One run's folder, as `compare` reads it; `jct_s` by job, of those that succeeded.

    `tasks` is by job, `ends` how many jobs ended in each way.
    """

    name: str
    folder: Path
    summary: dict[str, Any]
    jct_s: dict[str, float]
    tasks: dict[str, int]
    ends: dict[str, int]

    @property
    def jobs(self) -> int:
        """All jobs of the workload."""
        return len(self.tasks)


def read_run(folder: Path) -> Compared:
    """Read a run's summary and jobs; raises InputError naming the file."""
    if not folder.is_dir():
        raise InputError(str(folder), "no such folder: runs are what weft simulate --out wrote")
    rows = _job_rows(folder / "jobs.csv")
    try:
        keys = [f"{row['job']}:{row['name']}" for row in rows]
        ends = [row["state"] for row in rows]
        good = [
            (key, float(row["jct_s"]))
            for key, row in zip(keys, rows, strict=True)
            if row["state"] in SUCCEEDED
        ]
        tasks = {key: int(row["tasks"]) for key, row in zip(keys, rows, strict=True)}
    except (ValueError, KeyError, TypeError):
        raise InputError(str(folder / "jobs.csv"), "is not the table of a run's jobs") from None
    counts = {end: ends.count(end) for end in dict.fromkeys(ends)}
    return Compared(
        folder.name or str(folder),
        folder,
        _summary(folder / "summary.json"),
        dict(good),
        tasks,
        counts,
    )


def _summary(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return {**found, "jct_s": dict(found["jct_s"]), "jain": dict(found["jain"])}
    except OSError as error:
        raise InputError(str(path), error.strerror or "cannot be read") from None
    except (ValueError, KeyError, TypeError):
        raise InputError(str(path), "is not the summary of a run") from None


def _job_rows(path: Path) -> list[dict[str, str]]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))
    except OSError as error:
        raise InputError(str(path), error.strerror or "cannot be read") from None
    except (ValueError, csv.Error):
        raise InputError(str(path), "is not the table of a run's jobs") from None


def differs(first: Compared, other: Compared) -> str:
    """Return why two runs cannot be ranked: what they finished differs; empty: it does not."""
    if first.tasks != other.tasks:
        return f"another workload: {other.jobs:,} jobs against {first.jobs:,}"
    if first.jct_s.keys() == other.jct_s.keys():
        return ""
    only_first = len(first.jct_s.keys() - other.jct_s.keys())
    only_other = len(other.jct_s.keys() - first.jct_s.keys())
    return (
        f"other work: {len(other.jct_s):,} of {other.jobs:,} jobs succeeded against "
        f"{len(first.jct_s):,} ({only_first:,} only there, {only_other:,} only here)"
    )


def gains(first: Compared, other: Compared, common: bool = False) -> dict[str, Any]:
    """Return percentiles over jobs of (JCT of the first - JCT) / JCT of the first.

    None, with `why`, where the runs finished different work; with `common` over the jobs that
    succeeded in both all the same.
    """
    why = differs(first, other)
    shared = first.jct_s.keys() & other.jct_s.keys()
    found: dict[str, Any] = {"jobs": len(shared), "same_work": not why, "why": why}
    values: list[float] = []
    if common or not why:
        values = [
            (first.jct_s[job] - other.jct_s[job]) / first.jct_s[job]
            for job in shared
            if first.jct_s[job]
        ]
    for p in PERCENTILES:
        found[f"p{p}"] = float(np.percentile(values, p)) if values else None
    return found


def varied(value: object) -> str:
    """Return a value of a grid in one word: a table of options as `key=value`, none as `-`."""
    if isinstance(value, dict):
        return ",".join(f"{key}={one}" for key, one in value.items()) or "-"
    return str(value)
