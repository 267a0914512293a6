"""HTTP servers on the event loop: each with the same door, and none held up by who says nothing.

A connection that never sends a whole request head is closed: there are only so many files.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from itertools import chain
from traceback import format_exception
from typing import Any

import structlog
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Middleware

from weft.runtime.http_door import HEADERS, Door

_log = structlog.get_logger()
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Refuse = Callable[[web.Request, int, str], web.StreamResponse]

# Above so many connections the one that was idle for longest makes room. Where all of them are
# within a request, the oldest request that is older than this does, or the new one is closed.
CONNECTIONS_MAX, REQUEST_S_MIN = 2_000, 5.0
# A connection is known only when its protocol was made.
REFUSE_DELAY_S = 0.05
# So many connections wait to be accepted; beyond that a caller tries again a second later.
BACKLOG = 1_024
# What a connection may send unasked stays in the socket beyond so much.
UNREAD_BYTES_MAX = 1 << 14
# Bodies of all requests together that are not whole yet; each within so long, on the wall clock.
BODIES_MAX, BODIES_BYTES_MAX, BODY_TIMEOUT_S = 200, 20 << 20, 30.0
# So many bodies of any size may be on their way. A master keeps the history of its job open and has
# nothing to write for as long as its tasks take, so none is given up for silence alone for so long.
UPLOADS_MAX, UPLOAD_SILENCE_S = 200, 24 * 3600.0
# Answers of all connections together that were not taken yet; of each something must be taken
# within so long. They are looked at so often, and before an answer of so many bytes.
ANSWERS_BYTES_MAX, ANSWER_TIMEOUT_S = 20 << 20, 30.0
LOOK_S, LARGE_ANSWER_BYTES = 1.0, 1 << 16
CLIENT_GONE = 499
# The head of a request is this long at most, for which aiohttp would keep 1 MB; and what comes
# before a whole one is looked at no longer than what is read at once.
HEAD_BYTES_MAX, AHEAD_BYTES_MAX = 16 << 10, 1 << 19
HEAD_END = b"\r\n\r\n"
# So much is logged of what failed here and should not have.
FAULT_FRAMES, FAULT_TEXT_MAX, FAULT_PATH_MAX = 8, 3_000, 200
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
        refused = door.refusal(request.method, request.raw_path, request.headers)
        return await handler(request) if refused is None else refuse(request, *refused)

    @web.middleware
    async def told_in_short(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except (web.HTTPException, ConnectionError, TimeoutError):
            raise
        except Exception as error:
            # What a caller chose may have made it as long as he likes.
            lines = "".join(format_exception(error, limit=-FAULT_FRAMES, chain=False))
            path = request.path[:FAULT_PATH_MAX]
            _log.error("a request failed", path=path, fault=lines[-FAULT_TEXT_MAX:])
            return refuse(request, 500, "it failed here; the log says why")

    return web.Application(middlewares=[told_in_short, *before, at_the_door, *after], **more)


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
            while len(self._bytes_of) >= BODIES_MAX:
                self._give_way()
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
            self._give_way()

    def _give_way(self) -> None:
        oldest = next(iter(self._bytes_of))
        self._bytes -= self._bytes_of.pop(oldest)
        oldest.reschedule(asyncio.get_running_loop().time())


class Uploads:
    """Bodies of any size that are put away as they come: at most so many at a time.

    The one of which nothing came for longest makes room.
    """

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Timeout, None] = {}

    async def pieces(self, request: web.Request, size: int) -> AsyncIterator[bytes]:
        """Yield a body in pieces of at most so many bytes.

        Raises TimeoutError where the next did not come in time, or the body made room.
        """
        data = b"more"
        while data:
            try:
                async with asyncio.timeout(UPLOAD_SILENCE_S) as limit:
                    if len(self._waiting) >= UPLOADS_MAX:
                        silent = next(iter(self._waiting))
                        del self._waiting[silent]
                        silent.reschedule(asyncio.get_running_loop().time())
                    self._waiting[limit] = None
                    try:
                        data = await request.content.read(size)
                    finally:
                        self._waiting.pop(limit, None)
            except TimeoutError:
                text = "the body did not come in time, or made room for others"
                raise TimeoutError(text) from None
            if data:
                yield data


class _Answers:
    """What connections were answered and did not take: of all together so much.

    The one that took nothing for longest makes room, of several the largest. One alone may have any
    size.
    """

    def __init__(self, connections: Callable[[], Iterable[Any]]) -> None:
        self._connections = connections
        # Bytes that a connection has not taken, and since when they are so many.
        self._untaken: dict[Any, tuple[int, float]] = {}

    def look(self) -> None:
        """End connections that take nothing for too long, or hold too much."""
        now_s, before = asyncio.get_running_loop().time(), self._untaken
        held: dict[Any, tuple[int, float]] = {}
        for one in self._connections():
            size = 0 if one.transport is None else one.transport.get_write_buffer_size()
            if size:
                known, since_s = before.get(one, (0, now_s))
                held[one] = (size, since_s if known == size else now_s)
        total = sum(size for size, _ in held.values())
        for one in sorted(held, key=lambda one: (held[one][1], -held[one][0])):
            size, since_s = held[one]
            too_much = total > ANSWERS_BYTES_MAX and len(held) > 1
            if not too_much and now_s - since_s <= ANSWER_TIMEOUT_S:
                break
            del held[one]
            total -= size
            _log.warning("a connection is shut", reason="it takes no answers", bytes=size)
            # What is closed would first be sent.
            one.transport.abort()
        self._untaken = held

    async def watch(self) -> None:
        """Look now and then."""
        while True:
            await asyncio.sleep(LOOK_S)
            self.look()


class _Heads(asyncio.Protocol):
    """Has a connection's protocol hear what comes, and ends it at too long a head."""

    def __init__(self, protocol: Any, on_lost: Callable[[Any], None]) -> None:
        self._protocol = protocol
        self._on_lost = on_lost
        # Bytes that belong to no request that was looked at, and the last of them.
        self._size, self._last = 0, b""
        self._whole = False
        self._body: Any = None
        self._transport: asyncio.BaseTransport | None = None

    def asked(self, request: web.Request) -> None:
        """Note that a request is looked at; the rest of its body is no head."""
        self._whole, self._body, self._size, self._last = False, request.content, 0, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._protocol.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._whole or self._body is None or self._body.is_eof():
            self._size += len(data)
            joined = self._last + data
            self._whole = self._whole or HEAD_END in joined
            self._last = joined[1 - len(HEAD_END) :]
            if self._size > (AHEAD_BYTES_MAX if self._whole else HEAD_BYTES_MAX):
                assert isinstance(self._transport, asyncio.Transport)
                self._transport.abort()
                return
        self._protocol.data_received(data)

    def eof_received(self) -> bool | None:
        ended: bool | None = self._protocol.eof_received()
        return ended

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()

    def connection_lost(self, problem: Exception | None) -> None:
        self._on_lost(self._protocol)
        self._protocol.connection_lost(problem)


def _is_fault(record: logging.LogRecord) -> bool:
    """Return whether a line of aiohttp's log tells of more than bytes that are no request."""
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


class PatientRunner(web.AppRunner):
    """Closes connections that have not asked for anything `head_s` after they were made.

    So it does with those that take no answers.
    """

    def __init__(
        self,
        app: web.Application,
        head_s: float = FIRST_HEAD_TIMEOUT_S,
        most: int = CONNECTIONS_MAX,
        **more: Any,
    ) -> None:
        """`most`: connections at a time."""
        super().__init__(app, **({"read_bufsize": UNREAD_BYTES_MAX} | more))
        # It would print a traceback of each.
        logging.getLogger("aiohttp.server").addFilter(_is_fault)
        self._head_s = head_s
        self._most = most
        # The handle closes a silent connection.
        self._silent: dict[Any, asyncio.TimerHandle] = {}
        # Connections that are not within a request, the longest so first.
        self._idle: dict[Any, None] = {}
        # Those that are, the longest so first: since when, and the task that carries it out.
        self._busy: dict[Any, tuple[float, asyncio.Task[Any] | None]] = {}
        self._heads: dict[Any, _Heads] = {}
        # The answer that a connection's request began with.
        self._begun: dict[Any, web.StreamResponse] = {}
        app.middlewares.insert(0, self._asked)
        app.on_response_prepare.append(self._note_begun)
        self._answers = _Answers(self._connections)
        self._watch: asyncio.Task[None] | None = None

    async def setup(self) -> None:
        """Make the server and watch what it is asked and answers."""
        await super().setup()
        self._watch = asyncio.create_task(self._answers.watch())

    async def cleanup(self) -> None:
        """Close every connection."""
        if self._watch is not None:
            self._watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watch
        await super().cleanup()

    @property
    def server(self) -> Any:
        """Server that makes the protocol of each connection."""
        made = super().server
        return None if made is None else self._watched(made)

    def _watched(self, server: Callable[[], Any]) -> Callable[[], Any]:
        def make() -> Any:
            protocol = server()
            refused = len(self._connections()) >= self._most and not self._make_room()
            wait_s = REFUSE_DELAY_S if refused else self._head_s
            later = asyncio.get_running_loop().call_later
            self._silent[protocol] = later(wait_s, self._give_up, protocol)
            self._idle[protocol] = None
            self._heads[protocol] = made = _Heads(protocol, self._forget)
            return made

        return make

    def _connections(self) -> list[Any]:
        made = super().server
        return [] if made is None else made.connections

    def _make_room(self) -> bool:
        """End the connection that was idle, or within a request, for longest.

        Returns whether there is one.
        """
        before_s = asyncio.get_running_loop().time() - REQUEST_S_MIN
        old = (one for one, (since_s, _) in self._busy.items() if since_s <= before_s)
        for one in chain(self._idle, old):
            if one.transport is not None and not one.transport.is_closing():
                one.transport.abort()
                _, task = self._busy.get(one, (0.0, None))
                if task is not None:
                    task.cancel()
                return True
        return False

    def _forget(self, protocol: Any) -> None:
        """Drop what is known of a connection that is lost."""
        self._idle.pop(protocol, None)
        self._busy.pop(protocol, None)
        self._heads.pop(protocol, None)
        self._begun.pop(protocol, None)
        timer = self._silent.pop(protocol, None)
        if timer is not None:
            timer.cancel()

    @property
    def _asked(self) -> Middleware:
        @web.middleware
        async def asked(request: web.Request, handler: Handler) -> web.StreamResponse:
            timer = self._silent.pop(request.protocol, None)
            if timer is not None:
                timer.cancel()
            self._idle.pop(request.protocol, None)
            self._begun.pop(request.protocol, None)
            now_s = asyncio.get_running_loop().time()
            self._busy[request.protocol] = (now_s, asyncio.current_task())
            heads = self._heads.get(request.protocol)
            if heads is not None:
                heads.asked(request)
            try:
                answer = await handler(request)
            except ConnectionResetError:
                if request.transport is not None and not request.transport.is_closing():
                    raise
                # Who asked is gone, which is no fault of ours that a log should hold.
                return web.Response(status=CLIENT_GONE)
            finally:
                self._busy.pop(request.protocol, None)
                if request.protocol in self._heads:
                    self._idle[request.protocol] = None
            begun = self._begun.get(request.protocol, answer)
            if begun is not answer and request.transport is not None:
                # It failed under way: another answer would be taken for the rest of the first.
                request.transport.abort()
            body = getattr(answer, "body", None)
            if isinstance(body, bytes) and len(body) > LARGE_ANSWER_BYTES:
                self._answers.look()
            return answer

        return asked

    async def _note_begun(self, request: web.Request, response: web.StreamResponse) -> None:
        """Note what a request is answered with (a signal, `on_response_prepare`)."""
        if request.protocol in self._heads:
            self._begun.setdefault(request.protocol, response)

    def _give_up(self, protocol: Any) -> None:
        if protocol in self._silent:
            # Where TLS was not agreed on, nobody says that it is lost.
            self._forget(protocol)
            protocol.force_close()


async def serve(
    app: web.Application, host: str, port: int, most: int = CONNECTIONS_MAX
) -> tuple[web.AppRunner, int]:
    """Listen, for at most so many connections; returns what closes it, and the port."""
    runner = PatientRunner(app, most=most, access_log=None, keepalive_timeout=30)
    await runner.setup()
    site = web.TCPSite(runner, host, port, backlog=BACKLOG)
    await site.start()
    server: Any = site._server
    return runner, int(server.sockets[0].getsockname()[1])
