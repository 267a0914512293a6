"""Compiled list scheduling: events in time, ready tasks queued by demand class.

Tasks of equal demand fit on the same machines. So one failed search settles a whole class until a
task ends, and the cost follows events and distinct demands rather than tasks squared.
"""

from typing import NamedTuple

import numpy as np

from am.plan.heap_kernels import pop, pop_pair, push, push_pair
from am.plan.link_kernels import Links, Waits, ended, sources
from weft.model.dag import Flags, Floats, Ints
from weft.policies.compiled import inner_kernel, making_kernel


class Flow(NamedTuple):
    """A DAG and its run so far; `waits`, `heap`, `heap_size` change.

    n tasks, k classes, m machines, d resources.

    `ready` (n,) has room for the tasks that one end makes ready. A task has its `duration` (n,),
    its demand class `kind` (n,) and its place in the preferred order, `rank` (n,), of which `order`
    (n,) is the inverse. `need` (k, d) is what classes demand of machines of `capacity` (m, d). Each
    class keeps its ready ranks in `heap` (n,) from `heap_at` (k + 1,) on, `heap_size` (k,) of them.
    The answer is `machine` and `start`, both (n,).
    """

    links: Links
    waits: Waits
    ready: Ints
    duration: Floats
    kind: Ints
    need: Floats
    capacity: Floats
    rank: Ints
    order: Ints
    heap_at: Ints
    heap: Ints
    heap_size: Ints
    machine: Ints
    start: Floats


class Running(NamedTuple):
    """What runs: room for n tasks on m machines.

    `free` (m, d) is what is left of each machine. `ends` and `tasks`, both (n,), are one heap.
    `stack` (n,) are tasks whose children have yet to be told; `freed` (n,) are the machines on
    which tasks ended last.
    """

    free: Floats
    ends: Floats
    tasks: Ints
    stack: Ints
    freed: Ints


class Tried(NamedTuple):
    """Where the search for a machine stands, by class (k,).

    No machine before `from_all` fits, and none before the place `from_freed` in `Running.freed`.
    `full`: nothing fitted before this event; `failed`: nothing fits now.
    """

    from_all: Ints
    from_freed: Ints
    full: Flags
    failed: Flags


@inner_kernel
def fits(need: Floats, free: Floats, capacity: Floats) -> bool:
    """Return whether a demand fits what is free, within rounding."""
    for r in range(len(need)):  # noqa: SIM110 (compiled)
        if need[r] > free[r] + 1e-9 * capacity[r]:
            return False
    return True


@inner_kernel
def _ready(flow: Flow, task: int, now: float, stack: Ints, top: int) -> int:
    """Queue a ready task; one without duration takes nothing, so it runs and ends at once."""
    if flow.duration[task] > 0:
        kind = flow.kind[task]
        push(flow.heap, flow.heap_at[kind], flow.heap_size[kind], flow.rank[task])
        flow.heap_size[kind] += 1
        return top
    need = flow.need[flow.kind[task]]
    for j in range(len(flow.capacity)):
        if fits(need, flow.capacity[j], flow.capacity[j]):
            flow.machine[task] = j
            break
    flow.start[task] = now
    stack[top] = task
    return top + 1


@inner_kernel
def _settle(flow: Flow, now: float, stack: Ints, top: int) -> None:
    """Tell the children of every ended task on the stack."""
    while top > 0:
        top -= 1
        for at in range(ended(flow.links, flow.waits, stack[top], flow.ready, 0)):
            top = _ready(flow, flow.ready[at], now, stack, top)


@inner_kernel
def _sources(flow: Flow, stack: Ints) -> None:
    """Make the tasks without parents ready at time 0."""
    top = 0
    for at in range(sources(flow.links, flow.waits, flow.ready)):
        top = _ready(flow, flow.ready[at], 0.0, stack, top)
    _settle(flow, 0.0, stack, top)


@inner_kernel
def _pass_time(flow: Flow, run: Running, size: int, tolerance: float) -> tuple[int, float, int]:
    """End all tasks that end together; returns (running, now, machines freed)."""
    free = run.free
    last = run.ends[0] + tolerance
    now = run.ends[0]
    count = 0
    while size > 0 and run.ends[0] <= last:
        now = run.ends[0]
        task = run.tasks[0]
        pop_pair(run.ends, run.tasks, size)
        size -= 1
        j = flow.machine[task]
        for r in range(free.shape[1]):
            free[j, r] = min(free[j, r] + flow.need[flow.kind[task], r], flow.capacity[j, r])
        run.freed[count] = j
        run.stack[count] = task
        count += 1
    _settle(flow, now, run.stack, count)
    return size, now, count


@inner_kernel
def _begin(flow: Flow, run: Running, task: int, j: int, now: float, size: int) -> None:
    """Start a task on a machine, beside `size` others."""
    flow.machine[task] = j
    flow.start[task] = now
    for r in range(run.free.shape[1]):
        run.free[j, r] -= flow.need[flow.kind[task], r]
    push_pair(run.ends, run.tasks, size, now + flow.duration[task], task)


@inner_kernel
def _search(flow: Flow, run: Running, tried: Tried, kind: int, count: int) -> int:
    """Return the first machine that fits a class, or -1; machines passed over are not retried."""
    need, free = flow.need[kind], run.free
    # Nothing fitted before this event, so only the machines that were freed matter.
    if tried.full[kind]:
        while tried.from_freed[kind] < count:
            j = run.freed[tried.from_freed[kind]]
            if fits(need, free[j], flow.capacity[j]):
                return int(j)
            tried.from_freed[kind] += 1
        return -1
    while tried.from_all[kind] < len(free):
        j = tried.from_all[kind]
        if fits(need, free[j], flow.capacity[j]):
            return int(j)
        tried.from_all[kind] += 1
    return -1


@inner_kernel
def _first_class(flow: Flow, failed: Flags) -> int:
    """Return the class with the first ready task in order that has not failed; -1 for none."""
    best, chosen = len(flow.order), -1
    for kind in range(len(failed)):
        if flow.heap_size[kind] > 0 and not failed[kind]:
            head = flow.heap[flow.heap_at[kind]]
            if head < best:
                best, chosen = head, kind
    return chosen


@inner_kernel
def _start_all(flow: Flow, run: Running, tried: Tried, size: int, count: int, now: float) -> int:
    """Start every ready task that fits, in order; return how many tasks run then.

    `count` machines were freed.
    """
    tried.failed[:] = False
    tried.from_all[:] = 0
    tried.from_freed[:] = 0
    while True:
        kind = _first_class(flow, tried.failed)
        if kind < 0:
            break
        j = _search(flow, run, tried, kind, count)
        if j < 0:
            tried.failed[kind] = True
            continue
        place = pop(flow.heap, flow.heap_at[kind], flow.heap_size[kind])
        flow.heap_size[kind] -= 1
        _begin(flow, run, flow.order[place], j, now, size)
        size += 1
    for kind in range(len(tried.full)):
        tried.full[kind] = flow.heap_size[kind] > 0
    return size


@making_kernel
def _running(flow: Flow) -> Running:
    """Return the state of a run in which nothing has started."""
    n = len(flow.duration)
    ends, tasks = np.empty(n), np.empty(n, np.int64)
    return Running(flow.capacity.copy(), ends, tasks, np.empty(n, np.int64), np.empty(n, np.int64))


@making_kernel
def run_in_order(flow: Flow, tolerance: float) -> float:
    """Scan the ready tasks in order at every event; start all that fit, lowest machine first."""
    run, k = _running(flow), len(flow.need)
    tried = Tried(
        np.zeros(k, np.int64), np.zeros(k, np.int64), np.zeros(k, np.bool_), np.zeros(k, np.bool_)
    )
    size, count, now = 0, 0, 0.0
    _sources(flow, run.stack)
    while True:
        run.freed[:count].sort()
        size = _start_all(flow, run, tried, size, count, now)
        if size == 0:
            return now
        size, now, count = _pass_time(flow, run, size, tolerance)


@inner_kernel
def _score(flow: Flow, kind: int, j: int, free: Floats) -> float:
    """Return Tetris's score: demand times available, over the machine's capacity; -1 for no fit."""
    if not fits(flow.need[kind], free[j], flow.capacity[j]):
        return -1.0
    total = 0.0
    for r in range(free.shape[1]):
        if flow.capacity[j, r] > 0:
            total += flow.need[kind, r] * free[j, r] / flow.capacity[j, r] ** 2
    return max(total, 0.0)


@inner_kernel
def _leaf(flow: Flow, kind: int, leaf: int, size: int, free: Floats) -> float:
    """Return the best score of a class among the `size` machines of one leaf, -1 for no fit."""
    best = -1.0
    for j in range(leaf * size, min(leaf * size + size, len(free))):
        best = max(best, _score(flow, kind, j, free))
    return best


@inner_kernel
def _build(flow: Flow, kind: int, tree: Floats, size: int, free: Floats) -> None:
    """Score a class on all machines: node i is the best of nodes 2i and 2i + 1."""
    width = tree.shape[1] // 2
    for leaf in range(width):
        tree[kind, width + leaf] = _leaf(flow, kind, leaf, size, free)
    for node in range(width - 1, 0, -1):
        tree[kind, node] = max(tree[kind, 2 * node], tree[kind, 2 * node + 1])


@inner_kernel
def _update(flow: Flow, kind: int, tree: Floats, size: int, j: int, free: Floats) -> None:
    """Score a class anew after one machine has changed."""
    width = tree.shape[1] // 2
    leaf = j // size
    node = width + leaf
    tree[kind, node] = _leaf(flow, kind, leaf, size, free)
    while node > 1:
        node //= 2
        best = max(tree[kind, 2 * node], tree[kind, 2 * node + 1])
        if tree[kind, node] == best:
            break
        tree[kind, node] = best


@inner_kernel
def _best_machine(flow: Flow, kind: int, tree: Floats, size: int, free: Floats) -> int:
    """Return the lowest machine with the best score, scores within rounding being equal."""
    width = tree.shape[1] // 2
    least = tree[kind, 1] * (1 - 1e-12)
    node = 1
    while node < width:
        node = 2 * node if tree[kind, 2 * node] >= least else 2 * node + 1
    for j in range((node - width) * size, (node - width) * size + size):
        if _score(flow, kind, j, free) >= least:
            return j
    return -1


@inner_kernel
def _best_class(flow: Flow, dominant: Floats, tree: Floats) -> int:
    """Return the class to start next: score, dominant demand, then the first task; -1 for none."""
    chosen = -1
    for kind in range(len(tree)):
        if flow.heap_size[kind] == 0 or tree[kind, 1] < 0:
            continue
        if chosen < 0:
            chosen = kind
            continue
        margin = 1e-12 * tree[chosen, 1]
        if tree[kind, 1] > tree[chosen, 1] + margin:
            chosen = kind
        elif tree[kind, 1] >= tree[chosen, 1] - margin:
            head, other = flow.heap[flow.heap_at[kind]], flow.heap[flow.heap_at[chosen]]
            if dominant[kind] > dominant[chosen] or (
                dominant[kind] == dominant[chosen] and head < other
            ):
                chosen = kind
    return chosen


@making_kernel
def run_packing(flow: Flow, dominant: Floats, tree: Floats, size: int, tolerance: float) -> float:
    """Start the best (task, machine) pair by dot product at every event until nothing fits.

    `tree` is room for each class's scores, (k, 2 * leaves), a leaf being `size` machines.
    """
    run, k = _running(flow), len(flow.need)
    free = run.free
    scores_are_current = np.zeros(k, np.bool_)
    running, count, now = 0, 0, 0.0
    _sources(flow, run.stack)
    while True:
        for kind in range(k):
            if flow.heap_size[kind] == 0:
                scores_are_current[kind] = False
            elif not scores_are_current[kind]:
                _build(flow, kind, tree, size, free)
                scores_are_current[kind] = True
            else:
                for at in range(count):
                    _update(flow, kind, tree, size, run.freed[at], free)
        while True:
            chosen = _best_class(flow, dominant, tree)
            if chosen < 0:
                break
            j = _best_machine(flow, chosen, tree, size, free)
            place = pop(flow.heap, flow.heap_at[chosen], flow.heap_size[chosen])
            flow.heap_size[chosen] -= 1
            scores_are_current[chosen] = flow.heap_size[chosen] > 0
            _begin(flow, run, flow.order[place], j, now, running)
            running += 1
            for kind in range(k):
                if scores_are_current[kind]:
                    _update(flow, kind, tree, size, j, free)
        if running == 0:
            return now
        running, now, count = _pass_time(flow, run, running, tolerance)
