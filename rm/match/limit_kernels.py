"""Limits of queues and users, as YARN's Capacity Scheduler sets them: to place and to explain."""

import numpy as np

from rm.ledger.columns import Bools
from weft.compiled import kernel, making_kernel
from weft.dag import Floats, Ints

_EPS = 1e-7


@kernel
def full_queue(
    leaf: int, demand: Floats, total: Floats, held: Floats, most: Floats, parent: Ints
) -> int:
    """The first queue on the way up that a demand would take beyond its maximum; -1: none."""
    queue = leaf
    while queue >= 0:
        for r in range(demand.shape[0]):
            limit = most[queue] * total[r] * (1 + _EPS)
            if demand[r] > 0 and held[queue, r] + demand[r] > limit:
                return queue
        queue = parent[queue]
    return -1


@making_kernel
def guarantees(
    slots: int, active: Bools, app_queue: Ints, apps: Ints, capacity: Floats, total: Floats
) -> Floats:
    """What each application slot may count on: its leaf queue's guarantee, split among the active
    applications there; shape (slots, d).
    """
    out = np.zeros((slots, total.shape[0]))
    for slot in range(slots):
        if active[slot]:
            queue = app_queue[slot]
            part = capacity[queue] / max(apps[queue], 1)
            for r in range(total.shape[0]):
                out[slot, r] = part * total[r]
    return out


@making_kernel
def headroom(leaf: int, total: Floats, held: Floats, most: Floats, parent: Ints) -> Floats:
    """What the cluster and the limits of a leaf queue and of those above it leave, shape (d,)."""
    out = np.empty(total.shape[0])
    for r in range(total.shape[0]):
        left = total[r] - held[0, r]
        queue = leaf
        while queue >= 0:
            left = min(left, most[queue] * total[r] - held[queue, r])
            queue = parent[queue]
        out[r] = max(left, 0.0)
    return out


@kernel
def user_allows(
    demand: Floats,
    total: Floats,
    queue_held: Floats,
    user_held: Floats,
    capacity: float,
    users: int,
    user_limit: float,
    user_limit_factor: float,
) -> bool:
    """Whether a user may hold a demand more; `queue_held`, `user_held` have shape (d,).

    Each of n users may hold max(1/n, user_limit) of what the leaf queue is guaranteed (or holds, if
    that is more), none more than user_limit_factor times the guarantee.
    """
    if users <= 1 and np.isinf(user_limit_factor):
        return True
    part = max(1.0 / max(users, 1), user_limit)
    for r in range(demand.shape[0]):
        if demand[r] <= 0:
            continue
        guarantee = capacity * total[r]
        limit = max(guarantee, queue_held[r] + demand[r]) * part
        limit = min(limit, guarantee * user_limit_factor)
        if user_held[r] + demand[r] > limit * (1 + _EPS):
            return False
    return True
