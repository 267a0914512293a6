"""Graphene's scores, shared by matchers: srpt, eta, and the loop of figure 15 over rows.

Rows are asks: like containers of one stage. All demands are normalised: by the machine's capacity
for packing, by the cluster's for work (ALGORITHMS section 0).
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

FIT_TOLERANCE = 1e-7  # of capacity


def srpt(capacity: Floats, duration_s: Floats, demand: Floats) -> float:
    """Remaining work of a job: sum of duration x L1 norm of d_r / C_r (figure 15 line 20)."""
    return float((duration_s * (demand / capacity).sum(axis=1)).sum())


def automatic_eta(weighted_p_score: float, mean_srpt: float, m: float = 0.2) -> float:
    """eta = m x mean(priScore x pScore) / mean(srpt), 0 where undefined (ALGORITHMS section 7)."""
    return m * weighted_p_score / mean_srpt if mean_srpt > 0 else 0.0


@njit(cache=True)
def p_scores(
    demand: Floats, available: Floats, remote: Bools, remote_penalty: float, out: Floats
) -> int:
    """Fill `out` (rows,) with pScore, or -1 where a row does not fit; returns how many fit.

    pScore is the dot product of normalised demand and available (figure 15 line 11).
    """
    rows, resources = demand.shape
    fitting = 0
    for row in range(rows):
        score = 0.0
        fits = True
        for r in range(resources):
            need = demand[row, r]
            if need > available[r] + FIT_TOLERANCE:
                fits = False
                break
            score += need * available[r]
        if not fits:
            out[row] = -1.0
            continue
        fitting += 1
        out[row] = score * remote_penalty if remote[row] else score
    return fitting


@njit(cache=True)
def best_row(
    p_score: Floats,
    o_score: Floats,
    pri: Floats,
    work: Floats,
    job: Ints,
    group: Ints,
    count: Ints,
    eta: float,
    only_group: int,
) -> tuple[int, float]:
    """(row, perfScore) of the best eligible row, (-1, 0) when none is (figure 15 lines 21 to 25).

    perfScore = priScore x max(pScore, oScore) - eta x srpt; ties go to the lower row.
    """
    best, best_score = -1, -np.inf
    for row in range(p_score.shape[0]):
        if count[row] <= 0 or (only_group >= 0 and group[row] != only_group):
            continue
        fit, over = p_score[row], o_score[row]
        if fit < 0.0 and over <= 0.0:
            continue
        score = pri[row] * max(fit, over) - eta * work[job[row]]
        if score > best_score:
            best, best_score = row, score
    return best, best_score if best >= 0 else 0.0
