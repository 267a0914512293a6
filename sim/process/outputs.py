"""A run's files: summary.json, jobs.csv, tasks.csv, nodes.csv, as the contract names them."""

import csv
import hashlib
import json
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from sim.recorder import Recorder
from sim.results import (
    JOB_COLUMNS,
    NODE_COLUMNS,
    STAGE_COLUMNS,
    TASK_COLUMNS,
    WINDOWS_S,
    Run,
    dominant_shares,
    held_over_time,
    jain_by_window,
    jct_s,
    job_rows,
    makespan_s,
    node_rows,
    percentiles,
    running_over_time,
    stage_rows,
    task_rows,
    utilisation,
)
from weft.model.errors import InputError, WeftError
from weft.model.resources import Vector
from weft.results import NAMES

# Keys of summary.json that hold values over time.
SERIES = ("running", "leftover")


def check_folder(path: str) -> None:
    """Make the folder of the results; raises InputError where it can hold none.

    Asked before a run, so that no run is lost for a folder that cannot be written.
    """
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except FileExistsError:
        raise InputError("--out", f"{folder} is a file, not a folder") from None
    except OSError as error:
        raise InputError("--out", f"{folder}: {error.strerror or error}") from None


def clear_others(folder: Path, *, decisions: bool) -> list[Path]:
    """Take away what an earlier run in a folder wrote and this one may not; return what it was.

    So nobody takes the report or the decisions of one run for those of another.
    """
    optional = ["report.html", *(f"{name}.parquet" for name in NAMES)]
    if not decisions:
        optional.append("decisions.jsonl")
    found = [path for name in optional if (path := folder / name).is_file()]
    for path in found:
        path.unlink()
    return found


def summarise(
    run: Run,
    recorder: Recorder,
    *,
    scheduler: str,
    seed: int,
    events: int,
    wall_s: float,
    master: Vector = (),
) -> dict[str, Any]:
    """Return what a run measured: a part of summary.json.

    Completion times are of the jobs that succeeded, which `work` stands for; `states` counts how
    all of them ended, or where they stood. Jain's index is null where no window says anything.
    `master` is what one holds.
    """
    good = [row for row in run.jobs if row.end == "SUCCEEDED"]
    shares = dominant_shares(run)
    states: dict[str, int] = {}
    for row in run.jobs:
        states[row.end] = states.get(row.end, 0) + 1
    # Where no task started, no window says who held how much.
    windows = {
        str(window): jain_by_window(run, window, shares) if len(shares) else shares
        for window in WINDOWS_S
    }
    times, running = running_over_time(run.tasks)
    extra = _leftover(run, recorder) if recorder.altruistic else {}
    return {
        "scheduler": scheduler,
        "seed": seed,
        "jobs": len(run.jobs),
        "tasks": recorder.finished_tasks,
        "makespan_s": makespan_s(run),
        "jct_s": percentiles(np.array([jct_s(row) for row in good])),
        "jain": {name: float(v.mean()) if len(v) else None for name, v in windows.items()},
        "jain_windows": {name: len(values) for name, values in windows.items()},
        "utilisation": utilisation(run),
        "masters": _masters(run, recorder, master),
        "events": events,
        "wall_s": wall_s,
        "digest": recorder.digest(),
        "states": states,
        "work": _work(sorted(row.job.name for row in good)),
        "nodes": len(run.cluster.nodes),
        "decisions": recorder.decisions,
        "running": {"time_s": times, "tasks": running},
        **extra,
    }


def _work(names: Sequence[str]) -> str:
    """Return what stands for the jobs that succeeded: equal where they were the same ones."""
    return hashlib.sha256("\0".join(names).encode()).hexdigest()[:16]


def _masters(run: Run, recorder: Recorder, master: Vector) -> dict[str, float]:
    """Return what the jobs' masters held of each resource, on average, as parts of C."""
    span_s = makespan_s(run)
    names, total = run.cluster.types.names, run.cluster.total
    begin_s = min(row.job.arrival_s for row in run.jobs)
    held_s = recorder.masters_until(begin_s + span_s)
    return {
        name: amount * held_s / (whole * span_s) if whole and span_s > 0 else 0.0
        for name, amount, whole in zip(names, master or (0.0,) * len(names), total, strict=True)
    }


def _leftover(run: Run, recorder: Recorder) -> dict[str, Any]:
    """Return what Carbyne's ALTRUISTIC asks got: their part of the tasks, and a series by type."""
    resource, times, default, altruistic = held_over_time(run, recorder.altruistic)
    spare = np.isin(run.tasks.container, np.array(recorder.altruistic, dtype=np.int64))
    return {
        "altruistic": float(spare.mean()),
        "leftover": {
            "resource": resource,
            "time_s": times,
            "default": default,
            "altruistic": altruistic,
        },
    }


def write_run(folder: Path, run: Run, summary: dict[str, Any]) -> None:
    """Write all files of a run, each whole or not at all; raises WeftError naming the file."""
    folder.mkdir(parents=True, exist_ok=True)
    _csv(folder / "jobs.csv", JOB_COLUMNS, job_rows(run))
    _csv(folder / "tasks.csv", TASK_COLUMNS, task_rows(run))
    _csv(folder / "nodes.csv", NODE_COLUMNS, node_rows(run))
    _csv(folder / "stages.csv", STAGE_COLUMNS, stage_rows(run))
    with written(folder / "summary.json") as file:
        file.write(json.dumps(summary, indent=1) + "\n")


@contextmanager
def written(path: Path) -> Iterator[TextIO]:
    """Yield a file that appears whole or not at all; raises WeftError naming it."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("w", newline="", encoding="utf-8") as file:
            yield file
        partial.replace(path)
    except OSError as error:
        problem = f"cannot be written: {error.strerror or error}"
        raise WeftError(f"{path}: {problem}") from None
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def logged(path: Path) -> Iterator[TextIO]:
    """Yield a file that grows line by line; raises WeftError naming it where one has no room."""
    try:
        with path.open("w", encoding="utf-8") as file:
            yield file
    except BrokenPipeError:
        # The pipe is that of the terminal, not of this file.
        raise
    except OSError as error:
        if error.filename not in (None, str(path)):
            raise
        raise WeftError(f"{path}: cannot be written: {error.strerror or error}") from None


def _csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    with written(path) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)
