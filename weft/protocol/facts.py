"""Facts: what a core notes about itself; the only source of logs, metrics and the decision log.

Ids are plain numbers and names, so that a fact is a line of JSON as it stands. Cores note what they
do with a run of identical containers as one fact (`RunFact`); watchers are told of each by itself.
"""

import operator
from dataclasses import fields
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
# A run of placements has its `count` beside the fields of one; all other runs have their `tasks`
# where one has its `task`.
_PART_OF: dict[type, type] = {
    PlacedRun: Placed,
    ClosedRun: Closed,
    StartedRun: TaskStarted,
    StoppedRun: TaskStopped,
}
_FIELDS = {run: [each.name for each in fields(part)] for run, part in _PART_OF.items()}
_READ = {
    run: operator.attrgetter(*["tasks" if name == "task" else name for name in names])
    for run, names in _FIELDS.items()
}


def count_of(noted: Any) -> int:
    """Return how many facts that is (`facts_of`)."""
    if type(noted) not in _PART_OF:
        return 1
    return noted.count if type(noted) is PlacedRun else len(noted.tasks)


def facts_of(noted: Any) -> tuple[Fact, ...]:
    """Return what was noted, of each container by itself."""
    kind = type(noted)
    part = _PART_OF.get(kind)
    if part is None:
        return (noted,)
    first, *more = _READ[kind](noted)
    if kind is PlacedRun:
        return tuple([part(number, *more) for number in range(first, first + noted.count)])
    at = _FIELDS[kind].index("task") - 1
    before, tasks, after = more[:at], more[at], more[at + 1 :]
    return tuple([part(first + i, *before, task, *after) for i, task in enumerate(tasks)])
