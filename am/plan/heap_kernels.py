"""Compiled binary heaps in plain arrays: ready tasks by rank, running tasks by their end."""

from weft.compiled import inner_kernel
from weft.dag import Floats, Ints


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
def push_end(ends: Floats, tasks: Ints, size: int, end: float, task: int) -> None:
    """Add a running task to the heap by (end, task)."""
    at = size
    while at > 0:
        up = (at - 1) // 2
        if ends[up] < end or (ends[up] == end and tasks[up] < task):
            break
        ends[at] = ends[up]
        tasks[at] = tasks[up]
        at = up
    ends[at] = end
    tasks[at] = task


@inner_kernel
def pop_end(ends: Floats, tasks: Ints, size: int) -> None:
    """Take the first end off the heap; the caller has read it at position 0."""
    size -= 1
    end, task = ends[size], tasks[size]
    at = 0
    while True:
        down = 2 * at + 1
        if down >= size:
            break
        other = down + 1
        if other < size and (
            ends[other] < ends[down] or (ends[other] == ends[down] and tasks[other] < tasks[down])
        ):
            down = other
        if ends[down] > end or (ends[down] == end and tasks[down] >= task):
            break
        ends[at] = ends[down]
        tasks[at] = tasks[down]
        at = down
    ends[at] = end
    tasks[at] = task
