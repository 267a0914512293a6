"""The worked examples of bounds, cuts, scores and planners, through what the masters call."""

from typing import Any

import numpy as np
import pytest

from am.plan.bounds.bounds import bounds_of
from am.plan.bounds.cuts import cut, split
from am.plan.list_schedule import in_order
from am.plan.part import Grid, part_of
from am.plan.part_kernels import C, P, S, T
from am.plan.paths import dependencies_of, tails
from am.plan.registry import PlanRequest, planner
from am.plan.scores import frag_scores, long_scores, stage_work_s, steady_scores
from am.plan.search import PreparedPart, _run, prepared_parts
from am.plan.search_kernels import STEPS, WAY_NAMES, WAYS
from am.plan.subsets import divided
from am.plan.validate import violations
from testkit.examples import Table, examples, read_dag, read_machines, read_types, reading
from testkit.matching import MatcherHarness
from weft.model.dag import Dag, Machines
from weft.model.plan import Plan, plan_of_starts, pri_scores
from weft.model.queues import QueueSpec
from weft.protocol.messages import Ask, AskType

BOUNDS = {"CPLen": "cp_len_s", "TWork": "t_work_s", "ModCP": "mod_cp_s", "NewLB": "new_lb_s"}
PLANNERS = {
    "CPSched": "critical_path",
    "Tetris": "tetris",
    "BFS": "bfs",
    "Graphene": "graphene",
    "OPT": "graphene_plus",
}
GRAPHENES = ("graphene", "graphene_plus")
BUILT = ("bounds", "fig2", "fig9", "fig10", "fig18", "lemma1")


def build(name: str, dag: Dag, machines: Machines, seed: int = 0, **options: Any) -> Plan:
    """A plan without violations."""
    plan = planner(name)(PlanRequest(dag, machines, np.random.default_rng(seed), options))
    assert violations(dag, machines, plan.machine, plan.start_s, plan.end_s) == []
    return plan


def packing_score(names: list[str], demand: Any, capacity: list[float]) -> float:
    """The pScore with which Graphene's matcher grants one task on an empty machine."""
    options = {"overbook": "", "eta_m": 0.0, "kappa": -1.0}
    prepared = MatcherHarness("graphene", options, QueueSpec("root"), read_types(names))
    node, app = prepared.add_node(tuple(capacity)), prepared.add_app("root")
    prepared.ask(app, Ask(1, 1, tuple(demand), 1.0, 1.0, AskType.DEFAULT, 0))
    (placed,) = prepared.match(node).placements
    return dict(placed.scores)["pack"]


def check_bounds(expected: Table, given: Table, dag: Dag, machines: Machines, abs_: float) -> None:
    """Each bound has the expected value; none exceeds the optimum where a literal formula does."""
    found = bounds_of(dag, machines)
    for name, attribute in BOUNDS.items():
        if name in expected:
            assert getattr(found, attribute) == pytest.approx(expected[name], abs=abs_), name
    if "strong_bound_at_least" in expected:
        assert found.strong_lb_s >= expected["strong_bound_at_least"] - abs_
    parts = cut(dag)
    if "valid_parts" in expected:
        assert len(parts) == expected["valid_parts"]
    if "parts" in given:
        check_parts(expected, given, dag, machines, abs_)
    for literal in ("literal_ModCP", "literal_stage_cut_value"):
        if literal in expected:  # the printed formula is no bound, ours is
            assert expected[literal] > expected["OPT"] >= found.strong_lb_s - abs_
    for stage, work in expected.get("TWork_by_stage", Table({})).items():
        at = dag.stage_names.index(stage)
        assert stage_work_s(dag, machines)[at] == pytest.approx(work, abs=abs_)
    for name in ("OPT", "OPT_exact"):
        if name in expected:
            assert found.strong_lb_s <= expected[name] + abs_


def check_parts(expected: Table, given: Table, dag: Dag, machines: Machines, abs_: float) -> None:
    """The paper's parts are unions of ours, which are cut wherever a cut is sound."""
    parts = cut(dag)
    stage_of = np.repeat(np.arange(len(dag.stage_names)), np.diff(dag.first))
    found = [{dag.stage_names[stage_of[v]] for v in part} for part in parts]
    bound = [bounds_of(part, machines).new_lb_s for part in split(dag, parts)]
    for names, value in zip(given["parts"], expected["NewLB_parts"], strict=True):
        inside = [n for n, part in enumerate(found) if part <= set(names)]
        assert set().union(*(found[n] for n in inside)) == set(names)
        assert sum(bound[n] for n in inside) == pytest.approx(value, abs=abs_)


def check_planners(
    expected: Table, given: Table, dag: Dag, machines: Machines, tolerance: Table
) -> None:
    """Planners take exactly as long as the constructions say; Graphene finds the optimum."""
    abs_ = tolerance.get("abs", 1e-6)
    exact = max(tolerance.get("exact_abs", 0), tolerance.get("opt_abs", 0), 1e-6)
    took = {ours: build(ours, dag, machines).makespan_s for ours in PLANNERS.values()}
    exactly = expected.get("makespan_exact", Table({}))
    assert all(key == "OPT" or key.startswith("list_order_") for key in exactly), list(exactly)
    optimum = expected.get("OPT", expected.get("OPT_exact", exactly.get("OPT")))
    if "OPT" in expected or "OPT_exact" in expected or optimum is not None:
        for name in GRAPHENES:
            assert took[name] == pytest.approx(optimum, abs=exact), name
    for theirs, ours in PLANNERS.items():
        for key in (theirs, f"{theirs}_exact"):
            if theirs != "OPT" and key in expected:
                assert took[ours] == pytest.approx(expected[key], abs=abs_), key
        if theirs in expected.get("makespan_over_T", Table({})):
            ratio = took[ours] / given["T"]
            assert ratio == pytest.approx(expected["makespan_over_T"][theirs], abs=abs_), theirs
    if "Graphene_at_most" in expected:
        assert took["graphene"] <= expected["Graphene_at_most"] + exact
    for key, ours in (("CPSched_over_OPT_approx", "critical_path"), ("ratio_approx", "tetris")):
        if key in expected:
            ratio = took[ours] / optimum
            assert ratio == pytest.approx(expected[key], abs=tolerance["ratio_abs"])


def check_orders(
    expected: Table, given: Table, dag: Dag, ids: list[str], machines: Machines, tolerance: Table
) -> None:
    """Start orders, path lengths, packing scores and list schedules that are said by name."""
    exact = tolerance.get("exact_abs", 1e-6)
    for key, ours in (("cpsched_start_order", "critical_path"), ("tetris_start_order", "tetris")):
        if key in expected:
            start = build(ours, dag, machines).start_s[[ids.index(t) for t in expected[key]]]
            assert (np.diff(start) >= -1e-9).all(), key
    paths = tails(dependencies_of(dag), dag.duration_s) + dag.duration_s
    for name, length in expected.get("cp_lengths", Table({})).items():
        assert paths[ids.index(name)] == pytest.approx(length, abs=exact)
    capacity = list(machines.capacity[0])
    names = list(dag.resources)
    scores = {
        i: packing_score(names, dag.demand[ids.index(i)], capacity)
        for i in expected.get("packing_scores", {})
    }
    for name, score in scores.items():
        assert score == pytest.approx(expected["packing_scores"][name], abs=exact)
    if "tetris_score_empty_machine" in given:
        assert sorted(scores, key=lambda i: -scores[i]) == given["tetris_score_empty_machine"]
    for key, value in expected.get("makespan_exact", Table({})).items():
        if key.startswith("list_order_"):
            order = np.array([ids.index(t) for t in key.removeprefix("list_order_").split("_")])
            machine, start_s = in_order(dag, machines, order)
            plan = plan_of_starts("list", dag, machine, start_s)
            assert plan.makespan_s == pytest.approx(value, abs=exact)


def check_lemma_1(expected: Table, given: Table, dag: Dag, machines: Machines, rel: float) -> None:
    """Oblivious schedulers take k d in the worst case, and (d - 1)(k + 1) / 2 + k on average."""
    assert given["d"] == len(dag.resources)
    assert given["k"] * given["d"] == dag.tasks
    given.prose("oblivious_order")
    assert build("bfs", dag, machines).makespan_s == expected["oblivious_makespan"]
    blind = [build("random", dag, machines, seed).makespan_s for seed in range(400)]
    assert np.mean(blind) == pytest.approx(expected["oblivious_random_expected"], rel=rel)


@examples(*BUILT)
def test_bounds_and_planners(case: dict[str, Any]) -> None:
    """Every number that an example states about its DAG."""
    with reading(case) as (given, expected, tolerance):
        dag, ids = read_dag(given["dag"])
        machines = read_machines(given["cluster"], dag.resources)
        if "epsilon" in given:
            assert dag.duration_s.min() == pytest.approx(given["epsilon"])
        if "n" in given:  # figure 9: so many long tasks, each behind a wide one
            assert dag.tasks == 2 * given["n"]
        check_bounds(expected, given, dag, machines, tolerance.get("abs", 1e-6))
        check_planners(expected, given, dag, machines, tolerance)
        check_orders(expected, given, dag, ids, machines, tolerance)
        if case["family"] == "lemma1":
            check_lemma_1(expected, given, dag, machines, tolerance["expectation_rel"])
        elif "d" in given:
            assert given["d"] == len(dag.resources)


@pytest.mark.slow
@examples(*BUILT)
def test_cp_sat_finds_the_expected_optimum(case: dict[str, Any]) -> None:
    """The exact planner reaches the optimum that the derivation states."""
    pytest.importorskip("ortools", reason="needs weft-rm[optimal]")
    expected = case["expected"]
    exact = expected.get("makespan_exact", {}).get("OPT")
    optimum = expected.get("OPT_exact", exact if exact is not None else expected.get("OPT"))
    if optimum is None:
        return
    dag, _ = read_dag(Table(case["input"]["dag"]))
    machines = read_machines(Table(case["input"]["cluster"]), dag.resources)
    found = build("optimal", dag, machines, time_limit_s=5.0).makespan_s
    assert found == pytest.approx(optimum, abs=case["tolerance"].get("abs", 1e-6))


@examples("scores")
def test_scores_are_those_of_section_4_1(case: dict[str, Any]) -> None:
    """TWork, ExecTime, LongScore and both FragScores, stage by stage."""
    with reading(case) as (given, expected, tolerance):
        dag, _ = read_dag(given["dag"])
        machines = read_machines(given["cluster"], dag.resources)
        grid = Grid.of(dag, machines)
        work, frag = stage_work_s(dag, machines), frag_scores(dag, machines, grid)
        found = {
            "TWork": work,
            "ExecTime": [w / f for w, f in zip(work, frag, strict=True)],
            "FragScore": frag,
            "LongScore": long_scores(dag)[dag.first[:-1]],
            "FragScore_steady": steady_scores(dag, machines),
        }
        for name, values in found.items():
            for stage, value in expected.get(name, Table({})).items():
                at = dag.stage_names.index(stage)
                assert values[at] == pytest.approx(value, abs=tolerance["abs"]), (name, stage)


@examples("subsets")
def test_subsets_are_closed_and_every_order_is_free_of_dead_ends(case: dict[str, Any]) -> None:
    """T is closed; P, S and C are what figure 13 says; each order ends in the said span."""
    with reading(case) as (given, expected, tolerance):
        dag, ids = read_dag(given["dag"])
        machines = read_machines(given["cluster"], dag.resources)
        seeds = given["seed_tasks" if "seed_tasks" in given else "troublesome"]
        scores = long_scores(dag)
        if "long_threshold" in given:
            chosen = np.flatnonzero(scores >= given["long_threshold"] - 1e-12)
            assert sorted(ids[v] for v in chosen) == sorted(seeds)
        for name, value in expected.get("LongScore", Table({})).items():
            assert scores[ids.index(name)] == pytest.approx(value, abs=tolerance["abs"])
        part = part_of(dag, machines, Grid.of(dag, machines))
        marked = np.array([name in seeds for name in ids], np.int8)
        label = divided(part, part.reversed(), marked)
        for name, number in (("T", T), ("S", S), ("P", P), ("C", C)):
            found = sorted(ids[v] for v in np.flatnonzero(label == number))
            assert found == sorted(expected[name]), name
        if "OPT" in expected:
            for name in GRAPHENES:
                took = build(name, dag, machines).makespan_s
                assert took == pytest.approx(expected["OPT"], abs=tolerance["abs"])
        if "span_of_each_valid_order" in expected:
            check_spans(dag, machines, marked, expected["span_of_each_valid_order"])
        if "tpcs_feasible" in expected:
            check_dead_end(given["dag"], machines, expected)


def check_spans(dag: Dag, machines: Machines, marked: Any, wanted: float) -> None:
    """Each way through T, S, P and C alone."""
    request = PlanRequest(dag, machines, np.random.default_rng(0), {})
    field = PreparedPart.of(dag, request.machines, prepared_parts(request)[0])
    label = divided(field.part, field.back, marked)
    for way in range(len(WAYS)):
        only = np.zeros(len(WAYS), np.int8)
        only[way] = 1
        _, trial = _run(field, field.borrow(), label, field.ranks("longest"), only, STEPS, 1 << 61)
        if trial.way >= 0:  # the others repeat an earlier way
            assert trial.span * field.grid.tick_s == pytest.approx(wanted)


def check_dead_end(table: Table, machines: Machines, expected: Table) -> None:
    """S last would have to fit between P and C, where T uses everything: no way does that."""
    assert expected["tpcs_feasible"] is ("TPCS" in WAY_NAMES or "TCPS" in WAY_NAMES)
    (last,) = expected["S"]
    without = {
        **table,
        "tasks": [
            {**row, "parents": [p for p in row["parents"] if p != last]}
            for row in table["tasks"]
            if row["id"] != last
        ],
    }
    dag, ids = read_dag(Table(without))
    plan = build("graphene", dag, machines)
    (before,), (after,) = expected["P"], expected["C"]
    gap = [plan.end_s[ids.index(before)], plan.start_s[ids.index(after)]]
    assert gap == pytest.approx(expected["tpcs_gap_for_s"])


@examples("priscore")
def test_pri_scores_share_ties(case: dict[str, Any]) -> None:
    """(n - tasks that start strictly earlier) / n."""
    with reading(case) as (given, expected, tolerance):
        assert given["ties"] == "equal"
        starts = given["starts"]
        names = list(starts)
        found = pri_scores(np.array(list(starts.values())))
        assert names == list(expected["priScore"])
        wanted = list(expected["priScore"].values())
        assert found == pytest.approx(wanted, abs=tolerance["abs"])
