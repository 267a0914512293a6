"""What an owner may set about the walk, under YARN's defaults (capacity-scheduler.xml)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from rm.match.yarn.amounts import Amount, Calculator


@dataclass(slots=True)
class PreemptionRules:
    """What the monitor's policy goes by; the names are those that YARN's properties end in."""

    intra_queue: bool = False
    natural_termination_factor: float = 0.2
    total_preemption_per_round: float = 0.1
    max_ignored_over_capacity: float = 0.1
    max_wait_before_kill_s: float = 15.0
    userlimit_first: bool = True
    max_allowable_limit: float = 0.2
    minimum_threshold: float = 0.5
    conservative_drf: bool = False
    intra_queue_conservative_drf: bool = True
    based_on_reserved: bool = False


@dataclass(slots=True)
class Rules:
    """Amounts are the calculator's; numbers have the names that YARN's properties end in."""

    calculator: Calculator
    minimum_allocation: Amount
    maximum_allocation: Amount
    increment_allocation: Amount
    node_locality_delay: int = 40
    rack_locality_additional_delay: int = -1
    rack_locality_full_reset: bool = True
    maximum_offswitch_assignments: int = 1
    multiple_assignments_enabled: bool = True
    maximum_container_assignments: int = 100
    reservations_continue_look_all_nodes: bool = True
    am_non_exclusive: bool = False
    user_max_running: int = -1
    users_max_running: Mapping[str, int] = field(default_factory=dict)
    preemption: PreemptionRules = field(default_factory=PreemptionRules)
