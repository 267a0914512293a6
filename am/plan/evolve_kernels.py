"""From one generation of schedules to the next: keys by crossover, schedules by serial insertion.

Serial insertion takes the ready task with the largest key and puts it where it first fits. In the
bi-population search of Debels and Vanhoucke (2005) schedules pushed to the left have children that
are pushed to the right, and the other way round: one insertion makes a child and justifies it too.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from am.plan.board_kernels import BEGIN, END, FAR, OVERFLOW, Space, clear
from am.plan.part_kernels import Part, Ranks
from am.plan.placing_kernels import Scratch, place
from weft.policies.compiled import inner_kernel, kernel

Ints = NDArray[np.int64]
Labels = NDArray[np.int8]
Floats = NDArray[np.float64]

# Runs of so many keys are sorted by insertion before they are merged.
_INSERTION_SORT_LENGTH = 8
# Parents that differ in a smaller share of their tasks have children by noise alone.
_ALIKE_PARENTS_SHARE = 0.05
# columns of `chance`, each in [0, 1): two mothers to choose from, where the window is and how wide,
# whether noise comes on top
MOTHER, OTHER, WHERE, WIDE, NOISY = range(5)
CHANCES = 5


class Sorter(NamedTuple):
    """What ranking n tasks needs: `base` (n,) has them in the order that breaks ties of keys.

    `same` (n,) numbers the tasks that are equal to the board; `order`, `spare` (n,) are working
    memory, `all` (n,) is the label of everything.
    """

    base: Ints
    same: Ints
    order: Ints
    spare: Ints
    all: Labels


@inner_kernel
def _sort(sorter: Sorter, first_key: Ints) -> None:
    """Fill `order`: the tasks by falling keys, ties as in `base`. A merge sort from the bottom."""
    source, target = sorter.order, sorter.spare
    count = len(source)
    for i in range(count):
        v = sorter.base[i]
        at = i
        while at % _INSERTION_SORT_LENGTH > 0 and first_key[source[at - 1]] < first_key[v]:
            source[at] = source[at - 1]
            at -= 1
        source[at] = v
    width = _INSERTION_SORT_LENGTH
    while width < count:
        low = 0
        while low < count:
            middle, high = min(low + width, count), min(low + 2 * width, count)
            left, right = low, middle
            for at in range(low, high):
                if left < middle and (
                    right >= high or first_key[source[left]] >= first_key[source[right]]
                ):
                    target[at] = source[left]
                    left += 1
                else:
                    target[at] = source[right]
                    right += 1
            low = high
        for at in range(count):
            source[at] = target[at]
        width *= 2


@inner_kernel
def _rank(sorter: Sorter, first_key: Ints, ranks: Ranks) -> None:
    """Fill `ranks` as `part.ranks_of` does: larger keys first, equal tasks of one key together."""
    _sort(sorter, first_key)
    order, same = sorter.order, sorter.same
    rank, last = -1, -1
    for at in range(len(order)):
        v = order[at]
        if last < 0 or first_key[v] != first_key[last] or same[v] != same[last]:
            rank += 1
            ranks.slot[rank] = at
        ranks.kind[v] = rank
        last = v
    for at in range(rank + 1, len(ranks.slot)):
        ranks.slot[at] = len(order)


class EvolutionWorkspace(NamedTuple):
    """A board with all that inserting needs; one thread uses it at a time."""

    space: Space
    scratch: Scratch
    sorter: Sorter
    ranks: Ranks


class Brood(NamedTuple):
    """Rows of schedules: starts and machines (rows, n), spans (rows,), ticks."""

    start: Ints
    machine: Ints
    span: Ints


class Luck(NamedTuple):
    """What chance decides of a generation.

    `chance` (children, CHANCES) lies in [0, 1); `noise` (children, n) is in ticks; `wide` (2,) are
    the least and the greatest share of the span that a crossover window takes; `noisy` is the share
    of the children that get noise.
    """

    chance: Floats
    noise: Floats
    wide: Floats
    noisy: float


@kernel
def insert_all(
    workspace: EvolutionWorkspace,
    view: Part,
    sign: int,
    first: int,
    last: int,
    keys: Ints,
    brood: Brood,
) -> int:
    """Write schedules for the rows [first, last) of `keys` (rows, n) into `brood`.

    `sign` -1 pushes to the right; `view` is then the reversed part. Starts are from 0. Returns the
    row that it stopped at: less than `last` where the pool of the space was too small.
    """
    space, scratch, sorter, ranks = (
        workspace.space,
        workspace.scratch,
        workspace.sorter,
        workspace.ranks,
    )
    n = len(sorter.all)
    for row in range(first, last):
        _rank(sorter, keys[row], ranks)
        clear(space)
        for s in range(scratch.front.shape[1]):
            scratch.front[0, s] = scratch.front[1, s] = -FAR
        scratch.on[:] = 0
        scratch.member_start[0] = 0
        scratch.member_start[1:] = n
        for v in range(n):
            scratch.member[v] = v
        place(space, view, ranks, scratch, sorter.all, 0, sign, FAR)
        if space.state[OVERFLOW] != 0:
            return row
        begin = space.state[BEGIN]
        brood.span[row] = space.state[END] - begin
        for v in range(n):
            brood.start[row, v] = scratch.start[v] - begin
            brood.machine[row, v] = scratch.machine[v]
    return last


@kernel
def cross(starts: Ints, spans: Ints, length: Ints, sign: int, luck: Luck, keys: Ints) -> None:
    """Fill `keys` (children, n): two children for each of the parents, to be inserted by `sign`.

    A child has the father's order outside a window of his time and the mother's inside; the second
    child of a pair has them swapped.
    """
    chance, wide = luck.chance, luck.wide
    parents, n = starts.shape
    for c in range(len(keys)):
        father = (c // 2) % parents
        mother = int(chance[c, MOTHER] * parents)
        other = int(chance[c, OTHER] * parents)
        if mother == father or (other != father and spans[other] < spans[mother]):
            mother = other
        if c % 2 == 1:
            father, mother = mother, father
        span = spans[father]
        far = 4 * max(span, spans[mother])
        width = int((wide[0] + (wide[1] - wide[0]) * chance[c, WIDE]) * span)
        low = int(chance[c, WHERE] * (span - width))
        differ = 0
        for v in range(n):
            # A falling order pushes ends to the right, a rising one starts to the left.
            end = length[v] if sign < 0 else 0
            time = starts[father, v] + end
            other_time = starts[mother, v] + end
            if time != other_time:
                differ += 1
            if time < low:
                keys[c, v] = time - far
            elif time > low + width:
                keys[c, v] = time + far
            else:
                keys[c, v] = other_time
        if differ < _ALIKE_PARENTS_SHARE * n or chance[c, NOISY] < luck.noisy:
            for v in range(n):
                keys[c, v] += int(luck.noise[c, v])
        if sign > 0:
            for v in range(n):
                keys[c, v] = -keys[c, v]
