"""How long streams wait to be read, because what they said before has not been handled yet."""

import asyncio
import time
from collections.abc import Callable, Generator, Hashable

# Who waits for longer on the wall clock is behind, and so is the manager.
BEHIND_S = 1.0


class Unread:
    """The streams that wait. While one does, nobody's silence is his own.

    `tell` is called with a time, s of wall clock, for which reports waited.
    """

    def __init__(self, tell: Callable[[float], None]) -> None:
        self._tell = tell
        self._since: dict[Hashable, float] = {}

    def held(self, stream: Hashable, done: asyncio.Future[None]) -> "Held | None":
        """Return what a stream waits for before it is read on; None: it goes on at once."""
        return None if done.done() else Held(self._since, stream, done)

    async def watch(self) -> None:
        """Tell, as long as it is so."""
        while True:
            await asyncio.sleep(BEHIND_S)
            oldest = min(self._since.values(), default=None)
            if oldest is not None and time.monotonic() - oldest >= BEHIND_S:
                self._tell(BEHIND_S)


class Held:
    """A stream that waits from the time on at which it is awaited."""

    def __init__(
        self, since: dict[Hashable, float], stream: Hashable, done: asyncio.Future[None]
    ) -> None:
        self._since, self._stream, self._done = since, stream, done

    def __await__(self) -> Generator[object, None, None]:
        if self._done.done():
            return
        self._since[self._stream] = time.monotonic()
        try:
            yield from self._done.__await__()
        finally:
            self._since.pop(self._stream, None)
