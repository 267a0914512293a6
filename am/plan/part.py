"""One part of a DAG as kernels want it: integer times and amounts, edges by stage or by pair."""

import math
from dataclasses import dataclass

import numpy as np

from am.plan.link_kernels import topological
from am.plan.part_kernels import Part, Ranks
from am.plan.paths import dependencies_of
from weft.model.dag import Dag, Floats, Ints, Machines, holds
from weft.model.errors import InputError

# Every time of the space stays below 2 ** 60 ticks.
_SPAN_BITS = 59
# The largest machine has 2 ** 40 units of each resource.
_UNIT_BITS = 40
# Ten tasks that each need a tenth of a machine fit it in spite of rounding.
_CAPACITY_SLACK_SHARE = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """The integer scale of one DAG on its machines.

    It is made of powers of two, so halves and whole numbers are exact. A time of the space has 59
    bits, finer than the floats it comes from. `scale` has shape (d,).
    """

    tick_s: float
    scale: Floats

    @classmethod
    def of(cls, dag: Dag, machines: Machines) -> "Grid":
        """Return the finest scale on which no sum overflows."""
        total = max(float(dag.duration_s.sum()), 1e-300)
        most = machines.capacity.max(axis=0)
        bits = [_UNIT_BITS - math.ceil(math.log2(x)) if x > 0 else 0 for x in most.tolist()]
        tick_s = 2.0 ** max(math.ceil(math.log2(total)) - _SPAN_BITS, -1000)
        return cls(tick_s, np.array([2.0**b for b in bits]))

    def ticks(self, seconds: Floats) -> Ints:
        """Return durations in ticks; only 0 s becomes 0."""
        whole = np.rint(seconds / self.tick_s).astype(np.int64)
        return np.where(seconds > 0, np.maximum(whole, 1), 0)

    def seconds(self, ticks: Ints) -> Floats:
        """Return ticks in seconds."""
        return np.asarray(ticks * self.tick_s)

    def units(self, demand: Floats) -> Ints:
        """Return demands in units, shape (n, d)."""
        return np.ascontiguousarray(np.rint(demand * self.scale).astype(np.int64))

    def fitting(self, dag: Dag, machines: Machines) -> Ints:
        """Return demands in units, shape (n, d), each of which fits on some machine's `room`.

        A task may exceed its machine by the tolerance of `Machines.check_fits`; it is cut to size.
        """
        units, room = self.units(dag.demand), self.room(machines.capacity)
        if np.all(units.max(axis=0, initial=0) <= room.min(axis=0)):
            return units
        rows, first = np.unique(machines.capacity, axis=0, return_index=True)
        over = np.ones(dag.tasks, dtype=bool)
        for machine in first:
            over &= np.any(units > room[machine], axis=1)
        for task in np.flatnonzero(over):
            machine = int(np.argmax(holds(rows, dag.demand[task])))
            units[task] = np.minimum(units[task], room[first[machine]])
        return units

    def room(self, capacity: Floats) -> Ints:
        """Return capacities in units with the tolerance of docs/rules.md, rule 2, shape (m, d)."""
        return np.ascontiguousarray(
            np.floor(capacity * self.scale * (1 + _CAPACITY_SLACK_SHARE)).astype(np.int64)
        )


def part_of(dag: Dag, machines: Machines, grid: Grid) -> Part:
    """Return the part that is a whole (sub-)DAG; raises InputError where tasks wait in a circle."""
    links = dependencies_of(dag).links()
    order = np.empty(dag.tasks, np.int64)
    if topological(links, links.waits(np.ones(dag.tasks, dtype=np.bool_)), order) < dag.tasks:
        raise InputError("stages", "the tasks depend on each other in a circle")
    return Part(links, grid.ticks(dag.duration_s), grid.fitting(dag, machines), order)


def kinds_of(part: Part) -> Ints:
    """Return a number for each distinct stage, length and demand, by stage, first task; (n,)."""
    stage = part.links.stage
    table = np.column_stack([stage, part.length, part.demand])
    head = part.links.first[:-1][stage]
    if np.array_equal(table, table[head]):
        return stage
    _, leader, kind = np.unique(table, axis=0, return_index=True, return_inverse=True)
    rank = np.empty(len(leader), np.int64)
    rank[np.argsort(leader)] = np.arange(len(leader))
    return rank[np.asarray(kind).reshape(-1)]


def ranks_of(kind: Ints, first_key: Ints, dominant: Floats) -> Ranks:
    """Order by larger `first_key`, larger dominant demand, then `kinds_of`; arguments (n,)."""
    order = np.lexsort((kind, -dominant, -first_key))
    differs = (np.diff(kind[order]) != 0) | (np.diff(first_key[order]) != 0)
    slot = np.concatenate([[0], np.flatnonzero(differs) + 1, [len(order)]])
    rank = np.empty(len(order), np.int64)
    rank[order] = np.repeat(np.arange(len(slot) - 1), np.diff(slot))
    return Ranks(rank, slot.astype(np.int64))
