"""The face to YARN's clients: submit, follow, list, kill, move; nodes, queues, labels."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from weft.client.api import ENDED, AsyncClient, RefusedError
from weft.model.errors import InputError, WeftError
from weft.model.ids import attempt_id, attempt_of_container, format_app, number_of_attempt
from weft.protocol.requests import ApplicationReport, NodeReport, QueueReport
from weft.runtime import expiries
from weft.yarn import hadoop_pb2 as pb
from weft.yarn import launches, submissions, translate
from weft.yarn.errors import (
    HadoopError,
    no_application,
    no_attempt,
    no_container,
    server_error,
    unsupported,
    yarn,
)
from weft.yarn.rpc import Caller, Handler, Method
from weft.yarn.store import Store
from weft.yarn.tokens import TokenKeeper, token

LISTED_APPLICATIONS_MAX = 10_000
# Of a listing so much is made before others are served.
MADE_AT_ONCE = 50
# An answer may repeat a report that is no older; so many reports are kept for that.
REPORT_AGE_MAX_S = 0.1
KEPT_REPORTS_MAX = 1_000
UNSUPPORTED = (
    "failApplicationAttempt",
    "getDelegationToken",
    "renewDelegationToken",
    "getResourceProfile",
    "cancelDelegationToken",
    "getNewReservation",
    "submitReservation",
    "updateReservation",
    "deleteReservation",
    "listReservations",
    "signalToContainer",
    "getResourceProfiles",
    "getAttributesToNodes",
)
EMPTY = ("getClusterNodeAttributes", "getNodesToAttributes")


Item = TypeVar("Item")
Made = TypeVar("Made")


class Cluster(Protocol):
    """What the client face must know of the cluster.

    `web` is the address of Weft's pages, http://host:port; empty: there are none.
    """

    client: AsyncClient
    store: Store
    keeper: TokenKeeper
    cluster_ts: int
    web: str

    @property
    def names(self) -> tuple[str, ...]:
        """The cluster's resource types."""
        ...

    def largest(self) -> dict[str, float]:
        """Return the largest node's capacity."""
        ...

    def unix_ms(self, cluster_s: float) -> int:
        """Return Unix time of the cluster's clock, ms."""
        ...

    def at_s(self, unix_ms: float) -> float:
        """Return the cluster's clock at a Unix time, s."""
        ...

    def address_of(self, node: str) -> Any:
        """Return the address that YARN's clients know a node by."""
        ...

    def http_address(self, node: str) -> str:
        """Return host:port of a node's pages."""
        ...

    def ticket_environment(self, container: str) -> tuple[tuple[str, str], ...]:
        """Return what a launcher must know."""
        ...

    def master_environment(self, app: int) -> tuple[tuple[str, str], ...]:
        """Return what a master's launcher must know, whichever attempt it becomes."""
        ...


# what grows with the cluster, so that few of them are made at a time
LISTINGS = frozenset(
    {
        "getApplications",
        "getClusterNodes",
        "getQueueInfo",
        "getApplicationAttempts",
        "getContainers",
        "getNodeToLabels",
    }
)


class ClientFace:
    """ApplicationClientProtocol."""

    def __init__(self, cluster: Cluster, clock: Callable[[], float] = time.monotonic) -> None:
        self._cluster, self._clock = cluster, clock
        # When each application's report was made, and the report.
        self._reports: dict[int, tuple[float, Any]] = {}

    def protocol(self) -> Mapping[str, Method]:
        """Return every method of the protocol: served, answered empty, or refused by name."""
        served: dict[str, tuple[type, Callable[[Caller, Any], Awaitable[Any]]]] = {
            "getNewApplication": (pb.Empty, self._new),
            "submitApplication": (pb.Submission, self._submit),
            "getApplicationReport": (pb.OneApplication, self._report),
            "forceKillApplication": (pb.Kill, self._kill),
            "getApplications": (pb.ApplicationsQuery, self._list),
            "getClusterMetrics": (pb.Empty, self._metrics),
            "getClusterNodes": (pb.NodesQuery, self._nodes),
            "getQueueInfo": (pb.QueueQuery, self._queue),
            "getQueueUserAcls": (pb.Empty, self._acls),
            "moveApplicationAcrossQueues": (pb.Move, self._move),
            "updateApplicationPriority": (pb.SetPriority, self._priority),
            "updateApplicationTimeouts": (pb.UpdateTimeouts, self._expire),
            "getApplicationAttempts": (pb.OneApplication, self._attempts),
            "getApplicationAttemptReport": (pb.OneAttempt, self._attempt),
            "getContainers": (pb.OneAttempt, self._containers),
            "getContainerReport": (pb.OneContainer, self._container),
            "getClusterNodeLabels": (pb.Empty, self._labels),
            "getNodeToLabels": (pb.Empty, self._labels_of_nodes),
            "getResourceTypeInfo": (pb.Empty, self._types),
        }
        methods = {
            name: Method(kind, told(call), name in LISTINGS)
            for name, (kind, call) in served.items()
        }
        methods |= {name: Method(pb.Empty, refuse(name)) for name in UNSUPPORTED}
        methods |= {name: Method(pb.Empty, _empty) for name in EMPTY}
        return methods

    # -- submission --------------------------------------------------------------------------------

    async def _new(self, caller: Caller, request: Any) -> Any:
        app = await self._cluster.client.new_application()
        return pb.NewApplication(
            application=translate.application(self._cluster.client.cluster_ts, app),
            maximum=translate.floor_resource(self._cluster.largest()),
        )

    async def _submit(self, caller: Caller, request: Any) -> Any:
        cluster, context = self._cluster, request.context
        app = context.application.id
        if app <= 0 or context.application.cluster_timestamp not in (0, cluster.cluster_ts):
            raise yarn("the submission names no application of this cluster: ask for one first")
        user = translate.shown(caller.user) or "anonymous"
        data = launches.data_of(context.master, user)
        data["unmanaged"] = context.unmanaged
        environment = cluster.master_environment(app)
        job = submissions.job_of(context, user, cluster.names, environment)
        # A repeated submission leaves the application as it was.
        if cluster.store.application(app) is None:
            cluster.store.keep(app, data)
        try:
            await cluster.client.submit(job, f"hadoop-{cluster.cluster_ts}-{app}", app)
        except WeftError:
            if await self._is_unknown(app):
                cluster.store.forget(app)
            raise
        return pb.Empty()

    async def _is_unknown(self, app: int) -> bool:
        try:
            await self._cluster.client.application(app)
        except RefusedError:
            return True
        except WeftError:
            return False
        return False

    # -- applications ------------------------------------------------------------------------------

    async def _application(self, message: Any) -> ApplicationReport:
        stamp = self._cluster.cluster_ts
        if message.cluster_timestamp not in (0, stamp):
            raise _unknown_application(message)
        try:
            return await self._cluster.client.application(message.id)
        except RefusedError as error:
            if error.code == "not_found":
                raise _unknown_application(message) from None
            raise

    def changed(self, app: int) -> None:
        """Drop the kept report of an application that changed by what its master said."""
        self._reports.pop(app, None)

    async def _changing(self, message: Any) -> ApplicationReport:
        """Return an application that is about to change, and drop its kept report."""
        item = await self._application(message)
        self._reports.pop(item.app_id, None)
        return item

    def _made(self, item: ApplicationReport) -> Any:
        cluster = self._cluster
        unmanaged = cluster.store.unmanaged(item.app_id)
        made = translate.report(item, cluster.unix_ms, cluster.web, unmanaged=unmanaged)
        if unmanaged and item.state == "ACCEPTED" and item.attempt_id:
            # its client registers the attempt itself, so it needs the token
            owner = translate.attempt(item.cluster_ts, item.attempt_id)
            made.am_rm_token.CopyFrom(token(cluster.keeper.master(owner)))
        return made

    async def _report(self, caller: Caller, request: Any) -> Any:
        """Return a report, at most `REPORT_AGE_MAX_S` old: clients ask every second or oftener."""
        app, now = request.application.id, self._clock()
        made_s, answer = self._reports.get(app, (0.0, None))
        right = request.application.cluster_timestamp in (0, self._cluster.cluster_ts)
        if answer is None or not right or now - made_s >= REPORT_AGE_MAX_S:
            item = await self._application(request.application)
            answer = pb.OneApplicationReport(report=self._made(item))
            if len(self._reports) >= KEPT_REPORTS_MAX:
                self._reports.clear()
            self._reports[app] = (now, answer)
        return answer

    async def _kill(self, caller: Caller, request: Any) -> Any:
        item = await self._changing(request.application)
        name = format_app(self._cluster.cluster_ts, item.app_id)
        who = f"{caller.user or 'anonymous'} at {caller.peer.rpartition(':')[0]}"
        why = request.diagnostics or f"Application {name} was killed by user {who}"
        state = await self._cluster.client.kill(item.app_id, why[:1000])
        return pb.KillAnswer(completed=state in ENDED)

    async def _list(self, caller: Caller, request: Any) -> Any:
        states = tuple(_state(number, translate.APP_STATES) for number in request.states)
        items = await self._cluster.client.applications(states=states)
        wanted = [
            item
            for item in items
            if (not request.types or item.kind.upper() in {t.upper() for t in request.types})
            and (not request.users or item.user in request.users)
            and (not request.queues or _in_queue(item.queue, request.queues))
            and (not request.tags or set(request.tags) & set(item.tags))
            and (not request.name or request.name == item.name)
        ]
        most = min(LISTED_APPLICATIONS_MAX, request.limit or LISTED_APPLICATIONS_MAX)
        return pb.Applications(applications=await in_turns(self._made, wanted[-most:]))

    async def _move(self, caller: Caller, request: Any) -> Any:
        item = await self._changing(request.application)
        if _find_queue(await self._cluster.client.queues(), request.queue, 1.0) is None:
            raise yarn(f"The specified Queue: {request.queue} doesn't exist")
        await self._cluster.client.move(item.app_id, request.queue)
        return pb.Empty()

    async def _priority(self, caller: Caller, request: Any) -> Any:
        item = await self._changing(request.application)
        if item.state in ENDED:
            # YARN answers with the priority that stays.
            return pb.SetPriorityAnswer(priority=pb.Priority(priority=max(0, item.priority)))
        await self._cluster.client.set_priority(item.app_id, request.priority.priority)
        return pb.SetPriorityAnswer(priority=request.priority)

    async def _expire(self, caller: Caller, request: Any) -> Any:
        item = await self._changing(request.application)
        for timeout in request.timeouts:
            at_ms = expiries.read_ms(timeout.expires)
            if item.state not in ENDED:
                await self._cluster.client.set_expiry(item.app_id, self._cluster.at_s(at_ms))
        return pb.TimeoutsAnswer(timeouts=request.timeouts)

    # -- attempts and containers -------------------------------------------------------------------

    async def _attempts(self, caller: Caller, request: Any) -> Any:
        item = await self._application(request.application)
        last = number_of_attempt(item.attempt_id) if item.attempt_id else 0
        numbers = [attempt_id(item.app_id, number) for number in range(1, last + 1)]
        return pb.Attempts(attempts=[self._made_attempt(item, number) for number in numbers])

    async def _attempt(self, caller: Caller, request: Any) -> Any:
        item = await self._application(request.attempt.application)
        number = translate.read_attempt(request.attempt)
        if not item.attempt_id or not 1 <= request.attempt.attempt <= number_of_attempt(
            item.attempt_id
        ):
            raise no_attempt(f"application {item.app_id} has no attempt {request.attempt.attempt}")
        return pb.OneAttemptReport(report=self._made_attempt(item, number))

    def _made_attempt(self, item: ApplicationReport, number: int) -> Any:
        cluster = self._cluster
        return translate.attempt_report(item, cluster.unix_ms, cluster.web, number=number)

    async def _containers(self, caller: Caller, request: Any) -> Any:
        item = await self._application(request.attempt.application)
        number = translate.read_attempt(request.attempt)
        found = await self._cluster.client.containers(item.app_id)
        return pb.Containers(
            containers=[
                self._container_report(one)
                for one in found
                if attempt_of_container(one.container_id) == number
            ]
        )

    async def _container(self, caller: Caller, request: Any) -> Any:
        item = await self._application(request.container.attempt.application)
        number = translate.read_container(request.container)
        for one in await self._cluster.client.containers(item.app_id):
            if one.container_id == number:
                return pb.OneContainerReport(report=self._container_report(one))
        name = translate.container_name(self._cluster.cluster_ts, number)
        raise no_container(f"Container with id '{name}' doesn't exist in RM.")

    def _container_report(self, one: Any) -> Any:
        cluster = self._cluster
        name = translate.container_name(cluster.cluster_ts, one.container_id)
        web = cluster.http_address(one.node_id)
        # Hadoop has this exit status for a container that runs.
        status, words = -1000, None
        if one.finished_s:
            status, words = translate.told_status(one.state, one.exit_code, one.message)
        return pb.ContainerReport(
            container=translate.container(cluster.cluster_ts, one.container_id),
            resource=translate.resource({}),
            node=cluster.address_of(one.node_id),
            priority=pb.Priority(priority=0),
            creation_time=cluster.unix_ms(one.started_s),
            finish_time=cluster.unix_ms(one.finished_s) if one.finished_s else 0,
            diagnostics=words,
            log_url=f"http://{web}/node/containerlogs/{name}/user" if web else "",
            exit_status=status,
            state=translate.CONTAINER_COMPLETE if one.finished_s else translate.CONTAINER_RUNNING,
            node_http_address=f"http://{web}" if web else "",
        )

    # -- the cluster -------------------------------------------------------------------------------

    async def _metrics(self, caller: Caller, request: Any) -> Any:
        nodes = (await self._cluster.client.metrics()).nodes
        counts = pb.ClusterCounts(
            node_managers=nodes.get("RUNNING", 0),
            decommissioned=nodes.get("DECOMMISSIONED", 0),
            active=nodes.get("RUNNING", 0),
            lost=nodes.get("LOST", 0),
            unhealthy=nodes.get("UNHEALTHY", 0),
            rebooted=nodes.get("REBOOTED", 0),
        )
        return pb.ClusterMetrics(counts=counts)

    async def _nodes(self, caller: Caller, request: Any) -> Any:
        states = tuple(_state(number, translate.NODE_STATES) for number in request.states)
        items = await self._cluster.client.nodes(states)
        return pb.Nodes(nodes=await in_turns(self._node, items))

    def _node(self, item: NodeReport) -> Any:
        cluster = self._cluster
        return translate.node_report(
            item,
            cluster.address_of(item.node_id),
            cluster.unix_ms,
            cluster.http_address(item.node_id),
        )

    async def _queue(self, caller: Caller, request: Any) -> Any:
        root = await self._cluster.client.queues()
        found = _find_queue(root, request.name, 1.0)
        if found is None:
            # So YARN answers; its command line says that there is none.
            return pb.QueueAnswer()
        queue, parent = found
        made = translate.queue_info(
            queue, parent, children=request.children, recursive=request.recursive
        )
        total = (await self._cluster.client.metrics()).capacity
        translate.count(made, queue, await self._cluster.client.applications(), total)
        if request.applications:
            items = await self._cluster.client.applications(queue=queue.name)
            some = items[-LISTED_APPLICATIONS_MAX:]
            made.applications.extend(await in_turns(self._made, some))
        return pb.QueueAnswer(queue=made)

    async def _acls(self, caller: Caller, request: Any) -> Any:
        root = await self._cluster.client.queues()
        names = [queue.name.rpartition(".")[2] for queue in _walk(root)]
        return pb.QueueAcls(acls=[pb.QueueAcl(queue=name, acls=[1, 2]) for name in names])

    async def _labels(self, caller: Caller, request: Any) -> Any:
        items = await self._cluster.client.nodes()
        names = sorted({label for item in items for label in item.labels})
        return pb.NodeLabels(names=names, labels=[pb.NodeLabel(name=name) for name in names])

    async def _labels_of_nodes(self, caller: Caller, request: Any) -> Any:
        items = [item for item in await self._cluster.client.nodes() if item.labels]
        address = self._cluster.address_of
        return pb.NodesWithLabels(
            nodes=[pb.NodeWithLabels(node=address(i.node_id), labels=i.labels) for i in items]
        )

    async def _types(self, caller: Caller, request: Any) -> Any:
        types = [
            pb.ResourceType(name="memory-mb", units="Mi", type=0),
            pb.ResourceType(name="vcores", units="", type=0),
        ]
        return pb.ResourceTypes(types=types)


async def in_turns(make: Callable[[Item], Made], items: Sequence[Item]) -> list[Made]:
    """Return what is made of each item; others are served between some of them."""
    made: list[Made] = []
    for at in range(0, len(items), MADE_AT_ONCE):
        made.extend(map(make, items[at : at + MADE_AT_ONCE]))
        await asyncio.sleep(0)
    return made


def told(call: Callable[[Caller, Any], Awaitable[Any]]) -> Handler:
    """Turn Weft's refusals into YARN's errors."""

    async def handler(caller: Caller, request: Any) -> Any:
        try:
            return await call(caller, request)
        except RefusedError as error:
            if error.code == "not_found":
                raise no_application(error.problem) from None
            raise yarn(str(error)) from None
        except InputError as error:
            raise yarn(str(error)) from None
        except WeftError as error:
            raise server_error(str(error)) from None

    return handler


def refuse(name: str) -> Handler:
    """Return what refuses a method by its name."""

    async def handler(caller: Caller, request: Any) -> Any:
        raise unsupported(name)

    return handler


async def _empty(caller: Caller, request: Any) -> Any:
    return pb.Empty()


def _unknown_application(message: Any) -> HadoopError:
    name = f"application_{message.cluster_timestamp}_{message.id:04d}"
    return no_application(
        f"Application with id '{name}' doesn't exist in RM. "
        "Please check that the job submission was successful."
    )


def _state(number: int, names: tuple[str, ...]) -> str:
    if not 0 < number < len(names):
        raise yarn(f"unknown state {number}")
    return names[number]


def _in_queue(path: str, wanted: Any) -> bool:
    return any(path == name or path.rpartition(".")[2] == name for name in wanted)


def _walk(queue: QueueReport) -> list[QueueReport]:
    return [queue, *(one for child in queue.children for one in _walk(child))]


def _find_queue(queue: QueueReport, name: str, parent: float) -> tuple[QueueReport, float] | None:
    if name in (queue.name, queue.name.rpartition(".")[2]):
        return queue, parent
    for child in queue.children:
        found = _find_queue(child, name, queue.capacity)
        if found is not None:
            return found
    return None
