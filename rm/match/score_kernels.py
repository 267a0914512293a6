"""What the loops of the scoring matchers share: packing scores, means.

A row is one ask: identical containers of one stage. Packing scores use demands over the machine's
capacity, work and fairness use demands over the cluster's (docs/rules.md, rule 1). `d` is the
number of resource types, `k` the number of candidate rows.
"""

from typing import NamedTuple

import numpy as np

from rm.ledger.asks import RACK_LOCAL, REMOTE
from rm.match.filter_kernels import fits_share
from weft.compiled import kernel, making_kernel
from weft.dag import Floats, Ints

FEW = 32  # picks that one decision mostly stays under
TIE = 1e-12  # scores closer than this are equal


class Picks(NamedTuple):
    """What one decision picked, in order; the arrays have room for more."""

    candidate: Ints  # (room,) place among the candidates
    terms: Floats  # (room, terms) what its score was made of


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
        if not fits_share(packing[i], free):
            out[i] = -1.0
            continue
        score = 0.0
        for r in range(free.shape[0]):
            score += packing[i, r] * free[r]
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
