"""Compiled packing of a job's remaining DAG into one pool of resources, forward or reversed.

Carbyne's share of a job is one pool (docs/rules.md, rule 62). Tasks of a group are identical: one
chooses among groups; a group's ready tasks queue in the plan's order.

Time goes from end to end: at each moment groups are chosen while the head of one fits, then the
clock moves to the next end, and all that ends within rounding of it frees its room at once. A task
is queued when the last of what it waits for ended (`ended`), so each link is looked at once, and a
choice costs as many comparisons as groups are ready, not tasks. Nothing is placed where what is
`held` later would not leave it its room to its end: that is why `used` is kept for every moment at
which something is taken.
"""

from typing import NamedTuple

import numpy as np

from am.plan.heap_kernels import pop_pair, push_pair
from am.plan.link_kernels import Links, Waits, ended, sources
from weft.model.dag import Floats, Ints
from weft.policies.compiled import inner_kernel, making_kernel

TOLERANCE = 1e-9


class Shape(NamedTuple):
    """A job's DAG: n tasks, s stages, l groups, d resources; it never changes under one plan.

    The `listing` of the links is group by group in plan order, and from its end in `back`.

    `back` has time running backwards. Shapes: `kind` (n,) is a task's group; `group_at` (l + 1,);
    `need` (l, d); `rank` (l,) is a group's place in the preferred order, larger first, and `tie`
    (l,) its place among equals; `depth` (s,) is the longest hop count from a source.
    """

    links: Links
    back: Links
    kind: Ints
    group_at: Ints
    need: Floats
    rank: Floats
    tie: Ints
    depth: Ints


class Run(NamedTuple):
    """One packing under way; the answer is `start` (nan: not placed).

    Shapes: `duration`, `queue` and `start` (n,); `ready` (n,) has room for what one end makes
    ready; `head`, `tail` and `live` (l,), the last for groups with something ready; `ends` and
    `tasks` (n,) are one heap.
    """

    duration: Floats
    waits: Waits
    ready: Ints
    queue: Ints
    head: Ints
    tail: Ints
    live: Ints
    ends: Floats
    tasks: Ints
    start: Floats


class HeldOverTime(NamedTuple):
    """What is taken for good, in ascending order of time.

    From `at` (times,) on, s, `amount` (times, d) is taken.
    """

    at: Floats
    amount: Floats


class Pool(NamedTuple):
    """The share of the cluster that the job is packed into.

    Shapes: `capacity`, `free` (now) and `tiny`, which counts as nothing, (d,); `used` (times, d) is
    what is held, or used by placed tasks, from each of `held_at` (times,) on.
    """

    capacity: Floats
    free: Floats
    tiny: Floats
    held_at: Floats
    used: Floats


@inner_kernel
def _queue(shape: Shape, run: Run, count: int, live: int) -> int:
    """Queue the first `count` tasks of `run.ready`; return how many groups are live."""
    for at in range(count):
        task = run.ready[at]
        group = shape.kind[task]
        run.queue[shape.group_at[group] + run.tail[group]] = task
        run.tail[group] += 1
        if run.tail[group] - run.head[group] == 1:
            run.live[live] = group
            live += 1
    return live


@inner_kernel
def _fits(need: Floats, pool: Pool, now: float, duration: float) -> bool:
    """Return whether a demand fits now and beside what is held later, as long as it lasts."""
    for r in range(len(need)):
        if need[r] > pool.free[r] + pool.tiny[r]:
            return False
    for j in range(len(pool.held_at)):
        if now < pool.held_at[j] < now + duration - TOLERANCE:
            for r in range(len(need)):
                if need[r] + pool.used[j, r] > pool.capacity[r] + pool.tiny[r]:
                    return False
    return True


@inner_kernel
def _choose(
    shape: Shape, run: Run, live: int, by_rank: bool, pool: Pool, now: float, reverse: bool
) -> int:
    """Return the place in `live` of the best group that fits now, -1 for none.

    Tetris: the largest dot product of demand and free, both per capacity. By rank: the earliest in
    the preferred order (the latest, reversed).
    """
    best, best_score = -1, -np.inf
    free, capacity = pool.free, pool.capacity
    for place in range(live):
        group = run.live[place]
        need = shape.need[group]
        task = run.queue[shape.group_at[group] + run.head[group]]
        if by_rank:
            score = -shape.rank[group] if reverse else shape.rank[group]
        else:
            score = 0.0
            for r in range(len(need)):
                if capacity[r] > 0:
                    score += need[r] * max(free[r], 0.0) / (capacity[r] * capacity[r])
        if score < best_score - 1e-12:
            continue
        equal = best >= 0 and score <= best_score + 1e-12
        if equal and shape.tie[group] > shape.tie[run.live[best]]:
            continue
        if _fits(need, pool, now, run.duration[task]):
            best, best_score = place, score
    return best


@making_kernel
def _summed(held: Floats) -> Floats:
    """Return what is held at each time by all that is held from then or earlier on, (times, d)."""
    used = held.copy()
    for j in range(1, held.shape[0]):
        used[j] += used[j - 1]
    return used


@inner_kernel
def _take(shape: Shape, run: Run, place: int, live: int) -> tuple[int, int]:
    """Take the next ready task of a live group; return it, and how many groups are live."""
    group = run.live[place]
    task = run.queue[shape.group_at[group] + run.head[group]]
    run.head[group] += 1
    if run.head[group] == run.tail[group]:
        live -= 1
        run.live[place] = run.live[live]
    return task, live


@making_kernel
def pack(
    shape: Shape,
    run: Run,
    todo: Ints,
    running: Ints,
    capacity: Floats,
    held: HeldOverTime,
    by_rank: bool,
    reverse: bool,
) -> float:
    """List-schedule the tasks marked in `todo`; return when the last one ends (inf: never).

    Forward, `running` tasks hold their demand for `run.duration` from 0. Reversed, what they hold
    is taken for good: `held`.
    """
    d = len(capacity)
    pool = Pool(capacity, capacity.copy(), capacity * TOLERANCE, held.at, _summed(held.amount))
    free, held_at, used = pool.free, pool.held_at, pool.used
    taken, size, live, left = 0, 0, 0, 0
    for task in running:
        free -= shape.need[shape.kind[task]]
        push_pair(run.ends, run.tasks, size, run.duration[task], task)
        size += 1
    for task in range(len(todo)):
        if todo[task]:
            left += 1
        else:
            run.waits.missing[task] = -1
    links = shape.back if reverse else shape.links
    live = _queue(shape, run, sources(links, run.waits, run.ready), live)
    now = 0.0
    while True:
        while taken < len(held_at) and held_at[taken] <= now + TOLERANCE * (1.0 + now):
            free -= held.amount[taken]
            taken += 1
        while live > 0:
            place = _choose(shape, run, live, by_rank, pool, now, reverse)
            if place < 0:
                break
            group = run.live[place]
            task, live = _take(shape, run, place, live)
            end = now + run.duration[task]
            run.start[task] = now
            left -= 1
            for r in range(d):
                free[r] -= shape.need[group, r]
            for j in range(taken, len(held_at)):
                if held_at[j] < end - TOLERANCE:
                    for r in range(d):
                        used[j, r] += shape.need[group, r]
            push_pair(run.ends, run.tasks, size, end, task)
            size += 1
        if size == 0:
            break
        now = max(now, run.ends[0])
        while size > 0 and run.ends[0] <= now + TOLERANCE * (1.0 + now):
            task = run.tasks[0]
            pop_pair(run.ends, run.tasks, size)
            size -= 1
            group = shape.kind[task]
            for r in range(d):
                free[r] += shape.need[group, r]
            live = _queue(shape, run, ended(links, run.waits, task, run.ready, 0), live)
    return now if left == 0 else np.inf
