"""Can tasks be done within a span? Windows of starts, narrowed until one is empty or nothing moves.

Precedence, pairs that exclude each other, compulsory parts and energetic reasoning (Baptiste, Le
Pape and Nuijten 1999), then trial restrictions of single tasks (shaving) and a little search. All
in whole ticks and units; a refutation is a proof, the lack of one says nothing.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from am.plan.bounds.packing_kernels import Packing, unpackable
from weft.policies.compiled import inner_kernel, kernel

Ints = NDArray[np.int64]
Labels = NDArray[np.int8]

_NARROWING_ROUNDS_MAX = 30
SPENT, LIMIT = 0, 1


class Problem(NamedTuple):
    """n tasks in c columns: of each column at most `room` may be held at any time.

    `length` (n,), `need` (c, n), `room` (c,). `order` (n,) has the tasks, parents first; `child`
    has those of task i from `child_at[i]`. `apart` (n, n) is 1 where two tasks never run together
    and neither precedes the other. The rest is working memory: `early`, `late` (n + 4, n) are
    the earliest and latest starts by level, `work` counts steps against a limit.

    `over` (n,), `edge` (2n,) and `height` (2n,) are scratch; `work` has the entries SPENT and
    LIMIT.
    """

    length: Ints
    need: Ints
    room: Ints
    order: Ints
    child_at: Ints
    child: Ints
    apart: Labels
    early: Ints
    late: Ints
    over: Ints
    edge: Ints
    height: Ints
    work: Ints


@inner_kernel
def _paths(problem: Problem, early: Ints, late: Ints) -> bool:
    """Narrow windows so that children start after parents; return False where one is empty."""
    length, order = problem.length, problem.order
    for at in range(len(order)):
        i = order[at]
        for k in range(problem.child_at[i], problem.child_at[i + 1]):
            j = problem.child[k]
            early[j] = max(early[j], early[i] + length[i])
    for at in range(len(order) - 1, -1, -1):
        i = order[at]
        for k in range(problem.child_at[i], problem.child_at[i + 1]):
            late[i] = min(late[i], late[problem.child[k]] - length[i])
        if early[i] > late[i]:
            return False
    problem.work[SPENT] += 2 * (len(order) + len(problem.child))
    return True


@inner_kernel
def _pairs(problem: Problem, early: Ints, late: Ints) -> bool:
    """Narrow windows of pairs that exclude each other: one that cannot be first is second."""
    length, n = problem.length, len(problem.length)
    problem.work[SPENT] += n * n // 2
    for i in range(n):
        for j in range(i):
            if problem.apart[i, j] == 0:
                continue
            # `first` says that i may run before j, `second` that j may run before i.
            first = early[i] + length[i] <= late[j]
            second = early[j] + length[j] <= late[i]
            if not first:
                if not second:
                    return False
                early[i] = max(early[i], early[j] + length[j])
                late[j] = min(late[j], late[i] - length[j])
            elif not second:
                early[j] = max(early[j], early[i] + length[i])
                late[i] = min(late[i], late[j] - length[i])
    return True


@inner_kernel
def _profile(problem: Problem, column: int, early: Ints, late: Ints) -> int:
    """Fill `edge` and `height` with the compulsory parts; return their number, -1: over the room.

    A task surely runs from its latest start to its earliest end, if that is later: its compulsory
    part (Lahrichi 1982). From `edge[k]` to `edge[k + 1]` all of them together hold `height[k]`.
    """
    length, need = problem.length, problem.need[column]
    edge, height = problem.edge, problem.height
    count = 0
    for i in range(len(length)):
        if need[i] > 0 and late[i] < early[i] + length[i]:
            edge[count] = late[i]
            edge[count + 1] = early[i] + length[i]
            count += 2
    if count == 0:
        return 0
    # Insertion sort, because numba's own sort allocates arrays.
    for k in range(1, count):
        time = edge[k]
        at = k
        while at > 0 and edge[at - 1] > time:
            edge[at] = edge[at - 1]
            at -= 1
        edge[at] = time
    last = 1
    for k in range(1, count):
        if edge[k] != edge[last - 1]:
            edge[last] = edge[k]
            last += 1
    for k in range(last):
        height[k] = 0
    for i in range(len(length)):
        if need[i] > 0 and late[i] < early[i] + length[i]:
            for k in range(last - 1):
                if edge[k] >= late[i] and edge[k] < early[i] + length[i]:
                    height[k] += need[i]
                    if height[k] > problem.room[column]:
                        return -1
    problem.work[SPENT] += count * last // 2
    return last


@inner_kernel
def _compulsory(problem: Problem, column: int, early: Ints, late: Ints) -> bool:
    """Narrow windows past what others hold for certain; return False where one is empty."""
    length, need = problem.length, problem.need[column]
    edge, height, room = problem.edge, problem.height, problem.room[column]
    steps = _profile(problem, column, early, late)
    if steps < 0:
        return False
    for i in range(len(length)):
        if need[i] == 0 or length[i] == 0 or steps == 0:
            continue
        # The profile holds the task's own part as it was when the profile was made.
        own_from, own_to = late[i], early[i] + length[i]
        problem.work[SPENT] += steps
        for k in range(steps - 1):
            own = need[i] if edge[k] >= own_from and edge[k] < own_to else 0
            full = height[k] - own + need[i] > room
            if full and edge[k] < early[i] + length[i] and edge[k + 1] > early[i]:
                early[i] = edge[k + 1]
        for k in range(steps - 2, -1, -1):
            own = need[i] if edge[k] >= own_from and edge[k] < own_to else 0
            full = height[k] - own + need[i] > room
            if full and edge[k] < late[i] + length[i] and edge[k + 1] > late[i]:
                late[i] = edge[k] - length[i]
        if early[i] > late[i]:
            return False
    return True


@inner_kernel
def _energy(problem: Problem, early: Ints, late: Ints) -> bool:  # noqa: C901, PLR0912
    """Return whether what must run inside any interval, from a start to an end, fits into it.

    Energetic reasoning (Baptiste, Le Pape and Nuijten 1999): wherever a task is put, at least
    `over` of it lies in [low, high], the least of what is left when it starts as early and when it
    ends as late as it may. False where the sum is more than the room. Else a task that would lie in
    there with more than what the others leave moves out of it, to whichever side. `most` is the
    most that any task could bring along: where that fits, nothing can move, and the last loop is
    left out.
    """
    length, need, room, over = problem.length, problem.need, problem.room, problem.over
    n = len(length)
    for p in range(n):
        low = early[p]
        if problem.work[SPENT] >= problem.work[LIMIT]:
            return True
        for q in range(n):
            high = late[q] + length[q]
            if high <= low:
                continue
            width = high - low
            problem.work[SPENT] += n * (1 + len(room))
            some = False
            for i in range(n):
                left = early[i] + length[i] - low
                right = high - late[i]
                inside = min(left, right, width, length[i])
                over[i] = max(inside, 0)
                some = some or inside > 0
            if not some:
                continue
            for column in range(len(room)):
                total, most = 0, 0
                for i in range(n):
                    if need[column, i] == 0:
                        continue
                    total += need[column, i] * over[i]
                    left = early[i] + length[i] - low
                    right = high - late[i]
                    if (left > over[i] or right > over[i]) and early[i] < high:
                        more = min(max(left, right), width, length[i]) - over[i]
                        most = max(most, need[column, i] * more)
                left_over = room[column] * width - total
                if left_over < 0:
                    return False
                if most <= left_over:
                    continue
                for i in range(n):
                    held = need[column, i]
                    if held == 0 or length[i] == 0:
                        continue
                    allowed = (left_over + held * over[i]) // held
                    left = min(early[i] + length[i] - low, width, length[i])
                    right = min(high - late[i], width, length[i])
                    if early[i] < high and left > allowed:
                        early[i] = max(early[i], high - allowed)
                    if late[i] + length[i] > low and right > allowed:
                        late[i] = min(late[i], low + allowed - length[i])
                    if early[i] > late[i]:
                        return False
                # Windows moved, so begin again with the cheaper rules.
                return True
    return True


@inner_kernel
def _slack(early: Ints, late: Ints) -> int:
    total = 0
    for i in range(len(early)):
        total += late[i] - early[i]
    return total


@inner_kernel
def _narrow(problem: Problem, early: Ints, late: Ints, energetic: bool) -> bool:
    """Apply every rule until nothing moves; return False where a window is empty."""
    rounds = 0
    while rounds < _NARROWING_ROUNDS_MAX and problem.work[SPENT] < problem.work[LIMIT]:
        rounds += 1
        before = _slack(early, late)
        if not _paths(problem, early, late) or not _pairs(problem, early, late):
            return False
        for column in range(len(problem.room)):
            if not _compulsory(problem, column, early, late):
                return False
        if _slack(early, late) < before:
            continue
        if energetic and not _energy(problem, early, late):
            return False
        if _slack(early, late) == before:
            return True
    return True


@inner_kernel
def _possible(problem: Problem, packing: Packing, early: Ints, late: Ints, depth: int) -> bool:
    """Return False where rules refute windows, of intervals too (1), or by packing too (2)."""
    if not _narrow(problem, early, late, depth > 0):
        return False
    if depth < 2:
        return True
    return not unpackable(packing, early, late, problem.work)


@inner_kernel
def _shave(
    problem: Problem, packing: Packing, early: Ints, late: Ints, level: int, depth: int
) -> bool:
    """Cut off ends of windows in which a task cannot start; False where one becomes empty."""
    n = len(problem.length)
    trial_early, trial_late = problem.early[level], problem.late[level]
    moved = True
    while moved:
        moved = False
        for i in range(n):
            for side in range(2):
                part = 2
                while part <= 8 and early[i] < late[i]:
                    if problem.work[SPENT] >= problem.work[LIMIT]:
                        return True
                    cut = (late[i] - early[i]) // part
                    for k in range(n):
                        trial_early[k] = early[k]
                        trial_late[k] = late[k]
                    if side == 0:
                        trial_late[i] = early[i] + cut
                    else:
                        trial_early[i] = late[i] - cut
                    if _possible(problem, packing, trial_early, trial_late, depth):
                        part *= 2
                        continue
                    moved = True
                    if side == 0:
                        early[i] += cut + 1
                    else:
                        late[i] -= cut + 1
                    if early[i] > late[i] or not _narrow(problem, early, late, depth > 0):
                        return False
    return True


@inner_kernel
def _choose(problem: Problem, early: Ints, late: Ints) -> int:
    """Return the task that may start first, of those the one that must; -1 where all are fixed."""
    chosen = -1
    for i in range(len(early)):
        if early[i] == late[i] or problem.length[i] == 0:
            continue
        if (
            chosen < 0
            or early[i] < early[chosen]
            or (early[i] == early[chosen] and late[i] < late[chosen])
        ):
            chosen = i
    return chosen


@inner_kernel
def _next_end(problem: Problem, early: Ints, chosen: int) -> int:
    """Return the first end after a task's earliest start: a waiting task starts when another ends.

    True of schedules without gaps, one of which is shortest, and of the task that may start first.
    """
    least = early[chosen] + (1 << 60)
    for j in range(len(early)):
        end = early[j] + problem.length[j]
        if j != chosen and early[chosen] < end < least:
            least = end
    return int(least)


@inner_kernel
def _only(problem: Problem, level: int) -> int:
    """Go on with the branch above a level in its place."""
    for k in range(len(problem.length)):
        problem.early[level, k] = problem.early[level + 1, k]
        problem.late[level, k] = problem.late[level + 1, k]
    return level


@kernel
def refuted(problem: Problem, packing: Packing, span: int, tail: Ints, deep: bool) -> bool:
    """Return whether it is proven that the tasks cannot be done within `span` ticks.

    `problem.early[0]` has the heads, `tail` (n,) what follows each task's end at least. Gives up
    when `work` is spent; `deep` adds shaving and search.
    """
    n = len(problem.length)
    heads = problem.early[0]
    early, late = problem.early[1], problem.late[1]
    for i in range(n):
        early[i] = heads[i]
        late[i] = span - tail[i] - problem.length[i]
        if early[i] > late[i]:
            return True
    if not _narrow(problem, early, late, True):
        return True
    if unpackable(packing, early, late, problem.work):
        return True
    if not deep:
        return False
    for depth in range(3):
        if not _shave(problem, packing, early, late, n + 3, depth):
            return True
    level = 1
    while level > 0:
        if problem.work[SPENT] >= problem.work[LIMIT]:
            return False
        early, late = problem.early[level], problem.late[level]
        if not _possible(problem, packing, early, late, 2):
            level -= 1
            continue
        if problem.work[SPENT] >= problem.work[LIMIT]:
            return False
        i = _choose(problem, early, late)
        if i < 0:
            return False
        deeper = level + 1
        for k in range(n):
            problem.early[deeper, k] = early[k]
            problem.late[deeper, k] = late[k]
        # A task either starts at once or waits: this level tries the first, the next one the
        # second.
        problem.late[deeper, i] = early[i]
        early[i] = _next_end(problem, early, i)
        level = deeper if early[i] <= late[i] else _only(problem, level)
    return True
