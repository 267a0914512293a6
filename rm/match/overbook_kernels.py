"""Overbook or wait: the what-if under the fluid model (Graphene section 5.1, ALGORITHMS section 8).

When the demand on a divisible resource exceeds its capacity, all of its users run at
capacity / demand; a task runs at its lowest rate over resources; rates change at every completion.
"""

import numpy as np

from rm.columns import Bools
from weft.compiled import kernel, making_kernel
from weft.dag import Floats, Ints


@making_kernel
def fluid_ends(remaining: Floats, demand: Floats, capacity: Floats, count: int) -> Floats:
    """Completion times, s from now, of the first `count` tasks, shape (count,).

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
    now = 0.0
    for _ in range(count):
        first, step = -1, np.inf
        for task in range(count):
            if alive[task]:
                wait = left[task] * _slowdown(demand[task], total, capacity)
                if wait < step:
                    first, step = task, wait
        for task in range(count):
            if alive[task]:
                left[task] -= step / _slowdown(demand[task], total, capacity)
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
def overbooking_score(
    remaining: Floats,
    demand: Floats,
    capacity: Floats,
    count: int,
    task_duration: float,
    task_demand: Floats,
    next_opportunity: float,
) -> tuple[float, float, float]:
    """(oScore, benefit, cost) in s, of starting a task beside the first `count` running ones.

    benefit = nextSchedOpp + duration - after(t); cost = sum over running tasks of after - before;
    oScore = max(0, benefit - cost). `next_opportunity` is in s from now: the earliest time at which
    the task fits anywhere without overbooking.
    """
    resources = capacity.shape[0]
    many = np.empty((count + 1, resources))
    left = np.empty(count + 1)
    for task in range(count):
        left[task] = remaining[task]
        for r in range(resources):
            many[task, r] = demand[task, r]
    left[count] = task_duration
    for r in range(resources):
        many[count, r] = task_demand[r]
    before = fluid_ends(left, many, capacity, count)
    after = fluid_ends(left, many, capacity, count + 1)
    cost = 0.0
    for task in range(count):
        cost += after[task] - before[task]
    benefit = next_opportunity + task_duration - after[count]
    return max(0.0, benefit - cost), benefit, cost


@making_kernel
def next_opportunity(
    available: Floats,
    ends: Floats,
    held: Floats,
    count: int,
    need: Floats,
) -> float:
    """Earliest time, s from now, at which `need` fits on one node as its tasks end.

    `ends` (k,) are expected ends in increasing order, s from now; `held` (k, d) what each frees.
    Infinite when it never fits.
    """
    resources = available.shape[0]
    free = available.copy()
    for step in range(count + 1):
        fits = True
        for r in range(resources):
            if need[r] > free[r] + 1e-9 * max(1.0, need[r]):
                fits = False
                break
        if fits:
            return 0.0 if step == 0 else max(0.0, ends[step - 1])
        if step < count:
            for r in range(resources):
                free[r] += held[step, r]
    return np.inf


@making_kernel
def what_if(
    demand: Floats,
    duration: Floats,
    left: Floats,
    held: Floats,
    capacity: Floats,
    available: Floats,
    capacities: Floats,
    up: Bools,
    look_slots: Ints,
    look_ends: Floats,
    look_held: Floats,
    look_count: Ints,
    relative: bool,
) -> Floats:
    """oScore of each candidate on one node, shape (k,); 0 where waiting is better.

    `demand` (k, d) and `duration` (k,) are the candidates; `left` (c,) and `held` (c, d) what runs
    on the node; `available` and `capacities` (nodes, d) all nodes. The next opportunity is now
    where the task fits on any node, else the earliest expected end that makes room on one of the
    nodes looked at: `look_ends` (s, m) in increasing order, s from now, with `look_held` (s, m, d).
    """
    k = demand.shape[0]
    out = np.zeros(k)
    for i in range(k):
        need = demand[i]
        if _fits_somewhere(need, available, capacities, up):
            continue
        wait = np.inf
        for s in range(look_slots.shape[0]):
            free = available[look_slots[s]]
            found = next_opportunity(free, look_ends[s], look_held[s], look_count[s], need)
            wait = min(wait, found)
        if not np.isfinite(wait) or wait <= 0.0:
            continue
        score, _, _ = overbooking_score(
            left, held, capacity, left.shape[0], duration[i], need, wait
        )
        if relative and duration[i] > 0.0:
            score = min(1.0, score / duration[i])
        out[i] = score
    return out


@kernel
def _fits_somewhere(need: Floats, available: Floats, capacities: Floats, up: Bools) -> bool:
    for node in range(available.shape[0]):
        if not up[node]:
            continue
        fits = True
        for r in range(need.shape[0]):
            if need[r] > 0.0 and need[r] > available[node, r] + 1e-7 * capacities[node, r]:
                fits = False
                break
        if fits:
            return True
    return False


@making_kernel
def overbookable_rows(
    rows: Ints, demand: Floats, available: Floats, capacity: Floats, beyond: Floats
) -> Ints:
    """Those of `rows` that do not fit, but would with `beyond` (d,) x capacity more room."""
    out = np.empty(rows.shape[0], dtype=np.int64)
    n = 0
    for i in range(rows.shape[0]):
        row = rows[i]
        fits, could = True, True
        for r in range(capacity.shape[0]):
            need, slack = demand[row, r], 1e-7 * capacity[r]
            if need > 0.0 and need > available[r] + slack:
                fits = False
                if need > available[r] + beyond[r] * capacity[r] + slack:
                    could = False
                    break
        if could and not fits:
            out[n] = row
            n += 1
    return out[:n]
