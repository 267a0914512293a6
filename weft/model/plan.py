"""A plan: where and when each task of one job would run in the virtual resource-time space."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from weft.model.dag import Dag, Flags, Floats, Ints, by_resource
from weft.model.json_types import Table


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """A planner's answer; arrays have shape (n,) and follow the DAG's task numbers.

    `order` is the preferred order, a permutation; `pri_score` lies in (0, 1], the first task's
    is 1 (Graphene section 5.1). `explain` says which candidate won and why, as plain data.
    """

    planner: str
    machine: Ints
    start_s: Floats
    end_s: Floats
    order: Ints
    pri_score: Floats
    candidates: int = 1
    explain: Table = field(default_factory=dict)

    @property
    def makespan_s(self) -> float:
        """The end of the last task; plans start at 0."""
        return float(self.end_s.max()) if len(self.end_s) else 0.0


def pri_scores(start_s: Floats) -> Floats:
    """Return (n - tasks that start earlier) / n (Graphene section 5.1); ties share a score."""
    n = len(start_s)
    return (n - np.searchsorted(np.sort(start_s), start_s, side="left")) / max(n, 1)


def plan_of_starts(planner: str, dag: Dag, machine: Ints, start_s: Floats, **extra: Any) -> Plan:
    """Build a Plan from placements: shift to 0, order by start (ties: docs/rules.md, rule 31)."""
    start = start_s - (start_s.min() if len(start_s) else 0.0)
    top = dag.demand.max(axis=0)
    dominant = by_resource(np.maximum, dag.demand / np.where(top > 0, top, 1.0))
    order = np.lexsort((np.arange(dag.tasks), -dag.duration_s, -dominant, start))
    return Plan(planner, machine, start, start + dag.duration_s, order, pri_scores(start), **extra)


def ranges_of(chosen: Flags) -> list[tuple[int, int]]:
    """Return the marked tasks, (n,), as (first, last) ranges: few where stages are whole."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], chosen, [False]]).astype(np.int8)))
    return [(int(first), int(end) - 1) for first, end in edges.reshape(-1, 2)]
