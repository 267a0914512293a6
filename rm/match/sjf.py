"""SJF: the application with the shortest critical path left goes first, its preferred order inside.

Carbyne section 5.1: job duration by the critical path method. An application that reports no path
is judged by its remaining work. Queues below their guarantee go first.
"""

import numpy as np

from rm.ledger.view import View
from rm.match.candidates import candidates
from rm.match.protocol import NOTHING, BaseMatcher, Match
from rm.match.turns import smallest_first


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
        return smallest_first(view, found, key, "path_s")
