"""Pdelay, COBRA's parameterised delay scheduling: which waiting tasks go into a container.

COBRA algorithm 2 with docs/rules.md, rule 56: line 6 tests the rack-local task's own
need, line 8 asks that the task fits as well. Needs and room are parts of the container's capacity.
"""

from collections.abc import Sequence
from typing import NamedTuple

TINY = 1e-9
NODE, RACK, ANY = "node", "rack", "any"


class Waiting(NamedTuple):
    """Like waiting tasks; `threshold_s` is tau * p, or a fixed wait while p is not known.

    `wait_s` is that of the longest waiting one.
    """

    key: int
    need: tuple[float, ...]
    threshold_s: float
    wait_s: float
    nodes: tuple[str, ...] = ()
    racks: tuple[str, ...] = ()
    tasks: int = 1


class Spot(NamedTuple):
    """A container with room."""

    node: str
    rack: str
    free: tuple[float, ...]


def fits(need: Sequence[float], free: Sequence[float]) -> bool:
    """Return whether a need fits in what is free."""
    for n, f in zip(need, free, strict=True):  # noqa: SIM110  # a generator costs twice as much
        if n > f + TINY:
            return False
    return True


def assign(
    spot: Spot, tasks: Sequence[Waiting], left: dict[int, int], delta: float, most: int = 0
) -> tuple[list[tuple[int, str]], tuple[float, ...]]:
    """Return tasks for a container in the order of choice, as (key, level), and what stays free.

    Tasks without a preference are local everywhere. Within a branch the longest waiting task is
    taken, ties in the given order; after every choice the branches begin anew. `left` counts the
    tasks of each key, and is counted down; at most `most` are chosen, 0: any number.
    """
    free = spot.free
    chosen: list[tuple[int, str]] = []
    while max(free, default=0.0) > TINY:
        found = _next(spot, free, [t for t in tasks if left[t.key] > 0], delta)
        if found is None:
            break
        task, level = found
        chosen.append((task.key, level))
        left[task.key] -= 1
        free = tuple([f - n for f, n in zip(free, task.need, strict=True)])
        if len(chosen) == most:
            break
    return chosen, tuple([max(f, 0.0) for f in free])


def _next(
    spot: Spot, free: tuple[float, ...], tasks: Sequence[Waiting], delta: float
) -> tuple[Waiting, str] | None:
    room = [task for task in tasks if fits(task.need, free)]
    local = [t for t in room if spot.node in t.nodes or not (t.nodes or t.racks)]
    if local:
        return _longest(local), NODE
    near = [t for t in room if spot.rack in t.racks and t.wait_s >= t.threshold_s - TINY]
    if near:
        return _longest(near), RACK
    if all(f >= 1.0 - delta - TINY for f in free):
        patient = [t for t in room if t.wait_s >= 2 * t.threshold_s - TINY]
        if patient:
            return _longest(patient), ANY
    return None


def _longest(tasks: Sequence[Waiting]) -> Waiting:
    return max(tasks, key=lambda task: task.wait_s)


def next_threshold_s(tasks: Sequence[Waiting]) -> float | None:
    """Return how long until a waiting task may go further away; None when none will."""
    left = [
        bound - task.wait_s
        for task in tasks
        if task.nodes or task.racks
        for bound in (task.threshold_s, 2 * task.threshold_s)
        if bound - task.wait_s > TINY
    ]
    return min(left, default=None)


def empty_after_packing(
    free: Sequence[tuple[float, ...]], idle: Sequence[bool], tasks: Sequence[Waiting]
) -> list[int]:
    """Return idle containers that stay empty when all waiting tasks are packed first-fit.

    Busy containers are filled first, so that as many as possible stay empty (surplus release).
    """
    order = sorted(range(len(free)), key=lambda at: idle[at])
    room = [list(vector) for vector in free]
    touched = [False] * len(free)
    for task in tasks:
        for _ in range(task.tasks):
            for at in order:
                if fits(task.need, room[at]):
                    room[at] = [f - n for f, n in zip(room[at], task.need, strict=True)]
                    touched[at] = True
                    break
            else:
                # The others of its kind do not fit either.
                break
    return [at for at in order if idle[at] and not touched[at]]
