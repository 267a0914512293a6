"""Groups of tasks of one stage that look identical to the Resource Manager.

A group shares demand, place in the preferred order and locality: a stage of 100,000 tasks is
asked for as a handful of rows. Inside a group, tasks follow the plan.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from weft.model.dag import Floats, Ints
from weft.model.job import Job, Preference, Stage
from weft.model.plan import Plan
from weft.model.resources import ResourceTypes, Vector
from weft.protocol.messages import AskType

# The preferred order is told in so many levels of priScore, per stage and per job.
STAGE_LEVELS_MAX, JOB_LEVELS_MAX = 16, 512


class TaskGroup:
    """Identical tasks of one stage; `tasks[rank]` is the task number at a rank of the plan's order.

    `ready` is a heap of ranks that may start now. `unstarted_s` sums the declared durations of the
    tasks that did not start; `norm` is the L1 norm of demand / capacity (docs/rules.md, rule 37).

    `number` is its position among all groups of the job, -1 before it has one. A container for one
    of its tasks is asked to hold `grant`. `rows` has the ask of each kind (`am.asking`).
    `declared_s` is one duration for every task, or one by task number.
    """

    __slots__ = (
        "declared_s",
        "demand",
        "gang",
        "grant",
        "label",
        "nodes",
        "norm",
        "number",
        "pri_score",
        "racks",
        "ready",
        "rows",
        "stage",
        "tasks",
        "unstarted",
        "unstarted_s",
    )

    def __init__(
        self,
        stage: int,
        tasks: Sequence[int],
        demand: Vector,
        prefer: Preference,
        pri_score: float,
    ) -> None:
        self.number = -1
        self.stage = stage
        self.tasks = tasks
        self.demand = demand
        self.grant = demand
        self.nodes = prefer.nodes
        self.racks = prefer.racks
        self.pri_score = pri_score
        self.label = ""
        self.gang = False
        self.norm = 0.0
        self.ready: list[int] = []
        self.rows: list[AskRow | None] = [None, None]
        self.unstarted = 0
        self.unstarted_s = 0.0
        self.declared_s: float | Sequence[float] = 0.0

    def weigh(self, capacity: Vector) -> None:
        """Set the norm of its demand for a cluster of this capacity."""
        self.norm = sum(d / c for d, c in zip(self.demand, capacity, strict=True) if c > 0)

    def declared_of(self, task: int) -> float:
        """Return the declared duration of a task of the group, s."""
        own = self.declared_s
        return own if isinstance(own, float) else own[task]


class AskRow:
    """One ask: containers of one kind for one group.

    `told` is the total last sent; `surplus`: the last grant came when no more was wanted.
    """

    __slots__ = ("ask_id", "granted", "group", "kind", "surplus", "told", "wanted")

    def __init__(self, ask_id: int, group: TaskGroup, kind: AskType) -> None:
        self.ask_id = ask_id
        self.group = group
        self.kind = kind
        self.granted = 0
        self.wanted = 0
        self.told = 0
        self.surplus = False


def build_groups(
    job: Job,
    types: ResourceTypes,
    capacity: Vector,
    plan: Plan | None,
    base_s: Sequence[float],
) -> list[list[TaskGroup]]:
    """Return the groups of every stage, numbered; without a plan, breadth first by hop count."""
    levels = max(1, min(STAGE_LEVELS_MAX, JOB_LEVELS_MAX // len(job.stages)))
    rank = None if plan is None else _ranks(plan.order)
    fallback = level_scores(job) if plan is None else []
    stages: list[list[TaskGroup]] = []
    first, number = 0, 0
    for position, stage in enumerate(job.stages):
        declared = _declared(stage, base_s[position])
        kinds = _kinds(stage, types)
        groups: list[TaskGroup] = []
        for (demand, prefer), tasks in kinds.items():
            if plan is None or rank is None:
                groups.append(TaskGroup(position, tasks, demand, prefer, fallback[position]))
            else:
                whole = slice(first, first + stage.tasks)
                few = max(1, levels // len(kinds))
                for chunk, score in _chunks(tasks, plan.pri_score[whole], rank[whole], few):
                    groups.append(TaskGroup(position, chunk, demand, prefer, score))
        for group in groups:
            group.number, number = number, number + 1
            group.label, group.gang = stage.label, stage.together
            group.declared_s = declared
            group.weigh(capacity)
        stages.append(groups)
        first += stage.tasks
    return stages


def level_scores(job: Job) -> list[float]:
    """Return priScore by stage of breadth first order (docs/rules.md, rule 68): hop count first."""
    hops = [0] * len(job.stages)
    for position in job.topological_order():
        hops[position] = max((hops[p] + 1 for p, _ in job.parents_of(position)), default=0)
    before = [0] * (max(hops) + 2)
    for hop, stage in zip(hops, job.stages, strict=True):
        before[hop + 1] += stage.tasks
    for hop in range(1, len(before)):
        before[hop] += before[hop - 1]
    count = max(job.task_count, 1)
    return [(count - before[hop]) / count for hop in hops]


def _declared(stage: Stage, base_s: float) -> float | list[float]:
    if stage.overrides and any(own.duration_s is not None for own in stage.overrides):
        return [stage.duration_of(i) for i in range(stage.tasks)]
    return float(stage.duration_s) if stage.duration_s > 0 else base_s


def _kinds(stage: Stage, types: ResourceTypes) -> dict[tuple[Vector, Preference], Sequence[int]]:
    """Return the tasks of a stage by demand and preference."""
    if not stage.overrides:
        return {(types.vector(stage.demand), stage.prefer): range(stage.tasks)}
    kinds: dict[tuple[Vector, Preference], list[int]] = {}
    own_demand = types.vector(stage.demand)
    for task, own in enumerate(stage.overrides):
        demand = own_demand if own.demand is None else types.vector(own.demand)
        prefer = stage.prefer if own.prefer is None else own.prefer
        kinds.setdefault((demand, prefer), []).append(task)
    if len(kinds) == 1:
        return {key: range(stage.tasks) for key in kinds}
    return dict(kinds)


def _ranks(order: Ints) -> Ints:
    """Return the position of every task in the preferred order."""
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return rank


def _chunks(
    tasks: Sequence[int], score: Floats, rank: Ints, levels: int
) -> list[tuple[Sequence[int], float]]:
    """Split tasks by priScore into at most `levels` runs in plan order; neighbours are merged.

    A merged run gets its mean score, so that it neither overtakes nor yields as a whole.
    """
    if isinstance(tasks, range):
        if (score == score[0]).all() and (rank[1:] > rank[:-1]).all():
            # most often, and what follows would find it
            return [(tasks, float(np.add.reduce(score) / len(score)))]
        numbers = np.arange(len(tasks))
    else:
        numbers = np.asarray(tasks, dtype=np.int64)
        score, rank = score[numbers], rank[numbers]
    ordered = np.lexsort((rank, -score))
    numbers, score = numbers[ordered], score[ordered]
    level = np.concatenate(([0], np.cumsum(np.diff(score) != 0)))
    distinct = int(level[-1]) + 1
    if distinct > levels:
        level = level * levels // distinct
    cuts = [0, *(np.flatnonzero(level[1:] != level[:-1]) + 1).tolist(), len(numbers)]
    follows = numbers[1:] == numbers[:-1] + 1
    chunks: list[tuple[Sequence[int], float]] = []
    for first, end in pairwise(cuts):
        part: Sequence[int] = numbers[first:end].tolist()
        if follows[first : end - 1].all():
            part = range(part[0], part[-1] + 1)
        chunks.append((part, float(np.add.reduce(score[first:end]) / (end - first))))
    return chunks
