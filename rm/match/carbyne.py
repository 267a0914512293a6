"""Carbyne's inter-job side: DRF shares out, must-run asks first, then the leftover.

Asks of type DEFAULT are served by dominant share (DRF) and packed inside the job with the master's
priorities in the score; what is left goes to ALTRUISTIC asks: by shortest remaining work (the
paper's order), by least dominant share, by a mix of both, or by packing; then by best fit. Work
conserving. Source: Carbyne sections 3.3 and 4.2; docs/rules.md, rules 64 to 66.
"""

import numpy as np

from rm.ledger.view import View
from rm.match.aligned import best_aligned
from rm.match.candidate_kernels import Candidates, largest_over
from rm.match.candidates import behind, candidates, limits_of, placements
from rm.match.carbyne_kernels import (
    LEAST_SHARE,
    MIX,
    PACKING,
    SRTF,
    Carbyne,
    align,
    mixed,
    split,
)
from rm.match.dominant import entitlements_of
from rm.match.limit_kernels import Limits
from rm.match.protocol import NOTHING, BaseMatcher, Match, Placement
from rm.match.tetris_kernels import Tetris
from rm.match.turn_kernels import ANYBODY, DOMINANT, Line
from rm.match.turns import NO_ROW_WAITS, NOTHING_HELD, in_turn
from weft.model.dag import Floats
from weft.policies.compiled import steady
from weft.protocol.messages import AskType

_split, _align, _mixed = steady(split), steady(align), steady(mixed)
ORDERS = {"srtf": SRTF, "least_share": LEAST_SHARE, "mix": MIX, "packing": PACKING}
DECIDING_KEYS = {SRTF: "work", LEAST_SHARE: "dominant_share", MIX: "mix"}
_largest_over = steady(largest_over)


class CarbyneMatcher(BaseMatcher):
    """Its only state is a memory of the shares, which change when jobs or nodes come and go."""

    name = "carbyne"

    def __init__(self, leftover: str, leftover_mix: float, packing: bool) -> None:
        self.leftover = ORDERS[leftover]
        self.leftover_mix = leftover_mix
        self.packing = packing
        self._told: tuple[bytes, Floats] = (b"", np.zeros((0, 0)))

    def match(self, view: View, node: int, now: float) -> Match:
        """Return placements of DEFAULT asks first, then of ALTRUISTIC ones in what is left over."""
        found = candidates(view, node)
        if not len(found.rows):
            return NOTHING
        n, apps = view.app_slots, view.apps
        knobs = Carbyne(self.packing, self.leftover, self.leftover_mix)
        limits, k = limits_of(view, follows=True), len(found.rows)
        share = _largest_over.code(apps.held[:n], view.total)
        pending, spare, step = np.empty(k, np.int64), np.empty(k, np.int64), np.empty(k)
        spares = _split.code(found, view.rows.kind, pending, spare, step)
        order = found.pri.copy()
        _align.code(found, knobs, order)
        line = Line(DOMINANT, NOTHING_HELD, share, step, order, pending, NO_ROW_WAITS)
        must = in_turn(found, line, limits)
        answer = placements(found.rows, must, ("dominant_share",))
        if not spares:
            return Match(answer)
        if self.leftover in DECIDING_KEYS:
            if len(must.candidate):
                _align.code(found, knobs, order)
            line = line._replace(pending=spare)
            rest = in_turn(found, self._leftover(view, found, line, knobs), limits)
            return Match(answer + placements(found.rows, rest, (DECIDING_KEYS[self.leftover],)))
        return Match(answer + self._packed(view, found, limits))

    def _leftover(self, view: View, found: Candidates, line: Line, knobs: Carbyne) -> Line:
        """Return the line for what is left over by DEFAULT asks, which were served by `line`."""
        remaining = view.apps.remaining[: view.app_slots].copy()
        if knobs.leftover == LEAST_SHARE:
            return line
        if knobs.leftover == SRTF:
            return line._replace(queues=ANYBODY, key=remaining, step=np.zeros(len(line.step)))
        key = _mixed.code(found, line.pending, line.key, remaining, knobs.mix, line.step)
        return line._replace(queues=ANYBODY, key=key)

    def _packed(self, view: View, found: Candidates, limits: Limits) -> list[Placement]:
        """Return placements of the best aligned ALTRUISTIC tasks.

        This puts efficiency before completion time.
        """
        n = view.app_slots
        rest = found.part(np.flatnonzero(view.rows.kind[found.rows] == AskType.ALTRUISTIC))
        # Nobody's share or work counts here.
        fit = Tetris(0.0, 0.0, 0.0)
        held = np.zeros((n, len(view.total)))
        spare = best_aligned(rest, view.apps.remaining[:n].copy(), held, fit, limits)
        return placements(rest.rows, spare, ("alignment", "work"))

    def shares(self, view: View, now: float) -> Floats:
        """Return DRF shares of whole jobs, which every master is told."""
        apps, n = view.apps, view.app_slots
        parts = apps.active[:n], apps.order[:n], apps.queue[:n], view.queues.capacity, view.total
        key = b"".join(part.tobytes() for part in parts)
        if key != self._told[0]:
            self._told = key, entitlements_of(view)
        return self._told[1]

    def why_not(self, view: View, node: int, row: int) -> str:
        """Return what holds a row: it only takes leftover, or others have a smaller share."""
        if view.rows.kind[row] == AskType.ALTRUISTIC:
            return "it only takes what asks that must run leave over"
        by_app = _largest_over.code(view.apps.held[: view.app_slots], view.total)
        by_queue = _largest_over.code(view.by_queue.held[: len(view.queues)], view.total)
        return behind(view, int(view.rows.app[row]), by_queue, by_app, "have a smaller share")
