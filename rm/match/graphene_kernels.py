"""Graphene's figure 15 as one loop over the rows that compete for a node: pick, subtract, repeat.

A row is one ask: identical containers of one stage. Packing scores use demands over the machine's
capacity, work and fairness use demands over the cluster's. `d` is the number of resource types, `k`
the number of candidate rows.
"""

from typing import NamedTuple

import numpy as np

from rm.ledger.columns import Bools
from rm.match.candidate_kernels import Candidates
from rm.match.deficit_kernels import Groups, book_deficit, deficit_factor, neediest
from rm.match.filter_kernels import fits_share
from rm.match.limit_kernels import Limits, admits, take
from rm.match.score_kernels import (
    TIE,
    Picks,
    mean_weighted,
    pack_scores,
    sum_of,
)
from weft.compiled import kernel
from weft.dag import Floats, Ints


class Eta(NamedTuple):
    """How remaining work is weighed against scores: eta = m x mean score / mean remaining work."""

    fixed: float  # the eta itself; below 0: automatic
    m: float
    score: float  # mean of priScore x pScore in the decisions so far
    work: float  # mean srpt in them; 0: none so far
    weight: float  # of this decision in both means, 0 to 1
    now: float  # mean srpt in this decision


class Terms(NamedTuple):
    """What counts in a score."""

    penalty: float  # factor of pScore for a row that prefers other machines
    use_pack: bool  # False: pScore is 1 for all that fits
    most: int  # picks in one decision


class Scratch(NamedTuple):
    """Arrays for a decision to write on."""

    p: Floats  # (k,)
    value: Floats  # (k,)
    here: Bools  # (groups,)
    known: Floats  # (3,): mean score seen, eta used, 1 once something was overbooked; 0 at first


class Bundle(NamedTuple):
    """What competes for a node; the arrays are working copies that change with each pick."""

    found: Candidates
    over: Floats  # (k,) oScore where the row does not fit, 0: may not overbook
    group: Ints  # (k,) whose deficit a row counts for
    remaining: Floats  # (applications,) srpt


@kernel
def graphene_picks(
    bundle: Bundle, groups: Groups, eta: Eta, knobs: Terms, limits: Limits, scratch: Scratch,
    picks: Picks, n: int,
) -> int:  # fmt: skip
    """Fill `picks` from place `n` on with candidates for one node.

    Terms: perfScore, pScore, oScore, eta x srpt, deficit of the group before the pick. The arrays
    of `bundle`, `groups` and `limits` are working copies that change. Return how many were picked:
    where that is all that `picks` holds, call again with more room and that `n`.
    """
    found, group, remaining = bundle.found, bundle.group, bundle.remaining
    picked, terms = picks.candidate, picks.terms
    left, p, value, here = found.pending, scratch.p, scratch.value, scratch.here
    while n < min(knobs.most, picked.shape[0]):
        pack_scores(found.packing, found.free, found.level, knobs.penalty, knobs.use_pack, p)
        if n == 0:
            scratch.known[0] = mean_weighted(found.pri, p, left)
            scratch.known[1] = eta_now(eta, scratch.known[0])
        weight = scratch.known[1]
        eligible(found, bundle.over, scratch.known[2] > 0.0, left, p, value, limits)
        here[:] = False
        for i in range(value.shape[0]):
            if value[i] >= 0.0:
                here[group[i]] = True
        only = neediest(groups.deficit, groups.share, here)
        if only >= 0 and groups.deficit[only] < groups.bound - TIE:
            only = -1
        best = _best(found, value, remaining, weight, group, only)
        if best < 0:
            break
        g = group[best]
        by_over = p[best] < 0.0
        work_left = weight * remaining[found.app[best]]
        terms[n, 0] = found.pri[best] * value[best] - work_left
        terms[n, 1] = max(p[best], 0.0)
        terms[n, 2] = value[best] if by_over else 0.0
        terms[n, 3] = work_left
        terms[n, 4] = groups.deficit[g]
        picked[n] = best
        n += 1
        left[best] -= 1
        if by_over:
            scratch.known[2] = 1.0
        _place(found, best, g, remaining, groups)
        take(limits, found.app[best], found.work[best])
    return n


@kernel
def eta_now(eta: Eta, score: float) -> float:
    """Return the eta of a decision whose own mean score is `score`.

    Numerator and denominator are averaged apart, so that a decision with hardly any work left does
    not throw the ratio. One that tells nothing (nothing demanded, or no work declared) changes
    neither.
    """
    if eta.fixed >= 0.0:
        return eta.fixed
    top, bottom = eta.score, eta.work
    if score > 0.0 and eta.now > 0.0:
        top += eta.weight * (score - top)
        bottom += eta.weight * (eta.now - bottom)
    return eta.m * top / bottom if bottom > 0.0 else 0.0


@kernel
def eligible(
    found: Candidates, over: Floats, overbooked: bool, left: Ints, p: Floats, value: Floats,
    limits: Limits,
) -> None:  # fmt: skip
    """Fill `value` (k,) with max(pScore, oScore), -1 where a row may not be picked.

    One task a decision is overbooked.
    """
    for i in range(left.shape[0]):
        value[i] = -1.0
        if left[i] <= 0 or not admits(limits, found.app[i], found.work[i]):
            continue
        if p[i] >= 0.0:
            value[i] = p[i]
        elif over[i] > 0.0 and not overbooked and fits_share(found.packing[i], found.room):
            value[i] = over[i]


@kernel
def _best(
    found: Candidates, value: Floats, remaining: Floats, eta: float, group: Ints, only: int
) -> int:
    """Return the eligible row with the highest perfScore, of group `only` if >= 0; -1 if none."""
    best, best_score = -1, -np.inf
    for i in range(value.shape[0]):
        if value[i] < 0.0 or (only >= 0 and group[i] != only):
            continue
        score = found.pri[i] * value[i] - eta * remaining[found.app[i]]
        if best < 0 or score > best_score + TIE:
            best, best_score = i, score
        elif score > best_score - TIE and found.rank[i] < found.rank[best]:
            best, best_score = i, max(score, best_score)
    return best


@kernel
def _place(found: Candidates, best: int, g: int, remaining: Floats, groups: Groups) -> None:
    """Subtract a picked container from what is free and left, and book its group's deficit."""
    work, held = found.work[best], groups.held[g]
    factor = deficit_factor(work, held, found.duration[best], groups.unit)
    book_deficit(groups.deficit, groups.share, g, factor)
    for r in range(found.free.shape[0]):
        found.free[r] = max(0.0, found.free[r] - found.packing[best, r])
        found.room[r] -= found.packing[best, r]
        held[r] += work[r]
    app = found.app[best]
    remaining[app] = max(0.0, remaining[app] - found.duration[best] * sum_of(work))
