"""What a live cluster's event logs say of its tasks, as rows of the tables of a run."""

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from weft.model.errors import WeftError
from weft.model.ids import app_of_container, format_container
from weft.model.job import Job
from weft.protocol.requests import ApplicationReport
from weft.results import SCHEMAS

Row = tuple[Any, ...]


def tasks_of(
    logs: Iterable[Path], jobs: Mapping[int, Job], cluster_ts: int = 0, manager: Path | None = None
) -> list[Row]:
    """Return rows of `tasks` from node managers' event logs, in the order in which they ended.

    A task that was running when its node manager went has no row. `ready_s` is not known there.
    A node says of a preempted task that it was killed; the manager's log tells why.
    """
    preempted = _preempted(manager) if manager is not None and manager.exists() else set()
    begun: dict[tuple[int, int, int, int], float] = {}
    rows: list[Row] = []
    for fact in (fact for log in logs for fact in _facts(log)):
        kind = fact.get("fact")
        if kind not in ("TaskStarted", "TaskStopped") or fact["stage"] < 0:
            continue
        key = (fact["container"], fact["stage"], fact["task"], fact["attempt"])
        if kind == "TaskStarted":
            begun[key] = fact["now_s"]
            continue
        container, stage, task, attempt = key
        app = app_of_container(container)
        job = jobs.get(app)
        name = job.stages[stage].name if job is not None else f"stage {stage}"
        start_s = begun.pop(key, fact["now_s"] - fact["run_s"])
        rows.append(
            (
                app,
                name,
                task,
                attempt,
                fact["node"],
                format_container(cluster_ts, container),
                "",
                round(start_s, 6),
                round(fact["now_s"], 6),
                "PREEMPTED"
                if fact["outcome"] == "KILLED" and container in preempted
                else fact["outcome"],
            )
        )
    rows.sort(key=lambda row: (row[8], row[7]))
    return rows


def jobs_of(reports: Iterable[ApplicationReport], tasks: Sequence[Row]) -> list[Row]:
    """Return rows of `jobs` from what the Resource Manager reports."""
    first: dict[int, float] = {}
    for row in tasks:
        first[row[0]] = min(first.get(row[0], row[7]), row[7])
    rows = []
    for r in reports:
        over = r.final_status != "UNDEFINED"
        finish_s = round(r.finished_s, 6) if over else ""
        jct_s = round(r.finished_s - r.submitted_s, 6) if over else ""
        rows.append(
            (
                r.app_id,
                r.name,
                r.queue,
                round(r.submitted_s, 6),
                first.get(r.app_id, ""),
                finish_s,
                jct_s,
                r.tasks,
                r.final_status if over else r.state,
            )
        )
    return rows


def stages_of(jobs: Mapping[int, Job]) -> list[Row]:
    """Return rows of `stages`."""
    return [
        (
            app,
            stage.name,
            stage.tasks,
            stage.duration_s,
            ";".join(f"{edge.stage}:{edge.kind.value}" for edge in stage.parents),
        )
        for app, job in jobs.items()
        for stage in job.stages
    ]


def write_tables(folder: Path, tables: Mapping[str, Sequence[Row]]) -> None:
    """Write tables as CSV into a folder; raises WeftError naming the file."""
    for name, rows in tables.items():
        path = folder / f"{name}.csv"
        try:
            with path.open("w", newline="", encoding="utf-8") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerow(SCHEMAS[name])
                writer.writerows(rows)
        except OSError as error:
            raise WeftError(f"{path}: cannot be written: {error.strerror or error}") from None


def _preempted(log: Path) -> set[int]:
    """Return the containers that the manager preempted, by its event log."""
    found = set()
    with log.open(encoding="utf-8") as file:
        for line in file:
            if line.endswith("\n") and '"Closed"' in line and '"PREEMPTED"' in line:
                found.add(json.loads(line)["container"])
    return found


def _facts(log: Path) -> Iterator[dict[str, Any]]:
    """Yield the facts of a log; a last line that was cut off is left out."""
    with log.open(encoding="utf-8") as file:
        for line in file:
            if line.endswith("\n") and '"Task' in line:
                yield json.loads(line)
