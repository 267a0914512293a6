"""Carbyne's decision for a node in one call: what must run by dominant share, then leftover."""

import numpy as np

from rm.ledger.columns import Bools
from rm.match.candidate_kernels import largest_over, steps_of, weights_of
from rm.match.score_kernels import pack_scores, picks_by_turn
from weft.compiled import making_kernel
from weft.dag import Floats, Ints


@making_kernel
def phases(
    packing: Floats,
    work: Floats,
    pri: Floats,
    pending: Ints,
    app: Ints,
    rank: Ints,
    level: Ints,
    free: Floats,
    rows: Ints,
    kind: Ints,
    held: Floats,
    total: Floats,
    remaining: Floats,
    queue: Ints,
    active: Bools,
    capacity: Floats,
    apps: Ints,
    packs: bool,
    penalty: float,
    srtf: bool,
) -> tuple[Ints, Floats, Ints, Floats, int]:
    """(picks, keys) of DEFAULT asks, (picks, keys) of ALTRUISTIC ones, how many of these compete.

    Candidates have shape (k,) or (k, d) as in `Candidates`, `kind` is of all rows. DEFAULT: least
    weighted dominant share first; ALTRUISTIC, in what that leaves: least `remaining` work of the
    application first (none picked unless `srtf`). Inside an application: priScore x alignment if
    it `packs`, else priScore. `free` (d,) is a working copy that shrinks by all picks.
    """
    k = packing.shape[0]
    must, spare = pending.copy(), np.zeros(k, dtype=np.int64)
    count = 0
    for i in range(k):
        if kind[rows[i]] != 0:
            must[i], spare[i] = 0, pending[i]
            count += 1
    nobody = np.zeros(0, dtype=np.int64)
    order = pri.copy()
    if packs:
        pack_scores(packing, free, level, penalty, True, order)
        for i in range(k):
            order[i] = pri[i] * max(order[i], 0.0)
    weight = weights_of(queue, active, capacity, apps)
    share = largest_over(held, total)
    for slot in range(share.shape[0]):
        share[slot] /= weight[slot]
    picked, keys = picks_by_turn(
        packing, steps_of(work, app, weight), order, must, app, rank, free, share, 1 << 30, nobody
    )
    if count == 0 or not srtf:
        return picked, keys, nobody, np.zeros((0, 1)), count
    if packs and picked.shape[0]:
        pack_scores(packing, free, level, penalty, True, order)
        for i in range(k):
            order[i] = pri[i] * max(order[i], 0.0)
    more, work_left = picks_by_turn(
        packing, np.zeros(k), order, spare, app, rank, free, remaining.copy(), 1 << 30, nobody
    )
    return picked, keys, more, work_left, count
