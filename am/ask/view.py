"""What an asker may see of its job: read-only, estimates only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from weft.model.ids import NodeId
from weft.model.job import TaskPairs
from weft.model.resources import Vector
from weft.protocol.messages import AskType


class GroupView(Protocol):
    """Identical tasks of one stage (`am.task_groups.TaskGroup`), read-only."""

    @property
    def number(self) -> int:
        """The group's number in the job."""

    @property
    def stage(self) -> int:
        """The position of its stage."""

    @property
    def demand(self) -> Vector:
        """Demand that one task is expected to hold."""

    @property
    def nodes(self) -> tuple[NodeId, ...]:
        """Preferred nodes."""

    @property
    def racks(self) -> tuple[str, ...]:
        """Preferred racks."""

    @property
    def pri_score(self) -> float:
        """Place in the job's preferred order, 1 first."""

    @property
    def ready(self) -> Sequence[int]:
        """Ranks of the tasks that may start now, one entry each (a heap)."""

    @property
    def tasks(self) -> Sequence[int]:
        """Task numbers in the plan's order."""

    def declared_of(self, task: int) -> float:
        """Return the declared duration of a task, s; the belief is it times the stage's factor."""

    @property
    def unstarted(self) -> int:
        """Tasks that did not start, ready or not."""


class RunningTask(NamedTuple):
    """A task that runs, as its master knows it."""

    stage: int
    task: int
    started_s: float


class Wanted(NamedTuple):
    """Ask for so many containers of one kind for ready tasks of a group, beyond those granted."""

    group: int
    containers: int
    kind: AskType = AskType.DEFAULT


class Wish(NamedTuple):
    """What an asker wants: rows that it does not name stay as they are.

    `wake_after_s` asks to be called again after so long, changes or not; None: no need.
    """

    rows: Sequence[Wanted] = ()
    wake_after_s: float | None = None


@dataclass(slots=True)
class AvailableView:
    """The semi-clairvoyant view: stages whose tasks may start, and nothing of later ones.

    `changed` holds the groups whose number of ready tasks changed since the last call.

    The job may count on `share`; `capacity` is C, the sum over machines.
    """

    changed: Mapping[int, GroupView] = field(default_factory=dict)
    available: Sequence[GroupView] = ()
    share: Vector = ()
    capacity: Vector = ()


@dataclass(slots=True)
class JobView(AvailableView):
    """The clairvoyant view: the whole remaining DAG, its estimates, and what runs.

    By stage: `factors` (estimated over declared duration), `states` (by task: waiting, ready,
    running, done) and `parents` ((parent, whether a barrier) pairs). `pairs` is by (parent, child).
    `version` grows with every change of the remaining DAG.
    """

    groups: Sequence[GroupView] = ()
    factors: Sequence[float] = ()
    states: Sequence[Sequence[int]] = ()
    parents: Sequence[Sequence[tuple[int, bool]]] = ()
    pairs: Mapping[tuple[int, int], TaskPairs] = field(default_factory=dict)
    running: Sequence[RunningTask] = ()
    version: int = 0


class ContainerView(Protocol):
    """A reusable container that the job holds (`am.pool.Pooled`), read-only."""

    @property
    def container_id(self) -> int:
        """Id of the container."""

    @property
    def node(self) -> NodeId:
        """Node that the container is on."""

    @property
    def size(self) -> Vector:
        """Amounts that it holds in the scheduler's books, absolute."""

    @property
    def free(self) -> Sequence[float]:
        """Amounts that its tasks are not expected to use, absolute."""

    @property
    def busy(self) -> int:
        """Tasks in it."""

    @property
    def idle_since_s(self) -> float:
        """Time when its last task ended, or it was granted, s."""

    @property
    def use_sum(self) -> Sequence[float]:
        """Sum of all measured uses, one sample per monitoring interval (COBRA: 1 s)."""

    @property
    def use_count(self) -> int:
        """Number of samples that were summed."""


class WaitingTasks(NamedTuple):
    """Ready tasks of one group; `duration_s` is None while nothing is known of it.

    The longest waiting task became ready at `since_s`; one task is estimated to need `demand`.
    """

    group: GroupView
    since_s: float
    duration_s: float | None
    demand: Vector


@dataclass(slots=True)
class HoldView:
    """What an asker of reusable containers sees: what waits, what it holds; no later stage.

    `pool_max` is the number of containers of the job's size that the cluster could hold.

    A new container would have `size`; `pending` containers were asked for and not granted. `racks`
    has the nodes whose rack is known; where it is empty, there is one rack.
    """

    waiting: Sequence[WaitingTasks]
    containers: Sequence[ContainerView]
    size: Vector
    pool_max: int
    pending: int
    racks: Mapping[NodeId, str]


class HoldWish(NamedTuple):
    """`target` containers in all; tasks to start as (container id, group); containers to give back.

    A container to give back must be idle and get no task. `wake_after_s` as in `Wish`.
    """

    target: int
    start: Sequence[tuple[int, int]] = ()
    give_back: Sequence[int] = ()
    wake_after_s: float | None = None
