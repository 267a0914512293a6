"""The messages between the roles, after YARN's protocols; each is also the event of its receiver.

Delivery is at least once and in any order: every sender repeats what was not acknowledged
(`weft.protocol.outbox`), every receiver drops what it knows by id. So a lost, doubled or late
message never changes the outcome. Times are in s on the cluster's clock, demands in absolute units
by the cluster's resource types.
"""

from collections.abc import Iterable
from enum import IntEnum
from functools import lru_cache, partial
from typing import NamedTuple

from weft.model.ids import AppId, AttemptId, ContainerId, NodeId
from weft.model.job import Job
from weft.model.resources import ResourceTypes, Vector
from weft.protocol.record import record

# An address is "rm", "node:<node id>", "am:<attempt id>" or "client:<token>".
Address = str
MANAGER: Address = "rm"
# Every message needs an address, so that many of the strings are kept.
_ADDRESSES_MAX = 20_000


@lru_cache(_ADDRESSES_MAX)
def node_address(node: NodeId) -> Address:
    """Return where a node manager is reached."""
    return f"node:{node}"


@lru_cache(_ADDRESSES_MAX)
def master_address(attempt: AttemptId) -> Address:
    """Return where an application master is reached."""
    return f"am:{attempt}"


def client_address(token: str) -> Address:
    """Return where the answer to one client request goes."""
    return f"client:{token}"


class AskType(IntEnum):
    """Carbyne's two kinds of ask (section 4.2).

    A DEFAULT ask must run now for the job not to be late, an ALTRUISTIC one may run if something is
    left over.
    """

    DEFAULT = 0
    ALTRUISTIC = 1


class Outcome(IntEnum):
    """How a container ended.

    FAILED is the task's own fault (a non-zero exit), KILLED a stop on somebody's order.
    OUT_OF_MEMORY means that it used more of a rigid resource than the node has, LOST that its node
    was lost, RELEASED that it was given back or never started. PREEMPTED means that it was taken
    back for a queue below its guarantee, or for an application of higher priority.
    """

    SUCCEEDED = 0
    FAILED = 1
    KILLED = 2
    OUT_OF_MEMORY = 3
    LOST = 4
    RELEASED = 5
    PREEMPTED = 6

    @property
    def is_task_fault(self) -> bool:
        """Whether the task itself is to blame: after `max_task_attempts` of these its job fails."""
        return self in TASK_FAULTS

    @property
    def is_failed_attempt(self) -> bool:
        """Whether reports count it as a failed attempt: the task's fault, or a lost node."""
        return self in TASK_FAULTS or self is Outcome.LOST


TASK_FAULTS = (Outcome.FAILED, Outcome.OUT_OF_MEMORY)
# So a node answers for the log of a task that it only pretends to run.
EMULATED = "emulated: they run no command and write nothing"


# Exit codes: of a container that ended with its node (YARN's ABORTED), and of one that failed for
# want of room or the like on its node (YARN's DISKS_FAILED).
NODE_ENDED = -100
NODE_FAULT = -101


@record
class Ask:
    """A row of identical containers wanted by one attempt.

    `total` is cumulative: all containers ever wanted under this `ask_id`, so that a repeated or
    late message cannot ask twice; pending = total - granted so far.

    `demand` is that of one container and `duration_s` the estimate of one task. `pri_score` is the
    place in the job's preferred order, in (0, 1], 1 first (Graphene 5.1). `stage` is the stage's
    position in the job.

    `nodes` and `racks` are preferred, and no others are taken if `strict` (YARN's
    relaxLocality=false); with both empty any place is as good. `counts` says how many containers
    are wanted on each of `nodes`, then in each of `racks`; empty means all of them on any. The ask
    is for nodes with `label`. The asks of a `gang` are sent together with the stage's others, and
    all of them are granted at once or none.
    """

    ask_id: int
    total: int
    demand: Vector
    duration_s: float
    pri_score: float
    kind: AskType
    stage: int
    nodes: tuple[NodeId, ...] = ()
    racks: tuple[str, ...] = ()
    label: str = ""
    gang: bool = False
    strict: bool = False
    counts: tuple[int, ...] = ()


@record
class Container:
    """A container granted to an attempt; or `count` of them with consecutive ids.

    An open job's own master receives each alone.

    `boot` names the process of the node on which it was granted; 0 means unknown.
    """

    container_id: ContainerId
    node_id: NodeId
    ask_id: int
    boot: int = 0
    count: int = 1


def containers_of(granted: Iterable[Container]) -> tuple[Container, ...]:
    """Return every container of a list by itself."""
    return tuple(
        [
            one if one.count == 1 else Container(number, one.node_id, one.ask_id, one.boot)
            for one in granted
            for number in range(one.container_id, one.container_id + one.count)
        ]
    )


class Preemption(NamedTuple):
    """A container that will be taken back; the scheduler may still change its mind.

    `by_s` is the time on the cluster's clock at which it is stopped.
    """

    container_id: ContainerId
    by_s: float


@record
class TaskLaunch:
    """Task number `task` of a stage, to run in a container; or a run of identical ones.

    A run starts `tasks` (the first of which is `task`) in as many containers with consecutive ids,
    the first of which is `container_id`. It is what as many orders in a row are (`launches_of`).
    `duration_s` and `demand` are the truth: emulated nodes run them, schedulers never see them.

    `attempt` is 0 for the first try of the task. A `reusable` container outlives the task until it
    is stopped (COBRA). The input of a `remote` task is read over the network. `granted` is what the
    container holds by the scheduler's account, empty if unknown. `tasks` is empty for a single
    task.
    """

    container_id: ContainerId
    stage: int
    task: int
    attempt: int
    duration_s: float
    demand: Vector
    command: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    reusable: bool = False
    remote: bool = False
    granted: Vector = ()
    tasks: tuple[int, ...] = ()


def started_by(item: TaskLaunch) -> range:
    """Return the ids of the containers that an order is for."""
    return range(item.container_id, item.container_id + (len(item.tasks) or 1))


def launches_of(item: TaskLaunch) -> tuple[TaskLaunch, ...]:
    """Return the order for each container of a run; the order itself, if it is for one."""
    return tuple(map(partial(launch_of, item), range(len(item.tasks)))) if item.tasks else (item,)


def launch_of(item: TaskLaunch, place: int) -> TaskLaunch:
    """Return the order for the container at a place of a run."""
    return TaskLaunch(
        item.container_id + place,
        item.stage,
        item.tasks[place],
        item.attempt,
        item.duration_s,
        item.demand,
        item.command,
        item.environment,
        item.reusable,
        item.remote,
        item.granted,
    )


@record
class MasterLaunch:
    """An application master to start in a container of a node.

    `command` belongs to an open job's own master; it is empty for Weft's.
    """

    container_id: ContainerId
    attempt_id: AttemptId
    demand: Vector
    command: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()


@record
class TaskEnd:
    """A task that ended; `run_s` is its measured run time, s.

    `use` is the most that it used of each resource, below 0 where that was not measured; it is
    empty if nothing was measured.
    """

    container_id: ContainerId
    stage: int
    task: int
    attempt: int
    outcome: Outcome
    exit_code: int
    run_s: float
    message: str = ""
    use: Vector = ()


@record
class ContainerEnd:
    """A container that ended, with the task that ended it (stage -1: a master or no task).

    Or a run of containers with consecutive ids in which `tasks` ended alike and at once: what as
    many ends in a row are (`ends_of`).

    `tasks` begins with `task`, and is empty for a single container.
    """

    container_id: ContainerId
    outcome: Outcome
    exit_code: int = 0
    stage: int = -1
    task: int = -1
    attempt: int = 0
    run_s: float = 0.0
    message: str = ""
    tasks: tuple[int, ...] = ()

    @property
    def with_node(self) -> bool:
        """Whether the end of its node took it along."""
        return self.outcome is Outcome.LOST and self.exit_code == NODE_ENDED

    @property
    def by_node(self) -> bool:
        """Whether it failed for its node's own reasons: no room, no descriptors and the like."""
        return self.outcome is Outcome.LOST and self.exit_code == NODE_FAULT


def ends_of(end: ContainerEnd) -> tuple[ContainerEnd, ...]:
    """Return the end of each container of a run; the end itself, if it is of one."""
    return tuple(map(partial(end_of, end), range(len(end.tasks)))) if end.tasks else (end,)


def end_of(end: ContainerEnd, place: int) -> ContainerEnd:
    """Return the end of the container at a place of a run."""
    return ContainerEnd(
        end.container_id + place,
        end.outcome,
        end.exit_code,
        end.stage,
        end.tasks[place],
        end.attempt,
        end.run_s,
        end.message,
    )


class ContainerUse(NamedTuple):
    """Measured use of one container over the last monitoring interval (COBRA's monitor).

    `use` is the mean amount of each resource.
    """

    container_id: ContainerId
    use: Vector


class BegunTask(NamedTuple):
    """A task that began in a container and runs: so its manager can name it before it ends."""

    container_id: ContainerId
    stage: int
    task: int
    attempt: int


@record
class RunningContainer:
    """A container that a node manager carries into its registration.

    `tasks` are (stage, task, attempt). `started_s` is when what runs in it began (a reusable
    container's tasks before are told as ended), on the node's clock; 0: unknown, or nothing runs.
    """

    container_id: ContainerId
    demand: Vector
    tasks: tuple[tuple[int, int, int], ...]
    started_s: float = 0.0


class FinishedTask(NamedTuple):
    """A task that an earlier attempt finished: it is not run again."""

    stage: int
    task: int
    run_s: float


# -- Application Master -> Resource Manager --------------------------------------------------------


@record
class AttemptRegistered:
    """An application master is up; repeated until accepted.

    `address` is host:port of the master's own service, empty if it has none; a foreign master shows
    its pages at `tracking_url`. `held` is what it believes to hold after a resync. A `fresh` one
    does not know what it asked before, so that everything pending is forgotten. One that
    `takes_over` continues what an earlier attempt left running.
    """

    attempt_id: AttemptId
    address: str = ""
    held: tuple[tuple[ContainerId, NodeId], ...] = ()
    tracking_url: str = ""
    fresh: bool = False
    takes_over: bool = False


@record
class ContainersAsked:
    """`allocate`: changed asks, containers given back; also the master's heartbeat.

    `acks` are ids of responses received since the last request. `progress` goes from 0 to 1.
    `remaining_work` is srpt, the sum over unstarted tasks of duration_s x L1(demand / C), and
    `remaining_path_s` the longest path of stages that are not done, 0 if unknown. `blacklist` is
    the whole list where it changed, else None. `epoch` is that of the manager that accepted the
    attempt; any other one asks for a resync.
    """

    attempt_id: AttemptId
    request_id: int
    acks: tuple[int, ...] = ()
    asks: tuple[Ask, ...] = ()
    releases: tuple[ContainerId, ...] = ()
    progress: float = 0.0
    remaining_work: float = 0.0
    blacklist: tuple[NodeId, ...] | None = None
    remaining_path_s: float = 0.0
    epoch: int = 0


@record
class AttemptFinished:
    """The attempt is done; repeated until acknowledged.

    `tracking_url` is where a foreign master's history is; empty leaves it as it was. `status` is
    SUCCEEDED, FAILED or KILLED where a foreign master distinguishes them, else empty.
    """

    attempt_id: AttemptId
    succeeded: bool
    diagnostics: str = ""
    tracking_url: str = ""
    status: str = ""


# -- Resource Manager -> Application Master --------------------------------------------------------


@record
class AttemptAccepted:
    """The answer to a registration: the job, what it may use, what is already done.

    `machines` are the distinct node capacities with their counts; `speeds` (empty: all 1) and
    `labels` (empty: no node has any) have an entry for each of them. `share` is what the job may
    count on now. `heartbeat_s` is the interval of the master's own heartbeats. With `prompt`,
    grants are pushed, so a master asks as soon as it has something to ask for. `epoch` counts the
    starts of the manager before this one.

    `racks` names those of the nodes that the job prefers, if the cluster has several. `held` are
    containers of earlier attempts; what runs in them only their nodes know. `addresses` are
    host:port of the nodes named in `held`.
    """

    attempt_id: AttemptId
    job: Job
    types: ResourceTypes
    machines: tuple[tuple[Vector, int], ...]
    share: Vector
    finished: tuple[FinishedTask, ...]
    heartbeat_s: float
    prompt: bool
    cluster_ts: int
    seed: int
    epoch: int = 0
    racks: tuple[tuple[NodeId, str], ...] = ()
    held: tuple[Container, ...] = ()
    addresses: tuple[tuple[NodeId, str], ...] = ()
    speeds: tuple[float, ...] = ()
    labels: tuple[tuple[str, ...], ...] = ()


@record
class AsksRefused:
    """An open master's request of which no ask was taken, as one of them can never be granted."""

    request_id: int
    asks: tuple[int, ...]
    reason: str


@record
class ContainersGranted:
    """`allocate`'s answer, or a push in prompt pace.

    `acks` are ids of requests received since the last answer. An empty `share` is unchanged.
    `addresses` are host:port of the nodes named in `containers`, and `racks` their racks if the
    cluster has several. `preempt` are containers that the master is about to lose.

    `resync` says that the manager restarted, so the master registers again and sends every ask;
    `epoch` is that of the manager that wants it. `machines` are the capacities of today where nodes
    joined since, with `speeds` and `labels` as in AttemptAccepted; empty means that none did.
    `refused` are requests of which nothing was taken.
    """

    attempt_id: AttemptId
    response_id: int
    acks: tuple[int, ...] = ()
    containers: tuple[Container, ...] = ()
    ended: tuple[ContainerEnd, ...] = ()
    share: Vector = ()
    headroom: Vector = ()
    addresses: tuple[tuple[NodeId, str], ...] = ()
    resync: bool = False
    epoch: int = 0
    racks: tuple[tuple[NodeId, str], ...] = ()
    preempt: tuple[Preemption, ...] = ()
    machines: tuple[tuple[Vector, int], ...] = ()
    speeds: tuple[float, ...] = ()
    labels: tuple[tuple[str, ...], ...] = ()
    refused: tuple[AsksRefused, ...] = ()


@record
class AttemptUnregistered:
    """The acknowledgement of AttemptFinished."""

    attempt_id: AttemptId


@record
class AttemptStopped:
    """The attempt must stop: killed, or superseded by a newer attempt."""

    attempt_id: AttemptId
    reason: str


# -- Node Manager -> Resource Manager --------------------------------------------------------------


@record
class NodeRegistered:
    """A node is up, with the containers that it already runs; repeated until accepted.

    `address` is host:port of the node manager's service, and `capacity` goes by resource name.
    Tasks run `speed` times as fast as estimated. `unhealthy` says why the node is not fit for new
    work, empty if it is fit; `lacking` says which wanted isolation of tasks the host cannot
    provide. Applications leave `files` on some nodes, which are then notified when applications are
    over.

    `boot` is drawn at random by each process of this node, and a process with another one lost what
    ran before. `life` is that of the manager that asked for the registration, the first being 1 (0:
    none asked), and `token` that of the resync in which a process had to show that it is the living
    one. A registration that is repeated keeps its `request_id`; 0 means unknown.
    """

    node_id: NodeId
    address: str
    rack: str
    labels: tuple[str, ...]
    capacity: dict[str, float]
    running: tuple[RunningContainer, ...] = ()
    boot: int = 0
    life: int = 0
    token: int = 0
    request_id: int = 0
    unhealthy: str = ""
    lacking: str = ""
    speed: float = 1.0
    files: bool = False


@record
class NodeHeartbeated:
    """A node's periodic (or out-of-band) report.

    `tasks_ended` are tasks that ended inside reusable containers. `use` is the measured use of the
    node, empty if unchanged. `unhealthy` says why the node is not fit for new work, empty if it is
    fit. `begun` are tasks that began since the heartbeat before and still run; it is not said
    again, as nothing is decided by it.
    """

    node_id: NodeId
    request_id: int
    acks: tuple[int, ...] = ()
    ended: tuple[ContainerEnd, ...] = ()
    tasks_ended: tuple[TaskEnd, ...] = ()
    use: Vector = ()
    container_use: tuple[ContainerUse, ...] = ()
    unhealthy: str = ""
    begun: tuple[BegunTask, ...] = ()


@record
class NodeUnregistered:
    """A node leaves on purpose."""

    node_id: NodeId


# -- Resource Manager -> Node Manager --------------------------------------------------------------


@record
class NodeAccepted:
    """The answer to a registration.

    With `prompt`, the node sends an out-of-band heartbeat when a container ends. `life` is that of
    the manager, the first being 1. A node without an answer for `expiry_s` is LOST. `request_id` is
    that of the registration that this answers. In all three, 0 means unknown.
    """

    node_id: NodeId
    types: ResourceTypes
    heartbeat_s: float
    prompt: bool
    cluster_ts: int
    life: int = 0
    expiry_s: float = 0.0
    request_id: int = 0


@record
class NodeAnswered:
    """The answer to a heartbeat.

    A `next_heartbeat_s` of 0 leaves the interval unchanged. `resync` means that the node is unknown
    and registers again, with `token` if it has to show that it is the living process of this node.
    A `shutdown` that is not empty is the reason to leave. `life` is that of the manager, the first
    being 1; 0 means unknown. `over` are applications with masters of their own whose files may go.
    `spare` are containers to be stopped unless something runs in them.
    """

    node_id: NodeId
    response_id: int
    acks: tuple[int, ...] = ()
    start: tuple[MasterLaunch, ...] = ()
    stop: tuple[ContainerId, ...] = ()
    next_heartbeat_s: float = 0.0
    resync: bool = False
    shutdown: str = ""
    life: int = 0
    token: int = 0
    over: tuple[AppId, ...] = ()
    spare: tuple[ContainerId, ...] = ()


# -- Application Master <-> Node Manager -----------------------------------------------------------


@record
class StartContainers:
    """Start tasks in granted containers of one node; repeated until answered.

    `boot` is the process that new containers were granted on; any other process refuses them.
    """

    attempt_id: AttemptId
    node_id: NodeId
    items: tuple[TaskLaunch, ...]
    boot: int = 0


@record
class StopContainers:
    """Stop containers of one node; unknown ones are answered as ended."""

    attempt_id: AttemptId
    node_id: NodeId
    containers: tuple[ContainerId, ...]


@record
class QueryContainers:
    """Ask for the state of containers."""

    attempt_id: AttemptId
    node_id: NodeId
    containers: tuple[ContainerId, ...]


NODE_FULL = "a rigid resource of the node would be over capacity"
# The error of an item begins with NO_TOKEN where its token was not valid.
NO_TOKEN = "refused for want of a token"


@record
class ItemAnswer:
    """The answer for one item of a bulk call; an empty error means done.

    One for a run of containers says how many there are (`count`), and names the first.
    The answer to a stop or a query names no task; that to a query is followed by one for each task
    that runs in the container. So who takes a reusable container over learns what it holds
    (`granted`), what runs in it, and which tries are not taken there (`attempt`).

    `attempt` is the try of a task that runs, and for a container exceeds every try that ran in it.
    `granted` is what a reusable container holds.
    """

    container_id: ContainerId
    stage: int = -1
    task: int = -1
    error: str = ""
    count: int = 1
    attempt: int = 0
    granted: Vector = ()


@record
class StartAnswered:
    """What became of each item of StartContainers."""

    node_id: NodeId
    attempt_id: AttemptId
    items: tuple[ItemAnswer, ...]


@record
class TasksEnded:
    """Ends of tasks inside reusable containers, and the use of those containers.

    `sent_s` is on the node's clock.
    """

    node_id: NodeId
    attempt_id: AttemptId
    ended: tuple[TaskEnd, ...] = ()
    container_use: tuple[ContainerUse, ...] = ()
    sent_s: float = 0.0


# -- what goes each way, for codecs and for the doors of the cores (`weft.protocol.event_unions`)

FromNode = NodeRegistered | NodeHeartbeated | NodeUnregistered
ToNode = NodeAccepted | NodeAnswered
FromMaster = AttemptRegistered | ContainersAsked | AttemptFinished
ToMaster = AttemptAccepted | ContainersGranted | AttemptUnregistered | AttemptStopped
MasterToNode = StartContainers | StopContainers | QueryContainers
NodeToMaster = StartAnswered | TasksEnded
