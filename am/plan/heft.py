"""HEFT: heterogeneous earliest finish time, for machines of unlike speeds.

Topcuoglu, Hariri and Wu, IEEE TPDS 2002: tasks by their upward rank (equation 5: the longest path
to the end, in mean costs over the machines, own cost included), each put where it finishes first,
idle time between earlier ones included (the insertion-based policy). A machine holds as many tasks
at once as fit its resources; the paper's processors hold one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from am.plan.heft_kernels import Chains, Wants, insert_all
from am.plan.options import read_value
from am.plan.paths import Dependencies, Dependency, dependencies_of, levels
from am.plan.registry import PlanRequest
from weft.model.dag import Dag, Floats, Ints, Machines
from weft.model.errors import InputError
from weft.model.json_types import Arguments, Options
from weft.model.plan import Plan, plan_of_starts

# Maps (parent stage, child stage) to the seconds that data takes between two machines.
Waits = Mapping[tuple[int, int], float]


@dataclass(frozen=True, slots=True)
class HeftOptions:
    """What may be set on HEFT.

    `transfer_s`: what a task's input takes from a parent on another machine (c_ij, alike for all).
    """

    transfer_s: float = 0.0


def parameters(given: Options) -> Arguments:
    """Return every parameter with its value; raises InputError for an unknown or wrong one."""
    return {"transfer_s": _options(given).transfer_s}


def plan(request: PlanRequest) -> Plan:
    """Place every task of a job by HEFT."""
    dag, machines = request.dag, request.machines
    wait_s = _options(request.options).transfer_s
    waits = {(edge.parent, edge.child): wait_s for edge in dag.edges} if wait_s > 0 else {}
    speeds, kind = np.unique(machines.speed, return_inverse=True)
    costs = dag.duration_s[:, None] / speeds[None, :]
    found = schedule(dag, machines, costs, kind.reshape(-1).astype(np.int64), waits)
    return _plan_of("heft", dag, *found)


def schedule(
    dag: Dag, machines: Machines, costs: Floats, kind: Ints, waits: Waits
) -> tuple[Ints, Floats, Floats]:
    """Return machine, start and end (n,) of each task, s.

    `costs` (n, kinds) says how long each task takes on a machine of each kind, s, and `kind` (m,)
    of which each machine is; `waits` what an edge between machines takes. Raises InputError where
    a task fits on no machine.
    """
    machines.check_fits(dag)
    dependencies = dependencies_of(dag)
    share = np.bincount(kind, minlength=costs.shape[1]) / max(1, machines.count)
    ranks = upward_ranks(dependencies, costs @ share, waits)
    # Rank order is not enough: ranks of parent and child are equal where nothing lasts.
    order = np.lexsort((np.arange(dag.tasks), levels(dependencies), -ranks))
    anywhere = np.full(dag.tasks, -1, dtype=np.int64)
    return _insert(dag, machines, dependencies, (costs, kind, waits), order, anywhere)


def upward_ranks(dependencies: Dependencies, mean_s: Floats, waits: Waits) -> Floats:
    """Return rank_u (equation 5), shape (n,), s, of mean costs (n,) and waits by stage pair."""
    path = np.zeros(dependencies.tasks)
    place = {stage: at for at, stage in enumerate(dependencies.order or ())}
    last_first = sorted(
        dependencies.dependencies, key=lambda dependency: -place.get(dependency.parent, 0)
    )
    # `levels` raises an error where tasks depend on each other in a circle.
    levels(dependencies)
    while True:
        before = path.copy()
        for dependency in last_first:
            _relax(
                dependencies,
                dependency,
                path,
                mean_s,
                waits.get((dependency.parent, dependency.child), 0.0),
            )
        if np.array_equal(before, path):
            return path + mean_s


def _relax(
    dependencies: Dependencies, dependency: Dependency, path: Floats, mean_s: Floats, wait_s: float
) -> None:
    """Raise the parents' paths to what one dependency demands."""
    if dependency.pairs is None:
        above, below = dependencies.span(dependency.parent), dependencies.span(dependency.child)
        longest = (path[below] + mean_s[below]).max() + wait_s
        np.maximum(path[above], longest, out=path[above])
    else:
        parents, children = dependency.pairs
        np.maximum.at(path, parents, path[children] + mean_s[children] + wait_s)


def timed(found: Plan, dag: Dag, machines: Machines) -> Plan:
    """Return a plan made for machines of equal speed as it would run on unlike ones.

    Every task runs on its machine as early as the order of the plan's starts allows.
    """
    dependencies = dependencies_of(dag)
    order = np.lexsort((np.arange(dag.tasks), levels(dependencies), found.start_s))
    speeds, kind = np.unique(machines.speed, return_inverse=True)
    costs = dag.duration_s[:, None] / speeds[None, :]
    own: tuple[Floats, Ints, Waits] = (costs, kind.reshape(-1).astype(np.int64), {})
    placed = _insert(dag, machines, dependencies, own, order, found.machine.astype(np.int64))
    made = _plan_of(found.planner, dag, *placed)
    return replace(made, candidates=found.candidates, explain=found.explain)


def _insert(
    dag: Dag,
    machines: Machines,
    dependencies: Dependencies,
    costs: tuple[Floats, Ints, Waits],
    order: Ints,
    fixed: Ints,
) -> tuple[Ints, Floats, Floats]:
    cost, kind, waits = costs
    n, m = dag.tasks, machines.count
    capacity = np.ascontiguousarray(machines.capacity, dtype=np.float64)
    # machines are of one kind where neither cost nor capacity tells them apart
    rows = np.column_stack([kind.astype(np.float64), capacity])
    _, first, same = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    pool, d = m + 2 * n, capacity.shape[1]
    chains = Chains(
        head=np.arange(m, dtype=np.int64),
        after=np.full(pool, -1, dtype=np.int64),
        time=np.zeros(pool),
        free=np.zeros((pool, d)),
        used=np.array([m], dtype=np.int64),
        kind=same.reshape(-1).astype(np.int64),
        capacity=capacity,
        tried=np.full(len(first), -1, dtype=np.int64),
    )
    chains.free[:m] = capacity
    wants = _wants(dag, dependencies, np.ascontiguousarray(cost[:, kind[first]]), waits)
    machine, start = np.full(n, -1, dtype=np.int64), np.zeros(n)
    insert_all(chains, wants, order.astype(np.int64), fixed, machine, start)
    return machine, start, start + cost[np.arange(n), kind[machine]]


def _wants(dag: Dag, dependencies: Dependencies, cost: Floats, waits: Waits) -> Wants:
    """Return the tasks and their sources: single parents over pairs, whole stages over barriers."""
    n = dag.tasks
    rows, sources, wait = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0)]
    for dependency in dependencies.dependencies:
        if dependency.pairs is None:
            rows.append(np.array([n + dependency.child]))
            sources.append(np.array([n + dependency.parent]))
        else:
            rows.append(dependency.pairs[1])
            sources.append(dependency.pairs[0])
        wait.append(np.full(len(rows[-1]), waits.get((dependency.parent, dependency.child), 0.0)))
    row = np.concatenate(rows)
    by_row = np.argsort(row, kind="stable")
    counts = np.bincount(row, minlength=n + dag.stages)
    waiting = np.concatenate(wait)[by_row]
    return Wants(
        need=np.ascontiguousarray(dag.demand, dtype=np.float64),
        cost=cost,
        stage=dag.stage_of.astype(np.int64),
        at=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        source=np.concatenate(sources)[by_row].astype(np.int64),
        wait=waiting,
        top=np.full((n + dag.stages, 2), -np.inf),
        top_on=np.full(n + dag.stages, -1, dtype=np.int64),
    )


def _plan_of(planner: str, dag: Dag, machine: Ints, start_s: Floats, end_s: Floats) -> Plan:
    began = start_s.min() if len(start_s) else 0.0
    return replace(plan_of_starts(planner, dag, machine, start_s), end_s=end_s - began)


def _options(given: Options) -> HeftOptions:
    for name in given:
        if name != "transfer_s":
            raise InputError(f"planner.{name}", "unknown parameter of heft; known: transfer_s")
    seconds = read_value("transfer_s", given.get("transfer_s", 0.0), float)
    if not 0 <= seconds < float("inf"):
        raise InputError("planner.transfer_s", f"expected a time from 0, got {seconds:g} s")
    return HeftOptions(seconds)
