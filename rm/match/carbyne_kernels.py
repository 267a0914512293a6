"""What Carbyne's decision for a node goes by: who must run, alignment, the mixed order."""

from typing import NamedTuple

import numpy as np

from rm.match.candidate_kernels import Candidates
from rm.match.score_kernels import pack_scores
from weft.model.dag import Floats, Ints
from weft.policies.compiled import kernel, making_kernel

# These say whose turn it is in the leftover.
SRTF, LEAST_SHARE, MIX, PACKING = 0, 1, 2, 3


class Carbyne(NamedTuple):
    """What counts.

    `packs` aligns rows inside their application. `leftover` is SRTF, LEAST_SHARE or MIX; with
    PACKING, ALTRUISTIC rows are not picked here. `mix` is for MIX: 0 is as SRTF, 1 goes by share
    alone.
    """

    packs: bool
    leftover: int
    mix: float


@kernel
def split(found: Candidates, kind: Ints, must: Ints, spare: Ints, step: Floats) -> int:
    """Divide what is pending into what must run and what may take leftover.

    DEFAULT rows' goes into `must`, ALTRUISTIC ones' into `spare` (k,); `step` (k,) is filled with
    dominant demands. Return how many ALTRUISTIC rows there are. `kind` is of all rows.
    """
    count = 0
    for i in range(step.shape[0]):
        must[i], spare[i], step[i] = found.pending[i], 0, 0.0
        if kind[found.rows[i]] != 0:
            must[i], spare[i] = 0, found.pending[i]
            count += 1
        for r in range(found.work.shape[1]):
            step[i] = max(step[i], found.work[i, r])
    return count


@making_kernel
def mixed(
    found: Candidates, spare: Ints, share: Floats, remaining: Floats, mix: float, step: Floats
) -> Floats:
    """Return (1 - mix) x remaining work over its mean + mix x dominant share over an equal one.

    Means are over the applications that compete for the leftover; shape (applications,). `step`
    (k,), by how much a row adds to a share, is scaled to match.
    """
    seen = np.zeros(share.shape[0], dtype=np.bool_)
    work, count = 0.0, 0
    for i in range(spare.shape[0]):
        at = found.app[i]
        if spare[i] > 0 and not seen[at]:
            seen[at] = True
            work += remaining[at]
            count += 1
    work = work / count if work > 0.0 else 1.0
    key = np.empty(share.shape[0])
    for at in range(key.shape[0]):
        key[at] = (1.0 - mix) * remaining[at] / work + mix * share[at] * count
    for i in range(step.shape[0]):
        step[i] *= mix * count
    return key


@kernel
def align(found: Candidates, knobs: Carbyne, order: Floats) -> None:
    """Fill `order` (k,) with priScore x alignment, where the policy packs."""
    if knobs.packs:
        pack_scores(found.packing, found.free, found.level, order)
        for i in range(order.shape[0]):
            order[i] = found.pri[i] * max(order[i], 0.0)
