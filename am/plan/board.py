"""The board: the virtual resource-time space of m machines, d resources and unbounded time.

Graphene section 4.2. The loops are in `board_kernels`; here is its memory. Times are ticks and
amounts units of a `Grid`.
"""

import numpy as np
from numpy.typing import NDArray

from am.plan import board_kernels as kernels
from am.plan.board_kernels import OPEN_MARKS_MAX, Space
from am.plan.link_kernels import Waits
from am.plan.part_kernels import Part
from am.plan.placing_kernels import Scratch
from weft.model.dag import Ints

Labels = NDArray[np.int8]


def space_of(room: Ints, breakpoints: int) -> Space:
    """Return an empty space: `room` (m, d) units by machine; the pool begins with `breakpoints`."""
    machines, resources = room.shape
    differs = np.any(room[1:] != room[:-1], axis=1)
    low = np.concatenate([[0], np.flatnonzero(differs) + 1]).astype(np.int64)
    count = np.diff(np.append(low, machines)).astype(np.int64)
    pool = max(breakpoints, 4 * len(low) + 64)
    space = Space(
        capacity=np.ascontiguousarray(room[low]),
        class_lo=low,
        class_count=count,
        class_of=np.arange(len(low), dtype=np.int64),
        table=np.zeros((7, machines), np.int64),
        state=np.zeros(kernels.STATE, np.int64),
        times=np.zeros(pool, np.int64),
        free=np.zeros((pool, resources), np.int64),
        kept_table=np.zeros((OPEN_MARKS_MAX, 7, machines), np.int64),
        kept_state=np.zeros((OPEN_MARKS_MAX, kernels.STATE), np.int64),
        heap_key=np.zeros(machines, np.int64),
        heap_machine=np.zeros(machines, np.int64),
        segment_at=np.zeros(machines, np.int64),
    )
    kernels.clear(space)
    return space


def grown(space: Space) -> Space:
    """Return the same space with twice the pool, empty, as after an overflow."""
    larger = space._replace(
        times=np.zeros(2 * len(space.times), np.int64),
        free=np.zeros((2 * len(space.times), space.free.shape[1]), np.int64),
    )
    kernels.clear(larger)
    return larger


def scratch_of(part: Part) -> Scratch:
    """Return the working memory to place one part's tasks."""
    tasks, stages = len(part.links.stage), len(part.links.first) - 1

    def ints(*shape: int) -> Ints:
        return np.zeros(shape, np.int64)

    def labels(size: int) -> Labels:
        return np.zeros(size, np.int8)

    return Scratch(
        start=ints(tasks),
        machine=ints(tasks),
        front=ints(2, stages),
        kept_front=ints(OPEN_MARKS_MAX, 2, stages),
        member=ints(tasks),
        member_start=ints(5),
        on=labels(4),
        waits=Waits(ints(tasks), ints(stages), ints(stages)),
        ready=ints(tasks),
        earliest=ints(stages),
        key=ints(tasks),
        queue=ints(tasks),
        head=ints(tasks),
        tail=ints(tasks),
        heap=ints(tasks),
        waiting=labels(tasks),
        sizes=ints(1),
        spots=ints(3),
    )
