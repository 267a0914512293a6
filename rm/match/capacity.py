"""Hierarchical queues with guarantees and limits: YARN's Capacity Scheduler.

Level by level the queue with the least use of its guarantee goes first, as long as no queue on the
way passes its maximum and no user a limit. In a leaf queue: priority, then submission; in an
application: its own preferred order. An ask with a preference lets opportunities go by (delay
scheduling, Zaharia et al., EuroSys 2010): first for its nodes, then for its racks.
"""

from rm.ledger.view import View
from rm.match.candidates import asks_of, place_of
from rm.match.capacity_kernels import pick
from rm.match.delay_kernels import delays
from rm.match.filter_kernels import open_rows
from rm.match.protocol import NOTHING, BaseMatcher, Match, Placement


class CapacityMatcher(BaseMatcher):
    """Its only state is in the view: what is held, and opportunities missed."""

    name = "capacity"
    limits = True

    def __init__(self, node_locality_delay: int = 40, rack_locality_delay: int = 40) -> None:
        self.node_locality_delay = node_locality_delay
        self.rack_locality_delay = rack_locality_delay

    def match(self, view: View, node: int, now: float) -> Match:
        """Fill the node, one container at a time."""
        line = open_rows(asks_of(view), place_of(view, node))
        if not len(line):
            return NOTHING
        rows, apps, tree = view.rows, view.apps, view.queues
        patience = delays(view, self.node_locality_delay, self.rack_locality_delay)
        picked, copies, waits = pick(
            line, rows.pending, rows.demand, rows.app, rows.pri_score, view.levels(node),
            rows.missed, rows.serial, apps.priority, apps.order, apps.queue, apps.user,
            view.nodes.available[node], view.nodes.capacity[node], view.total, view.by_queue.held,
            tree.capacity, tree.max_capacity, tree.parent, tree.is_leaf, view.by_queue.users,
            tree.user_limit, tree.user_limit_factor, view.users.held, *patience,
        )  # fmt: skip
        placements = [
            Placement(row, count, (("place", float(place)),))
            for place, (row, count) in enumerate(zip(picked.tolist(), copies.tolist(), strict=True))
        ]
        return Match(placements, tuple(waits.tolist()), settled=not len(waits))
