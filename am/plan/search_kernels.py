"""Graphene's TrySubsetOrders (figure 14): one set of troublesome tasks, every order without dead ends.

Nothing is cloned: the steps that orders share are done once, and undone to the last fork.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from am.plan.board_kernels import BEGIN, END, FAR, OVERFLOW, Space, clear, mark, undo
from am.plan.part_kernels import C, P, S, T
from am.plan.placing_kernels import BACKWARD, FORWARD, Scratch, place
from weft.compiled import kernel

if TYPE_CHECKING:
    from am.plan.part import Part, Ranks

Ints = NDArray[np.int64]
Labels = NDArray[np.int8]

# The ways to go on after T, in the fixed order of evaluation: (subset, direction) three times.
# "C only forward, P only backward"; S either way where the order leaves both open.
WAYS = np.array(
    [
        [S, FORWARD, C, FORWARD, P, BACKWARD],
        [S, FORWARD, P, BACKWARD, C, FORWARD],
        [S, BACKWARD, C, FORWARD, P, BACKWARD],
        [S, BACKWARD, P, BACKWARD, C, FORWARD],
        [C, FORWARD, S, BACKWARD, P, BACKWARD],
        [P, BACKWARD, S, FORWARD, C, FORWARD],
    ],
    dtype=np.int64,
)
WAY_NAMES = ("TSCP", "TSPC", "TSCP", "TSPC", "TCSP", "TPSC")
_STEPS = 3


@kernel
def _sort_members(scratch: Scratch, label: Labels) -> None:
    """List the tasks by label, ascending."""
    scratch.member_start[:] = 0
    for v in range(len(label)):
        scratch.member_start[label[v] + 1] += 1
    for which in range(4):
        scratch.member_start[which + 1] += scratch.member_start[which]
    fill = scratch.member_start[:4].copy()
    for v in range(len(label)):
        scratch.member[fill[label[v]]] = v
        fill[label[v]] += 1


@kernel
def _keep(space: Space, scratch: Scratch, level: int) -> None:
    mark(space, level)
    scratch.kept_front[level] = scratch.front


@kernel
def _back(space: Space, scratch: Scratch, level: int) -> None:
    undo(space, level)
    scratch.front[:] = scratch.kept_front[level]


@kernel
def _clean(space: Space, scratch: Scratch) -> None:
    clear(space)
    scratch.front[:] = -FAR
    scratch.on[:] = 0


@kernel
def _empty(scratch: Scratch, which: int) -> bool:
    return bool(scratch.member_start[which] == scratch.member_start[which + 1])


@kernel
def _redundant(scratch: Scratch, way: int) -> bool:
    """Whether an earlier way does the same steps because a subset is empty."""
    no_s, no_p, no_c = _empty(scratch, S), _empty(scratch, P), _empty(scratch, C)
    if way == 0:
        return False
    if way in (1, 3):  # C and P swapped
        return no_p or no_c or (way == 3 and no_s)
    if way == 2:
        return no_s
    if way == 4:
        return no_s or no_c
    return no_s or no_p


@kernel
def _place(
    space: Space,
    part: "Part",
    back: "Part",
    ahead: "Ranks",
    behind: "Ranks",
    scratch: Scratch,
    label: Labels,
    which: int,
    sign: int,
    limit: int,
) -> bool:
    if sign > 0:
        return place(space, part, ahead, scratch, label, which, sign, limit)
    return place(space, back, behind, scratch, label, which, sign, limit)


@kernel
def _walk(
    space: Space,
    part: "Part",
    back: "Part",
    ahead: "Ranks",
    behind: "Ranks",
    scratch: Scratch,
    label: Labels,
    allowed: Labels,
    best: Ints,
    heading: int,
) -> None:
    """Try the ways on after T as a tree over what is placed; `best` is [span, T's heading, way]."""
    done = 0  # steps of the last way that stand on the board
    last = 0
    for way in range(len(WAYS)):
        if allowed[way] == 0 or _redundant(scratch, way):
            continue
        shared = 0
        while shared < done and (
            WAYS[way, 2 * shared] == WAYS[last, 2 * shared]
            and WAYS[way, 2 * shared + 1] == WAYS[last, 2 * shared + 1]
        ):
            shared += 1
        _back(space, scratch, 1 + shared)
        last, done = way, shared
        scratch.on[:] = 0
        scratch.on[T] = 1
        for step in range(shared):
            scratch.on[WAYS[way, 2 * step]] = 1
        for step in range(shared, _STEPS):
            which, sign = WAYS[way, 2 * step], WAYS[way, 2 * step + 1]
            if not _place(
                space, part, back, ahead, behind, scratch, label, which, sign, best[0] - 1
            ):
                break
            done = step + 1
            if done < _STEPS:
                _keep(space, scratch, 1 + done)
        if space.state[OVERFLOW] != 0:
            return
        span = space.state[END] - space.state[BEGIN]
        if done == _STEPS:
            if span < best[0]:
                best[0], best[1], best[2] = span, heading, way
            done = _STEPS - 1


@kernel
def try_orders(
    space: Space,
    part: "Part",
    back: "Part",
    ahead: "Ranks",
    behind: "Ranks",
    scratch: Scratch,
    label: Labels,
    headings: Labels,
    allowed: Labels,
    limit: int,
    best: Ints,
) -> None:
    """Fill `best` (3,) with [span in ticks, heading of T, way] of the most compact schedule.

    `headings` (2,) says whether T is tried forward and backward; -1 in its third entry keeps only the
    shorter of the two for T alone, as the paper prints it. Spans above `limit` are not followed; the
    span is then FAR. `space.state[OVERFLOW]` is 1 where the pool was too small to say.
    """
    best[0], best[1], best[2] = min(limit, FAR) + 1, -1, -1
    first = best[0]
    _sort_members(scratch, label)
    only = -1  # the one heading to follow, where only T's shorter placement is kept
    if headings[2] < 0 and headings[0] + headings[1] == 2:
        alone = np.empty(2, np.int64)
        for heading in range(2):
            _clean(space, scratch)
            sign = FORWARD if heading == 0 else BACKWARD
            _place(space, part, back, ahead, behind, scratch, label, T, sign, FAR)
            if space.state[OVERFLOW] != 0:
                return
            alone[heading] = space.state[END] - space.state[BEGIN]
        only = 0 if alone[0] <= alone[1] else 1
    for heading in range(2):
        if headings[heading] == 0 or (only >= 0 and heading != only):
            continue
        _clean(space, scratch)
        sign = FORWARD if heading == 0 else BACKWARD
        if _place(space, part, back, ahead, behind, scratch, label, T, sign, best[0] - 1):
            _keep(space, scratch, 1)
            _walk(
                space, part, back, ahead, behind, scratch, label, allowed, best, heading
            )
        if space.state[OVERFLOW] != 0:
            return
    if best[0] == first:
        best[0] = FAR


@kernel
def replay(
    space: Space,
    part: "Part",
    back: "Part",
    ahead: "Ranks",
    behind: "Ranks",
    scratch: Scratch,
    label: Labels,
    heading: int,
    way: int,
) -> int:
    """Build one schedule again: `scratch.start` and `machine` hold it; its span, -1 on overflow."""
    _sort_members(scratch, label)
    _clean(space, scratch)
    sign = FORWARD if heading == 0 else BACKWARD
    if not _place(space, part, back, ahead, behind, scratch, label, T, sign, FAR):
        return -1
    for step in range(_STEPS):
        which, sign = WAYS[way, 2 * step], WAYS[way, 2 * step + 1]
        if not _place(space, part, back, ahead, behind, scratch, label, which, sign, FAR):
            return -1
    return int(space.state[END] - space.state[BEGIN])
