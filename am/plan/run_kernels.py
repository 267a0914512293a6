"""Runs of equal tasks on the board: the next fit of all machines, as many at one start as fit.

Siblings' earliest fits only move away while they are placed, so one heap of bounds from below
serves a whole run: its cost follows the distinct fits, not tasks times machines.
"""

import numpy as np
from numpy.typing import NDArray

from am.plan.board_kernels import (
    CLASS,
    COUNT,
    END,
    FAR,
    HEAP,
    LO,
    OVERFLOW,
    SEGMENTS,
    Space,
    clear,
    fit_backward,
    fit_forward,
    reserve,
    room_at,
    split,
)
from am.plan.heap_kernels import push_pair, sink_pair
from weft.policies.compiled import inner_kernel, kernel

Ints = NDArray[np.int64]


@inner_kernel
def top_segment(space: Space) -> int:
    """Return the segment at the heap's top; ties go to the lower machine."""
    return int(space.segment_at[space.heap_machine[0]])


@inner_kernel
def _add(space: Space, key: int, segment: int) -> None:
    """Add a segment to the heap."""
    machine = space.table[LO, segment]
    space.segment_at[machine] = segment
    push_pair(space.heap_key, space.heap_machine, space.state[HEAP], key, machine)
    space.state[HEAP] += 1


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
            _add(space, key, s)


@kernel
def next_fit(space: Space, sign: int, key: int, length: int, demand: Ints) -> int:
    """Bring the segment with the first fit at or after `key` to the heap's top; its fit, or FAR.

    Fits only move away while a run lasts, so a stale key is a bound from below: the top is looked
    up again until it stands. Ties go to the lower machine.
    """
    if space.state[HEAP] == 0:
        return FAR
    while True:
        segment = top_segment(space)
        least = max(space.heap_key[0], key)
        if sign > 0:
            found = fit_forward(space, segment, least, length, demand)
        else:
            found = -fit_backward(space, segment, -least, length, demand)
        if found == space.heap_key[0]:
            return int(found)
        space.heap_key[0] = found
        sink_pair(space.heap_key, space.heap_machine, space.state[HEAP], 0)
        if top_segment(space) == segment:
            return int(found)


@kernel
def place_batch(
    space: Space, sign: int, key: int, length: int, demand: Ints, tasks: int, spots: Ints
) -> int:
    """Place up to `tasks` equal tasks at the first fit, one segment's worth; return how many.

    `spots` gets [start, first machine, tasks a machine]: the tasks fill machine after machine.
    Needs `open_run` for this demand with a key not after `key`.
    """
    found = next_fit(space, sign, key, length, demand)
    start = found if sign > 0 else -found - length
    segment = top_segment(space)
    each = tasks
    if length > 0:
        each = room_at(space, segment, start, start + length, demand, tasks)
    machines = space.table[COUNT, segment]
    spots[0], spots[1], spots[2] = start, space.table[LO, segment], each
    full = tasks // each
    if full >= machines:
        reserve(space, segment, start, start + length, demand, each)
        return int(each * machines)
    left = tasks - full * each
    if full == 0:
        full, each, left = 1, left, 0
    used = full + (1 if left > 0 else 0)
    if used < machines:
        _add(space, found, split(space, segment, used))
    if left > 0:
        last = split(space, segment, full)
        _add(space, found, last)
        reserve(space, last, start, start + length, demand, left)
    reserve(space, segment, start, start + length, demand, each)
    return tasks


@kernel
def pack(space: Space, length: Ints, demand: Ints, spots: Ints) -> int:
    """Place independent tasks in the order given, each at its earliest fit; return the last end.

    -1 where the pool is too small; `spots` (3,) is working memory.
    """
    clear(space)
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
