"""Which rows may use a node, and how many of their containers fit: the filter of every matcher."""

import numpy as np

from rm.columns import Bools
from rm.view import View
from weft.compiled import kernel, making_kernel
from weft.dag import Floats, Ints

TOLERANCE = 1e-7  # of the node's capacity, as in the ledger


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
    """Those of the first `count` rows with something pending that may use a node slot (label, black
    list, reservation, gang) and of which at least one container fits.
    """
    out = np.empty(count, dtype=np.int64)
    n = 0
    for row in range(count):
        if pending[row] <= 0 or gang[row] or banned[app[row]]:
            continue
        if reserved[node] != 0 and serial[row] != reserved[node]:
            continue
        if label[row] == 0:
            if labels[node] != 0:
                continue
        elif labels[node] & label[row] == 0:
            continue
        fits = True
        for r in range(demand.shape[1]):
            room = available[node, r] + TOLERANCE * capacity[node, r]
            if demand[row, r] > room and demand[row, r] > 0:
                fits = False
                break
        if fits:
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
    return _fitting(view, node, view.nodes.available)


def able(view: View, node: int) -> Ints:
    """Rows that may use a node slot and of which at least one container fits when it is empty."""
    return _fitting(view, node, view.nodes.capacity)


def _fitting(view: View, node: int, amounts: Floats) -> Ints:
    rows, nodes = view.rows, view.nodes
    return eligible_rows(
        rows.count, rows.pending, rows.app, rows.label, rows.gang, rows.serial, view.banned(node),
        node, nodes.labels, nodes.reserved, rows.demand, amounts, nodes.capacity,
    )  # fmt: skip
