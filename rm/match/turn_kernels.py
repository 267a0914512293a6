"""One container at a time to whose turn it is: by queue at every level, then by application."""

from typing import NamedTuple

import numpy as np

from rm.match.candidate_kernels import Candidates
from rm.match.filter_kernels import fits_share
from rm.match.limit_kernels import (
    Limits,
    admits,
    fill_hdrf_shares,
    keep_guarantees,
    next_queue,
    take,
)
from rm.match.score_kernels import TIE, Picks
from weft.model.dag import Floats, Ints
from weft.policies.compiled import kernel

# As `Line.most` it lets keys grow without a bound.
ANY: Floats = np.zeros(0)
# Queues take turns: not at all, by containers held, or by dominant share.
ANYBODY, CONTAINERS, DOMINANT = 0, 1, 2


class Line(NamedTuple):
    """Whose turn it is; arrays are working copies that change.

    `queues` is ANYBODY, CONTAINERS or DOMINANT; `share` (queues,), for CONTAINERS only, counts
    those held. `key` is (applications,), and the smallest goes first; a pick of a row makes it grow
    by `step` (k,), but not beyond `most` (applications,), unless that is empty. Inside an
    application the largest `pri` (k,) goes first. `pending` is (k,). `waiting` (k,) is 1 for a row
    that lets its turn go by; it is empty where no row does.
    """

    queues: int
    share: Floats
    key: Floats
    step: Floats
    pri: Floats
    pending: Ints
    waiting: Ints
    most: Floats = ANY


class Scratch(NamedTuple):
    """Arrays for a decision to write on: `value` is (k,), `best` and `share` are (queues,)."""

    value: Floats
    best: Ints
    share: Floats


@kernel
def picks_by_turn(
    found: Candidates, line: Line, limits: Limits, scratch: Scratch, picks: Picks, n: int
) -> int:
    """Fill `picks` from place `n` on with candidates for one node; term: their application's key.

    The queue that holds the least over its guarantee goes first, at every level; in a leaf the
    application with the smallest key; inside it the larger `pri`, then the rank. Equal keys: the
    smaller rank. A row that waits declines when its turn comes (`waiting` is 2 afterwards) and is
    out. Return how many were picked: where that is all that `picks` holds, call again with more
    room and that `n`.
    """
    left, value, best, share = line.pending, scratch.value, scratch.best, scratch.share
    picked, keys = picks.candidate, picks.terms
    by_queue = line.queues != ANYBODY and limits.several
    while n < picked.shape[0]:
        compete(found, limits, left, value)
        if line.most.shape[0]:
            _keep_within(found, line, value)
        _first(found, line, limits, by_queue, value, best)
        chosen = best[0]
        if by_queue:
            if line.queues == CONTAINERS:
                for queue in range(share.shape[0]):
                    share[queue] = line.share[queue]
            else:
                fill_hdrf_shares(limits, best, share)
            leaf = next_queue(limits, best, found.rank, share)
            chosen = best[leaf] if leaf >= 0 else -1
        if chosen < 0:
            break
        if line.waiting.shape[0] and line.waiting[chosen]:
            line.waiting[chosen] = 2
            left[chosen] = 0
            continue
        picked[n] = chosen
        keys[n, 0] = line.key[found.app[chosen]]
        n += 1
        left[chosen] -= 1
        _count(found, line, limits, chosen)
    return n


@kernel
def compete(found: Candidates, limits: Limits, left: Ints, value: Floats) -> None:
    """Fill `value` (k,): 1 where a row may be picked now, -1 where not.

    `left` (k,) is what is still pending; it becomes 0 where the row no longer fits.
    """
    for i in range(value.shape[0]):
        value[i] = -1.0
        if left[i] > 0 and fits_share(found.packing[i], found.free):
            if admits(limits, found.app[i], found.work[i]):
                value[i] = 1.0
        else:
            # What is free only shrinks, so it will not fit later either.
            left[i] = 0
    keep_guarantees(limits, found.app, value)


@kernel
def _keep_within(found: Candidates, line: Line, value: Floats) -> None:
    """Set `value` (k,) to -1 for rows whose pick would make their application's key too large."""
    for i in range(value.shape[0]):
        app = found.app[i]
        if line.key[app] + line.step[i] > line.most[app] + TIE:
            value[i] = -1.0


@kernel
def _first(
    found: Candidates, line: Line, limits: Limits, by_queue: bool, value: Floats, best: Ints
) -> None:
    """Fill `best` (queues,) with the row whose turn it is in each leaf queue; -1: none.

    Unless `by_queue`, all queues are one, number 0.
    """
    best[:] = -1
    for i in range(value.shape[0]):
        at = limits.queue[found.app[i]] if by_queue else 0
        if value[i] > 0.0 and (best[at] < 0 or _earlier(i, best[at], line, found)):
            best[at] = i


@kernel
def _count(found: Candidates, line: Line, limits: Limits, chosen: int) -> None:
    """Count a picked container as held and its room as used."""
    app = found.app[chosen]
    line.key[app] += line.step[chosen]
    if line.queues == CONTAINERS:
        queue = limits.queue[app]
        while queue >= 0:
            line.share[queue] += 1.0
            queue = limits.parent[queue]
    hold(found, limits, chosen)


@kernel
def hold(found: Candidates, limits: Limits, chosen: int) -> None:
    """Count one more container of a candidate as held and its room as used."""
    take(limits, found.app[chosen], found.work[chosen])
    for r in range(found.free.shape[0]):
        found.free[r] = max(0.0, found.free[r] - found.packing[chosen, r])


@kernel
def _earlier(i: int, j: int, line: Line, found: Candidates) -> bool:
    x, y = found.app[i], found.app[j]
    a, b = line.key[x], line.key[y]
    if a < b - TIE:
        return True
    if a > b + TIE:
        return False
    if x == y and line.pri[i] != line.pri[j]:
        return bool(line.pri[i] > line.pri[j])
    return bool(found.rank[i] < found.rank[j])
