"""Overbook or wait: the what-if under the fluid model.

Source: Graphene section 5.1; docs/rules.md, rules 46 to 48.

When the demand on a divisible resource exceeds its capacity, all of its users run at
capacity / demand; a task runs at its lowest rate over resources; rates change at every completion.
"""

from typing import NamedTuple

import numpy as np

from rm.ledger.columns import Bools
from rm.match.filter_kernels import fits
from weft.compiled import kernel, making_kernel
from weft.dag import Floats


@making_kernel
def fluid_ends(remaining: Floats, demand: Floats, capacity: Floats, count: int) -> Floats:
    """Return completion times, s from now, of the first `count` tasks, shape (count,).

    `remaining` (k,) is run time left on an uncontended node, s; `demand` (k, d); `capacity` (d,).
    """
    resources = capacity.shape[0]
    left = remaining[:count].copy()
    ends = np.zeros(count)
    alive = np.ones(count, dtype=np.bool_)
    total = np.zeros(resources)
    for task in range(count):
        for r in range(resources):
            total[r] += demand[task, r]
    slow = np.ones(count)
    now = 0.0
    for _ in range(count):
        first, step = -1, np.inf
        for task in range(count):
            if alive[task]:
                slow[task] = _slowdown(demand[task], total, capacity)
                wait = left[task] * slow[task]
                if wait < step:
                    first, step = task, wait
        for task in range(count):
            if alive[task]:
                left[task] -= step / slow[task]
        now += step
        ends[first] = now
        alive[first] = False
        for r in range(resources):
            total[r] -= demand[first, r]
    return ends


@kernel
def _slowdown(demand: Floats, total: Floats, capacity: Floats) -> float:
    slow = 1.0
    for r in range(capacity.shape[0]):
        if demand[r] > 0.0 and total[r] > capacity[r] and capacity[r] > 0.0:
            slow = max(slow, total[r] / capacity[r])
    return slow


@making_kernel
def _room_for_one(remaining: Floats, demand: Floats, count: int) -> tuple[Floats, Floats]:
    """Return demands (count + 1, d) and run times left (count + 1,) with an empty last place."""
    many = np.empty((count + 1, demand.shape[1]))
    left = np.empty(count + 1)
    for task in range(count):
        left[task] = remaining[task]
        for r in range(demand.shape[1]):
            many[task, r] = demand[task, r]
    return many, left


@making_kernel
def _weigh(
    left: Floats, many: Floats, before: Floats, capacity: Floats, count: int,
    task_duration: float, task_demand: Floats, next_opportunity: float,
) -> tuple[float, float, float]:  # fmt: skip
    """Put the task in the last place and compare completion times."""
    left[count] = task_duration
    for r in range(many.shape[1]):
        many[count, r] = task_demand[r]
    after = fluid_ends(left, many, capacity, count + 1)
    cost = 0.0
    for task in range(count):
        cost += after[task] - before[task]
    benefit = next_opportunity + task_duration - after[count]
    return max(0.0, benefit - cost), benefit, cost


class Waiting(NamedTuple):
    """Candidates that fit only with overbooking."""

    demand: Floats  # (k, d)
    duration: Floats  # (k,), s
    wait: Floats  # (k,) the next opportunity without it, s from now


class Running(NamedTuple):
    """What runs on a node."""

    ends: Floats  # (c,) expected, increasing
    held: Floats  # (c, d) what each frees


class Room(NamedTuple):
    """All nodes."""

    available: Floats  # (nodes, d)
    capacity: Floats  # (nodes, d)
    up: Bools


@making_kernel
def sooner(
    waiting: Waiting, running: Running, available: Floats, capacity: Floats, now: float
) -> None:
    """Lower each candidate's `wait` to when it fits on one node (d,) without overbooking."""
    wait, ends = waiting.wait, running.ends
    free = np.empty(available.shape[0])
    for i in range(wait.shape[0]):
        free[:] = available
        at = 0.0
        for step in range(ends.shape[0] + 1):
            if at >= wait[i] or fits(waiting.demand[i], free, capacity):
                wait[i] = min(wait[i], at)
                break
            if step < ends.shape[0]:
                at = max(0.0, ends[step] - now)
                for r in range(free.shape[0]):
                    free[r] += running.held[step, r]


@making_kernel
def what_if(
    over: Floats, waiting: Waiting, running: Running, room: Room, node: int, now: float,
    relative: bool,
) -> None:  # fmt: skip
    """Write oScore on a node into the last places of `over`, one per candidate; 0: better to wait.

    Where a task fits on any node, nothing is gained. `relative`: at most 1, over its duration.
    """
    demand, duration, wait = waiting.demand, waiting.duration, waiting.wait
    ends, capacity = running.ends, room.capacity[node]
    k, count = demand.shape[0], ends.shape[0]
    many, left = _room_for_one(np.maximum(ends - now, 0.0), running.held, count)
    before = fluid_ends(left, many, capacity, count)
    first = over.shape[0] - k
    for i in range(k):
        if not np.isfinite(wait[i]) or wait[i] <= 0.0:
            continue
        score, _, _ = _weigh(
            left, many, before, capacity, count, duration[i], demand[i], wait[i]
        )  # fmt: skip
        if score <= 0.0 or _fits_somewhere(demand[i], room):
            continue
        if relative and duration[i] > 0.0:
            score = min(1.0, score / duration[i])
        over[first + i] = score


@kernel
def _fits_somewhere(demand: Floats, room: Room) -> bool:
    for node in range(room.available.shape[0]):
        if room.up[node] and fits(demand, room.available[node], room.capacity[node]):
            return True
    return False
