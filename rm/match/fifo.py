"""Strict order: nothing starts on a node before the first ask in line that the node can hold.

The order is priority, then submission, then the application's preferred order. Asks that the node
could not hold even when empty, or that a limit of their queue or user holds back, do not block it.
Queues below their guarantee stand in front.
"""

from rm.ledger.view import View
from rm.match.candidates import asks_of, gate_of, place_of
from rm.match.fifo_kernels import pick
from rm.match.protocol import NOTHING, BaseMatcher, Match, Placement
from weft.compiled import steady

_pick = steady(pick)


class FifoMatcher(BaseMatcher):
    """YARN's FIFO Scheduler, strictly: the head waits until it fits."""

    name = "fifo"
    strict = True

    def match(self, view: View, node: int, now: float) -> Match:
        """Grant the head of the line for as long as it fits."""
        apps = view.apps
        picked = _pick(
            asks_of(view), place_of(view, node), view.total, apps.priority, apps.order,
            gate_of(view, keeps=True),
        )  # fmt: skip
        if not len(picked):
            return NOTHING
        return Match(
            [
                Placement(row, count, (("place", float(place)),))
                for place, (row, count) in enumerate(picked.tolist())
            ]
        )
