"""Tetris as one loop: the best aligned task of the applications furthest below their share."""

from typing import NamedTuple

import numpy as np

from rm.ledger.columns import Bools
from rm.match.candidate_kernels import Candidates
from rm.match.limit_kernels import Limits, admits, keep_guarantees, take
from rm.match.score_kernels import (
    TIE,
    Picks,
    largest,
    mean_weighted,
    pack_scores,
    sum_of,
)
from weft.model.dag import Floats, Ints
from weft.policies.compiled import kernel


class Tetris(NamedTuple):
    """What counts in a score.

    `fairness` is f: only the ceil((1 - f) x applications) with the least share compete. Epsilon is
    `m` x mean alignment / mean work. `mean_work` is the mean srpt now.
    """

    fairness: float
    m: float
    mean_work: float


class Scratch(NamedTuple):
    """Arrays for a decision to write on: `p` and `ones` are (k,), `seen` and `shares`
    (applications,).
    """

    p: Floats
    ones: Floats
    seen: Bools
    shares: Floats


@kernel
def tetris_picks(
    found: Candidates,
    remaining: Floats,
    held: Floats,
    knobs: Tetris,
    limits: Limits,
    scratch: Scratch,
    picks: Picks,
    n: int,
) -> int:
    """Fill `picks` from place `n` on with candidates for one node.

    Terms: alignment, epsilon x work. Score = alignment - epsilon x remaining work. `remaining`
    (applications,), `held` (applications, d) over C and the arrays of `found` and `limits` are
    working copies that change. Return how many were picked: where that is all that `picks` holds,
    call again with more room and that `n`.
    """
    p, left, picked, terms = scratch.p, found.pending, picks.candidate, picks.terms
    while n < picked.shape[0]:
        if pack_scores(found.packing, found.free, found.level, p) == 0:
            break
        _admit(found, limits, left, p)
        keep_guarantees(limits, found.app, p)
        epsilon = 0.0
        if knobs.mean_work > 0.0:
            epsilon = knobs.m * mean_weighted(scratch.ones, p, left) / knobs.mean_work
        ceiling = _share_ceiling(found, p, held, knobs.fairness, scratch)
        best = _best(found, p, remaining, held, epsilon, ceiling)
        if best < 0:
            break
        picked[n] = best
        terms[n, 0] = p[best]
        terms[n, 1] = epsilon * remaining[found.app[best]]
        n += 1
        left[best] -= 1
        _place(found, best, remaining, held, limits)
    return n


@kernel
def _admit(found: Candidates, limits: Limits, left: Ints, p: Floats) -> None:
    """Set `p` (k,) to -1 for rows that have nothing left or that a limit holds back."""
    for i in range(p.shape[0]):
        if p[i] >= 0.0 and (left[i] <= 0 or not admits(limits, found.app[i], found.work[i])):
            p[i] = -1.0


@kernel
def _best(
    found: Candidates, p: Floats, remaining: Floats, held: Floats, epsilon: float, ceiling: float
) -> int:
    """Return the competing row with the highest score under the ceiling; -1 if none."""
    app, rank = found.app, found.rank
    best, best_score = -1, -np.inf
    for i in range(p.shape[0]):
        if p[i] < 0.0 or largest(held[app[i]]) > ceiling + TIE:
            continue
        score = p[i] - epsilon * remaining[app[i]]
        if (
            best < 0
            or score > best_score + TIE
            or (score > best_score - TIE and rank[i] < rank[best])
        ):
            best, best_score = i, score
    return best


@kernel
def _place(found: Candidates, best: int, remaining: Floats, held: Floats, limits: Limits) -> None:
    """Subtract a picked container from what is free and left, count it as held."""
    app, work, free = found.app[best], found.work[best], found.free
    for r in range(free.shape[0]):
        free[r] = max(0.0, free[r] - found.packing[best, r])
        held[app, r] += work[r]
    take(limits, app, work)
    remaining[app] = max(0.0, remaining[app] - found.duration[best] * sum_of(work))


@kernel
def _share_ceiling(
    found: Candidates, p: Floats, held: Floats, knob: float, scratch: Scratch
) -> float:
    """Return the largest dominant share of the applications that the knob lets compete."""
    if knob <= 0.0:
        return np.inf
    seen, shares = scratch.seen, scratch.shares
    seen[:] = False
    n = 0
    for i in range(p.shape[0]):
        a = found.app[i]
        if found.pending[i] > 0 and p[i] >= 0.0 and not seen[a]:
            seen[a] = True
            shares[n] = largest(held[a])
            n += 1
    if n == 0:
        return np.inf
    keep = max(1, int(np.ceil((1.0 - knob) * n - 1e-9)))
    return _nth(shares, n, keep - 1)


@kernel
def _nth(values: Floats, n: int, k: int) -> float:
    """Return the k-th smallest (from 0) of the first `n` values; permutes them (Hoare's select)."""
    low, high = 0, n - 1
    while low < high:
        pivot = values[(low + high) // 2]
        i, j = low, high
        while i <= j:
            while values[i] < pivot:
                i += 1
            while values[j] > pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if k <= j:
            high = j
        elif k >= i:
            low = i
        else:
            break
    return float(values[k])
