"""Scientific workflow executions in WfFormat 1.5, as WfCommons publishes them.

A workflow is a graph of single tasks. Tasks that run the same program at the same depth of the
graph become one stage; edges that are neither complete nor matched in blocks are listed task by
task (`stage_grouping`). No dependency is added and none is lost.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from statistics import fmean
from typing import Any

from weft.model.errors import InputError
from weft.model.job import Edge, Job, Stage
from weft.model.resources import read_amount
from weft.workloads.documents import load_document, stem
from weft.workloads.imported import Imported
from weft.workloads.reading import each_file, expand, gather, items, table, unique
from weft.workloads.stage_grouping import group_tasks

FORMAT = "wfformat"
VERSION = "1.5"
_NUMBER_SUFFIX = re.compile(r"(_?ID)?[_-]?\d+$")
_PROGRAM = re.compile(r"[^\s/]{1,80}")
_BYTES_PER_MB = 2**20


@dataclass(slots=True)
class _Task:
    """One task of a workflow: what runs, for how long, and with what; None where not given."""

    program: str
    parents: list[int]
    runtime_s: float
    cores: float | None
    # The average use is in cores.
    cpu: float | None
    memory_mb: float | None


def stream(
    sources: Sequence[Path], result: Imported, *, memory_mb: float = 1024.0
) -> Iterator[Job]:
    """Yield one job a file; `memory_mb` is the demand of tasks whose file gives no memory.

    A stage demands what its largest task used: `coreCount` cores, or else the average use rounded
    up to whole cores; and `memoryInBytes`. The estimate of the duration is the mean of its tasks.
    """
    memory_mb = read_amount(memory_mb, "memory_mb")
    yield from each_file(
        expand(sources), result, lambda path: [_read_file(path, result, memory_mb)]
    )


def read(sources: Sequence[Path], **options: Any) -> Imported:
    """Return WfFormat files; options as of `stream`; raises InputError when none is usable."""
    return gather(stream, sources, options)


def _read_file(path: Path, result: Imported, memory_mb: float) -> Job:
    place = str(path)
    data = table(load_document(path), place)
    if data.get("schemaVersion") != VERSION:
        raise InputError(
            f"{place}: schemaVersion", f"expected {VERSION!r}, got {data.get('schemaVersion')!r}"
        )
    workflow = table(data.get("workflow"), f"{place}: workflow")
    tasks = _tasks(workflow, place)
    stages = []
    taken: set[str] = set()
    groups = group_tasks([task.program for task in tasks], [task.parents for task in tasks])
    names = [unique(tasks[group.tasks[0]].program, taken) for group in groups]
    missing = 0
    for name, group in zip(names, groups, strict=True):
        members = [tasks[i] for i in group.tasks]
        memories = [task.memory_mb for task in members if task.memory_mb is not None]
        missing += 0 if memories else len(members)
        stages.append(
            Stage(
                name,
                len(members),
                fmean(task.runtime_s for task in members),
                {
                    "vcores": max(_cores(task) for task in members),
                    "memory_mb": float(ceil(max(memories))) if memories else memory_mb,
                },
                tuple(Edge(names[parent], kind, pairs) for parent, kind, pairs in group.parents),
                actual_duration_s=tuple(task.runtime_s for task in members),
            )
        )
    _warn(place, tasks, missing, memory_mb, result)
    return Job(stem(path), tuple(stages))


def _cores(task: _Task) -> float:
    return task.cores or float(max(1, ceil((task.cpu or 0.0) - 0.01)))


def _warn(place: str, tasks: list[_Task], missing: int, memory_mb: float, result: Imported) -> None:
    if missing:
        result.warnings.append(
            f"{place}: no memory is given for {missing} tasks: {memory_mb:g} MB each is assumed"
        )
    unknown = sum(task.cores is None and task.cpu is None for task in tasks)
    if unknown:
        result.warnings.append(f"{place}: no CPU use is given for {unknown} tasks: 1 core each")
    zero = sum(task.runtime_s == 0 for task in tasks)
    if zero:
        result.warnings.append(f"{place}: {zero} tasks have a runtime of exactly 0 s")


def _tasks(workflow: dict[str, Any], place: str) -> list[_Task]:
    """Return tasks in the order of the specification, with the positions of their parents."""
    where = f"{place}: workflow.specification"
    specification = table(workflow.get("specification"), where)
    planned: dict[str, dict[str, Any]] = {}
    for i, item in enumerate(items(specification.get("tasks"), f"{where}.tasks")):
        row = table(item, f"{where}.tasks[{i}]")
        identity = row.get("id")
        if not isinstance(identity, str) or not identity or identity in planned:
            raise InputError(f"{where}.tasks[{i}].id", f"not an id of its own: {identity!r}")
        planned[identity] = row
    if not planned:
        raise InputError(f"{where}.tasks", "the workflow has no task")
    runs = _runs(workflow, place)
    positions = {identity: position for position, identity in enumerate(planned)}
    tasks = []
    for identity, row in planned.items():
        if identity not in runs:
            raise InputError(f"{place}: workflow.execution.tasks", f"no task {identity!r}")
        parents = _references(row, "parents", positions, f"{where}.tasks")
        tasks.append(_task(row, runs[identity], [positions[parent] for parent in parents], place))
    _check_children(planned, positions, tasks, f"{where}.tasks")
    return tasks


def _runs(workflow: dict[str, Any], place: str) -> dict[str, dict[str, Any]]:
    where = f"{place}: workflow.execution"
    execution = table(workflow.get("execution"), where)
    runs: dict[str, dict[str, Any]] = {}
    for i, item in enumerate(items(execution.get("tasks"), f"{where}.tasks")):
        row = table(item, f"{where}.tasks[{i}]")
        if not isinstance(row.get("id"), str):
            raise InputError(f"{where}.tasks[{i}].id", f"not an id: {row.get('id')!r}")
        runs[row["id"]] = row
    return runs


def _references(row: dict[str, Any], key: str, positions: dict[str, int], where: str) -> list[str]:
    names = items(row.get(key, []), f"{where}.{row['id']}.{key}")
    for name in names:
        if not isinstance(name, str) or name not in positions:
            raise InputError(f"{where}.{row['id']}.{key}", f"no task {name!r}")
    return list(dict.fromkeys(names))


def _check_children(
    planned: dict[str, dict[str, Any]],
    positions: dict[str, int],
    tasks: list[_Task],
    where: str,
) -> None:
    """Raise unless both lists of an edge say the same: else the file contradicts itself."""
    down = {
        (position, positions[child])
        for position, row in enumerate(planned.values())
        for child in _references(row, "children", positions, where)
    }
    up = {(parent, child) for child, task in enumerate(tasks) for parent in task.parents}
    if down and down != up:
        parent, child = sorted(down ^ up)[0]
        names = list(planned)
        raise InputError(
            where, f"parents and children disagree on {names[parent]!r} -> {names[child]!r}"
        )


def _task(row: dict[str, Any], run: dict[str, Any], parents: list[int], place: str) -> _Task:
    where = f"{place}: workflow.execution.tasks.{row['id']}"

    def amount(key: str, unit: float) -> float | None:
        value = run.get(key)
        return None if value is None else read_amount(value, f"{where}.{key}") / unit

    runtime_s = amount("runtimeInSeconds", 1)
    if runtime_s is None:
        raise InputError(f"{where}.runtimeInSeconds", "is missing")
    return _Task(
        _program(row, run),
        parents,
        runtime_s,
        amount("coreCount", 1),
        amount("avgCPU", 100),
        amount("memoryInBytes", _BYTES_PER_MB),
    )


def _program(row: dict[str, Any], run: dict[str, Any]) -> str:
    """Return what tasks of one stage share: the program's name, or the task's without its number.

    Nextflow writes whole scripts as the program; there the task's name is that of the process.
    """
    command = run.get("command")
    program = command.get("program") if isinstance(command, dict) else None
    if isinstance(program, str) and _PROGRAM.fullmatch(program) and program.isprintable():
        return program
    name = row.get("name")
    name = name if isinstance(name, str) and name else str(row["id"])
    return _NUMBER_SUFFIX.sub("", name).replace("\0", "") or "task"
