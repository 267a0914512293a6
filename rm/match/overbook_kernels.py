"""Overbook or wait: the what-if under the fluid model.

Source: Graphene section 5.1; docs/rules.md, rules 46 to 48.

When the demand on a divisible resource exceeds its capacity, all of its users run at
capacity / demand; a task runs at its lowest rate over resources; rates change at every completion.
"""

from typing import NamedTuple

import numpy as np

from rm.ledger.columns import Bools
from rm.ledger.running_kernels import Running
from rm.match.filter_kernels import fits
from weft.compiled import inner_kernel, kernel, making_kernel
from weft.dag import Floats, Ints


class Fluid(NamedTuple):
    """Scratch of a run of the fluid model; of up to (k,) tasks."""

    left: Floats  # (k,)
    slow: Floats  # (k,)
    alive: Ints  # (k,)
    total: Floats  # (d,)
    over: Floats  # (d,)


@making_kernel
def fluid_ends(remaining: Floats, demand: Floats, capacity: Floats, count: int) -> Floats:
    """Return completion times, s from now, of the first `count` tasks, shape (count,).

    `remaining` (k,) is run time left on an uncontended node, s; `demand` (k, d); `capacity` (d,).
    """
    ends = np.zeros(count)
    _run(remaining, demand, capacity, _fluid(count, capacity.shape[0]), ends)
    return ends


@making_kernel
def _fluid(tasks: int, resources: int) -> Fluid:
    return Fluid(
        np.empty(tasks), np.empty(tasks), np.empty(tasks, np.int64), np.empty(resources),
        np.empty(resources),
    )  # fmt: skip


@kernel
def _run(
    remaining: Floats, demand: Floats, capacity: Floats, fluid: Fluid, ends: Floats
) -> None:  # fmt: skip
    """Fill `ends` (count,) as `fluid_ends` does."""
    count, left, alive, slow = ends.shape[0], fluid.left, fluid.alive, fluid.slow
    fluid.total[:] = 0.0
    for task in range(count):
        left[task], alive[task] = remaining[task], task
        for r in range(capacity.shape[0]):
            fluid.total[r] += demand[task, r]
    now = 0.0
    for running in range(count, 0, -1):
        for r in range(capacity.shape[0]):
            fluid.over[r] = 1.0
            if fluid.total[r] > capacity[r] and capacity[r] > 0.0:
                fluid.over[r] = fluid.total[r] / capacity[r]
        first, step = -1, np.inf
        for place in range(running):
            task = alive[place]
            slow[task] = _slowdown(demand[task], fluid.over)
            wait = left[task] * slow[task]
            if wait < step:
                first, step = task, wait
        now += step
        ends[first] = now
        kept = 0
        for place in range(running):
            task = alive[place]
            left[task] -= step / slow[task]
            alive[kept] = task
            kept += 1 if task != first else 0
        for r in range(capacity.shape[0]):
            fluid.total[r] -= demand[first, r]


@inner_kernel
def _slowdown(demand: Floats, over: Floats) -> float:
    """Return how much slower a task runs, by what is demanded of each resource, over (d,)."""
    slow = 1.0
    for r in range(over.shape[0]):
        if demand[r] > 0.0:
            slow = max(slow, over[r])
    return slow


class Waiting(NamedTuple):
    """Candidates that fit only with overbooking."""

    demand: Floats  # (k, d)
    duration: Floats  # (k,), s
    wait: Floats  # (k,) the next opportunity without it, s from now


class Room(NamedTuple):
    """All nodes."""

    available: Floats  # (nodes, d)
    capacity: Floats  # (nodes, d)
    up: Bools


@kernel
def sooner(
    waiting: Waiting, running: Running, count: int, available: Floats, capacity: Floats,
    now: float, free: Floats,
) -> None:  # fmt: skip
    """Lower each candidate's `wait` to when it fits on one node (d,) without overbooking.

    `count` containers run there; `free` (d,) is scratch.
    """
    wait, ends = waiting.wait, running.ends
    for i in range(wait.shape[0]):
        for r in range(free.shape[0]):
            free[r] = available[r]
        at = 0.0
        for step in range(count + 1):
            if at >= wait[i] or fits(waiting.demand[i], free, capacity):
                wait[i] = min(wait[i], at)
                break
            if step < count:
                at = max(0.0, ends[step] - now)
                for r in range(free.shape[0]):
                    free[r] += running.held[step, r]


@making_kernel
def what_if(
    over: Floats, waiting: Waiting, running: Running, count: int, room: Room, node: int,
    now: float, relative: bool,
) -> None:  # fmt: skip
    """Write oScore on a node into `over` (k,), one per candidate; 0: better to wait.

    `count` containers run there. Where a task fits on any node, nothing is gained. `relative`: at
    most 1, over its duration.
    """
    demand, duration, wait = waiting.demand, waiting.duration, waiting.wait
    capacity, resources = room.capacity[node], demand.shape[1]
    many, left = np.empty((count + 1, resources)), np.empty(count + 1)
    for task in range(count):
        left[task] = max(running.ends[task] - now, 0.0)
        for r in range(resources):
            many[task, r] = running.held[task, r]
    fluid, before, after = _fluid(count + 1, resources), np.empty(count), np.empty(count + 1)
    _run(left, many, capacity, fluid, before)
    for i in range(demand.shape[0]):
        if not np.isfinite(wait[i]) or wait[i] <= 0.0:
            continue
        left[count] = duration[i]
        for r in range(resources):
            many[count, r] = demand[i, r]
        _run(left, many, capacity, fluid, after)
        cost = 0.0
        for task in range(count):
            cost += after[task] - before[task]
        score = max(0.0, wait[i] + duration[i] - after[count] - cost)
        if score <= 0.0 or _fits_somewhere(demand[i], room):
            continue
        over[i] = min(1.0, score / duration[i]) if relative and duration[i] > 0.0 else score


@kernel
def _fits_somewhere(demand: Floats, room: Room) -> bool:
    for node in range(room.available.shape[0]):
        if room.up[node] and fits(demand, room.available[node], room.capacity[node]):
            return True
    return False
