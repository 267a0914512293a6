"""Hierarchical queues with guarantees and limits: YARN's Capacity Scheduler.

Level by level the queue with the least use of its guarantee goes first, as long as no queue on the
way passes its maximum and no user a limit. In a leaf queue: priority, then submission; in an
application: its own preferred order. An ask with a preference lets opportunities go by (delay
scheduling, Zaharia et al., EuroSys 2010): first for its nodes, then for its racks.
"""

import numpy as np

from rm.ledger.columns import Bools
from rm.ledger.view import View
from rm.match.candidates import (
    candidates,
    dominant_held,
    limits_of,
    line_terms,
    longer,
    place_of,
    queue_terms,
)
from rm.match.capacity_kernels import Line, Scratch, in_runs, pick
from rm.match.delay_kernels import delays
from rm.match.protocol import NOTHING, QUEUES_TURNS, BaseMatcher, Match, Placement, Scores
from rm.match.score_kernels import USUAL_PICKS_MAX
from weft.model.dag import Ints
from weft.policies.compiled import steady

NO_ROW_WAITS: Bools = np.zeros(0, np.bool_)
_pick, _in_runs = steady(pick), steady(in_runs)


class CapacityMatcher(BaseMatcher):
    """Its only state is in the view: what is held, and opportunities missed."""

    name = "capacity"
    turns = QUEUES_TURNS
    in_line = True

    def __init__(self, node_locality_delay: int = 40, rack_locality_delay: int = 40) -> None:
        self.node_locality_delay = node_locality_delay
        self.rack_locality_delay = rack_locality_delay
        self._room = _room_for(0)

    def match(self, view: View, node: int, now: float) -> Match:
        """Fill the node, one container at a time."""
        found = candidates(view, node)
        if not len(found.rows):
            return NOTHING
        rows, apps = view.rows, view.apps
        levels, patience, waits = rows.remote, (0, 0), NO_ROW_WAITS
        if rows.preferring:
            levels, waits = view.levels(node), np.zeros(len(found.rows), np.bool_)
            patience = delays(view, self.node_locality_delay, self.rack_locality_delay)
        line = Line(
            limits_of(view, follows=True),
            levels,
            rows.missed,
            apps.priority,
            apps.order,
            *patience,
        )
        queues = len(view.queues.parent)
        scratch, picked, runs = self._room
        if len(scratch.best) != queues:
            self._room = scratch, picked, runs = _room_for(queues)
        n = _pick.code(found, line, scratch, picked, waits, 0)
        while n == len(picked):
            picked = longer(picked)
            n = _pick.code(found, line, scratch, picked, waits, n)
        if len(runs) < n:
            runs = np.empty((n, 3), np.int64)
        count = _in_runs.code(found, picked, n, runs)
        declined = tuple(found.rows[waits].tolist()) if rows.preferring else ()
        answer = [Placement(row, copies, place_of(at)) for row, at, copies in runs[:count].tolist()]
        return Match(answer, declined, settled=not declined)

    def terms(self, view: View, row: int) -> Scores:
        """Return what the queues above a row hold over their guarantees, and its place in line."""
        return queue_terms(view, row, dominant_held(view)) + line_terms(view, row)


def _room_for(queues: int) -> tuple[Scratch, Ints, Ints]:
    """Return arrays for decisions to write on, and for what they pick."""
    scratch = Scratch(np.empty(queues, np.int64), np.empty(queues))
    return scratch, np.empty(USUAL_PICKS_MAX, np.int64), np.empty((USUAL_PICKS_MAX, 3), np.int64)
