"""DRF shares of the applications in a view: what each may count on.

Closed form (Parkes et al.), progressive filling where a job needs less than its share or demands
none of some resource (docs/rules.md, rule 64).
"""

import numpy as np

from rm.ledger.columns import Bools
from rm.ledger.view import View
from rm.match.candidate_kernels import wanted_of, weights_of
from rm.match.candidates import shares_of
from rm.match.fairness import drf_closed_form, drf_progressive
from weft.model.dag import Floats


def weights(view: View, counts: Bools) -> Floats:
    """Return each slot's part of its queue's capacity among those that count, mean 1."""
    n = view.app_slots
    return weights_of(view.apps.queue[:n], counts, view.queues.capacity)


def drf_shares_of(view: View) -> Floats:
    """Return DRF shares by application slot, absolute, shape (slots, d); zeros for inactive."""
    n, rows = view.app_slots, view.rows.count
    demand = wanted_of(
        view.apps.held[:n], view.rows.pending[:rows], view.rows.demand, view.rows.app
    )
    counts = view.apps.active[:n] & (demand.max(axis=1, initial=0.0) > 0)
    active = np.flatnonzero(counts)
    out = np.zeros((n, len(view.total)))
    if len(active) == 0:
        return out
    mine, weight = demand[active], weights(view, counts)[active]
    closed = drf_closed_form(view.total, mine, weight)
    needs = shares_of(mine, np.broadcast_to(view.total, mine.shape)).max(axis=1)
    if (closed.dominant > needs).any() or (mine <= 0).any():
        closed = drf_progressive(view.total, mine, weight, needs)
    out[active] = closed.allocation
    return out


def entitlements_of(view: View) -> Floats:
    """Return closed-form DRF of whole jobs: absolute, shape (slots, d); zeros for inactive ones.

    A job's demand vector is that of all its work, so what it may count on changes only when a job
    comes or goes, and not with what it happens to run or to ask for: T_k's invariant in theorem 3.1
    of Carbyne. A job without declared work counts with all resources alike.
    """
    n = view.app_slots
    out = np.zeros((n, len(view.total)))
    active = np.flatnonzero(view.apps.active[:n])
    if len(active) == 0 or not view.total.any():
        return out
    work, weight = view.apps.work[active], weights(view, view.apps.active[:n])[active]
    work = np.where(work.max(axis=1, keepdims=True) > 0, work, view.total)
    closed = drf_closed_form(view.total, work, weight)
    if (work <= 0).any():
        closed = drf_progressive(view.total, work, weight)
    out[active] = closed.allocation
    return out


def equal_shares_of(view: View) -> Floats:
    """Return equal parts of every resource for all that are active, by the weight of their queues.

    They are absolute, shape (slots, d); zeros for inactive ones.
    """
    active = view.apps.active[: view.app_slots]
    weight = weights(view, active)
    return weight[:, None] / max(int(active.sum()), 1) * view.total
