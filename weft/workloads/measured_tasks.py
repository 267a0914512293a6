"""Measured tasks of one job, gathered into stages: what the MapReduce-era formats share."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean

from weft.model.job import Edge, Job, Preference, Stage, TaskOverride
from weft.workloads.reading import unique

MAP, REDUCE = "map", "reduce"


@dataclass(frozen=True, slots=True)
class MeasuredTask:
    """One task as a history has it; `host` is where it ran, as `/rack/node`, or empty.

    `kind` is map, reduce or any other type, after which its stage is named.
    """

    kind: str
    duration_s: float
    vcores: float
    memory_mb: float
    priority: int = 0
    host: str = ""


def job_of_tasks(
    name: str,
    tasks: list[MeasuredTask],
    *,
    barrier: bool,
    queue: str = "",
    user: str = "",
    arrival_s: float = 0.0,
) -> Job:
    """Return one stage for each type, priority and demand; with a barrier, reduces wait for maps.

    The estimate is the mean duration of a stage; each task's own is the truth. Where it ran
    becomes its preference. Raises InputError when there is no task.
    """
    groups: dict[tuple[object, ...], list[MeasuredTask]] = {}
    for task in tasks:
        key = (task.kind, task.priority, task.vcores, task.memory_mb)
        groups.setdefault(key, []).append(task)
    taken: set[str] = set()
    names = {key: unique(str(key[0]), taken) for key in groups}
    maps = tuple(Edge(names[key]) for key in groups if key[0] == MAP)
    stages = tuple(
        _stage(names[key], members, maps if barrier and key[0] == REDUCE else ())
        for key, members in groups.items()
    )
    return Job(name, stages, queue=queue or "default", user=user, arrival_s=arrival_s)


def _stage(name: str, tasks: list[MeasuredTask], parents: tuple[Edge, ...]) -> Stage:
    preferences = [_preference(task.host) for task in tasks]
    same = all(one == preferences[0] for one in preferences)
    demand: Mapping[str, float] = {"vcores": tasks[0].vcores, "memory_mb": tasks[0].memory_mb}
    return Stage(
        name,
        len(tasks),
        fmean(task.duration_s for task in tasks),
        demand,
        parents,
        actual_duration_s=tuple(task.duration_s for task in tasks),
        prefer=preferences[0] if same else Preference(),
        overrides=() if same else tuple(TaskOverride(prefer=one) for one in preferences),
    )


def _preference(host: str) -> Preference:
    parts = [part for part in host.replace("\0", "").split("/") if part]
    if not parts:
        return Preference()
    return Preference((parts[-1],), tuple(parts[-2:-1]))
