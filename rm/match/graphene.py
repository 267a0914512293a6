"""Graphene's matcher: figure 15 whole, with every term on its own switch.

perfScore = priScore x max(pScore, oScore) - eta x srpt; deficit counters bound the unfairness;
a bundle of candidates is collected in one pass and picked from (section 7); overbooking by what-if.
eta = m x mean score / mean srpt follows both means, taken apart, from decision to decision.
Source: Graphene sections 5 and 7; docs/rules.md, rules 33 to 48.
"""

import numpy as np

from rm.ledger.running_kernels import Running
from rm.ledger.view import View
from rm.match.candidates import asks_of, candidates, levels_of, limits_of, longer, site_of
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
from rm.match.filter_kernels import Site
from rm.match.graphene_kernels import (
    ALL,
    COUNTS,
    DECLARED,
    FIT,
    LEFT,
    NODES_PER_WEIGH,
    NONE,
    PICK,
    ROWS,
    TERMS_PER_PICK,
    UNDECIDED,
    Answer,
    Desk,
    Rule,
    Standing,
    decide,
    weigh,
)
from rm.match.limit_kernels import Limits
from rm.match.overbook_kernels import Fluid, Trial, Waiting
from rm.match.protocol import NOTHING, BaseMatcher, Match, Placement, Scores
from weft.model.dag import Floats, Ints
from weft.policies.compiled import steady

UNITS = {"slots": SLOTS, "drf": DRF, "time": TIME}
# A decision has at least this weight in the means that eta follows (docs/results/matching.md).
ETA_WEIGHT = 0.1
# A what-if is about so many rows, and looks for their next opportunity on so many nodes: more of
# either make no significant difference (docs/results/matching.md).
OVERBOOK_ROWS = 16
OVERBOOK_LOOK = 4
# A decision on a full cluster mostly has fewer candidates.
_USUAL_CANDIDATES_MAX = 64
# No row prefers any place; it is read-only, as the levels of rows are.
_NO_LEVELS: Ints = np.empty(0, np.int64)
_NO_LEVELS.flags.writeable = False
_USUAL_RUNS_MAX = 32
_decide, _weigh = steady(decide), steady(weigh)
_state_on_node, _book_on_node = steady(state_on_node), steady(book_on_node)


class GrapheneMatcher(BaseMatcher):
    """One decision for one node; own state: the deficit counters and the moving eta."""

    name = "graphene"

    def __init__(
        self,
        eta_m: float,
        eta: float,
        kappa: float,
        deficit_unit: str,
        group: str,
        use_priority: bool,
        priority_from: str,
        use_packing: bool,
        overbook: str,
        overbook_limit: float,
    ) -> None:
        self.kappa = kappa
        self.unit = UNITS[deficit_unit]
        self.by_app = group == "app"
        self.relative = use_priority and priority_from == "left"
        self.overbook = tuple(name for name in overbook.split(",") if name)
        self.overbook_limit = overbook_limit
        # These are means over the decisions so far of priScore x pScore and of srpt, and how many
        # they were.
        self._means: Floats = np.zeros(3)
        # Each group has a deficit counter.
        self._counters: Floats = np.zeros(0)
        may_overbook = bool(self.overbook) and overbook_limit > 1
        self._rule = Rule(
            use_packing,
            NONE if not use_priority else LEFT if self.relative else DECLARED,
            OVERBOOK_ROWS if may_overbook else 0,
            self.unit,
            eta if eta >= 0 else 0.0 if eta_m == 0 else -1.0,
            eta_m,
            ETA_WEIGHT,
        )
        # Each resource may be overbooked so far, over the capacity.
        self._slack: Floats | None = None
        self._standing: Standing | None = None
        self._desk: Desk | None = None
        self._trial: Trial | None = None
        # The desk has room for so many rows, applications, groups and resources.
        self._room = (0, 0, 0, 0)
        self._answer = _answer(_USUAL_RUNS_MAX)

    # -- the decision ------------------------------------------------------------------------------

    def match(self, view: View, node: int, now: float) -> Match:
        """Return the placements of one decision: snapshot, filter, score, place (figure 15)."""
        asks, site = asks_of(view, node), site_of(view, node)
        level = levels_of(view, node) if view.rows.preferring else _NO_LEVELS
        standing = self._standing_of(view)
        desk, rule, answer = self._desk_of(view, asks.size, standing), self._rule, self._answer
        made = _decide.code(asks, site, level, standing, desk, rule, answer, ALL)
        # With time, running tasks end and a what-if may turn out otherwise.
        settled = made != UNDECIDED
        if not settled:
            self._weigh_overbooking(view, node, site, standing, desk, now)
            made = _decide.code(asks, site, level, standing, desk, rule, answer, PICK)
        while made == len(answer.row):
            self._answer = answer = Answer(
                longer(answer.row), longer(answer.copies), longer(answer.terms)
            )
            made = _decide.code(asks, site, level, standing, desk, rule, answer, PICK)
        if made == 0 and desk.tally[ROWS] == 0:
            return NOTHING
        seen, eta, work, _ = desk.known.tolist()
        placements = [_placement(answer, run, eta) for run in range(made)]
        return Match(placements, (), settled, (seen, work))

    def _standing_of(self, view: View) -> Standing:
        """Return the tables that decisions go by, as they are now."""
        known, limits = self._standing, limits_of(view)
        if (
            known is not None
            and known.who.limits is limits
            and known.who.total is view.total
            and known.containers is view.nodes.containers
            and known.counters is self._counters
            and (not self.by_app or len(known.who.group_of) == view.app_slots)
        ):
            return known
        who, held = self._groups(view, limits)
        apps, nodes = view.apps, view.nodes
        alone = view.queues.lone and not self.by_app
        self._standing = known = Standing(
            who,
            alone,
            self._bound(view),
            self._counters,
            held,
            apps.order,
            apps.active,
            apps.pending,
            apps.remaining,
            nodes.containers,
            nodes.up,
            self._beyond(view),
        )
        return known

    def _desk_of(self, view: View, rows: int, standing: Standing) -> Desk:
        """Return arrays for a decision about so many rows to write on."""
        extras = self._rule.extras
        most, apps, groups, d = self._room
        if (
            self._desk is None
            or rows + extras > most
            or view.app_slots > apps
            or len(standing.held) != groups
            or len(standing.beyond) != d
        ):
            most, apps = 2 * (rows + extras) + _USUAL_CANDIDATES_MAX, 2 * view.app_slots
            groups, d = standing.held.shape
            self._room = most, apps, groups, d
            self._desk = _desk(most, apps, groups, d, extras, self._means)
        return self._desk

    def matched(self, view: View, node: int, match: Match, now: float) -> None:
        """Let both means follow what the decision saw."""
        if not match.observed or not match.placements:
            return
        seen, left = match.observed
        if seen > 0 and left > 0:
            score, work, decisions = self._means.tolist()
            # The first few decisions have a plain mean.
            weight = max(ETA_WEIGHT, 1.0 / (decisions + 1))
            self._means[0] = score + weight * (seen - score)
            self._means[1] = work + weight * (left - work)
            self._means[2] = decisions + 1

    # -- fairness ----------------------------------------------------------------------------------

    def _bound(self, view: View) -> float:
        """Return kappa x C in the deficits' unit: slots, or the cluster (for TIME_UNIT_S) as 1."""
        if self.kappa < 0:
            return np.inf
        return self.kappa * (max(float(view.total[0]), 1.0) if self.unit == SLOTS else 1.0)

    def _groups(self, view: View, limits: Limits) -> tuple[Parties, Floats]:
        """Return the groups, and what each holds (groups, d)."""
        if self.by_app:
            n, apps = view.app_slots, view.apps
            who = Parties(np.arange(n), apps.active, apps.pending, np.ones(n), view.total, limits)
            return who, apps.held[:n]
        tree, by_queue = view.queues, view.by_queue
        who = Parties(
            view.apps.queue, tree.is_leaf, by_queue.pending, tree.capacity, view.total, limits
        )
        return who, by_queue.held[: len(tree)]

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
        if view.queues.lone and not self.by_app:
            return
        self._grow(view.app_slots if self.by_app else len(view.queues))
        standing = self._standing_of(view)
        who, groups = standing.who, len(standing.held)
        group = app if self.by_app else int(view.apps.queue[app])
        rows, row = view.rows, placement.row
        booking = Booking(
            group,
            rows.demand[row],
            float(rows.duration_s[row]),
            placement.copies,
            standing.held[group],
            self.unit,
        )
        scratch = BookingScratch(
            np.empty(groups, np.bool_), np.empty(groups), np.empty((2, len(view.total)))
        )
        _book_on_node.code(
            self._counters,
            asks_of(view, node),
            site_of(view, node),
            who,
            booking,
            view.nodes.up[: view.node_count],
            scratch,
        )

    def terms(self, view: View, row: int) -> Scores:
        """Return what `pri` is a part of, and the deficit from which a group goes first."""
        found: Scores = (("pri_score", float(view.rows.pri_score[row])),) if self.relative else ()
        bound = self._bound(view)
        if bound == np.inf or (view.queues.lone and not self.by_app):
            return found
        return (*found, ("bound", bound))

    def why_not(self, view: View, node: int, row: int) -> str:
        """Return the group that goes first as it is owed more than the bound allows, if any."""
        standing = self._standing_of(view)
        groups, d = standing.held.shape
        here, group_of = np.zeros(groups, dtype=np.bool_), standing.who.group_of
        here[group_of[view.rows.app[candidates(view, node).rows]]] = True
        deficit, share, held = np.zeros(groups), np.zeros(groups), np.empty((groups, d))
        if not standing.alone:
            _state_on_node.code(
                self._counters,
                asks_of(view, node),
                site_of(view, node),
                standing.who,
                standing.held,
                Groups(deficit, share, held, standing.bound, self.unit),
                np.empty(groups, np.bool_),
                np.empty(d),
            )
        top = neediest(deficit, share, here)
        if top < 0 or top == group_of[view.rows.app[row]] or deficit[top] < standing.bound:
            return ""
        owed = "another application" if self.by_app else f"queue {view.queues.paths[top]}"
        return f"held by fairness: {owed} is owed more than the bound"

    def queues_changed(self, view: View, now_at: Ints) -> None:
        """Keep the counters of leaf queues that stay; the others' go to all leaf queues.

        They are shared out by guarantee, as that of an application that leaves.
        """
        if self.by_app:
            return
        before, tree = self._counters, view.queues
        self._counters = np.zeros(len(tree))
        leaves: Floats = np.where(tree.is_leaf, tree.capacity, 0.0)
        for queue, deficit in enumerate(before.tolist()):
            at = int(now_at[queue])
            if at >= 0 and tree.is_leaf[at]:
                self._counters[at] += deficit
            elif deficit and leaves.any():
                self._counters += deficit * leaves / leaves.sum()

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
        # Nobody is left that is owed anything.
        self._counters[:] = 0.0

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
        self, view: View, node: int, site: Site, standing: Standing, desk: Desk, now: float
    ) -> None:
        """Write oScore of the rows that do not fit into `desk.over`."""
        fit, rows = desk.tally.item(FIT), desk.tally.item(ROWS)
        barred = view.barred(desk.rows[fit:rows])
        n, up, look = view.node_count, view.nodes.up, min(view.node_count, OVERBOOK_LOOK)
        for first in reversed(range(0, look, NODES_PER_WEIGH)):
            seats: list[tuple[int, int]] = []
            running: list[Running] = []
            most = 0
            for step in range(first, min(first + NODES_PER_WEIGH, look)):
                slot = (node + step) % n
                if up[slot]:
                    runs = view.runs(slot)
                    count = runs.count
                    seats.append((slot, count))
                    running.append(runs.running)
                    most = max(most, count)
            if not seats:
                continue
            while len(seats) < NODES_PER_WEIGH:
                seats.append(seats[0])
                running.append(running[0])
            trial = self._trial_of(most, len(up), len(desk.free))
            if len(barred):
                trial = trial._replace(barred=barred)
            _weigh.code(site, standing, desk, self._rule, tuple(running), tuple(seats), now, trial)

    def _trial_of(self, running: int, nodes: int, d: int) -> Trial:
        """Return arrays for a what-if about a node with so many containers to write on."""
        trial = self._trial
        if trial is None or trial.demand.shape[0] <= running or len(trial.roomy) < nodes:
            most = 2 * running + 1
            left, slow, remaining, before, after = (np.empty(most) for _ in range(5))
            total, over, free = (np.empty(d) for _ in range(3))
            fluid = Fluid(left, slow, np.empty(most, np.int64), total, over)
            self._trial = trial = Trial(
                fluid,
                remaining,
                np.empty((most, d)),
                before,
                after,
                free,
                np.empty(nodes, np.int64),
                np.zeros((0, 0), np.bool_),
            )
        return trial


def _placement(answer: Answer, run: int, eta: float) -> Placement:
    """Return a run of picks, with what its first one scored."""
    perf, pri, pack, overbook, work, deficit = answer.terms[run].tolist()
    scores = (
        ("perf", perf),
        ("pri", pri),
        ("pack", pack),
        ("overbook", overbook),
        ("work", work),
        ("deficit", deficit),
        ("eta", eta),
    )
    return Placement(answer.row.item(run), answer.copies.item(run), scores, overbook > 0.0)


def _answer(room: int) -> Answer:
    return Answer(
        np.empty(room, np.int64), np.empty(room, np.int64), np.empty((room, TERMS_PER_PICK))
    )


def _desk(most: int, apps: int, groups: int, d: int, extras: int, means: Floats) -> Desk:
    """Return arrays for so many rows, application slots, groups, resources and overbooked rows."""

    def ints() -> Ints:
        return np.empty(most, np.int64)

    def floats(*shape: int) -> Floats:
        return np.empty(shape)

    return Desk(
        ints(),
        ints(),
        ints(),
        floats(most),
        floats(most),
        floats(d, most),
        floats(most),
        floats(most),
        floats(most),
        np.empty((2, most), np.int64),
        floats(d),
        floats(d),
        floats(2, d),
        np.empty(extras, np.int64),
        Waiting(
            floats(extras, d),
            floats(extras),
            floats(extras),
            np.empty(extras, np.int64),
            np.empty(extras, np.int64),
        ),
        floats(2, apps),
        floats(groups),
        floats(groups),
        floats(groups, d),
        np.empty(groups, np.bool_),
        floats(d),
        floats(4),
        np.empty(COUNTS, np.int64),
        means,
    )
