"""Binary heaps in plain arrays, compiled: of ranks, and of pairs by (key, item)."""

from weft.model.dag import Floats, Ints
from weft.policies.compiled import inner_kernel


@inner_kernel
def push(heap: Ints, base: int, size: int, key: int) -> None:
    """Add a rank to a class's heap of `size`."""
    at = size
    while at > 0:
        up = (at - 1) // 2
        if heap[base + up] <= key:
            break
        heap[base + at] = heap[base + up]
        at = up
    heap[base + at] = key


@inner_kernel
def pop(heap: Ints, base: int, size: int) -> int:
    """Take the smallest rank off a class's heap of `size`."""
    least = heap[base]
    key = heap[base + size - 1]
    size -= 1
    at = 0
    while True:
        down = 2 * at + 1
        if down >= size:
            break
        if down + 1 < size and heap[base + down + 1] < heap[base + down]:
            down += 1
        if heap[base + down] >= key:
            break
        heap[base + at] = heap[base + down]
        at = down
    if size > 0:
        heap[base + at] = key
    return int(least)


@inner_kernel
def push_pair(keys: Floats | Ints, items: Ints, size: int, key: float, item: int) -> None:
    """Add an entry to a heap of `size` by (key, item)."""
    at = size
    while at > 0:
        up = (at - 1) // 2
        if keys[up] < key or (keys[up] == key and items[up] < item):
            break
        keys[at], items[at] = keys[up], items[up]
        at = up
    keys[at], items[at] = key, item


@inner_kernel
def pop_pair(keys: Floats | Ints, items: Ints, size: int) -> None:
    """Take the first entry off a heap of `size`; the caller has read it at position 0."""
    keys[0], items[0] = keys[size - 1], items[size - 1]
    sink_pair(keys, items, size - 1, 0)


@inner_kernel
def sink_pair(keys: Floats | Ints, items: Ints, size: int, at: int) -> None:
    """Move an entry that may be larger than those below it to where it belongs."""
    key, item = keys[at], items[at]
    while True:
        down = 2 * at + 1
        if down >= size:
            break
        other = down + 1
        if other < size and (
            keys[other] < keys[down] or (keys[other] == keys[down] and items[other] < items[down])
        ):
            down = other
        if keys[down] > key or (keys[down] == key and items[down] >= item):
            break
        keys[at], items[at] = keys[down], items[down]
        at = down
    keys[at], items[at] = key, item
