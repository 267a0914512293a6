"""Lanes carry messages of a stream in batches; undeliverable ones are dropped, counted.

The cores own reliability: they repeat what was not acknowledged. So a lane never stores more than
it can send soon, and a broken lane forgets. A batch that does not fit one gRPC message leaves in
parts, as a message beyond the limit breaks the stream for everybody whom it serves.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

import grpc
import grpc.aio
import structlog

from weft.model.errors import WeftError
from weft.protocol.messages import AttemptAccepted
from weft.wire import channel as wire
from weft.wire.auth import ANYBODY, Peer
from weft.wire.tokens import Shown

# A batch has so many messages, or this part of those that wait if that is more, as a busy loop
# writes few batches a second. BATCH_BYTES_MAX holds for several messages, encoded.
BATCH_MESSAGES_MAX = 1_000
BATCH_PART_OF_WAITING = 4
BATCH_BYTES_MAX = 4 * 1024 * 1024
# A peer that is slower than this number of messages loses the rest.
WAITING_MAX = 20_000

ALONE = frozenset({AttemptAccepted, Shown})

# Told how many messages could not be delivered.
OnDrop = Callable[[int], None]
Greeting = Callable[[], Iterable[Any]]
_log = structlog.get_logger()


def parts(
    batch: list[Any], encode: Callable[[list[Any]], Any], most: int
) -> Iterator[tuple[list[Any], Any]]:
    """Yield the messages in order, in encoded parts that fit one gRPC message of `most` bytes each.

    A message that does not fit one alone comes with None: it cannot be sent.
    """
    encoded = encode(batch)
    size = encoded.ByteSize()
    if size <= BATCH_BYTES_MAX:
        yield batch, encoded
    elif len(batch) > 1:
        del encoded
        half = len(batch) // 2
        yield from parts(batch[:half], encode, most)
        yield from parts(batch[half:], encode, most)
    elif size <= most - wire.ENVELOPE_BYTES_MAX:
        yield batch, encoded
    else:
        limit = most / 1e6
        _log.error(
            "a message is too large and is not sent",
            message=type(batch[0]).__name__,
            mb=round(size / 1e6, 1),
            limit_mb=round(limit, 1),
        )
        yield batch, None


class Lane:
    """Messages on their way to one peer."""

    __slots__ = (
        "_is_due",
        "_on_drop",
        "_taker",
        "_timer",
        "_waiting",
        "closed",
        "peer",
        "subjects",
        "who",
        "writing",
    )

    def __init__(self, on_drop: OnDrop | None = None, peer: str = "", who: Peer = ANYBODY) -> None:
        """`peer` is the address at the other end, as gRPC writes it, `who` what it showed to be."""
        self.peer = peer
        self.who = who
        # The peer may speak for these attempts or nodes.
        self.subjects: dict[Any, None] = {}
        self._waiting: list[Any] = []
        # What waits is to leave now if `_is_due`; the taker waits for that, the timer makes it so.
        self._is_due = False
        self._taker: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._on_drop = on_drop
        self.closed = False
        self.writing = False

    def send(self, messages: Iterable[Any], within_s: float = 0.0) -> None:
        """Queue messages; never blocks.

        What need not leave at once does `within_s`, or with others that come before.
        """
        before = len(self._waiting)
        self._waiting.extend(messages)
        if self.closed or before > WAITING_MAX:
            self._drop(before)
        elif within_s <= 0.0:
            self._leave()
        elif self._timer is None and not self._is_due:
            self._timer = asyncio.get_running_loop().call_later(within_s, self._leave)

    def _leave(self) -> None:
        """Let what waits go."""
        self._is_due = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._taker is not None and not self._taker.done():
            self._taker.set_result(None)

    def begin(self, messages: Iterable[Any]) -> None:
        """Put messages before those that wait."""
        self._waiting[:0] = messages
        if self._waiting:
            self._leave()

    @property
    def waiting(self) -> int:
        """Number of messages that wait."""
        return len(self._waiting)

    def close(self) -> None:
        """Forget what waits and refuse what comes, as the peer is gone."""
        self.closed = True
        self._drop(0)

    def forget(self) -> None:
        """Forget what waits."""
        self._drop(0)

    def _drop(self, keep: int) -> None:
        lost = len(self._waiting) - keep
        if lost > 0:
            del self._waiting[keep:]
            if self._on_drop is not None:
                self._on_drop(lost)

    async def take(self) -> list[Any]:
        """Wait for messages; return what waits, at most BATCH_MESSAGES_MAX or a part of it.

        What holds a whole job (up to tens of MB) comes alone, so that not many are encoded to see
        that they do not fit together; tokens do, as they must be known before what they allow.
        """
        while not (self._is_due and self._waiting):
            self._is_due = False
            self._taker = asyncio.get_running_loop().create_future()
            await self._taker
        count = max(BATCH_MESSAGES_MAX, len(self._waiting) // BATCH_PART_OF_WAITING)
        for position, message in enumerate(self._waiting[:count]):
            if type(message) in ALONE:
                count = max(1, position)
                break
        batch = self._waiting[:count]
        del self._waiting[:count]
        self._is_due = bool(self._waiting)
        return batch

    async def pump(
        self,
        write: Callable[[Any], Any],
        encode: Callable[[list[Any]], Any],
        most: int = wire.MESSAGE_BYTES_MAX,
    ) -> None:
        """Write batches of at most so many bytes until cancelled or the stream breaks."""
        while True:
            batch = await self.take()
            self.writing = True
            for part, encoded in parts(batch, encode, most):
                if encoded is not None:
                    await write(encoded)
                elif self._on_drop is not None:
                    self._on_drop(len(part))
            self.writing = False


class Stream:
    """A stream to a server that is dialled again whenever it breaks.

    `open_` starts the call; `on_batch` gets every decoded batch; `on_state` is told when the stream
    is up (True) and why it is down (False, reason).
    """

    def __init__(
        self,
        open_: Callable[[], Any],
        encode: Callable[[list[Any]], Any],
        decode: Callable[[Any], Any],
        on_batch: Callable[[Any], None],
        on_state: Callable[[bool, str], None] | None = None,
        on_drop: OnDrop | None = None,
        greeting: Greeting | None = None,
        dialled: "wire.Dialled[Any] | None" = None,
    ) -> None:
        """`greeting` gives what a new connection begins with; `dialled` knows other addresses."""
        self._greeting = greeting
        self._dialled = dialled
        self._open = open_
        self._encode = encode
        self._decode = decode
        self._on_batch = on_batch
        self._on_state = on_state or (lambda up, reason: None)
        self._lane = Lane(on_drop)
        self.up = False

    @property
    def waiting(self) -> int:
        """Number of messages that wait to be written."""
        return self._lane.waiting

    def send(self, messages: Iterable[Any]) -> None:
        """Queue messages for the server."""
        self._lane.send(messages)

    async def drain(self, within_s: float) -> None:
        """Wait until what was sent has left, for so long at most."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + within_s
        while self.up and (self._lane.waiting or self._lane.writing) and loop.time() < give_up:
            await asyncio.sleep(0.01)

    async def run(self) -> None:
        """Keep the stream up until cancelled."""
        waits = self._waits()
        while True:
            leader = ""
            try:
                await self._once()
                reason = "closed by the server"
            except grpc.aio.AioRpcError as error:
                reason, leader = wire.reason_of(error), wire.leader_of(error)
            except (ValueError, WeftError) as error:
                # The server is of another version.
                reason = f"not understood: {error}"
            if self.up:
                waits = self._waits()
            self.up = False
            self._on_state(False, reason)
            self._lane.forget()
            if self._dialled is not None:
                self._dialled.turn(leader)
            await asyncio.sleep(next(waits))

    async def _served(self, call: Any) -> None:
        """Wait until a manager takes the stream; raises AioRpcError where it leaves it to another.

        Nothing but its first word tells: the connection to one that stands by is as good.
        """
        told = await call.initial_metadata()
        if wire.SERVES_KEY not in dict(told or ()):
            await check(call)
            raise WeftError("closed by the server")

    def _waits(self) -> Iterator[float]:
        return wire.backoffs() if self._dialled is None else self._dialled.backoffs()

    async def _once(self) -> None:
        call = self._open()
        writer: asyncio.Task[None] | None = None
        try:
            await call.wait_for_connection()
            if self._dialled is not None and self._dialled.several:
                await self._served(call)
            self.up = True
            self._on_state(True, "")
            if self._greeting is not None:
                self._lane.begin(self._greeting())
            pump = self._lane.pump(call.write, self._encode, wire.REQUEST_BYTES_MAX)
            writer = asyncio.create_task(pump)
            while (batch := await call.read()) is not grpc.aio.EOF:
                self._on_batch(self._decode(batch))
            await check(call)
        finally:
            await cancel(writer)
            call.cancel()


async def check(call: Any) -> None:
    """Raise AioRpcError where a call ended with another status than OK."""
    code = await call.code()
    if code is not grpc.StatusCode.OK:
        raise broken(code, await call.details(), await call.trailing_metadata())


def broken(code: grpc.StatusCode, details: str | None, last: Any) -> grpc.aio.AioRpcError:
    """Return the error of a call that ended with a status."""
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), last, details=details)


async def cancel(task: asyncio.Task[Any] | None) -> None:
    """End a task and look away: its stream may have broken under it."""
    if task is None:
        return
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def serve(
    context: Any,
    lane: Lane,
    encode: Callable[[list[Any]], Any],
    decode: Callable[[Any], Any],
    on_batch: Callable[[Any], Awaitable[None] | None],
) -> None:
    """Serve the server's end of a stream: read until the peer ends, write what the lane gets.

    What `on_batch` answers is waited for before the next batch is handed over, so however much a
    peer says, two batches of it are in memory.
    """
    held: Awaitable[None] | None = None
    writer = asyncio.create_task(lane.pump(context.write, encode))
    try:
        while (batch := await context.read()) is not grpc.aio.EOF:
            try:
                messages = decode(batch)
            except (ValueError, WeftError) as error:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            if held is not None:
                await held
            held = on_batch(messages)
            if lane.subjects:
                context.is_known()
    finally:
        lane.close()
        await cancel(writer)
