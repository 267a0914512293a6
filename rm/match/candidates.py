"""The rows that compete for a node, as arrays for the scoring kernels."""

from dataclasses import dataclass

import numpy as np

from rm.columns import Bools
from rm.match.fit_kernels import eligible
from rm.match.protocol import Placement, Scores
from rm.match.score_kernels import normalised
from rm.rows import REMOTE
from rm.view import View
from weft.dag import Floats, Ints


@dataclass(slots=True)
class Candidates:
    """Rows of one node's decision; arrays have shape (k,) or (k, d)."""

    rows: Ints
    packing: Floats  # demand over the node's capacity
    work: Floats  # demand over the cluster's
    duration: Floats
    pri: Floats
    pending: Ints
    app: Ints
    rank: Ints  # order for ties: the earlier application, then the earlier ask
    remote: Floats  # 1 where the row prefers other machines
    free: Floats  # available over the node's capacity, shape (d,)


def candidates(view: View, node: int, extra: Ints | None = None) -> Candidates:
    """Rows that may use a node and fit there; `extra` rows compete although they do not fit."""
    chosen = eligible(view, node)
    if extra is not None and len(extra):
        chosen = np.concatenate([chosen, extra])
    rows = view.rows
    capacity = view.nodes.capacity[node]
    app = rows.app[chosen]
    demand = rows.demand[: rows.count]
    return Candidates(
        rows=chosen,
        packing=normalised(chosen, demand, capacity),
        work=normalised(chosen, demand, view.total),
        duration=rows.duration_s[chosen],
        pri=rows.pri_score[chosen],
        pending=rows.pending[chosen],
        app=app,
        rank=(view.apps.order[app] << 32) + rows.serial[chosen],
        remote=(view.levels(node)[chosen] == REMOTE).astype(np.float64),
        free=shares_of(np.maximum(view.nodes.available[node], 0.0), capacity),
    )


def shares_of(amounts: Floats, by: Floats) -> Floats:
    """Amounts over a capacity, 0 where that is 0."""
    return np.divide(amounts, by, out=np.zeros_like(amounts), where=by > 0)


def mean_remaining(view: View) -> float:
    """Mean srpt over active applications with something pending."""
    n = view.app_slots
    busy: Bools = view.apps.active[:n] & (view.apps.pending[:n] > 0)
    return float(view.apps.remaining[:n][busy].mean()) if busy.any() else 0.0


def placements(rows: Ints, picked: Ints, terms: Floats, names: tuple[str, ...]) -> list[Placement]:
    """One placement per run of picks of the same row, with the first pick's terms."""
    found: list[Placement] = []
    for position, candidate in enumerate(picked.tolist()):
        row = int(rows[candidate])
        if found and found[-1].row == row:
            found[-1] = found[-1]._replace(copies=found[-1].copies + 1)
            continue
        scores: Scores = tuple(zip(names, terms[position].tolist(), strict=True))
        found.append(Placement(row, 1, scores))
    return found
