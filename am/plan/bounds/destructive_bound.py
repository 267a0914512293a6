"""Destructive improvement: the bound is the shortest span that cannot be refuted.

Klein and Scholl 1999. Tasks are relaxed to what `fragmentation.loads` knows of the machines: at any
time the shares of each real or virtual resource sum to at most 1.
"""

import numpy as np

from am.plan.bounds.destructive_kernels import Problem, refuted
from am.plan.bounds.fragmentation import loads
from am.plan.bounds.paths import ties_of
from am.plan.list_schedule import by_level, by_path
from weft.dag import Dag, Floats, Ints, Machines

TASKS_MAX = 160  # beyond, a proof would take too long
_COLUMNS_MAX = 8
_UNITS = 1 << 20  # a whole resource
_TICKS = 1 << 20  # a span, where durations have no common unit
_SURE = 1e-9
_WORK = 30_000_000  # steps for all spans together: about a tenth of a second


def destructive_bound_s(
    dag: Dag, machines: Machines, least_s: float, head: Floats, tail: Floats
) -> float:
    """At least `least_s`; `head`, `tail` (n,) are what each task has before and after it, s."""
    if not 2 <= dag.tasks <= TASKS_MAX or not len(dag.duration_s):
        return least_s
    most_s = min(
        float((start_s + dag.duration_s).max())
        for _, start_s in (by_path(dag, machines), by_level(dag, machines))
    )
    if least_s >= most_s * (1 - _SURE) or most_s <= 0:
        return least_s
    tick_s, length, exact = _ticks(dag.duration_s, most_s)
    problem = _problem(dag, machines, length)
    problem.early[0] = np.floor(head / tick_s + _SURE).astype(np.int64)
    behind = np.floor(tail / tick_s + _SURE).astype(np.int64)
    low = int(np.ceil(least_s / tick_s * (1 - _SURE)))  # not refuted as far as known
    high = int(np.floor(most_s / tick_s * (1 + _SURE)))  # possible
    problem.work[:] = 0, _WORK
    known = low
    for deep in (False, True):
        low = _search(problem, behind, low, high, deep)
    if low == known and not exact:  # only what is refuted may be rounded up
        return least_s
    return max(least_s, min(low * tick_s * (1 - 1e-12), most_s))


def _search(problem: Problem, tail: Ints, low: int, high: int, deep: bool) -> int:
    """The least span not refuted, at least `low`; what is refuted binds, monotone or not."""
    step = 1
    while low < high and problem.work[0] < problem.work[1]:
        span = low if deep and high - low < 16 else (low + high - 1) // 2
        if deep and high - low >= 16:
            span = min(low + step - 1, high - 1)
        if refuted(problem, span, tail, deep):
            low = span + 1
            step *= 2
        elif deep and step > 1:
            high, step = span, 1
        else:
            high = span
    return low


def _ticks(duration_s: Floats, most_s: float) -> tuple[float, Ints, bool]:
    """A tick, the durations in ticks, and whether they are exact; else they are rounded down."""
    for digits in range(7):
        scaled = duration_s * 10.0**digits
        whole = np.rint(scaled)
        if np.all(np.abs(scaled - whole) <= 1e-9 * np.maximum(whole, 1e-3)):
            ticks = whole.astype(np.int64)
            unit = max(int(np.gcd.reduce(ticks)), 1)
            if most_s * 10.0**digits / unit <= 1 << 30:
                return unit * 10.0**-digits, ticks // unit, True
    tick_s = most_s / _TICKS
    return tick_s, np.floor(duration_s / tick_s).astype(np.int64), False


def _problem(dag: Dag, machines: Machines, length: Ints) -> Problem:
    n = dag.tasks
    share, kind = loads(dag, machines)
    need = np.floor(share[kind].T * _UNITS * (1 - _SURE)).astype(np.int64)
    room = np.full(len(need), _UNITS, np.int64)
    useful = np.flatnonzero(need.sum(axis=1) > room)
    weight = need[useful] @ length
    useful = useful[np.argsort(-weight, kind="stable")]
    _, first = np.unique(need[useful], axis=0, return_index=True)
    useful = useful[np.sort(first)][:_COLUMNS_MAX]
    need = np.ascontiguousarray(need[useful])
    before = _before(dag)
    apart = np.zeros((n, n), np.int8)
    for row in need:
        apart |= (row[:, None] + row[None, :] > _UNITS).astype(np.int8)
    apart[before | before.T] = 0
    apart[length == 0] = 0
    apart[:, length == 0] = 0
    np.fill_diagonal(apart, 0)
    near = before & ~((before.astype(np.float32) @ before.astype(np.float32)) > 0)
    parent, child = np.nonzero(near)
    return Problem(
        length=length,
        need=need,
        room=room[: len(need)],
        order=np.argsort(before.sum(axis=0), kind="stable").astype(np.int64),
        child_at=np.searchsorted(parent, np.arange(n + 1)).astype(np.int64),
        child=child.astype(np.int64),
        apart=apart,
        early=np.zeros((n + 4, n), np.int64),
        late=np.zeros((n + 4, n), np.int64),
        over=np.zeros(n, np.int64),
        edge=np.zeros(2 * n, np.int64),
        height=np.zeros(2 * n, np.int64),
        work=np.zeros(2, np.int64),
    )


def _before(dag: Dag) -> np.ndarray:
    """before[i, j]: task i ends before j starts, shape (n, n)."""
    before = np.zeros((dag.tasks, dag.tasks), bool)
    for tie in ties_of(dag).ties:
        if tie.pairs is None:
            before[dag.first[tie.parent] : dag.first[tie.parent + 1],
                   dag.first[tie.child] : dag.first[tie.child + 1]] = True  # fmt: skip
        else:
            before[tie.pairs] = True
    while True:
        matrix = before.astype(np.float32)
        more = before | (matrix @ matrix > 0)
        if np.array_equal(more, before):
            return before
        before = more
