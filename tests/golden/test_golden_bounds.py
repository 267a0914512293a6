"""The worked examples of bounds, cuts and list planners, found by listing the folder."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from am.plan.bounds.bounds import bounds_of
from am.plan.bounds.cuts import cut
from am.plan.registry import PlanRequest, planner
from am.plan.validate import violations
from weft.dag import Dag, Link, Machines, StageEdge

FAMILIES = {"bounds", "fig2", "fig9", "fig10", "fig18", "lemma1"}
BOUNDS = {
    "CPLen": "cp_len_s",
    "TWork": "t_work_s",
    "ModCP": "mod_cp_s",
    "NewLB": "new_lb_s",
}
LIST_PLANNERS = {"CPSched": "critical_path", "Tetris": "tetris", "BFS": "bfs"}


def _cases() -> list[Any]:
    folder = Path(os.environ.get("WEFT_GOLDEN", "../shared/golden"))
    found = []
    for path in sorted(folder.glob("*.json")):
        data = json.loads(path.read_text())
        for case in data if isinstance(data, list) else [data]:
            if case.get("family") in FAMILIES:
                found.append(pytest.param(case, id=case["id"]))
    skip = pytest.mark.skip(reason=f"no worked examples in {folder}")
    return found or [pytest.param({}, marks=skip, id="none")]


def read_dag(table: dict[str, Any]) -> Dag:
    """A DAG of a worked example: by stages, or task by task with every edge listed."""
    names = table["resources"]
    rows = table["stages"] if "stages" in table else table["tasks"]
    stages: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        name = row.get("stage", row.get("name", row.get("id")))
        stages.setdefault(name, []).extend([row] * row.get("num_tasks", 1))
    every = [row for members in stages.values() for row in members]
    first = np.cumsum([0] + [len(members) for members in stages.values()])
    position = {name: index for index, name in enumerate(stages)}
    if "stages" in table:
        edges = _stage_edges(rows, position)
    else:
        edges = _task_edges(every, position)
    return Dag(
        resources=tuple(names),
        stage_names=tuple(stages),
        first=first.astype(np.int64),
        duration_s=np.array([float(row["duration"]) for row in every]),
        demand=np.array([[float(row["demand"].get(name, 0)) for name in names] for row in every]),
        edges=tuple(edges),
    )


def _stage_edges(rows: list[dict[str, Any]], position: dict[str, int]) -> list[StageEdge]:
    edges = []
    for row in rows:
        for parent in row.get("parents", []):
            name = parent if isinstance(parent, str) else parent["stage"]
            kind = "all" if isinstance(parent, str) else parent.get("type", "all")
            link = Link.ONE if kind.startswith("one") else Link.ALL
            edges.append(StageEdge(position[name], position[row["name"]], link))
    return edges


def _task_edges(rows: list[dict[str, Any]], position: dict[str, int]) -> list[StageEdge]:
    number = {row["id"]: index for index, row in enumerate(rows)}
    stage = {row["id"]: position[row.get("stage", row["id"])] for row in rows}
    pairs: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for row in rows:
        for parent in row.get("parents", []):
            key = (stage[parent], stage[row["id"]])
            pairs.setdefault(key, []).append((number[parent], number[row["id"]]))
    return [
        StageEdge(above, below, Link.SOME, np.array(found, dtype=np.int64))
        for (above, below), found in pairs.items()
    ]


def read_machines(table: dict[str, Any], names: tuple[str, ...]) -> Machines:
    return Machines.alike(table["num_machines"], [table["capacity"][name] for name in names])


@pytest.mark.parametrize("case", _cases())
def test_bounds_are_those_of_the_worked_examples(case: dict[str, Any]) -> None:
    """Each bound has the expected value, and none exceeds the expected optimum."""
    dag = read_dag(case["input"]["dag"])
    found = bounds_of(dag, read_machines(case["input"]["cluster"], dag.resources))
    expected, tolerance = case["expected"], case["tolerance"].get("abs", 1e-6)
    for name, attribute in BOUNDS.items():
        if name in expected:
            assert getattr(found, attribute) == pytest.approx(expected[name], abs=tolerance)
    if "strong_bound_at_least" in expected:
        assert found.strong_lb_s >= expected["strong_bound_at_least"] - tolerance
    if "valid_parts" in expected:
        assert len(cut(dag)) == expected["valid_parts"]
    for name in ("OPT", "OPT_exact"):
        if name in expected:
            assert found.strong_lb_s <= expected[name] + tolerance


def _makespan(name: str, dag: Dag, machines: Machines, **options: Any) -> float:
    request = PlanRequest(dag, machines, np.random.default_rng(0), options)
    plan = planner(name)(request)
    assert violations(dag, machines, plan.machine, plan.start_s, plan.end_s) == []
    return plan.makespan_s


@pytest.mark.parametrize("case", _cases())
def test_planners_fail_as_the_paper_says(case: dict[str, Any]) -> None:
    """CPSched, Tetris and BFS take exactly as long as the constructions of section 2 foresee."""
    dag = read_dag(case["input"]["dag"])
    machines = read_machines(case["input"]["cluster"], dag.resources)
    expected, tolerance = case["expected"], case["tolerance"].get("abs", 1e-6)
    for theirs, ours in LIST_PLANNERS.items():
        for key in (theirs, f"{theirs}_exact"):
            if key in expected:
                assert _makespan(ours, dag, machines) == pytest.approx(expected[key], abs=tolerance)
        if theirs in expected.get("makespan_over_T", {}):
            ratio = _makespan(ours, dag, machines) / case["input"]["T"]
            assert ratio == pytest.approx(expected["makespan_over_T"][theirs], abs=tolerance)
    if "oblivious_makespan" in expected:
        assert _makespan("bfs", dag, machines) == expected["oblivious_makespan"]


@pytest.mark.parametrize("case", _cases())
def test_cp_sat_finds_the_expected_optimum(case: dict[str, Any]) -> None:
    """The exact planner reaches the optimum that the derivation states."""
    pytest.importorskip("ortools", reason="needs weft[optimal]")
    expected = case["expected"]
    exact = expected.get("makespan_exact", {}).get("OPT")
    optimum = expected.get("OPT_exact", exact if exact is not None else expected.get("OPT"))
    if optimum is None:
        pytest.skip("states no optimum")
    dag = read_dag(case["input"]["dag"])
    machines = read_machines(case["input"]["cluster"], dag.resources)
    found = _makespan("optimal", dag, machines)
    assert found == pytest.approx(optimum, abs=case["tolerance"].get("abs", 1e-6))
