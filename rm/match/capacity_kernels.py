"""The Capacity Scheduler's choice, compiled: hungriest queue, first application, best row."""

import numpy as np

from rm.ledger.columns import Bools
from rm.match.delay_kernels import waits
from rm.match.limit_kernels import full_queue, user_allows
from rm.match.line_kernels import turn
from weft.compiled import kernel, making_kernel
from weft.dag import Floats, Ints

_EPS = 1e-7


@kernel
def _before(
    a: int,
    b: int,
    app: Ints,
    pri_score: Floats,
    level: Ints,
    serial: Ints,
    priority: Ints,
    order: Ints,
) -> bool:
    """The line's order, then nearness, then the smaller serial."""
    first = turn(a, b, app, pri_score, priority, order)
    if first != 0:
        return first < 0
    if level[a] != level[b]:
        return bool(level[a] < level[b])
    return bool(serial[a] < serial[b])


@kernel
def _fits(demand: Floats, available: Floats, capacity: Floats) -> bool:
    for r in range(available.shape[0]):
        if demand[r] > 0 and demand[r] > available[r] + _EPS * capacity[r]:
            return False
    return True


@making_kernel
def _hungriest(
    best: Ints, held: Floats, guarantee: Floats, total: Floats, parent: Ints, is_leaf: Bools
) -> int:
    """Go down from the root, each time to the queue with the least use of its guarantee."""
    n = best.shape[0]
    wanting = np.zeros(n, dtype=np.bool_)
    for queue in range(n - 1, -1, -1):
        if best[queue] >= 0:
            wanting[queue] = True
        if wanting[queue] and parent[queue] >= 0:
            wanting[parent[queue]] = True
    if not wanting[0]:
        return -1
    at = 0
    while not is_leaf[at]:
        chosen, least = -1, np.inf
        for queue in range(at + 1, n):
            if parent[queue] != at or not wanting[queue]:
                continue
            used = 0.0
            for r in range(total.shape[0]):
                if total[r] > 0:
                    used = max(used, held[queue, r] / total[r])
            ratio = used / guarantee[queue] if guarantee[queue] > 0 else 1e300
            if chosen < 0 or ratio < least:
                chosen, least = queue, ratio
        at = chosen
    return at


@kernel
def _hold(
    demand: Floats,
    available: Floats,
    user_held: Floats,
    queue_held: Floats,
    leaf: int,
    parent: Ints,
) -> None:
    """Count one container as granted to a user, `user_held` (d,), and to all its queues."""
    for r in range(demand.shape[0]):
        available[r] -= demand[r]
        user_held[r] += demand[r]
        queue = leaf
        while queue >= 0:
            queue_held[queue, r] += demand[r]
            queue = parent[queue]


@making_kernel
def pick(
    line: Ints,
    pending: Ints,
    demand: Floats,
    app: Ints,
    pri_score: Floats,
    level: Ints,
    missed: Ints,
    serial: Ints,
    priority: Ints,
    order: Ints,
    app_queue: Ints,
    app_user: Ints,
    available: Floats,
    capacity: Floats,
    total: Floats,
    queue_held: Floats,
    guarantee: Floats,
    most: Floats,
    parent: Ints,
    is_leaf: Bools,
    users: Ints,
    user_limit: Floats,
    user_limit_factor: Floats,
    user_held: Floats,
    node_delay: int,
    rack_delay: int,
) -> tuple[Ints, Ints, Ints]:
    """Rows in the order in which they are granted, how many containers each in one go, and those of
    `line` that declined and got nothing.
    """
    pending, available = pending.copy(), available.copy()
    queue_held, user_held = queue_held.copy(), user_held.copy()
    picked = []
    declined = np.zeros(line.shape[0], dtype=np.bool_)
    best = np.empty(queue_held.shape[0], dtype=np.int64)
    while True:
        best[:] = -1
        for i in range(line.shape[0]):
            row = line[i]
            if pending[row] <= 0 or not _fits(demand[row], available, capacity):
                continue
            leaf, user = app_queue[app[row]], app_user[app[row]]
            if best[leaf] >= 0 and not _before(
                row, best[leaf], app, pri_score, level, serial, priority, order
            ):
                continue
            if full_queue(leaf, demand[row], total, queue_held, most, parent) >= 0:
                continue
            if not user_allows(
                demand[row], total, queue_held[leaf], user_held[user], guarantee[leaf],
                users[leaf], user_limit[leaf], user_limit_factor[leaf],
            ):  # fmt: skip
                continue
            if waits(level[row], missed[row], node_delay, rack_delay):
                declined[i] = True
                continue
            best[leaf] = row
        leaf = _hungriest(best, queue_held, guarantee, total, parent, is_leaf)
        if leaf < 0:
            break
        row = best[leaf]
        picked.append(row)
        pending[row] -= 1
        _hold(demand[row], available, user_held[app_user[app[row]]], queue_held, leaf, parent)
    out, copies = np.empty(len(picked), dtype=np.int64), np.zeros(len(picked), dtype=np.int64)
    n = 0
    for row in picked:
        if n == 0 or out[n - 1] != row:
            out[n] = row
            n += 1
        copies[n - 1] += 1
    return out[:n], copies[:n], line[declined]
