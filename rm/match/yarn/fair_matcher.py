"""YARN's Fair Scheduler as a matcher."""

from rm.ledger.view import View
from rm.match.protocol import Match
from rm.match.yarn.base import BooksMatcher, Sizes, numbers_of
from rm.match.yarn.books import Application, Queue
from rm.match.yarn.fair_state import FairRules, FairState
from rm.match.yarn.fair_walk import FairWalk
from rm.match.yarn.rules import Rules
from rm.match.yarn.state import State
from weft.model.dag import Ints
from weft.model.resources import Vector


class YarnFairMatcher(BooksMatcher):
    """Decides as FairScheduler 3.5 does; parameters have YARN's names and defaults."""

    name = "yarn_fair"

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
        self._fair: FairState
        self._updated_s = -1.0

    def _make(self, view: View, rules: Rules, queues: list[Queue], labels: dict[str, bool]) -> None:
        rules.user_max_running, rules.users_max_running = self._running
        terms = [spec.fair for _, spec in view.queues.specs]
        for queue, one in zip(queues, terms, strict=True):
            queue.most_running = one.max_running_apps
        self._fair = FairState(rules, queues, self._rules, terms, view.types.names)
        self._state, self._walk = self._fair, FairWalk(self._fair)
        self._updated_s = -1.0

    def match(self, view: View, node: int, now: float) -> Match:
        """Return what YARN would assign; shares are worked out anew at the update's interval."""
        if self._updated_s < 0 or now - self._updated_s >= self._rules.update_interval_s:
            self.update(view, now)
        return super().match(view, node, now)

    def update(self, view: View, now: float) -> None:
        """Work out all shares, as YARN's update thread does."""
        self._ready(view)
        self._updated_s = now
        self._fair.update()

    def queues_changed(self, view: View, now_at: Ints) -> None:
        """Go on with other queues, by their terms."""
        self._ready(view)
        self._fair.terms = [spec.fair for _, spec in view.queues.specs]
        super().queues_changed(view, now_at)

    def _moved(self, view: View, state: State, before: Application) -> None:
        master = self._fair.parts[before.slot].master
        super()._moved(view, state, before)
        if master is not None:
            self._fair.master_runs(self._fair.parts[before.slot], master)

    def attempt_added(self, view: View, app: int, demand: Vector | None, label: str) -> None:
        """Let an application take part; a master of before is counted no longer."""
        self._ready(view)
        share = self._fair.parts.get(app)
        if share is not None:
            self._fair.master_ends(share)
        super().attempt_added(view, app, demand, label)

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
