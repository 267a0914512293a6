"""Carbyne's decision for a node in one call: what must run by dominant share, then leftover."""

from typing import NamedTuple

import numpy as np

from rm.match.candidate_kernels import Candidates
from rm.match.limit_kernels import Gate
from rm.match.score_kernels import pack_scores
from rm.match.turn_kernels import ANYBODY, DOMINANT, Line, picks_by_turn
from weft.compiled import kernel, making_kernel
from weft.dag import Floats, Ints

SRTF, LEAST_SHARE, MIX, PACKING = 0, 1, 2, 3  # whose turn it is in the leftover


class Carbyne(NamedTuple):
    """What counts."""

    packs: bool  # alignment inside the application
    penalty: float  # factor for a row that prefers other machines
    leftover: int  # SRTF, LEAST_SHARE or MIX; PACKING: ALTRUISTIC rows are not picked here
    mix: float  # of MIX: 0 as SRTF, 1 by share alone


@making_kernel
def phases(
    found: Candidates, kind: Ints, share: Floats, remaining: Floats, knobs: Carbyne, gate: Gate
) -> tuple[Ints, Floats, Ints, Floats, int]:
    """(picks, keys) of DEFAULT asks, (picks, keys) of ALTRUISTIC ones, how many of these compete.

    `kind` is of all rows, `share` (applications,) the dominant share held. DEFAULT: the queue, then
    the application with the least dominant share first; ALTRUISTIC, in what that leaves, by the
    chosen order. Inside an application: priScore x alignment if it `packs`, else priScore. All
    arrays are working copies that change.
    """
    k = found.packing.shape[0]
    must, spare = found.pending.copy(), np.zeros(k, dtype=np.int64)
    step = np.zeros(k)
    count = 0
    for i in range(k):
        if kind[found.rows[i]] != 0:
            must[i], spare[i] = 0, found.pending[i]
            count += 1
        for r in range(found.work.shape[1]):
            step[i] = max(step[i], found.work[i, r])
    nobody, nothing = np.zeros(0, dtype=np.int64), np.zeros(0)
    order = found.pri.copy()
    _align(found, knobs, order)
    picked, keys = picks_by_turn(
        found, Line(DOMINANT, nothing, share, step, order, must, nobody), gate
    )
    if count == 0 or knobs.leftover == PACKING:
        return picked, keys, nobody, np.zeros((0, 1)), count
    if picked.shape[0]:
        _align(found, knobs, order)
    queues, key = ANYBODY, remaining
    if knobs.leftover == SRTF:
        step[:] = 0.0
    elif knobs.leftover == LEAST_SHARE:
        queues, key = DOMINANT, share
    else:
        key = _mixed(found, spare, share, remaining, knobs.mix, step)
    more, keys_left = picks_by_turn(
        found, Line(queues, nothing, key, step, order, spare, nobody), gate
    )
    return picked, keys, more, keys_left, count


@making_kernel
def _mixed(
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
def _align(found: Candidates, knobs: Carbyne, order: Floats) -> None:
    """Fill `order` (k,) with priScore x alignment, where the policy packs."""
    if knobs.packs:
        pack_scores(found.packing, found.free, found.level, knobs.penalty, True, order)
        for i in range(order.shape[0]):
            order[i] = found.pri[i] * max(order[i], 0.0)
