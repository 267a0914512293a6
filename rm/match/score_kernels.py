"""What the loops of the scoring matchers share: packing scores, means.

A row is one ask: identical containers of one stage. Packing scores use demands over the machine's
capacity, work and fairness use demands over the cluster's (docs/rules.md, rule 1). `d` is the
number of resource types, `k` the number of candidate rows.
"""

from typing import NamedTuple

import numpy as np

from rm.ledger.asks import RACK_LOCAL, REMOTE
from rm.match.filter_kernels import fits_share
from weft.model.dag import Floats, Ints
from weft.policies.compiled import inner_kernel, kernel, making_kernel

# Most decisions pick fewer.
USUAL_PICKS_MAX = 32
# Scores closer than this are equal.
TIE = 1e-12
# The factor of pScore away from the input, rp (Graphene section 8.4).
REMOTE_PENALTY = 0.8


class Picks(NamedTuple):
    """What one decision picked, in order; the arrays have room for more.

    `candidate` (room,) is the place among the candidates, `terms` (room, terms) what its score was
    made of.
    """

    candidate: Ints
    terms: Floats


@inner_kernel
def nearness(level: int) -> float:
    """Return the factor of pScore for where a row's input is (figure 15 line 9).

    It is the remote penalty where the row prefers another machine, half of it on their rack.
    """
    if level == RACK_LOCAL:
        return 1.0 - 0.5 * (1.0 - REMOTE_PENALTY)
    return REMOTE_PENALTY if level == REMOTE else 1.0


@inner_kernel
def pack_score(packing: Floats, free: Floats, near: float) -> float:
    """Return pScore of a row, -1 where it does not fit (figure 15 lines 10 and 11).

    It is the dot product of normalised demand (d,) and available (d,), times how near the row is.
    """
    if not fits_share(packing, free):
        return -1.0
    score = 0.0
    for r in range(free.shape[0]):
        score += packing[r] * free[r]
    return score * near


@kernel
def pack_scores(packing: Floats, free: Floats, level: Ints, out: Floats) -> int:
    """Fill `out` (k,) with pScore of rows (k, d), or -1; return how many fit."""
    fitting = 0
    for i in range(packing.shape[0]):
        out[i] = pack_score(packing[i], free, nearness(level[i]))
        if out[i] >= 0.0:
            fitting += 1
    return fitting


@kernel
def mean_weighted(pri: Floats, p_score: Floats, pending: Ints) -> float:
    """Return the mean of priScore x pScore over rows that fit and demand anything (automatic eta).

    A row counts once, however many identical tasks it is for; one without any demand says nothing
    about scores.
    """
    total, count = 0.0, 0
    for i in range(pri.shape[0]):
        if p_score[i] > 0.0 and pending[i] > 0:
            total += pri[i] * p_score[i]
            count += 1
    return total / count if count else 0.0


@kernel
def largest(values: Floats) -> float:
    """Return the largest of amounts, at least 0."""
    top = 0.0
    for r in range(values.shape[0]):
        top = max(top, values[r])
    return top


@kernel
def sum_of(values: Floats) -> float:
    """Return the L1 norm of amounts."""
    total = 0.0
    for r in range(values.shape[0]):
        total += values[r]
    return total


@kernel
def fill_part(demand: Floats, total: Floats, out: Floats) -> None:
    """Fill `out` (d,) with a demand (d,) over C, 0 of what the cluster does not have."""
    for r in range(demand.shape[0]):
        out[r] = demand[r] / total[r] if total[r] > 0.0 else 0.0


@making_kernel
def tops(values: Floats) -> Floats:
    """Return the largest of each row of amounts (k, d), at least 0; shape (k,)."""
    out = np.empty(values.shape[0])
    for i in range(values.shape[0]):
        out[i] = largest(values[i])
    return out
