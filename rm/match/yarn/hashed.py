"""Orders that Java's hash tables have, where YARN goes through one."""

from collections.abc import Callable, Iterable
from typing import TypeVar

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


def _spread(code: int) -> int:
    return code ^ (code >> 16)
