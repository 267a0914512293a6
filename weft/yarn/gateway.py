"""The gateway: YARN's ports on one side, Weft's services on the other."""

import asyncio
import time
import uuid
from base64 import b64decode, b64encode
from typing import Any

from weft.client.api import AsyncClient, RefusedError
from weft.model.errors import WeftError
from weft.model.ids import (
    AttemptId,
    ContainerId,
    NodeId,
    app_of_attempt,
    app_of_container,
    attempt_of_container,
)
from weft.protocol.messages import (
    ContainersGranted,
    StartAnswered,
    StartContainers,
    StopContainers,
    TaskLaunch,
)
from weft.protocol.requests import NodeReport
from weft.runtime.process import Process
from weft.runtime.role_settings import HadoopSettings
from weft.wire.connections import NodeLink, master_stream
from weft.wire.token_store import Wallet
from weft.wire.tokens import Shown
from weft.yarn import hadoop_pb2 as pb
from weft.yarn import launches, rpc, translate
from weft.yarn.admin import ADMIN, AdminFace
from weft.yarn.attempts import Masters, attempt_of
from weft.yarn.clients import ClientFace
from weft.yarn.errors import no_attempt, server_error
from weft.yarn.graphs import Graphs, History
from weft.yarn.masters import ForeignMaster, Site
from weft.yarn.nodes import NodeFace, error_of
from weft.yarn.store import Store
from weft.yarn.tokens import MASTER, NODE, TokenKeeper

CLIENTS = "org.apache.hadoop.yarn.api.ApplicationClientProtocolPB"
MASTERS = "org.apache.hadoop.yarn.api.ApplicationMasterProtocolPB"
CONTAINERS = "org.apache.hadoop.yarn.api.ContainerManagementProtocolPB"
NODES_INTERVAL_S = 1.0
FINISHED_APPS_INTERVAL_S = 5.0
START_TIMEOUT_S = 30.0
REPEAT_S = 2.0


class Gateway:
    """Everything that one process of YARN's wire holds."""

    def __init__(self, process: Process, settings: HadoopSettings) -> None:
        self._process = process
        self._settings = settings
        self.client = AsyncClient(settings.manager, for_others=True)
        self.store = Store(settings.dir)
        self.keeper = TokenKeeper(settings.dir / "keys.json")
        self.cluster_ts = 0
        self.web = settings.web
        # Launchers ask here, http://host:port.
        self.address = ""
        self._node_reports: dict[NodeId, NodeReport] = {}
        # The addresses, host:port, outlast the reports, as a manager that restarts forgets nodes.
        self._node_addresses: dict[NodeId, str] = {}
        self._ports: dict[NodeId, int] = {}
        self._faces: dict[NodeId, rpc.Server] = {}
        self._links: dict[str, NodeLink] = {}
        self._starts: dict[ContainerId, asyncio.Future[str]] = {}
        self._follower = uuid.uuid4().hex
        self.masters = Masters(self._make_master)
        self._wallet = Wallet()
        self._stream = master_stream(
            settings.manager,
            self._from_manager,
            process.link_log("Resource Manager", settings.manager),
        )
        self._face = ClientFace(self)
        admin = AdminFace(
            self.client,
            settings.queues,
            settings.administrators,
            self.address_of,
            lambda: self.names,
        )
        self._clients = rpc.Server(
            {CLIENTS: self._face.protocol(), ADMIN: admin.protocol()}, observe=self._observe
        )
        self._schedulers = rpc.Server(
            {MASTERS: self._master_protocol()},
            self._authenticate(MASTER),
            tokens_only=True,
            observe=self._observe,
        )

    # -- life --------------------------------------------------------------------------------------

    async def start(self) -> dict[str, str]:
        """Open every port; returns the addresses."""
        settings = self._settings
        self._process.spawn(self._stream.run())
        while True:
            try:
                await self._refresh()
                break
            except WeftError:
                await asyncio.sleep(0.2)
        clients = await self._clients.start(settings.host, settings.client_port)
        schedulers = await self._schedulers.start(settings.host, settings.scheduler_port)
        self._process.spawn(self._follow_nodes())
        self._process.spawn(self.masters.repeat())
        self._process.spawn(self._sweep())
        if settings.graphs:
            graphs = Graphs(
                History(settings.dir / "history"),
                self._process.log,
                self.web.partition("://")[2].rpartition(":")[0],
                settings.event_logs,
            )
            self._process.spawn(graphs.run(self.masters))
        return {
            "clients": f"{settings.host}:{clients}",
            "schedulers": f"{settings.host}:{schedulers}",
        }

    async def close(self) -> None:
        """Close every port and connection."""
        for server in (self._clients, self._schedulers, *self._faces.values()):
            await server.stop()
        for link in self._links.values():
            await link.close()
        await self._stream.drain(0.5)
        await self.client.close()

    def _observe(self, method: str, outcome: str, seconds: float) -> None:
        self._process.exposition.called(f"/hadoop/{method}", outcome, seconds)

    def _authenticate(self, kind: str) -> rpc.Authenticate:
        def authenticate(identifier: bytes) -> tuple[str, bytes]:
            return kind, self.keeper.password(kind, identifier)

        return authenticate

    # -- what the faces ask ------------------------------------------------------------------------

    @property
    def names(self) -> tuple[str, ...]:
        """The cluster's resource types."""
        found = next(iter(self._node_reports.values()), None)
        return tuple(found.capacity) if found is not None else ("vcores", "memory_mb")

    def largest(self) -> dict[str, float]:
        """Return the most of each resource that a node has."""
        up = [one.capacity for one in self._node_reports.values() if one.state == "RUNNING"]
        return {name: max((one.get(name, 0.0) for one in up), default=0.0) for name in self.names}

    def total(self) -> tuple[float, ...]:
        """Return the capacity of all nodes that are up, in the types' order."""
        up = [one.capacity for one in self._node_reports.values() if one.state == "RUNNING"]
        return tuple(sum(one.get(name, 0.0) for one in up) for name in self.names)

    def unix_ms(self, cluster_s: float) -> int:
        """Return Unix time of the cluster's clock, ms."""
        return int((self._settings.epoch_s + cluster_s / self._settings.time_scale) * 1000)

    def at_s(self, unix_ms: float) -> float:
        """Return the cluster's clock at a Unix time, s."""
        return (unix_ms / 1000 - self._settings.epoch_s) * self._settings.time_scale

    def address_of(self, node: NodeId) -> Any:
        """Return the address that YARN's clients know a node by: its host, and its face's port."""
        return pb.NodeId(host=self._host_of(node), port=self._ports.get(node, 0))

    def http_address(self, node: NodeId) -> str:
        """Return host:port where containers' logs are shown."""
        port = self._settings.shuffle_port
        # MapReduce takes the host of a map's output from here.
        return f"{self._host_of(node)}:{port}" if port else self.web.partition("://")[2]

    def ticket_environment(self, container: str) -> tuple[tuple[str, str], ...]:
        """Return what a container's launcher must know."""
        return launches.environment(self.address, self.keeper.ticket(container), {})

    def master_environment(self, app: int) -> tuple[tuple[str, str], ...]:
        """Return what a master's launcher must know, whichever attempt it becomes."""
        return launches.environment(self.address, self.keeper.ticket(f"master {app}"), {})

    def _host_of(self, node: NodeId) -> str:
        host = self._node_addresses.get(node, "").rpartition(":")[0]
        return "localhost" if host in ("", "127.0.0.1", "[::1]", "::1") else host

    def _weft_node(self, host: str) -> tuple[NodeId, ...]:
        return tuple(n for n in self._node_addresses if host in (n, self._host_of(n)))

    def _site(self) -> Site:
        return Site(
            names=lambda: self.names,
            largest=self.largest,
            node=self.address_of,
            weft_node=self._weft_node,
            nodes_up=lambda: sum(n.state == "RUNNING" for n in self._node_reports.values()),
            total=self.total,
            http_address=self.http_address,
            node_states=lambda: {n: one.state for n, one in self._node_reports.items()},
            node_report=self._report_of,
        )

    def _report_of(self, node: NodeId) -> Any:
        return translate.node_report(
            self._node_reports[node],
            self.address_of(node),
            self.unix_ms,
            self.http_address(node),
        )

    # -- nodes -------------------------------------------------------------------------------------

    async def _follow_nodes(self) -> None:
        while True:
            await asyncio.sleep(NODES_INTERVAL_S)
            try:
                await self._refresh()
            except WeftError as error:
                self._process.log.debug("the nodes are not known", reason=str(error))

    async def _refresh(self) -> None:
        if not self.cluster_ts:
            self.cluster_ts = (await self.client.metrics()).cluster_ts
            self.client.cluster_ts = self.cluster_ts
        # one that knows none has just started: what it had is the best that is known
        known = {node.node_id: node for node in await self.client.nodes()}
        self._node_reports = known or self._node_reports
        self._node_addresses.update(
            (n, one.address) for n, one in self._node_reports.items() if one.address
        )
        for node in self._node_reports:
            if node not in self._faces:
                await self._open_face(node)

    async def _open_face(self, node: NodeId) -> None:
        face = NodeFace(
            node,
            self.keeper,
            self.store,
            self._start,
            self._stop,
            self._status,
            lambda: self.names,
            self.ticket_environment,
            lambda: self.cluster_ts,
            self._services(),
        )
        server = rpc.Server(
            {CONTAINERS: face.protocol()},
            self._authenticate(NODE),
            tokens_only=True,
            observe=self._observe,
        )
        self._faces[node] = server
        base = self._settings.node_port
        port = self.store.port(node) or (base + len(self._faces) - 1 if base else 0)
        try:
            self._ports[node] = await server.start(self._settings.host, port)
        except OSError:
            self._ports[node] = await server.start(self._settings.host, 0)
        # masters go on calling a node where they were told that it is
        self.store.keep_port(node, self._ports[node])

    def _services(self) -> dict[str, bytes]:
        """Return the auxiliary services of a node, with what masters are told of each."""
        port = self._settings.shuffle_port
        return {launches.SHUFFLE: port.to_bytes(4, "big")} if port else {}

    def faces(self) -> dict[str, dict[str, Any]]:
        """Return where each node's face is: the host that the node goes by, and its port."""
        return {n: {"host": self._host_of(n), "port": port} for n, port in self._ports.items()}

    def _link(self, node: NodeId) -> NodeLink:
        address = self._node_addresses.get(node)
        if address is None:
            raise server_error(f"node {node} is not known")
        link = self._links.get(address)
        if link is None:
            link = NodeLink(
                address, self._follower, self._from_nodes, lambda lost: None, self._wallet.of
            )
            self._links[address] = link
        return link

    async def _start(self, node: NodeId, attempt: AttemptId, launch: TaskLaunch) -> str:
        """Have a node start a container; returns what it said against it."""
        number = launch.container_id
        done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._starts[number] = done
        give_up = time.monotonic() + START_TIMEOUT_S
        try:
            while not done.done():
                self._link(node).send([StartContainers(attempt, node, (launch,))])
                await asyncio.wait((done,), timeout=REPEAT_S)
                if time.monotonic() > give_up and not done.done():
                    return f"node {node} does not answer"
            return done.result()
        finally:
            self._starts.pop(number, None)

    def _stop(self, order: StopContainers) -> None:
        master = self.masters.known(order.attempt_id)
        if master is not None:
            master.stopped.update(order.containers)
        self._link(order.node_id).send([order])

    def _from_manager(self, batch: list[Any]) -> None:
        for message in batch:
            if isinstance(message, Shown):
                self._wallet.take(message)
            elif isinstance(message, ContainersGranted):
                # A session lasts for days, so tokens of ended containers are dropped.
                for end in message.ended:
                    self._wallet.ended(end.container_id, len(end.tasks) or 1)
        self.masters.hear([message for message in batch if not isinstance(message, Shown)])

    def _from_nodes(self, batch: list[Any]) -> None:
        for message in batch:
            if isinstance(message, StartAnswered):
                for item in message.items:
                    waiting = self._starts.get(item.container_id)
                    if waiting is not None and not waiting.done():
                        waiting.set_result(error_of(message.items, item.container_id))

    async def _status(self, number: ContainerId) -> Any:
        try:
            found = await self.client.containers(app_of_container(number))
        except WeftError:
            return None
        for one in found:
            if one.container_id == number:
                # Hadoop has this exit status for a container that runs.
                status, words = -1000, ""
                if one.finished_s:
                    status, words = translate.told_status(one.state, one.exit_code, one.message)
                return pb.ContainerStatus(
                    container=translate.container(self.cluster_ts, number),
                    state=translate.CONTAINER_COMPLETE
                    if one.finished_s
                    else translate.CONTAINER_RUNNING,
                    diagnostics=words,
                    exit_status=status,
                )
        return None

    # -- masters -----------------------------------------------------------------------------------

    def _master_protocol(self) -> dict[str, rpc.Method]:
        def method(name: str, kind: Any) -> rpc.Method:
            async def call(caller: rpc.Caller, request: Any) -> Any:
                master = await self.masters.of(attempt_of(caller))
                answer = await getattr(master, name)(request)
                if name != "allocate":
                    self._face.changed(app_of_attempt(master.attempt))
                return answer

            return rpc.Method(kind, call)

        return {
            "registerApplicationMaster": method("register", pb.Register),
            "allocate": method("allocate", pb.Allocate),
            "finishApplicationMaster": method("finish", pb.Finish),
        }

    async def _make_master(self, attempt: AttemptId) -> ForeignMaster:
        try:
            report = await self.client.application(app_of_attempt(attempt))
        except RefusedError as error:
            raise no_attempt(error.problem) from None
        except WeftError as error:
            raise server_error(str(error)) from None
        if report.attempt_id != attempt or report.state in ("FINISHED", "FAILED", "KILLED"):
            raise no_attempt(f"attempt {attempt & 255} of application {report.app_id} is over")

        def send(message: Any) -> None:
            self._stream.send([message])

        return ForeignMaster(
            attempt,
            self.cluster_ts,
            report.user,
            self.keeper,
            self._site(),
            send,
            report.name,
            report.kind,
        )

    # -- launches ----------------------------------------------------------------------------------

    async def launch(self, container: str, number: ContainerId, node: NodeId, ticket: str) -> Any:
        """Return what a container is to run as plain data, None where the ticket does not fit.

        Whose the ticket is tells a master: its container has number 1 in the first life of the
        Resource Manager only. Raises WeftError while the manager does not answer.
        """
        app = app_of_container(number)
        data, is_master = self.store.launch(app, container), False
        if data is None and self.keeper.admits(f"master {app}", ticket):
            data, is_master = self.store.application(app), True
        if data is None or not (is_master or self.keeper.admits(container, ticket)):
            why = "unknown container" if data is None else "wrong ticket"
            self._process.log.warning("a launcher was refused", container=container, reason=why)
            return None
        if is_master:
            # A manager that does not know the application refuses the request.
            try:
                data = await self._with_master(data, attempt_of_container(number))
            except RefusedError:
                return None
        data["cache_mb"] = self._settings.cache_mb
        place = self.address_of(node)
        data["host"], data["port"] = place.host, place.port
        services = self._services().items()
        data["node_services"] = {name: b64encode(told).decode() for name, told in services}
        data["http_port"] = int(self.http_address(node).rpartition(":")[2] or 0)
        return data

    async def _with_master(self, data: dict[str, Any], attempt: AttemptId) -> dict[str, Any]:
        report = await self.client.application(app_of_attempt(attempt))
        credential = self.keeper.master(translate.attempt(self.cluster_ts, attempt))
        tokens = launches.with_master_token(b64decode(data["tokens"]), credential)
        variables = {
            "APPLICATION_WEB_PROXY_BASE": f"/proxy/application_{self.cluster_ts}_"
            f"{app_of_attempt(attempt):04d}",
            "MAX_APP_ATTEMPTS": str(report.max_attempts),
            "APP_SUBMIT_TIME_ENV": str(self.unix_ms(report.submitted_s)),
        }
        return data | {"tokens": b64encode(tokens).decode(), "variables": variables}

    async def _sweep(self) -> None:
        """Forget applications that are over."""
        while True:
            await asyncio.sleep(FINISHED_APPS_INTERVAL_S)
            try:
                for app in list(self.store.applications()):
                    await self._sweep_one(app)
            except (WeftError, OSError) as error:
                self._process.log.debug("not swept", reason=str(error))

    async def _sweep_one(self, app: int) -> None:
        try:
            report = await self.client.application(app)
        except RefusedError as error:
            if error.code == "not_found":
                self.store.forget(app)
            return
        if report.state in ("FINISHED", "FAILED", "KILLED"):
            self.store.forget(app)
            self.masters.forget(report.attempt_id)
            self._wallet.gone(report.attempt_id)
