"""The head of a strict queue: priority, submission, preferred order, asking order."""

import numpy as np

from rm.match.filter_kernels import NO_ROOM, OPEN, Asks, Place, blocked_by, copies
from rm.match.limit_kernels import Gate, admits, keep_guarantees, take
from rm.match.line_kernels import turn
from rm.match.score_kernels import FEW, part_of
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
    asks: Asks, place: Place, total: Floats, priority: Ints, order: Ints, gate: Gate
) -> Ints:  # fmt: skip
    """Rows that are served on a node, in order until the head of the line does not fit any more,
    and how many containers of each, shape (k, 2). Rows that an empty node could not hold, or that
    a limit holds back, do not wait. `priority` and `order` are by application slot.
    """
    room, left = place.available.copy(), asks.pending.copy()
    value = np.empty(asks.size if gate.keeps else 0)
    one_by_one = gate.binds or gate.keeps
    picked = np.empty((FEW, 2), dtype=np.int64)
    n = 0
    while True:
        if gate.keeps:
            for row in range(asks.size):
                value[row] = 1.0 if _stands(asks, place, total, gate, left, row) else -1.0
            keep_guarantees(gate, asks.app[: asks.size], value)
        head = -1
        for row in range(asks.size):
            if left[row] <= 0 or (gate.keeps and value[row] < 0.0):
                continue
            if head >= 0 and before(
                head, row, asks.app, asks.pri_score, asks.serial, priority, order
            ):
                continue
            if gate.keeps or _stands(asks, place, total, gate, left, row):
                head = row
        if head < 0:
            break
        most = 1 if one_by_one else left[head]
        copied = copies(asks.demand[head], room, place.capacity, most)
        if copied == 0:
            break
        left[head] -= copied
        for r in range(room.shape[0]):
            room[r] -= copied * asks.demand[head, r]
        if one_by_one:
            take(gate, asks.app[head], part_of(asks.demand[head], total))
        if n > 0 and picked[n - 1, 0] == head:
            picked[n - 1, 1] += copied
            continue
        if n == picked.shape[0]:
            picked = _longer(picked)
        picked[n, 0], picked[n, 1] = head, copied
        n += 1
    return picked[:n]


@making_kernel
def _stands(
    asks: Asks, place: Place, total: Floats, gate: Gate, left: Ints, row: int
) -> bool:  # fmt: skip
    """Whether a row is in the line for a node: it may use it, and no limit holds it back."""
    if left[row] <= 0 or asks.gang[row] or blocked_by(asks, place, row) not in (OPEN, NO_ROOM):
        return False
    return not gate.binds or admits(gate, asks.app[row], part_of(asks.demand[row], total))


@making_kernel
def _longer(values: Ints) -> Ints:
    out = np.empty((2 * values.shape[0], 2), dtype=np.int64)
    out[: values.shape[0]] = values
    return out
