"""The head of a strict queue: priority, submission, preferred order, asking order."""

import numpy as np

from rm.match.filter_kernels import NO_ROOM, OPEN, Asks, Place, blocked_by, copies
from rm.match.line_kernels import turn
from weft.compiled import inner_kernel, making_kernel
from weft.dag import Floats, Ints


@inner_kernel
def before(
    a: int, b: int, app: Ints, pri_score: Floats, serial: Ints, priority: Ints, order: Ints
) -> bool:
    """The line's order, then the smaller serial."""
    first = turn(a, b, app, pri_score, priority, order)
    if first != 0:
        return first < 0
    return bool(serial[a] < serial[b])


@making_kernel
def pick(asks: Asks, place: Place, priority: Ints, order: Ints) -> Ints:
    """Rows that are served on a node, in order until the head of the line does not fit any more,
    and how many containers of each, shape (k, 2). Rows that an empty node could not hold do not
    wait.
    """
    room = place.available.copy()
    picked = np.empty((asks.size, 2), dtype=np.int64)
    app, pri_score, serial = asks.app, asks.pri_score, asks.serial
    n, last = 0, -1
    while True:
        head = -1
        for row in range(asks.size):
            if asks.pending[row] <= 0 or asks.gang[row]:
                continue
            if last >= 0 and not before(last, row, app, pri_score, serial, priority, order):
                continue
            if head >= 0 and before(head, row, app, pri_score, serial, priority, order):
                continue
            block = blocked_by(asks, place, row)
            if row != last and block in (OPEN, NO_ROOM):
                head = row
        if head < 0:
            break
        copied = copies(asks.demand[head], room, place.capacity, asks.pending[head])
        if copied > 0:
            picked[n, 0], picked[n, 1] = head, copied
            n += 1
            for r in range(room.shape[0]):
                room[r] -= copied * asks.demand[head, r]
        if copied < asks.pending[head]:
            break
        last = head
    return picked[:n]
