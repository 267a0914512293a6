"""What a master knows of its cluster, as planners take it."""

import numpy as np

from weft.model.dag import Machines
from weft.model.errors import InputError
from weft.protocol.effects import MakePlan


def machines_of(order: MakePlan) -> Machines:
    """Return the machines of an order, each alone; raises InputError for others' speeds."""
    if len(order.speeds) not in (0, len(order.machines)):
        kinds = f"{len(order.speeds)} speeds for {len(order.machines)} kinds of machines"
        raise InputError("machines", f"got {kinds}")
    counts = [count for _, count in order.machines]
    rows = np.array([capacity for capacity, _ in order.machines], dtype=np.float64)
    capacity = np.repeat(rows.reshape(-1, len(order.types)), counts, axis=0)
    if not order.speeds:
        return Machines(capacity)
    return Machines(capacity, np.repeat(np.array(order.speeds, dtype=np.float64), counts))
