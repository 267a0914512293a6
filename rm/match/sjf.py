"""SJF: the application with the shortest critical path left goes first, its preferred order inside.

Carbyne section 5.1: job duration by the critical path method. An application that reports no path
is judged by its remaining work.
"""

import numpy as np

from rm.ledger.view import View
from rm.match.candidates import candidates, placements
from rm.match.protocol import NOTHING, BaseMatcher, Match
from rm.match.score_kernels import NOBODY, picks_by_turn


class SjfMatcher(BaseMatcher):
    """Shortest job first; an upper bound for what can be gained in mean completion time."""

    name = "sjf"

    def match(self, view: View, node: int, now: float) -> Match:
        """Serve the shortest application first while something of it fits, then the next."""
        found = candidates(view, node)
        if not len(found.rows):
            return NOTHING
        n = view.app_slots
        path = view.apps.path[:n]
        picked, keys = picks_by_turn(
            found.packing, np.zeros(len(found.rows)), found.pri, found.pending, found.app,
            found.rank, found.free, np.where(path > 0, path, view.apps.remaining[:n]), 1 << 30,
            NOBODY,
        )  # fmt: skip
        return Match(placements(found.rows, picked, keys, ("path_s",)))
