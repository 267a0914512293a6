"""HTTP servers on the event loop: each with the same door, and none held up by who says nothing.

A connection that never sends a whole request head is closed: there are only so many files.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Middleware

from weft.runtime.http_door import HEADERS, Door

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Refuse = Callable[[web.Request, int, str], web.StreamResponse]

# Further connections are closed at once.
CONNECTIONS_MAX = 2_000
# A connection is known only when its protocol was made.
REFUSE_DELAY_S = 0.05
# So many connections wait to be accepted; beyond that a caller tries again a second later.
BACKLOG = 1_024
# What a connection may send unasked stays in the socket beyond so much.
UNREAD_BYTES_MAX = 1 << 14
# Bodies of all requests together that are not whole yet; each within so long, on the wall clock.
BODIES_BYTES_MAX, BODY_TIMEOUT_S = 20 << 20, 30.0
# It runs from the connection to its first whole head; aiohttp bounds the wait for later ones.
FIRST_HEAD_TIMEOUT_S = 20.0


def _plain(request: web.Request, status: int, text: str) -> web.StreamResponse:
    return web.Response(status=status, text=text, headers=HEADERS)


def application(
    door: Door,
    *,
    before: Sequence[Middleware] = (),
    after: Sequence[Middleware] = (),
    refuse: Refuse = _plain,
    **more: Any,
) -> web.Application:
    """Return an application behind a door; `refuse` makes the answer to whom it lets not in.

    `before` and `after` are middlewares outside and inside of the door.
    """

    @web.middleware
    async def at_the_door(request: web.Request, handler: Handler) -> web.StreamResponse:
        refused = door.refusal(request.method, request.headers)
        return await handler(request) if refused is None else refuse(request, *refused)

    return web.Application(middlewares=[*before, at_the_door, *after], **more)


async def with_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Say of an answer that is no page that it is none (a signal, `on_response_prepare`)."""
    response.headers.update(HEADERS)


class Bodies:
    """Bodies of requests on their way: of all callers together so much, the oldest makes room."""

    def __init__(self) -> None:
        self._bytes_of: dict[asyncio.Timeout, int] = {}
        self._bytes = 0

    async def read(self, request: web.Request, most: int) -> bytes:
        """Return a body of at most so many bytes.

        Raises TimeoutError where it did not come in time or made room, ValueError for a larger one.
        """
        data = bytearray()
        async with asyncio.timeout(BODY_TIMEOUT_S) as limit:
            self._bytes_of[limit] = 0
            try:
                async for piece in request.content.iter_chunked(UNREAD_BYTES_MAX):
                    data += piece
                    if len(data) > most:
                        raise ValueError(f"more than the limit of {most / 1e6:.0f} MB")
                    self._grow(limit, len(piece))
            finally:
                self._bytes -= self._bytes_of.pop(limit, 0)
        return bytes(data)

    def _grow(self, limit: asyncio.Timeout, size: int) -> None:
        if limit in self._bytes_of:
            self._bytes_of[limit] += size
            self._bytes += size
        while self._bytes > BODIES_BYTES_MAX and len(self._bytes_of) > 1:
            oldest = next(iter(self._bytes_of))
            self._bytes -= self._bytes_of.pop(oldest)
            oldest.reschedule(asyncio.get_running_loop().time())


class PatientRunner(web.AppRunner):
    """Closes connections that have not asked for anything `head_s` after they were made."""

    def __init__(
        self,
        app: web.Application,
        head_s: float = FIRST_HEAD_TIMEOUT_S,
        most: int = CONNECTIONS_MAX,
        **more: Any,
    ) -> None:
        """`most`: connections at a time; what comes beyond is closed at once."""
        super().__init__(app, **({"read_bufsize": UNREAD_BYTES_MAX} | more))
        self._head_s = head_s
        self._most = most
        # The handle closes a silent connection.
        self._silent: dict[Any, asyncio.TimerHandle] = {}
        app.middlewares.insert(0, self._asked)

    @property
    def server(self) -> Any:
        """Server that makes the protocol of each connection."""
        made = super().server
        return None if made is None else self._watched(made)

    def _watched(self, server: Callable[[], Any]) -> Callable[[], Any]:
        def make() -> Any:
            protocol = server()
            later = asyncio.get_running_loop().call_later
            if len(self._connections()) >= self._most:
                later(REFUSE_DELAY_S, protocol.force_close)
                return protocol
            self._silent[protocol] = later(self._head_s, self._give_up, protocol)
            return protocol

        return make

    def _connections(self) -> list[Any]:
        made = super().server
        return [] if made is None else made.connections

    @property
    def _asked(self) -> Middleware:
        @web.middleware
        async def asked(request: web.Request, handler: Handler) -> web.StreamResponse:
            timer = self._silent.pop(request.protocol, None)
            if timer is not None:
                timer.cancel()
            return await handler(request)

        return asked

    def _give_up(self, protocol: Any) -> None:
        if self._silent.pop(protocol, None) is not None:
            protocol.force_close()
