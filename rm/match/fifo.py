"""Strict order: nothing starts on a node before the first ask in line that the node can hold.

The order is priority, then submission, then the application's preferred order. Asks that the node
could not hold even when empty, or that a limit of their queue or user holds back, do not block it.
Queues below their guarantee stand in front. `fill` closes the gaps that this leaves.
"""

import numpy as np

from rm.ledger.view import View
from rm.match.candidates import NONE, asks_of, gate_of, place_of
from rm.match.fifo_kernels import FILLED_BY, NOTHING_FILLS, Line, Scratch, pick
from rm.match.protocol import NOTHING, BaseMatcher, Match, Placement
from rm.match.score_kernels import FEW
from weft.compiled import steady

_pick = steady(pick)


class FifoMatcher(BaseMatcher):
    """YARN's FIFO Scheduler, strictly: the head waits until it fits.

    `fill`: what may start on a node while the head does not fit there: `none`, so that gaps stay;
    `job`, other asks of the head's application; `all`, whatever fits, in the order of the line.
    """

    name = "fifo"

    def __init__(self, fill: str = "none") -> None:
        self.fill = FILLED_BY[fill]
        self.strict = self.fill == NOTHING_FILLS

    def match(self, view: View, node: int, now: float) -> Match:
        """Grant the head of the line for as long as it fits."""
        apps, asks, place = view.apps, asks_of(view, node), place_of(view, node)
        gate = gate_of(view, keeps=True)
        line = Line(asks, place, view.total, apps.priority, apps.order, gate, self.fill)
        left, room = asks.pending[: asks.size].copy(), place.available.copy()
        value = np.empty(asks.size) if gate.keeps else NONE
        scratch = Scratch(room, np.empty(len(room)), value)
        picked = np.empty((FEW, 2), np.int64)
        n = _pick(line, left, scratch, picked, 0)
        while n == len(picked):
            picked = np.concatenate((picked, np.empty_like(picked)))
            n = _pick(line, left, scratch, picked, n)
        if not n:
            return NOTHING
        return Match(
            [
                Placement(row, count, (("place", float(at)),))
                for at, (row, count) in enumerate(picked[:n].tolist())
            ]
        )
