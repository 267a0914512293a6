"""Graphene's matcher: figure 15 whole, with every term on its own switch.

perfScore = priScore x max(pScore, oScore) - eta x srpt; deficit counters bound the unfairness;
a bundle of candidates is collected in one pass and picked from (section 7); overbooking by what-if.
Source: Graphene sections 5 and 7; ALGORITHMS sections 7 and 8.
"""

import numpy as np

from rm.ledger.columns import Bools
from rm.ledger.view import View
from rm.match.candidate_kernels import next_is_one
from rm.match.candidates import Candidates, candidates, mean_remaining, placements
from rm.match.deficit_kernels import book_placed, group_state
from rm.match.fairness import Deficits
from rm.match.overbook_kernels import sooner, what_if
from rm.match.protocol import NOTHING, BaseMatcher, Match, Placement
from rm.match.score_kernels import graphene_picks, neediest
from weft.dag import Floats, Ints

TERMS = ("perf", "pack", "overbook", "work", "deficit")
OVERBOOK = TERMS.index("overbook")


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
        priority_from: str,
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
        self.relative = use_priority and priority_from == "left"
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
        self._may_overbook = bool(self.overbook) and overbook_limit > 1 and overbook_rows > 0
        self._slack: Floats | None = None  # how far each resource may be overbooked, over capacity

    # -- the decision ------------------------------------------------------------------------------

    def match(self, view: View, node: int, now: float) -> Match:
        """Snapshot, filter, score, place (figure 15)."""
        beyond = self._beyond(view)
        full = self.overbook_rows if self._may_overbook and view.nodes.containers[node] else 0
        found = candidates(view, node, beyond, full)
        if not len(found.rows):
            return NOTHING
        extra = len(found.rows) - found.fit
        over = np.zeros(len(found.rows))
        if extra:
            self._weigh_overbooking(view, node, found, over, now)
        if self.bundle_enter != "all" or self.bundle_end:
            found, over = self._bundle(found, over)
        if not self.use_priority:
            found.pri = np.ones(len(found.rows))
        elif self.relative:
            found.pri = self._among_pending(view, found)
        groups = found.app if self.by_app else view.apps.queue[found.app]
        deficit, share, held = group_state(
            self._counters.value, *self._groups(view), view.total
        )  # fmt: skip
        picked, terms, eta = graphene_picks(
            found.packing, found.work, found.duration, found.pri, found.pending, found.app,
            groups, found.rank, found.remote, over, found.free, found.room,
            view.apps.remaining[: view.app_slots].copy(), deficit, share, held,
            self._eta_now(), self.eta_m, mean_remaining(view), self._bound(view),
            self.remote_penalty, self.by_slots, self.use_packing,
            1 if self.bundle_pick == "one" else 1 << 30,
        )  # fmt: skip
        answer = [
            p._replace(overbooked=p.scores[OVERBOOK][1] > 0, scores=(*p.scores, ("eta", eta)))
            for p in placements(found.rows, picked, terms, TERMS)
        ]
        # with time, running tasks end and a what-if may turn out otherwise
        settled = not extra and self.bundle_pick != "one" and self.bundle_end == 0
        return Match(answer, settled=settled)

    def _among_pending(self, view: View, found: Candidates) -> Floats:
        """priScore over the application's best pending one, so that its next task scores 1.

        By all of a job's tasks, what a young job starts with beats what an old job ends with; jobs
        advance in lockstep and all end late. The order inside each job stays (docs/simulation.md).
        """
        rows = view.rows
        return next_is_one(
            found.pri, found.app, rows.pending[: rows.count], rows.app, rows.pri_score,
            view.app_slots,
        )  # fmt: skip

    def _eta_now(self) -> float:
        if self.eta_fixed >= 0:
            return self.eta_fixed
        if self.eta_m == 0:
            return 0.0
        return self._eta if self.eta_weight < 1 else -1.0

    def _bundle(self, found: Candidates, over: Floats) -> tuple[Candidates, Floats]:
        """What enters the bundle, and when it ends: the best rows by preferred order."""
        order = np.lexsort((found.rank, -found.pri))
        if self.bundle_enter == "first":  # the most preferred row of each application
            _, first = np.unique(found.app[order], return_index=True)
            order = order[np.sort(first)]
        keep = order[: self.bundle_end] if self.bundle_end else order
        return found.part(keep), over[keep]

    # -- fairness ----------------------------------------------------------------------------------

    def _bound(self, view: View) -> float:
        return np.inf if self.kappa < 0 else self.kappa * self._slots(view)

    def _slots(self, view: View) -> float:
        """C in the unit of the factor: slots (the first resource type) or, for DRF, 1."""
        if not self.by_slots:
            return 1.0
        return max(float(view.total[0]), 1.0)

    def _groups(self, view: View) -> tuple[Floats, Ints, Bools, Floats]:
        """Share, containers pending, whether it can have work, and holdings (d), by group."""
        if self.by_app:
            n = view.app_slots
            return np.ones(n), view.apps.pending[:n], view.apps.active[:n], view.apps.held[:n]
        n = len(view.queues)
        columns = view.by_queue
        return view.queues.capacity, columns.pending[:n], view.queues.is_leaf, columns.held[:n]

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
        share, pending, able, held = self._groups(view)
        if len(self._counters.value) != len(share):
            self._counters.resize(share)
        group = app if self.by_app else int(view.apps.queue[app])
        book_placed(
            self._counters.value, share, pending, able, group, view.rows.demand[placement.row],
            held[group], view.total, self.by_slots, placement.copies,
        )  # fmt: skip
        name, eta = placement.scores[-1]
        if name != "eta":
            return  # a gang, started by the core
        if self.eta_weight < 1 and eta >= 0:
            old = self._eta if self._eta >= 0 else eta
            self._eta = old + self.eta_weight * (eta - old)

    def why_not(self, view: View, node: int, row: int) -> str:
        """A group that is owed more than the bound allows goes first."""
        deficit, share, _ = group_state(self._counters.value, *self._groups(view), view.total)
        top = neediest(deficit, share)
        app = int(view.rows.app[row])
        group = app if self.by_app else int(view.apps.queue[app])
        if top < 0 or top == group or deficit[top] < self._bound(view):
            return ""
        owed = "another application" if self.by_app else f"queue {view.queues.paths[top]}"
        return f"held by fairness: {owed} is owed more than the bound"

    def app_left(self, view: View, app: int, now: float) -> None:
        """A departing application's counter is spread over the rest by share."""
        if self.by_app and app < len(self._counters.value):
            _, pending, able, _ = self._groups(view)
            active = able & (pending > 0)
            self._counters.leave(app, active[: len(self._counters.value)])

    # -- overbooking -------------------------------------------------------------------------------

    def _beyond(self, view: View) -> Floats:
        if self._slack is None:
            names = view.types.names
            mask = np.array([n in self.overbook for n in names], dtype=np.bool_) & ~view.rigid
            self._slack = np.where(mask, self.overbook_limit - 1.0, 0.0)
        return self._slack

    def _weigh_overbooking(
        self, view: View, node: int, found: Candidates, over: Floats, now: float
    ) -> None:
        """oScore of the rows that do not fit, into `over`: s, or relative to the duration."""
        n, nodes = view.node_count, view.nodes
        demand = view.rows.demand[found.rows[found.fit :]]
        wait = np.full(len(demand), np.inf)
        for step in range(min(n, self.overbook_look)):
            slot = (node + step) % n
            if nodes.up[slot]:
                runs = view.runs(slot)
                sooner(
                    wait, demand, nodes.available[slot], nodes.capacity[slot],
                    runs.end_s[: runs.count], runs.demand, now,
                )  # fmt: skip
        runs = view.runs(node)
        what_if(
            over, demand, found.duration[found.fit :], wait, runs.end_s[: runs.count],
            runs.demand, now, nodes.capacity[node], nodes.available[:n], nodes.capacity,
            nodes.up, self.overbook_relative,
        )  # fmt: skip
