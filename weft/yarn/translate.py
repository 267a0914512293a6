"""Between Weft's words and YARN's: pure, both ways.

Memory is in MB and cores are whole on YARN's side; other resource types keep their names, but that
YARN's own prefix `yarn.io/` is put before GPUs and taken off again.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any

from weft.client.api import ENDED
from weft.model.ids import (
    AppId,
    AttemptId,
    ContainerId,
    app_of_attempt,
    attempt_id,
    attempt_of_container,
    container_id,
    format_app,
    format_container,
    number_of_attempt,
    number_of_container,
)
from weft.model.reading import name_problem
from weft.protocol.messages import NODE_FAULT, ContainerEnd, Outcome
from weft.protocol.requests import ApplicationReport, NodeReport, QueueReport
from weft.runtime import expiries
from weft.yarn import hadoop_pb2 as pb

CORES, MEMORY = "vcores", "memory_mb"
_YARN_NAME = {"gpu": "yarn.io/gpu", "gpus": "yarn.io/gpu", "fpga": "yarn.io/fpga"}
APP_STATES = (
    "",
    "NEW",
    "NEW_SAVING",
    "SUBMITTED",
    "ACCEPTED",
    "RUNNING",
    "FINISHED",
    "FAILED",
    "KILLED",
)
FINAL_STATES = ("UNDEFINED", "SUCCEEDED", "FAILED", "KILLED")
INT32_MAX, INT64_MAX, PORT_MAX = 2**31 - 1, 2**63 - 1, 2**16 - 1
NODE_STATES = (
    "",
    "NEW",
    "RUNNING",
    "UNHEALTHY",
    "DECOMMISSIONED",
    "LOST",
    "REBOOTED",
    "DECOMMISSIONING",
    "SHUTDOWN",
)
ATTEMPT_LAUNCHED = 6
ATTEMPT_STATES = {"ACCEPTED": 3, "RUNNING": 8, "FINISHED": 10, "FAILED": 7, "KILLED": 11}
CONTAINER_COMPLETE, CONTAINER_RUNNING = 3, 2
_LIFETIME = 1
# The log of a container stays on its node.
_LOGS_STAY = 1
_NO_LABEL, _ANY_NODE = "<Not set>", "<DEFAULT_PARTITION>"
_LAUNCHED = "AM container is launched, waiting for AM container to Register with RM"
# Hadoop's exit statuses that are no exit codes
RELEASED, PREEMPTED, MEMORY_EXCEEDED, KILLED_BY_MANAGER, KILLED_BY_MASTER = (
    -100,
    -102,
    -104,
    -105,
    -106,
)


# A name's characters take at most four bytes each.
NAME_MAX = 250


# -- names -----------------------------------------------------------------------------------------


def shown(text: str, most: int = NAME_MAX) -> str:
    """Return a foreign text as a name: cut, control characters and half characters blank."""
    return "".join(" " if name_problem(letter) else letter for letter in text[:most]).strip()


def address(url: str) -> str:
    """Return a foreign URL, "" for one that is too long or no text to show."""
    return "" if name_problem(url) else url


# -- ids -------------------------------------------------------------------------------------------


def application(cluster_ts: int, app: AppId) -> Any:
    """Return an application's id as a message."""
    return pb.ApplicationId(id=app, cluster_timestamp=cluster_ts)


def attempt(cluster_ts: int, number: AttemptId) -> Any:
    """Return an attempt's id as a message."""
    app = application(cluster_ts, app_of_attempt(number))
    return pb.AttemptId(application=app, attempt=number_of_attempt(number))


def container(cluster_ts: int, number: ContainerId) -> Any:
    """Return a container's id as a message."""
    owner = attempt(cluster_ts, attempt_of_container(number))
    return pb.ContainerId(
        application=owner.application, attempt=owner, id=number_of_container(number)
    )


def read_attempt(message: Any) -> AttemptId:
    """Read an attempt's id."""
    return attempt_id(message.application.id, message.attempt)


def read_container(message: Any) -> ContainerId:
    """Read a container's id; the epoch that YARN puts above bit 40 is always 0 here."""
    return container_id(read_attempt(message.attempt), message.id)


def container_name(cluster_ts: int, number: ContainerId) -> str:
    """Return a container's id as text."""
    return format_container(cluster_ts, number)


# -- resources -------------------------------------------------------------------------------------


def resource(amounts: Mapping[str, float]) -> Any:
    """Return amounts as a resource; parts of a core or of a MB count as whole ones.

    What is more than YARN's numbers can hold is the largest that they do.
    """
    whole = {name: min(ceil(amount - 1e-9), INT64_MAX) for name, amount in amounts.items()}
    cores = min(whole.get(CORES, 0), INT32_MAX)
    made = pb.Resource(memory=whole.get(MEMORY, 0), virtual_cores=cores)
    made.amounts.add(key="memory-mb", value=whole.get(MEMORY, 0), units="Mi", type=0)
    made.amounts.add(key="vcores", value=whole.get(CORES, 0), units="", type=0)
    for name, amount in whole.items():
        if name in _YARN_NAME:
            made.amounts.add(key=_YARN_NAME[name], value=amount, units="", type=0)
    return made


def floor_resource(amounts: Mapping[str, float]) -> Any:
    """Return amounts as a resource that is nowhere more than they are: of room and capacity."""
    return resource({name: float(int(max(0.0, amount) + 1e-9)) for name, amount in amounts.items()})


def demand(message: Any, names: tuple[str, ...]) -> dict[str, float]:
    """Read a resource as a demand in the cluster's types; types that it lacks are left out."""
    found = {MEMORY: float(max(0, message.memory)), CORES: float(max(0, message.virtual_cores))}
    told = {one.key: float(max(0, one.value)) for one in message.amounts}
    for name in names:
        if name in _YARN_NAME and _YARN_NAME[name] in told:
            found[name] = told[_YARN_NAME[name]]
    return {name: amount for name, amount in found.items() if name in names}


# -- ends ------------------------------------------------------------------------------------------


def exit_status(end: ContainerEnd, *, released: bool, stopped: bool) -> tuple[int, str]:
    """Return Hadoop's exit status of an ended container, and words for it.

    `released`: its master gave it back; `stopped`: its master had the node stop it.
    """
    outcome = end.outcome
    if outcome.name == "PREEMPTED":
        return PREEMPTED, "Container preempted by scheduler"
    if released and outcome in (Outcome.KILLED, Outcome.RELEASED):
        return RELEASED, "Container released by application"
    if stopped and outcome in (Outcome.KILLED, Outcome.RELEASED):
        return KILLED_BY_MASTER, "Container killed by the ApplicationMaster."
    if outcome is Outcome.SUCCEEDED:
        return 0, ""
    if outcome is Outcome.LOST and end.exit_code == NODE_FAULT:
        return NODE_FAULT, end.message
    if outcome is Outcome.LOST:
        return RELEASED, "Container released on a *lost* node"
    if outcome is Outcome.OUT_OF_MEMORY:
        return MEMORY_EXCEEDED, end.message or "Container is running beyond its memory limit"
    if outcome in (Outcome.KILLED, Outcome.RELEASED):
        return KILLED_BY_MANAGER, end.message or "Container killed by the manager"
    code = end.exit_code
    # A shell shows a signal as 128 and its number.
    return (128 - code if code < 0 else code or 1), end.message


def told_status(state: str, exit_code: int, message: str) -> tuple[int, str]:
    """Return Hadoop's exit status of a container that a report says has ended, and words for it."""
    outcome = Outcome.__members__.get(state, Outcome.FAILED)
    end = ContainerEnd(0, outcome, exit_code, message=message)
    return exit_status(end, released=outcome is Outcome.RELEASED, stopped=False)


# -- reports ---------------------------------------------------------------------------------------


def _port(text: str) -> int:
    """Return the port at the end of an address that a master told; -1: it is none."""
    known = text.isascii() and text.isdigit() and len(text) <= 5
    return int(text) if known and int(text) <= PORT_MAX else -1


def _final(status: str) -> int:
    """Return a final status; one that no client knows, of an older journal, is no success."""
    return FINAL_STATES.index(status if status in FINAL_STATES else "FAILED")


def report(item: ApplicationReport, ms_of: Any, web: str, *, unmanaged: bool) -> Any:
    """Return an application's report; `ms_of` turns the cluster's clock into Unix time in ms."""
    ended = item.state in ENDED
    host, _, port = item.master_address.rpartition(":")
    made = pb.ApplicationReport(
        application=application(item.cluster_ts, item.app_id),
        user=item.user or "anonymous",
        queue=item.queue,
        name=item.name,
        host=host or "N/A",
        rpc_port=_port(port),
        state=APP_STATES.index(item.state),
        diagnostics=_diagnostics(item),
        start_time=ms_of(item.submitted_s),
        submit_time=ms_of(item.submitted_s),
        launch_time=ms_of(item.started_s) if item.started_s else 0,
        finish_time=ms_of(item.finished_s) if ended else 0,
        final_status=_final(item.final_status),
        progress=item.progress,
        type=item.kind,
        tags=item.tags,
        unmanaged=unmanaged,
        original_tracking_url=item.tracking_url or _page(item, web),
        tracking_url=f"{web}/proxy/{format_app(item.cluster_ts, item.app_id)}/"
        if item.tracking_url and web
        else _page(item, web),
        log_aggregation=_LOGS_STAY,
        label=_NO_LABEL,
        master_label=_ANY_NODE,
        timeouts=[pb.TimeoutOfType(type=_LIFETIME, timeout=_timeout(item, ms_of))],
        priority=pb.Priority(priority=max(0, item.priority)),
    )
    if item.attempt_id:
        made.current_attempt.CopyFrom(attempt(item.cluster_ts, item.attempt_id))
    held = resource(item.allocated)
    made.usage.CopyFrom(
        pb.ResourceUsage(
            used_containers=item.running_containers,
            reserved_containers=0,
            used=held,
            reserved=resource({}),
            needed=held,
            memory_seconds=min(int(item.held_s.get(MEMORY, 0.0)), INT64_MAX),
            vcore_seconds=min(int(item.held_s.get(CORES, 0.0)), INT64_MAX),
        )
    )
    return made


def _page(item: ApplicationReport, web: str) -> str:
    """Return the cluster's page about an application, where a browser looks once it is over."""
    return (
        f"{web}/cluster/app/{format_app(item.cluster_ts, item.app_id)}"
        if item.state in ENDED and web
        else "N/A"
    )


def _diagnostics(item: ApplicationReport) -> str:
    launched = item.state == "ACCEPTED" and item.master_node
    return item.diagnostics or (_LAUNCHED if launched else "")


def _timeout(item: ApplicationReport, ms_of: Any) -> Any:
    expires, left_s = expiries.told(ms_of(item.expires_s) if item.expires_s else None)
    return pb.Timeout(type=_LIFETIME, expires=expires, remaining_s=left_s)


def attempt_report(item: ApplicationReport, ms_of: Any, web: str, *, number: AttemptId) -> Any:
    """Return the report of an application's attempt; only the current one's state is known."""
    current = number == item.attempt_id
    state = ATTEMPT_STATES.get(item.state, 1) if current else ATTEMPT_STATES["FAILED"]
    if current and item.state == "ACCEPTED" and item.master_node:
        state = ATTEMPT_LAUNCHED
    host, _, port = item.master_address.rpartition(":")
    return pb.AttemptReport(
        attempt=attempt(item.cluster_ts, number),
        host=host if current and host else "N/A",
        rpc_port=_port(port) if current else -1,
        tracking_url=f"{web}/cluster/app/{format_app(item.cluster_ts, item.app_id)}"
        if web
        else "N/A",
        original_tracking_url=item.tracking_url or "N/A",
        diagnostics=_diagnostics(item) if current else "",
        state=state,
        master_container=container(item.cluster_ts, container_id(number, 1)),
        start_time=ms_of(item.started_s or item.submitted_s),
        finish_time=ms_of(item.finished_s) if item.finished_s else 0,
    )


def node_report(item: NodeReport, node: Any, ms_of: Any, http_address: str) -> Any:
    """Return a node's report."""
    healthy = item.state in ("RUNNING", "DECOMMISSIONING")
    used = resource(item.use)
    memory = min(used.memory, INT32_MAX)
    use = pb.Utilization(
        memory_mb=memory, virtual_memory_mb=memory, cores=float(item.use.get(CORES, 0.0))
    )
    return pb.NodeReport(
        node=node,
        http_address=http_address,
        rack=item.rack if item.rack.startswith("/") else f"/{item.rack or 'default-rack'}",
        used=resource(item.allocated),
        capability=floor_resource(item.capacity),
        containers=item.containers,
        state=NODE_STATES.index(item.state) if item.state in NODE_STATES else 1,
        health_report=item.health_report or ("" if healthy else f"the node is {item.state}"),
        last_health_report_time=ms_of(item.last_heartbeat_s),
        labels=item.labels,
        containers_utilization=use,
        node_utilization=use,
    )


def count(made: Any, item: QueueReport, apps: Sequence[ApplicationReport], total: Any) -> None:
    """Fill in what `yarn top` shows of a queue and those below it that are told.

    `apps` are the applications that the manager knows, `total` the cluster's capacity by name.
    """
    own = [a for a in apps if a.queue == item.name or a.queue.startswith(f"{item.name}.")]
    ended = Counter(app.state for app in own)
    statistics = made.statistics
    statistics.apps_submitted = len(own)
    statistics.apps_completed = ended["FINISHED"]
    statistics.apps_killed, statistics.apps_failed = ended["KILLED"], ended["FAILED"]
    statistics.allocated_containers = sum(app.running_containers for app in own)
    free = {n: item.max_capacity * total.get(n, 0.0) - item.allocated.get(n, 0.0) for n in total}
    statistics.available_memory_mb = max(0, int(free.get(MEMORY, 0.0)))
    statistics.available_vcores = max(0, int(free.get(CORES, 0.0)))
    for child, below in zip(made.children, item.children, strict=False):
        count(child, below, own, total)


def queue_info(item: QueueReport, parent: float, *, children: bool, recursive: bool) -> Any:
    """Return a queue; YARN's capacities are shares of the parent's, Weft's of the cluster."""
    of_parent = item.capacity / parent if parent > 0 else 0.0
    made = pb.QueueInfo(
        name=item.name.rpartition(".")[2],
        capacity=of_parent,
        maximum_capacity=item.max_capacity,
        current_capacity=item.used / item.capacity if item.capacity > 0 else 0.0,
        state=2 if item.state == "RUNNING" else 1,
        statistics=pb.QueueStatistics(
            apps_running=item.running_apps,
            apps_pending=item.pending_apps,
            allocated_memory_mb=round(item.allocated.get(MEMORY, 0.0)),
            allocated_vcores=round(item.allocated.get(CORES, 0.0)),
            pending_containers=item.pending_containers,
        ),
        preemption_disabled=True,
        intra_queue_preemption_disabled=True,
        labels=["*"],
        path=item.name,
        max_parallel_apps=INT32_MAX,
        scheduler="CapacityScheduler",
    )
    if children:
        made.children.extend(
            queue_info(child, item.capacity, children=recursive, recursive=recursive)
            for child in item.children
        )
    return made
