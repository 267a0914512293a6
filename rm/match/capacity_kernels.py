"""The Capacity Scheduler's choice, compiled: hungriest queue, first application, best row."""

import numpy as np

from rm.match.candidate_kernels import Candidates
from rm.match.delay_kernels import waits
from rm.match.limit_kernels import Gate, admits, next_queue, take, used
from rm.match.line_kernels import turn
from rm.match.score_kernels import FEW, FIT, longer
from weft.compiled import kernel, making_kernel
from weft.dag import Floats, Ints


@kernel
def _before(a: int, b: int, found: Candidates, priority: Ints, order: Ints) -> bool:
    """The line's order, then nearness, then the earlier ask."""
    first = turn(a, b, found.app, found.pri, priority, order)
    if first != 0:
        return first < 0
    if found.level[a] != found.level[b]:
        return bool(found.level[a] < found.level[b])
    return bool(found.rank[a] < found.rank[b])


@kernel
def _fits(packing: Floats, free: Floats) -> bool:
    lacking = 0
    for r in range(free.shape[0]):
        if packing[r] > 0.0 and packing[r] > free[r] + FIT:
            lacking += 1
    return lacking == 0


@making_kernel
def pick(
    found: Candidates,
    gate: Gate,
    level: Ints,
    missed: Ints,
    priority: Ints,
    order: Ints,
    node_delay: int,
    rack_delay: int,
) -> tuple[Ints, Ints]:
    """Candidates in the order in which they are granted, one container each, and those that
    declined and got nothing.

    `level` and `missed` are by row; `priority` and `order` by application slot. The arrays of
    `found` and `gate` are working copies that change.
    """
    k = found.packing.shape[0]
    left = found.pending.copy()
    picked = np.empty(FEW, dtype=np.int64)
    declined = np.zeros(k, dtype=np.bool_)
    queues = gate.parent.shape[0]
    best, share = np.empty(queues, dtype=np.int64), np.empty(queues)
    only = int(np.argmax(gate.is_leaf))  # where there is one leaf queue
    n = 0
    while True:
        if n == picked.shape[0]:
            picked = longer(picked)
        best[:] = -1
        for i in range(k):
            if left[i] <= 0:
                continue
            if not _fits(found.packing[i], found.free):
                left[i] = 0  # what is free only shrinks
                continue
            leaf = gate.queue[found.app[i]]
            if best[leaf] >= 0 and not _before(i, best[leaf], found, priority, order):
                continue
            if not admits(gate, found.app[i], found.work[i]):
                continue
            row = found.rows[i]
            if waits(level[row], missed[row], node_delay, rack_delay):
                declined[i] = True
                continue
            best[leaf] = i
        leaf = only
        if gate.several:
            for queue in range(queues):
                share[queue] = used(gate, queue)
            leaf = next_queue(gate, best, found.rank, share)
        chosen = best[leaf] if leaf >= 0 else -1
        if chosen < 0:
            break
        picked[n] = chosen
        n += 1
        left[chosen] -= 1
        take(gate, found.app[chosen], found.work[chosen])
        for r in range(found.free.shape[0]):
            found.free[r] -= found.packing[chosen, r]
    return picked[:n], np.flatnonzero(declined)
