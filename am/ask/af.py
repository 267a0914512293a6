"""Af, COBRA's adaptive feedback: how many containers a job desires.

Source: COBRA algorithm 1; docs/rules.md, rules 49, 50.
"""

import math
from typing import NamedTuple

SATISFIED, DEPRIVED, INEFFICIENT = "satisfied", "deprived", "inefficient"


class AfSettings(NamedTuple):
    """`rho` > 1 grows and shrinks the desire, `delta` in (0, 1] is the least efficient use."""

    rho: float = 1.5
    delta: float = 0.7


def request_of(desire: float) -> int:
    """Return whole containers for a real desire."""
    return math.ceil(desire - 1e-9)


def next_desire(
    desire: float,
    allocation: float,
    utilisation: float,
    waiting: bool,
    settings: AfSettings,
    most: float = math.inf,
    whole: bool = True,
) -> tuple[float, str]:
    """Return the desire for the next period, within [1, `most`], and the case of the last one.

    `whole`: containers are whole, so a period is deprived when fewer than `ceil(desire)` were held;
    otherwise as printed, when fewer than `desire` were. Inefficiency is tested first, strictly.
    """
    wanted = request_of(desire) if whole else desire
    if utilisation < settings.delta and not waiting:
        case, desire = INEFFICIENT, desire / settings.rho
    elif allocation < wanted - 1e-9:
        case = DEPRIVED
    else:
        case, desire = SATISFIED, desire * settings.rho
    return min(max(desire, 1.0), max(most, 1.0)), case
