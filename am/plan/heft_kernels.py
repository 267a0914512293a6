"""Compiled insertion by earliest finish: what is free on each machine over time, and the choice.

A machine's free resources are a chain of segments, each of which lasts to the next one's time and
the last for ever. A task put into it makes two segments more at most.
"""

from typing import NamedTuple

import numpy as np

from am.plan.list_kernels import fits
from weft.model.dag import Floats, Ints
from weft.policies.compiled import inner_kernel, kernel


class Chains(NamedTuple):
    """Free resources over time; `used` counts the segments taken from the pool.

    Each of the m machines is a linked list of segments: `head` (m,) is its first segment, `after`
    (pool,) the next one (-1: none), which begins at `time` (pool,) with `free` (pool, d); `used`
    has shape (1,). Machines of one `kind` (m,) have equal `capacity` (m, d) and cost; `tried`
    (kinds,) is the last task that was tried on an empty machine of that kind.
    """

    head: Ints
    after: Ints
    time: Floats
    free: Floats
    used: Ints
    kind: Ints
    capacity: Floats
    tried: Ints


class Wants(NamedTuple):
    """Tasks and what they wait for. A source is a task, or a stage as a whole (n + its number).

    `top` (sources, 2) holds the latest end of a source, and the latest on other machines than that
    one, `top_on` (sources,), is on.

    Shapes: `need` (n, d), `cost` (n, kinds) in s, `stage` (n,). The sources of each task, then of
    each stage, begin at `at` (n + stages + 1,) in `source`; `wait` is what each source takes to
    reach another machine, s.
    """

    need: Floats
    cost: Floats
    stage: Ints
    at: Ints
    source: Ints
    wait: Floats
    top: Floats
    top_on: Ints


@inner_kernel
def _ready(wants: Wants, row: int, machine: int) -> float:
    """Return when the sources of a row are there on a machine."""
    latest = 0.0
    for place in range(wants.at[row], wants.at[row + 1]):
        source = wants.source[place]
        if wants.top_on[source] == machine:
            there = max(wants.top[source, 0], wants.top[source, 1] + wants.wait[place])
        else:
            there = wants.top[source, 0] + wants.wait[place]
        latest = max(latest, there)
    return latest


@inner_kernel
def _earliest(
    chains: Chains, machine: int, need: Floats, ready_s: float, lasts_s: float, before_s: float
) -> float:
    """Return the first start from `ready_s` on at which a demand fits for `lasts_s`.

    Infinite if there is none before `before_s`.
    """
    capacity = chains.capacity[machine]
    start = ready_s
    segment = chains.head[machine]
    while segment >= 0 and start < before_s:
        after = chains.after[segment]
        until = np.inf if after < 0 else chains.time[after]
        if until <= start:
            segment = after
            continue
        if not fits(need, chains.free[segment], capacity):
            start = until
        elif until >= start + lasts_s:
            return start
        segment = after
    return np.inf


@inner_kernel
def _cut(chains: Chains, machine: int, time: float) -> int:
    """Return the segment of a machine that begins at a time, made where none does."""
    segment = chains.head[machine]
    while chains.after[segment] >= 0 and chains.time[chains.after[segment]] <= time:
        segment = chains.after[segment]
    if chains.time[segment] == time:
        return int(segment)
    new = int(chains.used[0])
    chains.used[0] = new + 1
    chains.time[new] = time
    chains.after[new] = chains.after[segment]
    chains.after[segment] = new
    for r in range(chains.free.shape[1]):
        chains.free[new, r] = chains.free[segment, r]
    return new


@inner_kernel
def _told(wants: Wants, source: int, end_s: float, machine: int) -> None:
    """Note the end of (a task of) a source."""
    top, where = wants.top[source], wants.top_on[source]
    if machine == where:
        top[0] = max(top[0], end_s)
    elif end_s > top[0]:
        top[1], top[0] = top[0], end_s
        wants.top_on[source] = machine
    else:
        top[1] = max(top[1], end_s)


@kernel
def insert_all(
    chains: Chains, wants: Wants, order: Ints, fixed: Ints, machine: Ints, start: Floats
) -> None:
    """Put every task, parents first, where it finishes first; ties: the first machine.

    `fixed` (n,) names the machine that a task must have, -1: any. The answers go to `machine` (n,)
    and `start` (n,), s; -1 where a task fits nowhere.
    """
    n = order.shape[0]
    for task in order:
        need, stage = wants.need[task], n + wants.stage[task]
        best, best_start, best_end = -1, 0.0, np.inf
        low = 0 if fixed[task] < 0 else fixed[task]
        high = chains.head.shape[0] if fixed[task] < 0 else low + 1
        for j in range(low, high):
            if not fits(need, chains.capacity[j], chains.capacity[j]):
                continue
            kind = chains.kind[j]
            untouched = chains.after[chains.head[j]] < 0
            if untouched and chains.tried[kind] == task:
                # Another empty machine of its kind was tried and is as good.
                continue
            if untouched:
                chains.tried[kind] = task
            lasts_s = wants.cost[task, kind]
            ready_s = max(_ready(wants, task, j), _ready(wants, stage, j))
            if ready_s + lasts_s >= best_end:
                continue
            begins = ready_s
            if lasts_s > 0.0:
                begins = _earliest(chains, j, need, ready_s, lasts_s, best_end - lasts_s)
            if begins + lasts_s < best_end:
                best, best_start, best_end = j, begins, begins + lasts_s
        machine[task] = best
        if best < 0:
            continue
        start[task] = best_start
        if best_end > best_start:
            segment, end = _cut(chains, best, best_start), _cut(chains, best, best_end)
            while segment != end:
                for r in range(need.shape[0]):
                    chains.free[segment, r] -= need[r]
                segment = chains.after[segment]
        _told(wants, task, best_end, best)
        _told(wants, stage, best_end, best)
