"""The Capacity Scheduler's choice, compiled: hungriest queue, first application, best row."""

from typing import NamedTuple

from rm.ledger.columns import Bools
from rm.match.candidate_kernels import Candidates
from rm.match.delay_kernels import waits
from rm.match.filter_kernels import fits_share
from rm.match.limit_kernels import Limits, admits, next_queue, take, used
from rm.match.line_kernels import turn
from weft.model.dag import Floats, Ints
from weft.policies.compiled import inner_kernel, kernel


class Line(NamedTuple):
    """What decides whose turn it is.

    `level` and `missed` are by row, `priority` and `order` by application slot.
    """

    limits: Limits
    level: Ints
    missed: Ints
    priority: Ints
    order: Ints
    node_delay: int
    rack_delay: int


@inner_kernel
def _before(a: int, b: int, found: Candidates, priority: Ints, order: Ints) -> bool:
    """Return whether `a` goes before `b`: the line's order, then nearness, then the earlier ask."""
    first = turn(a, b, found.app, found.pri, priority, order)
    if first != 0:
        return first < 0
    if found.level[a] != found.level[b]:
        return bool(found.level[a] < found.level[b])
    return bool(found.rank[a] < found.rank[b])


class Scratch(NamedTuple):
    """Arrays for a decision to write on: `best` and `share` are (queues,)."""

    best: Ints
    share: Floats


@kernel
def pick(
    found: Candidates, line: Line, scratch: Scratch, picked: Ints, declined: Bools, n: int
) -> int:
    """Fill `picked` (room,) with candidates in the order in which a container is granted to each.

    Those that let their turn go by are marked in `declined` (k,). The arrays of `found` and of the
    limits are working copies that change. Return how many were picked: where that is all that
    `picked` holds, call again with more room and that `n`.
    """
    limits, left, best, share = line.limits, found.pending, scratch.best, scratch.share
    only_leaf = 0
    while not limits.is_leaf[only_leaf]:
        only_leaf += 1
    # Where nothing but room changes, who is first stays first as long as another of it fits.
    stays = not (limits.several or limits.binds) and declined.shape[0] == 0
    while n < picked.shape[0]:
        _first(found, line, left, declined, best)
        leaf = only_leaf
        if limits.several:
            _queue_shares(limits, share)
            leaf = next_queue(limits, best, found.rank, share)
        chosen = best[leaf] if leaf >= 0 else -1
        if chosen < 0:
            break
        again = True
        while again:
            picked[n] = chosen
            n += 1
            left[chosen] -= 1
            _place(found, limits, chosen)
            again = stays and n < picked.shape[0] and left[chosen] > 0
            again = again and fits_share(found.packing[chosen], found.free)
    return n


@kernel
def in_runs(found: Candidates, picked: Ints, n: int, runs: Ints) -> int:
    """Fill `runs` (room, 3) with the row, the place of the first and the number of like picks.

    Those are the first `n` of `picked`, where the same candidate came several times in a row.
    Return how many runs there are; `runs` has room for as many as `picked` has.
    """
    count = 0
    for at in range(n):
        if at > 0 and picked[at] == picked[at - 1]:
            runs[count - 1, 2] += 1
            continue
        runs[count, 0], runs[count, 1], runs[count, 2] = found.rows[picked[at]], at, 1
        count += 1
    return count


@inner_kernel
def _first(found: Candidates, line: Line, left: Ints, declined: Bools, best: Ints) -> None:
    """Fill `best` (queues,) with the row that is first in the line of each leaf queue; -1: none."""
    limits = line.limits
    best[:] = -1
    for i in range(left.shape[0]):
        if left[i] <= 0:
            continue
        if not fits_share(found.packing[i], found.free):
            # What is free only shrinks, so it will not fit later either.
            left[i] = 0
            continue
        leaf = limits.queue[found.app[i]]
        if best[leaf] >= 0 and not _before(i, best[leaf], found, line.priority, line.order):
            continue
        if not admits(limits, found.app[i], found.work[i]):
            continue
        row = found.rows[i]
        if waits(line.level[row], line.missed[row], line.node_delay, line.rack_delay):
            declined[i] = True
            continue
        best[leaf] = i


@inner_kernel
def _queue_shares(limits: Limits, share: Floats) -> None:
    """Fill `share` (queues,) with the dominant share that each queue holds."""
    for queue in range(share.shape[0]):
        share[queue] = used(limits, queue)


@inner_kernel
def _place(found: Candidates, limits: Limits, chosen: int) -> None:
    """Count a picked container as held and its room as used."""
    take(limits, found.app[chosen], found.work[chosen])
    for r in range(found.free.shape[0]):
        found.free[r] -= found.packing[chosen, r]
