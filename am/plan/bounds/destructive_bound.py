"""Destructive improvement: the bound is the shortest span that cannot be refuted.

Klein and Scholl 1999. Tasks are relaxed to what `fragmentation.loads` knows of the machines: at any
time the shares of each real or virtual resource sum to at most 1.
"""

from dataclasses import dataclass

import numpy as np

from am.plan.bounds.destructive_kernels import LIMIT, SPENT, Problem, refuted
from am.plan.bounds.fragmentation import loads
from am.plan.bounds.packing_kernels import Packing, packing_of
from am.plan.list_schedule import by_level, by_path
from am.plan.paths import dependencies_of
from weft.model.dag import Dag, Floats, Ints, Machines

# A proof for a DAG of more tasks would take too long.
PROOF_TASKS_MAX = 500
# Steps for all spans together take about a third of a second.
PROOF_STEPS_MAX = 300_000_000
_COLUMNS_MAX = 8
_DISTINCT_MACHINES_MAX = 4
_TASK_MACHINE_PAIRS_MAX = 400
_UNITS_PER_RESOURCE = 1 << 20
# A span has this many ticks where the durations have no common unit.
_TICKS_PER_SPAN = 1 << 20
_SURE = 1e-9
# Each next try at the same span has twice the steps of the one before.
_FIRST_TRY_STEPS = 4_000_000
_GROWTH = 2


@dataclass(slots=True, eq=False)
class Spans:
    """What is known of the spans of one part: those below `low` ticks are refuted.

    `deepen` goes on with the proof for as long as it is paid for.

    `least_s` is a bound from elsewhere, `most_s` the span of a list schedule. `exact` says that
    durations are whole ticks; else they are rounded down. `high` is the least span that is known to
    be possible, or that these rules cannot refute. The next try may take `effort` steps.
    """

    least_s: float
    most_s: float
    tick_s: float
    exact: bool
    low: int
    high: int
    problem: Problem
    packing: Packing
    tail: Ints
    spent: int = 0
    _known: int = 0
    effort: int = _FIRST_TRY_STEPS
    _quick: bool = True
    _step: int = 1

    @property
    def settled(self) -> bool:
        """Whether no more work can raise the bound."""
        return self.low >= self.high

    @property
    def bound_s(self) -> float:
        """The bound so far, s."""
        # Only a span that was refuted may be rounded up.
        if self.low == self._known and not self.exact:
            return self.least_s
        return max(self.least_s, min(self.low * self.tick_s * (1 - 1e-12), self.most_s))

    def deepen(self, work: int) -> None:
        """Spend about `work` more steps on the bound; less than `effort` at a time is in vain."""
        until = self.spent + work
        if self._quick:
            self._quick = False
            self._bisect(until)
        while not self.settled and self.spent < until:
            self._try(until)

    def _bisect(self, until: int) -> None:
        """Narrow the spans by the quick rules, as far as these decide."""
        high = self.high
        while self.low < high and self.spent < until:
            span = (self.low + high - 1) // 2
            if self._refuted(span, until - self.spent, False):
                self.low = span + 1
            else:
                high = span

    def _try(self, until: int) -> None:
        """Try a span by all rules: steps grow while spans are refuted, effort where one is not."""
        span = min(self.low + self._step - 1, self.high - 1)
        allowed = min(self.effort, until - self.spent)
        if self._refuted(span, allowed, True):
            self.low = span + 1
            self._step *= 2
        elif self.problem.work[SPENT] < self.problem.work[LIMIT]:
            # The search ended before its limit, so no rule refutes this span.
            self.high = span
            self._step = 1
        elif self._step > 1:
            self._step = 1
        else:
            self.effort *= _GROWTH

    def _refuted(self, span: int, work: int, deep: bool) -> bool:
        self.problem.work[:] = 0, work
        found = bool(refuted(self.problem, self.packing, span, self.tail, deep))
        self.spent += int(self.problem.work[SPENT])
        return found


def spans_of(
    dag: Dag, machines: Machines, least_s: float, head: Floats, tail: Floats
) -> Spans | None:
    """Return what to refute in a part; None where a list schedule takes `least_s`, or it is large.

    `head`, `tail` (n,) are what each task has before and after it, s.
    """
    if not 2 <= dag.tasks <= PROOF_TASKS_MAX:
        return None
    most_s = min(
        float((start_s + dag.duration_s).max())
        for _, start_s in (by_path(dag, machines), by_level(dag, machines))
    )
    if least_s >= most_s * (1 - _SURE) or most_s <= 0:
        return None
    tick_s, length, exact = _ticks(dag.duration_s, most_s)
    problem, packing = _problem(dag, machines, length)
    problem.early[0] = np.floor(head / tick_s + _SURE).astype(np.int64)
    low = int(np.ceil(least_s / tick_s * (1 - _SURE)))
    return Spans(
        least_s=least_s,
        most_s=most_s,
        tick_s=tick_s,
        exact=exact,
        low=low,
        high=int(np.floor(most_s / tick_s * (1 + _SURE))),
        problem=problem,
        packing=packing,
        tail=np.floor(tail / tick_s + _SURE).astype(np.int64),
        _known=low,
    )


def _ticks(duration_s: Floats, most_s: float) -> tuple[float, Ints, bool]:
    """Return a tick, the durations in ticks, and whether they are exact (else rounded down)."""
    for digits in range(7):
        scaled = duration_s * 10.0**digits
        whole = np.rint(scaled)
        if np.all(np.abs(scaled - whole) <= 1e-9 * np.maximum(whole, 1e-3)):
            ticks = whole.astype(np.int64)
            unit = max(int(np.gcd.reduce(ticks)), 1)
            if most_s * 10.0**digits / unit <= 1 << 30:
                return unit * 10.0**-digits, ticks // unit, True
    tick_s = most_s / _TICKS_PER_SPAN
    return tick_s, np.floor(duration_s / tick_s).astype(np.int64), False


def _problem(dag: Dag, machines: Machines, length: Ints) -> tuple[Problem, Packing]:
    n = dag.tasks
    share, kind = loads(dag, machines)
    need = np.floor(share[kind].T * _UNITS_PER_RESOURCE * (1 - _SURE)).astype(np.int64)
    room = np.full(len(need), _UNITS_PER_RESOURCE, np.int64)
    scarce = need.sum(axis=1) > room
    real = np.arange(len(need)) < dag.demand.shape[1]
    apart = np.zeros((n, n), np.int8)
    for row in np.unique(need[scarce], axis=0):
        apart |= (row[:, None] + row[None, :] > _UNITS_PER_RESOURCE).astype(np.int8)
    weight = np.where(real, np.inf, need @ length)
    useful = np.flatnonzero(scarce)[np.argsort(-weight[scarce], kind="stable")]
    _, first = np.unique(need[useful], axis=0, return_index=True)
    useful = useful[np.sort(first)][: max(_COLUMNS_MAX, int((scarce & real).sum()))]
    need = np.ascontiguousarray(need[useful])
    before = _before(dag)
    apart[before | before.T] = 0
    apart[length == 0] = 0
    apart[:, length == 0] = 0
    np.fill_diagonal(apart, 0)
    near = before & ~((before.astype(np.float32) @ before.astype(np.float32)) > 0)
    parent, child = np.nonzero(near)
    never = (apart.astype(bool) | before | before.T).astype(np.int8)
    problem = Problem(
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
    if (
        not 1 < machines.count <= _DISTINCT_MACHINES_MAX
        or machines.count * n > _TASK_MACHINE_PAIRS_MAX
    ):
        return problem, packing_of(length, [need], [problem.room], never)
    needs = []
    for capacity in machines.capacity:
        with np.errstate(divide="ignore", invalid="ignore"):
            held = np.where(dag.demand > 0, dag.demand / capacity, 0.0).T
        # A share of 2 stands for every demand that no machine can hold.
        held = np.minimum(held, 2.0)
        needs.append(np.floor(held * _UNITS_PER_RESOURCE * (1 - _SURE)).astype(np.int64))
    rooms = [np.full(len(held), _UNITS_PER_RESOURCE, np.int64) for held in needs]
    alike = bool(np.all(machines.capacity == machines.capacity[0]))
    return problem, packing_of(length, needs, rooms, never, alike)


def _before(dag: Dag) -> np.ndarray:
    """Return whether task i ends before j starts as before[i, j], shape (n, n)."""
    before = np.zeros((dag.tasks, dag.tasks), bool)
    for dependency in dependencies_of(dag).dependencies:
        if dependency.pairs is None:
            above, below = dag.tasks_of(dependency.parent), dag.tasks_of(dependency.child)
            before[above.start : above.stop, below.start : below.stop] = True
        else:
            before[dependency.pairs] = True
    while True:
        matrix = before.astype(np.float32)
        more = before | (matrix @ matrix > 0)
        if np.array_equal(more, before):
            return before
        before = more
