"""Lower bounds for tasks of which only K run at once: identical parallel machines.

Fragmentation turns machines into slots (`fragmentation.py`): of the tasks that all need at least
some demand, K run at once. How long they take together is then the classical problem P||Cmax, whose
bounds see what work divided by K does not: 136 tasks in 135 slots need two rounds.
"""

import numpy as np
from numpy.typing import NDArray

from am.plan.bounds.fragmentation import slots_at_once, thresholds
from am.plan.paths import demand_classes
from weft.model.dag import Dag, Floats, Ints, Machines

# So many cut-offs of heads, and of tails, are tried for one set of tasks.
_WINDOWS_MAX = 5
# For more rounds than these, the work divided by the number of slots is as good a bound.
_ROUNDS_MAX = 8
# Candidate spans are sums of at most so many distinct durations.
_LENGTHS_MAX = 12


def in_slots_s(dag: Dag, machines: Machines, low_head: Floats, low_tail: Floats) -> float:
    """Return the largest head + time in slots + tail over sets of stages, s.

    `low_head` and `low_tail` have shape (stages,): what each task of a stage has at least. A
    stage's tasks count with its shortest duration and its least demand.
    """
    first = dag.first[:-1]
    length = np.minimum.reduceat(dag.duration_s, first)
    least = np.minimum.reduceat(dag.demand, first, axis=0)
    count = np.diff(dag.first)
    floors = thresholds(dag, demand_classes(dag)[0])
    best, seen = 0.0, set()
    for floor, slots in zip(floors, slots_at_once(floors, machines), strict=True):
        member = np.all(least >= floor * (1 - 1e-9), axis=1) & (length > 0)
        key = (member.tobytes(), slots)
        if count[member].sum() <= slots or key in seen:
            continue
        seen.add(key)
        for head in _cutoffs(low_head[member]):
            for tail in _cutoffs(low_tail[member]):
                inside = member & (low_head >= head) & (low_tail >= tail)
                if count[inside].sum() > slots:
                    span = span_s(length[inside], count[inside], int(slots), best - head - tail)
                    best = max(best, head + span + tail)
    return best


def span_s(length: Floats, count: Ints, slots: int, known_s: float = 0.0) -> float:
    """Return a lower bound on the span of `count[i]` tasks of `length[i]` in `slots` slots, s.

    Only spans above `known_s` are looked for; the answer may be below it otherwise.
    """
    falling = np.argsort(-length, kind="stable")
    length, count = length[falling], count[falling]
    best = _rounds(length, count, slots)
    spans = _candidates(length)
    spans = spans[spans > max(best, known_s)]
    low, high = 0, len(spans)
    # Every refuted span is a bound; that refutations are monotone is likely, not sure.
    while low < high:
        middle = (low + high) // 2
        span = spans[middle] * (1 - 1e-9)
        if _refuted(length, count, slots, span) or _crowded(length, count, slots, span):
            best = max(best, float(spans[middle]) * (1 - 1e-9))
            low = middle + 1
        else:
            high = middle
    return best


def _rounds(length: Floats, count: Ints, slots: int) -> float:
    """Return a bound: of the j * K + 1 longest tasks a slot gets j + 1, at least the shortest."""
    until = np.cumsum(count)
    best = float(length[0])
    for j in range(1, min(int((until[-1] - 1) // slots), _ROUNDS_MAX) + 1):
        ranks = np.arange(j * slots - j, j * slots + 1)
        best = max(best, float(length[np.searchsorted(until, ranks, side="right")].sum()))
    return best


def _candidates(length: Floats) -> Floats:
    """Return spans from which one more task fits behind others: sums of two or three lengths."""
    distinct = np.unique(length)
    if len(distinct) > _LENGTHS_MAX:
        distinct = distinct[np.linspace(0, len(distinct) - 1, _LENGTHS_MAX).astype(np.int64)]
    pairs = distinct[:, None] + distinct[None, :]
    return np.unique(np.concatenate([pairs.ravel(), (pairs + distinct[:, None]).ravel()]))


def _refuted(length: Floats, count: Ints, slots: int, span: float) -> bool:
    """Return whether more than K bins of size `span` are needed (Martello and Toth's L2)."""
    if length[0] > span:
        return True
    half = length > span / 2
    for small in np.unique(length[~half]):
        alone = length > span - small
        beside = half & ~alone
        rest = ~half & (length >= small)
        room = float((count[beside] * (span - length[beside])).sum())
        left = float((count[rest] * length[rest]).sum()) - room
        bins = int(count[half].sum()) + max(0, int(np.ceil(left / span - 1e-9)))
        if bins > slots:
            return True
    return bool(count[half].sum() > slots)


def _crowded(length: Floats, count: Ints, slots: int, span: float) -> bool:
    """Return whether the slots that must take the most tasks cannot: a slot takes q at most.

    Of n tasks, n - (q - 1) K slots get q: at least the shortest ones, whose times in one slot sum
    to no more than the largest sum of q lengths within the span.
    """
    until_s = np.cumsum(np.repeat(length[::-1], np.minimum(count[::-1], slots * _ROUNDS_MAX)))
    # This is q, the most tasks that one slot can take.
    most = int(np.searchsorted(until_s, span, side="right"))
    full = int(count.sum()) - (most - 1) * slots
    if full <= 0 or most >= _ROUNDS_MAX:
        return False
    if full > slots:
        return True
    distinct = np.unique(length)
    within = span
    if most <= 3 and len(distinct) <= _LENGTHS_MAX:
        sums = distinct
        for _ in range(most - 1):
            sums = np.unique(sums[:, None] + distinct[None, :])
        within = float(sums[sums <= span].max(initial=0.0))
    return float(until_s[full * most - 1]) > full * within * (1 + 1e-9)


def _cutoffs(values: Floats) -> Floats:
    distinct: NDArray[np.float64] = np.unique(values)
    if len(distinct) <= _WINDOWS_MAX:
        return distinct
    return distinct[np.linspace(0, len(distinct) - 1, _WINDOWS_MAX).astype(np.int64)]
