"""What a matcher had to choose from: the candidates of a decision, with the scores of each.

A matcher answers with what it grants, and `ranked` with what it would have granted then: so any
matcher, of another package too, tells its whole ranking in its own terms. What is not ranked was
ruled out before, and `rm.report.explain` knows by what.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, cast

import numpy as np

from rm.core import ResourceManager
from rm.ledger.asks import AskEntry
from rm.ledger.view import View
from rm.match.protocol import Match, Matcher, Placement, Scores, every_term
from rm.report.explain import why_not_on
from rm.state.books import Books
from sim.replay.recorded_run import Rerun, Step
from weft.model.ids import AppId
from weft.protocol.effects import Effect
from weft.protocol.event_unions import ManagerTold

# So many candidates are ranked, the winner included.
RANKED_CANDIDATES_MAX = 8
# So many stages are named with what ruled them out.
RULED_OUT_STAGES_MAX = 40


class Candidate(NamedTuple):
    """A stage that could have got the room; `scores` are the matcher's terms."""

    app: AppId
    stage: int
    pending: int
    scores: Scores


class RuledOut(NamedTuple):
    """A stage that could not, and why."""

    app: AppId
    stage: int
    pending: int
    why: str


class Weighed(NamedTuple):
    """One decision: who competed for a node, best first, and who could not.

    `more` stages are not listed; `free` is what the node had before. With `gang` the ask was to be
    granted whole, so nobody competed. `kept`: the node was reserved for who got it. So many picks
    of the same answer were made `before` it.
    """

    ranked: tuple[Candidate, ...]
    others: tuple[RuledOut, ...]
    more: int
    free: tuple[float, ...]
    gang: bool = False
    kept: bool = False
    before: int = 0


class Weigher:
    """Stands before a matcher and asks it again; what it grants stays the same."""

    def __init__(self, inner: Matcher, books: Books) -> None:
        self._inner, self._books = inner, books
        self._waiting: list[Placement] = []
        self._before = 0
        self._now: Weighed | None = None
        self.wanted = False
        # Each grant has one, in order.
        self.found: list[Weighed] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def match(self, view: View, node: int, now: float) -> Match:
        """Return the matcher's answer, after it was asked what else it would have done."""
        answer = self._inner.match(view, node, now)
        if not self.wanted:
            return answer
        self._waiting, self._before = list(answer.placements), 0
        self._next(view, node, now)
        return answer

    def granted(self, view: View, node: int, placement: Placement, app: int, now: float) -> None:
        """Note a placement that was booked: the next one finds less room."""
        self._inner.granted(view, node, placement, app, now)
        if not self.wanted:
            return
        weighed = self._now
        if weighed is None:
            free = tuple(view.nodes.available[node].tolist())
            weighed = Weighed((), (), 0, free, gang=True)
        self.found += [weighed] * placement.copies
        self._waiting, self._before = self._waiting[1:], self._before + placement.copies
        self._next(view, node, now)

    def matched(self, view: View, node: int, match: Match, now: float) -> None:
        """Note that the answer was booked; what was cut off nobody gets."""
        self._waiting, self._now = [], None
        self._inner.matched(view, node, match, now)

    def _next(self, view: View, node: int, now: float) -> None:
        self._now = None
        if self._waiting:
            weighed = weigh(self._books, self._inner, node, now, self._waiting[0])
            self._now = weighed._replace(before=self._before)


def weigh(books: Books, matcher: Matcher, node: int, now: float, winner: Placement) -> Weighed:
    """Return rank what competes for a node slot with the placement that won; changes nothing."""
    view, rows = books.view, books.rows
    pending = rows.set_aside(winner.row)
    try:
        ranked = matcher.ranked(view, node, now, RANKED_CANDIDATES_MAX - 1)
    finally:
        rows.put_back(winner.row, pending)
    found = [
        Candidate(*_of(books, entry), entry.pending, every_term(matcher, view, one))
        for one in (winner, *ranked)
        if (entry := rows.entries[one.row]) is not None
    ]
    others, more = _others(books, node, {(one.app, one.stage) for one in found})
    free = tuple(view.nodes.available[node].tolist())
    kept = bool(view.nodes.reserved[node])
    return Weighed(tuple(found), others, more, free, kept=kept)


def _others(
    books: Books, node: int, ranked: Iterable[tuple[AppId, int]]
) -> tuple[tuple[RuledOut, ...], int]:
    """Return the other stages with something pending, in the order of their applications."""
    by_stage: dict[tuple[AppId, int], list[AskEntry]] = {}
    rows = books.rows
    for row in np.flatnonzero(rows.pending[: rows.count] > 0).tolist():
        entry = rows.entries[row]
        if entry is not None:
            by_stage.setdefault(_of(books, entry), []).append(entry)
    left = sorted(by_stage.keys() - set(ranked))
    told = []
    for app, stage in left[:RULED_OUT_STAGES_MAX]:
        entries = by_stage[app, stage]
        why = why_not_on(books, node, entries[0])
        told.append(RuledOut(app, stage, sum(entry.pending for entry in entries), why))
    return tuple(told), len(left) - len(told)


def _of(books: Books, entry: AskEntry) -> tuple[AppId, int]:
    app = books.app_at[entry.app]
    return (0 if app is None else app.app_id), entry.ask.stage


class Weighings:
    """The candidates of every decision of a run, worked out as they are asked for."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = steps
        self._rerun = Rerun(steps, self._dress)
        self._weigher: Weigher | None = None
        self._wanted = False
        # Each step has one for each of its grants.
        self._known: dict[int, list[Weighed]] = {}

    def of(self, step: int, turn: int, ahead: int = 0) -> Weighed | None:
        """Return the candidates of a grant of a step, both from 0; None where nothing was granted.

        `ahead` steps after it are worked out as well: any caller that steps will want them next.
        """
        if not 0 <= step < len(self._steps):
            return None
        if step not in self._known:
            self._work(step, min(step + 1 + ahead, len(self._steps)))
        # An event that failed has none.
        found = self._known.setdefault(step, [])
        return found[turn] if 0 <= turn < len(found) else None

    def _dress(self, manager: ResourceManager) -> None:
        def layer(policy: Matcher) -> Matcher:
            self._weigher = Weigher(policy, manager.books)
            self._weigher.wanted = self._wanted
            return cast(Matcher, self._weigher)

        manager.wrap_matcher(layer)

    def _want(self, wanted: bool) -> None:
        self._wanted = wanted
        if self._weigher is not None:
            self._weigher.wanted, self._weigher.found = wanted, []

    def _work(self, first: int, end: int) -> None:
        self._want(False)
        self._rerun.seek(first)
        self._want(True)
        try:
            self._rerun.seek(end, self._heard)
        finally:
            self._want(False)

    def _heard(
        self, event: ManagerTold, now: float, orders: list[Effect], manager: ResourceManager
    ) -> None:
        weigher = self._weigher
        assert weigher is not None
        self._known[self._rerun.at] = weigher.found
        weigher.found = []
