"""Carbyne's inter-job side: DRF shares out, must-run asks first, then the leftover.

Asks of type DEFAULT are served by dominant share (DRF) and packed inside the job with the master's
priorities in the score; what is left goes to ALTRUISTIC asks by shortest remaining work and best
fit. Work conserving. Source: Carbyne sections 3.3 and 4.2; ALGORITHMS section 10.
"""

import numpy as np

from rm.match.candidate_kernels import largest_over, over, steps_of
from rm.match.candidates import Candidates, candidates, mean_remaining, needier, placements
from rm.match.dominant import entitlements_of, weights
from rm.match.protocol import NOTHING, BaseMatcher, Match, Placement
from rm.match.score_kernels import NOBODY, pack_scores, picks_by_turn, tetris_picks
from rm.view import View
from weft.dag import Floats, Ints
from weft.messages import AskType


class CarbyneMatcher(BaseMatcher):
    """No own state: the shares follow from the view."""

    name = "carbyne"

    def __init__(self, leftover: str, packing: bool, remote_penalty: float) -> None:
        self.leftover = leftover
        self.packing = packing
        self.remote_penalty = remote_penalty

    def match(self, view: View, node: int, now: float) -> Match:
        """DEFAULT asks first, then the leftover."""
        found = candidates(view, node)
        if not len(found.rows):
            return NOTHING
        spare = view.rows.kind[found.rows] == AskType.ALTRUISTIC
        if not spare.any():  # as mostly: one phase over all rows
            picked, terms = self._by_share(view, found)
            return Match(placements(found.rows, picked, terms, ("dominant_share",)))
        answer: list[Placement] = []
        held = over(view.apps.held[: view.app_slots], view.total)
        must, rest = found.part(np.flatnonzero(~spare)), found.part(np.flatnonzero(spare))
        if len(must.rows):
            picked, terms = self._by_share(view, must)
            answer += placements(must.rows, picked, terms, ("dominant_share",))
            np.add.at(held, must.app[picked], must.work[picked])
            rest.free = np.maximum(found.free - must.packing[picked].sum(axis=0), 0.0)
        if self.leftover == "srtf":
            picked, terms = self._by_work(view, rest)
            return Match(answer + placements(rest.rows, picked, terms, ("work",)))
        picked, terms = self._by_fit(view, rest, held)
        return Match(answer + placements(rest.rows, picked, terms, ("alignment", "work")))

    def shares(self, view: View, now: float) -> Floats:
        """DRF shares of whole jobs, told to every master."""
        return entitlements_of(view)

    def why_not(self, view: View, node: int, row: int) -> str:
        """It only takes leftover, or others have a smaller dominant share by weight."""
        if view.rows.kind[row] == AskType.ALTRUISTIC:
            return "it only takes what asks that must run leave over"
        share = largest_over(view.apps.held[: view.app_slots], view.total) / weights(view)
        before = needier(view, share, int(view.rows.app[row]))
        return f"held by fairness: {before} applications have a smaller share" if before else ""

    def _by_share(self, view: View, part: Candidates) -> tuple[Ints, Floats]:
        """Least dominant share first; inside the application priScore x alignment."""
        weight = weights(view)
        share = largest_over(view.apps.held[: view.app_slots], view.total)
        return picks_by_turn(
            part.packing, steps_of(part.work, part.app, weight), self._order(part),
            part.pending, part.app, part.rank, part.free.copy(), share / weight, 1 << 30, NOBODY,
        )  # fmt: skip

    def _by_work(self, view: View, part: Candidates) -> tuple[Ints, Floats]:
        """Shortest remaining work first, then best fit inside the application (SRTF)."""
        return picks_by_turn(
            part.packing, np.zeros(len(part.rows)), self._order(part), part.pending, part.app,
            part.rank, part.free.copy(), view.apps.remaining[: view.app_slots].copy(), 1 << 30,
            NOBODY,
        )  # fmt: skip

    def _by_fit(self, view: View, part: Candidates, held: Floats) -> tuple[Ints, Floats]:
        """Efficiency before completion time: the best aligned task of anybody."""
        return tetris_picks(
            part.packing, part.work, part.duration, part.pending, part.app, part.rank,
            part.remote, part.free.copy(), view.apps.remaining[: view.app_slots].copy(), held,
            0.0, 0.0, mean_remaining(view), self.remote_penalty, 1 << 30,
        )  # fmt: skip

    def _order(self, part: Candidates) -> Floats:
        if not self.packing:
            return part.pri
        score = np.empty(len(part.rows))
        pack_scores(part.packing, part.free, part.remote, self.remote_penalty, True, score)
        return np.asarray(part.pri * np.maximum(score, 0.0))
