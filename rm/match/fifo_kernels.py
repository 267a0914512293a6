"""The head of a strict queue: priority, submission, preferred order, asking order."""

import numpy as np

from rm.ledger.columns import Bools
from rm.match.fit_kernels import copies, usable
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
def pick(
    count: int,
    pending: Ints,
    app: Ints,
    label: Ints,
    gang: Bools,
    serial: Ints,
    banned: Bools,
    node: int,
    labels: Ints,
    reserved: Ints,
    demand: Floats,
    available: Floats,
    capacity: Floats,
    pri_score: Floats,
    priority: Ints,
    order: Ints,
) -> Ints:
    """Those of the first `count` rows that are served on a node, in order until the head of the
    line does not fit any more, and how many containers of each, shape (k, 2). Rows that an empty
    node could not hold do not wait.
    """
    room = available[node].copy()
    picked = np.empty((count, 2), dtype=np.int64)
    n, last = 0, -1
    while True:
        head = -1
        for row in range(count):
            if last >= 0 and not before(last, row, app, pri_score, serial, priority, order):
                continue
            if head >= 0 and before(head, row, app, pri_score, serial, priority, order):
                continue
            if row != last and usable(
                row, pending, app, label, gang, serial, banned, node, labels, reserved, demand,
                capacity, capacity,
            ):  # fmt: skip
                head = row
        if head < 0:
            break
        copied = copies(demand[head], room, capacity[node], pending[head])
        if copied > 0:
            picked[n, 0], picked[n, 1] = head, copied
            n += 1
            for r in range(room.shape[0]):
                room[r] -= copied * demand[head, r]
        if copied < pending[head]:
            break
        last = head
    return picked[:n]
