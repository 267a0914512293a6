"""Strict order: nothing starts on a node before the first ask in line that the node can hold.

The order is priority, then submission, then the application's preferred order. Asks that the node
could not hold even when empty do not block it: they wait for another node.
"""

import numpy as np

from rm.match.fifo_kernels import head
from rm.match.fit_kernels import allowed, copies, fitting
from rm.match.protocol import NOTHING, BaseMatcher, Match, Placement
from rm.view import View


class FifoMatcher(BaseMatcher):
    """YARN's FIFO Scheduler, strictly: the head waits until it fits."""

    name = "fifo"

    def match(self, view: View, node: int, now: float) -> Match:
        """Grant the head of the line for as long as it fits."""
        rows, n = view.rows, view.rows.count
        capacity = view.nodes.capacity[node]
        line = fitting(allowed(view, node), rows.demand[:n], capacity, capacity)
        available = view.nodes.available[node].copy()
        placements: list[Placement] = []
        while len(line):
            first = head(
                line, rows.app, rows.pri_score, rows.serial, view.apps.priority, view.apps.order
            )
            pending = int(rows.pending[first])
            count = copies(rows.demand[first], available, capacity, pending)
            if count > 0:
                placements.append(Placement(first, count, (("place", float(len(placements))),)))
                available -= count * rows.demand[first]
            if count < pending:
                break
            line = np.asarray(line[line != first])
        return Match(placements) if placements else NOTHING
