"""Facts on their way to whoever watches: each of a container by itself, numbered, as JSON."""

import asyncio
import itertools
import time
from collections import deque
from collections.abc import AsyncIterator

from weft.model.errors import InputError
from weft.protocol.facts import Fact, RunFact, count_of, facts_of
from weft.runtime.factlines import fact_line

# So many facts wait for one watcher; a slower one is dropped with a word.
WAITING_FACTS_MAX = 50_000
WATCHERS_MAX = 1_000
# So many facts are kept for a watcher that comes back.
KEPT_FACTS_MAX = 50_000
BATCH_MAX = 1_000


class Watching:
    """The newest facts, and those who watch."""

    def __init__(self) -> None:
        self._watchers: set[Watcher] = set()
        self._kept: deque[tuple[float, Fact | RunFact]] = deque()
        # Each container of a run has a fact of its own.
        self._kept_facts = 0
        # It is the number of the newest fact; a restarted manager continues above, as no facts come
        # one a microsecond.
        self._number = int(time.time() * 1e6)

    def note(self, noted: Fact | RunFact, now: float) -> None:
        """Keep a fact, or those of a run, and tell the watchers."""
        count = count_of(noted)
        self._kept.append((now, noted))
        self._kept_facts += count
        while self._kept_facts > KEPT_FACTS_MAX and len(self._kept) > 1:
            self._kept_facts -= count_of(self._kept.popleft()[1])
        self._number += count
        if self._watchers:
            for line in [fact_line(fact, now) for fact in facts_of(noted)]:
                for watcher in self._watchers:
                    watcher.put(line)

    async def watch(self, after: int = 0) -> AsyncIterator[tuple[int, list[str]]]:
        """Yield batches of facts as JSON, each with the number of its first, from now on.

        `after`: the kept facts with larger numbers come first; 0: none. Raises InputError for one
        watcher too many, and for one that reads more slowly than facts come.
        """
        oldest = self._number - self._kept_facts + 1
        skip = min(max(0, after + 1 - oldest), self._kept_facts) if after else self._kept_facts
        if len(self._watchers) >= WATCHERS_MAX:
            raise InputError("", f"{WATCHERS_MAX} watchers are the most at a time")
        kept: list[tuple[float, Fact]] = []
        if skip < self._kept_facts:
            each = ((now, one) for now, noted in self._kept for one in facts_of(noted))
            kept = list(itertools.islice(each, skip, None))
        watcher = Watcher(self._number, kept)
        self._watchers.add(watcher)
        try:
            while True:
                yield await watcher.take()
        finally:
            self._watchers.discard(watcher)


class Watcher:
    """Facts on their way to one client."""

    def __init__(self, newest: int, kept: list[tuple[float, Fact]]) -> None:
        # These are older than `newest`, and are rendered as they are taken.
        self._kept = deque(kept)
        self._next = newest - len(kept) + 1
        self._newest = newest
        self._lines: deque[str] = deque()
        # It fell behind: what it has is thrown away, and it is told.
        self._slow = False
        self._wake = asyncio.Event()

    def put(self, line: str) -> None:
        """Add a fact as JSON; one that would wait behind too many ends the watch."""
        if len(self._lines) >= WAITING_FACTS_MAX:
            self._slow = True
            self._lines.clear()
        if self._slow:
            return
        self._lines.append(line)
        self._newest += 1
        self._wake.set()

    async def take(self) -> tuple[int, list[str]]:
        """Return the number of the first fact, and the facts."""
        if self._kept:
            first, count = self._next, min(len(self._kept), BATCH_MAX)
            self._next += count
            found = [self._kept.popleft() for _ in range(count)]
            return first, [fact_line(fact, now) for now, fact in found]
        while not self._lines:
            if self._slow:
                text = f"{WAITING_FACTS_MAX} facts waited for this watcher, which reads too slowly"
                raise InputError("", text)
            self._wake.clear()
            await self._wake.wait()
        first, count = self._newest - len(self._lines) + 1, min(len(self._lines), BATCH_MAX)
        return first, [self._lines.popleft() for _ in range(count)]
