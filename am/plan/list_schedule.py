"""Work-conserving list scheduling, which most planners that the paper compares with share."""

import numpy as np

from am.plan.list_kernels import Flow, run_in_order, run_packing
from am.plan.paths import Dependencies, demand_classes, dependencies_of, heads, levels, tails
from weft.model.dag import Dag, Floats, Ints, Machines

# Scores that are kept at once take 8 bytes each, and as much again for the tree above them.
_LEAVES_MAX = 1 << 24

# A placement has each task's machine and its start in s, both of shape (n,).
Placement = tuple[Ints, Floats]


def in_order(
    dag: Dag, machines: Machines, order: Ints, dependencies: Dependencies | None = None
) -> Placement:
    """Schedule tasks in `order`: at every event start all that fit (docs/rules.md, rule 68).

    `order` is a permutation of the tasks; raises InputError where a task fits on no machine.
    """
    machines.check_fits(dag)
    dependencies = dependencies_of(dag) if dependencies is None else dependencies
    flow = _flow(dag, machines, dependencies, order)
    run_in_order(flow, _tolerance_s(dag, machines, dependencies))
    return flow.machine, flow.start


def by_level(dag: Dag, machines: Machines) -> Placement:
    """Schedule by hop count from the sources, then in the file's order (Graphene section 8.1)."""
    dependencies = dependencies_of(dag)
    return in_order(dag, machines, np.argsort(levels(dependencies), kind="stable"), dependencies)


def by_path(dag: Dag, machines: Machines) -> Placement:
    """Schedule by the longest path, a task's own duration included (Graphene section 2.2)."""
    dependencies = dependencies_of(dag)
    order = by_key(dag, machines, -(tails(dependencies, dag.duration_s) + dag.duration_s))
    return in_order(dag, machines, order, dependencies)


def best_packing(dag: Dag, machines: Machines) -> Placement:
    """Schedule at every event the (task, machine) pair with the largest dot product (Tetris)."""
    machines.check_fits(dag)
    dependencies = dependencies_of(dag)
    flow = _flow(dag, machines, dependencies, np.arange(dag.tasks))
    total = machines.total
    dominant = (flow.need / np.where(total > 0, total, 1.0)).max(axis=1, initial=0.0)
    size = 1
    while len(flow.need) * _leaves(machines.count, size) > _LEAVES_MAX and size < machines.count:
        size *= 2
    tree = np.full((len(flow.need), 2 * _leaves(machines.count, size)), -1.0)
    run_packing(flow, dominant, tree, size, _tolerance_s(dag, machines, dependencies))
    return flow.machine, flow.start


def by_key(dag: Dag, machines: Machines, *keys: Floats) -> Ints:
    """Return tasks by ascending keys, the first foremost; ties by dominant demand, then number."""
    total = machines.total
    share = (dag.demand / np.where(total > 0, total, 1.0)).max(axis=1, initial=0.0)
    return np.lexsort((np.arange(dag.tasks), -share, *keys[::-1]))


def _leaves(machines: int, size: int) -> int:
    return int(1 << (-(-machines // size) - 1).bit_length())


def _tolerance_s(dag: Dag, machines: Machines, dependencies: Dependencies) -> float:
    """Return how close ends are one event: 1e-9 of the horizon (docs/rules.md, rule 2)."""
    total = machines.total
    work = dag.duration_s @ dag.demand / np.where(total > 0, total, 1.0)
    path = (heads(dependencies, dag.duration_s) + dag.duration_s).max(initial=0.0)
    return 1e-9 * float(max(path, work.max(initial=0.0)))


def _flow(dag: Dag, machines: Machines, dependencies: Dependencies, order: Ints) -> Flow:
    n = dag.tasks
    need, kind = demand_classes(dag)
    links = dependencies.links()
    rank = np.empty(n, dtype=np.int64)
    rank[order] = np.arange(n)
    heap_at = np.concatenate([[0], np.cumsum(np.bincount(kind, minlength=len(need)))])
    return Flow(
        links=links,
        waits=links.waits(np.ones(n, dtype=np.bool_)),
        ready=np.empty(n, dtype=np.int64),
        duration=dag.duration_s,
        kind=kind,
        need=need,
        capacity=np.ascontiguousarray(machines.capacity, dtype=np.float64),
        rank=rank,
        order=np.ascontiguousarray(order, dtype=np.int64),
        heap_at=heap_at.astype(np.int64),
        heap=np.empty(n, dtype=np.int64),
        heap_size=np.zeros(len(need), dtype=np.int64),
        machine=np.full(n, -1, dtype=np.int64),
        start=np.zeros(n),
    )
