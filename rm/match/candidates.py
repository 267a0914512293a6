"""The rows that compete for a node, as arrays for the scoring kernels."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from rm.ledger.asks import RACK_LOCAL, REMOTE, AskRows
from rm.ledger.view import View
from rm.match.candidate_kernels import (
    Candidates,
    Sieve,
    choose_alone,
    describe,
    largest_over,
    mean_of_busy,
    over,
)
from rm.match.filter_kernels import Asks, Site
from rm.match.limit_kernels import Limits, held_back
from rm.match.protocol import Placement, Scores
from rm.match.score_kernels import USUAL_PICKS_MAX, Picks
from weft.model.dag import Floats, Ints
from weft.policies.compiled import steady

Number = TypeVar("Number", np.float64, np.int64)
NONE: Floats = np.zeros(0)
_NO_ROWS: Ints = np.empty(0, np.int64)
# A decision on a full cluster mostly has fewer candidates.
_USUAL_CANDIDATES_MAX = 64
# The arrays are kept for so many different numbers of candidates.
_KEPT_SIZES_MAX = 1024
_choose, _describe = steady(choose_alone), steady(describe)
_PLACES: tuple[Scores, ...] = tuple((("place", float(at)),) for at in range(USUAL_PICKS_MAX))
# Nobody looks at these holdings.
_UNSEEN: Floats = np.zeros((0, 0))
_mean_of_busy = steady(mean_of_busy)
_over = steady(over)
_largest_over = steady(largest_over)


def candidates(view: View, node: int, beyond: Floats = NONE, extra_most: int = 0) -> Candidates:
    """Return the rows that may use a node and fit there.

    At most `extra_most` more follow that would fit with `beyond` (d,) x capacity more room. All
    preconditions are applied: label, black list, reservation, gang. A policy may use the arrays as
    working copies; the next call for the same view may write on them.
    """
    asks, site, total = asks_of(view, node), site_of(view, node), view.total
    d = len(total)
    room: _Room | None = view.room
    if room is None or room.most < asks.size + extra_most or room.more.shape[1] != d:
        view.room = room = _Room(2 * (asks.size + extra_most) + _USUAL_CANDIDATES_MAX, d)
    if not len(beyond):
        beyond = room.nothing
    extra = np.empty(extra_most, np.int64) if extra_most else _NO_ROWS
    fit, k = _choose.code(asks, site, beyond, Sieve(room.more, room.lacks, room.chosen, extra))
    if not k:
        return _nobody(d)
    found = room.part(k)
    if found.fit != fit:
        found = found._replace(fit=fit)
    level = levels_of(view, node)
    _describe.code(asks, site, room.chosen, level, view.apps.order, total, beyond, found)
    return found


class _Room:
    """Arrays that one decision after the other writes its candidates on, at most so many."""

    def __init__(self, most: int, d: int) -> None:
        self.most = most
        # There is no room beyond what is free; nobody writes on it.
        self.nothing: Floats = np.zeros(d)
        self.more: Floats = np.empty((2, d))
        self.lacks: Ints = np.empty((2, most), np.int64)
        self.chosen: Ints = np.empty(most, np.int64)
        self._ints: Ints = np.empty((5, most), np.int64)
        self._floats: Floats = np.empty((2, most))
        self._amounts: Floats = np.empty((2, most, d))
        self._free: Floats = np.empty((2, d))
        self._parts: dict[int, Candidates] = {}

    def part(self, k: int) -> Candidates:
        """Return the arrays of `k` candidates, all of which fit."""
        found = self._parts.get(k)
        if found is None:
            rows, pending, app, rank, level = self._ints[:, :k]
            duration, pri = self._floats[:, :k]
            packing, work = self._amounts[:, :k]
            free, room = self._free
            found = Candidates(
                rows, k, packing, work, duration, pri, pending, app, rank, level, free, room
            )
            if len(self._parts) == _KEPT_SIZES_MAX:
                self._parts.clear()
            self._parts[k] = found
        return found


@cache
def _nobody(d: int) -> Candidates:
    """Return no candidates, with all arrays empty."""
    none, amounts = np.empty(0), np.empty((0, d))
    return Candidates(
        _NO_ROWS,
        0,
        amounts,
        amounts,
        none,
        none,
        _NO_ROWS,
        _NO_ROWS,
        _NO_ROWS,
        _NO_ROWS,
        np.zeros(d),
        np.zeros(d),
    )


def levels_of(view: View, node: int) -> Ints:
    """Return how near each row's input is; a cluster's only rack is no nearer than others."""
    if not view.rows.preferring:
        return view.rows.remote
    levels = view.levels(node)
    if len(view.rack_names) < 2:
        levels = np.where(levels == RACK_LOCAL, REMOTE, levels)
        levels.flags.writeable = False
    return levels


def asks_of(view: View, node: int) -> Asks:
    """Return the pending asks as kernels take them, as far as they may use a node.

    The same object as long as the rows stand where they are.
    """
    rows = view.rows
    if rows.strict:
        return _asks(rows, view.labels(node))
    if rows.shown is None:
        rows.shown = _asks(rows, rows.label)
    shown: Asks = rows.shown
    return shown


def _asks(rows: AskRows, labels: Ints) -> Asks:
    return Asks(
        rows.count,
        rows.pending,
        rows.app,
        labels,
        rows.gang,
        rows.serial,
        rows.demand.T,
        rows.duration_s,
        rows.pri_score,
    )


def site_of(view: View, node: int) -> Site:
    """Return a node as kernels take it."""
    known: Site | None = view.sites.get(node)
    if known is None:
        nodes = view.nodes
        view.sites[node] = known = Site(
            node, view.banned(node), nodes.labels, nodes.reserved, nodes.available, nodes.capacity
        )
    return known


def limits_of(view: View, *, keeps: bool = False, follows: bool = False) -> Limits:
    """Return the limits of queues and users in a decision.

    `keeps`: queues below their guarantee go first, for a policy that does not divide among queues
    itself. `follows`: the policy goes by what queues hold, so they are followed from pick to pick.
    """
    tree, apps = view.queues, view.apps
    moves = not tree.free and (tree.limited or keeps or follows)
    if not moves and view.idle_limits is not None:
        idle: Limits = view.idle_limits
        # Nothing in it changes but through its tables, and these have not moved.
        return idle
    by_queue, users, keeps = view.by_queue, view.users, keeps and tree.several
    queue_held = _over.code(by_queue.held, view.total) if moves else _UNSEEN
    user_held = _over.code(users.held, view.total) if moves else _UNSEEN
    queue_tasks = user_tasks = _NO_ROWS
    if tree.limited:
        queue_tasks = by_queue.containers - by_queue.masters
        user_tasks = users.containers - users.masters
    queues = len(tree.parent) if tree.several else 0
    limits = Limits(
        tree.several,
        moves,
        tree.limited,
        keeps,
        apps.queue,
        apps.user,
        tree.parent,
        tree.is_leaf,
        tree.capacity,
        tree.most,
        by_queue.users,
        tree.user_limit,
        tree.user_limit_factor,
        queue_held,
        user_held,
        queue_tasks,
        user_tasks,
        np.empty((4, queues), np.bool_),
        np.empty(queues, np.int64),
        np.empty((queues, len(view.total))),
    )
    if not moves:
        view.idle_limits = limits
    return limits


def limit_of(view: View, app: int, demand: Floats) -> int:
    """Return what holds back a demand (d,), absolute, of an application slot: as `held_back`."""
    return held_back(limits_of(view), app, shares_of(demand, view.total))


def limits_of_masters(view: View) -> Limits:
    """Return the limits that masters are under: who holds no container at all may start one."""
    every = view.by_queue.containers, view.users.containers
    return limits_of(view)._replace(queue_tasks=every[0], user_tasks=every[1])


def shares_of(amounts: Floats, by: Floats) -> Floats:
    """Return amounts over a capacity, 0 where that is 0."""
    return np.divide(amounts, by, out=np.zeros_like(amounts), where=by > 0)


def mean_remaining(view: View) -> float:
    """Return the mean srpt over active applications with something pending."""
    n = view.app_slots
    return _mean_of_busy.code(view.apps.remaining[:n], view.apps.active, view.apps.pending)


def behind(view: View, app: int, by_queue: Floats, by_app: Floats, what: str) -> str:
    """Say who goes before an application under hierarchical fairness, "" where nobody does.

    A queue beside one of its own that has something pending and a smaller `by_queue` (queues,) over
    its guarantee; else applications of its own queue with a smaller `by_app` (slots,).
    """
    tree, pending = view.queues, view.by_queue.pending
    ratio = by_queue / np.maximum(tree.capacity, 1e-300)
    for queue in tree.chains[int(view.apps.queue[app])]:
        for beside in tree.children[tree.parent[queue]] if tree.parent[queue] >= 0 else ():
            if pending[beside] > 0 and ratio[beside] < ratio[queue] - 1e-9:
                return f"held by fairness: queue {tree.paths[beside]} holds less of its guarantee"
    n = view.app_slots
    busy = view.apps.active[:n] & (view.apps.pending[:n] > 0)
    busy &= view.apps.queue[:n] == view.apps.queue[app]
    before = int((busy & (by_app < by_app[app] - 1e-9)).sum())
    return f"held by fairness: {before} applications {what}" if before else ""


def line_terms(view: View, row: int) -> Scores:
    """Return what a row's place in a line goes by: priority, submission (from 1), priScore."""
    app = int(view.rows.app[row])
    return (
        ("priority", float(view.apps.priority[app])),
        ("submission", float(view.apps.order[app])),
        ("pri", float(view.rows.pri_score[row])),
    )


def queue_terms(view: View, row: int, held: Floats) -> Scores:
    """Return what each queue above a row holds over its guarantee, topmost first.

    `held` (queues,) is what queues are compared by. There are none where one queue is alone.
    """
    tree = view.queues
    if tree.lone:
        return ()
    chain = tree.chains[int(view.apps.queue[view.rows.app[row]])]
    return tuple(
        [
            (f"used of {tree.paths[queue]}", float(held[queue] / max(tree.capacity[queue], 1e-300)))
            for queue in reversed(chain)
            if tree.parent[queue] >= 0
        ]
    )


def dominant_held(view: View) -> Floats:
    """Return the dominant share of the cluster that each queue holds, shape (queues,)."""
    return _largest_over.code(view.by_queue.held[: len(view.queues)], view.total)


def collect(pick: Callable[[Picks, int], int], terms: int) -> Picks:
    """Return all that a kernel picks, with so many terms each.

    `pick(picks, n)` fills `picks` from place `n` on and returns how many there are then; it is
    called again with twice the room as long as it fills all of it.
    """
    picks = Picks(np.empty(USUAL_PICKS_MAX, np.int64), np.empty((USUAL_PICKS_MAX, terms)))
    n = pick(picks, 0)
    while n == len(picks.candidate):
        picks = Picks(longer(picks.candidate), longer(picks.terms))
        n = pick(picks, n)
    return Picks(picks.candidate[:n], picks.terms[:n])


def longer(values: NDArray[Number]) -> NDArray[Number]:
    """Return a copy with twice the room, shape (2 n, ...)."""
    return np.concatenate((values, np.empty_like(values)))


def place_of(at: int) -> Scores:
    """Return what is told of a pick where nothing but the order counts: its place."""
    return _PLACES[at] if at < USUAL_PICKS_MAX else (("place", float(at)),)


def placements(rows: Ints, picks: Picks, names: tuple[str, ...]) -> list[Placement]:
    """Return one placement per run of picks of the same row, with the first pick's terms."""
    if not len(picks.candidate):
        return []
    return placed(rows[picks.candidate].tolist(), picks.terms.tolist(), names)


def placed(
    chosen: list[int], terms: Sequence[Sequence[float]], names: tuple[str, ...]
) -> list[Placement]:
    """Return what `placements` does, of rows picked one after the other, with their terms."""
    found: list[Placement] = []
    start, count = 0, len(chosen)
    for after in range(1, count + 1):
        if after == count or chosen[after] != chosen[start]:
            scores: Scores = tuple(zip(names, terms[start], strict=True))
            found.append(Placement(chosen[start], after - start, scores))
            start = after
    return found
