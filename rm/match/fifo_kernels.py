"""The head of a strict queue: priority, submission, preferred order, asking order."""

import numpy as np

from rm.match.fit_kernels import copies
from weft.compiled import kernel, making_kernel
from weft.dag import Floats, Ints


@kernel
def head(
    rows: Ints, app: Ints, pri_score: Floats, serial: Ints, priority: Ints, order: Ints
) -> int:
    """The first of `rows`: larger priority, earlier application, larger priScore, smaller serial;
    -1 where there is none.
    """
    best = -1
    for i in range(rows.shape[0]):
        row = rows[i]
        if best < 0:
            best = row
            continue
        a, b = app[row], app[best]
        if priority[a] != priority[b]:
            if priority[a] > priority[b]:
                best = row
        elif order[a] != order[b]:
            if order[a] < order[b]:
                best = row
        elif pri_score[row] != pri_score[best]:
            if pri_score[row] > pri_score[best]:
                best = row
        elif serial[row] < serial[best]:
            best = row
    return best


@making_kernel
def pick(
    line: Ints,
    pending: Ints,
    demand: Floats,
    app: Ints,
    pri_score: Floats,
    serial: Ints,
    priority: Ints,
    order: Ints,
    available: Floats,
    capacity: Floats,
) -> tuple[Ints, Ints]:
    """Rows of the line in order, how many containers of each fit, until the head does not fit."""
    left, room = line.copy(), available.copy()
    rows, counts = np.empty_like(line), np.empty_like(line)
    n = 0
    while left.shape[0]:
        first = head(left, app, pri_score, serial, priority, order)
        count = copies(demand[first], room, capacity, pending[first])
        if count > 0:
            rows[n], counts[n] = first, count
            n += 1
            for r in range(room.shape[0]):
                room[r] -= count * demand[first, r]
        if count < pending[first]:
            break
        left = left[left != first]
    return rows[:n], counts[:n]
