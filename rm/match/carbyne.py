"""Carbyne's inter-job side: DRF shares out, must-run asks first, then the leftover.

Asks of type DEFAULT are served by dominant share (DRF) and packed inside the job with the master's
priorities in the score; what is left goes to ALTRUISTIC asks by shortest remaining work and best
fit. Work conserving. Source: Carbyne sections 3.3 and 4.2; ALGORITHMS section 10.
"""

import numpy as np

from rm.match.candidates import Candidates, candidates, mean_remaining, placements, shares_of
from rm.match.dominant import drf_shares_of, weights
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
        kind = view.rows.kind[found.rows]
        answer: list[Placement] = []
        used = np.zeros((view.app_slots, len(view.total)))
        for phase in (AskType.DEFAULT, AskType.ALTRUISTIC):
            chosen = np.flatnonzero(kind == phase)
            if not len(chosen):
                continue
            part = _part(found, chosen)
            if phase is AskType.DEFAULT:
                picked, terms = self._by_share(view, part, used)
                names: tuple[str, ...] = ("dominant_share",)
            elif self.leftover == "srtf":
                picked, terms = self._by_work(view, part)
                names = ("work",)
            else:
                picked, terms = self._by_fit(view, part, used)
                names = ("alignment", "work")
            answer += placements(part.rows, picked, terms, names)
            np.add.at(used, part.app[picked], part.work[picked])
            found.free = np.maximum(found.free - part.packing[picked].sum(axis=0), 0.0)
        return Match(answer)

    def shares(self, view: View, now: float) -> Floats:
        """DRF shares, told to every master."""
        return drf_shares_of(view)

    def _by_share(self, view: View, part: Candidates, used: Floats) -> tuple[Ints, Floats]:
        """Least dominant share first; inside the application priScore x alignment."""
        weight = weights(view)
        share = (_held(view) + used).max(axis=1) / weight
        picked, keys = picks_by_turn(
            part.packing, part.work.max(axis=1) / weight[part.app], self._order(part),
            part.pending, part.app, part.rank, part.free.copy(), share, 1 << 30,
            NOBODY,
        )  # fmt: skip
        return picked, keys[:, None]

    def _by_work(self, view: View, part: Candidates) -> tuple[Ints, Floats]:
        """Shortest remaining work first, then best fit inside the application (SRTF)."""
        picked, keys = picks_by_turn(
            part.packing, np.zeros(len(part.rows)), self._order(part), part.pending, part.app,
            part.rank, part.free.copy(), view.apps.remaining[: view.app_slots].copy(), 1 << 30,
            NOBODY,
        )  # fmt: skip
        return picked, keys[:, None]

    def _by_fit(self, view: View, part: Candidates, used: Floats) -> tuple[Ints, Floats]:
        """Efficiency before completion time: the best aligned task of anybody."""
        return tetris_picks(
            part.packing, part.work, part.duration, part.pending, part.app, part.rank,
            part.remote, part.free.copy(), view.apps.remaining[: view.app_slots].copy(),
            _held(view) + used, 0.0, 0.0, mean_remaining(view), self.remote_penalty, 1 << 30,
        )  # fmt: skip

    def _order(self, part: Candidates) -> Floats:
        if not self.packing:
            return part.pri
        score = np.empty(len(part.rows))
        pack_scores(part.packing, part.free, part.remote, self.remote_penalty, True, score)
        return np.asarray(part.pri * np.maximum(score, 0.0))


def _held(view: View) -> Floats:
    n = view.app_slots
    return shares_of(view.apps.held[:n], np.broadcast_to(view.total, (n, len(view.total))))


def _part(found: Candidates, keep: Ints) -> Candidates:
    return Candidates(
        found.rows[keep], found.packing[keep], found.work[keep], found.duration[keep],
        found.pri[keep], found.pending[keep], found.app[keep], found.rank[keep],
        found.remote[keep], found.free,
    )  # fmt: skip
