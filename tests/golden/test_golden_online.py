"""The worked examples of the online side hold: match, deficit, eta, srpt, overbook, drf, jain."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rm.match.fairness import Deficits, drf_closed_form, drf_progressive, jain
from rm.match.overbooking import overbooking_score
from rm.match.scoring import automatic_eta, srpt

FOLDER = Path(
    os.environ.get("WEFT_GOLDEN", Path(__file__).resolve().parents[2].parent / "shared/golden")
)


def cases(*families: str) -> list[Any]:
    """Worked examples of some families, found by listing the folder."""
    found = [json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))]
    chosen = [pytest.param(case, id=case["id"]) for case in found if case["family"] in families]
    skip = pytest.mark.skip(reason=f"no worked examples of {families} in {FOLDER}")
    return chosen or [pytest.param(None, marks=skip)]


@pytest.mark.parametrize("case", cases("deficit"))
def test_deficit_counters_follow_figure_15(case: dict[str, Any]) -> None:
    """Each placement moves every counter by factor x (share - [own])."""
    names = list(case["input"]["share"])
    deficits = Deficits(np.array([case["input"]["share"][n] for n in names]))
    deficits.value[:] = [case["input"]["start"][n] for n in names]
    everyone = np.ones(len(names), dtype=bool)
    for number, (group, factor) in enumerate(case["input"]["scheduled"], 1):
        deficits.book(names.index(group), factor, everyone)
        assert abs(deficits.value.sum()) < 1e-9
        if number == 2 and "after_two" in case["expected"]:
            wanted = [case["expected"]["after_two"][n] for n in names]
            assert deficits.value == pytest.approx(wanted, abs=1e-6)
    wanted = [case["expected"]["deficits"][n] for n in names]
    assert deficits.value == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("case", cases("eta"))
def test_eta_scales_work_to_scores(case: dict[str, Any]) -> None:
    """eta x an average job's srpt is m x an average task's score."""
    given = case["input"]
    eta = automatic_eta(
        float(np.mean(given["weighted_pscores"])), float(np.mean(given["srpt_by_job"])), given["m"]
    )
    assert eta == pytest.approx(case["expected"]["eta"], abs=1e-6)


@pytest.mark.parametrize("case", cases("srpt"))
def test_srpt_is_work_by_l1_norm(case: dict[str, Any]) -> None:
    """Durations times the sum of capacity-normalised demands."""
    pending = case["input"]["pending"]
    work = srpt(
        np.array(case["input"]["capacity"]),
        np.array([duration for duration, _ in pending]),
        np.array([demand for _, demand in pending]),
    )
    assert work == pytest.approx(case["expected"]["srpt"], abs=1e-6)


@pytest.mark.parametrize("case", cases("overbook"))
def test_overbooking_weighs_waiting_against_slowing(case: dict[str, Any]) -> None:
    """Benefit, cost and score are those of the fluid model."""
    given = case["input"]
    names = list(given["caps"])
    running = given["running"]
    demand = np.array([[t["demand"].get(n, 0.0) for n in names] for t in running])
    score, benefit, cost = overbooking_score(
        np.array([t["remaining"] for t in running]),
        demand,
        np.array([given["caps"][n] for n in names]),
        len(running),
        given["task"]["duration"],
        np.array([given["task"]["demand"].get(n, 0.0) for n in names]),
        given["next_opp"] - given["now"],
    )
    expected = case["expected"]
    assert score == pytest.approx(expected["oScore"], abs=1e-6)
    assert benefit == pytest.approx(expected["benefit"], abs=1e-6)
    assert cost == pytest.approx(expected["cost"], abs=1e-6)
    assert (score > 0) is expected["overbook"]


@pytest.mark.parametrize("case", cases("drf"))
def test_drf_shares(case: dict[str, Any]) -> None:
    """Closed form, and progressive filling where the example asks for it; both agree otherwise."""
    total = np.array(case["input"]["total"])
    demand = np.array(case["input"]["demands"])
    expected = case["expected"]
    filled = drf_progressive(total, demand)
    shares = filled if case["input"].get("progressive") else drf_closed_form(total, demand)
    assert shares.allocation == pytest.approx(np.array(expected["alloc"]), abs=1e-6)
    assert shares.unallocated == pytest.approx(np.array(expected["unallocated"]), abs=1e-6)
    if "dominant" in expected:
        assert shares.dominant == pytest.approx(np.array(expected["dominant"]), abs=1e-6)
    if "tasks" in expected:
        tasks = (shares.allocation / np.where(demand > 0, demand, np.inf)).max(axis=1)
        assert tasks == pytest.approx(np.array(expected["tasks"]), abs=1e-6)
        assert filled.allocation == pytest.approx(shares.allocation, abs=1e-6)


@pytest.mark.parametrize("case", cases("jain"))
def test_jains_index(case: dict[str, Any]) -> None:
    """1 for equal shares, 1/n when one has all."""
    found = [jain(values) for values in case["input"]["cases"]]
    assert found == pytest.approx(case["expected"]["index"], abs=1e-6)
