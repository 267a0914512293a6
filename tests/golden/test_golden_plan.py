"""The worked examples of Graphene's schedule constructor, found by listing the folder."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from am.plan.part import Grid, part_of
from am.plan.part_kernels import C, P, S, T
from am.plan.registry import PlanRequest, planner
from am.plan.scores import frag_scores, long_scores, stage_work_s, steady_scores
from am.plan.search import Field, _run, fields_of
from am.plan.search_kernels import STEPS, WAYS
from am.plan.subsets import divided
from am.plan.validate import violations
from weft.dag import Dag, Link, Machines, StageEdge
from weft.plan import Plan, pri_scores

FOLDER = Path(
    os.environ.get("WEFT_GOLDEN", Path(__file__).resolve().parents[2].parent / "shared/golden")
)
PLANNED = ("fig2", "fig9", "fig10", "fig18", "lemma1", "scores", "subsets")


def cases(*families: str) -> list[Any]:
    """Worked examples of some families, found by listing the folder."""
    found = [json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))]
    every = [case for file in found for case in (file if isinstance(file, list) else [file])]
    chosen = [pytest.param(case, id=case["id"]) for case in every if case["family"] in families]
    skip = pytest.mark.skip(reason=f"no worked examples of {families} in {FOLDER}")
    return chosen or [pytest.param(None, marks=skip)]


def read_dag(table: dict[str, Any]) -> tuple[Dag, list[str]]:
    """The DAG of a worked example, and the names of its tasks or stages in its order."""
    names = table["resources"]
    rows = table.get("stages") or table["tasks"]
    if "tasks" in table:  # a stage's tasks stand together in a DAG
        kin = list(dict.fromkeys(row.get("stage", row["id"]) for row in rows))
        rows = sorted(rows, key=lambda row: kin.index(row.get("stage", row["id"])))
    ids = [row.get("name", row.get("id")) for row in rows]
    stage_of = [row.get("stage", name) for row, name in zip(rows, ids, strict=True)]
    stages = list(dict.fromkeys(stage_of))
    sizes = [row.get("num_tasks", 1) for row in rows]
    every = [row for row, size in zip(rows, sizes, strict=True) for _ in range(size)]
    count = [sum(n for n, s in zip(sizes, stage_of, strict=True) if s == x) for x in stages]
    edges: dict[tuple[int, int], list[tuple[int, int]]] = {}
    kinds: dict[tuple[int, int], Link] = {}
    for child, row in enumerate(rows):
        for parent in row.get("parents", []):
            name = parent["stage"] if isinstance(parent, dict) else parent
            kind = parent.get("type", "all") if isinstance(parent, dict) else "all"
            at = (stages.index(stage_of[ids.index(name)]), stages.index(stage_of[child]))
            kinds[at] = Link(kind) if "stages" in table else Link.SOME
            edges.setdefault(at, []).append((ids.index(name), child))
    dag = Dag(
        resources=tuple(names),
        stage_names=tuple(stages),
        first=np.cumsum([0, *count]).astype(np.int64),
        duration_s=np.array([float(row["duration"]) for row in every]),
        demand=np.array([[float(row["demand"].get(name, 0)) for name in names] for row in every]),
        edges=tuple(
            StageEdge(*at, kinds[at], np.array(pairs) if kinds[at] is Link.SOME else None)
            for at, pairs in edges.items()
        ),
    )
    return dag, ids


def read_machines(case: dict[str, Any]) -> Machines:
    """The machines of a worked example."""
    cluster = case["input"]["cluster"]
    capacity = cluster["capacity"]
    names = case["input"]["dag"]["resources"]
    return Machines.alike(cluster["num_machines"], [capacity[name] for name in names])


def build(case: dict[str, Any], name: str = "graphene") -> Plan:
    """A valid plan of a worked example."""
    dag, _ = read_dag(case["input"]["dag"])
    machines = read_machines(case)
    plan = planner(name)(PlanRequest(dag, machines, np.random.default_rng(0), {}))
    assert violations(dag, machines, plan.machine, plan.start_s, plan.end_s) == []
    return plan


@pytest.mark.parametrize("case", cases(*PLANNED))
@pytest.mark.parametrize("name", ["graphene", "graphene_plus"])
def test_graphene_reaches_what_the_example_says(case: dict[str, Any], name: str) -> None:
    """Never below the optimum, and as good as Graphene is said to be where that is said."""
    makespan_s = build(case, name).makespan_s
    expected, tolerance = case["expected"], case["tolerance"]
    exact = max(tolerance.get("exact_abs", 0), tolerance.get("opt_abs", 0), 1e-6)
    optimum = expected.get("makespan_exact", {}).get("OPT", expected.get("OPT_exact"))
    optimum = expected.get("OPT", optimum)
    if optimum is not None:
        assert makespan_s >= optimum - exact
    if "Graphene_at_most" in expected:
        assert makespan_s <= expected["Graphene_at_most"] + exact
    if "makespan_over_T" in expected:
        ratio = makespan_s / case["input"]["T"]
        assert ratio == pytest.approx(expected["makespan_over_T"]["Graphene"], abs=tolerance["abs"])


@pytest.mark.parametrize("case", cases("fig9", "fig18", "fig2", "fig10", "lemma1"))
def test_graphene_finds_the_optimum_of_the_papers_figures(case: dict[str, Any]) -> None:
    """The paper's own examples are small enough for its search to solve."""
    expected = case["expected"]
    optimum = expected.get("makespan_exact", {}).get("OPT", expected.get("OPT_exact"))
    assert build(case).makespan_s == pytest.approx(expected.get("OPT", optimum), abs=1e-6)


@pytest.mark.parametrize("case", cases("scores"))
def test_scores_are_those_of_section_4_1(case: dict[str, Any]) -> None:
    """TWork, ExecTime, LongScore and both FragScores, stage by stage."""
    dag, _ = read_dag(case["input"]["dag"])
    machines = read_machines(case)
    grid = Grid.of(dag, machines)
    work, frag = stage_work_s(dag, machines), frag_scores(dag, machines, grid)
    exec_s = [w / f for w, f in zip(work, frag, strict=True)]
    head = dag.first[:-1]
    found = {
        "TWork": work,
        "ExecTime": exec_s,
        "FragScore": frag,
        "LongScore": long_scores(dag)[head],
        "FragScore_steady": steady_scores(dag, machines),
    }
    for name, values in found.items():
        wanted = case["expected"].get(name, {})
        for stage, value in wanted.items():
            at = dag.stage_names.index(stage)
            assert values[at] == pytest.approx(value, abs=case["tolerance"]["abs"]), (name, stage)


@pytest.mark.parametrize("case", cases("subsets"))
def test_subsets_are_closed_and_divided(case: dict[str, Any]) -> None:
    """T is closed; P, S and C are what figure 13 says, members of T taken out."""
    dag, ids = read_dag(case["input"]["dag"])
    machines = read_machines(case)
    grid = Grid.of(dag, machines)
    seeds = case["input"].get("seed_tasks", case["input"].get("troublesome"))
    if "long_threshold" in case["input"]:
        scores = long_scores(dag)
        chosen = np.flatnonzero(scores >= case["input"]["long_threshold"] - 1e-12)
        assert sorted(ids[v] for v in chosen) == sorted(seeds)
        for name, value in case["expected"].get("LongScore", {}).items():
            assert scores[ids.index(name)] == pytest.approx(value, abs=1e-6)
    part = part_of(dag, machines, grid)
    marked = np.array([name in seeds for name in ids], np.int8)
    label = divided(part, part.reversed(), marked)
    for name, number in (("T", T), ("S", S), ("P", P), ("C", C)):
        found = sorted(ids[v] for v in np.flatnonzero(label == number))
        assert found == sorted(case["expected"][name]), name


@pytest.mark.parametrize("case", cases("subsets"))
def test_every_order_is_free_of_dead_ends(case: dict[str, Any]) -> None:
    """Each of the ways through T, S, P and C ends in a schedule of the span that is said."""
    if "span_of_each_valid_order" not in case["expected"]:
        pytest.skip("the example gives no span")
    dag, ids = read_dag(case["input"]["dag"])
    request = PlanRequest(dag, read_machines(case), np.random.default_rng(0), {})
    yard = Field.of(dag, request.machines, fields_of(request)[0])
    marked = np.array([name in case["input"]["troublesome"] for name in ids], np.int8)
    label = divided(yard.part, yard.back, marked)
    for way in range(len(WAYS)):
        only = np.zeros(len(WAYS), np.int8)
        only[way] = 1
        _, trial = _run(yard, yard.borrow(), label, yard.ranks("longest"), only, STEPS, 1 << 61)
        if trial.way >= 0:  # the others repeat an earlier way
            span_s = trial.span * yard.grid.tick_s
            assert span_s == pytest.approx(case["expected"]["span_of_each_valid_order"])


@pytest.mark.parametrize("case", cases("priscore"))
def test_pri_scores_share_ties(case: dict[str, Any]) -> None:
    """(n - tasks that start strictly earlier) / n."""
    starts = case["input"]["starts"]
    found = pri_scores(np.array(list(starts.values())))
    for name, score in zip(starts, found, strict=True):
        wanted = case["expected"]["priScore"][name]
        assert score == pytest.approx(wanted, abs=case["tolerance"]["abs"])
