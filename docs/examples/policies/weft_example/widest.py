"""A matcher: the application with the most tasks waiting goes first."""

import numpy as np

from rm.ledger.view import View
from rm.match.candidates import candidates
from rm.match.protocol import NOTHING, BaseMatcher, Match
from rm.match.turns import smallest_first


class Widest(BaseMatcher):
    """Serves the widest application first; `narrow` turns it round."""

    name = "widest"

    def __init__(self, narrow: bool = False) -> None:
        self.narrow = narrow

    def match(self, view: View, node: int, now: float) -> Match:
        """Answer what to grant on a node now; it changes nothing."""
        found = candidates(view, node)  # rows that may use the node and fit there
        if not len(found.rows):
            return NOTHING
        rows = view.rows
        width = np.bincount(
            rows.app[: rows.count], rows.pending[: rows.count], minlength=view.app_slots
        )
        return smallest_first(view, found, width if self.narrow else -width, "width")
