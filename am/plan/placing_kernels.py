"""Graphene's PlaceTasks and TrySubsetOrders (figure 14) over the board.

They follow docs/rules.md, rules 24 to 30. Backward placement is forward placement of the reversed
part in negated time. A stage's equal tasks are placed in runs, as many as fit at one start; a run
ends early only where a task of a better kind became ready, so the outcome is that of the paper's
loop over single tasks of a kind.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from am.plan.board_kernels import (
    BEGIN,
    END,
    FAR,
    LO,
    OVERFLOW,
    PLACED,
    Space,
    reserve,
)
from am.plan.heap_kernels import pop, push
from am.plan.link_kernels import Waits, ended
from am.plan.part_kernels import Part, Ranks
from am.plan.run_kernels import open_run, place_batch, top_segment
from weft.policies.compiled import inner_kernel

Ints = NDArray[np.int64]
Labels = NDArray[np.int8]

FORWARD, BACKWARD = 1, -1
# The entry of `Scratch.sizes` that holds the heap's size.
HEAP_SIZE = 0


class Scratch(NamedTuple):
    """What placing needs beside the board, for one part of n tasks and s stages.

    `start`, `machine` (n,) are the answer. `front` (2, s) is the latest end and minus the earliest
    start of a stage's placed tasks, `kept_front` their copies at marks. `member` (n,) has the tasks
    by label, `member_start` (5,) where each label's begin. `earliest` (s,) is the key that the
    barriers of a stage allow, FAR until it is asked for. The rest are queues by kind.
    """

    start: Ints
    machine: Ints
    front: Ints
    kept_front: Ints
    member: Ints
    member_start: Ints
    on: Labels
    waits: Waits
    ready: Ints
    earliest: Ints
    key: Ints
    queue: Ints
    head: Ints
    tail: Ints
    heap: Ints
    waiting: Labels
    sizes: Ints
    spots: Ints


@inner_kernel
def _heap_push(scratch: Scratch, kind: int) -> None:
    push(scratch.heap, 0, scratch.sizes[HEAP_SIZE], kind)
    scratch.sizes[HEAP_SIZE] += 1


@inner_kernel
def _heap_pop(scratch: Scratch) -> int:
    scratch.sizes[HEAP_SIZE] -= 1
    return pop(scratch.heap, 0, scratch.sizes[HEAP_SIZE] + 1)


@inner_kernel
def _barriers_key(part: Part, scratch: Scratch, sign: int, s: int) -> int:
    """Return the earliest key of a stage whose barriers are settled; -FAR where none is placed."""
    if scratch.earliest[s] == FAR:
        side = 0 if sign > 0 else 1
        key = -FAR
        for i in range(part.links.before_at[s], part.links.before_at[s + 1]):
            key = max(key, scratch.front[side, part.links.before[i]])
        scratch.earliest[s] = key
    return int(scratch.earliest[s])


@inner_kernel
def _ready(
    space: Space, part: Part, ranks: Ranks, scratch: Scratch, label: Labels, sign: int, v: int
) -> None:
    """Queue a task whose parents inside the subset are placed."""
    links = part.links
    key = _barriers_key(part, scratch, sign, links.stage[v])
    for i in range(links.parent_at[v], links.parent_at[v + 1]):
        u = links.parent[i]
        if scratch.on[label[u]] == 1:
            if sign > 0:
                key = max(key, scratch.start[u] + part.length[u])
            else:
                key = max(key, -scratch.start[u])
    # Without a placed parent, the task belongs at the near end of the space.
    if key == -FAR:
        key = 0
        if space.state[PLACED] > 0:
            key = space.state[BEGIN] if sign > 0 else -space.state[END]
    scratch.key[v] = key
    kind = ranks.kind[v]
    scratch.queue[ranks.slot[kind] + scratch.tail[kind]] = v
    scratch.tail[kind] += 1
    if scratch.waiting[kind] == 0:
        scratch.waiting[kind] = 1
        _heap_push(scratch, kind)


@inner_kernel
def _begin(
    space: Space,
    part: Part,
    ranks: Ranks,
    scratch: Scratch,
    label: Labels,
    which: int,
    sign: int,
) -> None:
    """Count what each task of the subset waits for inside the subset, and queue the ready ones."""
    links, waits = part.links, scratch.waits
    for kind in range(len(ranks.slot) - 1):
        scratch.head[kind] = scratch.tail[kind] = scratch.waiting[kind] = 0
    scratch.sizes[HEAP_SIZE] = 0
    scratch.on[which] = 1
    waits.left[:] = 0
    # Tasks outside the subset wait for ever.
    waits.missing[:] = FAR
    members = scratch.member[scratch.member_start[which] : scratch.member_start[which + 1]]
    for v in members:
        waits.left[links.stage[v]] += 1
    for s in range(len(waits.left)):
        scratch.earliest[s] = FAR
        waits.barriers[s] = 0
        for i in range(links.before_at[s], links.before_at[s + 1]):
            if waits.left[links.before[i]] > 0:
                waits.barriers[s] += 1
    for v in members:
        missing = 0
        for i in range(links.parent_at[v], links.parent_at[v + 1]):
            if label[links.parent[i]] == which:
                missing += 1
        waits.missing[v] = missing
        if missing == 0 and waits.barriers[links.stage[v]] == 0:
            _ready(space, part, ranks, scratch, label, sign, v)


@inner_kernel
def _settle(
    space: Space,
    part: Part,
    ranks: Ranks,
    scratch: Scratch,
    label: Labels,
    sign: int,
    kind: int,
    placed: int,
) -> None:
    """Write down a batch from a kind's queue and queue what it made ready."""
    start, lowest, each = scratch.spots[0], scratch.spots[1], scratch.spots[2]
    low = ranks.slot[kind] + scratch.head[kind]
    scratch.head[kind] += placed
    s = part.links.stage[scratch.queue[low]]
    length = part.length[scratch.queue[low]]
    scratch.front[0, s] = max(scratch.front[0, s], start + length)
    scratch.front[1, s] = max(scratch.front[1, s], -start)
    machine, beside = lowest, 0
    for at in range(low, low + placed):
        v = scratch.queue[at]
        scratch.start[v] = start
        scratch.machine[v] = machine
        beside += 1
        if beside == each:
            machine += 1
            beside = 0
        for i in range(ended(part.links, scratch.waits, v, scratch.ready, 0)):
            _ready(space, part, ranks, scratch, label, sign, scratch.ready[i])


@inner_kernel
def place(
    space: Space,
    part: Part,
    ranks: Ranks,
    scratch: Scratch,
    label: Labels,
    which: int,
    sign: int,
    limit: int,
) -> bool:
    """Place one subset: PlaceTasksF (sign 1) or, with the reversed part, PlaceTasksB (sign -1).

    False where the span passed `limit` or the pool overflowed: what is on the board is then
    unfinished.
    """
    _begin(space, part, ranks, scratch, label, which, sign)
    while scratch.sizes[HEAP_SIZE] > 0:
        kind = _heap_pop(scratch)
        opened, left, key = FAR, 0, 0
        while scratch.head[kind] < scratch.tail[kind]:
            low = ranks.slot[kind] + scratch.head[kind]
            v = scratch.queue[low]
            length, demand = part.length[v], part.demand[v]
            # The next run: consecutive tasks that may begin at the same time.
            if left == 0:
                key = scratch.key[v]
                high = ranks.slot[kind] + scratch.tail[kind]
                while low + left < high and scratch.key[scratch.queue[low + left]] == key:
                    left += 1
                if key < opened:
                    open_run(space, key, demand)
                opened = key
            # A task without duration takes no room, so any machine of sufficient size will do.
            if length == 0:
                lowest = top_segment(space)
                scratch.spots[0] = key if sign > 0 else -key
                scratch.spots[1] = space.table[LO, lowest]
                scratch.spots[2] = left
                reserve(space, lowest, scratch.spots[0], scratch.spots[0], demand, left)
                placed = left
            else:
                placed = place_batch(space, sign, key, length, demand, left, scratch.spots)
            if space.state[OVERFLOW] != 0 or space.state[END] - space.state[BEGIN] > limit:
                return False
            left -= placed
            _settle(space, part, ranks, scratch, label, sign, kind, placed)
            if scratch.sizes[HEAP_SIZE] > 0 and scratch.heap[0] < kind:
                break
        scratch.waiting[kind] = 0
        if scratch.head[kind] < scratch.tail[kind]:
            scratch.waiting[kind] = 1
            _heap_push(scratch, kind)
    return True
