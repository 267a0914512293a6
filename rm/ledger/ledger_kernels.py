"""The ledger's sums, compiled: one call books or frees identical containers wherever they count."""

from typing import NamedTuple

import numpy as np

from rm.ledger.columns import Bools
from weft.model.dag import Floats, Ints
from weft.model.resources import TOLERANCE
from weft.policies.compiled import inner_kernel, kernel


@kernel
def too_small(available: Floats, capacity: Floats, node: int, least: Floats, slack: Floats) -> bool:
    """Return whether a node has less room than the least that any container needs."""
    for r in range(least.shape[0]):
        short = available[node, r] < least[r] - (slack[r] + TOLERANCE) * capacity[node, r]
        # Any node has enough of what nobody needs.
        if short and least[r] > 0.0:
            return True
    return False


@kernel
def with_room(
    start: int,
    among: Bools,
    available: Floats,
    capacity: Floats,
    least: Floats,
    slack: Floats,
    out: Ints,
) -> int:
    """Fill `out` (nodes,) with the nodes `among` (nodes,) that are not too small; return how many.

    They come in the order of their numbers, from `start` on and then from 0.
    """
    count, nodes = 0, out.shape[0]
    for place in range(nodes):
        node = (start + place) % nodes
        if among[node] and not too_small(available, capacity, node, least, slack):
            out[count] = node
            count += 1
    return count


@kernel
def some_wait(pending: Ints, since_s: Floats, before_s: float, granted_s: Floats) -> bool:
    """Return whether a row waits since `before_s` or longer, and meanwhile something was granted.

    `pending` and `since_s` are by row, `granted_s`, when something was granted last, by application
    slot.
    """
    newest_s = -np.inf
    for app in range(granted_s.shape[0]):
        newest_s = max(newest_s, granted_s[app])
    for row in range(pending.shape[0]):
        if pending[row] > 0 and since_s[row] <= before_s and since_s[row] < newest_s:
            return True
    return False


@kernel
def roomiest(up: Bools, reserved: Ints, available: Floats, scale: Floats) -> int:
    """Return the node in service, reserved for nobody, with the largest sum of what is free; or -1.

    Amounts are over `scale` (d,). Of several the first.
    """
    best, most = -1, -np.inf
    for node in range(up.shape[0]):
        if not up[node] or reserved[node] != 0:
            continue
        room = 0.0
        for r in range(available.shape[1]):
            room += available[node, r] / scale[r]
        if room > most:
            best, most = node, room
    return best


class Holders(NamedTuple):
    """The ledger's tables of who holds what, by slot; amounts are absolute, (slots, d).

    `available` is `capacity` - `node_held`. `queue_held` and `queue_containers` are of a queue and
    all below it; `parent` is by queue, and -1 where there is none.
    """

    capacity: Floats
    node_held: Floats
    available: Floats
    node_containers: Ints
    app_held: Floats
    app_containers: Ints
    app_user: Ints
    app_queue: Ints
    user_held: Floats
    user_containers: Ints
    queue_held: Floats
    queue_containers: Ints
    parent: Ints


class Asked(NamedTuple):
    """The ledger's tables of who waits for containers, beside those of who holds some.

    `granted_s` is when an application was granted one last; `queue_pending` is of a queue and all
    below it, `queue_users` how many users of a leaf wait for something.
    """

    holders: Holders
    app_pending: Ints
    granted_s: Floats
    user_pending: Ints
    queue_pending: Ints
    queue_users: Ints


class Used(NamedTuple):
    """How many slots of the tables are in use."""

    nodes: int
    apps: int


@inner_kernel
def _in_use(holders: Holders, used: Used, node: int, app: int, demand: Floats) -> bool:
    """Return whether both slots are in use: compiled code would otherwise write out of bounds."""
    if demand.shape[0] != holders.capacity.shape[1]:
        return False
    return 0 <= node < used.nodes and -1 <= app < used.apps


@inner_kernel
def _book(
    holders: Holders, used: Used, node: int, app: int, count: int, demand: Floats, limit: Floats
) -> int:
    """Add `count` demands to the node and to all who hold them. app -1: only the node counts.

    Return the resource + 1 that would pass `limit` (d,) times the node's capacity, 0 when booked,
    -1 where a slot is not in use.
    """
    if not _in_use(holders, used, node, app, demand):
        return -1
    held, capacity = holders.node_held, holders.capacity
    size = demand.shape[0]
    for r in range(size):
        most = capacity[node, r] * (limit[r] + TOLERANCE)
        if demand[r] > 0 and held[node, r] + count * demand[r] > most:
            return r + 1
    holders.node_containers[node] += count
    user = leaf = -1
    if app >= 0:
        user, leaf = holders.app_user[app], holders.app_queue[app]
        holders.app_containers[app] += count
        holders.user_containers[user] += count
        queue = leaf
        while queue >= 0:
            holders.queue_containers[queue] += count
            queue = holders.parent[queue]
    for r in range(size):
        amount = count * demand[r]
        held[node, r] += amount
        holders.available[node, r] = capacity[node, r] - held[node, r]
        if app >= 0:
            holders.app_held[app, r] += amount
            holders.user_held[user, r] += amount
            queue = leaf
            while queue >= 0:
                holders.queue_held[queue, r] += amount
                queue = holders.parent[queue]
    return 0


@kernel
def book(
    holders: Holders, used: Used, node: int, app: int, count: int, demand: Floats, limit: Floats
) -> int:
    """Do `_book`, for Python."""
    return _book(holders, used, node, app, count, demand, limit)


@kernel
def free(holders: Holders, used: Used, node: int, app: int, demand: Floats, count: int) -> bool:
    """Do `_free`, for Python."""
    return _free(holders, used, node, app, demand, count)


@inner_kernel
def _free(holders: Holders, used: Used, node: int, app: int, demand: Floats, count: int) -> bool:
    """Take `count` like demands back, one after the other, as each rounds by itself.

    Return whether both slots are in use.
    """
    if not _in_use(holders, used, node, app, demand):
        return False
    for _ in range(count):
        _free_one(holders, node, app, demand)
    return True


@kernel
def grant(
    asked: Asked,
    used: Used,
    node: int,
    app: int,
    count: int,
    demand: Floats,
    limit: Floats,
    now: float,
) -> int:
    """Do `_book` for containers that an application asked for, which then are not pending any more.

    Return what `_book` does.
    """
    holders = asked.holders
    over = _book(holders, used, node, app, count, demand, limit)
    if over == 0:
        asked.granted_s[app] = now
        _await_more(asked, app, -count)
    return over


@kernel
def end(
    holders: Holders,
    used: Used,
    node: int,
    app: int,
    demand: Floats,
    count: int,
    held_s: Floats,
    lasted_s: float,
) -> bool:
    """Do `_free`, then `add_held`: containers that an application held for `lasted_s` ended."""
    if not _free(holders, used, node, app, demand, count):
        return False
    add_held(held_s, demand, lasted_s, count)
    return True


@inner_kernel
def _free_one(holders: Holders, node: int, app: int, demand: Floats) -> None:
    """Take one demand back.

    Whoever has no container then holds nothing, so that rounding never leaves a rest behind.
    """
    holders.node_containers[node] -= 1
    node_rests, app_rests, user_rests = holders.node_containers[node] > 0, True, True
    user = leaf = -1
    if app >= 0:
        user, leaf = holders.app_user[app], holders.app_queue[app]
        holders.app_containers[app] -= 1
        holders.user_containers[user] -= 1
        app_rests = holders.app_containers[app] > 0
        user_rests = holders.user_containers[user] > 0
        queue = leaf
        while queue >= 0:
            holders.queue_containers[queue] -= 1
            queue = holders.parent[queue]
    for r in range(demand.shape[0]):
        _less(holders.node_held, node, r, demand[r], node_rests)
        holders.available[node, r] = holders.capacity[node, r] - holders.node_held[node, r]
        if app >= 0:
            _less(holders.app_held, app, r, demand[r], app_rests)
            _less(holders.user_held, user, r, demand[r], user_rests)
            queue = leaf
            while queue >= 0:
                rests = holders.queue_containers[queue] > 0
                _less(holders.queue_held, queue, r, demand[r], rests)
                queue = holders.parent[queue]


@kernel
def add_held(held_s: Floats, demand: Floats, lasted_s: float, count: int) -> None:
    """Add amounts x s of `count` identical containers to `held_s` (d,), rounding after each."""
    for r in range(held_s.shape[0]):
        more = demand[r] * lasted_s
        for _ in range(count):
            held_s[r] += more


@inner_kernel
def _less(held: Floats, slot: int, r: int, amount: float, rests: bool) -> None:
    """Subtract an amount; nothing is left where no container rests."""
    held[slot, r] = held[slot, r] - amount if rests else 0.0


@kernel
def await_more(asked: Asked, app: int, count: int) -> None:
    """Do `_await_more`, for Python."""
    _await_more(asked, app, count)


@inner_kernel
def _await_more(asked: Asked, app: int, count: int) -> None:
    """Count containers as pending for an application, its user and all queues that it is in."""
    user, queue = asked.holders.app_user[app], asked.holders.app_queue[app]
    asked.app_pending[app] += count
    waited = asked.user_pending[user] > 0
    asked.user_pending[user] += count
    asked.queue_users[queue] += int(asked.user_pending[user] > 0) - int(waited)
    while queue >= 0:
        asked.queue_pending[queue] += count
        queue = asked.holders.parent[queue]
