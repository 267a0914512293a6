"""DRF: the next container goes to whoever has the least dominant share.

Ghodsi et al., NSDI 2011, progressive filling in whole containers, hierarchically as H-DRF
(Bhattacharya et al., SoCC 2013): at every level the queue that holds the least over its guarantee,
what its children hold scaled to the least of them (`limit_kernels.fill_hdrf_shares`), then the
application of that leaf queue. So applications that ask for nothing take nothing from their queue.

That is work conserving: what some do not ask for the others get. With `lend` off each application
stays within its share whether or not others use theirs.
"""

import numpy as np

from rm.ledger.view import View
from rm.match.candidate_kernels import Candidates, largest_over
from rm.match.candidates import (
    behind,
    candidates,
    dominant_held,
    limits_of,
    placements,
    queue_terms,
)
from rm.match.dominant import drf_shares_of, entitlements_of, equal_shares_of
from rm.match.protocol import APPS_TURNS, NOTHING, BaseMatcher, Match, Scores
from rm.match.score_kernels import tops
from rm.match.turn_kernels import ANY, DOMINANT, Line
from rm.match.turns import NO_ROW_WAITS, NOTHING_HELD, in_turn
from weft.model.dag import Floats
from weft.policies.compiled import steady

_largest_over = steady(largest_over)
_tops = steady(tops)


# An application that runs nothing but its master has so many containers.
TASKLESS_CONTAINERS_MAX = 1
SHARES = {"closed_form": entitlements_of, "equal": equal_shares_of}


class DrfMatcher(BaseMatcher):
    """Its only state is a memory of the strict shares, which change with who is there.

    `lend`: whether applications get what others leave. Where not, `share` says what is theirs:
    DRF's closed form over the work of whole jobs, or equal parts of every resource.
    """

    name = "drf"
    turns = APPS_TURNS

    def __init__(self, lend: bool = True, share: str = "closed_form") -> None:
        self.lend = lend
        self.share = share
        self._told: tuple[bytes, Floats] = (b"", np.zeros((0, 0)))

    def match(self, view: View, node: int, now: float) -> Match:
        """Serve the least dominant share first."""
        found = candidates(view, node)
        if not len(found.rows):
            return NOTHING
        share = _largest_over.code(view.apps.held[: view.app_slots], view.total)
        step = _tops.code(found.work)
        most = ANY if self.lend else self._most(view, found, share, step)
        line = Line(
            DOMINANT, NOTHING_HELD, share, step, found.pri, found.pending, NO_ROW_WAITS, most
        )
        picks = in_turn(found, line, limits_of(view, follows=True))
        return Match(placements(found.rows, picks, ("dominant_share",)))

    def _most(self, view: View, found: Candidates, share: Floats, step: Floats) -> Floats:
        """Return the dominant share that each application may hold, (slots,).

        It is its own share, or that of one container if that is more.
        """
        most = _largest_over.code(self._strict(view), view.total)
        alone = view.apps.containers[: view.app_slots] <= TASKLESS_CONTAINERS_MAX
        first = share.copy()
        np.maximum.at(first, found.app, share[found.app] + step)
        return np.where(alone, np.maximum(most, first), most)

    def _strict(self, view: View) -> Floats:
        """Return what each application may hold, absolute, shape (slots, d)."""
        apps, n = view.apps, view.app_slots
        parts = apps.active[:n], apps.order[:n], apps.queue[:n], view.queues.capacity, view.total
        key = b"".join(part.tobytes() for part in parts)
        if key != self._told[0]:
            self._told = key, SHARES[self.share](view)
        return self._told[1]

    def shares(self, view: View, now: float) -> Floats:
        """Return the closed form over what applications hold and ask; unused parts are filled up.
        Where nothing is lent: the strict shares.
        """
        return drf_shares_of(view) if self.lend else self._strict(view)

    def terms(self, view: View, row: int) -> Scores:
        """Return the dominant shares of the queues above a row over their guarantees.

        What a queue's idle children hold counts here, though H-DRF leaves it out.
        """
        return queue_terms(view, row, dominant_held(view))

    def why_not(self, view: View, node: int, row: int) -> str:
        """Return what holds a row back.

        Others with something pending have a smaller share, or its own strict share is full.
        """
        if not self.lend:
            app = int(view.rows.app[row])
            own = _largest_over.code(self._strict(view)[app : app + 1], view.total)[0]
            return f"held by its strict share, {own:.3f} of the cluster"
        by_app = _largest_over.code(view.apps.held[: view.app_slots], view.total)
        by_queue = _largest_over.code(view.by_queue.held[: len(view.queues)], view.total)
        return behind(view, int(view.rows.app[row]), by_queue, by_app, "have a smaller share")
