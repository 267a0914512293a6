"""What runs on one node, as arrays sorted by expected end: for what-if questions on overbooking."""

import numpy as np

from rm.ledger.running_kernels import Running, insert, remove
from weft.model.dag import Floats, Ints
from weft.model.ids import ContainerId
from weft.policies.compiled import steady

_insert, _remove = steady(insert), steady(remove)


class RunningByEnd:
    """Slice with `count`. An end is where the estimate put it; it may be past by now.

    Ends increase; `running` has all of the arrays as kernels take them.
    """

    __slots__ = ("count", "demand", "end_s", "ids", "running")

    def __init__(self, d: int) -> None:
        self.count = 0
        self.ids: Ints = np.zeros(8, dtype=np.int64)
        self.end_s: Floats = np.zeros(8)
        self.demand: Floats = np.zeros((8, d))
        self.running = Running(self.end_s, self.demand)

    def add(self, first: ContainerId, copies: int, end_s: float, demand: Floats) -> None:
        """Add the containers `first`, `first + 1`, ... of one demand, which began to run."""
        if self.count + copies > len(self.ids):
            room = max(2 * len(self.ids), self.count + copies)
            self.ids = np.resize(self.ids, room)
            self.end_s = np.resize(self.end_s, room)
            self.demand = np.resize(self.demand, (room, self.demand.shape[1]))
            self.running = Running(self.end_s, self.demand)
        _insert.code(
            first, copies, float(end_s), demand, self.count, self.ids, self.end_s, self.demand
        )
        self.count += copies

    def drop(self, container: ContainerId) -> None:
        """Remove a container that ended."""
        self.count -= _remove.code(container, self.count, self.ids, self.end_s, self.demand)
