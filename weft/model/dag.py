"""A job's DAG as numbers: tasks in stage order, demands as rows, edges kept by stage.

Tasks are numbered stage by stage, so stage s owns tasks `first[s]` to `first[s + 1] - 1`. Edges are
kept by stage because a barrier between two stages of n tasks has n * n task edges.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property, reduce
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from weft.model.errors import InputError
from weft.model.job import Edge, EdgeKind, Job, one_to_one_parents
from weft.model.resources import TOLERANCE, ResourceTypes, Vector

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Number = TypeVar("Number", np.float64, np.bool_)


class Link(StrEnum):
    """Which task edges a stage edge stands for.

    ALL joins every child task to every parent task, ONE contiguous blocks of them
    (`weft.model.job.one_to_one_parents`), SOME exactly the listed pairs.
    """

    ALL = "all"
    ONE = "one"
    SOME = "some"


@dataclass(frozen=True, slots=True, eq=False)
class StageEdge:
    """An edge between two stages; `pairs` holds (parent task, child task) rows for Link.SOME."""

    parent: int
    child: int
    link: Link
    pairs: Ints | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Dag:
    """The DAG that planners and bounds see: estimates only, absolute units.

    `duration_s` has shape (n,), `demand` (n, d), `first` (stages + 1,).
    """

    resources: tuple[str, ...]
    stage_names: tuple[str, ...]
    first: Ints
    duration_s: Floats
    demand: Floats
    edges: tuple[StageEdge, ...]

    @property
    def tasks(self) -> int:
        """The number of tasks, n."""
        return len(self.duration_s)

    @property
    def stages(self) -> int:
        """The number of stages."""
        return len(self.stage_names)

    @property
    def stage_of(self) -> Ints:
        """The stage of each task, shape (n,)."""
        return np.repeat(np.arange(self.stages), np.diff(self.first))

    def size(self, stage: int) -> int:
        """Return the number of tasks of a stage."""
        return int(self.first[stage + 1] - self.first[stage])

    def tasks_of(self, stage: int) -> range:
        """Return task numbers of a stage."""
        return range(int(self.first[stage]), int(self.first[stage + 1]))

    def task_edges(self) -> Iterator[tuple[int, int]]:
        """Yield every (parent task, child task) pair; a barrier gives all its pairs."""
        for edge in self.edges:
            yield from self.pairs_of(edge)

    def pairs_of(self, edge: StageEdge) -> Iterator[tuple[int, int]]:
        """Yield the (parent task, child task) pairs of one stage edge."""
        if edge.pairs is not None:
            yield from ((int(p), int(c)) for p, c in edge.pairs)
            return
        parents, children = self.tasks_of(edge.parent), self.tasks_of(edge.child)
        for position, child in enumerate(children):
            if edge.link is Link.ALL:
                yield from ((parent, child) for parent in parents)
            else:
                block = one_to_one_parents(len(parents), len(children), position)
                yield from ((parents[p], child) for p in block)

    def digest(self) -> str:
        """Return a hash of everything that a plan depends on, names left out."""
        mixed = hashlib.sha256(repr(self.resources).encode())
        for array in (self.first, self.duration_s, self.demand):
            mixed.update(np.ascontiguousarray(array).tobytes())
        for edge in self.edges:
            mixed.update(f"{edge.parent},{edge.child},{edge.link.value};".encode())
            if edge.pairs is not None:
                mixed.update(np.ascontiguousarray(edge.pairs).tobytes())
        return mixed.hexdigest()


def dag_of_job(job: Job, types: ResourceTypes) -> Dag:
    """Return the DAG of a job's estimates over a cluster's resource types; raises InputError."""
    first = np.cumsum([0] + [stage.tasks for stage in job.stages])
    durations: list[float] = []
    demands: list[Vector] = []
    alike_tasks: list[int] = []
    for position, stage in enumerate(job.stages):
        place = f"stages[{position}].demand"
        if stage.overrides:
            durations.extend([stage.duration_of(i) for i in range(stage.tasks)])
            demands.extend([types.vector(stage.demand_of(i), place) for i in range(stage.tasks)])
            alike_tasks.extend([1] * stage.tasks)
        else:
            durations.append(stage.duration_s)
            demands.append(types.vector(stage.demand, place))
            alike_tasks.append(stage.tasks)
    rows = np.array(demands, dtype=np.float64).reshape(-1, len(types))
    edges = tuple(
        _stage_edge(parent, child, edge, first)
        for child in range(len(job.stages))
        for parent, edge in job.edges_of(child)
    )
    return Dag(
        resources=types.names,
        stage_names=tuple(stage.name for stage in job.stages),
        first=first.astype(np.int64),
        duration_s=np.repeat(np.array(durations, dtype=np.float64), alike_tasks),
        demand=np.repeat(rows, alike_tasks, axis=0),
        edges=edges,
    )


def _stage_edge(parent: int, child: int, edge: Edge, first: Ints) -> StageEdge:
    if edge.kind is not EdgeKind.PAIRS:
        return StageEdge(parent, child, Link.ONE if edge.kind is EdgeKind.ONE_TO_ONE else Link.ALL)
    columns = [
        np.frombuffer(tasks, np.uint32).astype(np.int64) + first[stage]
        for tasks, stage in ((edge.pairs.parent, parent), (edge.pairs.child, child))
    ]
    return StageEdge(parent, child, Link.SOME, np.column_stack(columns))


def by_resource(combine: np.ufunc, table: NDArray[Number]) -> NDArray[Number]:
    """Return what a function of two makes of each row of a table (n, d), shape (n,).

    As `combine.reduce(table, axis=1)`, which takes many times as long where rows are short.
    """
    combined: NDArray[Number] = reduce(combine, table.T)
    return combined


def holds(capacity: Floats, demand: Floats) -> Flags:
    """Return whether empty machines hold demands, (d,) or (n, d), within rounding; shape (n,)."""
    within: Flags = demand <= capacity * (1 + TOLERANCE) + 1e-12
    return by_resource(np.logical_and, within) if within.ndim > 1 else np.asarray(within.all())


@dataclass(frozen=True, eq=False)
class Machines:
    """The machines that a job may use; `capacity` has shape (m, d), absolute units.

    `speeds`, shape (m,), says how much faster than estimated tasks run on each; none: all at 1.
    """

    capacity: Floats
    speeds: Floats = field(default_factory=lambda: np.zeros(0))

    @property
    def speed(self) -> Floats:
        """The speed of each machine, shape (m,)."""
        return self.speeds if len(self.speeds) else np.ones(self.count)

    @property
    def unlike(self) -> bool:
        """Whether any machine has a speed other than 1."""
        return bool(np.any(self.speeds != 1.0))

    @cached_property
    def kinds(self) -> Floats:
        """The distinct capacities, shape (kinds, d)."""
        return np.unique(self.capacity, axis=0)

    @property
    def count(self) -> int:
        """The number of machines, m."""
        return len(self.capacity)

    @cached_property
    def total(self) -> Floats:
        """C: the sum over machines, shape (d,)."""
        return np.asarray(self.capacity.sum(axis=0))

    @classmethod
    def alike(cls, count: int, capacity: Sequence[float]) -> "Machines":
        """Return `count` machines of equal capacity."""
        return cls(np.tile(np.asarray(capacity, dtype=np.float64), (count, 1)))

    def check_fits(self, dag: Dag) -> None:
        """Raise InputError naming the first stage with a task that fits on no machine."""
        if not self.count:
            raise InputError("cluster", "has no machine")
        fits = np.zeros(dag.tasks, dtype=bool)
        for row in self.kinds:
            fits |= holds(row, dag.demand)
        if fits.all():
            return
        task = int(np.argmin(fits))
        stage = int(dag.stage_of[task])
        largest = self.capacity.max(axis=0)
        wanted = [
            (need > most * (1 + TOLERANCE), f"{name} {need:g} (largest machine has {most:g})")
            for name, need, most in zip(dag.resources, dag.demand[task], largest, strict=True)
            if need > 0
        ]
        # The problem names what no machine has, or else all of it, which no machine has together.
        needs = ", ".join([text for over, text in wanted if over] or [text for _, text in wanted])
        where = f"stage {dag.stage_names[stage]!r} task {task - int(dag.first[stage])}"
        raise InputError(where, f"fits on no machine: needs {needs}")
