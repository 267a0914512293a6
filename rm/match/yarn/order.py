"""Orders that Java's collections have, where YARN goes through one."""

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


def in_buckets(items: Iterable[T], code: Callable[[T], int]) -> list[T]:
    """Return items, as they were put in, in the order of a hash table; `code` is without sign."""
    kept = list(items)
    room = 16
    while len(kept) > room * 3 // 4:
        room *= 2
    return sorted(kept, key=lambda one: _spread(code(one)) & (room - 1))


def of_text(name: str) -> int:
    """Return the hash code of a string, without its sign."""
    code = 0
    for letter in name:
        code = (31 * code + ord(letter)) & 0xFFFFFFFF
    return code


def of_node(host: str, port: int = 1) -> int:
    """Return the hash code of a node's id, without its sign."""
    found = (493217 * 8501 + of_text(host)) & 0xFFFFFFFF
    return (493217 * found + port) & 0xFFFFFFFF


def of_priority(number: int) -> int:
    """Return the hash code of a request's key, by its priority."""
    return 31 * 31 * (517861 * 9511 + number) & 0xFFFFFFFF


def _spread(code: int) -> int:
    return code ^ (code >> 16)


class Heap(Generic[T]):
    """A priority queue that gives equal items in the order in which Java's does."""

    def __init__(self, before: Callable[[T, T], int]) -> None:
        self.before = before
        self.items: list[T] = []

    def add(self, item: T) -> None:
        """Put an item in."""
        at, items = len(self.items), self.items
        items.append(item)
        while at:
            above = (at - 1) // 2
            if self.before(item, items[above]) >= 0:
                break
            items[at], at = items[above], above
        items[at] = item

    def poll(self) -> T:
        """Take the first item out."""
        first, last, items = self.items[0], self.items.pop(), self.items
        if not items:
            return first
        at, half = 0, len(items) // 2
        while at < half:
            child = 2 * at + 1
            if child + 1 < len(items) and self.before(items[child], items[child + 1]) > 0:
                child += 1
            if self.before(last, items[child]) <= 0:
                break
            items[at], at = items[child], child
        items[at] = last
        return first
