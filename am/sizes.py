"""Sums and sizes of machines: C, the capacity of a job's containers, how many fit."""

import math
from collections.abc import Callable, Mapping, Sequence

from am.task_groups import TaskGroup
from weft.model.errors import InputError
from weft.model.job import Job
from weft.model.resources import TOLERANCE, ResourceTypes, Vector, read_amount

# A container's size, as an asker's option gives it.
Wanted = Mapping[str, float] | float | str
# Each kind of machine has its (capacity, count).
Machines = Sequence[tuple[Vector, int]]
# one container size for a job -> the part of its tasks that need at most that; 0: each its own
UNIFORM: Mapping[str, float] = {"task": 0.0, "p75": 0.75, "p90": 0.9, "largest": 1.0}


def totals(machines: Machines, types: int) -> Vector:
    """Return C, the capacity of all machines together; zeros where all nodes are lost."""
    return tuple(
        float(sum(capacity[r] * count for capacity, count in machines)) for r in range(types)
    )


def count_of(machines: Machines) -> int:
    """Return how many machines there are."""
    return sum(count for _, count in machines)


def size_containers(
    groups: Sequence[TaskGroup],
    option: Wanted,
    sees: Sequence[str],
    job: Job,
    types: ResourceTypes,
    open_to: Callable[[str], Machines],
) -> None:
    """Set what a container of each group is to hold, as an asker's options `container`, `sees` say.

    `open_to` says which machines a label lets be used. Where none of them could hold a container of
    that size, each task's own size decides. A gang that was accepted fits by what its tasks need;
    larger containers might not.
    """
    if option != "task":
        sizes: dict[str, Vector] = {}
        for group in groups:
            machines = open_to(group.label)
            if group.label not in sizes:
                sizes[group.label] = container_size(option, job, types, machines)
            grant = at_least(sizes[group.label], group.demand)
            lost = held_by_some(group.demand, machines) and not held_by_some(grant, machines)
            if not group.gang and not lost:
                group.grant = grant
    if sees:
        for group in groups:
            group.grant = seen_of(group.grant, sees, types)


def pool_size(option: Wanted, job: Job, types: ResourceTypes, machines: Machines) -> Vector:
    """Return the size of containers that a job keeps on machines, as `container_size` says.

    Zeros, so that each task's own size decides, where no machine could hold a uniform one.
    """
    size = container_size(option, job, types, machines)
    uniform = isinstance(option, str) and option in UNIFORM
    return (0.0,) * len(types) if uniform and not held_by_some(size, machines) else size


def container_size(option: Wanted, job: Job, types: ResourceTypes, machines: Machines) -> Vector:
    """Return a container's size.

    It is uniform (`UNIFORM`), named amounts, or a part in (0, 1] of the smallest machine: of every
    resource the least that any machine has, so that one fits on each.
    """
    if isinstance(option, str) and option in UNIFORM:
        return uniform_size(option, job, types)
    if isinstance(option, Mapping):
        amounts = {n: read_amount(a, f"asker.container.{n}") for n, a in option.items()}
        return types.vector(amounts, "asker.container")
    try:
        part = float(option)
    except (TypeError, ValueError):
        part = 0.0
    if not 0.0 < part <= 1.0:
        raise InputError("asker.container", f"expected amounts or a part of 1, got {option!r}")
    return tuple(
        part * min((capacity[r] for capacity, _ in machines), default=0.0)
        for r in range(len(types))
    )


def pool_max(size: Vector, machines: Machines) -> int:
    """Return |P|: how many containers of a size the machines hold together; at least 1."""
    count = 0
    for capacity, machines_alike in machines:
        ratios = [c / s for c, s in zip(capacity, size, strict=True) if s > 0]
        count += machines_alike * math.floor(min(ratios, default=0.0) + 1e-9)
    return max(1, count)


def at_least(size: Vector, demand: Vector) -> Vector:
    """Return the elementwise larger of both."""
    return tuple(max(s, d) for s, d in zip(size, demand, strict=True))


def uniform_size(choice: str, job: Job, types: ResourceTypes) -> Vector:
    """Return one container size for all tasks of a job, absolute, shape (d,); zeros for `task`.

    Of every resource the least amount that so many of the tasks need at most (`UNIFORM`): Hive on
    Tez has one container size for all vertices of a query.
    """
    part = UNIFORM[choice]
    if part <= 0.0:
        return (0.0,) * len(types)
    counts: dict[Vector, int] = {}
    for stage in job.stages:
        if not stage.overrides:
            demand = types.vector(stage.demand)
            counts[demand] = counts.get(demand, 0) + stage.tasks
            continue
        for task in range(stage.tasks):
            demand = types.vector(stage.demand_of(task))
            counts[demand] = counts.get(demand, 0) + 1
    # The rank counts all tasks by size, from 1.
    rank = math.ceil(part * sum(counts.values()) - 1e-9)
    return tuple(
        _ranked([(demand[r], count) for demand, count in counts.items()], rank)
        for r in range(len(types))
    )


def _ranked(amounts: list[tuple[float, int]], rank: int) -> float:
    """Return the amount at a rank, from 1, among amounts with so many occurrences each."""
    passed = 0
    for amount, count in sorted(amounts):
        passed += count
        if passed >= rank:
            return amount
    return 0.0


def seen_of(size: Vector, names: Sequence[str], types: ResourceTypes) -> Vector:
    """Return a container's size as asked for by a master that sees only these resources."""
    for name in names:
        if name not in types.names:
            known = ", ".join(types.names)
            raise InputError("asker.sees", f"unknown resource {name!r}; the cluster has {known}")
    return tuple(
        amount if rigid or name in names else 0.0
        for amount, name, rigid in zip(size, types.names, types.rigid, strict=True)
    )


def held_by_some(size: Vector, machines: Machines) -> bool:
    """Return whether a machine can hold a container of this size, when empty."""
    return any(
        all(s <= c * (1 + TOLERANCE) for s, c in zip(size, capacity, strict=True))
        for capacity, count in machines
        if count
    )
