"""StripPart: levels cut out of the critical path by halving, each packed alone.

Augustine, Banerjee and Irani's divide and conquer for strips with precedence (Graphene section 8.3
cites it for the best known ratio, O(log n)): the tasks that cross half the height of the critical
path are independent, so they form a level between those that end below and those that start above.
"""

import numpy as np

from am.plan.bounds.cuts import split
from am.plan.list_schedule import by_key, in_order
from am.plan.paths import dependencies_of, heads
from am.plan.registry import PlanRequest
from weft.model.dag import Dag, Ints, Machines
from weft.model.plan import Plan, plan_of_starts


def plan(request: PlanRequest) -> Plan:
    """Pack level after level, longest tasks first; levels do not overlap."""
    dag, machines = request.dag, request.machines
    machines.check_fits(dag)
    machine = np.zeros(dag.tasks, dtype=np.int64)
    start_s = np.zeros(dag.tasks)
    now, levels = 0.0, 0
    for level, part in _levels(dag):
        where, start = _packed(part, machines)
        machine[level], start_s[level] = where, now + start
        now = float((start_s[level] + dag.duration_s[level]).max(initial=now))
        levels += 1
    return plan_of_starts("strip_part", dag, machine, start_s, explain={"levels": levels})


def _packed(part: Dag, machines: Machines) -> tuple[Ints, np.ndarray]:
    order = by_key(part, machines, -part.duration_s)
    return in_order(part, machines, order)


def _levels(dag: Dag) -> list[tuple[Ints, Dag]]:
    """Return the levels in order, each with its tasks' DAG (edges only where all take no time)."""
    levels: list[tuple[Ints, Dag]] = []
    stack = [(np.arange(dag.tasks), dag, False)]
    while stack:
        tasks, part, done = stack.pop()
        head = heads(dependencies_of(part), part.duration_s)
        end = head + part.duration_s
        height = float(end.max(initial=0.0))
        if done or height == 0:
            if len(tasks):
                levels.append((tasks, part))
            continue
        below = np.flatnonzero(end <= height / 2)
        above = np.flatnonzero(head >= height / 2)
        above = above[~np.isin(above, below)]
        cross = np.setdiff1d(np.arange(len(tasks)), np.concatenate([below, above]))
        pieces = split(part, [below, cross, above])
        for numbers, piece, last in reversed(
            list(zip([below, cross, above], pieces, [False, True, False], strict=True))
        ):
            stack.append((tasks[numbers], piece, last))
    return levels
