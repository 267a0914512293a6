"""Runs side by side: what each finished, its figures, and the gain job by job against the first.

Runs that finished different work are not ranked: a run whose jobs died early looks fast.
"""

import csv
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from weft.model.errors import InputError
from weft.results.ends import SUCCEEDED, succeeded

PERCENTILES = (10, 25, 50, 75, 90)


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


def read_runs(folders: Iterable[Path]) -> list[Compared]:
    """Read runs; those whose folders have one name are named by their whole paths."""
    runs = [read_run(folder) for folder in folders]
    named = Counter(run.name for run in runs)
    return [replace(run, name=str(run.folder)) if named[run.name] > 1 else run for run in runs]


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
    told = _other_work(len(other.jct_s), other.jobs, len(first.jct_s))
    return f"{told} ({only_first:,} only there, {only_other:,} only here)"


def _other_work(own: int, jobs: int, first: int) -> str:
    return f"other work: {own:,} of {jobs:,} jobs succeeded against {first:,}"


def ranked(why: str) -> str:
    """Return whether a run is ranked, in the words of a table."""
    return f"no: {why}" if why else "yes"


def why_failed(estimate_error: str) -> str:
    """Return what may have ended jobs of a run with wrong estimates, as the end of a sentence."""
    if not estimate_error.startswith("-"):
        return ""
    return ": tasks whose memory is estimated too low end OUT_OF_MEMORY where a node has no more"


def unranked(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return by row of a study why it cannot be ranked among the others; empty: it can.

    Those of one workload can where the very jobs succeeded that did where most did.
    """
    most: dict[str, Mapping[str, Any]] = {}
    for row in rows:
        known = most.setdefault(row["workload"], row)
        if succeeded(row) > succeeded(known):
            most[row["workload"]] = row
    firsts = [most[row["workload"]] for row in rows]
    return [
        ""
        if _work(row) == _work(first)
        else _other_work(succeeded(row), row["jobs"], succeeded(first))
        for row, first in zip(rows, firsts, strict=True)
    ]


def _work(row: Mapping[str, Any]) -> object:
    """Return what stands for the jobs that succeeded; of some, earlier rows do not tell which."""
    return True if succeeded(row) == row["jobs"] else row.get("work", row)


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
