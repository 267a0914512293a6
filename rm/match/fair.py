"""Fair: each free container goes to whoever holds the fewest.

Max-min over containers: the "fair" scheduler beside which COBRA works (COBRA section 3;
docs/rules.md, rule 55) and YARN's Fair Scheduler without memory in its measure. At every level the
queue with the fewest containers over its guarantee, then the application with the fewest; ties go
to the earlier release. An application's master is not counted. Asks with a preference wait for a
nearer node (delay scheduling, `delay_kernels`).
"""

import numpy as np

from rm.ledger.view import View
from rm.match.candidate_kernels import summed_up
from rm.match.candidates import behind, candidates, limits_of, placements, queue_terms
from rm.match.delay_kernels import delays, waiting_rows
from rm.match.protocol import APPS_TURNS, NOTHING, BaseMatcher, Match, Scores
from rm.match.turn_kernels import CONTAINERS, Line
from rm.match.turns import in_turn
from weft.model.dag import Floats
from weft.policies.compiled import steady

# No task runs in the master's container.
MASTER_CONTAINERS = 1.0
_summed_up = steady(summed_up)


class FairMatcher(BaseMatcher):
    """Its only state is in the view: containers held, and opportunities missed."""

    name = "fair"
    turns = APPS_TURNS

    def __init__(self, node_locality_delay: int = 40, rack_locality_delay: int = 40) -> None:
        self.node_locality_delay = node_locality_delay
        self.rack_locality_delay = rack_locality_delay

    def match(self, view: View, node: int, now: float) -> Match:
        """Serve whoever holds the fewest, one container at a time."""
        found = candidates(view, node)
        if not len(found.rows):
            return NOTHING
        by_app, by_queue = _held(view)
        patience = delays(view, self.node_locality_delay, self.rack_locality_delay)
        waiting = waiting_rows(found.rows, view.levels(node), view.rows.missed, *patience)
        one = np.ones(len(found.rows))
        line = Line(CONTAINERS, by_queue, by_app, one, found.pri, found.pending, waiting)
        picks = in_turn(found, line, limits_of(view, follows=True))
        declined = tuple(found.rows[waiting > 1].tolist())
        answer = placements(found.rows, picks, ("containers",))
        return Match(answer, declined, settled=not declined)

    def terms(self, view: View, row: int) -> Scores:
        """Return how many containers the queues above a row hold, over their guarantees."""
        return queue_terms(view, row, _held(view)[1])

    def why_not(self, view: View, node: int, row: int) -> str:
        """Return what holds a row: others hold fewer containers and have something pending."""
        by_app, by_queue = _held(view)
        return behind(view, int(view.rows.app[row]), by_queue, by_app, "hold fewer containers")


def _held(view: View) -> tuple[Floats, Floats]:
    """Return containers without masters by application slot, and by queue with all below it."""
    n = view.app_slots
    held = np.maximum(view.apps.containers[:n] - MASTER_CONTAINERS, 0.0)
    return held, _summed_up.code(held, view.apps.active, view.apps.queue, view.queues.parent)
