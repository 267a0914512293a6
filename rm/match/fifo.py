"""Strict order: nothing starts on a node before the first ask in line that the node can hold.

The order is priority, then submission, then the application's preferred order. Asks that the node
could not hold even when empty, or that a limit of their queue or user holds back, do not block it.
Queues below their guarantee stand in front. `fill` closes the gaps that this leaves.
"""

import sys

import numpy as np

from rm.ledger.columns import Bools
from rm.ledger.view import View
from rm.match.candidates import asks_of, limits_of, line_terms, longer, place_of, site_of
from rm.match.fifo_kernels import FILLED_BY, NOTHING_FILLS, Line, Scratch, pick
from rm.match.filter_kernels import Asks
from rm.match.protocol import NOTHING, BaseMatcher, Match, Placement, Scores
from rm.match.score_kernels import USUAL_PICKS_MAX
from weft.model.dag import Ints
from weft.model.errors import InputError
from weft.policies.compiled import steady

_pick = steady(pick)
# It is the number of applications that have a promised start.
PROMISES = {"none": 0, "easy": 1, "conservative": sys.maxsize}


class FifoMatcher(BaseMatcher):
    """YARN's FIFO Scheduler, strictly: the head waits until it fits.

    `fill`: what may start on a node while the head does not fit there: `none`, so that gaps stay;
    `job`, other asks of the head's application; `all`, whatever fits, in the order of the line.
    `whole`: an application starts nothing before all tasks of those before it have started, those
    that still wait for their inputs, too.
    `backfill`: later asks may start out of order where, by the estimates, they delay none that has
    a promised start: `easy`, the first application that waits; `conservative`, all.
    """

    name = "fifo"
    in_line = True

    def __init__(self, fill: str = "none", whole: bool = False, backfill: str = "none") -> None:
        self.promises = PROMISES[backfill]
        # Compiled, an attribute of a protocol's type has no default from the class above.
        self.planner = None
        if self.promises and (whole or fill != "none"):
            raise InputError("matcher.backfill", "goes with fill=none and whole=false only")
        self.fill = FILLED_BY[fill]
        self.whole = whole
        self.strict = self.fill == NOTHING_FILLS and not self.promises
        self._room = _room_for(0, 0)
        self._last_line: Line | None = None

    def queues_changed(self, view: View, now_at: Ints) -> None:
        """Look at the limits of the new tree."""
        self._last_line = None

    def match(self, view: View, node: int, now: float) -> Match:
        """Grant the head of the line for as long as it fits, or what is planned for now."""
        if self.planner is not None:
            return self.planner.match(node)
        asks = asks_of(view, node)
        if self.whole:
            late = _behind(view)[asks.app[: asks.size]]
            asks = asks._replace(pending=np.where(late, 0, asks.pending[: asks.size]))
        line = self._last_line
        if (
            line is None
            or line.asks is not asks
            or line.total is not view.total
            or line.order is not view.apps.order
        ):
            line = self._set_out(view, asks)
        scratch, picked = self._room
        site = site_of(view, node)
        n = _pick.code(line, site, scratch, picked, 0)
        while n == len(picked):
            picked = longer(picked)
            n = _pick.code(line, site, scratch, picked, n)
        if not n:
            return NOTHING
        # Nodes with room for one come here.
        if n == 1:
            return Match([Placement(picked.item(0), picked.item(1), place_of(0))])
        return Match(
            [
                Placement(row, count, place_of(at))
                for at, (row, count) in enumerate(picked[:n].tolist())
            ]
        )

    def would_match(self, view: View, node: int, now: float) -> Match:
        """Return what `match` would, were the asks as they are shown."""
        if self.planner is not None:
            return self.planner.would_match(node)
        return self.match(view, node, now)

    def ranked(self, view: View, node: int, now: float, most: int) -> list[Placement]:
        """Return at most so many rows in the order of the line, which plans go by as well."""
        planner, self.planner = self.planner, None
        try:
            return super().ranked(view, node, now, most)
        finally:
            self.planner = planner

    def terms(self, view: View, row: int) -> Scores:
        """Return what the line goes by."""
        return line_terms(view, row)

    def why_not(self, view: View, node: int, row: int) -> str:
        """Return which start is promised to an ask, or that it would delay one that is."""
        entry = view.rows.entries[row]
        if self.planner is None or entry is None:
            return ""
        start_s = self.planner.promised_s(entry)
        if start_s is None:
            return "held by the order: it could delay what has a promised start"
        return f"promised to start at {start_s:.6g} s, by the estimates"

    def _set_out(self, view: View, asks: Asks) -> Line:
        """Return the tables of a decision; they serve the next ones, too, until one has moved."""
        apps, total, limits = view.apps, view.total, limits_of(view, keeps=True)
        if len(self._room[0].left) < asks.size or len(self._room[0].room) != len(total):
            self._room = _room_for(2 * asks.size, len(total))
        line = Line(asks, total, apps.priority, apps.order, limits, self.fill)
        # Limits that bind are each decision's own.
        self._last_line = line if view.queues.free else None
        return line


def _room_for(rows: int, d: int) -> tuple[Scratch, Ints]:
    """Return arrays for decisions to write on, and for what they pick."""
    scratch = Scratch(np.empty(rows, np.int64), np.empty(d), np.empty(d), np.empty(rows))
    return scratch, np.empty((USUAL_PICKS_MAX, 2), np.int64)


def _behind(view: View) -> Bools:
    """Return by application slot whether one before it in the line has tasks that did not start."""
    apps, n = view.apps, view.app_slots
    waits = apps.active[:n] & ((apps.remaining[:n] > 0) | (apps.pending[:n] > 0))
    line = np.lexsort((apps.order[:n], -apps.priority[:n]))
    before: Ints = np.cumsum(waits[line]) - waits[line]
    behind = np.zeros(n, dtype=np.bool_)
    behind[line] = before > 0
    return behind
