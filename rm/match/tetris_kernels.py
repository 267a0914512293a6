"""Tetris as one loop: the best aligned task of the applications furthest below their share."""

from typing import NamedTuple

import numpy as np

from rm.match.candidate_kernels import Candidates
from rm.match.limit_kernels import Gate, admits, keep_guarantees, take
from rm.match.score_kernels import (
    FEW,
    TIE,
    largest,
    longer,
    mean_weighted,
    pack_scores,
    sum_of,
    taller,
)
from weft.compiled import making_kernel
from weft.dag import Floats, Ints


class Tetris(NamedTuple):
    """What counts in a score."""

    fairness: float  # f: only the ceil((1 - f) x applications) with the least share compete
    m: float  # epsilon = m x mean alignment / mean work
    mean_work: float  # mean srpt now
    penalty: float  # factor for a row that prefers other machines


@making_kernel
def tetris_picks(
    found: Candidates, remaining: Floats, held: Floats, knobs: Tetris, gate: Gate
) -> tuple[Ints, Floats]:
    """Return (candidates picked (n,), terms (n, 2): alignment, epsilon x work) for one node.

    Score = alignment - epsilon x remaining work. `remaining` (applications,), `held` (applications,
    d) over C and the arrays of `found` and `gate` are working copies that change.
    """
    k = found.packing.shape[0]
    left = found.pending.copy()
    p = np.empty(k)
    picked = np.empty(FEW, dtype=np.int64)
    terms = np.empty((FEW, 2))
    ones = np.ones(k)
    app, rank, free = found.app, found.rank, found.free
    n = 0
    while True:
        if n == picked.shape[0]:
            picked, terms = longer(picked), taller(terms)
        if pack_scores(found.packing, free, found.level, knobs.penalty, True, p) == 0:
            break
        for i in range(k):
            if p[i] >= 0.0 and (left[i] <= 0 or not admits(gate, app[i], found.work[i])):
                p[i] = -1.0
        keep_guarantees(gate, app, p)
        epsilon = 0.0
        if knobs.mean_work > 0.0:
            epsilon = knobs.m * mean_weighted(ones, p, left) / knobs.mean_work
        ceiling = _share_ceiling(p, left, app, held, knobs.fairness)
        best, best_score = -1, -np.inf
        for i in range(k):
            if p[i] < 0.0 or largest(held[app[i]]) > ceiling + TIE:
                continue
            score = p[i] - epsilon * remaining[app[i]]
            if (
                best < 0
                or score > best_score + TIE
                or (score > best_score - TIE and rank[i] < rank[best])
            ):
                best, best_score = i, score
        if best < 0:
            break
        work = found.work[best]
        picked[n] = best
        terms[n, 0] = p[best]
        terms[n, 1] = epsilon * remaining[app[best]]
        n += 1
        left[best] -= 1
        for r in range(free.shape[0]):
            free[r] = max(0.0, free[r] - found.packing[best, r])
            held[app[best], r] += work[r]
        take(gate, app[best], work)
        remaining[app[best]] = max(0.0, remaining[app[best]] - found.duration[best] * sum_of(work))
    return picked[:n], terms[:n]


@making_kernel
def _share_ceiling(p: Floats, left: Ints, app: Ints, held: Floats, knob: float) -> float:
    """The largest dominant share among the applications that the fairness knob lets compete."""
    if knob <= 0.0:
        return np.inf
    seen = np.zeros(held.shape[0], dtype=np.bool_)
    shares = np.empty(held.shape[0])
    n = 0
    for i in range(p.shape[0]):
        a = app[i]
        if left[i] > 0 and p[i] >= 0.0 and not seen[a]:
            seen[a] = True
            shares[n] = largest(held[a])
            n += 1
    if n == 0:
        return np.inf
    keep = max(1, int(np.ceil((1.0 - knob) * n - 1e-9)))
    return float(np.sort(shares[:n])[keep - 1])
