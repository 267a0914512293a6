"""YARN's Fair Scheduler as a matcher, with its preemption."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from rm.ledger.view import View
from rm.match.candidates import line_terms
from rm.match.protocol import APPS_TURNS, Held, Match, PreemptionTerms, Scores
from rm.match.yarn.base import BooksMatcher, Sizes, numbers_of
from rm.match.yarn.books import Application, Queue
from rm.match.yarn.fair_order import measured
from rm.match.yarn.fair_preemption import FairMonitor, StarvationRules
from rm.match.yarn.fair_state import FairRules, FairState, QueueShare, Share
from rm.match.yarn.fair_walk import FairWalk
from rm.match.yarn.preemption import Live
from rm.match.yarn.rules import Rules
from rm.match.yarn.state import State
from rm.match.yarn.walk import Walk
from weft.model.dag import Floats, Ints
from weft.model.queues import FairTerms
from weft.model.resources import Vector


class YarnFairMatcher(BooksMatcher):
    """Decides as FairScheduler 3.5 does; parameters have YARN's names and defaults."""

    name = "yarn_fair"
    turns = APPS_TURNS
    preempts = True

    def __init__(  # noqa: PLR0913
        self,
        minimum_allocation_mb: int = 1024,
        minimum_allocation_vcores: int = 1,
        maximum_allocation_mb: int = 8192,
        maximum_allocation_vcores: int = 4,
        increment_allocation_mb: int = 1024,
        increment_allocation_vcores: int = 1,
        node_locality_threshold: float = -1.0,
        rack_locality_threshold: float = -1.0,
        assign_multiple: bool = False,
        dynamic_max_assign: bool = True,
        max_assign: int = -1,
        size_based_weight: bool = False,
        reservable_nodes: float = 0.05,
        reservation_multiple: float = 2.0,
        update_interval_s: float = 0.5,
        user_max_running: int = -1,
        users_max_running: str = "",
        preemption_utilization_threshold: float = 0.8,
        preemption_check_delay_s: float = 10.0,
    ) -> None:
        sizes = Sizes(
            {"memory_mb": minimum_allocation_mb, "vcores": minimum_allocation_vcores},
            {"memory_mb": maximum_allocation_mb, "vcores": maximum_allocation_vcores},
            {"memory_mb": increment_allocation_mb, "vcores": increment_allocation_vcores},
        )
        super().__init__(sizes, memory_only=False)
        self._running = user_max_running, numbers_of(users_max_running)
        self._rules = FairRules(
            node_locality_threshold=node_locality_threshold,
            rack_locality_threshold=rack_locality_threshold,
            assign_multiple=assign_multiple,
            dynamic_max_assign=dynamic_max_assign,
            max_assign=max_assign,
            size_based_weight=size_based_weight,
            reservable_nodes=reservable_nodes,
            reservation_multiple=reservation_multiple,
            update_interval_s=update_interval_s,
        )
        self._starvation = StarvationRules(
            preemption_utilization_threshold, preemption_check_delay_s
        )
        self._fair: FairState
        self._monitor: FairMonitor
        self._updated_s = -1.0

    def _make(self, view: View, rules: Rules, queues: list[Queue], labels: dict[str, bool]) -> None:
        rules.user_max_running, rules.users_max_running = self._running
        terms = _terms_of(view)
        for queue, one in zip(queues, terms, strict=True):
            queue.most_running = one.max_running_apps
        self._fair = FairState(rules, queues, self._rules, terms, view.types.names)
        self._state, self._walk = self._fair, FairWalk(self._fair)
        self._monitor = FairMonitor(self._fair, self._starvation)
        self._updated_s = -1.0

    def match(self, view: View, node: int, now: float) -> Match:
        """Return what YARN would assign; shares are worked out anew at the update's interval."""
        self._update_if_due(view, now)
        return super().match(view, node, now)

    def _update_if_due(self, view: View, now: float) -> None:
        if self._updated_s < 0 or now - self._updated_s >= self._rules.update_interval_s:
            self.update(view, now)

    def preempt(
        self,
        view: View,
        held: Callable[[int], Iterable[Held]],
        terms: PreemptionTerms,
        now: float,
    ) -> tuple[list[int], list[int]]:
        """Look who starves, and choose for them; what was chosen goes after the grace period."""
        self._update_if_due(view, now)

        def lives() -> list[Live]:
            apps = self._state.apps
            return [self._live(view, app, one) for slot, app in apps.items() for one in held(slot)]

        told, killed = self._monitor.look(lives, terms.grace_s, now)
        return [one.number for one in told], [one.number for one in killed]

    def update(self, view: View, now: float) -> None:
        """Work out all shares, as YARN's update thread does."""
        self._ready(view)
        self._updated_s = now
        self._fair.update(now)

    def _copied(self) -> Walk:
        walk = super()._copied()
        assert isinstance(walk, FairWalk)
        walk.books.update()
        return walk

    def terms(self, view: View, row: int) -> Scores:
        """Return what the queues above a row and its application use, over their weights.

        It is memory in MiB, or the dominant share where the queue above goes by that. Who is below
        a minimum share goes first, by what is used of that.
        """
        self._ready(view)
        state = self._fair
        mine = state.parts.get(int(view.rows.app[row]))
        if mine is None:
            return ()
        found: list[tuple[str, float]] = []
        above: QueueShare | None = mine.leaf
        share: Share = mine
        while above is not None:
            policy = state.policy(above)
            if policy != "fifo":
                who = f"of {share.name}" if isinstance(share, QueueShare) else "of its application"
                found += [
                    (f"{what} {who}", value) for what, value in measured(state, policy, share)
                ]
            share, above = above, above.above
        return (*reversed(found), *line_terms(view, row))

    def queues_changed(self, view: View, now_at: Ints) -> None:
        """Go on with other queues, by their terms."""
        self._ready(view)
        self._fair.terms = _terms_of(view)
        super().queues_changed(view, now_at)

    def held(self, node: int, app: int, demand: Floats, count: int) -> None:
        """Count containers as others do, and forget one that was killed when it ends."""
        if self._stopped and self._view is not None:
            amount = self._amount(self._view.types, tuple(demand.tolist()))
            self._monitor.left(node, app, amount)
        super().held(node, app, demand, count)

    def _moved(self, view: View, state: State, before: Application) -> None:
        master = self._fair.parts[before.slot].master
        super()._moved(view, state, before)
        if master is not None:
            self._fair.master_runs(self._fair.parts[before.slot], master)

    def attempt_added(
        self, view: View, app: int, demand: Vector | None, label: str, *, runs: bool = False
    ) -> None:
        """Let an application take part; a master of before is counted no longer."""
        self._ready(view)
        share = self._fair.parts.get(app)
        if share is not None:
            self._fair.master_ends(share)
        super().attempt_added(view, app, demand, label, runs=runs)
        if share is not None and demand is not None and runs:
            self._fair.master_runs(share, share.app.master)

    def headroom(self, view: View, app: int) -> Vector | None:
        """Return what an application may still count on."""
        self._ready(view)
        state = self._fair
        share = state.parts.get(app)
        if share is None:
            return None
        calc, leaf = state.rules.calculator, share.leaf
        free = calc.sub(state.cluster, state.shares[0].used)
        for slot in share.app.banned:
            free = calc.floored(calc.sub(free, state.machines[slot].free))
        room = calc.least(free, calc.sub(state.most(leaf), leaf.used))
        counts = range(len(state.names)) if state.policy(leaf) == "drf" else (state.memory,)
        return tuple(
            float(min(most, max(leaf.fair[r] - leaf.used[r], 0)) if r in counts else most)
            for r, most in enumerate(room)
        )


def _terms_of(view: View) -> list[FairTerms]:
    """Return what each queue goes by: where it names no maximum of its own, its `max_capacity`."""
    tree, found = view.queues, list[FairTerms]()
    for slot, (_, spec) in enumerate(tree.specs):
        terms = spec.fair
        if spec.max_capacity < 1 and not (terms.max_resources or terms.max_parts):
            part = float(tree.max_capacity[slot])
            terms = replace(terms, max_parts=dict.fromkeys(view.types.names, part))
        found.append(terms)
    return found
