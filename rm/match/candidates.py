"""The rows that compete for a node, as arrays for the scoring kernels."""

from dataclasses import dataclass

import numpy as np

from rm.ledger.view import View
from rm.match.candidate_kernels import gather, mean_of_busy
from rm.match.protocol import Placement, Scores
from weft.dag import Floats, Ints

NONE: Floats = np.zeros(0)


@dataclass(slots=True)
class Candidates:
    """Rows of one node's decision; arrays have shape (k,) or (k, d)."""

    rows: Ints
    fit: int  # the first so many fit, the others only with overbooking
    packing: Floats  # demand over the node's capacity
    work: Floats  # demand over the cluster's
    duration: Floats
    pri: Floats
    pending: Ints
    app: Ints
    rank: Ints  # order for ties: the earlier application, then the earlier ask
    remote: Floats  # 1 where the row prefers other machines
    free: Floats  # available over the node's capacity, shape (d,)
    room: Floats  # the same with overbooking, and below 0 where it is overbooked

    def part(self, keep: Ints) -> "Candidates":
        """Some of the rows, in the order of `keep`; `fit` is not kept."""
        return Candidates(
            self.rows[keep], len(keep), self.packing[keep], self.work[keep], self.duration[keep],
            self.pri[keep], self.pending[keep], self.app[keep], self.rank[keep],
            self.remote[keep], self.free, self.room,
        )  # fmt: skip


def candidates(
    view: View, node: int, beyond: Floats = NONE, extra_most: int = 0
) -> Candidates:  # fmt: skip
    """Rows that may use a node and fit there, and some that would with `beyond` x capacity more.

    All preconditions are applied: label, black list, reservation, gang.
    """
    rows, nodes, n = view.rows, view.nodes, view.rows.count
    return Candidates(
        *gather(
            rows.pending[:n], rows.app, rows.label, rows.gang, rows.serial, rows.demand,
            rows.duration_s, rows.pri_score, view.levels(node), view.apps.order,
            view.banned(node), int(nodes.labels[node]), int(nodes.reserved[node]),
            nodes.available[node], nodes.capacity[node], view.total,
            beyond if len(beyond) else np.zeros(len(view.total)), extra_most,
        )
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
