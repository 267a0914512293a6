"""The head of a strict queue: priority, submission, preferred order, asking order."""

from typing import NamedTuple

from rm.match.filter_kernels import (
    OPEN,
    Asks,
    Place,
    Site,
    copies,
    fits,
    place_at,
    row_kept_off,
)
from rm.match.limit_kernels import Limits, admits, keep_guarantees, take
from rm.match.score_kernels import fill_part
from weft.model.dag import Floats, Ints
from weft.policies.compiled import inner_kernel, kernel

# These say what may fill a node on which the head of the line does not fit.
NOTHING_FILLS, ITS_JOB, ANYTHING = 0, 1, 2
FILLED_BY = {"none": NOTHING_FILLS, "job": ITS_JOB, "all": ANYTHING}


class Line(NamedTuple):
    """What decides who stands where.

    `total` (d,) is C, `priority` and `order` are by application slot, and `fill` is NOTHING_FILLS,
    ITS_JOB or ANYTHING.
    """

    asks: Asks
    total: Floats
    priority: Ints
    order: Ints
    limits: Limits
    fill: int


class Scratch(NamedTuple):
    """Arrays for a decision to write on.

    `left` (rows,) is what is pending and may have more room, `room` (d,) is what is available.
    `work` is (d,), and `value` (rows,) is used where the limits keep guarantees.
    """

    left: Ints
    room: Floats
    work: Floats
    value: Floats


@kernel
def pick(line: Line, site: Site, scratch: Scratch, picked: Ints, n: int) -> int:
    """Fill `picked` (room, 2) with the rows that are served, and how many containers of each.

    They are served in order until the head of the line does not fit any more. Rows that an empty
    node could not hold, or that a limit holds back, do not wait. Where something `fill`s the gap,
    what does not fit is passed over. Return how many there are: where that is all that `picked`
    holds, call again with more room and that `n`. The limits' arrays are working copies.

    A strict line grants all of a row at once where nothing but room can stop it; where a limit may
    bind, or queues below their guarantee go first, who is next may change with each container, so
    they are granted one by one.
    """
    asks, place, limits = line.asks, place_at(site), line.limits
    left, room = scratch.left, scratch.room
    if n == 0:
        for row in range(asks.size):
            left[row] = asks.pending[row]
        for r in range(room.shape[0]):
            room[r] = place.available[r]
    one_by_one = limits.binds or limits.keeps
    while n < picked.shape[0]:
        if limits.keeps:
            _compete(line, place, scratch)
            keep_guarantees(limits, asks.app, scratch.value[: asks.size])
        head = _head(line, place, scratch)
        if head < 0:
            break
        most = 1 if one_by_one else left[head]
        copied = copies(asks.needs[:, head], room, place.capacity, most)
        if copied == 0:
            if line.fill == NOTHING_FILLS:
                break
            _pass_over(line, left, head)
            continue
        left[head] -= copied
        for r in range(room.shape[0]):
            room[r] -= copied * asks.needs[r, head]
        if one_by_one:
            fill_part(asks.needs[:, head], line.total, scratch.work)
            take(limits, asks.app[head], scratch.work)
        if n > 0 and picked[n - 1, 0] == head:
            picked[n - 1, 1] += copied
            continue
        picked[n, 0], picked[n, 1] = head, copied
        n += 1
        if not one_by_one and left[head] > 0:
            # The row is still the head of the line, and no more of it fits.
            if line.fill == NOTHING_FILLS:
                break
            _pass_over(line, left, head)
    return n


@inner_kernel
def _pass_over(line: Line, left: Ints, head: int) -> None:
    """Take the head, which does not fit, out of the line; with ITS_JOB other applications, too."""
    left[head] = 0
    if line.fill == ITS_JOB:
        for row in range(line.asks.size):
            if line.asks.app[row] != line.asks.app[head]:
                left[row] = 0


@inner_kernel
def _compete(line: Line, place: Place, scratch: Scratch) -> None:
    """Fill `scratch.value` (rows,): 1 for rows that are in the line, -1 for others."""
    for row in range(line.asks.size):
        scratch.value[row] = 1.0 if _stands(line, place, row, scratch) else -1.0


@inner_kernel
def _head(line: Line, place: Place, scratch: Scratch) -> int:
    """Return the first row in the line, -1 where there is none.

    Where the limits keep guarantees, `scratch.value` is as `_compete` and they left it.
    """
    asks, keeps, value, left = line.asks, line.limits.keeps, scratch.value, scratch.left
    # Rows compare as in `line_kernels.turn`, then the smaller serial goes first, against the head's
    # own values.
    head, top, first, best, serial = -1, 0, 0, 0.0, 0
    # This is an application that stands behind the head's, as all of its other rows do.
    behind = -1
    for row in range(asks.size):
        slot = asks.app[row]
        if slot == behind or left[row] <= 0 or (keeps and value[row] < 0.0):
            continue
        priority, order, score = line.priority[slot], line.order[slot], asks.pri_score[row]
        if head >= 0:
            if priority != top:
                if priority < top:
                    behind = slot
                    continue
            elif order != first:
                if order > first:
                    behind = slot
                    continue
            elif score < best or (score == best and asks.serial[row] > serial):
                continue
        if keeps or _stands(line, place, row, scratch):
            head, top, first, best, serial = row, priority, order, score, asks.serial[row]
    return head


@inner_kernel
def _stands(line: Line, place: Place, row: int, scratch: Scratch) -> bool:
    """Return whether a row is in the line for a node: it may use it, and no limit holds it back."""
    asks, work = line.asks, scratch.work
    if scratch.left[row] <= 0 or asks.gang[row] or row_kept_off(asks, place, row) != OPEN:
        return False
    if not fits(asks.needs[:, row], place.capacity, place.capacity):
        return False
    if not line.limits.binds:
        return True
    fill_part(asks.needs[:, row], line.total, work)
    return admits(line.limits, asks.app[row], work)
