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

Address = str  # "rm", "node:<node id>", "am:<attempt id>", "client:<token>"
MANAGER: Address = "rm"
_ADDRESSES_MAX = 20_000  # kept, as every message needs one


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
    """Carbyne's two kinds of ask (section 4.2)."""

    DEFAULT = 0  # must run now for the job not to be late
    ALTRUISTIC = 1  # may run if there is leftover


class Outcome(IntEnum):
    """How a container ended."""

    SUCCEEDED = 0
    FAILED = 1  # the task's own fault: non-zero exit
    KILLED = 2  # stopped on somebody's order
    OUT_OF_MEMORY = 3  # used more of a rigid resource than the node has
    LOST = 4  # its node was lost
    RELEASED = 5  # given back, or never started
    PREEMPTED = 6  # taken back for a queue below its guarantee, or for priority

    @property
    def is_task_fault(self) -> bool:
        """Whether the task itself is to blame: after `max_task_attempts` of these its job fails."""
        return self in TASK_FAULTS

    @property
    def is_failed_attempt(self) -> bool:
        """Whether reports count it as a failed attempt: the task's fault, or a lost node."""
        return self in TASK_FAULTS or self is Outcome.LOST


TASK_FAULTS = (Outcome.FAILED, Outcome.OUT_OF_MEMORY)


NODE_ENDED = -100  # exit code of what the end of its node took along (YARN's ABORTED)
NODE_FAULT = -101  # of what failed for want of room or the like on its node (YARN's DISKS_FAILED)


@record
class Ask:
    """A row of identical containers wanted by one attempt.

    `total` is cumulative: all containers ever wanted under this `ask_id`, so that a repeated or
    late message cannot ask twice; pending = total - granted so far.
    """

    ask_id: int
    total: int
    demand: Vector  # of one container
    duration_s: float  # estimate of one task
    pri_score: float  # place in the job's preferred order, (0, 1], 1 first (Graphene 5.1)
    kind: AskType
    stage: int  # position of the stage in the job
    nodes: tuple[NodeId, ...] = ()  # preferred nodes; empty: anywhere
    racks: tuple[str, ...] = ()  # preferred racks
    label: str = ""  # node label
    gang: bool = False  # with the stage's other gang asks: all at once or none; told together
    strict: bool = False  # nowhere but on `nodes` and in `racks` (YARN's relaxLocality=false)
    # how many are wanted on each of `nodes`, then in each of `racks`; empty: all, on any of them
    counts: tuple[int, ...] = ()


@record
class Container:
    """A container granted to an attempt; or `count` of them with consecutive ids.

    An open job's own master is told each by itself.
    """

    container_id: ContainerId
    node_id: NodeId
    ask_id: int
    boot: int = 0  # names the process of the node that it was granted on; 0: not told
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
    """A container that will be taken back; the scheduler may still change its mind."""

    container_id: ContainerId
    by_s: float  # when it is stopped, on the cluster's clock


@record
class TaskLaunch:
    """Task number `task` of a stage, to run in a container; or a run of identical ones.

    A run starts `tasks` (the first of which is `task`) in as many containers with consecutive ids,
    the first of which is `container_id`. It is what as many orders in a row are (`launches_of`).
    `duration_s` and `demand` are the truth: emulated nodes run them, schedulers never see them.
    """

    container_id: ContainerId
    stage: int
    task: int
    attempt: int  # 0 for the first try of the task
    duration_s: float
    demand: Vector
    command: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    reusable: bool = False  # the container outlives the task until it is stopped (COBRA)
    remote: bool = False  # the input is read over the network
    granted: Vector = ()  # what the container holds in the scheduler's books; empty: not told
    tasks: tuple[int, ...] = ()  # of a run; empty: a single task


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
    """An application master to start in a container of a node."""

    container_id: ContainerId
    attempt_id: AttemptId
    demand: Vector
    command: tuple[str, ...] = ()  # of an open job's own master; empty: Weft's
    environment: tuple[tuple[str, str], ...] = ()


@record
class TaskEnd:
    """A task that ended; `run_s` is its measured run time, s."""

    container_id: ContainerId
    stage: int
    task: int
    attempt: int
    outcome: Outcome
    exit_code: int
    run_s: float
    message: str = ""
    use: Vector = ()  # the most that it used; negative: not measured; empty: nothing was


@record
class ContainerEnd:
    """A container that ended, with the task that ended it (stage -1: a master or no task).

    Or a run of containers with consecutive ids in which `tasks` ended alike and at once: what as
    many ends in a row are (`ends_of`).
    """

    container_id: ContainerId
    outcome: Outcome
    exit_code: int = 0
    stage: int = -1
    task: int = -1
    attempt: int = 0
    run_s: float = 0.0
    message: str = ""
    tasks: tuple[int, ...] = ()  # of a run, the first of which is `task`; empty: a single container

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
    """Measured use of one container over the last monitoring interval (COBRA's monitor)."""

    container_id: ContainerId
    use: Vector  # mean amount per resource


@record
class RunningContainer:
    """A container that a node manager carries into its registration."""

    container_id: ContainerId
    demand: Vector
    tasks: tuple[tuple[int, int, int], ...]  # (stage, task, attempt)


class FinishedTask(NamedTuple):
    """A task that an earlier attempt finished: it is not run again."""

    stage: int
    task: int
    run_s: float


# -- Application Master -> Resource Manager --------------------------------------------------------


@record
class AttemptRegistered:
    """An application master is up; repeated until accepted."""

    attempt_id: AttemptId
    address: str = ""  # host:port of its own service, if it has one
    held: tuple[tuple[ContainerId, NodeId], ...] = ()  # what it believes to hold, after a resync
    tracking_url: str = ""  # where a foreign master shows its pages
    fresh: bool = False  # it knows nothing of what it asked before: forget all that is pending
    takes_over: bool = False  # what an earlier attempt left running goes on under this one


@record
class ContainersAsked:
    """`allocate`: changed asks, containers given back; also the master's heartbeat."""

    attempt_id: AttemptId
    request_id: int
    acks: tuple[int, ...] = ()  # response ids received since the last request
    asks: tuple[Ask, ...] = ()
    releases: tuple[ContainerId, ...] = ()
    progress: float = 0.0  # 0 to 1
    remaining_work: float = 0.0  # srpt: sum over unstarted tasks of duration_s x L1(demand / C)
    blacklist: tuple[NodeId, ...] | None = None  # the whole list when it changed
    remaining_path_s: float = 0.0  # the longest path of stages that are not done; 0: not told
    epoch: int = 0  # of the manager that accepted the attempt; another one asks for a resync


@record
class AttemptFinished:
    """The attempt is done; repeated until acknowledged."""

    attempt_id: AttemptId
    succeeded: bool
    diagnostics: str = ""
    tracking_url: str = ""  # where a foreign master's history is; empty: as before
    status: str = ""  # SUCCEEDED FAILED KILLED, where a foreign master tells it apart


# -- Resource Manager -> Application Master --------------------------------------------------------


@record
class AttemptAccepted:
    """The answer to a registration: the job, what it may use, what is already done."""

    attempt_id: AttemptId
    job: Job
    types: ResourceTypes
    machines: tuple[tuple[Vector, int], ...]  # distinct node capacities with their counts
    share: Vector  # what the job may count on now
    finished: tuple[FinishedTask, ...]
    heartbeat_s: float  # pace of the master's own heartbeats
    prompt: bool  # grants are pushed, so ask as soon as there is something to ask
    cluster_ts: int
    seed: int
    epoch: int = 0  # starts of the manager before this one
    racks: tuple[tuple[NodeId, str], ...] = ()  # of the nodes that the job prefers, if several
    held: tuple[Container, ...] = ()  # of earlier attempts: what runs there, their nodes know
    addresses: tuple[tuple[NodeId, str], ...] = ()  # host:port of the nodes named in `held`
    speeds: tuple[float, ...] = ()  # of each entry of `machines`; empty: all at 1
    labels: tuple[tuple[str, ...], ...] = ()  # of each entry of `machines`; empty: none has any


@record
class ContainersGranted:
    """`allocate`'s answer, or a push in prompt pace."""

    attempt_id: AttemptId
    response_id: int
    acks: tuple[int, ...] = ()  # request ids received since the last answer
    containers: tuple[Container, ...] = ()
    ended: tuple[ContainerEnd, ...] = ()
    share: Vector = ()  # empty: unchanged
    headroom: Vector = ()
    addresses: tuple[tuple[NodeId, str], ...] = ()  # host:port of the nodes named in `containers`
    resync: bool = False  # the manager restarted: register again and send every ask
    epoch: int = 0  # of the manager that wants the resync
    racks: tuple[tuple[NodeId, str], ...] = ()  # of the nodes named in `containers`, if several
    preempt: tuple[Preemption, ...] = ()  # containers that the master is about to lose
    machines: tuple[tuple[Vector, int], ...] = ()  # of today, where more came since; empty: none
    speeds: tuple[float, ...] = ()  # of each entry of `machines`; empty: all at 1
    labels: tuple[tuple[str, ...], ...] = ()  # of each entry of `machines`; empty: none has any


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
    """A node is up, with the containers that it already runs; repeated until accepted."""

    node_id: NodeId
    address: str  # host:port of the node manager's service
    rack: str
    labels: tuple[str, ...]
    capacity: dict[str, float]  # by resource name
    running: tuple[RunningContainer, ...] = ()
    boot: int = 0  # drawn at random by each process of this node; another one lost what ran before
    life: int = 0  # of the manager that asked for it, the first being 1; 0: nobody asked
    token: int = 0  # of the resync that asked a process to show that it is the one that lives
    request_id: int = 0  # one that is repeated keeps its number; 0: not told
    unhealthy: str = ""  # why the node is not fit for new work; empty: it is
    lacking: str = ""  # what was wanted to keep tasks apart and the host cannot do
    speed: float = 1.0  # how much faster than their estimates tasks run here
    files: bool = False  # applications leave files here, so it wants to be told when they are over


@record
class NodeHeartbeated:
    """A node's periodic (or out-of-band) report."""

    node_id: NodeId
    request_id: int
    acks: tuple[int, ...] = ()
    ended: tuple[ContainerEnd, ...] = ()
    tasks_ended: tuple[TaskEnd, ...] = ()  # tasks that ended inside reusable containers
    use: Vector = ()  # measured use of the node; empty: unchanged
    container_use: tuple[ContainerUse, ...] = ()
    unhealthy: str = ""  # why the node is not fit for new work; empty: it is


@record
class NodeUnregistered:
    """A node leaves on purpose."""

    node_id: NodeId


# -- Resource Manager -> Node Manager --------------------------------------------------------------


@record
class NodeAccepted:
    """The answer to a registration."""

    node_id: NodeId
    types: ResourceTypes
    heartbeat_s: float
    prompt: bool  # send an out-of-band heartbeat when a container ends
    cluster_ts: int
    life: int = 0  # of the manager, the first being 1; 0: not told
    expiry_s: float = 0.0  # a node that goes so long without an answer is LOST; 0: not told
    request_id: int = 0  # of the registration that this answers; 0: not told


@record
class NodeAnswered:
    """The answer to a heartbeat."""

    node_id: NodeId
    response_id: int
    acks: tuple[int, ...] = ()
    start: tuple[MasterLaunch, ...] = ()
    stop: tuple[ContainerId, ...] = ()
    next_heartbeat_s: float = 0.0  # 0: unchanged
    resync: bool = False  # unknown node: register again
    shutdown: str = ""  # a reason: leave
    life: int = 0  # of the manager, the first being 1; 0: not told
    token: int = 0  # with `resync`: to be told again by a process that says to be this node
    over: tuple[AppId, ...] = ()  # applications with masters of their own whose files may go
    spare: tuple[ContainerId, ...] = ()  # to be stopped unless something runs in them


# -- Application Master <-> Node Manager -----------------------------------------------------------


@record
class StartContainers:
    """Start tasks in granted containers of one node; repeated until answered."""

    attempt_id: AttemptId
    node_id: NodeId
    items: tuple[TaskLaunch, ...]
    boot: int = 0  # the process that new containers were granted on; another one refuses them


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
NO_TOKEN = "refused for want of a token"  # how the error begins where a token was not valid


@record
class ItemAnswer:
    """The answer for one item of a bulk call; an empty error means done.

    One for a run of containers says how many there are (`count`), and names the first.
    The answer to a stop or a query names no task; that to a query is followed by one for each task
    that runs in the container. So who takes a reusable container over learns what it holds
    (`granted`), what runs in it, and which tries are not taken there (`attempt`).
    """

    container_id: ContainerId
    stage: int = -1
    task: int = -1
    error: str = ""
    count: int = 1
    attempt: int = 0  # the try of a task that runs; of a container: above all that ran in it
    granted: Vector = ()  # of a reusable container: what it holds


@record
class StartAnswered:
    """What became of each item of StartContainers."""

    node_id: NodeId
    attempt_id: AttemptId
    items: tuple[ItemAnswer, ...]


@record
class TasksEnded:
    """Ends of tasks inside reusable containers, and the use of those containers."""

    node_id: NodeId
    attempt_id: AttemptId
    ended: tuple[TaskEnd, ...] = ()
    container_use: tuple[ContainerUse, ...] = ()
    sent_s: float = 0.0  # on the node's clock


# -- what goes each way, for codecs and for the doors of the cores (`weft.protocol.event_unions`)

FromNode = NodeRegistered | NodeHeartbeated | NodeUnregistered
ToNode = NodeAccepted | NodeAnswered
FromMaster = AttemptRegistered | ContainersAsked | AttemptFinished
ToMaster = AttemptAccepted | ContainersGranted | AttemptUnregistered | AttemptStopped
MasterToNode = StartContainers | StopContainers | QueryContainers
NodeToMaster = StartAnswered | TasksEnded
