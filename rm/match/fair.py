"""Fair: each free container goes to the application that holds the fewest, by weight.

Max-min over containers: the "fair" scheduler beside which COBRA works (COBRA section 3;
docs/rules.md, rule 55) and YARN's Fair Scheduler without memory in its measure. Weights are
the capacity of the leaf queue over its active applications; ties go to the earlier release. An
application's master is not counted. Asks with a preference wait for a nearer node (delay
scheduling, `delay_kernels`).
"""

import numpy as np

from rm.ledger.view import View
from rm.match.candidates import candidates, needier, placements
from rm.match.delay_kernels import delays, waiting_rows
from rm.match.dominant import weights
from rm.match.protocol import NOTHING, BaseMatcher, Match
from rm.match.score_kernels import picks_by_turn

MASTER = 1  # containers that no task runs in


class FairMatcher(BaseMatcher):
    """Its only state is in the view: containers held, and opportunities missed."""

    name = "fair"

    def __init__(self, node_locality_delay: int = 40, rack_locality_delay: int = 40) -> None:
        self.node_locality_delay = node_locality_delay
        self.rack_locality_delay = rack_locality_delay

    def match(self, view: View, node: int, now: float) -> Match:
        """Serve whoever holds the fewest, one container at a time."""
        found = candidates(view, node)
        if not len(found.rows):
            return NOTHING
        weight = weights(view)
        held = np.maximum(view.apps.containers[: view.app_slots] - MASTER, 0)
        rows = view.rows
        patience = delays(view, self.node_locality_delay, self.rack_locality_delay)
        waiting = waiting_rows(found.rows, view.levels(node), rows.missed, *patience)
        picked, keys = picks_by_turn(
            found.packing, 1.0 / weight[found.app], found.pri, found.pending, found.app,
            found.rank, found.free, held / weight, 1 << 30, waiting,
        )  # fmt: skip
        declined = tuple(found.rows[waiting > 1].tolist())
        answer = placements(found.rows, picked, keys, ("containers",))
        return Match(answer, declined, settled=not declined)

    def why_not(self, view: View, node: int, row: int) -> str:
        """Others hold fewer containers by weight and have something pending."""
        share = (view.apps.containers[: view.app_slots] - MASTER) / weights(view)
        before = needier(view, share, int(view.rows.app[row]))
        return f"held by fairness: {before} applications hold fewer containers" if before else ""
