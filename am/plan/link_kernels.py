"""Who waits for whom in a DAG, and what becomes ready when a task ends: one rule for all kernels.

List schedules, Graphene's placing, topological orders and Carbyne's packing count down the same
numbers (`Waits`) along the same edges (`Links`); they differ in what they do with a ready task. A
barrier between two stages costs its two stages, never its task edges.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from weft.model.dag import Flags, Ints
from weft.policies.compiled import inner_kernel, kernel

# Edges lead from the parents in the first array to the children in the second.
Ends = tuple[Ints, Ints]


class Waits(NamedTuple):
    """What the tasks of a DAG still wait for; all of it only ever counts down.

    A task is ready once its own entry of `missing` and its stage's entry of `barriers` are 0. One
    that is not to run has a `missing` that never becomes 0.

    `missing` (n,) counts the parents over pairs that have not ended, `barriers` (s,) the parent
    stages that have not ended as a whole, `left` (s,) the tasks of the stage that have not ended.
    """

    missing: Ints
    barriers: Ints
    left: Ints


class Links(NamedTuple):
    """The edges of n tasks in s stages, both ways round.

    Barriers are kept by stage: stage x as a whole waits for the stages
    `before[before_at[x]:before_at[x + 1]]`; `after` is the mirror. Other edges are pairs of tasks,
    likewise by task: `parent` and `child`. `listing` has the tasks of each stage, from `first[x]`
    on, in the order in which they become ready together.

    Shapes: `stage` and `listing` (n,); `first`, `before_at` and `after_at` (s + 1,); `parent_at`
    and `child_at` (n + 1,).
    """

    first: Ints
    stage: Ints
    listing: Ints
    before_at: Ints
    before: Ints
    after_at: Ints
    after: Ints
    parent_at: Ints
    parent: Ints
    child_at: Ints
    child: Ints

    def reversed(self) -> "Links":
        """Return the same edges with time running backwards; `listing` stays."""
        return self._replace(
            before_at=self.after_at,
            before=self.after,
            after_at=self.before_at,
            after=self.before,
            parent_at=self.child_at,
            parent=self.child,
            child_at=self.parent_at,
            child=self.parent,
        )

    def waits(self, todo: Flags) -> Waits:
        """Return what tasks wait for where those of `todo` (n,) have not ended."""
        left = _sums(todo, self.first)
        missing = _sums(todo[self.parent], self.parent_at) if len(self.parent) else 0
        barriers = _sums(left[self.before] > 0, self.before_at)
        return Waits(np.where(todo, missing, -1), barriers, left)


def links_of(first: Ints, barriers: Ends, pairs: Ends, listing: Ints | None = None) -> Links:
    """Return the links of stages whose tasks begin at `first` (s + 1,).

    `barriers` are between stages, `pairs` between tasks.
    """
    stages, tasks = len(first) - 1, int(first[-1])
    return Links(
        np.ascontiguousarray(first, dtype=np.int64),
        np.repeat(np.arange(stages, dtype=np.int64), np.diff(first)),
        np.arange(tasks, dtype=np.int64) if listing is None else listing,
        *_grouped(barriers[1], barriers[0], stages),
        *_grouped(*barriers, stages),
        *_grouped(pairs[1], pairs[0], tasks),
        *_grouped(*pairs, tasks),
    )


def barrier_ends(stages: Sequence[tuple[int, int]]) -> Ends:
    """Return the ends of edges between stages, given as (parent, child)."""
    ends = np.array(stages, dtype=np.int64).reshape(-1, 2)
    return ends[:, 0], ends[:, 1]


def joined(several: Sequence[Ends]) -> Ends:
    """Return the ends of all edges, in the order given."""
    none = np.zeros(0, np.int64)
    parents, children = ([ends[side] for ends in several] for side in (0, 1))
    return np.concatenate([none, *parents]), np.concatenate([none, *children])


def _grouped(owner: Ints, value: Ints, owners: int) -> tuple[Ints, Ints]:
    """Return values by owner: where each owner's begin, and the values in the order given."""
    at = np.zeros(owners + 1, np.int64)
    if not len(owner):
        return at, np.zeros(0, np.int64)
    np.cumsum(np.bincount(owner, minlength=owners), out=at[1:])
    if np.any(owner[1:] < owner[:-1]):
        value = value[np.argsort(owner, kind="stable")]
    return at, np.ascontiguousarray(value, dtype=np.int64)


def _sums(values: Flags, at: Ints) -> Ints:
    """Return how many of each owner's values are true."""
    before = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=before[1:])
    sums = before[at]
    return sums[1:] - sums[:-1]


@inner_kernel
def _open(links: Links, waits: Waits, stage: int, ready: Ints, count: int) -> int:
    """Put a stage's tasks that wait for nothing behind the first `count` of `ready`."""
    for at in range(links.first[stage], links.first[stage + 1]):
        task = links.listing[at]
        if waits.missing[task] == 0:
            ready[count] = task
            count += 1
    return count


@inner_kernel
def sources(links: Links, waits: Waits, ready: Ints) -> int:
    """Fill `ready` (n,) with the tasks that wait for nothing; return how many there are."""
    count = 0
    for stage in range(len(waits.left)):
        if waits.barriers[stage] == 0:
            count = _open(links, waits, stage, ready, count)
    return count


@inner_kernel
def ended(links: Links, waits: Waits, task: int, ready: Ints, count: int) -> int:
    """Count a task as ended; return how many tasks are `ready` then.

    Those that now wait for nothing are put behind the first `count` of `ready`.
    """
    for at in range(links.child_at[task], links.child_at[task + 1]):
        child = links.child[at]
        waits.missing[child] -= 1
        if waits.missing[child] == 0 and waits.barriers[links.stage[child]] == 0:
            ready[count] = child
            count += 1
    stage = links.stage[task]
    waits.left[stage] -= 1
    if waits.left[stage] == 0:
        for at in range(links.after_at[stage], links.after_at[stage + 1]):
            later = links.after[at]
            waits.barriers[later] -= 1
            if waits.barriers[later] == 0:
                count = _open(links, waits, later, ready, count)
    return count


@kernel
def topological(links: Links, waits: Waits, order: Ints) -> int:
    """Fill `order` (n,) with the tasks, parents first; return how many: less than n on a circle."""
    count, at = sources(links, waits, order), 0
    while at < count:
        count = ended(links, waits, order[at], order, count)
        at += 1
    return count
