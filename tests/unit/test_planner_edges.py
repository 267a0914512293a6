"""Where rounding decides: one event or two, whole ticks, and what counts as known."""

import itertools
import math

import numpy as np
import pytest

from am.plan import optimal
from am.plan.exact_model import _whole_ticks
from am.plan.list_schedule import in_order
from am.plan.part import Grid
from am.plan.part_kernels import longest
from am.plan.registry import PlanRequest, planner
from am.plan.search import PreparedPart
from am.plan.validate import violations
from am.progress import Progress
from testkit.examples import Table, load, read_dag, read_machines
from testkit.master import stage
from weft.model.dag import Dag, Link, Machines, StageEdge
from weft.model.job import Job


def test_ends_that_differ_by_rounding_are_one_event() -> None:
    """0.1 + 0.2 and 0.3: the task that needs both rooms starts before one that needs the first."""
    duration = np.array([0.1, 0.2, 0.3, 1.0, 1.0])
    assert duration[0] + duration[1] != duration[2]
    demand = np.array([[0.5], [0.5], [0.5], [1.0], [0.5]])
    dag = Dag(("r",), tuple("abcde"), np.arange(6), duration, demand, (StageEdge(0, 1, Link.ALL),))
    _, start = in_order(dag, Machines.alike(1, [1.0]), np.arange(5))
    assert start[3] == pytest.approx(0.3)
    assert start[4] == pytest.approx(1.3)


def test_durations_that_are_no_decimals_are_rounded_up_to_ticks() -> None:
    """A task of a plan in ticks is never shorter than it is."""
    duration = np.array([math.pi, math.e, 1.0])
    tick_s, ticks = _whole_ticks(duration, 20.0, 1 << 20)
    assert (ticks * tick_s >= duration * (1 - 1e-9)).all()
    assert (ticks * tick_s <= duration + tick_s).all()
    assert _whole_ticks(np.array([0.5, 1.25]), 20.0, 1 << 20)[1].tolist() == [2, 5]


@pytest.mark.slow
def test_an_exact_plan_with_such_durations_breaks_no_rule() -> None:
    """Figure 2 stretched by pi: the optimum is found and stays valid."""
    pytest.importorskip("ortools", reason="needs weft-rm[optimal]")
    (case,) = [c for c in load() if c["id"] == "graphene_fig2"]
    dag, _ = read_dag(Table(case["input"]["dag"]))
    machines = read_machines(Table(case["input"]["cluster"]), dag.resources)
    stretched = Dag(
        dag.resources, dag.stage_names, dag.first, dag.duration_s * math.pi, dag.demand, dag.edges
    )
    plan = planner("optimal")(
        PlanRequest(stretched, machines, np.random.default_rng(0), {"time_limit_s": "15"})
    )
    assert violations(stretched, machines, plan.machine, plan.start_s, plan.end_s) == []
    wanted = case["expected"]["makespan_exact"]["OPT"] * math.pi
    assert plan.makespan_s == pytest.approx(wanted, rel=1e-5)


def test_the_exact_planner_has_no_limit_of_effort_unless_told() -> None:
    """As its text says: 60 s, and no limit in the solver's own time."""
    assert optimal._read({}) == {"time_limit_s": 60.0, "effort": 0.0}
    assert optimal._read({"effort": "2"})["effort"] == 2.0


def test_an_early_end_of_a_task_that_is_not_the_job_s_counts_nothing() -> None:
    """Neither a stage nor a task beyond the job's own, on either side."""
    progress = Progress(Job("j", (stage("a", 2),)))
    for position, task in ((0, 99), (9, 0), (-1, 0), (0, -1), (0, 2), (1, 0)):
        assert not progress.finish_early(position, task)
    assert progress.finished == 0
    assert progress.finish_early(0, 1)
    assert not progress.finish_early(0, 1)
    assert progress.finished == 1


def one_stage(duration: list[float], demand: list[float]) -> Dag:
    rows = np.array(demand).reshape(-1, 1)
    first = np.array([0, len(duration)])
    return Dag(("r",), ("s",), first, np.array(duration), rows, ())


@pytest.mark.parametrize("name", ["graphene", "graphene_plus"])
def test_tasks_without_a_duration_take_no_time(name: str) -> None:
    """Five of a whole machine each, one after another at one instant, then one of 2 s."""
    dag = one_stage([0.0] * 5 + [2.0], [1.0] * 6)
    options = {"iterations": 3} if name == "graphene_plus" else {}
    request = PlanRequest(dag, Machines.alike(1, [1.0]), np.random.default_rng(1), options)
    plan = planner(name)(request)
    assert plan.makespan_s == 2.0
    assert (plan.end_s - plan.start_s).tolist() == [0.0] * 5 + [2.0]


@pytest.mark.parametrize(("duration", "bypass"), [([2.0] * 4, True), ([1.0, 2.0, 3.0, 4.0], False)])
def test_only_a_stage_of_equal_tasks_is_placed_without_a_search(
    duration: list[float], bypass: bool
) -> None:
    """Whoever starts first of equal, free tasks is no matter; of unlike ones it is."""
    dag = one_stage(duration, [0.4] * 4)
    request = PlanRequest(
        dag, Machines.alike(1, [1.0]), np.random.default_rng(1), {"early_stop": False}
    )
    (part,) = planner("graphene")(request).explain["parts"]
    assert part.get("bypass", False) is bypass


def test_who_watches_the_search_is_told_each_better_plan_to_the_last() -> None:
    told: list[tuple[float, float]] = []
    dag = one_stage([3.0, 5.0, 7.0, 11.0, 2.0], [0.5, 0.6, 0.3, 0.4, 0.2])
    request = PlanRequest(
        dag,
        Machines.alike(1, [1.0]),
        np.random.default_rng(1),
        {"iterations": 10},
        watch=lambda makespan_s, bound_s: told.append((makespan_s, bound_s)),
    )
    plan = planner("graphene_plus")(request)
    assert told[-1][0] == pytest.approx(plan.makespan_s)
    assert all(after[0] <= before[0] for before, after in itertools.pairwise(told))
    assert all(bound <= makespan * (1 + 1e-9) for makespan, bound in told)


def test_the_longest_path_goes_through_gates_links_and_pairs() -> None:
    """a (1 s, 3 s), all to all b (2 s, 2 s), one to one c (1 s, 4 s), one pair d (1 s, 1 s)."""
    duration = np.array([1.0, 3.0, 2.0, 2.0, 1.0, 4.0, 1.0, 1.0])
    edges = (
        StageEdge(0, 1, Link.ALL),
        StageEdge(1, 2, Link.ONE),
        StageEdge(2, 3, Link.SOME, np.array([[5, 6]])),
    )
    dag = Dag(("r",), tuple("abcd"), np.arange(0, 9, 2), duration, np.full((8, 1), 0.1), edges)
    machines = Machines.alike(1, [1.0])
    prepared = PreparedPart.of(dag, machines, Grid.of(dag, machines))
    ahead, behind = np.empty_like(prepared.part.length), np.empty_like(prepared.part.length)
    longest(prepared.part, behind)
    longest(prepared.back, ahead)
    assert (behind * prepared.grid.tick_s).tolist() == [1.0, 3.0, 5.0, 5.0, 6.0, 9.0, 10.0, 1.0]
    assert (ahead * prepared.grid.tick_s).tolist() == [8.0, 10.0, 3.0, 7.0, 1.0, 5.0, 1.0, 1.0]
