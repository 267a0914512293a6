"""Graphene's search, then docs/rules.md, rule 70: a population of schedules that breed.

The first generation are Graphene's candidates, list schedules on the DAG and on its mirror image,
and noise around the longest paths. The sequence of things tried follows from the request alone and
the best is kept, so a longer time limit never gives a worse plan, and no plan is worse than
Graphene's. Options: those of Graphene, and `iterations`: each is three serial insertions of all
tasks of a part (1000; where that is not set, less for a part of many tasks).
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace

import numpy as np

from am.plan.bounds.destructive_bound import Spans
from am.plan.bounds.strong_bound import strong_bound
from am.plan.options import SearchOptions, read_options, read_value
from am.plan.paths import dependencies_of
from am.plan.population import Inserter, evolve
from am.plan.registry import PlanRequest, planner
from am.plan.search import PreparedPart, Schedule, prepared_parts, search, simple
from weft.model.dag import Dag, Ints, Link, StageEdge
from weft.model.errors import InputError
from weft.model.json_types import Arguments, Options
from weft.model.plan import Plan, plan_of_starts

# These lists are tried beside those that Graphene's search ends with.
_EXTRA_START_LISTS = ("tetris", "coffman_graham")
_ITERATIONS = 1000
# An iteration inserts once, and twice more to justify the result.
_INSERTIONS_PER_ITERATION = 3
# Tasks times insertions of one part, unless the caller asks for a number of iterations.
_PLACED_MAX = 1_000_000
# Parts of more tasks are not searched a second time by Graphene's other rule.
_SECOND_SEARCH_TASKS_MAX = 2000
# Steps of proof before the search begins, and for each task that the search places: a tenth of its
# time.
_PROOF_STEPS_BEFORE_SEARCH = 30_000_000
_PROOF_STEPS_PER_PLACED_TASK = 500
_SEED_CANDIDATES = 4


@dataclass(slots=True, eq=False)
class _Best:
    """The best schedule of one part so far, and where its starts come from.

    `seeds` are the keys (n,) of the first generation; `spans` may raise the bound.
    """

    prepared: PreparedPart
    rng: np.random.Generator
    found: Schedule
    bound: int
    tried: int
    source: str = "graphene"
    seeds: list[Ints] = field(default_factory=list)
    spans: Spans | None = None

    @property
    def proven(self) -> bool:
        """Whether it has reached the part's bound."""
        return self.found.span <= self.bound

    def prove(self, work: int) -> bool:
        """Raise the bound for up to `work` steps in all; return whether it rose."""
        spans, known = self.spans, self.bound
        if spans is None:
            return False
        while not (spans.settled or self.proven) and spans.spent + spans.effort <= work:
            spans.deepen(spans.effort)
            self.bound = max(self.bound, self.prepared.reached(spans.bound_s))
        return self.bound > known

    def offer(self, schedule: Schedule, source: str) -> bool:
        """Take a schedule if it is shorter; return whether it was."""
        if schedule.span >= self.found.span:
            return False
        self.found, self.source = schedule, source
        return True


def parameters(options: Options) -> Arguments:
    """Return every option with its value; raises InputError for an unknown or wrong one."""
    search = asdict(read_options(options, also=("iterations",)))
    return search | {"iterations": _iterations(options)}


def _iterations(options: Options) -> int:
    iterations: int = read_value("iterations", options.get("iterations", _ITERATIONS), int)
    if iterations < 0:
        raise InputError("options.iterations", "expected at least 0")
    return iterations


def plan(request: PlanRequest) -> Plan:
    """Return the most compact schedule found; raises InputError for bad options or large tasks."""
    options = read_options(request.options, also=("iterations",))
    iterations = _iterations(request.options)
    grid, parts, pieces = prepared_parts(request)
    bests = [_first(prepared, request, options) for prepared in pieces]
    _tell(bests, request)
    for better in _improve(bests, request, options, iterations):
        if better:
            _tell(bests, request)
        if request.time_left_s() <= 0:
            break
    start = np.zeros(request.dag.tasks, np.int64)
    machine = np.zeros(request.dag.tasks, np.int64)
    begin = 0
    for tasks, best in zip(parts, bests, strict=True):
        start[tasks] = best.found.start + begin
        machine[tasks] = best.found.machine
        begin += best.found.span
    explain = [
        {"tasks": b.prepared.dag.tasks, **b.found.explain, "source": b.source, "proven": b.proven}
        for b in bests
    ]
    return plan_of_starts(
        "graphene_plus",
        request.dag,
        machine,
        grid.seconds(start),
        candidates=sum(best.tried for best in bests),
        explain={"parts": explain},
    )


def _tell(bests: list[_Best], request: PlanRequest) -> None:
    """Report the makespan so far and the bound, s."""
    tick_s = bests[0].prepared.grid.tick_s if bests else 0.0
    bound = sum(max(min(best.bound, best.found.span), 0) for best in bests)
    request.watch(sum(best.found.span for best in bests) * tick_s, bound * tick_s)


def _first(prepared: PreparedPart, request: PlanRequest, options: SearchOptions) -> _Best:
    """Return Graphene's own answer for a part, as `graphene` would give it."""
    found = search(prepared, request, options, also=_SEED_CANDIDATES)
    bound = -1
    spans = None
    if simple(prepared.dag):
        bound = found.span
    elif options.early_stop:
        bound = prepared.reached(prepared.bound_s(options.bound))
        if found.span > bound and options.bound != "new":
            _, spans = strong_bound(prepared.dag, prepared.machines)
    seed = int(request.rng.integers(2**63))
    seeds = [-schedule.start for schedule in (found, *found.also)]
    rng = np.random.default_rng(seed)
    source = str(found.explain.get("list", "graphene"))
    best = _Best(
        prepared, rng, replace(found, also=()), bound, found.candidates, source, seeds, spans
    )
    best.prove(_PROOF_STEPS_BEFORE_SEARCH)
    return best


def _improve(
    bests: list[_Best], request: PlanRequest, options: SearchOptions, iterations: int
) -> Iterator[bool]:
    """Do one piece of work between two yields, each part's in turn; yields whether it helped."""
    open_parts = [best for best in bests if not best.proven]
    for best in open_parts:
        if options.candidates != "lists" and best.prepared.dag.tasks <= _SECOND_SEARCH_TASKS_MAX:
            other = "longest" if options.rule == "cp" else "cp"
            more = search(
                best.prepared,
                request,
                replace(options, rule=other, frag="both", candidates="paper"),
                also=_SEED_CANDIDATES,
            )
            best.tried += more.candidates
            best.seeds += [-schedule.start for schedule in (more, *more.also)]
            yield best.offer(more, f"graphene with rule={other}")
    for best in open_parts:
        if best.prepared.dag.tasks <= _SECOND_SEARCH_TASKS_MAX:
            for name in _EXTRA_START_LISTS:
                yield _from_planner(best, request, name)
    turns = []
    for best in open_parts:
        insertions = _INSERTIONS_PER_ITERATION * iterations
        if "iterations" not in request.options:
            insertions = min(insertions, _PLACED_MAX // best.prepared.dag.tasks)
        turns.append(_bred(best, request, insertions))
    while turns:
        going = []
        for turn in turns:
            better = next(turn, None)
            if better is not None:
                going.append(turn)
                yield better
        turns = going


def _from_planner(best: _Best, request: PlanRequest, name: str) -> bool:
    """Add keys of another planner's starts, also mirrored in time; return False: none is proven."""
    if best.proven:
        return False
    dag = best.prepared.dag
    for turned in (dag, _reversed(dag)):
        rng = np.random.default_rng(best.rng.integers(2**63))
        made = planner(name)(replace(request, dag=turned, rng=rng, options={}))
        start_s = made.start_s if turned is dag else made.makespan_s - made.end_s
        best.seeds.append(-best.prepared.grid.ticks(start_s))
        best.tried += 1
    return False


def _bred(best: _Best, request: PlanRequest, insertions: int) -> Iterator[bool]:
    """Breed schedules of a part until one reaches the bound or the insertions are used."""
    inserter = Inserter(best.prepared, request)
    for found in evolve(inserter, best.rng, best.seeds, insertions):
        best.tried += inserter.taken()
        better = best.offer(found, "population")
        closer = best.prove(
            _PROOF_STEPS_BEFORE_SEARCH
            + _PROOF_STEPS_PER_PLACED_TASK * inserter.done * best.prepared.dag.tasks
        )
        yield better or closer
        request.progress(inserter.done, insertions)
        if best.proven:
            return


def _reversed(dag: Dag) -> Dag:
    """Return the DAG with every edge turned round."""
    edges = tuple(
        StageEdge(dependency.child, dependency.parent, Link.ALL)
        if dependency.pairs is None
        else StageEdge(
            dependency.child, dependency.parent, Link.SOME, np.column_stack(dependency.pairs[::-1])
        )
        for dependency in dependencies_of(dag).dependencies
    )
    return replace(dag, edges=edges)
