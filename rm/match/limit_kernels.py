"""Limits of queues and users, and their guarantees, as YARN's Capacity Scheduler sets them.

A queue's maximum is never passed. A user whose holdings are within his limit may take one more
container, however large. And whoever has no task running, a queue or a user, may start one: masters
alone never use a limit up, so nobody waits for room that nobody else may use.

They hold before every policy. Every policy's loop asks `admits` for each row, calls `take` for each
pick, and passes what is left through `keep_guarantees`. What holds in one matcher so holds in all.
"""

from typing import NamedTuple

import numpy as np

from rm.ledger.columns import Bools
from weft.model.dag import Floats, Ints
from weft.model.resources import TOLERANCE
from weft.policies.compiled import inner_kernel, kernel, making_kernel

# Shares closer than this are equal.
_SHARE_TOLERANCE = 1e-12
# A queue that is guaranteed nothing counts as holding so much over its guarantee.
_NOTHING_GUARANTEED = 1e290
# No queue holds so much of its guarantee.
_MORE_THAN_ANY_SHARE = 1e6
# These say what holds a demand back: nothing, or its user's limit; else it is a queue's slot.
ADMITTED, USER = -1, -2


class Limits(NamedTuple):
    """Queues and users in a decision; holdings are over C, and working copies that `take` moves.

    * `several` says whether there is more than one leaf queue, `moves` whether holdings are
      followed from pick to pick, `binds` whether any limit can bind, `keeps` whether queues below
      their guarantee go first, whatever the policy says.
    * By application slot: `queue`, its leaf queue, and `user`, its (leaf queue, user) slot.
    * By queue: `parent`; `is_leaf`; `capacity`, guaranteed, of the cluster; `most`, infinite where
      it may use the whole cluster; `users`, active ones; `user_limit`; `user_limit_factor`.
    * `queue_held` (queues, d) and `user_held` (users, d) are over C. Where limits bind,
      `queue_tasks` (queues,) and `user_tasks` (users,) count the containers held that are no
      masters'.
    * `marks` (4, queues), `first` (queues,) and `scaled` (queues, d) are scratch.
    """

    several: bool
    moves: bool
    binds: bool
    keeps: bool
    queue: Ints
    user: Ints
    parent: Ints
    is_leaf: Bools
    capacity: Floats
    most: Floats
    users: Ints
    user_limit: Floats
    user_limit_factor: Floats
    queue_held: Floats
    user_held: Floats
    queue_tasks: Ints
    user_tasks: Ints
    marks: Bools
    first: Ints
    scaled: Floats


@kernel
def held_back(limits: Limits, app: int, work: Floats) -> int:
    """Return what holds back an application's demand: a queue's slot, USER or ADMITTED.

    `work` (d,) is the demand over C. Each of n users may hold max(1/n, user_limit) of what the leaf
    queue is guaranteed (or holds, if that is more), none more than user_limit_factor times the
    guarantee: who holds more than that takes nothing (YARN's LeafQueue.canAssignToUser).
    """
    if not limits.binds:
        return ADMITTED
    leaf = limits.queue[app]
    queue = leaf
    while queue >= 0:
        for r in range(work.shape[0] if limits.queue_tasks[queue] > 0 else 0):
            limit = limits.most[queue] * (1 + TOLERANCE)
            if work[r] > 0.0 and limits.queue_held[queue, r] + work[r] > limit:
                return int(queue)
        queue = limits.parent[queue]
    users, factor = limits.users[leaf], limits.user_limit_factor[leaf]
    if users <= 1 and np.isinf(factor):
        return ADMITTED
    part = max(1.0 / max(users, 1), limits.user_limit[leaf])
    guarantee, user = limits.capacity[leaf], limits.user[app]
    if limits.user_tasks[user] <= 0:
        return ADMITTED
    for r in range(work.shape[0]):
        if work[r] > 0.0:
            limit = max(guarantee, limits.queue_held[leaf, r] + work[r]) * part
            # A guarantee of nothing times no factor at all is no number.
            if not np.isinf(factor):
                limit = min(limit, guarantee * factor)
            if limits.user_held[user, r] > limit * (1 + TOLERANCE):
                return USER
    return ADMITTED


@inner_kernel
def admits(limits: Limits, app: int, work: Floats) -> bool:
    """Return whether its queues and user may hold an application's demand, `work` (d,) over C."""
    return held_back(limits, app, work) == ADMITTED


@inner_kernel
def take(limits: Limits, app: int, work: Floats) -> None:
    """Count a container as held by an application's user and queues."""
    if not limits.moves:
        return
    user = limits.user[app]
    if limits.binds:
        limits.user_tasks[user] += 1
        queue = limits.queue[app]
        while queue >= 0:
            limits.queue_tasks[queue] += 1
            queue = limits.parent[queue]
    for r in range(work.shape[0]):
        limits.user_held[user, r] += work[r]
        queue = limits.queue[app]
        while queue >= 0:
            limits.queue_held[queue, r] += work[r]
            queue = limits.parent[queue]


@inner_kernel
def used(limits: Limits, queue: int) -> float:
    """Return the dominant share of the cluster that a queue holds."""
    share = 0.0
    for r in range(limits.queue_held.shape[1]):
        share = max(share, limits.queue_held[queue, r])
    return share


@inner_kernel
def _is_below(limits: Limits, queue: int) -> bool:
    """Return whether a queue holds less than it is guaranteed."""
    return bool(used(limits, queue) < limits.capacity[queue] * (1 - TOLERANCE))


@inner_kernel
def fill_hdrf_shares(limits: Limits, best: Ints, share: Floats) -> None:
    """Fill `share` (queues,) with dominant shares as H-DRF has them; 0 where nothing competes.

    A leaf competes where it has a `best` row (queues,) >= 0; the others are blocked, and count for
    nothing. What the children of a queue hold is scaled down to that one of them which holds least
    of its guarantee, and summed then: so the queue is not charged with what one of them holds of a
    resource that another does not need (Bhattacharya et al., SoCC 2013, algorithm 1).
    """
    n, d = share.shape[0], limits.queue_held.shape[1]
    scaled, capacity, competes = limits.scaled, limits.capacity, limits.marks[0]
    for queue in range(n - 1, -1, -1):
        competes[queue] = limits.is_leaf[queue] and best[queue] >= 0
        for r in range(d):
            scaled[queue, r] = limits.queue_held[queue, r] if limits.is_leaf[queue] else 0.0
        least = np.inf
        for child in range(queue + 1, n):
            if limits.parent[child] == queue and competes[child]:
                competes[queue] = True
                if capacity[child] > 0.0:
                    least = min(least, share[child] / capacity[child])
        for child in range(queue + 1, n):
            if limits.parent[child] != queue or not competes[child] or share[child] <= 0.0:
                continue
            factor = 1.0
            if not np.isinf(least):
                factor = least * capacity[child] / share[child]
            for r in range(d):
                scaled[queue, r] += factor * scaled[child, r]
        share[queue] = 0.0
        for r in range(d if competes[queue] else 0):
            share[queue] = max(share[queue], scaled[queue, r])


@kernel
def keep_guarantees(limits: Limits, app: Ints, value: Floats) -> None:
    """Set `value` (k,) of rows that must wait for other queues to -1.

    That is done where the limits keep guarantees. A row competes with `value` >= 0; `app` (k,) is
    its application slot. Of the queues with the same parent that have rows competing, those below
    their guarantee go first, at every level: themselves, or any queue below them that competes.
    """
    if not limits.keeps:
        return
    n = limits.parent.shape[0]
    limits.marks[:] = False
    wanting, owed, first, waits = limits.marks[0], limits.marks[1], limits.marks[2], limits.marks[3]
    for i in range(value.shape[0]):
        queue = limits.queue[app[i]] if value[i] >= 0.0 else -1
        while queue >= 0 and not wanting[queue]:
            wanting[queue] = True
            queue = limits.parent[queue]
    # Parents come before their children, so this way up each child is done before its parent.
    for queue in range(n - 1, 0, -1):
        above = limits.parent[queue]
        if wanting[queue] and _is_below(limits, queue):
            owed[queue] = True
        if owed[queue]:
            # Some queue below it is owed.
            owed[above] = first[above] = True
    for queue in range(1, n):
        above = limits.parent[queue]
        waits[queue] = waits[above] or (first[above] and not owed[queue])
    for i in range(value.shape[0]):
        if waits[limits.queue[app[i]]]:
            value[i] = -1.0


@kernel
def next_queue(limits: Limits, best: Ints, rank: Ints, share: Floats) -> int:
    """Return the leaf queue whose turn it is, going down from the root; -1: none.

    Each step goes to the child queue with the least `share` (queues,) over its guarantee, among
    those below which a leaf has a best row, `best` (queues,) >= 0. Equal ones: the queue of the row
    with the smaller `rank` (k,). A queue with a leaf that has such a row and holds less than its
    guarantee goes before one without, whatever others hold beside that leaf.

    Queues are numbered parents first. So one pass from the last to the first carries the earliest
    rank of a leaf up to all above it, which says both whether anything competes below a queue and
    who wins a tie; then each step down compares the children of one queue only. A queue without a
    guarantee comes after all that have one, however little it holds; several share alike.
    """
    n = best.shape[0]
    earliest, owed = limits.first, limits.marks[1]
    earliest[:] = -1
    owed[:] = False
    for queue in range(n - 1, -1, -1):
        if best[queue] >= 0:
            earliest[queue] = rank[best[queue]]
        above = limits.parent[queue]
        if above < 0 or earliest[queue] < 0:
            continue
        if earliest[above] < 0 or earliest[queue] < earliest[above]:
            earliest[above] = earliest[queue]
        if owed[queue] or (limits.is_leaf[queue] and _is_below(limits, queue)):
            owed[queue] = owed[above] = True
    if earliest[0] < 0:
        return -1
    at = 0
    while not limits.is_leaf[at]:
        chosen, least = -1, np.inf
        for queue in range(at + 1, n):
            if limits.parent[queue] != at or earliest[queue] < 0:
                continue
            ratio = _NOTHING_GUARANTEED * (1.0 + share[queue])
            if limits.capacity[queue] > 0.0:
                ratio = share[queue] / limits.capacity[queue]
            if owed[queue]:
                ratio -= _MORE_THAN_ANY_SHARE
            if chosen < 0 or ratio < least - _SHARE_TOLERANCE:
                chosen, least = queue, ratio
            elif ratio < least + _SHARE_TOLERANCE and earliest[queue] < earliest[chosen]:
                chosen = queue
        at = chosen
    return at


@making_kernel
def guarantees(
    slots: int, active: Bools, app_queue: Ints, apps: Ints, capacity: Floats, total: Floats
) -> Floats:
    """Return what each application slot may count on, shape (slots, d).

    The guarantee of a leaf queue is split among its active applications.
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
    """Return what the cluster and the limits of a leaf queue and its ancestors leave, (d,)."""
    out = np.empty(total.shape[0])
    for r in range(total.shape[0]):
        left = total[r] - held[0, r]
        queue = leaf
        while queue >= 0:
            left = min(left, most[queue] * total[r] - held[queue, r])
            queue = parent[queue]
        out[r] = max(left, 0.0)
    return out
