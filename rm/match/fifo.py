"""Strict order: nothing starts on a node before the first ask in line that the node can hold.

The order is priority, then submission, then the application's preferred order. Asks that the node
could not hold even when empty do not block it: they wait for another node.
"""

from rm.ledger.view import View
from rm.match.candidates import asks_of, place_of
from rm.match.fifo_kernels import pick
from rm.match.protocol import NOTHING, BaseMatcher, Match, Placement


class FifoMatcher(BaseMatcher):
    """YARN's FIFO Scheduler, strictly: the head waits until it fits."""

    name = "fifo"

    def match(self, view: View, node: int, now: float) -> Match:
        """Grant the head of the line for as long as it fits."""
        apps = view.apps
        picked = pick(asks_of(view), place_of(view, node), apps.priority, apps.order)
        if not len(picked):
            return NOTHING
        return Match(
            [
                Placement(row, count, (("place", float(place)),))
                for place, (row, count) in enumerate(picked.tolist())
            ]
        )
