"""The readers of worked examples on variants of them: units, weights, zero counts, open orders.

The readers are found by their marks and called as pytest calls them, so what is shown here holds
for an example that nobody has seen yet.
"""

import copy
import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from testkit.examples import FAMILIES

HERE = Path(__file__).parent
Reader = Callable[..., None]
THIRTEENTH = 1 / 13


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"readers_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def readers() -> dict[str, list[Reader]]:
    """By family: every test that is called once for each of its examples."""
    found: dict[str, list[Reader]] = {}
    for path in sorted(HERE.glob("test_*golden_*.py")):
        for function in vars(load(path)).values():
            for mark in getattr(function, "pytestmark", ()):
                if mark.name == "parametrize" and mark.args[0] == "case":
                    for family in {case["family"] for case in mark.args[1]}:
                        found.setdefault(family, []).append(function)
    return found


READERS = readers()


def example(name: str) -> Any:
    return json.loads((HERE / "data" / f"{name}.json").read_text())


def read(case: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Give an example to every reader of its family."""
    for reader in READERS[case["family"]]:
        patched = "monkeypatch" in reader.__code__.co_varnames[: reader.__code__.co_argcount]
        reader(copy.deepcopy(case), **({"monkeypatch": monkeypatch} if patched else {}))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("part", ["input", "expected"])
def test_a_key_that_a_reader_does_not_know_fails(
    family: str, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A number beside those that it knows, in one example of each family."""
    for path in sorted((HERE / "data").glob("*.json")):
        case = json.loads(path.read_text())
        if case["family"] == family:
            case[part]["surprise"] = 1.0
            with pytest.raises((AssertionError, KeyError, ValueError, TypeError)):
                read(case, monkeypatch)
            return
    raise AssertionError(family)


@pytest.mark.parametrize("number", range(3))
def test_an_unknown_resource_of_one_task_fails(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a reader makes another DAG of the rows of the example."""
    case = example("dead_end_tpcs")
    case["input"]["dag"]["tasks"][number]["demand"]["surprise"] = 1.0
    with pytest.raises(AssertionError, match="surprise"):
        read(case, monkeypatch)


@pytest.mark.parametrize(
    ("name", "at"),
    [
        ("graphene_fig2", ("expected", "makespan_exact")),
        ("match_unconstrained", ("input", "share")),
        ("match_unfair_bound", ("input", "share")),
        ("overbook_wait_machine_busy", ("input", "caps")),
    ],
)
def test_a_name_beside_those_that_count_fails(
    name: str, at: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a schedule, a queue, or a resource, in a table whose names a reader goes through."""
    case = example(name)
    case[at[0]][at[1]]["surprise"] = 1.0
    with pytest.raises(AssertionError):
        read(case, monkeypatch)


def test_counts_of_zero_may_be_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stages of which no task must start, by name with 0; a wrong count fails."""
    case = example("carbyne_fig2")
    for counts, job in zip(
        case["expected"]["must_start_counts"], case["input"]["jobs"], strict=True
    ):
        stages = [
            row.get("name", row.get("stage", row.get("id")))
            for row in job.get("stages") or job["tasks"]
        ]
        counts.update({name: 0 for name in stages if name not in counts})
    read(case, monkeypatch)
    first = case["expected"]["must_start_counts"][0]
    first[next(name for name, count in first.items() if count == 0)] = 1
    with pytest.raises(AssertionError):
        read(case, monkeypatch)


def scaled(case: Any, by: dict[str, float]) -> Any:
    """An example of figure 3 in absolute units."""
    cluster = case["input"]["cluster"]["capacity"]
    for name, factor in by.items():
        cluster[name] *= factor
        for job in case["input"]["jobs"]:
            for task in job["tasks"]:
                if name in task["demand"]:
                    task["demand"][name] *= factor
    return case


@pytest.mark.parametrize("name", ["graphene_fig3", "fig3_scored"])
def test_the_units_of_figure_3_may_be_absolute(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """16 vcores and 64 GB of a machine instead of 1 and 1: the same times."""
    read(scaled(example(name), {"r1": 16.0, "r2": 65536.0}), monkeypatch)
    halved = example(name)
    halved["input"]["cluster"]["capacity"]["r1"] *= 2  # a larger machine is another example
    with pytest.raises(AssertionError):
        read(halved, monkeypatch)


def test_weights_of_drf_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """9 CPU and 18 GB, weights 2 and 1: 2x / (2/9) and x / (1/3) tasks; memory binds, x = 6/13."""
    case = example("drf_classic")
    plain = copy.deepcopy(case)
    case["input"]["weights"] = [2.0, 1.0]
    case["expected"] = {
        "x": 6 * THIRTEENTH,
        "alloc": [[54 * THIRTEENTH, 216 * THIRTEENTH], [54 * THIRTEENTH, 18 * THIRTEENTH]],
        "tasks": [54 * THIRTEENTH, 18 * THIRTEENTH],
        "unallocated": [9 * THIRTEENTH, 0.0],
    }
    read(case, monkeypatch)
    plain["input"]["weights"] = [2.0, 1.0]
    with pytest.raises(AssertionError):
        read(plain, monkeypatch)


def test_the_score_of_overbooking_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """0: as without; a large one has the task picked that does not fit, which changes the picks."""
    case = example("match_unconstrained")
    misfit = next(task for task in case["input"]["tasks"] if task["id"] == "b2")
    misfit["oScore"] = 0.0
    read(case, monkeypatch)
    misfit["oScore"] = 50.0
    with pytest.raises(AssertionError):
        read(case, monkeypatch)


def test_the_order_of_what_pdelay_assigns_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only which task gets which level is defined."""
    case = example("pdelay_levels")
    for key in ("assigned", "level"):
        case["expected"][key].reverse()
    read(case, monkeypatch)
    case["expected"]["level"].reverse()
    with pytest.raises(AssertionError):
        read(case, monkeypatch)
