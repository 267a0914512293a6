"""YARN's Capacity Scheduler as a matcher, with its preemption monitor."""

from collections.abc import Callable, Iterable

from rm.ledger.view import View
from rm.match.candidates import line_terms
from rm.match.protocol import QUEUES_TURNS, Held, PreemptionTerms, Scores
from rm.match.yarn.base import BooksMatcher, Sizes, numbers_of
from rm.match.yarn.books import Queue
from rm.match.yarn.preemption import Live, Monitor
from rm.match.yarn.rules import PreemptionRules, Rules
from rm.match.yarn.state import State
from rm.match.yarn.walk import Walk


class YarnMatcher(BooksMatcher):
    """Decides as CapacityScheduler 3.5 does; parameters have YARN's names and defaults."""

    name = "yarn"
    turns = QUEUES_TURNS
    preempts = True

    def __init__(  # noqa: PLR0913
        self,
        minimum_allocation_mb: int = 1024,
        minimum_allocation_vcores: int = 1,
        maximum_allocation_mb: int = 8192,
        maximum_allocation_vcores: int = 4,
        increment_allocation_mb: int = 0,
        increment_allocation_vcores: int = 0,
        resource_calculator: str = "memory",
        node_locality_delay: int = 40,
        rack_locality_additional_delay: int = -1,
        rack_locality_full_reset: bool = True,
        maximum_offswitch_assignments: int = 1,
        multiple_assignments_enabled: bool = True,
        maximum_container_assignments: int = 100,
        reservations_continue_look_all_nodes: bool = True,
        am_non_exclusive: bool = False,
        am_default_label: str = "",
        max_application_priority: int = -1,
        shared_labels: str = "",
        user_max_running: int = -1,
        users_max_running: str = "",
        preemption_order: str = "userlimit_first",
        preemption_max_allowable_limit: float = 0.2,
        preemption_minimum_threshold: float = 0.5,
        preemption_conservative_drf: bool = False,
        preemption_intra_queue_conservative_drf: bool = True,
        preemption_based_on_reserved: bool = False,
    ) -> None:
        sizes = Sizes(
            {"memory_mb": minimum_allocation_mb, "vcores": minimum_allocation_vcores},
            {"memory_mb": maximum_allocation_mb, "vcores": maximum_allocation_vcores},
            {
                "memory_mb": increment_allocation_mb or minimum_allocation_mb,
                "vcores": increment_allocation_vcores or minimum_allocation_vcores,
            },
        )
        super().__init__(
            sizes,
            memory_only=resource_calculator == "memory",
            shared=shared_labels,
            master_label=am_default_label,
            priority_most=max_application_priority,
        )
        self._settings = {
            "node_locality_delay": node_locality_delay,
            "rack_locality_additional_delay": rack_locality_additional_delay,
            "rack_locality_full_reset": rack_locality_full_reset,
            "maximum_offswitch_assignments": maximum_offswitch_assignments,
            "multiple_assignments_enabled": multiple_assignments_enabled,
            "maximum_container_assignments": maximum_container_assignments,
            "reservations_continue_look_all_nodes": reservations_continue_look_all_nodes,
            "am_non_exclusive": am_non_exclusive,
            "user_max_running": user_max_running,
            "users_max_running": numbers_of(users_max_running),
        }
        self._preemption = PreemptionRules(
            userlimit_first=preemption_order == "userlimit_first",
            max_allowable_limit=preemption_max_allowable_limit,
            minimum_threshold=preemption_minimum_threshold,
            conservative_drf=preemption_conservative_drf,
            intra_queue_conservative_drf=preemption_intra_queue_conservative_drf,
            based_on_reserved=preemption_based_on_reserved,
        )
        self._monitor: Monitor

    def _make(self, view: View, rules: Rules, queues: list[Queue], labels: dict[str, bool]) -> None:
        for name, value in self._settings.items():
            setattr(rules, name, value)
        rules.preemption = self._preemption
        self._state = State(rules, queues, labels)
        self._walk = Walk(self._state)
        self._monitor = Monitor(self._state)

    def preempt(
        self,
        view: View,
        held: Callable[[int], Iterable[Held]],
        terms: PreemptionTerms,
        now: float,
    ) -> tuple[list[int], list[int]]:
        """Make a round of YARN's preemption monitor."""
        state, rules = self._ready(view), self._preemption
        rules.intra_queue = terms.intra_queue
        rules.natural_termination_factor = terms.natural
        rules.total_preemption_per_round = terms.round_max
        rules.max_ignored_over_capacity = terms.dead_zone
        rules.max_wait_before_kill_s = terms.grace_s

        def lives(slot: int) -> list[Live]:
            return [self._live(view, state.apps[slot], one) for one in held(slot)]

        told, killed = self._monitor.look(lives, now)
        return [one.number for one in told], [one.number for one in killed]

    def terms(self, view: View, row: int) -> Scores:
        """Return what the queues above a row use of their guarantees, and its place in line."""
        app = self._ready(view).apps.get(int(view.rows.app[row]))
        found: list[tuple[str, float]] = []
        queue: Queue | None = None if app is None else app.leaf
        while queue is not None and queue.parent is not None:
            found.append((f"used of {queue.path}", float(queue.by[0].used_share)))
            queue = queue.parent
        return (*reversed(found), *line_terms(view, row))
