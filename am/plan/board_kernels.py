"""The board's inner loops: profiles of free capacity, fits into holes, runs of equal tasks.

Machines with equal profiles stand next to each other in one *segment*, so a stage that fills a
hundred machines alike costs one fit. A profile is a row of breakpoints `times` (ticks) with the
free units from each on; the first is minus infinity and the last row is the empty machine, so the
space has no end in either direction. Profiles lie in a pool; a segment writes only a block that it
owns, so undoing is to bring back the table of segments (see `mark` and `undo`).

Everything is integer (ticks of time, units of resources): sums come out exactly, whatever the
order.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.policies.compiled import inner_kernel, kernel

Ints = NDArray[np.int64]

# A time beyond every time of the space.
FAR = 1 << 61
OPEN_MARKS_MAX = 6

# rows of `Space.table`: one column a segment
LO, COUNT, OFFSET, LENGTH, ROOM, CLASS, OWNED = range(7)
# entries of `Space.state`
SEGMENTS, TOP, BEGIN, END, PLACED, OVERFLOW, HEAP = range(7)
STATE = 7


class Space(NamedTuple):
    """A partly filled resource-time space; m machines, d resources, c machine classes.

    `table` (7, m) and `state` (7,) are what `mark` keeps in `kept_table`, `kept_state`. `times`
    (p,) and `free` (p, d) are the pool of profiles; `capacity` (c, d) units. `heap_key`,
    `heap_machine` (m,) serve one run of equal tasks: where each segment's next fit is at the
    earliest, by its first machine, whose segment `segment_at` (m,) has.
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
    heap_machine: Ints
    segment_at: Ints


@kernel
def clear(space: Space) -> None:
    """Take everything off the board."""
    state, table = space.state, space.table
    for i in range(STATE):
        state[i] = 0
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
        for r in range(space.free.shape[1]):
            space.free[s, r] = space.capacity[space.class_of[s], r]
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
    for i in range(STATE):
        space.kept_state[level, i] = space.state[i]


@kernel
def undo(space: Space, level: int) -> None:
    """Bring the board back to what it was at the mark, exactly; the mark stays."""
    for i in range(STATE):
        space.state[i] = space.kept_state[level, i]
    for row in range(7):
        for s in range(space.state[SEGMENTS]):
            space.table[row, s] = space.kept_table[level, row, s]


@inner_kernel
def locate(times: Ints, low: int, high: int, time: int) -> int:
    """Return the last pool index in [low, high) whose breakpoint is not after `time`."""
    while high - low > 1:
        middle = (low + high) // 2
        if times[middle] <= time:
            low = middle
        else:
            high = middle
    return low


@inner_kernel
def holds(free: Ints, row: int, demand: Ints) -> bool:
    """Return whether one more task fits beside what a row of a profile leaves free."""
    for r in range(len(demand)):  # noqa: SIM110 (compiled)
        if free[row, r] < demand[r]:
            return False
    return True


@inner_kernel
def fit_forward(space: Space, segment: int, earliest: int, length: int, demand: Ints) -> int:
    """Return the earliest start >= `earliest` of a task on a machine of a segment, with holes."""
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


@inner_kernel
def fit_backward(space: Space, segment: int, latest: int, length: int, demand: Ints) -> int:
    """Return the latest end <= `latest` of a task on a machine of a segment, with holes."""
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


@inner_kernel
def room_at(space: Space, segment: int, start: int, end: int, demand: Ints, wanted: int) -> int:
    """Return how many equal tasks fit a machine of a segment in [start, end), at most `wanted`."""
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


@inner_kernel
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


@inner_kernel
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


@inner_kernel
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


@inner_kernel
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


@inner_kernel
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
    return int(new)
