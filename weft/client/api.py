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
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from weft.client.calls import DEFAULT_ADDRESS, DRAIN_S, ENDED, AsyncClient, RefusedError

__all__ = ["DEFAULT_ADDRESS", "DRAIN_S", "ENDED", "AsyncClient", "Client", "RefusedError"]

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(
    call: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate["Client", P], T]:
    """Return a call that waits for the answer of an asynchronous one, of the same parameters."""

    @wraps(call)
    def blocking(self: "Client", /, *args: P.args, **named: P.kwargs) -> T:
        answer: Coroutine[Any, Any, T] = getattr(self._client, call.__name__)(*args, **named)
        return self._run(answer)

    return blocking


def _iterating(
    call: Callable[Concatenate[AsyncClient, P], AsyncIterator[T]],
) -> Callable[Concatenate["Client", P], Iterator[T]]:
    """Return a call that yields what an asynchronous one does, of the same parameters."""

    @wraps(call)
    def iterating(self: "Client", /, *args: P.args, **named: P.kwargs) -> Iterator[T]:
        stream: AsyncIterator[T] = getattr(self._client, call.__name__)(*args, **named)
        while True:
            try:
                yield self._run(anext(stream))
            except StopAsyncIteration:
                return

    return iterating


class Client:
    """The same calls, blocking; use it as a context manager. Safe to use from several threads.

    What a call is given to tell (`wait`, `when_missing`) is called on the client's own thread.
    """

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

    new_application = _blocking(AsyncClient.new_application)
    submit = _blocking(AsyncClient.submit)
    job = _blocking(AsyncClient.job)
    kill = _blocking(AsyncClient.kill)
    move = _blocking(AsyncClient.move)
    set_expiry = _blocking(AsyncClient.set_expiry)
    set_priority = _blocking(AsyncClient.set_priority)
    application = _blocking(AsyncClient.application)
    applications = _blocking(AsyncClient.applications)
    nodes = _blocking(AsyncClient.nodes)
    decommission = _blocking(AsyncClient.decommission)
    recommission = _blocking(AsyncClient.recommission)
    update_node = _blocking(AsyncClient.update_node)
    queues = _blocking(AsyncClient.queues)
    set_queues = _blocking(AsyncClient.set_queues)
    metrics = _blocking(AsyncClient.metrics)
    manager = _blocking(AsyncClient.manager)
    settings = _blocking(AsyncClient.settings)
    queue_tree = _blocking(AsyncClient.queue_tree)
    explain = _blocking(AsyncClient.explain)
    containers = _blocking(AsyncClient.containers)
    tasks = _blocking(AsyncClient.tasks)
    read_log = _blocking(AsyncClient.read_log)
    read_on = _blocking(AsyncClient.read_on)
    wait = _blocking(AsyncClient.wait)
    progress = _iterating(AsyncClient.progress)
    events = _iterating(AsyncClient.events)


async def _settle() -> None:
    """Let calls that were cancelled end, so that nothing is left when the loop closes."""
    own = asyncio.current_task()
    others = [task for task in asyncio.all_tasks() if task is not own]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def _make(address: str, deadline_s: float, connect_timeout_s: float) -> AsyncClient:
    return AsyncClient(address, deadline_s, connect_timeout_s=connect_timeout_s)
