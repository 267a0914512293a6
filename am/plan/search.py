"""Graphene's BuildSchedule (figure 12): the most compact of many schedules.

For each part it searches the troublesome sets. Shared by the planners that begin with Graphene's
search. docs/rules.md, rules 17 to 32.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from am.plan import search_kernels as kernels
from am.plan.board import grown, scratch_of, space_of
from am.plan.board_kernels import FAR, OVERFLOW, Space
from am.plan.bounds.bounds import bounds_of
from am.plan.bounds.cuts import cut, split
from am.plan.list_schedule import by_level, by_path
from am.plan.options import SearchOptions
from am.plan.part import Grid, kinds_of, part_of, ranks_of
from am.plan.part_kernels import Part, Ranks, T, longest
from am.plan.placing_kernels import Scratch
from am.plan.registry import PlanRequest
from am.plan.scores import (
    dominant_shares,
    frag_scores,
    long_scores,
    steady_scores,
)
from am.plan.subsets import Candidate, Labels, candidates
from weft.model.dag import Dag, Floats, Ints, Machines
from weft.model.json_types import Json, Table
from weft.model.plan import ranges_of

# Smaller parts are searched on one core: threads would cost more than they save.
THREADED_TASKS_MIN = 200
# The ways before this one place T forward.
_BACKWARD_FROM = len(kernels.WAYS) // 2
# A span this close to a bound counts as having reached it.
_BOUND_TOLERANCE_FACTOR = 1 + 1e-9
# Steps of proof where the strong bound is asked for.
_STRONG_BOUND_STEPS = 30_000_000
# List schedules are made of floats.
_ROUNDING = 1e-12


Workspace = tuple[Space, Scratch]


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """Where a part's tasks lie: ticks from the part's own begin, machines, both shape (n,).

    `also` has others that were found on the way, where they were asked for.
    """

    start: Ints
    machine: Ints
    span: int
    candidates: int = 1
    explain: Table = field(default_factory=dict)
    also: tuple["Schedule", ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class PreparedPart:
    """One part made ready for the kernels: both ways round, with the ranks of each ready rule."""

    dag: Dag
    machines: Machines
    grid: Grid
    part: Part
    back: Part
    room: Ints
    kind: Ints
    dominant: Floats
    spare: list[Workspace] = field(default_factory=list)

    @classmethod
    def of(cls, dag: Dag, machines: Machines, grid: Grid) -> "PreparedPart":
        """Prepare a part; raises InputError where tasks wait for each other in a circle."""
        part = part_of(dag, machines, grid)
        room, dominant = grid.room(machines.capacity), dominant_shares(dag, machines)
        return cls(dag, machines, grid, part, part.reversed(), room, kinds_of(part), dominant)

    def ranks(self, rule: str) -> tuple[Ranks, Ranks]:
        """Return who goes first, forward and backward: the "longest" task or path to go ("cp")."""
        if rule == "longest":
            ranks = self.ranked(self.part.length)
            return ranks, ranks
        ahead, behind = np.empty_like(self.part.length), np.empty_like(self.part.length)
        longest(self.back, ahead)
        longest(self.part, behind)
        return self.ranked(ahead), self.ranked(behind)

    def ranked(self, first_key: Ints) -> Ranks:
        """Return ranks in which larger keys go first, shape (n,)."""
        return ranks_of(self.kind, first_key, self.dominant)

    def borrow(self) -> Workspace:
        """Return a workspace that no other thread uses; give it back to `spare`."""
        try:
            return self.spare.pop()
        except IndexError:
            return space_of(self.room, 4 * self.dag.tasks), scratch_of(self.part)

    def bound_s(self, name: str) -> float:
        """Return the part's lower bound by name, s: "strong", "fast" or "new"."""
        bounds = bounds_of(self.dag, self.machines, _STRONG_BOUND_STEPS if name == "strong" else 0)
        return bounds.new_lb_s if name == "new" else bounds.strong_lb_s

    def reached(self, bound_s: float) -> int:
        """Return the longest span that counts as having reached a bound, ticks."""
        return int(bound_s * _BOUND_TOLERANCE_FACTOR / self.grid.tick_s)


@dataclass(frozen=True, slots=True)
class _Trial:
    """What one candidate under one ready rule came to; span FAR where it lost early."""

    span: int
    way: int


def parts_of(request: PlanRequest) -> tuple[Grid, list[Ints], list[Dag]]:
    """Return the parts of a request in order: their tasks, and the DAG of each.

    Raises InputError where a task fits on no machine.
    """
    dag, machines = request.dag, request.machines
    machines.check_fits(dag)
    grid = Grid.of(dag, machines)
    parts = cut(dag)
    return grid, parts, split(dag, parts) if len(parts) > 1 else [dag]


def prepared_parts(request: PlanRequest) -> tuple[Grid, list[Ints], list[PreparedPart]]:
    """Return the parts of a request in order: their tasks, and each prepared; raises InputError."""
    grid, parts, dags = parts_of(request)
    return grid, parts, [PreparedPart.of(piece, request.machines, grid) for piece in dags]


def search(
    prepared: PreparedPart, request: PlanRequest, options: SearchOptions, also: int = 0
) -> Schedule:
    """Return the schedule of one part: Graphene's candidates, and the list schedules beside them.

    Same answer on any number of cores: the smallest span wins, ties go to the first candidate, and
    list schedules come last. `also`: keep so many other schedules.
    """
    if simple(prepared.dag):
        return _bypass(prepared, options)
    bound_s = prepared.bound_s(options.bound) if options.early_stop else 0.0
    stop = prepared.reached(bound_s) if options.early_stop else -1
    if options.candidates == "lists":
        lists = list_schedules(prepared, bound_s)
        best = min(lists, key=lambda schedule: schedule.span)
        return replace(best, candidates=len(lists), also=tuple(s for s in lists if s is not best))
    best = _by_sets(prepared, request, options, bound_s, stop, also)
    if options.candidates == "paper" or best.span <= stop:
        return best
    lists = list_schedules(prepared, bound_s)
    shortest = min(lists, key=lambda schedule: schedule.span)
    others = (*best.also, *lists)
    if shortest.span < best.span * (1 - _ROUNDING):
        others = (best, *best.also, *(s for s in lists if s is not shortest))
        best = replace(shortest, candidates=best.candidates)
    return replace(best, candidates=best.candidates + len(lists), also=others)


def list_schedules(prepared: PreparedPart, bound_s: float = 0.0) -> list[Schedule]:
    """Return the list schedules that Graphene is compared with: breadth first and critical path."""
    found = []
    for name, (machine, start_s) in (
        ("critical_path", by_path(prepared.dag, prepared.machines)),
        ("bfs", by_level(prepared.dag, prepared.machines)),
    ):
        start = np.rint(start_s / prepared.grid.tick_s).astype(np.int64)
        span = int((start + prepared.part.length).max(initial=0))
        explain = {
            "tasks": prepared.dag.tasks,
            "list": name,
            "span_s": span * prepared.grid.tick_s,
            "bound_s": bound_s,
        }
        found.append(Schedule(start, machine, span, 1, explain))
    return found


def _by_sets(
    prepared: PreparedPart,
    request: PlanRequest,
    options: SearchOptions,
    bound_s: float,
    stop: int,
    also: int,
) -> Schedule:
    """Return Graphene's own answer: every troublesome set, both headings of T, every order."""
    choices = _choices(prepared, options)
    ranks = [prepared.ranks(rule) for rule in options.rules]
    trials = len(choices) * len(ranks)
    # The best span so far; worse trials are cut short.
    limit = np.array([FAR], np.int64)

    def attempt(number: int) -> _Trial | None:
        if number > 0 and request.time_left_s() <= 0:
            return None
        candidate = choices[number // len(ranks)]
        trial = _try(prepared, candidate, ranks[number % len(ranks)], options, int(limit[0]))
        limit[0] = min(int(limit[0]), trial.span)
        return trial

    spread = request.spread if prepared.dag.tasks >= THREADED_TASKS_MIN else map
    best, winner, done = _Trial(FAR, 0), 0, 0
    # (span, number, way) of every trial that was the best so far.
    good: list[tuple[int, int, int]] = []
    for number, trial in enumerate(spread(attempt, range(trials))):
        if trial is None:
            break
        done += 1
        request.progress(done, trials)
        if trial.span < best.span:
            best, winner = trial, number
            good.append((trial.span, number, trial.way))
        if best.span <= stop:
            break
    candidate = choices[winner // len(ranks)]
    explain = _explain(prepared, candidate, best, options.rules[winner % len(ranks)], bound_s)
    made = _rebuild(prepared, candidate, ranks[winner % len(ranks)], best.way, done, explain)
    others = tuple(
        _rebuild(prepared, choices[number // len(ranks)], ranks[number % len(ranks)], way, 1, {})
        for _, number, way in good[:-1][-also:]
        if also > 0
    )
    return replace(made, also=others)


def simple(dag: Dag) -> bool:
    """Return whether any schedule without gaps is best: one stage of equal, free tasks."""
    if dag.stages != 1 or dag.edges:
        return False
    duration, demand = dag.duration_s, dag.demand
    return bool((duration == duration[:1]).all() and (demand == demand[:1]).all())


def in_waves(dag: Dag, machines: Machines, grid: Grid) -> Schedule | None:
    """Return the schedule of a simple part where all machines are alike; None for any other.

    It is what the search answers, without a board: the tasks fill machine after machine, and as
    many again begin when the first end.
    """
    if len(machines.kinds) != 1 or not simple(dag):
        return None
    tasks, room = dag.tasks, grid.room(machines.kinds)[0]
    need, length = (
        np.minimum(grid.units(dag.demand[:1])[0], room),
        grid.ticks(dag.duration_s[:1])[0],
    )
    used = need > 0
    each = min(tasks, int((room[used] // need[used]).min())) if used.any() else tasks
    wave, place = np.divmod(np.arange(tasks), each * machines.count)
    machine = place // each
    # Tasks without duration take no room, so all run on the first machine.
    if length == 0:
        wave, machine = np.zeros(tasks, np.int64), np.zeros(tasks, np.int64)
    explain = {"tasks": tasks, "bypass": True, "bypass_why": "simple"}
    return Schedule(wave * length, machine, int((wave[-1] + 1) * length), 1, explain)


def _bypass(prepared: PreparedPart, options: SearchOptions) -> Schedule:
    """Place everything forward once: for parts too simple to search."""
    label = np.zeros(prepared.dag.tasks, np.int8)
    candidate = Candidate(label, None, None, "bypass")
    explain = {"tasks": prepared.dag.tasks, "bypass": True, "bypass_why": "simple"}
    return _rebuild(prepared, candidate, prepared.ranks(options.rules[0]), 0, 1, explain)


def _choices(prepared: PreparedPart, options: SearchOptions) -> list[Candidate]:
    stage_of = prepared.dag.stage_of
    frags = []
    for variant in options.frags:
        if variant == "ratio":
            scores = frag_scores(prepared.dag, prepared.machines, prepared.grid)
        else:
            scores = steady_scores(prepared.dag, prepared.machines)
        frags.append((variant, scores[stage_of]))
    return candidates(
        prepared.part,
        prepared.back,
        long_scores(prepared.dag),
        frags,
        options.thresholds,
    )


def _try(
    prepared: PreparedPart,
    candidate: Candidate,
    ranks: tuple[Ranks, Ranks],
    options: SearchOptions,
    limit: int,
) -> _Trial:
    """Return the most compact schedule of a candidate, or FAR where its span is above `limit`."""
    workspace = prepared.borrow()
    ways = options.ways
    # The paper's version goes on from T's shorter placement only.
    if not options.t_both:
        alone = np.zeros_like(ways)
        alone[[0, _BACKWARD_FROM]] = 1
        workspace, trial = _run(prepared, workspace, candidate.label, ranks, alone, 1, FAR)
        ways = np.where(
            np.arange(len(ways)) // _BACKWARD_FROM == trial.way // _BACKWARD_FROM, ways, 0
        )
    workspace, trial = _run(prepared, workspace, candidate.label, ranks, ways, kernels.STEPS, limit)
    prepared.spare.append(workspace)
    return trial


def _run(
    prepared: PreparedPart,
    workspace: Workspace,
    label: Labels,
    ranks: tuple[Ranks, Ranks],
    ways: Labels,
    steps: int,
    limit: int,
) -> tuple[Workspace, _Trial]:
    best = np.empty(2, np.int64)
    views = kernels.Views(prepared.part, prepared.back, *ranks)
    while True:
        space, scratch = workspace
        kernels.try_orders(space, views, scratch, label, ways, steps, limit, best)
        if space.state[OVERFLOW] == 0:
            return workspace, _Trial(int(best[0]), int(best[1]))
        workspace = (grown(space), scratch)


def _rebuild(
    prepared: PreparedPart,
    candidate: Candidate,
    ranks: tuple[Ranks, Ranks],
    way: int,
    done: int,
    explain: Table,
) -> Schedule:
    """Build one schedule again, to keep it."""
    only = np.zeros(len(kernels.WAYS), np.int8)
    only[way] = 1
    workspace, trial = _run(
        prepared, prepared.borrow(), candidate.label, ranks, only, kernels.STEPS, FAR
    )
    start, machine = workspace[1].start, workspace[1].machine
    schedule = Schedule(start - start.min(), machine.copy(), trial.span, done, explain)
    prepared.spare.append(workspace)
    return schedule


def _explain(
    prepared: PreparedPart, candidate: Candidate, best: _Trial, rule: str, bound_s: float
) -> Json:
    """Return which candidate won, in the words of Graphene section 4.4 (|T|, share of the work)."""
    dominant = prepared.dominant * prepared.dag.duration_s
    inside = candidate.label == T
    work = float(dominant.sum())
    heading = "forward" if best.way < _BACKWARD_FROM else "backward"
    return {
        "tasks": prepared.dag.tasks,
        "long_at_least": candidate.long,
        "frag_at_most": candidate.frag,
        "frag": candidate.variant,
        "rule": rule,
        "troublesome": candidate.troublesome,
        "troublesome_share": candidate.troublesome / max(prepared.dag.tasks, 1),
        "troublesome_work_share": float(dominant[inside].sum()) / work if work > 0 else 0.0,
        "troublesome_ranges": ranges_of(inside),
        "order": kernels.WAY_NAMES[best.way],
        "heading": heading,
        "span_s": best.span * prepared.grid.tick_s,
        "bound_s": bound_s,
    }
