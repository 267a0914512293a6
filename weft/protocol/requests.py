"""What a client may ask of the Resource Manager, and what it is answered."""

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from weft.model.ids import AppId, AttemptId, ContainerId, NodeId
from weft.model.job import Job
from weft.model.queues import QueueSpec

# -- requests --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NewApplication:
    """Reserve an id for a later submission, as YARN's REST clients do; it is never given again."""


@dataclass(frozen=True, slots=True)
class SubmitApplication:
    """Accept a job; a repeated `submission_id` is answered with the same application.

    `app_id` is one that NewApplication reserved; 0 takes the next. `fresh`: this is the first time
    that the id is sent to anybody, so no other member of the cluster can have it.
    """

    job: Job
    submission_id: str
    app_id: AppId = 0
    fresh: bool = False


@dataclass(frozen=True, slots=True)
class FindSubmission:
    """Return the application of a submission id, if there is one that the caller may see."""

    submission_id: str


@dataclass(frozen=True, slots=True)
class KillApplication:
    """Kill an application; killing an ended one is answered with its state."""

    app_id: AppId
    diagnostics: str = ""


@dataclass(frozen=True, slots=True)
class MoveApplication:
    """Move an application to another leaf queue."""

    app_id: AppId
    queue: str


@dataclass(frozen=True, slots=True)
class SetPriority:
    """Change an application's priority; larger goes first."""

    app_id: AppId
    priority: int


@dataclass(frozen=True, slots=True)
class SetExpiry:
    """Change when an application is killed, done or not, s on the cluster's clock.

    0: as its job and its queue say. The most that its queue allows always holds.
    """

    app_id: AppId
    expires_s: float


@dataclass(frozen=True, slots=True)
class GetApplication:
    """One application's report, with its stages."""

    app_id: AppId


@dataclass(frozen=True, slots=True)
class GetJob:
    """The job of an application, as it was submitted."""

    app_id: AppId


@dataclass(frozen=True, slots=True)
class ListApplications:
    """Reports of all applications that match, page by page; empty fields match everything.

    A `limit` above 0 gives the newest only. `page` is the `Page.next` of the page before, empty for
    the first.
    """

    states: tuple[str, ...] = ()
    queue: str = ""
    user: str = ""
    limit: int = 0
    page: str = ""


@dataclass(frozen=True, slots=True)
class ListNodes:
    """Reports of all nodes in the given states (none: all), page by page.

    `limit` is that of the page; 0 gives as many as fit. `node` asks for the one of this name alone.
    """

    states: tuple[str, ...] = ()
    limit: int = 0
    page: str = ""
    node: str = ""


@dataclass(frozen=True, slots=True)
class DecommissionNode:
    """Take a node out of service: nothing new runs there, what runs may end.

    What still runs after `timeout_s` is stopped; below 0: no deadline.
    """

    node_id: NodeId
    timeout_s: float


@dataclass(frozen=True, slots=True)
class RecommissionNode:
    """Put a node back into service."""

    node_id: NodeId


@dataclass(frozen=True, slots=True)
class UpdateNode:
    """Say what a node has instead of what itself says; containers there keep running.

    Of `capacity` only the amounts that are named change, and none beyond what the node offers.
    `labels` count where `relabel` says so. `own`: what was said before is taken back first.
    """

    node_id: NodeId
    capacity: dict[str, float] = field(default_factory=dict)
    labels: tuple[str, ...] = ()
    relabel: bool = False
    own: bool = False


@dataclass(frozen=True, slots=True)
class ListQueues:
    """The tree of queues."""


@dataclass(frozen=True, slots=True)
class SetQueues:
    """Take another tree of queues while the cluster runs; `dry_run`: only tell what would change.

    Queues are known by their paths. One that is gone has to be empty; containers keep running, and
    limits hold from then on. It is refused where `base` names another tree than the one that holds
    (`weft.model.queues.digest_of`); empty: whatever holds.
    """

    queues: QueueSpec
    dry_run: bool = False
    base: str = ""


@dataclass(frozen=True, slots=True)
class GetMetrics:
    """Counts over the whole cluster."""


@dataclass(frozen=True, slots=True)
class GetManager:
    """How the Resource Manager that is asked stands to the others; a standby answers as well."""


@dataclass(frozen=True, slots=True)
class GetSettings:
    """What the Resource Manager runs with."""


@dataclass(frozen=True, slots=True)
class GetQueues:
    """The tree of queues as `SetQueues` takes it."""


@dataclass(frozen=True, slots=True)
class Explain:
    """Why each pending stage of an application is pending."""

    app_id: AppId


@dataclass(frozen=True, slots=True)
class ListContainers:
    """Containers of an application, running and ended (the newest first, bounded), by pages.

    `limit` is that of the page; 0 gives as many as fit.
    """

    app_id: AppId
    limit: int = 0
    page: str = ""


ClientRequest = (
    NewApplication
    | SubmitApplication
    | FindSubmission
    | KillApplication
    | MoveApplication
    | SetPriority
    | SetExpiry
    | GetApplication
    | GetJob
    | ListApplications
    | ListNodes
    | DecommissionNode
    | RecommissionNode
    | UpdateNode
    | ListQueues
    | SetQueues
    | GetMetrics
    | GetManager
    | GetSettings
    | GetQueues
    | Explain
    | ListContainers
)
# They change nothing: a failure of one is no reason to end, and no tape keeps one.
READS = frozenset(
    {
        FindSubmission,
        GetApplication,
        GetJob,
        ListApplications,
        ListNodes,
        ListQueues,
        GetMetrics,
        GetQueues,
        Explain,
        ListContainers,
    }
)

Report = TypeVar("Report")

# -- answers ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Refused:
    """The request was refused and nothing changed; `code` is a gRPC status name in lower case.

    `code` is invalid_argument, not_found, failed_precondition, resource_exhausted or unavailable.
    """

    code: str
    place: str
    problem: str


@dataclass(frozen=True, slots=True)
class ApplicationReserved:
    """The id that a submission may name."""

    app_id: AppId
    cluster_ts: int


@dataclass(frozen=True, slots=True)
class ApplicationAccepted:
    """The application is stored: it survives the loss of any process."""

    app_id: AppId
    cluster_ts: int


@dataclass(frozen=True, slots=True)
class Done:
    """The request was carried out; `state` is that of the application or node now."""

    state: str = ""


@dataclass(frozen=True, slots=True)
class StageReport:
    """A stage of an application: how many of its tasks are where.

    `pending` counts what was asked for and not granted. `parents` are (stage, kind of the edge).
    """

    name: str
    tasks: int
    pending: int
    running: int
    finished: int
    failed_attempts: int
    parents: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ApplicationReport:
    """What a client may know of an application; times in s on the cluster's clock, 0: not yet.

    `state` is NEW, SUBMITTED, ACCEPTED, RUNNING, FINISHED, FAILED or KILLED, `final_status`
    UNDEFINED, SUCCEEDED, FAILED or KILLED, and `kind` YARN's application type. `stages` is filled
    in the answer to GetApplication only. `cluster_ts` is for the id's string. `held_s` is amount x
    s so far, masters included. `preempted_containers` counts those taken back so far, and
    `preempted` is what they held together.

    A foreign master has its pages at `tracking_url` and its service at `master_address`
    (host:port). `expires_s` is when the application is killed, done or not; 0 is never.
    `max_attempts` is how many failed attempts end it; 0 means unknown.
    """

    app_id: AppId
    name: str
    user: str
    queue: str
    priority: int
    state: str
    final_status: str
    progress: float
    attempt_id: AttemptId
    master_node: NodeId
    submitted_s: float
    started_s: float
    finished_s: float
    tasks: int
    finished_tasks: int
    running_containers: int
    pending_containers: int
    allocated: dict[str, float]
    diagnostics: str = ""
    stages: tuple[StageReport, ...] = ()
    cluster_ts: int = 0
    held_s: dict[str, float] = field(default_factory=dict)
    kind: str = "WEFT"
    tags: tuple[str, ...] = ()
    tracking_url: str = ""
    master_address: str = ""
    preempted_containers: int = 0
    preempted: dict[str, float] = field(default_factory=dict)
    expires_s: float = 0.0
    max_attempts: int = 0


@dataclass(frozen=True, slots=True)
class ApplicationJob:
    """An application's job; queue and priority as submitted, not as changed since."""

    job: Job


@dataclass(frozen=True, slots=True)
class NodeReport:
    """What a client may know of a node.

    `state` is NEW, RUNNING, UNHEALTHY, DECOMMISSIONING, DECOMMISSIONED, LOST, REBOOTED or SHUTDOWN.
    `health_report` says why a node is unhealthy, empty if it is not; `lacking` says which wanted
    isolation of tasks its host cannot provide.
    """

    node_id: NodeId
    address: str
    rack: str
    labels: tuple[str, ...]
    state: str
    capacity: dict[str, float]
    allocated: dict[str, float]
    use: dict[str, float]
    containers: int
    last_heartbeat_s: float
    health_report: str = ""
    lacking: str = ""


@dataclass(frozen=True, slots=True)
class QueueReport:
    """A queue; shares are fractions of the whole cluster.

    `name` is the full path, as root.prod. `used` is the dominant share in use. `max_applications`
    bounds those that have not ended; 0 is any number. `max_am_share` is the fraction of its
    guarantee that its masters may hold together. `asked` is what its pending containers need. Of
    several members, `members` has for each that has the queue its number, and what the queue is
    guaranteed there as a fraction of that member. The root tells what is `missing`, as a page does.
    """

    name: str
    capacity: float
    max_capacity: float
    used: float
    state: str
    running_apps: int
    pending_apps: int
    allocated: dict[str, float]
    pending_containers: int
    deficit: float = 0.0
    children: tuple["QueueReport", ...] = ()
    max_applications: int = 0
    max_am_share: float = 1.0
    missing: tuple[int, ...] = ()
    asked: dict[str, float] = field(default_factory=dict)
    members: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class QueueChange:
    """What is new about a queue: `change` is added, changed, stopped, started or removed.

    `text` tells which of its settings had and have which value.
    """

    queue: str
    change: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class NeverHeld:
    """An application that waits without end, as a new limit of its queue can never hold it."""

    app_id: AppId
    queue: str
    text: str


@dataclass(frozen=True, slots=True)
class QueuesSet:
    """The queues are as wanted, or would be; `cluster_ts` is for the ids' strings."""

    changes: tuple[QueueChange, ...]
    never_held: tuple[NeverHeld, ...] = ()
    cluster_ts: int = 0


@dataclass(frozen=True, slots=True)
class ClusterMetrics:
    """Counts over the whole cluster.

    `nodes` and `apps` are counts by state. `cluster_ts` is for the strings of ids. `use` is
    measured on the nodes that run. `outstanding_s` is how long the work that is not done would keep
    the whole cluster, the sum over the resources; of what runs, half of a mean task is left.
    `labels` are those of nodes in service. It tells of what is `missing` as a page does.
    """

    scheduler: str
    started_s: float
    now_s: float
    nodes: dict[str, int]
    apps: dict[str, int]
    capacity: dict[str, float]
    allocated: dict[str, float]
    containers_running: int
    containers_pending: int
    cluster_ts: int = 0
    use: dict[str, float] = field(default_factory=dict)
    outstanding_s: float = 0.0
    labels: tuple[str, ...] = ()
    missing: tuple[int, ...] = ()


# What is said for a manager that does not answer.
UNREACHABLE = "UNREACHABLE"


@dataclass(frozen=True, slots=True)
class ManagerReport:
    """How a Resource Manager stands to the others.

    `standing`: ALONE (its state is a file, or nothing), LEADER, STANDBY, or SUSPENDED: it leads for
    all that it knows, but its store does not answer, so it accepts and grants nothing meanwhile.

    `leader` is host:port of the manager that leads, as far as this one knows. `since_s` is the unix
    time at which its `standing` began, and `reason` says why. `store` is where its state is, empty
    if in memory only. `life` is that of the manager that leads, the first being 1; 0 if this one
    does not lead. The cluster's clock runs `time_scale` times as fast as the wall clock (0: not
    known). Of a router, `members` has what each of them says, in order, or UNREACHABLE.
    """

    address: str
    standing: str
    leader: str = ""
    since_s: float = 0.0
    reason: str = ""
    store: str = ""
    life: int = 0
    time_scale: float = 0.0
    members: tuple["ManagerReport", ...] = ()


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting: its value and its default as they would be written, and what it is for."""

    name: str
    value: str
    default: str
    text: str


@dataclass(frozen=True, slots=True)
class ManagerSettings:
    """What a Resource Manager runs with, in the order of its documentation."""

    items: tuple[Setting, ...]


@dataclass(frozen=True, slots=True)
class Queues:
    """A tree of queues."""

    queues: QueueSpec


@dataclass(frozen=True, slots=True)
class Contender:
    """An ask that goes before another one, and the matcher's terms of it, by name.

    Of an application that the caller may not know, `app_id` is 0 and names are empty.
    """

    app_id: AppId
    name: str
    stage: str
    pending: int
    scores: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Turn:
    """Where a stage stands in the order in which the matcher would fill a node, were it empty.

    `node_id` is that node: of those that the stage may use, the one where something ends next.
    `asks` (stages of applications) with `containers` go before it, and `work` of them, amounts x s
    by the estimates; `first` are the first of them. `beyond`: the stage stands further back than
    was looked. `scores` are the matcher's terms of it. The first container is expected to start at
    `start_s` of cluster time, by the estimates; 0: that is not known. `if_it_lasts`: grants may
    move the order, in a way that only the matcher knows, and the start does not foresee that.
    """

    node_id: NodeId
    asks: int
    containers: int
    work: dict[str, float] = field(default_factory=dict)
    beyond: bool = False
    scores: dict[str, float] = field(default_factory=dict)
    first: tuple[Contender, ...] = ()
    start_s: float = 0.0
    if_it_lasts: bool = False


@dataclass(frozen=True, slots=True)
class StageExplanation:
    """Why containers of a stage are pending: reasons counted over nodes.

    `reasons` maps a reason to its number of nodes. `altruistic` of the pending containers were
    asked ALTRUISTIC, so that they take leftover resources only. `turns` has where the stage stands,
    or nothing where it does not compete.
    """

    stage: str
    pending: int
    reasons: dict[str, int] = field(default_factory=dict)
    altruistic: int = 0
    turns: tuple[Turn, ...] = ()


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why an application's stages are pending; at `now_s` of cluster time."""

    app_id: AppId
    state: str
    text: str
    stages: tuple[StageExplanation, ...] = ()
    now_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ContainerReport:
    """One container of an application.

    `run_s` is that of the task itself, 0 if unknown. `message` says why it ended, where that is no
    success.
    """

    container_id: ContainerId
    node_id: NodeId
    stage: str
    index: int
    attempt: int
    state: str
    started_s: float
    finished_s: float
    node_address: str = ""
    exit_code: int = 0
    run_s: float = 0.0
    message: str = ""


@dataclass(frozen=True, slots=True)
class Page(Generic[Report]):
    """Part of a listing: what fits one message.

    Pages of nodes and containers follow each other; those of applications come the newest first,
    each in order of submission. Every page tells how things are when it is asked for.

    `next` names the next page; it is empty for the last. `missing` are the numbers of members that
    did not answer a router: what they have is not in the listing.
    """

    items: tuple[Report, ...]
    next: str = ""
    missing: tuple[int, ...] = ()


ClientAnswer = (
    Refused
    | ApplicationReserved
    | ApplicationAccepted
    | Done
    | ApplicationReport
    | ApplicationJob
    | Page[ApplicationReport]
    | Page[NodeReport]
    | QueueReport
    | QueuesSet
    | ClusterMetrics
    | ManagerReport
    | ManagerSettings
    | Queues
    | Explanation
    | Page[ContainerReport]
)
