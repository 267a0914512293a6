"""Effects are orders that a core answers with; events that are not messages are here too.

`handle(event, now) -> list[Effect]`: a shell does the effects in order. A `Persist` is durable
before any later effect of the same answer is done.
"""

from collections.abc import Hashable
from typing import Any, NamedTuple

from weft.model.ids import AppId, AttemptId, ContainerId, NodeId
from weft.model.job import Job
from weft.model.json_types import Options, Table
from weft.model.plan import Plan
from weft.model.resources import ResourceTypes, Vector
from weft.protocol.access import TRUSTED, Caller
from weft.protocol.facts import Fact, RunFact
from weft.protocol.messages import Address, MasterLaunch, Outcome, TaskLaunch
from weft.protocol.record import record
from weft.protocol.requests import ClientRequest

# -- effects: orders -------------------------------------------------------------------------------


@record
class Send:
    """Send a message; it may be lost, doubled or late."""

    to: Address
    # Any message may stand here; a compiled record cannot have a field of type `object`.
    message: Any


@record
class SetTimer:
    """Fire `TimerFired(key)` after `delay_s`; replaces the timer of that key; None cancels it."""

    delay_s: float | None
    key: Hashable


@record
class Launch:
    """Start a real process (or a master) in a container; `ProcessEnded` follows."""

    item: TaskLaunch | MasterLaunch


@record
class Kill:
    """Kill the process group of a container; `ProcessEnded` follows if it was running."""

    container_id: ContainerId


@record
class Clean:
    """An application is over: remove what its own master kept on this host, but for logs."""

    app_id: AppId


@record
class Persist:
    """Append a record (plain JSON data) to the state store, durably."""

    record: Table


@record
class Note:
    """A fact for logs, metrics and the decision log; `facts_of` takes that of a run apart."""

    fact: Fact | RunFact


@record
class MakePlan:
    """Build a plan off the core's thread; `PlanReady` follows.

    `speeds` has an entry for each of `machines`; empty: all are 1.
    """

    planner: str
    job: Job
    types: ResourceTypes
    machines: tuple[tuple[Vector, int], ...]
    seed: int
    options: Options
    speeds: tuple[float, ...] = ()


@record
class Stop:
    """The core is done: its shell may end."""

    reason: str = ""


Effect = Send | SetTimer | Launch | Kill | Clean | Persist | Note | MakePlan | Stop

# -- events that are not messages ------------------------------------------------------------------


@record
class Started:
    """The shell is up: the first event of a master or node manager."""


@record
class Recovered:
    """The first event of a Resource Manager: the records of the state store, oldest first."""

    records: tuple[Table, ...] = ()


@record
class NodesIdle:
    """Heartbeats of nodes that have nothing to say, as a Resource Manager is told of them."""

    node_ids: tuple[NodeId, ...]


@record
class ReportsWaited:
    """For so long what nodes or masters said waited to be read, s: the manager was behind."""

    for_s: float


@record
class Heard:
    """The manager took a node for alive that said nothing at `at_s`, on the node's clock."""

    at_s: float


@record
class TimerFired:
    """A timer ran out."""

    key: Hashable


@record
class PlanReady:
    """A plan was built; `error` says why not."""

    plan: Plan | None
    error: str = ""
    planning_time_s: float = 0.0


@record
class ProcessEnded:
    """A process (or a master) of a container ended.

    `use` is the most that it used of each resource, below 0 where that was not measured; it is
    empty if nothing was measured. `stage` and `task` say which of the tasks that run inside one
    reusable container.
    """

    container_id: ContainerId
    outcome: Outcome
    exit_code: int
    message: str = ""
    use: Vector = ()
    stage: int = -1
    task: int = -1
    attempt: int = 0


class FoundProcess(NamedTuple):
    """A process that an earlier node manager of the host started, and since when it runs, s.

    `taken_by`: the attempt that took its container over from the one it was granted to; 0: none.
    """

    item: TaskLaunch | MasterLaunch
    began_s: float
    taken_by: AttemptId = 0


@record
class ProcessesFound:
    """Before `Started`: what an earlier process of this node left, to be held from now on."""

    items: tuple[FoundProcess, ...]


@record
class ContainersMeasured:
    """Measured use of real containers since the last measurement: (container, use)."""

    use: tuple[tuple[ContainerId, Vector], ...]


@record
class NodeExamined:
    """The health of the host: why it is not fit for new work, or nothing."""

    unhealthy: str


@record
class NodeSlowed:
    """An emulated host runs at `speed` times its own pace from now on: a straggler below 1."""

    speed: float


@record
class StopRequested:
    """The process was told to end: leave in order."""


@record
class ClientRequested:
    """A client's request; the answer is sent to `client:<token>`."""

    token: str
    request: ClientRequest
    caller: Caller = TRUSTED
