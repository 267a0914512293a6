"""Compiled packing of a job's remaining DAG into one pool of resources, forward or reversed.

Carbyne's share of a job is one pool (docs/rules.md, rule 62). Tasks of a lot are alike, so a choice
is made among lots; a lot's ready tasks queue in the plan's order.

Time goes from end to end: at each moment lots are chosen as long as the head of one fits, then the
clock moves to the next end, and all that ends within rounding of it frees its room at once. A task
is queued when the last of what it waits for ended (`_ended`), so each link is looked at once, and a
choice costs as many comparisons as lots are ready, not tasks. Nothing is placed where what is
`held` later would not leave it its room to its end: that is why `used` is kept for every moment at
which something is taken.
"""

from typing import NamedTuple

import numpy as np

from am.plan.heap_kernels import pop_end, push_end
from weft.compiled import inner_kernel, making_kernel
from weft.dag import Floats, Ints

TOLERANCE = 1e-9


class Shape(NamedTuple):
    """A job's DAG: n tasks, s stages, l lots, d resources; it never changes under one plan.

    Barrier links of stage s go to `heir[heir_at[s]:heir_at[s + 1]]`, one_to_one links likewise in
    `chain`; listed pairs of task t in `pair[pair_at[t]:pair_at[t + 1]]`. `..._up` are the same
    links from child to parent. `listing` holds the tasks of each stage lot by lot in plan order.
    """

    first: Ints  # (s + 1,)
    stage: Ints  # (n,)
    kind: Ints  # (n,): the lot
    listing: Ints  # (n,)
    lot_at: Ints  # (l + 1,)
    need: Floats  # (l, d)
    rank: Floats  # (l,): the lot's place in the preferred order, larger first
    tie: Ints  # (l,): the place among equals
    depth: Ints  # (s,): the longest hop count from a source
    heir_at: Ints
    heir: Ints
    chain_at: Ints
    chain: Ints
    heir_up_at: Ints
    heir_up: Ints
    chain_up_at: Ints
    chain_up: Ints
    pair_at: Ints  # (n + 1,), or (0,) where no edge lists pairs of tasks
    pair: Ints
    pair_up_at: Ints
    pair_up: Ints


class Run(NamedTuple):
    """One packing under way; the answer is `start` (nan: not placed)."""

    duration: Floats  # (n,)
    missing: Ints  # (n,): linked tasks that have not ended
    stage_missing: Ints  # (s,)
    stage_left: Ints  # (s,)
    queue: Ints  # (n,)
    head: Ints  # (l,)
    tail: Ints  # (l,)
    live: Ints  # (l,): lots with something ready
    ends: Floats  # (n,): a heap with `tasks`
    tasks: Ints  # (n,)
    start: Floats  # (n,)


class Held(NamedTuple):
    """What is taken for good, in ascending order of time."""

    at: Floats  # (times,) from when on
    amount: Floats  # (times, d)


class Pool(NamedTuple):
    """The share of the cluster that the job is packed into."""

    capacity: Floats  # (d,)
    free: Floats  # (d,) now
    tiny: Floats  # (d,) what counts as nothing
    held_at: Floats  # (times,)
    used: Floats  # (times, d) at each of them: held, and by placed tasks


@inner_kernel
def _open(shape: Shape, run: Run, stage: int, reverse: bool, live: int) -> int:
    """Queue the tasks of a stage that wait for nothing else."""
    low, high = shape.first[stage], shape.first[stage + 1]
    for step in range(high - low):
        task = shape.listing[high - 1 - step] if reverse else shape.listing[low + step]
        if run.missing[task] == 0:
            live = _queue(shape, run, task, live)
    return live


@inner_kernel
def _queue(shape: Shape, run: Run, task: int, live: int) -> int:
    lot = shape.kind[task]
    run.missing[task] = -1  # queued once
    run.queue[shape.lot_at[lot] + run.tail[lot]] = task
    run.tail[lot] += 1
    if run.tail[lot] - run.head[lot] == 1:
        run.live[live] = lot
        live += 1
    return live


@inner_kernel
def linked(shape: Shape, task: int, stage: int, other: int, reverse: bool) -> tuple[int, int]:
    """The tasks of stage `other` that a one_to_one link ties to a task: first and end."""
    own = shape.first[stage + 1] - shape.first[stage]
    theirs = shape.first[other + 1] - shape.first[other]
    index, base = task - shape.first[stage], shape.first[other]
    # a block is [i * to // from, (i + 1) * to // from); the finer side of an edge has one partner
    if reverse:
        if theirs >= own:
            return base + index * theirs // own, base + (index + 1) * theirs // own
        return base + index * theirs // own, base + index * theirs // own + 1
    if own >= theirs:
        heir = ((index + 1) * theirs - 1) // own
        return base + heir, base + heir + 1
    return base - ((-index * theirs) // own), base - ((-(index + 1) * theirs) // own)


@inner_kernel
def _ended(shape: Shape, run: Run, task: int, reverse: bool, live: int) -> int:
    """Tell everything that waits for a task that it ended."""
    stage = shape.stage[task]
    if reverse:
        chain_at, chain, heir_at, heir = (
            shape.chain_up_at, shape.chain_up, shape.heir_up_at, shape.heir_up,
        )  # fmt: skip
    else:
        chain_at, chain, heir_at, heir = shape.chain_at, shape.chain, shape.heir_at, shape.heir
    for at in range(chain_at[stage], chain_at[stage + 1]):
        other = chain[at]
        low, high = linked(shape, task, stage, other, reverse)
        for next_task in range(low, high):
            if run.missing[next_task] > 0:
                run.missing[next_task] -= 1
                if run.missing[next_task] == 0 and run.stage_missing[other] == 0:
                    live = _queue(shape, run, next_task, live)
    pair_at, pair = (shape.pair_up_at, shape.pair_up) if reverse else (shape.pair_at, shape.pair)
    if len(pair_at) > 0:
        for at in range(pair_at[task], pair_at[task + 1]):
            next_task = pair[at]
            if run.missing[next_task] > 0:
                run.missing[next_task] -= 1
                if run.missing[next_task] == 0 and run.stage_missing[shape.stage[next_task]] == 0:
                    live = _queue(shape, run, next_task, live)
    run.stage_left[stage] -= 1
    if run.stage_left[stage] == 0:
        for at in range(heir_at[stage], heir_at[stage + 1]):
            other = heir[at]
            run.stage_missing[other] -= 1
            if run.stage_missing[other] == 0:
                live = _open(shape, run, other, reverse, live)
    return live


@inner_kernel
def _fits(
    need: Floats, pool: Pool, now: float, duration: float
) -> bool:  # fmt: skip
    """Whether a demand fits now and beside what is held later, as long as it lasts."""
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
) -> int:  # fmt: skip
    """The place in `live` of the best lot that fits now, -1 for none.

    Tetris: the largest dot product of demand and free, both per capacity. By rank: the earliest in
    the preferred order (the latest, reversed).
    """
    best, best_score = -1, -np.inf
    free, capacity = pool.free, pool.capacity
    for place in range(live):
        lot = run.live[place]
        need = shape.need[lot]
        task = run.queue[shape.lot_at[lot] + run.head[lot]]
        if by_rank:
            score = -shape.rank[lot] if reverse else shape.rank[lot]
        else:
            score = 0.0
            for r in range(len(need)):
                if capacity[r] > 0:
                    score += need[r] * max(free[r], 0.0) / (capacity[r] * capacity[r])
        if score < best_score - 1e-12:
            continue
        equal = best >= 0 and score <= best_score + 1e-12
        if equal and shape.tie[lot] > shape.tie[run.live[best]]:
            continue
        if _fits(need, pool, now, run.duration[task]):
            best, best_score = place, score
    return best


@making_kernel
def _summed(held: Floats) -> Floats:
    """What is held at each time by all that is held from then or from earlier on, (times, d)."""
    used = held.copy()
    for j in range(1, held.shape[0]):
        used[j] += used[j - 1]
    return used


@inner_kernel
def _take(shape: Shape, run: Run, place: int, live: int) -> tuple[int, int]:
    """Take the next ready task of a live lot; return it, and how many lots are live."""
    lot = run.live[place]
    task = run.queue[shape.lot_at[lot] + run.head[lot]]
    run.head[lot] += 1
    if run.head[lot] == run.tail[lot]:
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
    held: Held,
    by_rank: bool,
    reverse: bool,
) -> float:
    """List-schedule the tasks marked in `todo`; answers when the last one ends (inf: never).

    Forward, `running` tasks hold their demand for `run.duration` from 0. Reversed, what they hold
    is taken for good: `held`.
    """
    d = len(capacity)
    pool = Pool(capacity, capacity.copy(), capacity * TOLERANCE, held.at, _summed(held.amount))
    free, held_at, used = pool.free, pool.held_at, pool.used
    taken, size, live, left = 0, 0, 0, 0
    for task in running:
        free -= shape.need[shape.kind[task]]
        push_end(run.ends, run.tasks, size, run.duration[task], task)
        size += 1
    for task in range(len(todo)):
        if todo[task]:
            left += 1
        else:
            run.missing[task] = -1
    for stage in range(len(shape.first) - 1):
        if run.stage_missing[stage] == 0:
            live = _open(shape, run, stage, reverse, live)
    now = 0.0
    while True:
        while taken < len(held_at) and held_at[taken] <= now + TOLERANCE * (1.0 + now):
            free -= held.amount[taken]
            taken += 1
        while live > 0:
            place = _choose(shape, run, live, by_rank, pool, now, reverse)
            if place < 0:
                break
            lot = run.live[place]
            task, live = _take(shape, run, place, live)
            end = now + run.duration[task]
            run.start[task] = now
            left -= 1
            for r in range(d):
                free[r] -= shape.need[lot, r]
            for j in range(taken, len(held_at)):
                if held_at[j] < end - TOLERANCE:
                    for r in range(d):
                        used[j, r] += shape.need[lot, r]
            push_end(run.ends, run.tasks, size, end, task)
            size += 1
        if size == 0:
            break
        now = max(now, run.ends[0])
        while size > 0 and run.ends[0] <= now + TOLERANCE * (1.0 + now):
            task = run.tasks[0]
            pop_end(run.ends, run.tasks, size)
            size -= 1
            lot = shape.kind[task]
            for r in range(d):
                free[r] += shape.need[lot, r]
            live = _ended(shape, run, task, reverse, live)
    return now if left == 0 else np.inf
