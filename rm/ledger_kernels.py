"""The ledger's sums, compiled: one call books or frees like containers everywhere they count."""

from rm.columns import Bools
from weft.compiled import kernel
from weft.dag import Floats, Ints

TOLERANCE = 1e-7  # of the capacity, as ALGORITHMS section 0 says


@kernel
def book(
    node: int,
    app: int,
    user: int,
    leaf: int,
    count: int,
    demand: Floats,
    limit: Floats,
    capacity: Floats,
    node_held: Floats,
    available: Floats,
    app_held: Floats,
    user_held: Floats,
    queue_held: Floats,
    parent: Ints,
) -> int:
    """Add `count` demands to the node and to all who hold them; answers the resource + 1 that
    would pass `limit` times the node's capacity, 0 when booked. app -1: only the node counts.
    """
    size = demand.shape[0]
    for r in range(size):
        most = capacity[node, r] * (limit[r] + TOLERANCE)
        if demand[r] > 0 and node_held[node, r] + count * demand[r] > most:
            return r + 1
    for r in range(size):
        amount = count * demand[r]
        node_held[node, r] += amount
        available[node, r] = capacity[node, r] - node_held[node, r]
        if app >= 0:
            app_held[app, r] += amount
            user_held[user, r] += amount
            queue = leaf
            while queue >= 0:
                queue_held[queue, r] += amount
                queue = parent[queue]
    return 0


@kernel
def free(
    node: int,
    app: int,
    user: int,
    leaf: int,
    last: Bools,
    demand: Floats,
    capacity: Floats,
    node_held: Floats,
    available: Floats,
    app_held: Floats,
    user_held: Floats,
    queue_held: Floats,
    parent: Ints,
) -> None:
    """Take one demand back. `last` says whether the node, app and user then hold nothing, so that
    rounding never leaves a rest behind.
    """
    for r in range(demand.shape[0]):
        amount = demand[r]
        node_held[node, r] = 0.0 if last[0] else node_held[node, r] - amount
        available[node, r] = capacity[node, r] - node_held[node, r]
        if app >= 0:
            app_held[app, r] = 0.0 if last[1] else app_held[app, r] - amount
            user_held[user, r] = 0.0 if last[2] else user_held[user, r] - amount
            queue = leaf
            while queue >= 0:
                queue_held[queue, r] -= amount
                queue = parent[queue]
