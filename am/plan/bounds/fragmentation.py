"""What fragmentation costs: virtual resources that stand for tasks which cannot share a machine.

At most K = sum over machines of floor(min_r capacity_r / d_r) tasks that all need at least `d` run
at once (docs/rules.md, rule 15). So such tasks use 1 / K each of one more resource, whatever
else they need, and that resource's work bounds the time as any other's does.
"""

import numpy as np

from am.plan.paths import Dependencies, demand_classes
from weft.model.dag import Dag, Floats, Ints, Machines
from weft.model.resources import TOLERANCE

_COLUMNS_MAX = 48
_VALUES_MAX = 16
_ROWS_MAX = 64


def loads(dag: Dag, machines: Machines) -> tuple[Floats, Ints]:
    """Return each task's share of each real or virtual resource, by class, and the classes.

    Shapes (k, columns) and (n,). For each column the shares of tasks that run at the same time sum
    to at most 1. The real resources come first, as many as a demand has.
    """
    need, kind = demand_classes(dag)
    total = machines.total
    floors = thresholds(dag, need)
    slots = slots_at_once(floors, machines)
    floors, slots = floors[slots < dag.tasks], slots[slots < dag.tasks]
    members = np.all(need[:, None, :] >= floors[None, :, :] * (1 - 1e-9), axis=2)
    columns = [need / np.where(total > 0, total, 1.0), members / np.maximum(slots, 1)]
    if len(np.unique(machines.capacity, axis=0)) == 1:
        columns.append(_rounded(need, machines))
    every = np.concatenate(columns, axis=1)
    busy_s = np.bincount(kind, dag.duration_s, minlength=len(need))
    weight = busy_s @ every
    # Resources alone say what fits on one machine.
    weight[: need.shape[1]] = np.inf
    heaviest = np.argsort(-weight, kind="stable")[: max(_COLUMNS_MAX, need.shape[1])]
    return np.ascontiguousarray(every[:, np.sort(heaviest)]), kind


def slots_at_once(demand: Floats, machines: Machines) -> Floats:
    """Return K, how many tasks of each demand run at once on all machines, (rows,), or inf."""
    rows, counts = np.unique(machines.capacity, axis=0, return_counts=True)
    slots = np.zeros(len(demand))
    for capacity, count in zip(rows, counts, strict=True):
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(demand > 0, capacity / demand, np.inf).min(axis=1)
        slots += count * np.floor(ratio * (1 + TOLERANCE) + 1e-9)
    return slots


def waves_s(dag: Dag, dependencies: Dependencies, machines: Machines) -> Floats:
    """Return what each stage takes at least on its own, s: waves or longest task; (stages,)."""
    first = dag.first[:-1]
    least = np.minimum.reduceat(dag.demand, first, axis=0)
    slots = np.maximum(slots_at_once(least, machines), 1)
    waves = np.ceil(np.diff(dag.first) / slots)
    shortest = np.minimum.reduceat(dag.duration_s, first)
    longest = np.maximum.reduceat(dag.duration_s, first)
    return np.asarray(np.maximum(waves * shortest, longest))


def thresholds(dag: Dag, need: Floats) -> Floats:
    """Return demands worth counting tasks above: vectors and single resources, distinct rows."""
    least = np.minimum.reduceat(dag.demand, dag.first[:-1], axis=0)
    rows = np.unique(np.concatenate([least, need]), axis=0)
    rows = rows[_spread(len(rows), _ROWS_MAX)]
    singles = []
    for resource in range(need.shape[1]):
        values = np.unique(need[:, resource])
        for value in values[_spread(len(values), _VALUES_MAX)]:
            single = np.zeros(need.shape[1])
            single[resource] = value
            singles.append(single)
    found = np.unique(np.concatenate([rows, np.array(singles)], axis=0), axis=0)
    return np.asarray(found[found.max(axis=1) > 0])


def _rounded(need: Floats, machines: Machines) -> Floats:
    """Return demands rounded up beside large ones, per resource and cut-off (Martello, Toth: L2).

    On equal machines a task above 1 - e of a machine leaves no room for one of e or more, so it
    may count as the whole machine once those below e are left out.
    """
    share = need / np.where(machines.capacity[0] > 0, machines.capacity[0], 1.0)
    columns = []
    for resource in range(share.shape[1]):
        x = share[:, resource]
        small = np.unique(x[(x > 0) & (x <= 0.5)])
        for cutoff in small[_spread(len(small), _VALUES_MAX)]:
            # The margin keeps tasks that fit together only by rounding out of the large ones.
            large = x > 1 - cutoff + 1e-6
            columns.append(np.where(large, 1.0, np.where(x >= cutoff, x, 0.0)) / machines.count)
    return np.stack(columns, axis=1) if columns else np.zeros((len(need), 0))


def _spread(count: int, most: int) -> list[int]:
    """Return at most `most` indices below `count`, evenly spaced by rank."""
    if count <= most:
        return list(range(count))
    return [i * (count - 1) // (most - 1) for i in range(most)]
