"""Workloads in the formats that other simulators read: SWF and WfFormat.

Neither format says all that a job of Weft is, so what is lost is counted and told: a line of the
Standard Workload Format is one rigid parallel job that waits for one other at most, and has whole
seconds; WfFormat has no queue, no label and no gang.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from csv import DictReader
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

from weft.model.errors import InputError
from weft.model.job import EdgeKind, Job, Stage

# A workflow lists its edges task by task.
EDGES_MAX = 2_000_000
_KB_PER_MB = 1024
_BYTES_PER_MB = 2**20


class Span(NamedTuple):
    """When a stage's inputs were there, and its first task started and its last ended, s."""

    ready_s: float
    start_s: float
    end_s: float


Spans = Mapping[tuple[int, str], Span]


def spans_of(run: Path) -> Spans:
    """Return when the stages of a simulated run ran, by the job's place in the workload from 1."""
    path = run / "tasks.csv"
    found: dict[tuple[int, str], Span] = {}
    try:
        with path.open(newline="") as file:
            for row in DictReader(file):
                key = int(row["job"]), row["stage"]
                span = Span(float(row["ready_s"]), float(row["start_s"]), float(row["end_s"]))
                known = found.get(key, span)
                found[key] = Span(
                    min(known.ready_s, span.ready_s),
                    min(known.start_s, span.start_s),
                    max(known.end_s, span.end_s),
                )
    except (OSError, KeyError, ValueError) as error:
        raise InputError(str(path), f"is no table of a run's tasks: {error}") from None
    return found


def write_swf(out: Path, jobs: Iterable[Job], spans: Spans) -> Counter[str]:
    """Write a line a stage, in the order of the jobs; return what was lost, counted.

    A stage is a rigid job of all its tasks' processors. With `spans` its submission is when its
    inputs were there, and it has its wait and run time; else both are not known (-1) but the run
    time, which is the longest of its tasks.
    """
    lost: Counter[str] = Counter()
    users, queues = _Numbers(r"user(\d+)"), _Numbers(r"q(\d+)")
    lines: list[str] = []
    for place, job in enumerate(jobs, 1):
        numbers: dict[str, int] = {}
        for position in job.topological_order():
            stage = job.stages[position]
            numbers[stage.name] = number = len(lines) + 1
            known = [numbers[edge.stage] for edge in stage.parents]
            lost["dependencies on more than one stage"] += max(0, len(known) - 1)
            lost["labels"] += bool(stage.label)
            lost["tasks that could start one by one"] += (
                0 if stage.gang or stage.tasks == 1 else stage.tasks
            )
            span = spans.get((place, stage.name))
            whose = users.of(job.user), queues.of(job.queue)
            lines.append(_line(number, job, stage, span, whose, max(known, default=-1)))
    text = [
        "; Version: 2.2",
        "; Computer: written by weft export",
        f"; MaxJobs: {len(lines)}",
        f"; MaxRecords: {len(lines)}",
        "; UnixStartTime: 0",
        *(f"; User: {number} {name}" for name, number in users.named()),
        *(f"; Queue: {number} {name}" for name, number in queues.named()),
        *lines,
    ]
    out.write_text("\n".join(text) + "\n")
    return +lost


class _Numbers:
    """Numbers for names: a name's own where it was made from one, else the next that is free."""

    def __init__(self, pattern: str) -> None:
        self._pattern = re.compile(pattern)
        self._by_name: dict[str, int] = {}

    def of(self, name: str) -> int:
        """Return the number of a name; -1 for an empty one."""
        if not name:
            return -1
        if name not in self._by_name:
            taken = set(self._by_name.values())
            own = self._pattern.fullmatch(name)
            number = int(own[1]) if own else 1
            while number in taken:
                number += 1
            self._by_name[name] = number
        return self._by_name[name]

    def named(self) -> list[tuple[str, int]]:
        """Return every name with its number."""
        return list(self._by_name.items())


def _line(
    number: int, job: Job, stage: Stage, span: Span | None, whose: tuple[int, int], preceding: int
) -> str:
    tasks = range(stage.tasks)
    cores = [max(stage.demand_of(i).get("vcores", 1.0), 0.0) for i in tasks]
    processors = max(1, ceil(sum(cores) - 1e-9))
    memory_mb = max(stage.demand_of(i).get("memory_mb", 0.0) for i in tasks) / max(*cores, 1.0)
    submit_s, wait_s = job.arrival_s, -1.0
    run_s = max(stage.actual_duration_of(i) for i in tasks)
    if span is not None:
        submit_s, wait_s = max(span.ready_s, 0.0), max(0.0, span.start_s - span.ready_s)
        run_s = span.end_s - span.start_s
    memory_kb = round(memory_mb * _KB_PER_MB) or -1
    fields = [
        number,
        round(submit_s),
        round(wait_s),
        _whole(run_s),
        processors,
        -1,
        -1,
        processors,
        _whole(max(stage.duration_of(i) for i in tasks)),
        memory_kb,
        1 if span is not None else -1,
        whose[0],
        -1,
        -1,
        whose[1],
        -1,
        preceding,
        0 if preceding > 0 else -1,
    ]
    return " ".join(map(str, fields))


def _whole(time_s: float) -> int:
    """Return whole seconds: what takes any time takes one."""
    return max(1, round(time_s)) if time_s > 0 else 0


def write_wfformat(out: Path, jobs: Iterable[Job]) -> Counter[str]:
    """Write a file a job into a folder, in WfFormat 1.5; return what was lost, counted."""
    lost: Counter[str] = Counter()
    out.mkdir(parents=True, exist_ok=True)
    taken: set[str] = set()
    for job in jobs:
        name = re.sub(r"[^\w.-]", "_", job.name)[:100] or "job"
        while name in taken:
            name += "_"
        taken.add(name)
        (out / f"{name}.json").write_text(json.dumps(_workflow(job), indent=1) + "\n")
        lost["gangs"] += sum(stage.together for stage in job.stages)
        lost["labels"] += sum(bool(stage.label) for stage in job.stages)
        lost["queues"] += job.queue != "default"
        lost["times of arrival"] += job.arrival_s > 0
    return +lost


def _workflow(job: Job) -> dict[str, Any]:
    edges = sum(_edges(job, stage) for stage in job.stages)
    if edges > EDGES_MAX:
        raise InputError(job.name, f"its tasks have {edges:,} edges; at most {EDGES_MAX:,}")
    tasks: dict[str, dict[str, Any]] = {}
    runs = []
    for position in job.topological_order():
        stage = job.stages[position]
        for i in range(stage.tasks):
            identity = f"{stage.name}_{i:08d}"
            parents = [
                f"{edge.stage}_{parent:08d}"
                for edge in stage.parents
                for parent in edge.parent_tasks(job.stage(edge.stage).tasks, stage.tasks, i)
            ]
            tasks[identity] = {
                "name": stage.name,
                "id": identity,
                "parents": parents,
                "children": [],
                "inputFiles": [],
                "outputFiles": [],
            }
            for parent_id in parents:
                tasks[parent_id]["children"].append(identity)
            runs.append(_run(stage, i, identity))
    makespan_s = sum(
        max(stage.actual_duration_of(i) for i in range(stage.tasks)) for stage in job.stages
    )
    return {
        "name": job.name,
        "description": "written by weft export",
        "createdAt": "1970-01-01T00:00:00Z",
        "schemaVersion": "1.5",
        "workflow": {
            "specification": {"tasks": list(tasks.values()), "files": []},
            "execution": {
                "makespanInSeconds": makespan_s,
                "executedAt": "1970-01-01T00:00:00Z",
                "tasks": runs,
                "machines": [],
            },
        },
    }


def _edges(job: Job, stage: Stage) -> int:
    found = 0
    for edge in stage.parents:
        parents = job.stage(edge.stage).tasks
        if edge.kind is EdgeKind.ALL_TO_ALL:
            found += parents * stage.tasks
        else:
            found += len(edge.pairs.parents) or max(parents, stage.tasks)
    return found


def _run(stage: Stage, i: int, identity: str) -> dict[str, Any]:
    demand = stage.demand_of(i)
    run: dict[str, Any] = {
        "id": identity,
        "runtimeInSeconds": stage.actual_duration_of(i),
        "command": {"program": stage.name},
        "coreCount": max(demand.get("vcores", 1.0), 0.0),
    }
    if "memory_mb" in demand:
        run["memoryInBytes"] = round(demand["memory_mb"] * _BYTES_PER_MB)
    return run
