"""DRF: the next container goes to whoever has the least weighted dominant share.

Ghodsi et al., NSDI 2011, progressive filling in whole containers; between leaf queues by their
capacity as weight first, then between the applications of a queue.
"""

import numpy as np

from rm.match.candidates import candidates, placements, shares_of
from rm.match.fairness import drf_closed_form, drf_progressive
from rm.match.protocol import NOTHING, BaseMatcher, Match
from rm.match.score_kernels import picks_by_turn
from rm.view import View
from weft.dag import Floats


class DrfMatcher(BaseMatcher):
    """Weights are the capacity of an application's leaf queue over its active applications."""

    name = "drf"

    def match(self, view: View, node: int, now: float) -> Match:
        """Serve the least dominant share first."""
        found = candidates(view, node)
        if not len(found.rows):
            return NOTHING
        n = view.app_slots
        weight = weights(view)
        share = shares_of(view.apps.held[:n], np.broadcast_to(view.total, (n, len(view.total))))
        picked, keys = picks_by_turn(
            found.packing, found.work.max(axis=1) / weight[found.app], found.pri, found.pending,
            found.app, found.rank, found.free, share.max(axis=1) / weight, 1 << 30,
        )  # fmt: skip
        return Match(placements(found.rows, picked, keys[:, None], ("dominant_share",)))

    def shares(self, view: View, now: float) -> Floats:
        """The closed form over what applications hold and ask; unused parts are filled up."""
        return drf_shares_of(view)


def weights(view: View) -> Floats:
    """By application slot: its part of the queue's capacity, scaled so that the mean is 1."""
    n = view.app_slots
    queue = view.apps.queue[:n]
    weight = view.queues.capacity[queue] / np.maximum(view.by_queue.apps[queue], 1)
    mean = float(weight[view.apps.active[:n]].mean()) if view.apps.active[:n].any() else 1.0
    return np.asarray(np.maximum(weight / (mean or 1.0), 1e-9))


def drf_shares_of(view: View) -> Floats:
    """DRF shares by application slot, absolute, shape (slots, d); zeros for inactive ones."""
    n, rows = view.app_slots, view.rows.count
    demand = view.apps.held[:n].copy()
    pending = view.rows.pending[:rows, None] * view.rows.demand[:rows]
    np.add.at(demand, view.rows.app[:rows], pending)
    active = np.flatnonzero(view.apps.active[:n] & (demand.max(axis=1, initial=0.0) > 0))
    out = np.zeros((n, len(view.total)))
    if len(active) == 0:
        return out
    mine, weight = demand[active], weights(view)[active]
    closed = drf_closed_form(view.total, mine, weight)
    needs = shares_of(mine, np.broadcast_to(view.total, mine.shape)).max(axis=1)
    if (closed.dominant > needs).any() or (mine <= 0).any():
        closed = drf_progressive(view.total, mine, weight, needs)
    out[active] = closed.allocation
    return out
