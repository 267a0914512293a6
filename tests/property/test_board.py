"""The board is exact, and the planners that build on it give valid, repeatable plans."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from am.plan.bounds.bounds import bounds_of
from am.plan.part import Grid
from am.plan.registry import PlanRequest, Spread, planner
from am.plan.validate import violations
from testkit.board import Board
from weft.model.dag import Dag, Link, Machines, StageEdge
from weft.model.plan import Plan

RELAXED = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)


class NaiveBoard:
    """What the board must agree with: reservations in a list, every fit tried one by one."""

    def __init__(self, room: np.ndarray) -> None:
        self.room = room
        self.taken: list[tuple[int, int, int, np.ndarray]] = []

    def fits(self, machine: int, start: int, length: int, demand: np.ndarray) -> bool:
        mine = [t for t in self.taken if t[0] == machine]
        points = [start, *(t[1] for t in mine if start <= t[1] < start + length)]
        for point in points:
            used = sum((t[3] for t in mine if t[1] <= point < t[2]), np.zeros_like(demand))
            if np.any(used + demand > self.room[machine]):
                return False
        return True

    def fit(
        self, key: int, length: int, demand: np.ndarray, *, backward: bool
    ) -> tuple[int, int] | None:
        """(start, machine) of the first fit in the direction, ties to the lower machine."""
        best: tuple[int, int] | None = None
        for machine in range(len(self.room)):
            if np.any(demand > self.room[machine]):
                continue
            if backward:
                ends = sorted({key, *(t[1] for t in self.taken if t[1] < key)}, reverse=True)
                starts = [end - length for end in ends]
            else:
                starts = sorted({key, *(t[2] for t in self.taken if t[2] > key)})
            start = next(s for s in starts if self.fits(machine, s, length, demand))
            if best is None or (start > best[0] if backward else start < best[0]):
                best = (start, machine)
        return best

    def place(
        self, key: int, length: int, demand: np.ndarray, tasks: int, *, backward: bool
    ) -> list[tuple[int, int]]:
        done = []
        for _ in range(tasks):
            spot = self.fit(key, length, demand, backward=backward)
            assert spot is not None
            self.taken.append((spot[1], spot[0], spot[0] + length, demand))
            done.append(spot)
        return done


RUNS = st.lists(
    st.tuples(
        st.integers(-6, 12),  # key
        st.integers(1, 5),  # length
        st.tuples(st.integers(0, 4), st.integers(0, 4)),  # demand
        st.integers(1, 9),  # tasks
        st.booleans(),  # backward
    ),
    max_size=10,
)


@RELAXED
@given(st.lists(st.tuples(st.integers(4, 8), st.integers(4, 8)), min_size=1, max_size=4), RUNS)
def test_every_fit_is_the_naive_boards(room: list[tuple[int, int]], runs: list) -> None:
    """Runs of equal tasks land where tasks placed one by one would."""
    board = Board(Machines(np.array(room, dtype=float)), Grid(1.0, np.ones(2)))
    naive = NaiveBoard(np.array(room))
    for key, length, demand, tasks, backward in runs:
        need = np.array(demand, dtype=np.int64)
        wanted = naive.place(key, length, need, tasks, backward=backward)
        assert board.place(key, length, need, tasks, backward=backward) == wanted


@pytest.mark.slow
@RELAXED
@given(RUNS, RUNS, RUNS)
def test_undo_restores_exactly(before: list, after: list, more: list) -> None:
    """Profiles and span at a mark are the same after any placements and an undo, twice over."""
    board = Board(Machines.alike(5, [8, 8]), Grid(1.0, np.ones(2)), breakpoints=8)

    def put(runs: list) -> None:
        for key, length, demand, tasks, backward in runs:
            board.place(key, length, np.array(demand, np.int64), tasks, backward=backward)

    def seen() -> tuple:
        return board.span, [board.profile(m) for m in range(5)]

    put(before)
    mark, then = board.mark(), seen()
    put(after)
    inner, later = board.mark(), seen()
    put(more)
    board.undo(inner)
    assert seen() == later
    board.undo(mark)
    assert seen() == then
    put(after)
    assert seen() == later


def test_a_task_that_fits_nowhere_has_no_fit() -> None:
    """The board says so rather than searching for ever."""
    board = Board(Machines.alike(2, [1.0]), Grid(1.0, np.ones(1)))
    assert board.fit(0, 1, np.array([2])) is None
    with pytest.raises(ValueError, match="no machine"):
        board.place(0, 1, np.array([2]))


@st.composite
def dags(draw: st.DrawFn) -> tuple[Dag, Machines]:
    """Random DAGs: every kind of edge, tasks that differ, zero durations, unlike machines."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    stages = draw(st.integers(1, 7))
    sizes = rng.integers(1, 6, stages)
    first = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    tasks = int(first[-1])
    stage_of = np.repeat(np.arange(stages), sizes)
    duration = np.round(rng.choice([0.0, 0.1, 1.0, 2.5, 7.3], stages), 3)[stage_of]
    demand = np.round(rng.uniform(0, 1, (stages, 2)), 2)[stage_of]
    if draw(st.booleans()):  # tasks of a stage differ
        duration = duration * rng.choice([0.5, 1.0, 1.0], tasks)
        demand = demand * rng.choice([0.5, 1.0, 1.0], (tasks, 1))
    edges = []
    for child in range(1, stages):
        for parent in np.flatnonzero(rng.random(child) < 0.5).tolist():
            link = list(Link)[int(rng.integers(3))]
            pairs = None
            if link is Link.SOME:
                every = [
                    (p, c)
                    for p in range(first[parent], first[parent + 1])
                    for c in range(first[child], first[child + 1])
                ]
                chosen = rng.random(len(every)) < 0.4
                pairs = np.array([e for e, c in zip(every, chosen, strict=True) if c], np.int64)
                pairs = pairs.reshape(-1, 2)
            edges.append(StageEdge(parent, child, link, pairs))
    names = tuple(f"s{i}" for i in range(stages))
    machines = np.round(rng.uniform(0.5, 1.5, (int(rng.integers(1, 4)), 2)), 1)
    machines[0] = [1.5, 1.5] if rng.random() < 0.5 else [1.0, 1.0]
    dag = Dag(("a", "b"), names, first, duration, demand, tuple(edges))
    return dag, Machines(machines[np.arange(4) % len(machines)])


OPTIONS = st.fixed_dictionaries(
    {
        "frag": st.sampled_from(["both", "ratio", "steady"]),
        "rule": st.sampled_from(["longest", "cp", "both"]),
        "t_both": st.booleans(),
        "early_stop": st.booleans(),
    }
)


def _plan(name: str, case: tuple[Dag, Machines], options: dict, **more: object) -> Plan:
    rng = np.random.default_rng(7)
    return planner(name)(PlanRequest(*case, rng, options, **more))  # type: ignore[arg-type]


@pytest.mark.slow
@RELAXED
@given(dags(), OPTIONS)
def test_graphenes_plans_are_valid_and_not_below_the_bound(
    case: tuple[Dag, Machines], options: dict
) -> None:
    """The independent validator finds nothing, and no bound is beaten."""
    plan = _plan("graphene", case, options)
    assert violations(*case, plan.machine, plan.start_s, plan.end_s) == []
    strong = bounds_of(*case).strong_lb_s
    assert plan.makespan_s >= strong * (1 - 1e-9)
    assert sorted(plan.order.tolist()) == list(range(case[0].tasks))


@pytest.fixture(scope="module")
def two_cores() -> Iterator[Spread]:
    """A pool of two threads, with every part large enough to be spread."""
    with ThreadPoolExecutor(2) as pool:
        yield pool.map


@pytest.mark.slow
@RELAXED
@given(dags())
def test_graphene_plus_is_valid_and_never_worse(case: tuple[Dag, Machines]) -> None:
    """Its starts contain Graphene's, and it beats no bound."""
    plan = _plan("graphene_plus", case, {"iterations": 8})
    assert violations(*case, plan.machine, plan.start_s, plan.end_s) == []
    assert plan.makespan_s <= _plan("graphene", case, {}).makespan_s * (1 + 1e-12)
    assert plan.makespan_s >= bounds_of(*case).strong_lb_s * (1 - 1e-9)


@pytest.mark.slow
@RELAXED
@given(case=dags(), name=st.sampled_from(["graphene", "graphene_plus"]))
def test_one_core_and_two_give_equal_bytes(
    two_cores: Spread, case: tuple[Dag, Machines], name: str
) -> None:
    """The winner follows from the fixed order of candidates, not from who finished first."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("am.plan.search.THREADED_TASKS_MIN", 0)
        patch.setattr("am.plan.population.THREADED_TASKS_MIN", 0)
        options = {"iterations": 8} if name == "graphene_plus" else {"rule": "both"}
        one = _plan(name, case, options)
        two = _plan(name, case, options, workers=2, spread=two_cores)
    for field in ("machine", "start_s", "end_s", "order", "pri_score"):
        assert getattr(one, field).tobytes() == getattr(two, field).tobytes()


@pytest.mark.slow
@RELAXED
@given(dags(), st.sampled_from(["graphene", "graphene_plus"]))
def test_no_time_still_gives_a_valid_plan(case: tuple[Dag, Machines], name: str) -> None:
    """A time limit of 0 leaves the first candidate of each part."""
    plan = _plan(name, case, {}, time_left_s=lambda: 0.0)
    assert violations(*case, plan.machine, plan.start_s, plan.end_s) == []


@pytest.mark.slow
@RELAXED
@given(dags())
def test_graphene_is_never_longer_than_its_own_lists(case: tuple[Dag, Machines]) -> None:
    """The list schedules are candidates, unless the paper's own answer is asked for."""
    made = _plan("graphene", case, {})
    assert violations(*case, made.machine, made.start_s, made.end_s) == []
    lists = min(_plan(name, case, {}).makespan_s for name in ("bfs", "critical_path"))
    paper = _plan("graphene", case, {"candidates": "paper"}).makespan_s
    assert made.makespan_s <= min(lists, paper) * (1 + 1e-9)
    assert made.makespan_s >= min(lists, paper) * (1 - 1e-9)
