"""The board's inner loops: profiles of free capacity, fits into holes, runs of equal tasks.

Machines with equal profiles stand next to each other in one *segment*, so a stage that fills a
hundred machines alike costs one fit. A profile is a row of breakpoints `times` (ticks) with the free
units from each on; the first is minus infinity and the last row is the empty machine, so the space
has no end in either direction. Profiles lie in a pool; a segment writes only a block that it owns,
so undoing is to bring back the table of segments (see `mark` and `undo`).

Everything is integer (ticks of time, units of resources): sums come out exactly, whatever the order.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.compiled import kernel

Ints = NDArray[np.int64]

FAR = 1 << 61  # beyond every time of the space
LEVELS = 6  # marks that may be open at the same time

# rows of `Space.table`: one column a segment
LO, COUNT, OFFSET, LENGTH, ROOM, CLASS, OWNED = range(7)
# entries of `Space.state`
SEGMENTS, TOP, BEGIN, END, PLACED, OVERFLOW, HEAP = range(7)
STATE = 7


class Space(NamedTuple):
    """A partly filled resource-time space; m machines, d resources, c machine classes.

    `table` (7, m) and `state` (7,) are what `mark` keeps in `kept_table`, `kept_state`. `times` (p,)
    and `free` (p, d) are the pool of profiles; `capacity` (c, d) units. `heap_key`, `heap_segment`
    (m,) serve one run of equal tasks: where each segment's next fit is at the earliest.
    """

    capacity: Ints
    class_lo: Ints
    class_count: Ints
    class_of: Ints
    table: Ints
    state: Ints
    times: Ints
    free: Ints
    kept_table: Ints
    kept_state: Ints
    heap_key: Ints
    heap_segment: Ints


@kernel
def clear(space: Space) -> None:
    """Take everything off the board."""
    state, table = space.state, space.table
    state[:] = 0
    state[SEGMENTS] = len(space.class_lo)
    for s in range(len(space.class_lo)):
        table[LO, s] = space.class_lo[s]
        table[COUNT, s] = space.class_count[s]
        table[OFFSET, s] = s
        table[LENGTH, s] = 1
        table[ROOM, s] = 1
        table[CLASS, s] = space.class_of[s]
        table[OWNED, s] = 0
        space.times[s] = -FAR
        space.free[s] = space.capacity[space.class_of[s]]
    state[TOP] = len(space.class_lo)


@kernel
def mark(space: Space, level: int) -> None:
    """Remember the board as it is now; from here on profiles are copied before they change."""
    segments = space.state[SEGMENTS]
    for s in range(segments):
        space.table[OWNED, s] = 0
    for row in range(7):
        for s in range(segments):
            space.kept_table[level, row, s] = space.table[row, s]
    space.kept_state[level] = space.state


@kernel
def undo(space: Space, level: int) -> None:
    """Bring the board back to what it was at the mark, exactly; the mark stays."""
    space.state[:] = space.kept_state[level]
    for row in range(7):
        for s in range(space.state[SEGMENTS]):
            space.table[row, s] = space.kept_table[level, row, s]


@kernel
def locate(times: Ints, low: int, high: int, time: int) -> int:
    """The last pool index in [low, high) whose breakpoint is not after `time`."""
    while high - low > 1:
        middle = (low + high) // 2
        if times[middle] <= time:
            low = middle
        else:
            high = middle
    return low


@kernel
def holds(free: Ints, row: int, demand: Ints) -> bool:
    """Whether one more task fits beside what a row of a profile leaves free."""
    for r in range(len(demand)):
        if free[row, r] < demand[r]:
            return False
    return True


@kernel
def fit_forward(space: Space, segment: int, earliest: int, length: int, demand: Ints) -> int:
    """The earliest start >= `earliest` of a task on a machine of a segment, holes included."""
    times, free = space.times, space.free
    low = space.table[OFFSET, segment]
    high = low + space.table[LENGTH, segment]
    row = locate(times, low, high, earliest)
    start = earliest
    while True:
        if not holds(free, row, demand):
            row += 1
            if row == high:
                return FAR
            start = times[row]
        else:
            row += 1
            if row == high or times[row] >= start + length:
                return start


@kernel
def fit_backward(space: Space, segment: int, latest: int, length: int, demand: Ints) -> int:
    """The latest end <= `latest` of a task on a machine of a segment, holes included."""
    times, free = space.times, space.free
    low = space.table[OFFSET, segment]
    high = low + space.table[LENGTH, segment]
    row = locate(times, low, high, latest - 1)
    end = latest
    while True:
        if not holds(free, row, demand):
            if row == low:
                return -FAR
            end = times[row]
        elif times[row] <= end - length:
            return end
        row -= 1


@kernel
def room_at(
    space: Space, segment: int, start: int, end: int, demand: Ints, wanted: int
) -> int:
    """How many equal tasks fit on one machine of a segment in [start, end), at most `wanted`."""
    times, free = space.times, space.free
    low = space.table[OFFSET, segment]
    high = low + space.table[LENGTH, segment]
    row = locate(times, low, high, start)
    fits = wanted
    while row < high and times[row] < end:
        for r in range(len(demand)):
            if free[row, r] < fits * demand[r]:
                fits = free[row, r] // demand[r]
        row += 1
    return fits


@kernel
def _own(space: Space, segment: int) -> bool:
    """Give a segment a block of its own with space for two more breakpoints; False if full."""
    table, state = space.table, space.state
    length = table[LENGTH, segment]
    if table[OWNED, segment] == 1 and length + 2 <= table[ROOM, segment]:
        return True
    room = length + 2 + length // 2 + 4
    top = state[TOP]
    if top + room > len(space.times):
        state[OVERFLOW] = 1
        return False
    old = table[OFFSET, segment]
    for i in range(length):
        space.times[top + i] = space.times[old + i]
        for r in range(space.free.shape[1]):
            space.free[top + i, r] = space.free[old + i, r]
    table[OFFSET, segment] = top
    table[ROOM, segment] = room
    table[OWNED, segment] = 1
    state[TOP] = top + room
    return True


@kernel
def _insert(space: Space, segment: int, row: int, time: int) -> None:
    """Add a breakpoint after `row` with the same free units."""
    times, free = space.times, space.free
    last = space.table[OFFSET, segment] + space.table[LENGTH, segment] - 1
    for i in range(last, row, -1):
        times[i + 1] = times[i]
        for r in range(free.shape[1]):
            free[i + 1, r] = free[i, r]
    times[row + 1] = time
    for r in range(free.shape[1]):
        free[row + 1, r] = free[row, r]
    space.table[LENGTH, segment] += 1


@kernel
def _join(space: Space, segment: int, row: int) -> bool:
    """Drop the breakpoint at `row` where it separates equal rows."""
    times, free = space.times, space.free
    for r in range(free.shape[1]):
        if free[row, r] != free[row - 1, r]:
            return False
    last = space.table[OFFSET, segment] + space.table[LENGTH, segment] - 1
    for i in range(row, last):
        times[i] = times[i + 1]
        for r in range(free.shape[1]):
            free[i, r] = free[i + 1, r]
    space.table[LENGTH, segment] -= 1
    return True


@kernel
def reserve(space: Space, segment: int, start: int, end: int, demand: Ints, tasks: int) -> None:
    """Take `tasks` times `demand` in [start, end) from each machine of a segment."""
    if start < space.state[BEGIN] or space.state[PLACED] == 0:
        space.state[BEGIN] = start
    if end > space.state[END] or space.state[PLACED] == 0:
        space.state[END] = end
    space.state[PLACED] += tasks * space.table[COUNT, segment]
    if start == end or not _own(space, segment):
        return
    times, free = space.times, space.free
    low = space.table[OFFSET, segment]
    first = locate(times, low, low + space.table[LENGTH, segment], start)
    if times[first] != start:
        _insert(space, segment, first, start)
        first += 1
    row = first
    high = low + space.table[LENGTH, segment]
    while row < high and times[row] < end:
        if row + 1 == high or times[row + 1] > end:
            _insert(space, segment, row, end)
            high += 1
        for r in range(free.shape[1]):
            free[row, r] -= tasks * demand[r]
        row += 1
    _join(space, segment, row)
    _join(space, segment, first)


@kernel
def split(space: Space, segment: int, count: int) -> int:
    """Keep the first `count` machines in a segment; the rest become a new one, returned."""
    table = space.table
    new = space.state[SEGMENTS]
    space.state[SEGMENTS] += 1
    for row in range(7):
        table[row, new] = table[row, segment]
    table[OWNED, segment] = 0
    table[OWNED, new] = 0
    table[COUNT, segment] = count
    table[LO, new] += count
    table[COUNT, new] -= count
    return new


@kernel
def _less(space: Space, a: int, b: int) -> bool:
    keys, segments = space.heap_key, space.heap_segment
    if keys[a] != keys[b]:
        return bool(keys[a] < keys[b])
    return bool(space.table[LO, segments[a]] < space.table[LO, segments[b]])


@kernel
def _swap(space: Space, a: int, b: int) -> None:
    keys, segments = space.heap_key, space.heap_segment
    keys[a], keys[b] = keys[b], keys[a]
    segments[a], segments[b] = segments[b], segments[a]


@kernel
def _sink(space: Space, at: int) -> None:
    size = space.state[HEAP]
    while True:
        child = 2 * at + 1
        if child >= size:
            return
        if child + 1 < size and _less(space, child + 1, child):
            child += 1
        if not _less(space, child, at):
            return
        _swap(space, at, child)
        at = child


@kernel
def _push(space: Space, key: int, segment: int) -> None:
    at = space.state[HEAP]
    space.state[HEAP] += 1
    space.heap_key[at] = key
    space.heap_segment[at] = segment
    while at > 0 and _less(space, at, (at - 1) // 2):
        _swap(space, at, (at - 1) // 2)
        at = (at - 1) // 2


@kernel
def open_run(space: Space, key: int, demand: Ints) -> None:
    """Begin a run of tasks of one demand: no segment's next fit is before `key`.

    Times are in the direction of placement: a start forward, minus an end backward.
    """
    space.state[HEAP] = 0
    for s in range(space.state[SEGMENTS]):
        fits = True
        for r in range(len(demand)):
            fits = fits and demand[r] <= space.capacity[space.table[CLASS, s], r]
        if fits:
            at = space.state[HEAP]
            space.state[HEAP] += 1
            space.heap_key[at] = key
            space.heap_segment[at] = s
    for at in range(space.state[HEAP] // 2 - 1, -1, -1):
        _sink(space, at)


@kernel
def next_fit(space: Space, sign: int, key: int, length: int, demand: Ints) -> int:
    """Bring the segment with the first fit at or after `key` to the heap's top; its fit, or FAR.

    Fits only move away while a run lasts, so a stale key is a bound from below: the top is looked up
    again until it stands. Ties go to the lower machine.
    """
    if space.state[HEAP] == 0:
        return FAR
    while True:
        segment = space.heap_segment[0]
        least = max(space.heap_key[0], key)
        if sign > 0:
            found = fit_forward(space, segment, least, length, demand)
        else:
            found = -fit_backward(space, segment, -least, length, demand)
        if found == space.heap_key[0]:
            return found
        space.heap_key[0] = found
        _sink(space, 0)
        if space.heap_segment[0] == segment:
            return found


@kernel
def place_batch(
    space: Space, sign: int, key: int, length: int, demand: Ints, tasks: int, spots: Ints
) -> int:
    """Place up to `tasks` equal tasks at the first fit, one segment's worth; how many went.

    `spots` gets [start, first machine, tasks a machine]: the tasks fill machine after machine.
    Needs `open_run` for this demand with a key not after `key`.
    """
    found = next_fit(space, sign, key, length, demand)
    start = found if sign > 0 else -found - length
    segment = space.heap_segment[0]
    each = tasks
    if length > 0:
        each = room_at(space, segment, start, start + length, demand, tasks)
    machines = space.table[COUNT, segment]
    spots[0], spots[1], spots[2] = start, space.table[LO, segment], each
    full = tasks // each
    if full >= machines:
        reserve(space, segment, start, start + length, demand, each)
        return each * machines
    left = tasks - full * each
    if full == 0:
        full, each, left = 1, left, 0
    used = full + (1 if left > 0 else 0)
    if used < machines:
        _push(space, found, split(space, segment, used))
    if left > 0:
        last = split(space, segment, full)
        _push(space, found, last)
        reserve(space, last, start, start + length, demand, left)
    reserve(space, segment, start, start + length, demand, each)
    return tasks


@kernel
def pack(space: Space, length: Ints, demand: Ints) -> int:
    """Place independent tasks in the order given, each at its earliest fit; the makespan in ticks.

    -1 where the pool is too small.
    """
    clear(space)
    spots = np.empty(3, np.int64)
    first, tasks = 0, len(length)
    while first < tasks:
        last = first + 1
        while last < tasks and length[last] == length[first]:
            same = True
            for r in range(demand.shape[1]):
                same = same and demand[last, r] == demand[first, r]
            if not same:
                break
            last += 1
        if length[first] > 0:
            open_run(space, 0, demand[first])
        while first < last and length[first] > 0:
            first += place_batch(space, 1, 0, length[first], demand[first], last - first, spots)
            if space.state[OVERFLOW] != 0:
                return -1
        first = last
    return int(space.state[END])
