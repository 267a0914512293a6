"""The Python client: typed calls to a Resource Manager, sync (`Client`) and async (`AsyncClient`).

```python
with Client("127.0.0.1:8030") as client:
    app = client.submit(job)
    report = client.wait([app])[app]
```

Every call raises `RefusedError` when the Resource Manager says no (nothing changed), and
`weft.model.errors.WeftError` when it cannot be reached in time. Repeating a call is safe.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from weft.client.calls import DEFAULT_ADDRESS, DRAIN_S, ENDED, AsyncClient, RefusedError
from weft.model.ids import AppId, NodeId
from weft.model.job import Job
from weft.model.queues import QueueSpec
from weft.protocol.requests import (
    ApplicationReport,
    ClusterMetrics,
    ContainerReport,
    Explanation,
    ManagerReport,
    NodeReport,
    QueueReport,
    QueuesSet,
    Setting,
)

__all__ = ["DEFAULT_ADDRESS", "DRAIN_S", "ENDED", "AsyncClient", "Client", "RefusedError"]

T = TypeVar("T")


class Client:
    """The same calls, blocking; use it as a context manager. Safe to use from several threads."""

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS,
        deadline_s: float = 30.0,
        connect_timeout_s: float = 2.0,
    ) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="weft-client", daemon=True
        )
        self._thread.start()
        self._client = self._run(_make(address, deadline_s, connect_timeout_s))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection and end the client's thread."""
        if self._loop.is_closed():
            return
        self._run(self._client.close())
        self._run(_settle())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, call: Coroutine[Any, Any, T] | Awaitable[T]) -> T:
        async def awaited() -> T:
            return await call

        future = asyncio.run_coroutine_threadsafe(awaited(), self._loop)
        try:
            return future.result()
        except BaseException:
            # A call must not continue after a Ctrl-C.
            future.cancel()
            raise

    @property
    def address(self) -> str:
        """host:port of the Resource Manager."""
        return self._client.address

    @property
    def cluster_ts(self) -> int:
        """The cluster's timestamp in application ids; 0 before the first submission."""
        return self._client.cluster_ts

    @property
    def missing(self) -> tuple[int, ...]:
        """The numbers of members whose part listings lack; see `AsyncClient.missing`."""
        return self._client.missing

    def when_missing(self, tell: Callable[[tuple[int, ...]], None]) -> None:
        """Have `tell` called, on the client's thread, with the members that a listing lacks."""
        self._client.on_missing = tell

    def new_application(self) -> AppId:
        """Reserve an id that a later `submit` may name."""
        return self._run(self._client.new_application())

    def submit(self, job: Job, submission_id: str = "", app: AppId = 0) -> AppId:
        """Submit a job; see `AsyncClient.submit`."""
        return self._run(self._client.submit(job, submission_id, app))

    def job(self, app: AppId) -> Job:
        """Return the job of an application, as it was submitted."""
        return self._run(self._client.job(app))

    def kill(self, app: AppId, diagnostics: str = "") -> str:
        """Kill an application; returns its state."""
        return self._run(self._client.kill(app, diagnostics))

    def move(self, app: AppId, queue: str) -> str:
        """Move an application to another leaf queue; returns its state."""
        return self._run(self._client.move(app, queue))

    def set_expiry(self, app: AppId, expires_s: float) -> str:
        """Change when an application is killed, s on the cluster's clock; returns its state."""
        return self._run(self._client.set_expiry(app, expires_s))

    def set_priority(self, app: AppId, priority: int) -> str:
        """Change an application's priority, larger first; returns its state."""
        return self._run(self._client.set_priority(app, priority))

    def application(self, app: AppId) -> ApplicationReport:
        """Return one application with its stages."""
        return self._run(self._client.application(app))

    def applications(
        self, states: Iterable[str] = (), queue: str = "", user: str = "", limit: int = 0
    ) -> tuple[ApplicationReport, ...]:
        """Return all applications that match, oldest first."""
        return self._run(self._client.applications(states, queue, user, limit))

    def nodes(self, states: Iterable[str] = (), node: NodeId = "") -> tuple[NodeReport, ...]:
        """Return all nodes in the given states (none: all), or the one of a name alone."""
        return self._run(self._client.nodes(states, node))

    def decommission(self, node: NodeId, timeout_s: float = DRAIN_S) -> str:
        """Take a node out of service gracefully; see `AsyncClient.decommission`."""
        return self._run(self._client.decommission(node, timeout_s))

    def recommission(self, node: NodeId) -> str:
        """Put a node back into service; returns its state."""
        return self._run(self._client.recommission(node))

    def update_node(
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
        return self._run(self._client.update_node(node, capacity, labels, own=own))

    def queues(self) -> QueueReport:
        """Return the tree of queues."""
        return self._run(self._client.queues())

    def set_queues(self, queues: QueueSpec, *, dry_run: bool = False) -> QueuesSet:
        """Take another tree of queues while the cluster runs; return what changes.

        Raises RefusedError where a queue that goes is in use. `dry_run`: nothing changes.
        """
        return self._run(self._client.set_queues(queues, dry_run=dry_run))

    def metrics(self) -> ClusterMetrics:
        """Return counts over the whole cluster."""
        return self._run(self._client.metrics())

    def manager(self) -> ManagerReport:
        """Return the answering manager's standing beside the others; see `AsyncClient.manager`."""
        return self._run(self._client.manager())

    def settings(self) -> tuple[Setting, ...]:
        """Return what the manager that answers runs with."""
        return self._run(self._client.settings())

    def queue_tree(self) -> QueueSpec:
        """Return the tree of queues as `set_queues` takes it."""
        return self._run(self._client.queue_tree())

    def explain(self, app: AppId) -> Explanation:
        """Return why each pending stage of an application is pending."""
        return self._run(self._client.explain(app))

    def containers(self, app: AppId) -> tuple[ContainerReport, ...]:
        """Return containers of an application, running and ended."""
        return self._run(self._client.containers(app))

    def tasks(self, app: AppId) -> tuple[ContainerReport, ...]:
        """Return an application's tasks: its containers but the masters', those that run first."""
        return self._run(self._client.tasks(app))

    def read_log(self, container: ContainerReport, stream: str = "stdout", skip: int = 0) -> bytes:
        """Return what a container's command wrote so far; see `AsyncClient.read_log`."""
        return self._run(self._client.read_log(container, stream, skip))

    def read_on(
        self, container: ContainerReport, stream: str = "stdout", skip: int = 0
    ) -> tuple[bytes, int]:
        """Return as `read_log` does, and what to skip next time."""
        return self._run(self._client.read_on(container, stream, skip))

    def progress(self, app: AppId, poll_s: float = 0.2) -> Iterator[ApplicationReport]:
        """Yield the application's report whenever it changed, the last one that of its end."""
        reports = self._client.progress(app, poll_s)
        while True:
            try:
                yield self._run(anext(reports))
            except StopAsyncIteration:
                return

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield the cluster's facts as they happen."""
        stream = self._client.events()
        while True:
            try:
                yield self._run(anext(stream))
            except StopAsyncIteration:
                return

    def wait(
        self,
        apps: Iterable[AppId],
        progress: Callable[[ApplicationReport], None] | None = None,
        poll_s: float = 0.2,
    ) -> dict[AppId, ApplicationReport]:
        """Wait until every application ended; `progress` is called on the client's thread."""
        return self._run(self._client.wait(apps, progress, poll_s))


async def _settle() -> None:
    """Let calls that were cancelled end, so that nothing is left when the loop closes."""
    own = asyncio.current_task()
    others = [task for task in asyncio.all_tasks() if task is not own]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def _make(address: str, deadline_s: float, connect_timeout_s: float) -> AsyncClient:
    return AsyncClient(address, deadline_s, connect_timeout_s=connect_timeout_s)
