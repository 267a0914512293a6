"""DRF: the next container goes to whoever has the least weighted dominant share.

Ghodsi et al., NSDI 2011, progressive filling in whole containers; between leaf queues by their
capacity as weight first, then between the applications of a queue.
"""

from rm.ledger.view import View
from rm.match.candidate_kernels import largest_over, steps_of
from rm.match.candidates import candidates, needier, placements
from rm.match.dominant import drf_shares_of, weights
from rm.match.protocol import NOTHING, BaseMatcher, Match
from rm.match.score_kernels import NOBODY, picks_by_turn
from weft.dag import Floats


class DrfMatcher(BaseMatcher):
    """Weights are the capacity of an application's leaf queue over its active applications."""

    name = "drf"

    def match(self, view: View, node: int, now: float) -> Match:
        """Serve the least dominant share first."""
        found = candidates(view, node)
        if not len(found.rows):
            return NOTHING
        weight = weights(view)
        share = largest_over(view.apps.held[: view.app_slots], view.total)
        picked, keys = picks_by_turn(
            found.packing, steps_of(found.work, found.app, weight), found.pri, found.pending,
            found.app, found.rank, found.free, share / weight, 1 << 30, NOBODY,
        )  # fmt: skip
        return Match(placements(found.rows, picked, keys, ("dominant_share",)))

    def shares(self, view: View, now: float) -> Floats:
        """The closed form over what applications hold and ask; unused parts are filled up."""
        return drf_shares_of(view)

    def why_not(self, view: View, node: int, row: int) -> str:
        """Others have a smaller dominant share by weight and something pending."""
        share = largest_over(view.apps.held[: view.app_slots], view.total) / weights(view)
        before = needier(view, share, int(view.rows.app[row]))
        return f"held by fairness: {before} applications have a smaller share" if before else ""
