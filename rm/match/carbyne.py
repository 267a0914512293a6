"""Carbyne's inter-job side: DRF shares out, must-run asks first, then the leftover.

Asks of type DEFAULT are served by dominant share (DRF) and packed inside the job with the master's
priorities in the score; what is left goes to ALTRUISTIC asks by shortest remaining work and best
fit. Work conserving. Source: Carbyne sections 3.3 and 4.2; docs/rules.md, rules 64 to 66.
"""

import numpy as np

from rm.ledger.view import View
from rm.match.candidate_kernels import Candidates, largest_over, over
from rm.match.candidates import candidates, mean_remaining, needier, placements
from rm.match.carbyne_kernels import phases
from rm.match.dominant import entitlements_of, weights
from rm.match.protocol import NOTHING, BaseMatcher, Match
from rm.match.score_kernels import tetris_picks
from weft.dag import Floats, Ints
from weft.messages import AskType


class CarbyneMatcher(BaseMatcher):
    """Its only state is a memory of the shares, which change when jobs or nodes come and go."""

    name = "carbyne"

    def __init__(self, leftover: str, packing: bool, remote_penalty: float) -> None:
        self.leftover = leftover
        self.packing = packing
        self.remote_penalty = remote_penalty
        self._told: tuple[bytes, Floats] = (b"", np.zeros((0, 0)))

    def match(self, view: View, node: int, now: float) -> Match:
        """DEFAULT asks first, then the leftover."""
        found = candidates(view, node)
        if not len(found.rows):
            return NOTHING
        n, srtf, free = view.app_slots, self.leftover == "srtf", found.free.copy()
        apps = view.apps
        must, share, spare, work, spares = phases(
            found.packing, found.work, found.pri, found.pending, found.app, found.rank,
            found.level, free, found.rows, view.rows.kind, apps.held[:n], view.total,
            apps.remaining[:n], apps.queue[:n], apps.active, view.queues.capacity,
            view.by_queue.apps, self.packing, self.remote_penalty, srtf,
        )  # fmt: skip
        answer = placements(found.rows, must, share, ("dominant_share",))
        if srtf:
            return Match(answer + placements(found.rows, spare, work, ("work",)))
        if spares:
            held = over(apps.held[:n], view.total)
            np.add.at(held, found.app[must], found.work[must])
            rest = found.part(np.flatnonzero(view.rows.kind[found.rows] == AskType.ALTRUISTIC))
            spare, work = self._by_fit(view, rest._replace(free=free), held)
            answer += placements(rest.rows, spare, work, ("alignment", "work"))
        return Match(answer)

    def shares(self, view: View, now: float) -> Floats:
        """DRF shares of whole jobs, told to every master."""
        apps, n = view.apps, view.app_slots
        parts = apps.active[:n], apps.order[:n], apps.queue[:n], view.queues.capacity, view.total
        key = b"".join(part.tobytes() for part in parts)
        if key != self._told[0]:
            self._told = key, entitlements_of(view)
        return self._told[1]

    def why_not(self, view: View, node: int, row: int) -> str:
        """It only takes leftover, or others have a smaller dominant share by weight."""
        if view.rows.kind[row] == AskType.ALTRUISTIC:
            return "it only takes what asks that must run leave over"
        share = largest_over(view.apps.held[: view.app_slots], view.total) / weights(view)
        before = needier(view, share, int(view.rows.app[row]))
        return f"held by fairness: {before} applications have a smaller share" if before else ""

    def _by_fit(self, view: View, part: Candidates, held: Floats) -> tuple[Ints, Floats]:
        """Efficiency before completion time: the best aligned task of anybody."""
        return tetris_picks(
            part.packing, part.work, part.duration, part.pending, part.app, part.rank,
            part.level, part.free.copy(), view.apps.remaining[: view.app_slots].copy(), held,
            0.0, 0.0, mean_remaining(view), self.remote_penalty, 1 << 30,
        )  # fmt: skip
