"""Graphene's matcher: figure 15 whole, with every term on its own switch.

perfScore = priScore x max(pScore, oScore) - eta x srpt; deficit counters bound the unfairness;
a bundle of candidates is collected in one pass and picked from (section 7); overbooking by what-if.
Source: Graphene sections 5 and 7; ALGORITHMS sections 7 and 8.
"""

import numpy as np

from rm.columns import Bools
from rm.match.candidates import Candidates, candidates, mean_remaining, placements, shares_of
from rm.match.fairness import Deficits
from rm.match.fit_kernels import allowed
from rm.match.overbook_kernels import overbookable_rows, what_if
from rm.match.protocol import NOTHING, BaseMatcher, Match, Placement
from rm.match.score_kernels import dominant_factor, graphene_picks
from rm.view import View
from weft.dag import Floats, Ints

TERMS = ("perf", "pack", "overbook", "work", "deficit")


class GrapheneMatcher(BaseMatcher):
    """One decision for one node; own state: the deficit counters and the moving eta."""

    name = "graphene"

    def __init__(
        self,
        eta_m: float,
        eta: float,
        eta_weight: float,
        remote_penalty: float,
        kappa: float,
        factor: str,
        group: str,
        use_priority: bool,
        use_packing: bool,
        overbook: str,
        overbook_score: str,
        overbook_rows: int,
        overbook_limit: float,
        overbook_look: int,
        bundle_enter: str,
        bundle_end: int,
        bundle_pick: str,
    ) -> None:
        self.eta_m = eta_m
        self.eta_fixed = eta
        self.eta_weight = eta_weight
        self.remote_penalty = remote_penalty
        self.kappa = kappa
        self.by_slots = factor == "slot"
        self.by_app = group == "app"
        self.use_priority = use_priority
        self.use_packing = use_packing
        self.overbook = tuple(name for name in overbook.split(",") if name)
        self.overbook_relative = overbook_score == "relative"
        self.overbook_rows = overbook_rows
        self.overbook_limit = overbook_limit
        self.overbook_look = overbook_look
        self.bundle_enter = bundle_enter
        self.bundle_end = bundle_end
        self.bundle_pick = bundle_pick
        self._eta = -1.0  # the moving average; negative: none yet
        self._counters = Deficits(np.zeros(0))
        self._slack: Floats | None = None  # how far each resource may be overbooked, over capacity

    # -- the decision ------------------------------------------------------------------------------

    def match(self, view: View, node: int, now: float) -> Match:
        """Snapshot, filter, score, place (figure 15)."""
        extra = self._overbookable(view, node)
        found = candidates(view, node, extra)
        if not len(found.rows):
            return NOTHING
        over = np.zeros(len(found.rows))
        if len(extra):
            over[-len(extra) :] = self._overbook_scores(view, node, extra, now)
        found, over = self._bundle(found, over)
        if not self.use_priority:
            found.pri = np.ones(len(found.rows))
        groups, deficit, share, held, bound = self._fairness(view, found)
        picked, terms, eta = graphene_picks(
            found.packing, found.work, found.duration, found.pri, found.pending, found.app,
            groups, found.rank, found.remote, over, found.free, self._room(view, node),
            view.apps.remaining[: view.app_slots].copy(), deficit, share, held,
            self._eta_now(), self.eta_m, mean_remaining(view), bound, self.remote_penalty,
            self.by_slots, self.use_packing, 1 if self.bundle_pick == "one" else 1 << 30,
        )  # fmt: skip
        answer = [
            p._replace(
                overbooked=dict(p.scores)["overbook"] > 0, scores=(*p.scores, ("eta", float(eta)))
            )
            for p in placements(found.rows, picked, terms, TERMS)
        ]
        # with time, running tasks end and a what-if may turn out otherwise
        settled = not len(extra) and self.bundle_pick != "one" and self.bundle_end == 0
        return Match(answer, settled=settled)

    def _room(self, view: View, node: int) -> Floats:
        """What is available with overbooking, over the node's capacity, shape (d,)."""
        capacity = view.nodes.capacity[node]
        return shares_of(view.nodes.available[node], capacity) + self._beyond(view)

    def _eta_now(self) -> float:
        if self.eta_fixed >= 0:
            return self.eta_fixed
        if self.eta_m == 0:
            return 0.0
        return self._eta if self.eta_weight < 1 else -1.0

    def _bundle(self, found: Candidates, over: Floats) -> tuple[Candidates, Floats]:
        """What enters the bundle, and when it ends: the best rows by preferred order."""
        if self.bundle_enter == "all" and not 0 < self.bundle_end < len(found.rows):
            return found, over
        order = np.lexsort((found.rank, -found.pri))
        if self.bundle_enter == "first":  # the most preferred row of each application
            _, first = np.unique(found.app[order], return_index=True)
            order = order[np.sort(first)]
        keep = order[: self.bundle_end] if self.bundle_end else order
        return Candidates(
            found.rows[keep], found.packing[keep], found.work[keep], found.duration[keep],
            found.pri[keep], found.pending[keep], found.app[keep], found.rank[keep],
            found.remote[keep], found.free,
        ), over[keep]  # fmt: skip

    # -- fairness ----------------------------------------------------------------------------------

    def _fairness(
        self, view: View, found: Candidates
    ) -> tuple[Ints, Floats, Floats, Floats, float]:
        """(group of each candidate, deficits, active shares, holdings over C, kappa x C)."""
        counters = self._counters
        share, active, held = self._groups(view)
        groups = found.app if self.by_app else view.apps.queue[found.app]
        deficit = np.zeros(len(share))
        known = min(len(share), len(counters.value))
        deficit[:known] = counters.value[:known]
        total = np.where(active, share, 0.0)
        normal = total / total.sum() if total.sum() > 0 else total
        bound = np.inf if self.kappa < 0 else self.kappa * self._slots(view)
        return groups, deficit, normal, shares_of(held, view.total[None, :]), bound

    def _slots(self, view: View) -> float:
        """C in the unit of the factor: slots (the first resource type) or, for DRF, 1."""
        if not self.by_slots:
            return 1.0
        return max(float(view.total[0]), 1.0)

    def _groups(self, view: View) -> tuple[Floats, Bools, Floats]:
        """Share, whether something is pending, and holdings (groups, d) of each group."""
        if self.by_app:
            n = view.app_slots
            active = view.apps.active[:n] & (view.apps.pending[:n] > 0)
            return np.ones(n), active, view.apps.held[:n]
        n = len(view.queues)
        pending = view.by_queue.pending[:n] > 0
        return view.queues.capacity, pending & view.queues.is_leaf, view.by_queue.held[:n]

    def slack(self, view: View) -> Floats:
        """Overbookable resources may go up to the limit."""
        return self._beyond(view)

    def deficits(self, view: View) -> Floats:
        """Counters by queue slot; zeros when the groups are applications."""
        if self.by_app or len(self._counters.value) != len(view.queues):
            return np.zeros(len(view.queues))
        return self._counters.value

    def granted(self, view: View, node: int, placement: Placement, app: int, now: float) -> None:
        """Book the deficit of every container, and let eta follow."""
        share, active, held = self._groups(view)
        if len(self._counters.value) != len(share):
            self._counters.resize(share)
        group = app if self.by_app else int(view.apps.queue[app])
        work = shares_of(view.rows.demand[placement.row], view.total)
        factor = 1.0 if self.by_slots else dominant_factor(work, shares_of(held[group], view.total))
        for _ in range(placement.copies):
            self._counters.book(group, factor, active)
        for idle in np.flatnonzero(~active & (self._counters.value > 0)):
            if idle != group:
                self._counters.idle(int(idle), active)
        eta = dict(placement.scores).get("eta", -1.0)
        if self.eta_weight < 1 and eta >= 0:
            old = self._eta if self._eta >= 0 else eta
            self._eta = old + self.eta_weight * (eta - old)

    def app_left(self, view: View, app: int, now: float) -> None:
        """A departing application's counter is spread over the rest by share."""
        if self.by_app and app < len(self._counters.value):
            _, active, _ = self._groups(view)
            self._counters.leave(app, active[: len(self._counters.value)])

    # -- overbooking -------------------------------------------------------------------------------

    def _overbookable(self, view: View, node: int) -> Ints:
        """Rows that fit only if overbookable resources go beyond the capacity, up to the limit."""
        beyond = self._beyond(view)
        if not beyond.any() or not view.nodes.containers[node] or not self.overbook_rows:
            return np.zeros(0, dtype=np.int64)
        rows = overbookable_rows(
            allowed(view, node),
            view.rows.demand[: view.rows.count],
            view.nodes.available[node],
            view.nodes.capacity[node],
            beyond,
        )
        if len(rows) > self.overbook_rows:
            best = np.lexsort((view.rows.serial[rows], -view.rows.pri_score[rows]))
            rows = rows[best[: self.overbook_rows]]
        return rows

    def _beyond(self, view: View) -> Floats:
        if self._slack is None:
            names = view.types.names
            mask = np.array([n in self.overbook for n in names], dtype=np.bool_) & ~view.rigid
            self._slack = np.where(mask, self.overbook_limit - 1.0, 0.0)
        return self._slack

    def _overbook_scores(self, view: View, node: int, rows: Ints, now: float) -> Floats:
        """oScore of each row (0: better to wait): s, or relative to the duration, at most 1."""
        n, nodes = view.node_count, view.nodes
        look = [(node + step) % n for step in range(min(n, self.overbook_look))]
        look = [slot for slot in look if nodes.up[slot]]
        runs = [view.running(slot) for slot in look]
        most = max(len(run.end_s) for run in runs)
        ends = np.zeros((len(runs), most))
        held = np.zeros((len(runs), most, len(view.types)))
        count = np.array([len(run.end_s) for run in runs])
        for i, run in enumerate(runs):
            order = np.argsort(run.end_s, kind="stable")
            ends[i, : count[i]] = np.maximum(run.end_s[order] - now, 0.0)
            held[i, : count[i]] = run.demand[order]
        return what_if(
            view.rows.demand[rows], view.rows.duration_s[rows],
            np.maximum(runs[0].end_s - now, 0.0), runs[0].demand, nodes.capacity[node],
            nodes.available[:n], nodes.capacity[:n], nodes.up[:n], np.array(look), ends, held,
            count, self.overbook_relative,
        )  # fmt: skip
