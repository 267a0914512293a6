"""DRF: the next container goes to whoever has the least dominant share.

Ghodsi et al., NSDI 2011, progressive filling in whole containers, hierarchically (Bhattacharya et
al., SoCC 2013): at every level the queue that holds the least over its guarantee, then the
application of that leaf queue. So applications that ask for nothing take nothing from their queue.
"""

from rm.ledger.view import View
from rm.match.candidate_kernels import largest_over
from rm.match.candidates import behind, candidates, gate_of, placements
from rm.match.dominant import drf_shares_of
from rm.match.protocol import NOTHING, BaseMatcher, Match
from rm.match.score_kernels import tops
from rm.match.turn_kernels import DOMINANT, Line
from rm.match.turns import NOBODY, NOTHING_HELD, in_turn
from weft.compiled import steady
from weft.dag import Floats

_largest_over = steady(largest_over)
_tops = steady(tops)


class DrfMatcher(BaseMatcher):
    """Its only state is in the view: what is held."""

    name = "drf"

    def match(self, view: View, node: int, now: float) -> Match:
        """Serve the least dominant share first."""
        found = candidates(view, node)
        if not len(found.rows):
            return NOTHING
        share = _largest_over(view.apps.held[: view.app_slots], view.total)
        step = _tops(found.work)
        line = Line(DOMINANT, NOTHING_HELD, share, step, found.pri, found.pending, NOBODY)
        picked, keys = in_turn(found, line, gate_of(view, follows=True))
        return Match(placements(found.rows, picked, keys, ("dominant_share",)))

    def shares(self, view: View, now: float) -> Floats:
        """The closed form over what applications hold and ask; unused parts are filled up."""
        return drf_shares_of(view)

    def why_not(self, view: View, node: int, row: int) -> str:
        """Others have a smaller dominant share and something pending."""
        by_app = _largest_over(view.apps.held[: view.app_slots], view.total)
        by_queue = _largest_over(view.by_queue.held[: len(view.queues)], view.total)
        return behind(view, int(view.rows.app[row]), by_queue, by_app, "have a smaller share")
