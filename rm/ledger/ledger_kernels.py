"""The ledger's sums, compiled: one call books or frees like containers everywhere they count."""

from weft.compiled import kernel
from weft.dag import Floats, Ints

TOLERANCE = 1e-7  # of the capacity, docs/rules.md rule 2


@kernel
def too_small(node: int, available: Floats, capacity: Floats, least: Floats, slack: Floats) -> bool:
    """Whether a node has less room than the least that any container needs, overbooked or not."""
    for r in range(least.shape[0]):
        if available[node, r] < least[r] - (slack[r] + TOLERANCE) * capacity[node, r]:
            return True
    return False


@kernel
def book(
    parent: Ints,
    capacity: Floats,
    node_held: Floats,
    available: Floats,
    node_containers: Ints,
    app_held: Floats,
    app_containers: Ints,
    app_user: Ints,
    app_queue: Ints,
    user_held: Floats,
    user_containers: Ints,
    queue_held: Floats,
    node: int,
    app: int,
    count: int,
    demand: Floats,
    limit: Floats,
) -> int:
    """Add `count` demands to the node and to all who hold them; answers the resource + 1 that
    would pass `limit` times the node's capacity, 0 when booked. app -1: only the node counts.
    """
    size = demand.shape[0]
    for r in range(size):
        most = capacity[node, r] * (limit[r] + TOLERANCE)
        if demand[r] > 0 and node_held[node, r] + count * demand[r] > most:
            return r + 1
    node_containers[node] += count
    user = leaf = -1
    if app >= 0:
        user, leaf = app_user[app], app_queue[app]
        app_containers[app] += count
        user_containers[user] += count
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
    parent: Ints,
    capacity: Floats,
    node_held: Floats,
    available: Floats,
    node_containers: Ints,
    app_held: Floats,
    app_containers: Ints,
    app_user: Ints,
    app_queue: Ints,
    user_held: Floats,
    user_containers: Ints,
    queue_held: Floats,
    node: int,
    app: int,
    demand: Floats,
) -> None:
    """Take one demand back. Who then has no container holds nothing, so that rounding never leaves
    a rest behind.
    """
    node_containers[node] -= 1
    user = leaf = -1
    if app >= 0:
        user, leaf = app_user[app], app_queue[app]
        app_containers[app] -= 1
        user_containers[user] -= 1
    for r in range(demand.shape[0]):
        amount = demand[r]
        node_held[node, r] = 0.0 if node_containers[node] == 0 else node_held[node, r] - amount
        available[node, r] = capacity[node, r] - node_held[node, r]
        if app >= 0:
            app_held[app, r] = 0.0 if app_containers[app] == 0 else app_held[app, r] - amount
            user_held[user, r] = 0.0 if user_containers[user] == 0 else user_held[user, r] - amount
            queue = leaf
            while queue >= 0:
                queue_held[queue, r] -= amount
                queue = parent[queue]


@kernel
def await_more(
    parent: Ints, app_pending: Ints, app_queue: Ints, queue_pending: Ints, app: int, count: int
) -> None:
    """Count containers as pending for an application and all queues that it is in."""
    app_pending[app] += count
    queue = app_queue[app]
    while queue >= 0:
        queue_pending[queue] += count
        queue = parent[queue]
