"""A job: stages of similar tasks, joined by edges. What schedulers are told, and what happens.

`weft.model.jobfile` reads and writes the file format.
Estimates (`duration_s`, `demand`) are for schedulers; the truth (`actual_*`) is for node managers.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise

from weft.model.errors import InputError
from weft.model.recording import Recording
from weft.model.resources import read_amount


class EdgeKind(StrEnum):
    """How a child stage depends on a parent stage.

    ALL_TO_ALL is a barrier: every child task needs every parent task. ONE_TO_ONE joins contiguous
    blocks (`one_to_one_parents`), PAIRS exactly the listed pairs of tasks (`TaskPairs`). BROADCAST
    is scheduled as a barrier, and the parent's output goes to every child.
    """

    ALL_TO_ALL = "all_to_all"
    ONE_TO_ONE = "one_to_one"
    BROADCAST = "broadcast"
    PAIRS = "pairs"


@dataclass(frozen=True, slots=True)
class TaskPairs:
    """(parent task, child task) index pairs of an edge, ascending, none twice: 8 bytes a pair.

    Make them with `TaskPairs.of`; the fields are columns of 32-bit integers.
    """

    parent: bytes = b""
    child: bytes = b""
    _by_child: list["tuple[array[int], array[int]]"] = field(
        default_factory=list, init=False, repr=False, compare=False
    )

    @classmethod
    def of(cls, pairs: Iterable[tuple[int, int]]) -> "TaskPairs":
        """Return the pairs in whatever order; raises InputError for one that occurs twice."""
        rows = sorted(pairs)
        for before, row in pairwise(rows):
            if before == row:
                raise InputError("pairs", f"the pair {list(row)} occurs twice")
        return cls(
            array("I", [parent for parent, _ in rows]).tobytes(),
            array("I", [child for _, child in rows]).tobytes(),
        )

    def __len__(self) -> int:
        return len(self.parent) // 4

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self.parents, self.children, strict=True)

    @property
    def parents(self) -> "memoryview[int]":
        """The parent task of each pair, ascending."""
        return memoryview(self.parent).cast("I")

    @property
    def children(self) -> "memoryview[int]":
        """The child task of each pair, ascending among those of one parent task."""
        return memoryview(self.child).cast("I")

    def children_of(self, parent: int) -> Sequence[int]:
        """Return the child tasks that wait for a parent task, ascending."""
        parents = self.parents
        return self.children[bisect_left(parents, parent) : bisect_right(parents, parent)]

    def parents_of(self, child: int) -> Sequence[int]:
        """Return the parent tasks that a child task waits for, ascending; sorts the pairs once."""
        if not self._by_child:
            turned = sorted((below, above) for above, below in self)
            self._by_child.append(
                (array("I", [b for b, _ in turned]), array("I", [a for _, a in turned]))
            )
        children, parents = self._by_child[0]
        return parents[bisect_left(children, child) : bisect_right(children, child)]


NO_PAIRS = TaskPairs()


@dataclass(frozen=True, slots=True)
class Edge:
    """A dependency on a parent stage; `pairs` belong to EdgeKind.PAIRS and to no other kind."""

    stage: str
    kind: EdgeKind = EdgeKind.ALL_TO_ALL
    pairs: TaskPairs = NO_PAIRS

    def parent_tasks(self, parents: int, children: int, child: int) -> Sequence[int]:
        """Return which parent tasks one child task waits for, given both stages' sizes."""
        if self.kind is EdgeKind.ONE_TO_ONE:
            return one_to_one_parents(parents, children, child)
        if self.kind is EdgeKind.PAIRS:
            return self.pairs.parents_of(child)
        return range(parents)


@dataclass(frozen=True, slots=True)
class Preference:
    """Where a task's input lies: node and rack names; empty means anywhere is as good."""

    nodes: tuple[str, ...] = ()
    racks: tuple[str, ...] = ()


NO_PREFERENCE = Preference()


@dataclass(frozen=True, slots=True)
class TaskOverride:
    """What differs for one task from its stage; None means as the stage says."""

    duration_s: float | None = None
    demand: Mapping[str, float] | None = None
    actual_duration_s: float | None = None
    actual_demand: Mapping[str, float] | None = None
    prefer: Preference | None = None
    command: tuple[str, ...] | None = None


NO_OVERRIDE = TaskOverride()


@dataclass(frozen=True, slots=True)
class Stage:
    """Tasks that run the same code. `demand` is of ONE task, in absolute units by resource name.

    An `actual_duration_s` that is a tuple has one entry per task; `overrides` are empty or one per
    task. Tasks need a node with `label`; an empty one means nodes without a label. The tasks of a
    `gang` are started all at once or not at all. Tasks save their work every `checkpoint_s`; 0 is
    never.
    """

    name: str
    tasks: int
    duration_s: float
    demand: Mapping[str, float]
    parents: tuple[Edge, ...] = ()
    actual_duration_s: float | tuple[float, ...] | None = None
    actual_demand: Mapping[str, float] | None = None
    prefer: Preference = NO_PREFERENCE
    command: tuple[str, ...] = ()
    label: str = ""
    gang: bool = False
    overrides: tuple[TaskOverride, ...] = ()
    checkpoint_s: float = 0.0

    @property
    def together(self) -> bool:
        """Whether its tasks start all at once: a gang of one is no gang."""
        return self.gang and self.tasks > 1

    def override(self, index: int) -> TaskOverride:
        """Return what task `index` overrides."""
        return self.overrides[index] if self.overrides else NO_OVERRIDE

    def alike(self) -> Iterator[tuple[int, int]]:
        """Yield one task of each set of tasks that nothing tells apart, and how many these are."""
        if self.overrides:
            yield from ((index, 1) for index in range(self.tasks))
        else:
            yield 0, self.tasks

    def duration_of(self, index: int) -> float:
        """Return the estimated duration of a task, s."""
        own = self.override(index).duration_s
        return self.duration_s if own is None else own

    def demand_of(self, index: int) -> Mapping[str, float]:
        """Return the estimated demand of a task."""
        own = self.override(index).demand
        return self.demand if own is None else own

    def actual_duration_of(self, index: int) -> float:
        """Return the true duration of a task on an uncontended node, s."""
        own = self.override(index)
        if own.actual_duration_s is not None:
            return own.actual_duration_s
        if isinstance(self.actual_duration_s, tuple):
            return self.actual_duration_s[index]
        if self.actual_duration_s is not None:
            return self.actual_duration_s
        return self.duration_of(index)

    def actual_demand_of(self, index: int) -> Mapping[str, float]:
        """Return the resources that a task really uses."""
        own = self.override(index)
        if own.actual_demand is not None:
            return own.actual_demand
        return self.actual_demand if self.actual_demand is not None else self.demand_of(index)

    def command_of(self, index: int) -> tuple[str, ...]:
        """Return the command that a real host runs for a task."""
        own = self.override(index).command
        return self.command if own is None else own


@dataclass(frozen=True, slots=True)
class MasterSpec:
    """An Application Master that a job brings along instead of Weft's own (Spark's, Flink's).

    Its job is *open*: it has no stages of its own, and what it asks for is known when it asks.

    `demand` is that of the master's own container. `command` is what the node runs, with
    `environment`, on a node with `label`. Weft's own master repeats a `recorded` attempt, and then
    there is no command. With neither command nor recording the master is unmanaged: it runs
    elsewhere. `max_attempts` are those of the application, within the manager's own limit; 0 is
    that limit.
    """

    demand: Mapping[str, float]
    command: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    label: str = ""
    max_attempts: int = 0
    recorded: Recording | None = None


# The only stage of an open job: containers are counted under it, tasks are not known.
OPEN_STAGE = Stage("containers", 0, 0.0, {})


@dataclass(frozen=True, slots=True)
class Job:
    """A DAG of stages, checked: names are unique, parents exist, there is no cycle.

    It is killed `lifetime_s` after its submission; 0 is its queue's. `input_mb` normalises the
    history of a recurring job; 0 is unknown. `resources` are the types that it uses, where they
    differ from the default. `kind` is YARN's application type, as SPARK. `master` is that of an
    open job.
    """

    name: str
    stages: tuple[Stage, ...]
    queue: str = "default"
    user: str = ""
    priority: int = 0
    arrival_s: float = 0.0
    max_task_attempts: int = 4
    lifetime_s: float = 0.0
    history_key: str = ""
    input_mb: float = 0.0
    resources: tuple[str, ...] = ()
    kind: str = "WEFT"
    tags: tuple[str, ...] = ()
    master: MasterSpec | None = None
    _index: dict[str, int] = field(default_factory=dict, init=False, repr=False, compare=False)
    _task_count: int = field(default=0, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.master is not None:
            if self.stages not in ((), (OPEN_STAGE,)):
                raise InputError("stages", "a job with a master of its own has no stages")
            object.__setattr__(self, "stages", (OPEN_STAGE,))
        if not self.stages:
            raise InputError("stages", "a job needs at least one stage")
        for position, stage in enumerate(self.stages):
            if stage.name in self._index:
                raise InputError(f"stages[{position}].name", f"stage {stage.name!r} occurs twice")
            self._index[stage.name] = position
        for position, stage in enumerate(self.stages):
            _check_parents(self, stage, f"stages[{position}].parents")
        self.topological_order()
        # A manager asks for it at each ask of a master, of which there is one a stage.
        object.__setattr__(self, "_task_count", sum(stage.tasks for stage in self.stages))

    @property
    def task_count(self) -> int:
        """The number of tasks of all stages."""
        return self._task_count

    @property
    def unmanaged(self) -> bool:
        """Whether the job's master runs outside the cluster, in no container."""
        spec = self.master
        return spec is not None and not spec.command and spec.recorded is None

    def work_s(self, capacity: Mapping[str, float]) -> float:
        """Return how long the estimated work would keep a capacity, the sum over the resources, s.

        `capacity` is in absolute units; what it has nothing of does not count.
        """
        return sum(
            stage.duration_of(index) * count * amount / capacity[name]
            for stage in self.stages
            for index, count in stage.alike()
            for name, amount in stage.demand_of(index).items()
            if capacity.get(name)
        )

    def index_of(self, stage: str) -> int:
        """Return the position of a stage by name."""
        return self._index[stage]

    def stage(self, name: str) -> Stage:
        """Return a stage by name."""
        return self.stages[self._index[name]]

    def parents_of(self, position: int) -> Iterator[tuple[int, EdgeKind]]:
        """Return positions of a stage's parents with the kind of each edge."""
        for edge in self.stages[position].parents:
            yield self._index[edge.stage], edge.kind

    def edges_of(self, position: int) -> Iterator[tuple[int, Edge]]:
        """Return positions of a stage's parents with the edges themselves."""
        for edge in self.stages[position].parents:
            yield self._index[edge.stage], edge

    def topological_order(self) -> tuple[int, ...]:
        """Return stage positions, parents first, ties in file order; InputError names a cycle."""
        order = parents_first([[p for p, _ in self.parents_of(i)] for i in range(len(self.stages))])
        if len(order) < len(self.stages):
            raise InputError("stages", f"the edges form a cycle: {_name_cycle(self, order)}")
        return tuple(order)


def parents_first(parents: Sequence[Sequence[int]]) -> list[int]:
    """Return positions, those of `parents` before each, ties in the order given.

    What is in a circle or behind one is left out.
    """
    children: list[list[int]] = [[] for _ in parents]
    for child, above in enumerate(parents):
        for parent in above:
            children[parent].append(child)
    missing = [len(above) for above in parents]
    order = [i for i, count in enumerate(missing) if count == 0]
    # The list grows while it is read.
    for position in order:
        for child in children[position]:
            missing[child] -= 1
            if missing[child] == 0:
                order.append(child)
    return order


def one_to_one_parents(parents: int, children: int, child: int) -> range:
    """Return the parent tasks of one child task of a one_to_one edge.

    Matched in contiguous blocks: every child has a parent and every parent has a child.
    """
    if parents >= children:
        return range(child * parents // children, (child + 1) * parents // children)
    first = child * parents // children
    return range(first, first + 1)


def one_to_one_children(parents: int, children: int, parent: int) -> range:
    """Return the child tasks of one parent task: `one_to_one_parents`, inverted."""
    if parents >= children:
        child = ((parent + 1) * children - 1) // parents
        return range(child, child + 1)
    return range(-(-parent * children // parents), -(-(parent + 1) * children // parents))


def _check_parents(job: Job, stage: Stage, place: str) -> None:
    seen: set[str] = set()
    for number, edge in enumerate(stage.parents):
        where = f"{place}[{number}]"
        if edge.stage not in job._index:
            raise InputError(where, f"stage {stage.name!r} names an unknown parent {edge.stage!r}")
        if edge.stage in seen:
            raise InputError(where, f"stage {stage.name!r} names parent {edge.stage!r} twice")
        seen.add(edge.stage)
        if edge.pairs or edge.kind is EdgeKind.PAIRS:
            _check_pairs(edge, job.stage(edge.stage), stage, where)


def _check_pairs(edge: Edge, parent: Stage, child: Stage, where: str) -> None:
    if edge.kind is not EdgeKind.PAIRS:
        raise InputError(f"{where}.pairs", f"an edge of kind {edge.kind.value!r} lists no pairs")
    if not edge.pairs:
        raise InputError(f"{where}.pairs", "an edge of kind 'pairs' lists at least one pair")
    for stage, tasks in ((parent, edge.pairs.parents), (child, edge.pairs.children)):
        largest = max(tasks)
        if largest >= stage.tasks:
            raise InputError(
                f"{where}.pairs",
                f"stage {stage.name!r} has no task {largest}: it has {stage.tasks}",
            )


def _name_cycle(job: Job, order: Collection[int]) -> str:
    left = [i for i in range(len(job.stages)) if i not in order]
    position, seen = left[0], list[int]()
    while position not in seen:
        seen.append(position)
        position = next(p for p, _ in job.parents_of(position) if p in left)
    loop = [*seen[seen.index(position) :], position]
    return " -> ".join(job.stages[i].name for i in reversed(loop))


def read_number_per_task(value: object, tasks: int, place: str) -> float | tuple[float, ...]:
    """Read a number, or a list with one number per task."""
    if isinstance(value, list):
        if len(value) != tasks:
            raise InputError(place, f"expected {tasks} numbers, one per task, got {len(value)}")
        return tuple(read_amount(v, f"{place}[{i}]") for i, v in enumerate(value))
    return read_amount(value, place)
