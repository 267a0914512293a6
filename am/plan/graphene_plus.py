"""Graphene's search, then docs/rules.md, rule 70: more starts, justification, local search.

The sequence of things tried follows from the request alone and the best is kept, so a longer time
limit never gives a worse plan, and no plan is worse than Graphene's. Options: those of Graphene,
and `iterations`: neighbours tried by the local search of a part (1000, less where it has many
tasks).
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from am.plan.bounds.paths import ties_of
from am.plan.options import SearchOptions, read_options, read_value
from am.plan.registry import PlanRequest, planner
from am.plan.search import Field, Schedule, fields_of, insert, search, simple
from weft.dag import Dag, Ints, Link, StageEdge
from weft.errors import InputError
from weft.plan import Plan, plan_of_starts

_STARTS = ("critical_path", "bfs", "tetris", "coffman_graham", "strip_part", "random")
_ITERATIONS = 1000
_INSERTIONS_MAX = 1_000_000  # tasks times neighbours of one part
_ROUND = 4  # neighbours tried between two looks at the best: as many cores help
_APART_MAX = 2000  # beyond so many tasks none is moved alone: equal ones are placed at once
_STEPS = (0.02, 0.3, 0.05, 0.1, 0.6, 0.2)  # of the span: how far starts are moved, in turn


@dataclass(slots=True, eq=False)
class _Best:
    """The best schedule of one part so far, and where its starts come from."""

    yard: Field
    rng: np.random.Generator
    found: Schedule
    bound: int
    tried: int
    source: str = "graphene"

    @property
    def proven(self) -> bool:
        """Whether it has reached the part's bound."""
        return self.found.span <= self.bound

    def offer(self, schedule: Schedule | None, source: str) -> None:
        """Take a schedule that is not longer: moving along a plateau finds the way down."""
        self.tried += 1
        if schedule is None or schedule.span > self.found.span:
            return
        if schedule.span < self.found.span:
            self.source = source
        self.found = schedule


def parameters(options: Mapping[str, Any]) -> dict[str, Any]:
    """Every option with its value; raises InputError for an unknown or wrong one."""
    search = asdict(read_options(options, also=("iterations",)))
    return search | {"iterations": _iterations(options)}


def _iterations(options: Mapping[str, Any]) -> int:
    iterations: int = read_value("iterations", options.get("iterations", _ITERATIONS), int)
    if iterations < 0:
        raise InputError("options.iterations", "expected at least 0")
    return iterations


def plan(request: PlanRequest) -> Plan:
    """The most compact schedule found; raises InputError for bad options or a task too large."""
    options = read_options(request.options, also=("iterations",))
    iterations = _iterations(request.options)
    grid, parts, fields = fields_of(request)
    bests = [_first(yard, request, options) for yard in fields]
    work = _improve(bests, request, options, iterations)
    while request.time_left_s() > 0 and next(work, False):
        pass
    start = np.zeros(request.dag.tasks, np.int64)
    machine = np.zeros(request.dag.tasks, np.int64)
    begin = 0
    for tasks, best in zip(parts, bests, strict=True):
        start[tasks] = best.found.start + begin
        machine[tasks] = best.found.machine
        begin += best.found.span
    explain = [{**b.found.explain, "source": b.source, "proven": b.proven} for b in bests]
    return plan_of_starts(
        "graphene_plus",
        request.dag,
        machine,
        grid.seconds(start),
        candidates=sum(best.tried for best in bests),
        explain={"parts": explain},
    )


def _first(yard: Field, request: PlanRequest, options: SearchOptions) -> _Best:
    """Graphene's own answer for a part, as `graphene` would give it."""
    found = search(yard, request, options)
    bound = -1
    if simple(yard.dag):
        bound = found.span
    elif options.early_stop:
        bound = yard.bound_ticks(options.bound)
    seed = int(request.rng.integers(2**63))
    return _Best(yard, np.random.default_rng(seed), found, bound, found.candidates)


def _improve(
    bests: list[_Best], request: PlanRequest, options: SearchOptions, iterations: int
) -> Iterator[bool]:
    """Do one piece of work between two yields, each part's in turn, until nothing is left."""
    for best in bests:
        if not best.proven:
            other = "longest" if options.rule == "cp" else "cp"
            more = search(best.yard, request, replace(options, rule=other, frag="both"))
            best.tried += more.candidates
            best.offer(more, f"graphene with rule={other}")
            yield True
    for name in _STARTS:
        for mirrored in (False, True):
            for best in bests:
                if not best.proven:
                    _from_planner(best, request, name, mirrored)
                    yield True
    rounds = [min(iterations, _INSERTIONS_MAX // b.yard.dag.tasks) // _ROUND for b in bests]
    for number in range(max(rounds, default=0)):
        for best, most in zip(bests, rounds, strict=True):
            if not best.proven and number < most:
                _round(best, request, number)
                yield True


def _from_planner(best: _Best, request: PlanRequest, name: str, mirrored: bool) -> None:
    """Insert in the order of another planner's starts, on the DAG or mirrored in time; justify."""
    dag = best.yard.dag
    rng = np.random.default_rng(best.rng.integers(2**63))
    turned = _reversed(dag) if mirrored else dag
    made = planner(name)(replace(request, dag=turned, rng=rng, options={}))
    start_s = made.makespan_s - made.end_s if mirrored else made.start_s
    source = f"{name}, mirrored" if mirrored else name
    best.offer(_justified(best.yard, best.yard.grid.ticks(start_s), best.found.span), source)


def _justified(yard: Field, starts: Ints, limit: int) -> Schedule | None:
    """Insert by starts, push all right by falling ends, then left by rising starts; the best."""
    first = insert(yard, -starts, backward=False)
    assert first is not None
    right = insert(yard, first.start + yard.part.length, backward=True)
    assert right is not None
    left = insert(yard, -right.start, backward=False, limit=min(limit, first.span - 1))
    return left or first


def _round(best: _Best, request: PlanRequest, number: int) -> None:
    """Move the best schedule's starts at random in a few ways, and insert in the new order."""
    yard, span = best.yard, best.found.span
    keys = []
    for turn in range(number * _ROUND, (number + 1) * _ROUND):
        shift = best.rng.normal(0.0, _STEPS[turn % len(_STEPS)] * span, yard.dag.tasks)
        keys.append(best.found.start + shift[_groups(best, turn)].astype(np.int64))
    for found in request.spread(lambda i: _justified(yard, keys[i], span), range(_ROUND)):
        best.offer(found, "local search")


def _groups(best: _Best, turn: int) -> Ints:
    """Who moves together, as numbers below n, shape (n,): a stage, tasks of one start, or each."""
    dag = best.yard.dag
    if turn % 3 == 0:
        return dag.stage_of
    if turn % 3 == 1 or dag.tasks > _APART_MAX:
        code = np.column_stack([dag.stage_of, best.found.start])
        _, group = np.unique(code, axis=0, return_inverse=True)
        return np.asarray(group).reshape(-1)
    return np.arange(dag.tasks)


def _reversed(dag: Dag) -> Dag:
    """The DAG with every edge turned round."""
    edges = tuple(
        StageEdge(tie.child, tie.parent, Link.ALL)
        if tie.pairs is None
        else StageEdge(tie.child, tie.parent, Link.SOME, np.column_stack(tie.pairs[::-1]))
        for tie in ties_of(dag).ties
    )
    return replace(dag, edges=edges)
