"""Graphene's matcher: figure 15 whole, with every term on its own switch.

perfScore = priScore x max(pScore, oScore) - eta x srpt; deficit counters bound the unfairness;
a bundle of candidates is collected in one pass and picked from (section 7); overbooking by what-if.
eta = m x mean score / mean srpt follows both means, taken apart, from decision to decision.
Source: Graphene sections 5 and 7; docs/rules.md, rules 33 to 48.
"""

from functools import partial

import numpy as np

from rm.ledger.view import View
from rm.match.candidate_kernels import Candidates, next_is_one
from rm.match.candidates import (
    asks_of,
    candidates,
    collect,
    limits_of,
    mean_remaining,
    placements,
    site_of,
)
from rm.match.deficit_kernels import (
    DRF,
    SLOTS,
    TIME,
    Booking,
    BookingScratch,
    Groups,
    Parties,
    book_on_node,
    give_away,
    neediest,
    state_on_node,
)
from rm.match.graphene_kernels import Bundle, Eta, Scratch, Terms, graphene_picks
from rm.match.overbook_kernels import Room, Running, Waiting, sooner, what_if
from rm.match.protocol import NOTHING, BaseMatcher, Match, Placement
from weft.compiled import steady
from weft.dag import Floats

TERMS = ("perf", "pack", "overbook", "work", "deficit")
OVERBOOK = TERMS.index("overbook")
UNITS = {"slots": SLOTS, "drf": DRF, "time": TIME}
_graphene_picks = steady(graphene_picks)
_state_on_node = steady(state_on_node)
_next_is_one = steady(next_is_one)
_sooner, _what_if = steady(sooner), steady(what_if)
_book_on_node = steady(book_on_node)


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
        deficit_unit: str,
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
        self.unit = UNITS[deficit_unit]
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
        self._knobs = Terms(remote_penalty, use_packing, 1 if bundle_pick == "one" else 1 << 30)
        # means over the decisions so far of priScore x pScore and of srpt, and how many they were
        self._score, self._work, self._decisions = 0.0, 0.0, 0
        self._counters: Floats = np.zeros(0)  # by group
        self._may_overbook = bool(self.overbook) and overbook_limit > 1 and overbook_rows > 0
        self._slack: Floats | None = None  # how far each resource may be overbooked, over capacity
        none, nobody = np.empty(0), np.empty(0, np.bool_)
        self._room = (none, none), BookingScratch(nobody, none, np.empty((2, 0)))

    # -- the decision ------------------------------------------------------------------------------

    def match(self, view: View, node: int, now: float) -> Match:
        """Return the placements of one decision: snapshot, filter, score, place (figure 15)."""
        beyond = self._beyond(view)
        full = self.overbook_rows if self._may_overbook and view.nodes.containers[node] else 0
        found = candidates(view, node, beyond, full)
        if not len(found.rows):
            return NOTHING
        extra = len(found.rows) - found.fit
        over = np.zeros(len(found.rows))
        if extra:
            self._weigh_overbooking(view, node, found, over, now)
        if not self.use_priority:
            found = found._replace(pri=np.ones(len(found.rows)))
        elif self.relative:
            found = found._replace(pri=self._among_pending(view, found))
        if self.bundle_enter != "all" or self.bundle_end:
            found, over = self._bundle(found, over)
        groups = found.app if self.by_app else view.apps.queue[found.app]
        mean_work = mean_remaining(view)
        state, k = self._state(view, node), len(found.rows)
        scratch = Scratch(
            np.empty(k), np.empty(k), self._room[1].active, np.zeros(3)
        )  # fmt: skip
        bundle = Bundle(found, over, groups, view.apps.remaining[: view.app_slots].copy())
        eta, limits = self._eta(mean_work), limits_of(view)
        pick = partial(_graphene_picks, bundle, state, eta, self._knobs, limits, scratch)
        picks = collect(pick, len(TERMS))
        seen, weight = scratch.known[:2].tolist()
        answer = [
            Placement(p.row, p.copies, (*p.scores, ("eta", weight)), p.scores[OVERBOOK][1] > 0)
            for p in placements(found.rows, picks, TERMS)
        ]
        # with time, running tasks end and a what-if may turn out otherwise
        settled = not extra and self.bundle_pick != "one" and self.bundle_end == 0
        return Match(answer, settled=settled, observed=(seen, mean_work))

    def _among_pending(self, view: View, found: Candidates) -> Floats:
        """Return priScore over the application's best pending one, so that its next task scores 1.

        By all of a job's tasks, what a young job starts with beats what an old job ends with; jobs
        advance in lockstep and all end late. The order inside each job stays (docs/simulation.md).
        """
        rows = view.rows
        return _next_is_one(
            found.pri, found.app, rows.pending[: rows.count], rows.app, rows.pri_score,
            view.app_slots,
        )  # fmt: skip

    def _eta(self, mean_work: float) -> Eta:
        """Return how the next decision finds its eta."""
        fixed = self.eta_fixed if self.eta_fixed >= 0 else 0.0 if self.eta_m == 0 else -1.0
        return Eta(fixed, self.eta_m, self._score, self._work, self._weight(), mean_work)

    def _weight(self) -> float:
        """Return the next decision's weight in the means: a plain mean of the first few."""
        return max(self.eta_weight, 1.0 / (self._decisions + 1))

    def matched(self, view: View, node: int, match: Match, now: float) -> None:
        """Let both means follow what the decision saw."""
        if not match.observed or not match.placements:
            return
        score, work = match.observed
        if score > 0 and work > 0:
            weight = self._weight()
            self._score += weight * (score - self._score)
            self._work += weight * (work - self._work)
            self._decisions += 1

    def _bundle(self, found: Candidates, over: Floats) -> tuple[Candidates, Floats]:
        """Return what enters the bundle, and when it ends: the best rows by preferred order."""
        order = np.lexsort((found.rank, -found.pri))
        if self.bundle_enter == "first":  # the most preferred row of each application
            _, first = np.unique(found.app[order], return_index=True)
            order = order[np.sort(first)]
        keep = order[: self.bundle_end] if self.bundle_end else order
        return found.part(keep), over[keep]

    # -- fairness ----------------------------------------------------------------------------------

    def _bound(self, view: View) -> float:
        """Return kappa x C in the deficits' unit: slots, or the cluster (for TIME_UNIT_S) as 1."""
        if self.kappa < 0:
            return np.inf
        return self.kappa * (max(float(view.total[0]), 1.0) if self.unit == SLOTS else 1.0)

    def _groups(self, view: View) -> tuple[Parties, Floats]:
        """Return the groups, and what each holds (groups, d)."""
        if self.by_app:
            n, apps = view.app_slots, view.apps
            who = Parties(
                np.arange(n), apps.active, apps.pending, np.ones(n), view.total, limits_of(view)
            )  # fmt: skip
            return who, apps.held[:n]
        tree, by_queue = view.queues, view.by_queue
        who = Parties(
            view.apps.queue, tree.is_leaf, by_queue.pending, tree.capacity, view.total,
            limits_of(view),
        )  # fmt: skip
        return who, by_queue.held[: len(tree)]

    def _alone(self, view: View) -> bool:
        """Return whether there is one group only, so that counters stay 0 and bind nobody."""
        return view.queues.lone and not self.by_app

    def _state(self, view: View, node: int) -> Groups:
        """Return the groups that take part in what is placed on a node."""
        if self._alone(view):
            groups, d = len(view.queues.paths), len(view.total)
            (deficit, share), _ = self._room_of(groups, d)
            deficit[:], share[:] = 0.0, view.queues.is_leaf
            return Groups(deficit, share, np.zeros((groups, d)), np.inf, self.unit)
        who, held = self._groups(view)
        (deficit, share), scratch = self._room_of(len(who.share), len(view.total))
        state = Groups(deficit, share, np.empty(held.shape), self._bound(view), self.unit)
        _state_on_node(
            self._counters, asks_of(view, node), site_of(view, node), who, held, state,
            scratch.active, scratch.work[0],
        )  # fmt: skip
        return state

    def _room_of(self, groups: int, d: int) -> tuple[tuple[Floats, Floats], BookingScratch]:
        """Return arrays by group to write on: of a decision (groups,), and of a booking."""
        if self._room[1].normal.shape != (groups,) or self._room[1].work.shape != (2, d):
            deficit, share, normal = np.empty((3, groups))
            active = np.empty(groups, np.bool_)
            self._room = (deficit, share), BookingScratch(active, normal, np.empty((2, d)))
        return self._room

    def slack(self, view: View) -> Floats:
        """Return how far beyond capacity overbookable resources may go."""
        return self._beyond(view)

    def deficits(self, view: View) -> Floats:
        """Return counters by queue slot; zeros when the groups are applications."""
        if self.by_app or len(self._counters) != len(view.queues.paths):
            return np.zeros(len(view.queues.paths))
        return self._counters

    def granted(self, view: View, node: int, placement: Placement, app: int, now: float) -> None:
        """Book the deficit of every container."""
        if self._alone(view):
            return
        who, held = self._groups(view)
        self._grow(len(who.share))
        group = app if self.by_app else int(view.apps.queue[app])
        rows, row = view.rows, placement.row
        booking = Booking(
            group, rows.demand[row], float(rows.duration_s[row]), placement.copies, held[group],
            self.unit,
        )  # fmt: skip
        _, scratch = self._room_of(len(who.share), len(view.total))
        _book_on_node(
            self._counters, asks_of(view, node), site_of(view, node), who, booking,
            view.nodes.up[: view.node_count], scratch,
        )  # fmt: skip

    def why_not(self, view: View, node: int, row: int) -> str:
        """Return the group that goes first as it is owed more than the bound allows, if any."""
        state = self._state(view, node)
        rows = candidates(view, node).rows
        group_of = self._groups(view)[0].group_of
        here = np.zeros(len(state.deficit), dtype=np.bool_)
        here[group_of[view.rows.app[rows]]] = True
        top = neediest(state.deficit, state.share, here)
        if top < 0 or top == group_of[view.rows.app[row]] or state.deficit[top] < state.bound:
            return ""
        owed = "another application" if self.by_app else f"queue {view.queues.paths[top]}"
        return f"held by fairness: {owed} is owed more than the bound"

    def app_joined(self, view: View, app: int, now: float) -> None:
        """Start a new application's counter at 0, whoever had its slot before."""
        if self.by_app:
            self._grow(view.app_slots)
            self._leave(view, app)

    def app_left(self, view: View, app: int, now: float) -> None:
        """Spread a departing application's counter over the rest."""
        if self.by_app and app < len(self._counters):
            self._leave(view, app)

    def _leave(self, view: View, app: int) -> None:
        """Spread a counter over those with something pending, or over all that are active."""
        n, apps = len(self._counters), view.apps
        if self._counters[app] == 0.0:
            return
        active = apps.active[:n]
        for others in (active & (apps.pending[:n] > 0), active):
            if give_away(self._counters, np.ones(n), others, app, np.empty(n)):
                return
        self._counters[:] = 0.0  # nobody is left that is owed anything

    def _grow(self, groups: int) -> None:
        """Add counters of 0 for new groups."""
        missing = groups - len(self._counters)
        if missing > 0:
            self._counters = np.concatenate((self._counters, np.zeros(missing)))

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
        """Write oScore of the rows that do not fit into `over`: s, or relative to the duration."""
        n, nodes = view.node_count, view.nodes
        demand = view.rows.demand[found.rows[found.fit :]]
        waiting = Waiting(demand, found.duration[found.fit :], np.full(len(demand), np.inf))
        for step in range(min(n, self.overbook_look)):
            slot = (node + step) % n
            if nodes.up[slot]:
                runs = view.runs(slot)
                running = Running(runs.end_s[: runs.count], runs.demand)
                _sooner(waiting, running, nodes.available[slot], nodes.capacity[slot], now)
        runs = view.runs(node)
        running = Running(runs.end_s[: runs.count], runs.demand)
        room = Room(nodes.available[:n], nodes.capacity, nodes.up)
        _what_if(over, waiting, running, room, node, now, self.overbook_relative)
