"""How long a gRPC server waits for a call's message and for its answer to be taken, and how many.

gRPC reads a request of any size for as long as it takes, and keeps an answer until the caller takes
it. So every call with one request is served as a stream here, of which this reads one message and,
where one is answered, writes one: the wire is the same, and the waiting can end.
"""

import asyncio
import contextlib
import math
import mmap
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from weft.wire import pieces
from weft.wire.channel import METADATA_BYTES_MAX, REQUEST_BYTES_MAX
from weft.wire.handlers import EVERY, Interceptor, Serve, rewrapped

# Of these streams a message is taken in in pieces: a megabyte of heartbeats is a second of work.
IN_PIECES = frozenset({"/weft.NodeTracker/Track", "/weft.ApplicationMasterProtocol/Allocate"})
PIECE_BYTES, PIECE_FIELDS = 16 << 10, 100
SMALL_BYTES = 2 << 10
# What a field of metadata counts beside its name and value (RFC 9113, section 6.5.2).
FIELD_BYTES = 32
# Wire types of protobuf.
VARINT, LENGTH_DELIMITED = 0, 2
FIXED_BYTES = {1: 8, 5: 4}
# A request must have come within this, and an answer be taken, on the wall clock; what is said over
# a stream may be read by somebody who looks at it.
REQUEST_S = 30.0
ANSWER_S = 30.0
WORD_S = 120.0
# So many calls may wait for the rest of their request, and streams of whom nobody knows for the
# next one: the oldest of whom most wait makes room.
UNREAD_MAX = 1_000
# Of these so many of one connection are read at a time, as gRPC takes in what is read.
READ_MAX = 8
# What is larger is carried out alone, and then nothing that is large for as long as it took.
LARGE_BYTES = 1 << 20
# A stream that has not shown whose it is says nothing that is larger.
STRANGER_BYTES_MAX = 256 << 10
TOO_LARGE_OF_STRANGER = "too large a report of whom nobody knows"
# Requests that are carried out may have so many bytes together, a single one any number. Those of
# which pieces are missing may have what is left of it: the oldest makes room.
HELD_BYTES_MAX = 20 << 20
# The same of answers that nobody took yet: the oldest makes room.
ANSWER_BYTES_MAX = 16 << 20
# A connection that was shut is given so long until what it held is free.
GOING_S = 0.05
# After a large answer so many of the same call are made one after the other.
MADE_ALONE = 100

# It is told whose message of how many bytes was read.
OnRead = Callable[[str, int], None]
# It ends the connection of a peer, for a reason.
Drop = Callable[[str, str], object]


class _Waiting:
    """Those who wait, the oldest first, each with the bytes that are kept for it."""

    def __init__(self) -> None:
        self.all: dict[asyncio.Timeout, int] = {}
        self.bytes = 0
        self.turn = asyncio.Semaphore(READ_MAX)

    def add(self, one: asyncio.Timeout, size: int = 0) -> None:
        self.all[one] = self.all.get(one, 0) + size
        self.bytes += size

    def discard(self, one: asyncio.Timeout) -> None:
        self.bytes -= self.all.pop(one, 0)

    def give_way(self) -> None:
        """End the wait of the oldest."""
        oldest = next(iter(self.all))
        self.discard(oldest)
        oldest.reschedule(asyncio.get_running_loop().time())


class Patience(Interceptor):
    """Bounds what calls wait for, in time and in bytes of all callers together."""

    of = EVERY

    def __init__(
        self,
        on_read: OnRead = lambda peer, size: None,
        drop: Drop = lambda peer, why: None,
    ) -> None:
        super().__init__()
        self._on_read = on_read
        self._drop = drop
        # By peer; an empty one is removed.
        self._unread: dict[str, _Waiting] = {}
        self._unread_count = 0
        self._large = asyncio.Lock()
        self._answers = _Waiting()
        self._joined = _Waiting()
        self._held_bytes = 0

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Wrap a method, or refuse a call of it at once for its metadata."""
        metadata = handler_call_details.invocation_metadata or ()
        size = sum(len(name) + len(value) + FIELD_BYTES for name, value in metadata)
        if size > METADATA_BYTES_MAX:
            return _TOO_MUCH_METADATA
        return await super().intercept_service(continuation, handler_call_details)

    def wrapped(self, method: str, handler: Any) -> Any:
        """Return the handler that serves a method instead of this one."""
        if handler.request_streaming:
            deserialize = handler.request_deserializer or bytes
            return rewrapped(handler, partial(self._streamed, method, deserialize), bytes)
        answers = handler.response_streaming
        one = self._streaming(handler) if answers else self._one(handler)
        serve = self._read(handler, one)
        return grpc.stream_stream_rpc_method_handler(
            serve, response_serializer=handler.response_serializer if answers else None
        )

    def _streamed(self, method: str, deserialize: Callable[[bytes], Any], serve: Serve) -> Serve:
        """Return what serves a stream of requests, of reports in pieces."""

        async def served(_: Any, context: Any) -> Any:
            reading = _Reading(self, context, deserialize, split=method in IN_PIECES)
            try:
                return await serve(reading, reading)
            finally:
                reading.drop()

        return _forgetting(served)

    async def hold(self, context: Any, size: int) -> None:
        """Count the bytes of a large request that is carried out, or refuse the call."""
        if self._held_bytes and self._held_bytes + size > HELD_BYTES_MAX:
            text = "other large requests are carried out"
            await context.abort(grpc.StatusCode.UNAVAILABLE, text)
        self._held_bytes += size

    def let_go(self, size: int) -> None:
        """Count them no more."""
        self._held_bytes -= size

    @contextlib.asynccontextmanager
    async def alone(self, size: int) -> AsyncIterator[None]:
        """Have nothing else that is large be carried out beside what is, nor right after it."""
        if size <= LARGE_BYTES:
            yield
            return
        async with self._large:
            began_s = time.perf_counter()
            try:
                yield
            finally:
                await asyncio.sleep(time.perf_counter() - began_s)

    async def give_up(self, peer: str) -> None:
        """End the connection of a peer that takes nothing; a call of it ends meanwhile.

        A call that still writes can be ended in no other way.
        """
        self._drop(peer, "it takes no answers")
        await asyncio.sleep(math.inf)

    async def read_of_stranger(self, context: Any, within_s: float | None) -> Any:
        """Return a message that comes in time, or end the call, as when it makes room for others.

        With `None` it may come at any time.
        """
        if self._unread_count >= UNREAD_MAX:
            max(self._unread.values(), key=lambda one: len(one.all)).give_way()
            self._unread_count -= 1
        peer = context.peer()
        waiting = self._unread.setdefault(peer, _Waiting())
        try:
            async with asyncio.timeout(within_s) as limit:
                waiting.add(limit)
                self._unread_count += 1
                try:
                    async with waiting.turn:
                        return await taken(context)
                finally:
                    # Who gave way is counted no more, or another one would be ended for it.
                    self._unread_count -= limit in waiting.all
                    waiting.discard(limit)
                    if not waiting.all:
                        self._unread.pop(peer, None)
        except TimeoutError:
            text = "the request did not come in time, or made room for others"
            await context.abort(grpc.StatusCode.UNAVAILABLE, text)

    async def whole(self, context: Any, got: list[Any], most: int = REQUEST_BYTES_MAX) -> bytes:
        """Return a request of at most so many bytes, of which `got` has a message: all or a piece.

        Ends the call where the rest does not come in time, or makes room for others. What is in
        `got` is taken out of it, as whoever is told how a call ended keeps its frames for a while.
        """
        size = pieces.owed(got[0])
        self._on_read(context.peer(), len(got[0]))
        if not size:
            return bytes(got.pop())
        if size > most:
            text = f"{size} bytes are more than the limit of {most}"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, text)
        # The allocator would keep much of what is held in many pieces and freed.
        room = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        try:
            async with asyncio.timeout(REQUEST_S) as limit:
                try:
                    await self._gather(context, got, room, limit)
                    return room.read()
                finally:
                    room.close()
                    self._joined.discard(limit)
        except TimeoutError:
            text = "the request did not come in time, or made room for others"
            await context.abort(grpc.StatusCode.UNAVAILABLE, text)
        raise AssertionError("unreachable")

    async def _gather(
        self, context: Any, got: list[Any], room: mmap.mmap, limit: asyncio.Timeout
    ) -> None:
        """Read until the room is full; `got` has the first piece, and is empty afterwards."""
        begin, size = 0, len(room)
        while begin < size:
            if not got:
                got.append(await taken(context))
                if got[0] is grpc.aio.EOF:
                    text = "the request has no end"
                    await context.abort(grpc.StatusCode.INVALID_ARGUMENT, text)
                self._on_read(context.peer(), len(got[0]))
            end = begin + len(got[0]) - pieces.HEAD_BYTES
            if pieces.owed(got[0]) != size - begin or end > size:
                got.clear()
                text = "a piece of the request is missing"
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, text)
            room[begin:end] = memoryview(got.pop())[pieces.HEAD_BYTES :]
            self._joined.add(limit, end - begin)
            while self._joined.all and self._joined.bytes + self._held_bytes > HELD_BYTES_MAX:
                self._joined.give_way()
            begin = end

    def _read(self, handler: Any, serve: Serve) -> Serve:
        """Return what reads the one request of a call and serves it."""

        async def served(_: Any, context: Any) -> None:
            got = [await self.read_of_stranger(context, REQUEST_S)]
            if got[0] is grpc.aio.EOF:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "there is no request")
            data = await self.whole(context, got)
            size = len(data)
            await self.hold(context, size)
            try:
                try:
                    request = handler.request_deserializer(data)
                except DecodeError as error:
                    text = f"not understood: {error}"
                    await context.abort(grpc.StatusCode.INVALID_ARGUMENT, text)
                del data
                async with self.alone(size):
                    await serve(request, context)
            finally:
                self.let_go(size)

        return _forgetting(served)

    def _streaming(self, handler: Any) -> Serve:
        async def served(request: Any, context: Any) -> Any:
            return await handler.unary_stream(request, _Reading(self, context, bytes, split=False))

        return served

    def _one(self, handler: Any) -> Serve:
        """Return what serves a call and has its one answer taken.

        After one that was large some are made alone, each once what made room for it is gone.
        """
        making, alone = asyncio.Lock(), 1

        async def made(request: Any, context: Any) -> Any:
            nonlocal alone
            async with making if alone else contextlib.nullcontext():
                answer = b""
                try:
                    got = await handler.unary_unary(request, context)
                    # What a router passes on is bytes already.
                    answer = got if isinstance(got, bytes) else handler.response_serializer(got)
                    del got
                finally:
                    large = len(answer) > LARGE_BYTES
                    alone = MADE_ALONE if large else max(0, alone - 1)
                waiting, full = self._answers, False
                while waiting.all and waiting.bytes + len(answer) > ANSWER_BYTES_MAX:
                    waiting.give_way()
                    full = True
                if large and full:
                    await asyncio.sleep(GOING_S)
            return answer

        async def served(request: Any, context: Any) -> None:
            answer = await made(request, context)
            del request
            waiting = self._answers
            try:
                async with asyncio.timeout(ANSWER_S) as limit:
                    waiting.add(limit, len(answer))
                    try:
                        await context.write(answer)
                    finally:
                        waiting.discard(limit)
            except TimeoutError:
                await self.give_up(context.peer())

        return served


async def _refuse_metadata(_: Any, context: Any) -> None:
    text = f"metadata of more than {METADATA_BYTES_MAX} bytes"
    await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, text)


_TOO_MUCH_METADATA: Any = grpc.stream_stream_rpc_method_handler(_refuse_metadata)


class _Reading:
    """The context of a stream: large requests are given out in pieces, and writes end in time."""

    def __init__(
        self, patience: Patience, context: Any, deserialize: Callable[[bytes], Any], *, split: bool
    ) -> None:
        self._patience = patience
        self._context = context
        self._deserialize = deserialize
        self._split = split
        self._peer = context.peer()
        self._left = b""
        self._at = self._held = 0
        self._known = not split
        self._began = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def is_known(self) -> None:
        """Say that it was shown whose the stream is."""
        self._known = True

    async def write(self, message: Any) -> None:
        """Have a message taken; whoever does not take it for long is given up."""
        try:
            async with asyncio.timeout(WORD_S):
                await self._context.write(message)
        except TimeoutError:
            await self._patience.give_up(self._peer)

    async def __aiter__(self) -> AsyncIterator[Any]:
        while (one := await self.read()) is not grpc.aio.EOF:
            yield one

    async def read(self) -> Any:
        """Return the next request or piece of one; grpc.aio.EOF: there is none."""
        if self._at < len(self._left):
            # Others are served between two pieces.
            await asyncio.sleep(0)
            return await self._next()
        self.drop()
        if self._known and self._began:
            got = [await taken(self._context)]
        else:
            got = [await self._patience.read_of_stranger(self._context, None)]
            self._began = True
        if got[0] is grpc.aio.EOF:
            return got[0]
        if not self._known and pieces.owed(got[0]) > STRANGER_BYTES_MAX:
            await self._context.abort(grpc.StatusCode.PERMISSION_DENIED, TOO_LARGE_OF_STRANGER)
        data = await self._patience.whole(self._context, got)
        size = len(data)
        if size <= SMALL_BYTES or not self._split:
            return self._deserialize(data)
        await self._patience.hold(self._context, size)
        self._held, self._left, self._at = size, data, 0
        return await self._next()

    async def _next(self) -> Any:
        begin = self._at
        self._at = end_of_piece(self._left, begin)
        if not self._known and self._at - begin > STRANGER_BYTES_MAX:
            await self._context.abort(grpc.StatusCode.PERMISSION_DENIED, TOO_LARGE_OF_STRANGER)
        return self._deserialize(self._left[begin : self._at])

    def drop(self) -> None:
        """Forget what was read and not given out."""
        self._patience.let_go(self._held)
        self._left, self._at, self._held = b"", 0, 0


async def taken(context: Any) -> Any:
    """Return the next message of a call, or grpc.aio.EOF.

    It may be cancelled at any time, while gRPC never frees a message that comes after its own
    `read` was: so that one goes on to the call's end.
    """
    reading = asyncio.ensure_future(context.read())
    try:
        return await asyncio.shield(reading)
    except asyncio.CancelledError:
        reading.add_done_callback(_look_away)
        raise


def _look_away(reading: asyncio.Future[Any]) -> None:
    if not reading.cancelled():
        reading.exception()


def _forgetting(serve: Serve) -> Serve:
    """Return what serves, and keeps nothing of a call that it ended with a status.

    A call has its error, and the error this frame: without a word of the call in it nobody waits
    for the collector to let go of the call, and of what gRPC took in for it. A peer that is lost
    while something is on its way to it has left, of which gRPC would print a traceback.
    """

    async def served(request: Any, context: Any) -> Any:
        try:
            return await serve(request, context)
        except grpc.aio.InternalError as error:
            raise asyncio.CancelledError from error
        except grpc.aio.AbortError as error:
            error.__context__ = error.__cause__ = None
            del request, context
            raise error.with_traceback(None)  # noqa: B904

    return served


def end_of_piece(
    data: bytes, begin: int, size: int = PIECE_BYTES, fields: int = PIECE_FIELDS
) -> int:
    """Return where a message of protobuf may be cut: between two of its fields.

    That is after `size` bytes or so many fields.

    The parts are messages that together say the same. Raises DecodeError for what is none.
    """
    at, end = begin, len(data)
    try:
        while at < end and at - begin < size and fields > 0:
            fields -= 1
            kind = data[at] & 7
            at = _after_varint(data, at)
            if kind == VARINT:
                at = _after_varint(data, at)
            elif kind == LENGTH_DELIMITED:
                length = shift = 0
                while data[at] & 0x80:
                    length |= (data[at] & 0x7F) << shift
                    shift += 7
                    at += 1
                at += 1 + (length | data[at] << shift)
            elif kind in FIXED_BYTES:
                at += FIXED_BYTES[kind]
            else:
                raise DecodeError(f"a field of wire type {kind}")
    except IndexError:
        raise DecodeError("the message ends within a field") from None
    return min(at, end)


def _after_varint(data: bytes, at: int) -> int:
    while data[at] & 0x80:
        at += 1
    return at + 1
