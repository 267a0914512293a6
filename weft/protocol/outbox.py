"""Repeat until acknowledged: what a sender still owes one receiver.

Items are keyed, so the newest value of a key wins. A batch that is not acknowledged within
`resend_after_s` is sent again under a new number; it has at most `BATCH_MAX` items. Over a link
that loses nothing (a simulation's) nothing is kept, and nobody acknowledges.
"""

from itertools import islice
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")
# A message carries at most so many items; the rest follows with the next.
BATCH_MAX = 10_000


class Outbox(Generic[K, V]):
    """Keyed items on their way to one receiver."""

    __slots__ = ("_flying", "_fresh", "_lossless", "_next", "resend_after_s")

    def __init__(self, resend_after_s: float, first: int = 1, *, lossless: bool = False) -> None:
        """`first` is the first batch's number: a restarted sender must not use numbers again."""
        self.resend_after_s = resend_after_s
        self._lossless = lossless
        self._fresh: dict[K, V] = {}
        self._flying: dict[int, tuple[float, dict[K, V]]] = {}
        self._next = first

    def put(self, key: K, value: V) -> None:
        """Add an item to send; it replaces an unsent item of the same key."""
        self._fresh[key] = value

    def drop(self, key: K, other: K | None = None) -> None:
        """Remove an item, and another one if it is given."""
        if self._fresh:
            self._fresh.pop(key, None)
            if other is not None:
                self._fresh.pop(other, None)
        if self._flying:
            for _, items in self._flying.values():
                items.pop(key, None)
                if other is not None:
                    items.pop(other, None)

    def clear(self) -> None:
        """Remove all items."""
        self._fresh.clear()
        self._flying.clear()

    @property
    def fresh(self) -> int:
        """Number of items that were not sent yet."""
        return len(self._fresh)

    @property
    def owes(self) -> bool:
        """Whether anything waits to be sent, or for an answer."""
        return bool(self._fresh or self._flying)

    @property
    def unacknowledged(self) -> bool:
        """Whether a batch is on its way."""
        return bool(self._flying)

    def nothing(self) -> bool:
        """Return whether the next batch would be empty; where it would, it is counted as taken."""
        if self._fresh or self._flying:
            return False
        self._next += 1
        return True

    def take(self, now: float) -> tuple[int, list[V]]:
        """Take the next batch and its number: fresh items, and those unanswered for too long."""
        number = self._next
        self._next = number + 1
        if self._flying:
            for old in [
                n for n, (sent, _) in self._flying.items() if now - sent >= self.resend_after_s
            ]:
                for key, value in self._flying.pop(old)[1].items():
                    self._fresh.setdefault(key, value)
        items = self._fresh
        if not items:
            return number, []
        self._fresh = {}
        if self._lossless:
            return number, list(items.values())
        if len(items) > BATCH_MAX:
            # A message that is too long would be refused for ever.
            self._fresh = dict(islice(items.items(), BATCH_MAX, None))
            items = dict(islice(items.items(), BATCH_MAX))
        for _, older in self._flying.values():
            if not older.keys().isdisjoint(items):
                for key in older.keys() & items.keys():
                    del older[key]
        self._flying[number] = (now, items)
        return number, list(items.values())

    def again(self) -> None:
        """Send with the next batch all that was not answered: the receiver listens anew."""
        for _, items in self._flying.values():
            for key, value in items.items():
                self._fresh.setdefault(key, value)
        self._flying.clear()

    def acknowledge(self, numbers: tuple[int, ...]) -> None:
        """Forget the batches that arrived."""
        for number in numbers:
            self._flying.pop(number, None)
