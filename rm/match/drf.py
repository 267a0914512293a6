"""DRF: the next container goes to whoever has the least weighted dominant share.

Ghodsi et al., NSDI 2011, progressive filling in whole containers; between leaf queues by their
capacity as weight first, then between the applications of a queue.
"""

import numpy as np

from rm.match.candidates import candidates, placements, shares_of
from rm.match.dominant import drf_shares_of, weights
from rm.match.protocol import NOTHING, BaseMatcher, Match
from rm.match.score_kernels import NOBODY, picks_by_turn
from rm.view import View
from weft.dag import Floats


class DrfMatcher(BaseMatcher):
    """Weights are the capacity of an application's leaf queue over its active applications."""

    name = "drf"

    def match(self, view: View, node: int, now: float) -> Match:
        """Serve the least dominant share first."""
        found = candidates(view, node)
        if not len(found.rows):
            return NOTHING
        n = view.app_slots
        weight = weights(view)
        share = shares_of(view.apps.held[:n], np.broadcast_to(view.total, (n, len(view.total))))
        picked, keys = picks_by_turn(
            found.packing, found.work.max(axis=1) / weight[found.app], found.pri, found.pending,
            found.app, found.rank, found.free, share.max(axis=1) / weight, 1 << 30,
            NOBODY,
        )  # fmt: skip
        return Match(placements(found.rows, picked, keys[:, None], ("dominant_share",)))

    def shares(self, view: View, now: float) -> Floats:
        """The closed form over what applications hold and ask; unused parts are filled up."""
        return drf_shares_of(view)
