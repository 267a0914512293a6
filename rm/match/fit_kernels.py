"""Which rows may use a node, and how many of their containers fit: the filter of every matcher."""

import numpy as np

from rm.ledger.columns import Bools
from rm.ledger.view import View
from weft.compiled import inner_kernel, kernel, making_kernel
from weft.dag import Floats, Ints

TOLERANCE = 1e-7  # of the node's capacity, as in the ledger


@inner_kernel
def usable(
    row: int,
    pending: Ints,
    app: Ints,
    label: Ints,
    gang: Bools,
    serial: Ints,
    banned: Bools,
    node: int,
    labels: Ints,
    reserved: Ints,
    demand: Floats,
    available: Floats,
    capacity: Floats,
) -> bool:
    """Whether a row has something pending, may use a node slot (label, black list, reservation,
    gang), and one of its containers fits into what is `available` there.
    """
    if pending[row] <= 0 or gang[row] or banned[app[row]]:
        return False
    if reserved[node] != 0 and serial[row] != reserved[node]:
        return False
    if label[row] == 0:
        if labels[node] != 0:
            return False
    elif labels[node] & label[row] == 0:
        return False
    for r in range(demand.shape[1]):
        room = available[node, r] + TOLERANCE * capacity[node, r]
        if demand[row, r] > room and demand[row, r] > 0:
            return False
    return True


@making_kernel
def eligible_rows(
    count: int,
    pending: Ints,
    app: Ints,
    label: Ints,
    gang: Bools,
    serial: Ints,
    banned: Bools,
    node: int,
    labels: Ints,
    reserved: Ints,
    demand: Floats,
    available: Floats,
    capacity: Floats,
) -> Ints:
    """Those of the first `count` rows that are `usable`."""
    out = np.empty(count, dtype=np.int64)
    n = 0
    for row in range(count):
        if usable(
            row, pending, app, label, gang, serial, banned, node, labels, reserved, demand,
            available, capacity,
        ):  # fmt: skip
            out[n] = row
            n += 1
    return out[:n]


@kernel
def copies(demand: Floats, available: Floats, capacity: Floats, most: int) -> int:
    """How many containers of a demand fit into `available` together, at most `most`."""
    count = most
    for r in range(available.shape[0]):
        if demand[r] > 0:
            room = int(np.floor((available[r] + TOLERANCE * capacity[r]) / demand[r]))
            count = min(count, max(room, 0))
    return count


def eligible(view: View, node: int) -> Ints:
    """Rows that may use a node slot and of which at least one container fits now."""
    rows, nodes = view.rows, view.nodes
    return eligible_rows(
        rows.count, rows.pending, rows.app, rows.label, rows.gang, rows.serial, view.banned(node),
        node, nodes.labels, nodes.reserved, rows.demand, nodes.available, nodes.capacity,
    )  # fmt: skip
