"""Facts: what a core notes about itself; the only source of logs, metrics and the decision log.

Ids are plain numbers and names, so that a fact is a line of JSON as it stands. Cores note what they
do with a run of identical containers as one fact (`RunFact`); watchers are told of each by itself.
"""

from collections.abc import Callable
from typing import Any

from weft.model.ids import AppId, AttemptId, ContainerId, NodeId
from weft.model.resources import Vector
from weft.protocol.messages import AskType, Outcome
from weft.protocol.record import record


@record
class AppChanged:
    """An application moved to a new state (YARN's names); how it ended once that is decided.

    `final_status` is UNDEFINED, SUCCEEDED, FAILED or KILLED.
    """

    app: AppId
    name: str
    queue: str
    state: str
    diagnostics: str = ""
    final_status: str = "UNDEFINED"


@record
class AttemptChanged:
    """An attempt moved to a new state."""

    attempt: AttemptId
    state: str
    diagnostics: str = ""


@record
class NodeChanged:
    """A node moved to a new state."""

    node: NodeId
    state: str
    capacity: Vector


@record
class QueueChanged:
    """A queue is another than before: added, changed, stopped, started or removed.

    `capacity` and `max_capacity` are fractions of the cluster.
    """

    queue: str
    change: str
    capacity: float = 0.0
    max_capacity: float = 0.0


@record
class Placed:
    """The decision: a container was granted on a node. `scores` are the matcher's own terms."""

    container: ContainerId
    node: NodeId
    ask: int
    stage: int
    demand: Vector
    kind: AskType
    queue: str
    scores: tuple[tuple[str, float], ...] = ()


@record
class Closed:
    """A container's end reached the Resource Manager.

    `run_s` is that of the task itself, 0 if unknown. `message` says why it ended, where that is no
    success.
    """

    container: ContainerId
    node: NodeId
    outcome: Outcome
    stage: int
    task: int
    attempt: int
    exit_code: int = 0
    run_s: float = 0.0
    message: str = ""


@record
class PreemptionChosen:
    """A container will be taken back at `by_s`, unless it ends or is not needed any more.

    `queue` is the one that gives it up.
    """

    container: ContainerId
    node: NodeId
    queue: str
    by_s: float


@record
class TaskStarted:
    """A node began to run a task."""

    container: ContainerId
    node: NodeId
    stage: int
    task: int
    attempt: int
    demand: Vector


@record
class TaskStopped:
    """A node ended a task."""

    container: ContainerId
    node: NodeId
    stage: int
    task: int
    attempt: int
    outcome: Outcome
    run_s: float


@record
class PlacedRun:
    """`Placed` of `count` identical containers with consecutive ids."""

    container: ContainerId
    count: int
    node: NodeId
    ask: int
    stage: int
    demand: Vector
    kind: AskType
    queue: str
    scores: tuple[tuple[str, float], ...]


@record
class ClosedRun:
    """`Closed` of identical containers with consecutive ids, one for each of `tasks`."""

    container: ContainerId
    node: NodeId
    outcome: Outcome
    stage: int
    tasks: tuple[int, ...]
    attempt: int
    exit_code: int
    run_s: float
    message: str


@record
class StartedRun:
    """`TaskStarted` of `tasks` in containers with consecutive ids."""

    container: ContainerId
    node: NodeId
    stage: int
    tasks: tuple[int, ...]
    attempt: int
    demand: Vector


@record
class StoppedRun:
    """`TaskStopped` of `tasks` in containers with consecutive ids."""

    container: ContainerId
    node: NodeId
    stage: int
    tasks: tuple[int, ...]
    attempt: int
    outcome: Outcome
    run_s: float


@record
class MasterPlanned:
    """A master has its preferred schedule."""

    attempt: AttemptId
    planner: str
    makespan_s: float
    planning_time_s: float
    candidates: int


@record
class JobProgressed:
    """A master's count of its tasks."""

    attempt: AttemptId
    pending: int
    running: int
    finished: int
    failed: int


@record
class Remark:
    """Something unusual, in words.

    `level` is "info" or "warning".
    """

    level: str
    text: str
    fields: tuple[tuple[str, str], ...] = ()


Fact = (
    AppChanged
    | AttemptChanged
    | NodeChanged
    | QueueChanged
    | Placed
    | Closed
    | PreemptionChosen
    | TaskStarted
    | TaskStopped
    | MasterPlanned
    | JobProgressed
    | Remark
)
RunFact = PlacedRun | ClosedRun | StartedRun | StoppedRun
_COUNTS: dict[type, Callable[[Any], int]] = {
    PlacedRun: lambda noted: noted.count,
    **dict.fromkeys((ClosedRun, StartedRun, StoppedRun), lambda noted: len(noted.tasks)),
}


def count_of(noted: Fact | RunFact) -> int:
    """Return how many facts that is (`facts_of`)."""
    count = _COUNTS.get(type(noted))
    return 1 if count is None else count(noted)


def facts_of(noted: Fact | RunFact) -> tuple[Fact, ...]:
    """Return what was noted, of each container by itself."""
    if isinstance(noted, PlacedRun):
        return tuple(
            [
                Placed(
                    number,
                    noted.node,
                    noted.ask,
                    noted.stage,
                    noted.demand,
                    noted.kind,
                    noted.queue,
                    noted.scores,
                )
                for number in range(noted.container, noted.container + noted.count)
            ]
        )
    if isinstance(noted, ClosedRun):
        return tuple(
            [
                Closed(
                    noted.container + place,
                    noted.node,
                    noted.outcome,
                    noted.stage,
                    task,
                    noted.attempt,
                    noted.exit_code,
                    noted.run_s,
                    noted.message,
                )
                for place, task in enumerate(noted.tasks)
            ]
        )
    if isinstance(noted, StartedRun):
        return tuple(
            [
                TaskStarted(
                    noted.container + place,
                    noted.node,
                    noted.stage,
                    task,
                    noted.attempt,
                    noted.demand,
                )
                for place, task in enumerate(noted.tasks)
            ]
        )
    if isinstance(noted, StoppedRun):
        return tuple(
            [
                TaskStopped(
                    noted.container + place,
                    noted.node,
                    noted.stage,
                    task,
                    noted.attempt,
                    noted.outcome,
                    noted.run_s,
                )
                for place, task in enumerate(noted.tasks)
            ]
        )
    return (noted,)
