"""Passes over the pending asks, compiled."""

import numpy as np

from weft.model.dag import Floats, Ints
from weft.policies.compiled import kernel, making_kernel


@kernel
def _least(r: int, count: int, pending: Ints, demand: Floats) -> float:
    least = np.inf
    for row in range(count):
        if pending[row] > 0 and demand[row, r] < least:
            least = demand[row, r]
    return least


@making_kernel
def floor_of(count: int, pending: Ints, demand: Floats) -> Floats:
    """Return the least of each resource over rows with something pending (d,); infinite if none."""
    out = np.empty(demand.shape[1])
    for r in range(out.shape[0]):
        out[r] = _least(r, count, pending, demand)
    return out


@kernel
def took(pending: Ints, since_s: Floats, missed: Ints, row: int, left: int, now: float) -> None:
    """Note that a row was granted something at `now`; `left` is still pending."""
    pending[row] = left
    since_s[row] = now
    missed[row] = 0


@kernel
def is_floor(floor: Floats, count: int, pending: Ints, demand: Floats) -> bool:
    """Return whether `floor_of` would return just that."""
    same = True
    for r in range(floor.shape[0]):
        same = same and floor[r] == _least(r, count, pending, demand)
    return same
