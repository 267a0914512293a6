"""Whose turn it is, one container at a time: `turn_kernels` with the arrays that it writes on."""

from functools import partial

import numpy as np

from rm.ledger.view import View
from rm.match.candidate_kernels import Candidates
from rm.match.candidates import collect, limits_of, placements
from rm.match.limit_kernels import Limits
from rm.match.protocol import Match
from rm.match.score_kernels import Picks
from rm.match.turn_kernels import ANYBODY, Line, Scratch, picks_by_turn
from weft.model.dag import Floats, Ints
from weft.policies.compiled import steady

NO_ROW_WAITS: Ints = np.zeros(0, dtype=np.int64)
NOTHING_HELD: Floats = np.zeros(0)
_picks_by_turn = steady(picks_by_turn)


def in_turn(found: Candidates, line: Line, limits: Limits) -> Picks:
    """Return the candidates picked for one node; terms (n, 1): the keys of their applications.

    The arrays of `found`, `line` and `limits` are working copies that change.
    """
    queues = len(limits.parent)
    scratch = Scratch(np.empty(len(found.rows)), np.empty(queues, np.int64), np.empty(queues))
    return collect(partial(_picks_by_turn.code, found, line, limits, scratch), 1)


def smallest_first(view: View, found: Candidates, key: Floats, name: str) -> Match:
    """Serve the application with the smallest key while something of it fits, then the next.

    `found` are the candidates of a node, `key` has one number for each application slot, `name`
    is what the number is called in explanations. Queues below their guarantee go first; inside an
    application its preferred order holds.
    """
    line = Line(
        ANYBODY,
        NOTHING_HELD,
        key,
        np.zeros(len(found.rows)),
        found.pri,
        found.pending,
        NO_ROW_WAITS,
    )
    picks = in_turn(found, line, limits_of(view, keeps=True))
    return Match(placements(found.rows, picks, (name,)))
