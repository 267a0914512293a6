"""Tetris: the best aligned task of the applications furthest below their share.

Score = alignment - epsilon x remaining work (Tetris sections 3.2 and 3.3); the fairness knob f
(section 3.4) lets only the ceil((1 - f) x applications) with the least dominant share compete.
Queues below their guarantee go first.
"""

import numpy as np

from rm.ledger.view import View
from rm.match.aligned import best_aligned
from rm.match.candidate_kernels import largest_over, over
from rm.match.candidates import candidates, limits_of, mean_remaining, placements
from rm.match.protocol import NOTHING, BaseMatcher, Match
from rm.match.tetris_kernels import Tetris
from weft.policies.compiled import steady

# The weight of remaining work against alignment, m (Graphene section 8.4).
SRPT_M = 0.2
_largest_over = steady(largest_over)
_over = steady(over)


class TetrisMatcher(BaseMatcher):
    """Packing and shortest remaining work; no preferred order."""

    name = "tetris"

    def __init__(self, fairness: float) -> None:
        self.fairness = fairness

    def match(self, view: View, node: int, now: float) -> Match:
        """Pick the best (task, machine) pair again and again while something fits."""
        found = candidates(view, node)
        if not len(found.rows):
            return NOTHING
        n = view.app_slots
        knobs = Tetris(self.fairness, SRPT_M, mean_remaining(view))
        held = _over.code(view.apps.held[:n], view.total)
        limits = limits_of(view, keeps=True)
        picks = best_aligned(found, view.apps.remaining[:n].copy(), held, knobs, limits)
        return Match(placements(found.rows, picks, ("alignment", "work")))

    def why_not(self, view: View, node: int, row: int) -> str:
        """Return what holds a row where only applications with the least share may compete."""
        if self.fairness <= 0:
            return ""
        share = _largest_over.code(view.apps.held[: view.app_slots], view.total)
        n = view.app_slots
        busy = view.apps.active[:n] & (view.apps.pending[:n] > 0)
        before = int((busy & (share < share[view.rows.app[row]] - 1e-9)).sum())
        if before < max(1, int(np.ceil((1 - self.fairness) * busy.sum() - 1e-9))):
            return ""
        return f"held by fairness: {before} applications have a smaller share"
