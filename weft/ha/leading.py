"""The last gate of a Resource Manager that may be replaced: nothing leaves unless it leads.

A manager that was paused may wake in the middle of anything, with messages half sent. So the
question whether it leads is asked where a message is handed to the wire, after everything else, and
not only where it is made. What does not pass ends its call with a status that names the leader, by
which callers go on to the next address of their list.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import grpc
import grpc.aio

from weft.protocol.access import CLIENT_SERVICE
from weft.wire.channel import LEADER_KEY
from weft.wire.handlers import Interceptor, rewrapped

# A standby answers this call as well.
STANDBY_METHOD = f"{CLIENT_SERVICE}GetManager"


class Leader(Protocol):
    """What the gate asks."""

    @property
    def may_order(self) -> bool:
        """Whether this process leads at this moment."""
        ...

    @property
    def may_answer(self) -> bool:
        """Whether what it knows may be read."""
        ...

    def refusal(self) -> tuple[str, str]:
        """Return why nothing is answered here, and the leader's host:port or an empty text."""
        ...


class Leading(Interceptor):
    """Holds every call of ours against who leads, before it is served and before each answer."""

    def __init__(self, leader: Leader) -> None:
        super().__init__()
        self._leader = leader
        self._calls: set[asyncio.Task[Any]] = set()
        self._ended: set[asyncio.Task[Any]] = set()

    def end_calls(self) -> None:
        """End the streams that are open: whoever is at the other end looks for the leader."""
        for task in self._calls:
            self._ended.add(task)
            task.cancel()

    def wrapped(self, method: str, handler: Any) -> Any:
        """Return the handler that serves a method instead of this one."""
        if method == STANDBY_METHOD:
            return handler
        reads = method.startswith(CLIENT_SERVICE)
        streams = handler.response_streaming

        def passes() -> bool:
            return self._leader.may_answer if reads else self._leader.may_order

        def held(serve: Callable[[Any, Any], Awaitable[Any]]) -> Any:
            async def answer(request: Any, context: Any) -> Any:
                if not passes():
                    await self._refuse(context)
                if not streams:
                    found = await serve(request, _Held(context, passes, self._refuse))
                    if not passes():
                        await self._refuse(context)
                    return found
                task = asyncio.current_task()
                assert task is not None
                self._calls.add(task)
                try:
                    return await serve(request, _Held(context, passes, self._refuse))
                except asyncio.CancelledError:
                    if task not in self._ended:
                        raise
                    task.uncancel()
                    # The call is refused already, and was cancelled on its way out.
                    with contextlib.suppress(grpc.aio.UsageError):
                        await self._refuse(context)
                finally:
                    self._calls.discard(task)
                    self._ended.discard(task)

            return answer

        return rewrapped(handler, held)

    async def _refuse(self, context: Any) -> None:
        why, leader = self._leader.refusal()
        metadata = ((LEADER_KEY, leader.encode()),) if leader else ()
        await context.abort(grpc.StatusCode.UNAVAILABLE, why, metadata)


class _Held:
    """The context of a call, which asks before it says anything."""

    __slots__ = ("_context", "_passes", "_refuse")

    def __init__(
        self, context: Any, passes: Callable[[], bool], refuse: Callable[[Any], Awaitable[None]]
    ) -> None:
        self._context = context
        self._passes = passes
        self._refuse = refuse

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    async def abort(self, *status: Any) -> None:
        """End the call with a status, which is an answer as well."""
        if not self._passes():
            await self._refuse(self._context)
        await self._context.abort(*status)

    async def write(self, message: Any) -> None:
        """Hand a message to the wire, unless this process leads no longer."""
        if not self._passes():
            await self._refuse(self._context)
        await self._context.write(message)
