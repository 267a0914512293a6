"""Facts on their way to whoever watches: each of a container by itself, numbered, as JSON."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import islice

from weft.model.errors import InputError
from weft.protocol.facts import Fact, RunFact, count_of, facts_of
from weft.runtime.factlines import fact_line

WATCHERS_MAX = 1_000
# So many facts are kept, for those who come back and for those who are slow.
KEPT_FACTS_MAX = 50_000
BATCH_MAX = 100


@dataclass(slots=True)
class _Noted:
    """A fact, or those of a run, and its JSON once somebody took it: of all watchers the same."""

    now: float
    noted: Fact | RunFact
    count: int
    lines: list[str] | None = None


class Watching:
    """The newest facts, and those who watch: each only knows how far it has read."""

    def __init__(self) -> None:
        self._watchers: set[asyncio.Event] = set()
        self._kept: deque[_Noted] = deque()
        # So many came before those that are kept.
        self._dropped = 0
        # Each container of a run has a fact of its own.
        self._kept_facts = 0
        # It is the number of the newest fact; a restarted manager continues above, as no facts come
        # one a microsecond.
        self._number = int(time.time() * 1e6)

    def note(self, noted: Fact | RunFact, now: float) -> None:
        """Keep a fact, or those of a run, and wake the watchers."""
        count = count_of(noted)
        self._kept.append(_Noted(now, noted, count))
        self._kept_facts += count
        while self._kept_facts > KEPT_FACTS_MAX and len(self._kept) > 1:
            self._kept_facts -= self._kept.popleft().count
            self._dropped += 1
        self._number += count
        for wake in self._watchers:
            wake.set()

    async def watch(self, after: int = 0) -> AsyncIterator[tuple[int, list[str]]]:
        """Yield batches of facts as JSON, each with the number of its first, from now on.

        `after`: the kept facts with larger numbers come first; 0: none. Raises InputError for one
        watcher too many, and for one that reads more slowly than facts come.
        """
        if len(self._watchers) >= WATCHERS_MAX:
            raise InputError("", f"{WATCHERS_MAX} watchers are the most at a time")
        place, skip, number = self._begin(after)
        wake = asyncio.Event()
        self._watchers.add(wake)
        try:
            while True:
                if place < self._dropped:
                    text = f"{KEPT_FACTS_MAX} facts waited for this watcher, which reads too slowly"
                    raise InputError("", text)
                lines: list[str] = []
                for noted in islice(self._kept, place - self._dropped, None):
                    taken = _lines(noted)[skip : skip + BATCH_MAX - len(lines)]
                    lines += taken
                    skip += len(taken)
                    if skip < noted.count:
                        break
                    place, skip = place + 1, 0
                if lines:
                    yield number, lines
                    number += len(lines)
                else:
                    wake.clear()
                    await wake.wait()
        finally:
            self._watchers.discard(wake)

    def _begin(self, after: int) -> tuple[int, int, int]:
        """Return the first entry to read, how many of its facts not, and the number of the next."""
        oldest = self._number - self._kept_facts + 1
        left = min(max(0, after + 1 - oldest), self._kept_facts) if after else self._kept_facts
        place, skip = self._dropped + len(self._kept), 0
        if left < self._kept_facts:
            place, skip = self._dropped, left
            for noted in self._kept:
                if skip < noted.count:
                    break
                place, skip = place + 1, skip - noted.count
        return place, skip, oldest + left


def _lines(noted: _Noted) -> list[str]:
    if noted.lines is None:
        noted.lines = [fact_line(fact, noted.now) for fact in facts_of(noted.noted)]
    return noted.lines
