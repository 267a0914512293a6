"""What an owner may set about the walk, under YARN's defaults (capacity-scheduler.xml)."""

from dataclasses import dataclass

from rm.match.yarn.amounts import Amount, Calculator


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

    def normalised(self, amount: Amount) -> Amount:
        """Return what is granted for an ask of an amount."""
        return self.calculator.asked(
            amount, self.minimum_allocation, self.maximum_allocation, self.increment_allocation
        )
