"""Any planner, any DAG: the plan is valid, bounds never lie, chance comes from the seed."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from am.plan.bounds.bounds import bounds_of
from am.plan.bounds.cuts import cut, split
from am.plan.paths import dependencies_of, heads, levels, tails
from am.plan.registry import PLANNERS, PlanRequest, planned, planner
from am.plan.reuse import plan_from_data, plan_key, plan_to_data
from am.plan.validate import violations
from weft.model.dag import Dag, Link, Machines, StageEdge
from weft.model.plan import Plan

FAST = [name for name in PLANNERS if name not in ("optimal", "graphene_plus")]
OPTIONS: dict[str, dict[str, Any]] = {"optimal": {"effort": 2}}
SETTINGS = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
DURATIONS = st.sampled_from([0.0, 0.0, 0.1, 0.3, 1.0, 1.0, 1.7, 2.0, 5.0])
DEMANDS = st.sampled_from([0.0, 0.05, 0.2, 1 / 3, 0.4, 0.5, 0.51, 0.7, 1.0])


@st.composite
def dags(draw: st.DrawFn, tasks_max: int = 4, stages_max: int = 5) -> Dag:
    """Small DAGs with every kind of edge, tasks of a stage alike or not, edges inside stages."""
    sizes = draw(st.lists(st.integers(1, tasks_max), min_size=1, max_size=stages_max))
    first = np.cumsum([0, *sizes])
    duration, demand = [], []
    for size in sizes:
        alike = draw(st.booleans())
        rows = [
            (draw(DURATIONS), draw(DEMANDS), draw(DEMANDS)) for _ in range(1 if alike else size)
        ]
        rows = rows * size if alike else rows
        duration += [row[0] for row in rows]
        demand += [row[1:] for row in rows]
    edges = []
    for parent, child in itertools.combinations(range(len(sizes)), 2):
        link = draw(st.sampled_from([None, None, Link.ALL, Link.ONE, Link.SOME]))
        if link is None:
            continue
        pairs = None
        if link is Link.SOME:
            every = list(
                itertools.product(
                    range(first[parent], first[parent + 1]), range(first[child], first[child + 1])
                )
            )
            chosen = draw(st.lists(st.sampled_from(every), min_size=1, max_size=6))
            pairs = np.array(chosen, dtype=np.int64)
        edges.append(StageEdge(parent, child, link, pairs))
    for stage, size in enumerate(sizes):
        if size > 1 and draw(st.integers(0, 9)) == 0:
            inside = np.array([[first[stage], first[stage] + 1]], dtype=np.int64)
            edges.append(StageEdge(stage, stage, Link.SOME, inside))
    return Dag(
        resources=("a", "b"),
        stage_names=tuple(f"s{i}" for i in range(len(sizes))),
        first=first.astype(np.int64),
        duration_s=np.array(duration, dtype=np.float64),
        demand=np.array(demand, dtype=np.float64).reshape(-1, 2),
        edges=tuple(edges),
    )


@st.composite
def machine_sets(draw: st.DrawFn, count_max: int = 3) -> Machines:
    """One machine on which every task fits, and others that may be smaller or larger."""
    others = draw(
        st.lists(
            st.tuples(st.sampled_from([0.4, 1.0, 1.5]), st.sampled_from([0.5, 1.0, 2.0])),
            max_size=count_max - 1,
        )
    )
    return Machines(np.array([(1.0, 1.0), *others]))


def make(name: str, dag: Dag, machines: Machines, seed: int = 0, **more: Any) -> Plan:
    options = dict(OPTIONS.get(name, {}))
    return planner(name)(PlanRequest(dag, machines, np.random.default_rng(seed), options, **more))


def check(dag: Dag, machines: Machines, plan: Plan) -> list[str]:
    return violations(dag, machines, plan.machine, plan.start_s, plan.end_s)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAST)
@SETTINGS
@given(dag=dags(), machines=machine_sets())
def test_every_plan_is_valid_and_no_bound_is_above_it(
    name: str, dag: Dag, machines: Machines
) -> None:
    """makespan >= strong >= NewLB >= max(CPLen, TWork), and the order is the starts' order."""
    plan = make(name, dag, machines)
    assert check(dag, machines, plan) == []
    bounds = bounds_of(dag, machines)
    slack = 1e-6 * max(plan.makespan_s, 1.0)
    assert plan.makespan_s >= bounds.strong_lb_s - slack
    assert bounds.strong_lb_s >= bounds.new_lb_s
    assert bounds.new_lb_s >= max(bounds.cp_len_s, bounds.t_work_s, bounds.mod_cp_s) - slack
    assert sorted(plan.order.tolist()) == list(range(dag.tasks))
    assert np.all(np.diff(plan.start_s[plan.order]) >= 0)
    assert plan.pri_score.max() == 1.0
    assert plan.pri_score.min() > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", FAST)
@settings(SETTINGS, max_examples=15)
@given(dag=dags(), machines=machine_sets(), data=st.data())
def test_every_plan_is_valid_on_machines_of_unlike_speeds(
    name: str, dag: Dag, machines: Machines, data: st.DataObject
) -> None:
    """Tasks last their duration over the machine's speed, and no bound is above the plan."""
    some = st.lists(
        st.sampled_from([0.5, 1.0, 3.0]), min_size=machines.count, max_size=machines.count
    )
    unlike = Machines(machines.capacity, np.array(data.draw(some)))
    options = {"transfer_s": data.draw(st.sampled_from([0.0, 0.7]))} if name == "heft" else {}
    plan = planned(name, PlanRequest(dag, unlike, np.random.default_rng(0), options))
    assert check(dag, unlike, plan) == []
    assert sorted(plan.order.tolist()) == list(range(dag.tasks))
    assert plan.makespan_s >= bounds_of(dag, unlike).strong_lb_s * (1 - 1e-6) - 1e-6


@pytest.mark.parametrize("name", [*PLANNERS])
@settings(SETTINGS, max_examples=8)
@given(dag=dags(), machines=machine_sets(), seed=st.integers(0, 3))
def test_no_time_left_still_gives_a_valid_plan(
    name: str, dag: Dag, machines: Machines, seed: int
) -> None:
    """A time limit of 0 is a limit on the search, not on the answer."""
    plan = make(name, dag, machines, seed, time_left_s=lambda: 0.0)
    assert check(dag, machines, plan) == []


@pytest.mark.parametrize("name", FAST)
@settings(SETTINGS, max_examples=10)
@given(dag=dags(), machines=machine_sets(), seed=st.integers(0, 3))
def test_equal_seeds_give_equal_plans_on_one_core_and_on_two(
    name: str, dag: Dag, machines: Machines, seed: int
) -> None:
    """Bit by bit: the plan depends on the request alone."""
    one = make(name, dag, machines, seed, workers=1)
    two = make(name, dag, machines, seed, workers=2)
    assert plan_to_data(one) == plan_to_data(two)
    kept = plan_from_data(plan_to_data(one))
    assert plan_to_data(kept) == plan_to_data(one)


@pytest.mark.slow
@settings(SETTINGS, max_examples=40)
@given(dag=dags(tasks_max=3, stages_max=4), machines=machine_sets(2))
def test_no_bound_exceeds_the_optimum(dag: Dag, machines: Machines) -> None:
    """CP-SAT is the judge: every bound is at most the proven optimum, which no planner beats."""
    pytest.importorskip("ortools", reason="needs weft-rm[optimal]")
    plan = make("optimal", dag, machines)
    assert check(dag, machines, plan) == []
    if not plan.explain["proven"]:
        return
    slack = 1e-6 * max(plan.makespan_s, 1.0)
    bounds = bounds_of(dag, machines)
    for name, value in bounds.as_dict().items():
        assert value <= plan.makespan_s + slack, name
    for name in FAST:
        assert make(name, dag, machines).makespan_s >= plan.makespan_s - slack, name


@SETTINGS
@given(dag=dags())
def test_cuts_are_sound_and_all_are_found(dag: Dag) -> None:
    """All before a cut precede all after it; no prefix by level with that property is missed."""
    import networkx

    graph = networkx.DiGraph(list(dag.task_edges()))
    graph.add_nodes_from(range(dag.tasks))
    ancestors = {task: networkx.ancestors(graph, task) for task in range(dag.tasks)}
    parts = cut(dag)
    assert sorted(np.concatenate(parts).tolist()) == list(range(dag.tasks))
    done: set[int] = set()
    for part in parts:
        assert all(done <= ancestors[int(task)] for task in part)
        done |= set(part.tolist())
    by_count = sorted(range(dag.tasks), key=lambda task: len(ancestors[task]))
    sound = sum(
        all(set(by_count[:k]) <= ancestors[task] for task in by_count[k:])
        for k in range(1, dag.tasks)
    )
    assert len(parts) == sound + 1


@pytest.mark.slow
@SETTINGS
@given(dag=dags())
def test_paths_by_stage_are_the_paths_by_task(dag: Dag) -> None:
    """Heads, tails and levels equal those over every single task edge."""
    dependencies = dependencies_of(dag)
    head, tail, level = (
        heads(dependencies, dag.duration_s),
        tails(dependencies, dag.duration_s),
        levels(dependencies),
    )
    edges = sorted(dag.task_edges(), key=lambda edge: level[edge[0]])
    slow_head, slow_tail = np.zeros(dag.tasks), np.zeros(dag.tasks)
    for parent, child in edges:
        assert level[parent] < level[child]
        slow_head[child] = max(slow_head[child], slow_head[parent] + dag.duration_s[parent])
    for parent, child in reversed(edges):
        slow_tail[parent] = max(slow_tail[parent], slow_tail[child] + dag.duration_s[child])
    assert head == pytest.approx(slow_head)
    assert tail == pytest.approx(slow_tail)


@SETTINGS
@given(dag=dags())
def test_splitting_keeps_exactly_the_edges_inside(dag: Dag) -> None:
    """A sub-DAG over some tasks has the task edges among them, no more and no less."""
    tasks = np.flatnonzero(np.arange(dag.tasks) % 3 != 1)
    if len(tasks) == 0:
        return
    (part,) = split(dag, [tasks])
    number = {int(task): i for i, task in enumerate(tasks)}
    inside = {(number[p], number[c]) for p, c in dag.task_edges() if p in number and c in number}
    assert set(part.task_edges()) == inside
    assert part.duration_s.tolist() == dag.duration_s[tasks].tolist()


@pytest.mark.slow
@SETTINGS
@given(dag=dags(), machines=machine_sets(), seed=st.integers(0, 999))
def test_the_validator_sees_what_is_wrong(dag: Dag, machines: Machines, seed: int) -> None:
    """A plan that is bent in one place has that kind of violation."""
    plan = make("bfs", dag, machines)
    task = seed % dag.tasks
    if plan.makespan_s == 0:
        return
    late = plan.end_s.copy()
    late[task] += 0.5 * plan.makespan_s
    found = violations(dag, machines, plan.machine, plan.start_s, late)
    assert any(line.startswith("duration") for line in found)
    nowhere = plan.machine.copy()
    nowhere[task] = machines.count
    found = violations(dag, machines, nowhere, plan.start_s, plan.end_s)
    assert found[0].startswith("completeness")
    heavy = Dag(dag.resources, dag.stage_names, dag.first, dag.duration_s, dag.demand * 9, ())
    if dag.demand[task].max() * 9 > machines.capacity.max():
        found = violations(heavy, machines, plan.machine, plan.start_s, plan.end_s)
        assert any(line.startswith("capacity") for line in found)
    children = [child for parent, child in dag.task_edges() if parent == task]
    if children and dag.duration_s[task] > 0:
        early = plan.start_s.copy()
        early[children[0]] = plan.start_s[task]
        found = violations(dag, machines, plan.machine, early, early + dag.duration_s)
        assert any(line.startswith("precedence") for line in found)


def test_a_plan_is_kept_for_equal_structure_only() -> None:
    """The key sees the DAG, the machines, the planner and its options; names do not count."""
    one = Dag(("a",), ("x",), np.array([0, 2]), np.array([1.0, 1.0]), np.array([[0.5], [0.5]]), ())
    renamed = Dag(("a",), ("y",), one.first, one.duration_s, one.demand, ())
    longer = Dag(("a",), ("x",), one.first, one.duration_s * 2, one.demand, ())
    two, three = Machines.alike(2, [1.0]), Machines.alike(3, [1.0])
    key = plan_key("k", one, two, "bfs", {"seed": 0})
    assert key == plan_key("k", renamed, two, "bfs", {"seed": 0})
    others = [
        plan_key("other", one, two, "bfs", {"seed": 0}),
        plan_key("k", longer, two, "bfs", {"seed": 0}),
        plan_key("k", one, three, "bfs", {"seed": 0}),
        plan_key("k", one, two, "tetris", {"seed": 0}),
        plan_key("k", one, two, "bfs", {"seed": 1}),
    ]
    assert key not in others
    assert len(set(others)) == len(others)
