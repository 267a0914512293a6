"""Connections of YARN's wire that hold no more than they are given: bytes are asked for one by one.

A stream of asyncio reads on while nobody takes what came. Here nothing is taken from the system
before somebody wants it, so what a peer sends stays with the system, which holds the peer up.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

# Where less was asked for, so much is read at once.
SCRATCH_BYTES = 4_096
# A frame that takes longer may be given up for another one.
STALE_FRAME_S = 1.0
# A peer that takes nothing of its answers for so long is given up.
UNREAD_TIMEOUT_S = 10.0
# With so much of its answers not taken by the peer, no more are made.
UNREAD_BYTES_MAX = 64 << 10


class Wire(asyncio.BufferedProtocol):
    """One connection. `connected` is called with it once it is there."""

    def __init__(self, connected: Callable[["Wire"], None]) -> None:
        self._connected = connected
        self._loop = asyncio.get_running_loop()
        self._transport: Any = None
        self._scratch = bytearray(SCRATCH_BYTES)
        # Bytes in the scratch, and how many of them were read.
        self._scratch_filled = self._scratch_read = 0
        # What a long read still has to fill.
        self._unfilled: memoryview | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._lost = False
        # It is set while there is room for answers.
        self._free = asyncio.Event()
        self._free.set()
        self._closed = asyncio.Event()
        self._watch: asyncio.TimerHandle | None = None

    # -- what asyncio calls ------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        """Begin: nothing is read before it is asked for."""
        self._transport = transport
        transport.set_write_buffer_limits(UNREAD_BYTES_MAX)
        transport.pause_reading()
        self._connected(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where what comes next belongs."""
        if self._unfilled is not None:
            return self._unfilled
        return memoryview(self._scratch)[self._scratch_filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Take note of bytes that came."""
        if self._unfilled is not None:
            self._unfilled = self._unfilled[nbytes:]
            if self._unfilled:
                return
            self._unfilled = None
        else:
            self._scratch_filled += nbytes
        self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        """Return False: half a connection is none."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """End all waiting."""
        self._lost = True
        # Half a frame is filled no more.
        self._unfilled = None
        self._free.set()
        self._closed.set()
        if self._watch is not None:
            self._watch.cancel()
        self._wake()

    def pause_writing(self) -> None:
        """Hold up who makes answers, and the peer to taking some."""
        self._free.clear()
        self._watch = self._loop.call_later(UNREAD_TIMEOUT_S, self._look, self.unsent)

    def resume_writing(self) -> None:
        """Go on."""
        self._free.set()
        if self._watch is not None:
            self._watch.cancel()

    def _look(self, before: int) -> None:
        if self.unsent >= before:
            self.abort()
        else:
            self._watch = self._loop.call_later(UNREAD_TIMEOUT_S, self._look, self.unsent)

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    # -- what a server does ------------------------------------------------------------------------

    @property
    def peer(self) -> str:
        """The other end, host:port."""
        name = self._transport.get_extra_info("peername") or ("", 0)
        return f"{name[0]}:{name[1]}"

    @property
    def unsent(self) -> int:
        """Bytes of answers that the system did not take yet."""
        return 0 if self._lost else int(self._transport.get_write_buffer_size())

    @property
    def held_up(self) -> bool:
        """Whether the peer has to take answers before more are made."""
        return not self._free.is_set()

    async def read(self, size: int) -> bytearray:
        """Return so many bytes; raises ConnectionError where the peer left before."""
        result = bytearray(size)
        ready = min(self._scratch_filled - self._scratch_read, size)
        result[:ready] = self._scratch[self._scratch_read : self._scratch_read + ready]
        self._scratch_read += ready
        if self._scratch_read == self._scratch_filled:
            self._scratch_read = self._scratch_filled = 0
        if size - ready >= SCRATCH_BYTES:
            self._unfilled = memoryview(result)[ready:]
            ready = size
            await self._more()
        while ready < size:
            await self._more()
            piece = min(self._scratch_filled, size - ready)
            result[ready : ready + piece] = self._scratch[:piece]
            ready += piece
            self._scratch_read = piece
            if self._scratch_read == self._scratch_filled:
                self._scratch_read = self._scratch_filled = 0
        return result

    async def _more(self) -> None:
        if not self._lost:
            self._waiter = self._loop.create_future()
            self._transport.resume_reading()
            try:
                await self._waiter
            finally:
                self._waiter = None
        if self._lost:
            # a new one: an exception that is kept would keep the frame that it was raised over
            raise ConnectionResetError("the peer left")

    def write(self, data: bytes) -> None:
        """Send; `drained` waits for the peer to take it."""
        if not (self._lost or self._transport.is_closing()):
            self._transport.write(data)

    async def drained(self) -> None:
        """Wait until there is room for answers."""
        await self._free.wait()

    def abort(self) -> None:
        """Drop the connection with all that was not sent."""
        self._transport.abort()

    async def close(self) -> None:
        """Close the connection; what was not sent goes as long as the peer takes it."""
        self._transport.close()
        await self._closed.wait()


class Budget:
    """Bytes of frames that all connections may have in memory together.

    Where there is no room for one, the oldest of those that are not whole yet is given up with its
    connection: whoever sends half a frame must not keep others from theirs.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._used = 0
        self._reading_since_s: dict[Wire, float] = {}
        self._changed = asyncio.Event()

    async def take(self, wire: Wire, size: int) -> None:
        """Wait for room for a frame that begins."""
        clock = asyncio.get_running_loop().time
        while self._used + size > self._most:
            oldest = next(iter(self._reading_since_s), None)
            left_s = (
                0.0 if oldest is None else STALE_FRAME_S - (clock() - self._reading_since_s[oldest])
            )
            if oldest is not None and left_s <= 0:
                del self._reading_since_s[oldest]
                oldest.abort()
                left_s = STALE_FRAME_S
            changed = self._changed
            try:
                async with asyncio.timeout(
                    min(STALE_FRAME_S, max(left_s, 0.01)) if oldest else STALE_FRAME_S
                ):
                    await changed.wait()
            except TimeoutError:
                continue
        self._used += size
        self._reading_since_s[wire] = clock()

    def whole(self, wire: Wire) -> None:
        """Note that a frame is whole, or will never be."""
        self._reading_since_s.pop(wire, None)

    def give_back(self, size: int) -> None:
        """Give room back."""
        self._used -= size
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


class Served(Protocol):
    """A connection as `Turns` knows it.

    `spent` is what was done for it so far, in bytes.
    """

    spent: float


class Turns:
    """Calls that make much work, some at a time: for whom least was done so far goes first."""

    def __init__(self, most: int) -> None:
        self._free = most
        self._waiting: list[tuple[Served, asyncio.Future[None]]] = []

    async def begin(self, who: Served) -> None:
        """Wait for one's turn."""
        if self._free > 0:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((who, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.end()
            self._waiting = [one for one in self._waiting if one[1] is not turn]
            raise

    def end(self) -> None:
        """Let the next one have its turn."""
        if not self._waiting:
            self._free += 1
            return
        place = min(range(len(self._waiting)), key=lambda n: self._waiting[n][0].spent)
        _, turn = self._waiting.pop(place)
        if turn.done():
            self.end()
        else:
            turn.set_result(None)
