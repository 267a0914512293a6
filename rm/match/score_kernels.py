"""The loops of the scoring matchers over rows of asks: Tetris, and by turns.

A row is one ask: like containers of one stage. Packing scores use demands over the machine's
capacity, work and fairness use demands over the cluster's (docs/rules.md, rule 1). `d` is the
number of resource types, `k` the number of candidate rows.
"""

import numpy as np

from rm.ledger.asks import RACK_LOCAL, REMOTE
from rm.ledger.ledger_kernels import TOLERANCE
from weft.compiled import kernel, making_kernel
from weft.dag import Floats, Ints

FIT = TOLERANCE  # of the machine's capacity
FEW = 32  # picks that one decision mostly stays under
TIE = 1e-12  # scores closer than this are equal
NOBODY: Ints = np.zeros(0, dtype=np.int64)  # no row waits for a nearer machine


@making_kernel
def longer(values: Ints) -> Ints:
    """A copy with twice the room."""
    out = np.empty(2 * values.shape[0], dtype=np.int64)
    out[: values.shape[0]] = values
    return out


@making_kernel
def taller(values: Floats) -> Floats:
    """A copy with twice the rows."""
    out = np.empty((2 * values.shape[0], values.shape[1]))
    out[: values.shape[0]] = values
    return out


@kernel
def pack_scores(
    packing: Floats, free: Floats, level: Ints, penalty: float, use_pack: bool, out: Floats
) -> int:
    """Fill `out` (k,) with pScore, or -1 where a row does not fit; returns how many fit.

    pScore is the dot product of normalised demand (k, d) and available (d,), times the remote
    penalty where the row prefers another machine (figure 15 line 11), half of it on their rack.
    """
    fitting = 0
    for i in range(packing.shape[0]):
        score = 0.0
        fits = True
        for r in range(free.shape[0]):
            need = packing[i, r]
            if need > 0.0 and need > free[r] + FIT:
                fits = False
                break
            score += need * free[r]
        if not fits:
            out[i] = -1.0
            continue
        fitting += 1
        if not use_pack:
            score = 1.0
        if level[i] == RACK_LOCAL:
            score *= 1.0 - 0.5 * (1.0 - penalty)
        elif level[i] == REMOTE:
            score *= penalty
        out[i] = score
    return fitting


@kernel
def mean_weighted(pri: Floats, p_score: Floats, pending: Ints) -> float:
    """Mean of priScore x pScore over the rows that fit and demand anything (for the automatic eta).

    A row counts once, however many like tasks it stands for; one without any demand says nothing
    about scores.
    """
    total, count = 0.0, 0
    for i in range(pri.shape[0]):
        if p_score[i] > 0.0 and pending[i] > 0:
            total += pri[i] * p_score[i]
            count += 1
    return total / count if count else 0.0


@kernel
def _largest(values: Floats) -> float:
    top = 0.0
    for r in range(values.shape[0]):
        top = max(top, values[r])
    return top


@kernel
def sum_of(values: Floats) -> float:
    """The L1 norm of amounts."""
    total = 0.0
    for r in range(values.shape[0]):
        total += values[r]
    return total


@making_kernel
def tetris_picks(
    packing: Floats,
    work: Floats,
    duration: Floats,
    pending: Ints,
    app: Ints,
    rank: Ints,
    level: Ints,
    free: Floats,
    remaining: Floats,
    held: Floats,
    knob: float,
    m: float,
    mean_work: float,
    penalty: float,
    most: int,
) -> tuple[Ints, Floats]:
    """Tetris: alignment - epsilon x remaining work, among the applications furthest below their
    share; returns (candidates picked (n,), terms (n, 2): alignment, epsilon x work).

    `knob` f keeps the ceil((1 - f) x applications) with the least dominant share, at least one
    (Tetris section 3.4); epsilon = m x mean alignment / mean work. `free`, `remaining` and `held`
    (applications, d) are working copies that change.
    """
    k = packing.shape[0]
    left = pending.copy()
    p = np.empty(k)
    picked = np.empty(FEW, dtype=np.int64)
    terms = np.empty((FEW, 2))
    ones = np.ones(k)
    n = 0
    while n < most:
        if n == picked.shape[0]:
            picked, terms = longer(picked), taller(terms)
        if pack_scores(packing, free, level, penalty, True, p) == 0:
            break
        epsilon = m * mean_weighted(ones, p, left) / mean_work if mean_work > 0.0 else 0.0
        ceiling = _share_ceiling(p, left, app, held, knob)
        best, best_score = -1, -np.inf
        for i in range(k):
            if left[i] <= 0 or p[i] < 0.0 or _largest(held[app[i]]) > ceiling + TIE:
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
        picked[n] = best
        terms[n, 0] = p[best]
        terms[n, 1] = epsilon * remaining[app[best]]
        n += 1
        left[best] -= 1
        for r in range(free.shape[0]):
            free[r] = max(0.0, free[r] - packing[best, r])
            held[app[best], r] += work[best, r]
        remaining[app[best]] = max(0.0, remaining[app[best]] - duration[best] * sum_of(work[best]))
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
            shares[n] = _largest(held[a])
            n += 1
    if n == 0:
        return np.inf
    keep = max(1, int(np.ceil((1.0 - knob) * n - 1e-9)))
    return float(np.sort(shares[:n])[keep - 1])


@making_kernel
def picks_by_turn(
    packing: Floats,
    step: Floats,
    pri: Floats,
    pending: Ints,
    turn: Ints,
    rank: Ints,
    free: Floats,
    key: Floats,
    most: int,
    waiting: Ints,
) -> tuple[Ints, Floats]:
    """Serve the application (or queue) with the smallest key first, its best row, one at a time.

    `turn` (k,) is whose row it is, `key` (turns,) grows by `step[row]` with each pick: dominant
    share for DRF, containers for fair, nothing for SJF. Returns (candidates (n,), keys (n, 1)).
    Within a turn: larger priScore, then `rank`. Equal keys: the smaller rank. `free` and `key` are
    working copies that change. A row with `waiting` 1 declines when its turn comes (2 afterwards)
    and is out; an empty array: nobody waits.
    """
    k = packing.shape[0]
    left = pending.copy()
    fits = np.ones(k, dtype=np.bool_)
    picked = np.empty(FEW, dtype=np.int64)
    keys = np.empty((FEW, 1))
    n = 0
    while n < most:
        if n == picked.shape[0]:
            picked, keys = longer(picked), taller(keys)
        best = -1
        for i in range(k):
            if left[i] <= 0 or not fits[i]:
                continue
            for r in range(free.shape[0]):
                if packing[i, r] > 0.0 and packing[i, r] > free[r] + FIT:
                    fits[i] = False  # what is free only shrinks
                    break
            if fits[i] and (best < 0 or _earlier(i, best, key, turn, pri, rank)):
                best = i
        if best < 0:
            break
        if waiting.shape[0] and waiting[best]:
            waiting[best] = 2
            fits[best] = False
            continue
        picked[n] = best
        keys[n, 0] = key[turn[best]]
        n += 1
        left[best] -= 1
        key[turn[best]] += step[best]
        for r in range(free.shape[0]):
            free[r] = max(0.0, free[r] - packing[best, r])
    return picked[:n], keys[:n]


@kernel
def _earlier(i: int, j: int, key: Floats, turn: Ints, pri: Floats, rank: Ints) -> bool:
    a, b = key[turn[i]], key[turn[j]]
    if a < b - TIE:
        return True
    if a > b + TIE:
        return False
    if turn[i] == turn[j] and pri[i] != pri[j]:
        return bool(pri[i] > pri[j])
    return bool(rank[i] < rank[j])
