"""The rows that compete for a node, as arrays for the scoring kernels."""

import numpy as np

from rm.ledger.asks import RACK_LOCAL, REMOTE
from rm.ledger.view import View
from rm.match.candidate_kernels import Candidates, gather, mean_of_busy
from rm.match.filter_kernels import Asks, Place
from rm.match.protocol import Placement, Scores
from weft.dag import Floats, Ints

NONE: Floats = np.zeros(0)


def candidates(
    view: View, node: int, beyond: Floats = NONE, extra_most: int = 0
) -> Candidates:  # fmt: skip
    """Rows that may use a node and fit there, and some that would with `beyond` x capacity more.

    All preconditions are applied: label, black list, reservation, gang.
    """
    return gather(
        asks_of(view), place_of(view, node), _levels(view, node), view.apps.order, view.total,
        beyond if len(beyond) else np.zeros(len(view.total)), extra_most,
    )  # fmt: skip


def _levels(view: View, node: int) -> Ints:
    """How near each row's input is; in a cluster of one rack that rack is no nearer than others."""
    levels = view.levels(node)
    if view.rows.preferring and len(view.rack_names) < 2:
        return np.where(levels == RACK_LOCAL, REMOTE, levels)
    return levels


def asks_of(view: View) -> Asks:
    """Return the pending asks as kernels take them."""
    rows = view.rows
    return Asks(
        rows.count, rows.pending, rows.app, rows.label, rows.gang, rows.serial, rows.demand,
        rows.duration_s, rows.pri_score,
    )  # fmt: skip


def place_of(view: View, node: int) -> Place:
    """Return a node as kernels take it."""
    nodes = view.nodes
    return Place(
        int(nodes.labels[node]), int(nodes.reserved[node]), nodes.available[node],
        nodes.capacity[node], view.banned(node),
    )  # fmt: skip


def shares_of(amounts: Floats, by: Floats) -> Floats:
    """Amounts over a capacity, 0 where that is 0."""
    return np.divide(amounts, by, out=np.zeros_like(amounts), where=by > 0)


def mean_remaining(view: View) -> float:
    """Mean srpt over active applications with something pending."""
    n = view.app_slots
    return mean_of_busy(view.apps.remaining[:n], view.apps.active, view.apps.pending)


def needier(view: View, share: Floats, app: int) -> int:
    """How many applications with something pending have a smaller `share` (slots,) than `app`."""
    n = view.app_slots
    busy = view.apps.active[:n] & (view.apps.pending[:n] > 0)
    return int((busy & (share < share[app] - 1e-9)).sum())


def placements(rows: Ints, picked: Ints, terms: Floats, names: tuple[str, ...]) -> list[Placement]:
    """One placement per run of picks of the same row, with the first pick's terms."""
    found: list[Placement] = []
    if not len(picked):
        return found
    chosen, values = rows[picked].tolist(), terms.tolist()
    last, start = chosen[0], 0
    for position, row in enumerate([*chosen, -1]):
        if row != last:
            scores: Scores = tuple(zip(names, values[start], strict=True))
            found.append(Placement(last, position - start, scores))
            last, start = row, position
    return found
