"""Calls to a Resource Manager on an event loop, as `weft.client.api` tells."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, TypeVar

from weft.model.errors import InputError, WeftError
from weft.model.ids import AppId, NodeId
from weft.model.job import Job
from weft.model.queues import QueueSpec
from weft.protocol.requests import (
    ApplicationAccepted,
    ApplicationJob,
    ApplicationReport,
    ApplicationReserved,
    ClientRequest,
    ClusterMetrics,
    ContainerReport,
    DecommissionNode,
    Done,
    Explain,
    Explanation,
    GetApplication,
    GetJob,
    GetManager,
    GetMetrics,
    GetQueues,
    GetSettings,
    KillApplication,
    ListApplications,
    ListContainers,
    ListNodes,
    ListQueues,
    ManagerReport,
    ManagerSettings,
    MoveApplication,
    NewApplication,
    NodeReport,
    Page,
    QueueReport,
    Queues,
    QueuesSet,
    RecommissionNode,
    Refused,
    SetExpiry,
    SetPriority,
    SetQueues,
    Setting,
    SubmitApplication,
    UpdateNode,
)

DEFAULT_ADDRESS = "127.0.0.1:8030"
ENDED = frozenset({"FINISHED", "FAILED", "KILLED"})
# This is YARN's default for a graceful decommission.
DRAIN_S = 3600.0
# A manager that went while it had jobs of ours is waited for so long, on the wall clock.
WAIT_PATIENCE_S = 60.0

T = TypeVar("T")


class RefusedError(InputError):
    """The Resource Manager refused a request; `code` is a gRPC status name in lower case."""

    def __init__(self, refused: Refused) -> None:
        self.code = refused.code
        super().__init__(refused.place, refused.problem)

    def after(self, killed: str) -> "RefusedError":
        """Return the same refusal, naming the applications that were killed for it."""
        return RefusedError(Refused(self.code, self.place, f"{self.problem}; {killed}"))

    def in_file(self, file: str, job: str) -> "RefusedError":
        """Return the same refusal, naming the file and the job as well."""
        place = ": ".join(part for part in (file, f"job {job!r}", self.place) if part)
        return RefusedError(Refused(self.code, place, self.problem))


def _unknown_caller() -> str:
    """Return the name of who runs this, where no certificate says it; empty: it does.

    Nobody is asked who calls, so the caller says it, as Hadoop's clients do.
    """
    import getpass

    from weft.wire import tls

    if tls.current() is not None:
        return ""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # The user has no name on this host.
        return ""


class AsyncClient:
    """Calls to the Resource Manager at `address` (host:port), as an async context manager."""

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS,
        deadline_s: float = 30.0,
        user: str = "",
        token: str = "",
        connect_timeout_s: float = 2.0,
        *,
        for_others: bool = False,
    ) -> None:
        """`user`, or the user whose `token` it is, is whom a gateway calls for.

        A manager that is not there is tried again for `connect_timeout_s`. Jobs without a user are
        given the name of who runs this process, but for those that come from others (`for_others`).
        """
        from weft.wire.client import ManagerConnection

        self.address = address
        # It is known after the first accepted submission.
        self.cluster_ts = 0
        # It is told the numbers of members that did not answer, of each listing that lacks some.
        self.on_missing: Callable[[tuple[int, ...]], None] = lambda members: None
        self._missing: frozenset[int] = frozenset()
        # Under a certificate the connection that is made here says who calls.
        self._caller = "" if for_others or user or token else _unknown_caller()
        self._connection = ManagerConnection(address, deadline_s, connect_timeout_s, user, token)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.close()

    async def _ask(
        self, request: ClientRequest, answer: type[T] | None = None, patience_s: float = 0.0
    ) -> T:
        got: Any = await self._connection.ask(request, patience_s)
        if isinstance(got, Refused):
            raise RefusedError(got)
        if answer is not None and not isinstance(got, answer):
            raise WeftError(f"{self.address} answered {type(got).__name__}: another version?")
        if hasattr(got, "missing"):
            # Pages after the first one add to what the first one lacked.
            before = self._missing if getattr(request, "page", "") else frozenset()
            self._missing = before.union(got.missing)
            if got.missing:
                self.on_missing(got.missing)
        return got  # type: ignore[no-any-return]

    @property
    def missing(self) -> tuple[int, ...]:
        """The numbers of members whose part the newest listing lacks, as they are gone.

        It is empty where one manager holds all.
        """
        return tuple(sorted(self._missing))

    async def _all(self, request: ListNodes | ListContainers) -> tuple[Any, ...]:
        """Follow the pages of a listing."""
        found: list[Any] = []
        while True:
            page: Page[Any] = await self._ask(request, Page)
            found.extend(page.items)
            if not page.next:
                return tuple(found)
            request = replace(request, page=page.next)

    async def new_application(self) -> AppId:
        """Reserve an id that a later `submit` may name."""
        reserved = await self._ask(NewApplication(), ApplicationReserved)
        self.cluster_ts = reserved.cluster_ts
        return reserved.app_id

    async def submit(self, job: Job, submission_id: str = "", app: AppId = 0) -> AppId:
        """Submit a job; once this returns, the job survives the loss of any process.

        Give your own `submission_id` to make a repeated submission safe over restarts of yours;
        `app` is an id from `new_application`, 0 for the next. A Resource Manager that took a job of
        this client before, and is started again meanwhile, is waited for.
        """
        fresh = not submission_id
        if self._caller and not job.user:
            job = replace(job, user=self._caller)
        request = SubmitApplication(job, submission_id or uuid.uuid4().hex, app, fresh)
        patience_s = WAIT_PATIENCE_S if self.cluster_ts else 0.0
        accepted = await self._ask(request, ApplicationAccepted, patience_s)
        self.cluster_ts = accepted.cluster_ts
        return accepted.app_id

    async def kill(self, app: AppId, diagnostics: str = "") -> str:
        """Kill an application; returns its state."""
        return (await self._ask(KillApplication(app, diagnostics), Done)).state

    async def move(self, app: AppId, queue: str) -> str:
        """Move an application to another leaf queue; returns its state."""
        return (await self._ask(MoveApplication(app, queue), Done)).state

    async def set_expiry(self, app: AppId, expires_s: float) -> str:
        """Change when an application is killed, done or not; return its state.

        `expires_s` is in s on the cluster's clock (0: as its job and queue say).
        """
        return (await self._ask(SetExpiry(app, expires_s), Done)).state

    async def set_priority(self, app: AppId, priority: int) -> str:
        """Change an application's priority, larger first; returns its state."""
        return (await self._ask(SetPriority(app, priority), Done)).state

    async def application(self, app: AppId) -> ApplicationReport:
        """Return one application with its stages."""
        return await self._ask(GetApplication(app), ApplicationReport)

    async def job(self, app: AppId) -> Job:
        """Return the job of an application, as it was submitted."""
        return (await self._ask(GetJob(app), ApplicationJob)).job

    async def applications(
        self, states: Iterable[str] = (), queue: str = "", user: str = "", limit: int = 0
    ) -> tuple[ApplicationReport, ...]:
        """Return all applications that match, oldest first."""
        found: tuple[ApplicationReport, ...] = ()
        request = ListApplications(tuple(states), queue, user, limit)
        while True:
            page: Page[ApplicationReport] = await self._ask(request, Page)
            # Pages come the newest first.
            found = page.items + found
            left = limit - len(found)
            if not page.next or (limit and left <= 0):
                return found
            request = replace(request, page=page.next, limit=left if limit else 0)

    async def nodes(self, states: Iterable[str] = (), node: NodeId = "") -> tuple[NodeReport, ...]:
        """Return all nodes in the given states (none: all), or the one of a name alone."""
        return await self._all(ListNodes(tuple(states), node=node))

    async def decommission(self, node: NodeId, timeout_s: float = DRAIN_S) -> str:
        """Take a node out of service gracefully; returns its state.

        It is DECOMMISSIONED when nothing runs there any more; what still runs after `timeout_s` on
        the cluster's clock is stopped, and runs elsewhere (below 0: no deadline).
        """
        return (await self._ask(DecommissionNode(node, timeout_s), Done)).state

    async def recommission(self, node: NodeId) -> str:
        """Put a node back into service; returns its state."""
        return (await self._ask(RecommissionNode(node), Done)).state

    async def update_node(
        self,
        node: NodeId,
        capacity: Mapping[str, float] | None = None,
        labels: Iterable[str] | None = None,
        *,
        own: bool = False,
    ) -> str:
        """Say what a node has instead of what itself says; return its state.

        What is None, or not named in `capacity`, stays; `own`: as the node itself says.
        """
        wanted = UpdateNode(
            node, dict(capacity or {}), tuple(labels or ()), labels is not None, own
        )
        return (await self._ask(wanted, Done)).state

    async def queues(self) -> QueueReport:
        """Return the tree of queues."""
        return await self._ask(ListQueues(), QueueReport)

    async def set_queues(self, queues: QueueSpec, *, dry_run: bool = False) -> QueuesSet:
        """Take another tree of queues while the cluster runs; return what changes.

        Raises RefusedError where a queue that goes is in use. `dry_run`: nothing changes.
        """
        return await self._ask(SetQueues(queues, dry_run), QueuesSet)

    async def metrics(self) -> ClusterMetrics:
        """Return counts over the whole cluster."""
        return await self._ask(GetMetrics(), ClusterMetrics)

    async def manager(self) -> ManagerReport:
        """Return the answering manager's standing beside the others: the leader, or a standby."""
        return await self._ask(GetManager(), ManagerReport)

    async def settings(self) -> tuple[Setting, ...]:
        """Return what the manager that answers runs with."""
        return (await self._ask(GetSettings(), ManagerSettings)).items

    async def queue_tree(self) -> QueueSpec:
        """Return the tree of queues as `set_queues` takes it."""
        return (await self._ask(GetQueues(), Queues)).queues

    async def explain(self, app: AppId) -> Explanation:
        """Return why each pending stage of an application is pending."""
        return await self._ask(Explain(app), Explanation)

    async def containers(self, app: AppId) -> tuple[ContainerReport, ...]:
        """Return containers of an application, running and ended."""
        return await self._all(ListContainers(app))

    async def tasks(self, app: AppId) -> tuple[ContainerReport, ...]:
        """Return an application's tasks: its containers but the masters', those that run first."""
        return tuple(report for report in await self.containers(app) if report.stage)

    async def read_log(
        self, container: ContainerReport, stream: str = "stdout", skip: int = 0
    ) -> bytes:
        """Return what a container's command wrote after `skip` bytes; from its node manager.

        Raises InputError where nothing is there, as on emulated nodes.
        """
        data, _ = await self.read_on(container, stream, skip)
        return data

    async def read_on(
        self, container: ContainerReport, stream: str = "stdout", skip: int = 0
    ) -> tuple[bytes, int]:
        """Return as `read_log` does, and what to skip next time."""
        from weft.wire.client import read_log

        chunks = read_log(
            container.node_address,
            container.node_id,
            container.container_id,
            stream,
            skip=skip,
            token=self._connection.log_token(container.container_id),
        )
        read = [chunk async for chunk in chunks]
        return b"".join([data for data, _ in read]), read[-1][1] if read else skip

    async def progress(self, app: AppId, poll_s: float = 0.2) -> AsyncIterator[ApplicationReport]:
        """Yield the application's report whenever it changed, the last one that of its end.

        That it holds what it held for longer (`held_s`) is no change.
        """
        before: ApplicationReport | None = None
        while True:
            report = await self.application(app)
            if (after := replace(report, held_s={})) != before:
                before = after
                yield report
            if report.state in ENDED:
                return
            await asyncio.sleep(poll_s)

    async def events(self, after: int = 0) -> AsyncIterator[dict[str, Any]]:
        """Yield the cluster's facts as they happen, as plain data with `fact` and `now_s`.

        `after`: as in `event_batches`.
        """
        async for _, batch in self._connection.watch(after):
            for fact in batch:
                yield fact

    def event_batches(self, after: int = 0) -> AsyncIterator[tuple[int, list[dict[str, Any]]]]:
        """Return facts in batches, each with the number of its first; numbers count on by one.

        `after` is the last number that was read: the facts since come first, as far as the manager
        still keeps them (0: from now on; 1: all that it keeps). A jump between two batches is a
        loss.
        """
        return self._connection.watch(after)

    async def wait(
        self,
        apps: Iterable[AppId],
        progress: Callable[[ApplicationReport], None] | None = None,
        poll_s: float = 0.2,
    ) -> dict[AppId, ApplicationReport]:
        """Wait until every application ended; `progress` receives each report on the way.

        A Resource Manager that is started again meanwhile is waited for: the jobs go on, too.
        """
        connection = self._connection
        usual_s, connection.patience_s = connection.patience_s, WAIT_PATIENCE_S
        waiting = dict.fromkeys(apps)
        ended: dict[AppId, ApplicationReport] = {}
        try:
            while waiting:
                for app in list(waiting):
                    report = await self.application(app)
                    if progress is not None:
                        progress(report)
                    if report.state in ENDED:
                        ended[app] = report
                        del waiting[app]
                if waiting:
                    await asyncio.sleep(poll_s)
        finally:
            connection.patience_s = usual_s
        return ended
