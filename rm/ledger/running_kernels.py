"""What runs on one node, sorted by expected end: compiled insertion and removal."""

from typing import NamedTuple

from weft.model.dag import Floats, Ints
from weft.policies.compiled import kernel


class Running(NamedTuple):
    """What runs on a node; the arrays may have room for more.

    `ends` (c,) are when containers are expected to end, increasing; `held` (c, d) is what each
    frees.
    """

    ends: Floats
    held: Floats


@kernel
def insert(
    first: int,
    copies: int,
    end_s: float,
    need: Floats,
    count: int,
    ids: Ints,
    ends: Floats,
    demand: Floats,
) -> None:
    """Put containers `first`, `first + 1`, ... behind all that end no later; needs the room."""
    at = count
    while at > 0 and ends[at - 1] > end_s:
        ids[at + copies - 1] = ids[at - 1]
        ends[at + copies - 1] = ends[at - 1]
        for r in range(need.shape[0]):
            demand[at + copies - 1, r] = demand[at - 1, r]
        at -= 1
    for i in range(copies):
        ids[at + i] = first + i
        ends[at + i] = end_s
        for r in range(need.shape[0]):
            demand[at + i, r] = need[r]


@kernel
def remove(container: int, count: int, ids: Ints, ends: Floats, demand: Floats) -> bool:
    """Take one container out and close the hole; False where it is not there."""
    at = 0
    while at < count and ids[at] != container:
        at += 1
    if at == count:
        return False
    for i in range(at, count - 1):
        ids[i] = ids[i + 1]
        ends[i] = ends[i + 1]
        for r in range(demand.shape[1]):
            demand[i, r] = demand[i + 1, r]
    return True
