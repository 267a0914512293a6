"""A run's files: summary.json, jobs.csv, tasks.csv, nodes.csv, as the contract names them."""

import csv
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

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
    jain_index,
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

SERIES = ("running", "leftover")  # keys of summary.json that hold values over time


def summarise(
    run: Run, recorder: Recorder, *, scheduler: str, seed: int, events: int, wall_s: float
) -> dict[str, Any]:
    """The contents of summary.json."""
    ended = [row for row in run.jobs if row.state == "FINISHED"]
    shares = dominant_shares(run)
    states: dict[str, int] = {}
    for row in run.jobs:
        states[row.state] = states.get(row.state, 0) + 1
    times, running = running_over_time(run.tasks)
    extra = _leftover(run, recorder) if recorder.altruistic else {}
    return {
        "scheduler": scheduler,
        "seed": seed,
        "jobs": len(run.jobs),
        "tasks": recorder.finished_tasks,
        "makespan_s": makespan_s(run),
        "jct_s": percentiles(np.array([jct_s(row) for row in ended])),
        "jain": {str(window): jain_index(run, window, shares) for window in WINDOWS_S},
        "utilisation": utilisation(run),
        "events": events,
        "wall_s": wall_s,
        "digest": recorder.digest(),
        "states": states,
        "nodes": len(run.cluster.nodes),
        "decisions": recorder.decisions,
        "running": {"time_s": times, "tasks": running},
        **extra,
    }


def _leftover(run: Run, recorder: Recorder) -> dict[str, Any]:
    """What Carbyne's two types of ask got: the part of tasks placed as ALTRUISTIC, a series."""
    resource, times, default, altruistic = held_over_time(run, recorder.altruistic)
    spare = np.isin(run.tasks.container, np.array(recorder.altruistic, dtype=np.int64))
    return {
        "altruistic": float(spare.mean()),
        "leftover": {
            "resource": resource, "time_s": times, "default": default, "altruistic": altruistic,
        },
    }  # fmt: skip


def write_run(folder: Path, run: Run, summary: dict[str, Any]) -> None:
    """Write all files of a run."""
    folder.mkdir(parents=True, exist_ok=True)
    _csv(folder / "jobs.csv", JOB_COLUMNS, job_rows(run))
    _csv(folder / "tasks.csv", TASK_COLUMNS, task_rows(run))
    _csv(folder / "nodes.csv", NODE_COLUMNS, node_rows(run))
    _csv(folder / "stages.csv", STAGE_COLUMNS, stage_rows(run))
    (folder / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")


def _csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)
