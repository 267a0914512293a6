"""SJF: the application with the shortest critical path left goes first, its preferred order inside.

Carbyne section 5.1: job duration by the critical path method. An application that reports no path
is judged by its remaining work. Queues below their guarantee go first.
"""

import numpy as np

from rm.ledger.view import View
from rm.match.candidates import candidates, gate_of, placements
from rm.match.protocol import NOTHING, BaseMatcher, Match
from rm.match.turn_kernels import ANYBODY, Line
from rm.match.turns import NOBODY, NOTHING_HELD, in_turn


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
        key = np.where(path > 0, path, view.apps.remaining[:n])
        line = Line(
            ANYBODY, NOTHING_HELD, key, np.zeros(len(found.rows)), found.pri, found.pending, NOBODY
        )  # fmt: skip
        picked, keys = in_turn(found, line, gate_of(view, keeps=True))
        return Match(placements(found.rows, picked, keys, ("path_s",)))
