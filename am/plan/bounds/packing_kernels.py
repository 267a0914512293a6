"""Can tasks be packed into their windows by sets that may run together? A linear program.

Brucker and Knust (2000), after Mingozzi et al. (1998): the ends of all windows cut the span into
intervals; a set of tasks whose windows hold an interval, that fit together and of which none
precedes another, may run in it for some of the time; every task must be run for its length. Sets
are made as they are wanted. A refutation rests on whole numbers alone: weights y of the tasks and,
for each interval, the weight z of the heaviest set in it, with sum(y * length) > sum(z * width).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.policies.compiled import inner_kernel, kernel

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Labels = NDArray[np.int8]

SET_TASKS_MAX = 48
# A task whose dual value is 1 has this weight.
UNIT_DUAL_WEIGHT = 1 << 20
_EPS = 1e-7
_SEARCH_NODES_MAX = 20_000
_SETS = 4000
# The entries of `work`, which counts steps against a limit.
SPENT, LIMIT = 0, 1


class Packing(NamedTuple):
    """The program of n tasks in up to t intervals, r = n + t rows, p sets and what solving needs.

    A task is an item on each machine that it may run on, or one item where machines are not told
    apart: `task`, `machine` (v,). `need` (c, v), `room` (c,) are what items hold of columns;
    `never` (v, v) is 1 where two items never run together. With `alike`, machines are equal.
    `edge` (t + 1,) are the intervals' ends, `holds` (t, n) 1 where a window holds an interval.
    Columns by number: n of work left undone, r + n of slack, then sets.

    Shapes: `length` and `weight` (n,); `inverse` (r, r); `value`, `dual`, `enter` and `basis` (r,);
    `set_interval` and `set_size` (p,); `set_member` (p, SET_TASKS_MAX). The search for a set has
    `size` (v,), an item's share of all columns' rooms together, and by depth `list` (SET_TASKS_MAX
    + 1, v), the candidates, `listed` (SET_TASKS_MAX + 1, 2), their number and which is next, and
    `free` (SET_TASKS_MAX + 1, c); `chosen` and `best` (SET_TASKS_MAX,), `found` (1,).
    """

    length: Ints
    task: Ints
    machine: Ints
    alike: bool
    need: Ints
    room: Ints
    never: Labels
    edge: Ints
    holds: Labels
    inverse: Floats
    value: Floats
    dual: Floats
    enter: Floats
    basis: Ints
    set_interval: Ints
    set_size: Ints
    set_member: Ints
    weight: Ints
    size: Floats
    list: Ints
    listed: Ints
    free: Ints
    chosen: Ints
    best: Ints
    found: Ints


def packing_of(
    length: Ints, needs: list[Ints], rooms: list[Ints], never: Labels, alike: bool = True
) -> Packing:
    """Return a program with its working memory; `needs` (c, n) and `rooms` (c,) by machine.

    A task that needs more than a machine's room does not run there. `never` is (n, n).
    """
    n, columns = len(length), sum(map(len, rooms))
    fits = [np.all(need <= room[:, None], axis=0) for need, room in zip(needs, rooms, strict=True)]
    task, machine = np.nonzero(np.array(fits).T)
    need = np.zeros((columns, len(task)), np.int64)
    first = 0
    for number, here in enumerate(needs):
        on = machine == number
        need[first : first + len(here), on] = here[:, task[on]]
        first += len(here)
    room = np.concatenate(rooms)
    same = task[:, None] == task[None, :]
    never = (never[np.ix_(task, task)].astype(bool) | same).astype(np.int8)
    rows = 3 * n

    def ints(*shape: int) -> Ints:
        return np.zeros(shape, np.int64)

    return Packing(
        length=length,
        task=task.astype(np.int64),
        machine=machine.astype(np.int64),
        alike=alike,
        need=need,
        room=room,
        never=never,
        edge=ints(2 * n + 1),
        holds=np.zeros((2 * n, n), np.int8),
        inverse=np.zeros((rows, rows)),
        value=np.zeros(rows),
        dual=np.zeros(rows),
        enter=np.zeros(rows),
        basis=ints(rows),
        set_interval=ints(_SETS),
        set_size=ints(_SETS),
        set_member=ints(_SETS, SET_TASKS_MAX),
        weight=np.full(n, UNIT_DUAL_WEIGHT, np.int64),
        size=np.asarray((need / room[:, None]).sum(axis=0)) + 1e-9,
        list=ints(SET_TASKS_MAX + 1, len(task)),
        listed=ints(SET_TASKS_MAX + 1, 2),
        free=ints(SET_TASKS_MAX + 1, columns),
        chosen=ints(SET_TASKS_MAX),
        best=ints(SET_TASKS_MAX),
        found=ints(1),
    )


@inner_kernel
def _intervals(packing: Packing, early: Ints, late: Ints) -> int:
    """Fill `edge` and `holds`; return how many intervals, 0 where there are too many."""
    n, edge = len(early), packing.edge
    count = 0
    for i in range(n):
        for side in range(2):
            time = early[i] if side == 0 else late[i] + packing.length[i]
            if packing.length[i] == 0:
                continue
            at = count
            while at > 0 and edge[at - 1] > time:
                at -= 1
            if at > 0 and edge[at - 1] == time:
                continue
            if count == len(edge):
                return 0
            for k in range(count, at, -1):
                edge[k] = edge[k - 1]
            edge[at] = time
            count += 1
    for t in range(count - 1):
        for i in range(n):
            inside = early[i] <= edge[t] and edge[t + 1] <= late[i] + packing.length[i]
            packing.holds[t, i] = 1 if inside and packing.length[i] > 0 else 0
    return max(count - 1, 0)


@inner_kernel
def _bound(packing: Packing, depth: int, first: int) -> float:
    """Return the most weight that candidates from `first` on may add to a set, in fractions."""
    room = 0.0
    for c in range(len(packing.room)):
        room += packing.free[depth, c] / packing.room[c]
    total, last = 0.0, -1
    for at in range(first, packing.listed[depth, 0]):
        v = packing.list[depth, at]
        i = packing.task[v]
        # The task was already counted on another machine.
        if i == last:
            continue
        last = i
        if packing.size[v] <= room:
            room -= packing.size[v]
            total += packing.weight[i]
        else:
            return float(total + packing.weight[i] * room / packing.size[v])
    return total


@inner_kernel
def _candidates(packing: Packing, interval: int) -> None:
    """Begin a search: the tasks that may run in an interval, most weight for their size first."""
    count, lists = 0, packing.list
    for v in range(len(packing.task)):
        i = packing.task[v]
        if packing.holds[interval, i] == 0 or packing.weight[i] <= 0:
            continue
        at = count
        ratio = packing.weight[i] / packing.size[v]
        while at > 0:
            w = lists[0, at - 1]
            if packing.weight[packing.task[w]] / packing.size[w] >= ratio:
                break
            lists[0, at] = w
            at -= 1
        lists[0, at] = v
        count += 1
    packing.listed[0, 0], packing.listed[0, 1] = count, 0
    for c in range(len(packing.room)):
        packing.free[0, c] = packing.room[c]


@inner_kernel
def _choose(packing: Packing, depth: int, at: int) -> None:
    """Add a candidate to the set; at the next depth are those that still fit beside it."""
    i = packing.list[depth, at]
    packing.listed[depth, 1] = at + 1
    packing.chosen[depth] = i
    columns = len(packing.room)
    for c in range(columns):
        packing.free[depth + 1, c] = packing.free[depth, c] - packing.need[c, i]
    kept = 0
    for k in range(at + 1, packing.listed[depth, 0]):
        j = packing.list[depth, k]
        fits = packing.never[i, j] == 0
        for c in range(columns):
            fits = fits and packing.need[c, j] <= packing.free[depth + 1, c]
        if fits:
            packing.list[depth + 1, kept] = j
            kept += 1
    packing.listed[depth + 1, 0], packing.listed[depth + 1, 1] = kept, 0


@inner_kernel
def _heaviest(packing: Packing, interval: int, floor: int, work: Ints) -> int:
    """Return the weight of the heaviest set in an interval if above `floor`, else `floor`.

    The set goes to `best`, its size to `found`: 0 where nothing is above the floor, or where the
    search takes too long; what is returned is then a bound from above.
    """
    _candidates(packing, interval)
    packing.found[0] = 0
    listed = packing.listed
    ceiling = _bound(packing, 0, 0)
    if ceiling <= floor:
        return floor
    most, value, depth, nodes, found = floor, 0, 0, 0, 0
    while depth >= 0:
        at = listed[depth, 1]
        nodes += 1
        work[SPENT] += 3 * (listed[depth, 0] - at) + 4
        if nodes > _SEARCH_NODES_MAX or depth >= SET_TASKS_MAX:
            return int(ceiling) + 1
        if at >= listed[depth, 0] or value + _bound(packing, depth, at) <= most:
            depth -= 1
            if depth >= 0:
                value -= packing.weight[packing.task[packing.chosen[depth]]]
            continue
        if depth == 0 and packing.alike and packing.machine[packing.list[0, at]] > 0:
            # Machines are equal, so the first task may as well run on the first one.
            listed[0, 1] = at + 1
            continue
        _choose(packing, depth, at)
        value += packing.weight[packing.task[packing.chosen[depth]]]
        depth += 1
        if value > most:
            most, found = value, depth
            for k in range(found):
                packing.best[k] = packing.task[packing.chosen[k]]
    packing.found[0] = found
    return int(most)


@inner_kernel
def _begin(packing: Packing, intervals: int) -> None:
    """Set the basis to slack: all work is left undone."""
    n = len(packing.length)
    rows = n + intervals
    for a in range(rows):
        for b in range(rows):
            packing.inverse[a, b] = 0.0
        packing.inverse[a, a] = 1.0
        packing.basis[a] = a
        # Without this perturbation many pivots would move nothing.
        nudge = ((a * 7919) % 1009) / 1009.0
        if a < n:
            packing.value[a] = packing.length[a]
            packing.dual[a] = 1.0
        else:
            packing.value[a] = packing.edge[a - n + 1] - packing.edge[a - n] + 1e-4 * nudge
            packing.dual[a] = 0.0


@inner_kernel
def _pivot(packing: Packing, rows: int, column: int, gain: float, work: Ints) -> bool:
    """Bring `column` into the basis, whose tableau column is `enter`; False where none leaves."""
    row, least = -1, 0.0
    for a in range(rows):
        if packing.enter[a] > _EPS:
            ratio = packing.value[a] / packing.enter[a]
            if row < 0 or ratio < least:
                row, least = a, ratio
    if row < 0:
        return False
    inverse, enter = packing.inverse, packing.enter
    scale = 1.0 / enter[row]
    for b in range(rows):
        inverse[row, b] *= scale
    for a in range(rows):
        if a != row and (enter[a] > 1e-12 or enter[a] < -1e-12):
            factor = enter[a]
            for b in range(rows):
                inverse[a, b] -= factor * inverse[row, b]
            packing.value[a] = max(packing.value[a] - factor * least, 0.0)
    packing.value[row] = least
    packing.basis[row] = column
    for b in range(rows):
        packing.dual[b] -= gain * inverse[row, b]
    work[SPENT] += rows * rows // 8 + rows
    return True


@inner_kernel
def _solve(packing: Packing, intervals: int, sets: int, work: Ints) -> None:
    """Find the best use of the sets so far, by the simplex method."""
    n = len(packing.length)
    rows = n + intervals
    turns = 0
    while turns < 20 * rows and work[SPENT] < work[LIMIT]:
        turns += 1
        best, column = 1e-6, -1
        for a in range(rows):
            gain = -packing.dual[a] if a < n else packing.dual[a]
            if gain > best:
                best, column = gain, n + a
        for s in range(sets):
            gain = packing.dual[n + packing.set_interval[s]]
            for k in range(packing.set_size[s]):
                gain += packing.dual[packing.set_member[s, k]]
            if gain > best:
                best, column = gain, n + rows + s
        work[SPENT] += sets + rows
        if column < 0:
            return
        for a in range(rows):
            if column < n + n:
                packing.enter[a] = -packing.inverse[a, column - n]
            elif column < n + rows:
                packing.enter[a] = packing.inverse[a, column - n]
            else:
                s = column - n - rows
                total = packing.inverse[a, n + packing.set_interval[s]]
                for k in range(packing.set_size[s]):
                    total += packing.inverse[a, packing.set_member[s, k]]
                packing.enter[a] = total
        if not _pivot(packing, rows, column, best, work):
            return


@kernel
def unpackable(packing: Packing, early: Ints, late: Ints, work: Ints) -> bool:
    """Return whether it is proven that tasks with these windows of starts cannot be packed."""
    n = len(packing.length)
    intervals = _intervals(packing, early, late)
    if intervals == 0:
        return False
    _begin(packing, intervals)
    rows = n + intervals
    sets, first = 0, True
    while work[SPENT] < work[LIMIT]:
        surplus = 0
        for i in range(n):
            # The first weights are those that were best the last time.
            if not first:
                packing.weight[i] = min(
                    max(int(packing.dual[i] * UNIT_DUAL_WEIGHT), 0), 16 * UNIT_DUAL_WEIGHT
                )
            surplus += packing.weight[i] * packing.length[i]
        more = 0
        for t in range(intervals):
            floor = 0 if first else max(int(-packing.dual[n + t] * UNIT_DUAL_WEIGHT), 0) + 2
            most = _heaviest(packing, t, floor, work)
            surplus -= most * (packing.edge[t + 1] - packing.edge[t])
            if packing.found[0] > 0 and sets < len(packing.set_size):
                size = packing.found[0]
                packing.set_interval[sets], packing.set_size[sets] = t, size
                for k in range(size):
                    packing.set_member[sets, k] = packing.best[k]
                sets += 1
                more += 1
        if surplus > 0:
            return True
        if more == 0 and not first:
            return False
        first = False
        _solve(packing, intervals, sets, work)
        undone = 0.0
        for a in range(rows):
            if packing.basis[a] < n:
                undone += packing.value[a]
        if undone < 1e-2:
            return False
    return False
