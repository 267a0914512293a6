"""Deficit counters in one call each: the groups' state for a decision, and booking a placement.

Figure 15 line 28 with the rules of ALGORITHMS section 7. The worked examples drive these functions
through the matcher's `granted`.
"""

import numpy as np

from rm.ledger.columns import Bools
from rm.match.score_kernels import book_deficit, dominant_factor
from weft.compiled import kernel, making_kernel
from weft.dag import Floats, Ints


@making_kernel
def group_state(
    counters: Floats, share: Floats, pending: Ints, able: Bools, held: Floats, total: Floats
) -> tuple[Floats, Floats, Floats]:
    """(deficits, shares over active groups, holdings over C) of all groups: working copies.

    A group is active where it is `able` to have work (a leaf queue, a live application) and has
    something pending. New groups start at 0.
    """
    n = held.shape[0]
    deficit, normal = np.zeros(n), np.zeros(n)
    part = np.zeros(held.shape)
    whole = 0.0
    for g in range(n):
        if g < counters.shape[0]:
            deficit[g] = counters[g]
        if able[g] and pending[g] > 0:
            normal[g] = share[g]
            whole += share[g]
        for r in range(total.shape[0]):
            if total[r] > 0.0:
                part[g, r] = held[g, r] / total[r]
    if whole > 0.0:
        normal /= whole
    return deficit, normal, part


@making_kernel
def book_placed(
    counters: Floats, share: Floats, pending: Ints, able: Bools, group: int, demand: Floats,
    held: Floats, total: Floats, by_slots: bool, copies: int,
) -> None:  # fmt: skip
    """Book `copies` placed containers of `group`; credit of idle groups goes to active ones.

    `demand` (d,) is of one container, `held` (d,) what the group holds now, both absolute.
    """
    n, d = counters.shape[0], total.shape[0]
    work, part = np.zeros(d), np.zeros(d)
    for r in range(d):
        if total[r] > 0.0:
            work[r] = demand[r] / total[r]
            part[r] = held[r] / total[r]
    factor = 1.0 if by_slots else dominant_factor(work, part)
    normal = np.zeros(n)
    whole = 0.0
    for g in range(n):
        if g == group or (able[g] and pending[g] > 0):
            normal[g] = share[g]
            whole += share[g]
    if whole <= 0.0:
        return
    normal /= whole
    for _ in range(copies):
        book_deficit(counters, normal, group, factor)
    for g in range(n):
        if g != group and counters[g] > 0.0 and not (able[g] and pending[g] > 0):
            _spread(counters, share, pending, able, g)


@kernel
def _spread(counters: Floats, share: Floats, pending: Ints, able: Bools, idle: int) -> None:
    """Hand a group's counter to the active ones by share; kept where there is none."""
    whole = 0.0
    for g in range(counters.shape[0]):
        if g != idle and able[g] and pending[g] > 0:
            whole += share[g]
    if whole <= 0.0:
        return
    for g in range(counters.shape[0]):
        if g != idle and able[g] and pending[g] > 0:
            counters[g] += counters[idle] * share[g] / whole
    counters[idle] = 0.0
