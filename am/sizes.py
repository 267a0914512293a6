"""Sums and sizes of machines: C, the capacity of a job's containers, how many fit."""

import math
from collections.abc import Mapping, Sequence

from weft.errors import InputError
from weft.resources import ResourceTypes, Vector, read_amount

Machines = Sequence[tuple[Vector, int]]  # capacity and count


def totals(machines: Machines, types: int) -> Vector:
    """C: the capacity of all machines together; zeros where there is none (all nodes lost)."""
    return tuple(
        float(sum(capacity[r] * count for capacity, count in machines)) for r in range(types)
    )


def container_size(
    option: Mapping[str, float] | float, types: ResourceTypes, machines: Machines
) -> Vector:
    """A container's capacity: named amounts, or a part in (0, 1] of the smallest machine."""
    if isinstance(option, Mapping):
        amounts = {n: read_amount(a, f"asker.container.{n}") for n, a in option.items()}
        return types.vector(amounts, "asker.container")
    try:
        part = float(option)
    except (TypeError, ValueError):
        part = 0.0
    if not 0.0 < part <= 1.0:
        raise InputError("asker.container", f"expected amounts or a part of 1, got {option!r}")
    least = min((capacity for capacity, _ in machines), key=sum, default=(0.0,) * len(types))
    return tuple(part * amount for amount in least)


def pool_max(size: Vector, machines: Machines) -> int:
    """|P|: how many containers of a size the machines hold together; at least 1."""
    count = 0
    for capacity, machines_alike in machines:
        ratios = [c / s for c, s in zip(capacity, size, strict=True) if s > 0]
        count += machines_alike * math.floor(min(ratios, default=0.0) + 1e-9)
    return max(1, count)


def at_least(size: Vector, demand: Vector) -> Vector:
    """The elementwise larger of both."""
    return tuple(max(s, d) for s, d in zip(size, demand, strict=True))
