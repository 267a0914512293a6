"""Graphene's TrySubsetOrders (figure 14): one troublesome set, every order without dead ends.

Nothing is cloned: the steps that orders share are done once, and undone to the last fork.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from am.plan.board_kernels import BEGIN, END, FAR, OVERFLOW, Space, clear, mark, undo
from am.plan.part_kernels import C, P, Part, Ranks, S, T
from am.plan.placing_kernels import BACKWARD, FORWARD, Scratch, place
from weft.policies.compiled import inner_kernel, kernel

Ints = NDArray[np.int64]
Labels = NDArray[np.int8]

STEPS = 4
_AFTER_T = (
    (S, FORWARD, C, FORWARD, P, BACKWARD),
    (S, FORWARD, P, BACKWARD, C, FORWARD),
    (S, BACKWARD, C, FORWARD, P, BACKWARD),
    (S, BACKWARD, P, BACKWARD, C, FORWARD),
    (C, FORWARD, S, BACKWARD, P, BACKWARD),
    (P, BACKWARD, S, FORWARD, C, FORWARD),
)
# Every way in the fixed order of evaluation: (subset, direction) four times. T goes either way; "C
# only forward, P only backward"; S either way where the order leaves both open.
WAYS = np.array(
    [(T, heading, *rest) for heading in (FORWARD, BACKWARD) for rest in _AFTER_T], dtype=np.int64
)
WAY_NAMES = ("TSCP", "TSPC", "TSCP", "TSPC", "TCSP", "TPSC") * 2


@inner_kernel
def _sort_members(scratch: Scratch, label: Labels) -> None:
    """List the tasks by label, ascending."""
    start = scratch.member_start
    for which in range(5):
        start[which] = 0
    for v in range(len(label)):
        start[label[v] + 1] += 1
    for which in range(4):
        start[which + 1] += start[which]
    for v in range(len(label)):
        scratch.member[start[label[v]]] = v
        start[label[v]] += 1
    # Each begin was advanced to the next one's, so move them back.
    for which in range(4, 0, -1):
        start[which] = start[which - 1]
    start[0] = 0


@inner_kernel
def _redundant(scratch: Scratch, way: int) -> bool:
    """Return whether an earlier way does the same steps because a subset is empty."""
    start = scratch.member_start
    no_t, no_s = start[T] == start[T + 1], start[S] == start[S + 1]
    no_p, no_c = start[P] == start[P + 1], start[C] == start[C + 1]
    after = way % 6
    if way >= 6 and no_t:
        return True
    # In these ways C and P are swapped.
    if after in (1, 3):
        return bool(no_p or no_c or (after == 3 and no_s))
    if after == 4:
        return bool(no_s or no_c)
    if after == 5:
        return bool(no_s or no_p)
    return bool(after == 2 and no_s)


@inner_kernel
def _shared_steps(way: int, last: int, done: int) -> int:
    """Return how many of the first `done` steps two ways have in common."""
    shared = 0
    while shared < done:
        for column in (2 * shared, 2 * shared + 1):
            if WAYS[way, column] != WAYS[last, column]:
                return shared
        shared += 1
    return shared


@inner_kernel
def _fork(space: Space, scratch: Scratch, way: int, level: int) -> None:
    """Bring the board back to where the first `level` steps of a way stood on it."""
    undo(space, level)
    for s in range(scratch.front.shape[1]):
        scratch.front[0, s] = scratch.kept_front[level, 0, s]
        scratch.front[1, s] = scratch.kept_front[level, 1, s]
    for which in range(4):
        scratch.on[which] = 0
    for step in range(level):
        scratch.on[WAYS[way, 2 * step]] = 1


@inner_kernel
def _keep(space: Space, scratch: Scratch, level: int) -> None:
    mark(space, level)
    for s in range(scratch.front.shape[1]):
        scratch.kept_front[level, 0, s] = scratch.front[0, s]
        scratch.kept_front[level, 1, s] = scratch.front[1, s]


class Views(NamedTuple):
    """A part both ways round, and who goes first in each."""

    part: Part
    back: Part
    ahead: Ranks
    behind: Ranks


@kernel
def try_orders(
    space: Space,
    views: Views,
    scratch: Scratch,
    label: Labels,
    allowed: Labels,
    steps: int,
    limit: int,
    best: Ints,
) -> None:
    """Fill `best` (2,) with [span in ticks, way] of the most compact schedule, ties to the first.

    `allowed` (12,) has the ways to try, `steps` how many steps of each (4; 1 places T alone). Where
    one way is allowed, `scratch.start` and `machine` hold its schedule afterwards. Spans above
    `limit` are not followed; without any other the span is FAR. `space.state[OVERFLOW]` is 1 where
    the pool was too small to say.
    """
    best[0], best[1] = FAR, -1
    _sort_members(scratch, label)
    clear(space)
    for s in range(scratch.front.shape[1]):
        scratch.front[0, s] = scratch.front[1, s] = -FAR
    # `level` steps of way `last` stand on the board, each with its mark.
    level, last = 0, 0
    _keep(space, scratch, level)
    for way in range(len(WAYS)):
        if allowed[way] == 0 or _redundant(scratch, way):
            continue
        level = _shared_steps(way, last, level)
        last = way
        _fork(space, scratch, way, level)
        stands = True
        for step in range(level, steps):
            which, sign = WAYS[way, 2 * step], WAYS[way, 2 * step + 1]
            most = min(limit, best[0] - 1)
            view, ranks = views.part, views.ahead
            if sign < 0:
                view, ranks = views.back, views.behind
            stands = place(space, view, ranks, scratch, label, which, sign, most)
            if not stands:
                break
            if step + 1 < steps:
                level += 1
                _keep(space, scratch, level)
        if space.state[OVERFLOW] != 0:
            return
        span = space.state[END] - space.state[BEGIN]
        if stands and span < best[0]:
            best[0], best[1] = span, way
