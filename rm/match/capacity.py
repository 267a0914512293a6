"""Hierarchical queues with guarantees and limits: YARN's Capacity Scheduler.

Level by level the queue with the least use of its guarantee goes first, as long as no queue on the
way passes its maximum and no user a limit. In a leaf queue: priority, then submission; in an
application: its own preferred order. An ask with a preference lets opportunities go by (delay
scheduling, Zaharia et al., EuroSys 2010): first for its nodes, then for its racks.
"""

import numpy as np

from rm.match.capacity_kernels import pick
from rm.match.delay_kernels import delays
from rm.match.fit_kernels import eligible
from rm.match.protocol import NOTHING, BaseMatcher, Match, Placement
from rm.view import View
from weft.dag import Ints


class CapacityMatcher(BaseMatcher):
    """Its only state is in the view: what is held, and opportunities missed."""

    name = "capacity"
    limits = True

    def __init__(self, node_locality_delay: int = 40, rack_locality_delay: int = 40) -> None:
        self.node_locality_delay = node_locality_delay
        self.rack_locality_delay = rack_locality_delay

    def match(self, view: View, node: int, now: float) -> Match:
        """Fill the node, one container at a time."""
        line = eligible(view, node)
        if not len(line):
            return NOTHING
        rows, n, apps, tree = view.rows, view.rows.count, view.apps, view.queues
        patience = delays(view, self.node_locality_delay, self.rack_locality_delay)
        picked, declined = pick(
            line,
            rows.pending[:n].copy(),
            rows.demand[:n],
            rows.app[:n],
            rows.pri_score[:n],
            view.levels(node),
            rows.missed[:n],
            rows.serial[:n],
            apps.priority,
            apps.order,
            apps.queue,
            apps.user,
            view.nodes.available[node].copy(),
            view.nodes.capacity[node],
            view.total,
            view.by_queue.held.copy(),
            tree.capacity,
            tree.max_capacity,
            tree.parent,
            tree.is_leaf,
            view.by_queue.users,
            tree.user_limit,
            tree.user_limit_factor,
            view.users.held.copy(),
            *patience,
        )
        waits = tuple(line[declined & ~np.isin(line, picked)].tolist()) if declined.any() else ()
        return Match(_placements(picked), waits, settled=not waits)


def _placements(picked: Ints) -> list[Placement]:
    """One placement for each run of the same row."""
    if not len(picked):
        return []
    starts = np.flatnonzero(np.diff(picked, prepend=-1))
    counts = np.diff(starts, append=len(picked))
    return [
        Placement(row, count, (("place", float(i)),))
        for i, (row, count) in enumerate(zip(picked[starts].tolist(), counts.tolist(), strict=True))
    ]
