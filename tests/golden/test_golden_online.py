"""The worked examples of the online side hold: match, deficit, eta, srpt, overbook, drf, jain."""

import heapq
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from rm.match.fairness import Deficits, drf_closed_form, drf_progressive, jain
from rm.match.overbook_kernels import overbooking_score
from rm.match.score_kernels import NOBODY, graphene_picks, picks_by_turn

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

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
    wanted = np.array(given["weighted_pscores"])
    work = np.array(given["srpt_by_job"])
    rows = np.arange(len(wanted))
    # on an empty machine with one resource, a task's pScore is its demand
    _, _, eta = graphene_picks(
        wanted[:, None], wanted[:, None], np.ones(len(rows)), np.ones(len(rows)),
        np.ones(len(rows), dtype=np.int64), rows % len(work), np.zeros(len(rows), dtype=np.int64),
        rows, np.zeros(len(rows)), np.zeros(len(rows)), np.ones(1), np.ones(1), work.copy(),
        np.zeros(1), np.ones(1), np.zeros((1, 1)), -1.0, given["m"], float(work.mean()),
        np.inf, 1.0, True, True, 1,
    )  # fmt: skip
    assert eta == pytest.approx(case["expected"]["eta"], abs=1e-6)


@pytest.mark.parametrize("case", cases("match"))
def test_figure_15_picks_and_scores(case: dict[str, Any]) -> None:
    """Which tasks are picked, their perfScore, and the counters afterwards."""
    given = case["input"]
    tasks = given["tasks"]
    jobs = sorted({t["job"] for t in tasks})
    groups = list(given["deficits"])
    demand = np.array([t["demand"] for t in tasks])
    duration = np.array([t["duration"] for t in tasks])
    app = np.array([jobs.index(t["job"]) for t in tasks])
    work = np.zeros(len(jobs))
    np.add.at(work, app, duration * demand.sum(axis=1))
    deficit = np.array([given["deficits"][g] for g in groups], dtype=float)
    picked, terms, _ = graphene_picks(
        demand, demand, duration, np.array([t["priScore"] for t in tasks]),
        np.ones(len(tasks), dtype=np.int64), app,
        np.array([groups.index(t["group"]) for t in tasks]), np.arange(len(tasks)),
        np.array([float(t.get("remote", False)) for t in tasks]), np.zeros(len(tasks)),
        np.array(given["avail"]), np.array(given["avail"]), work, deficit,
        np.array([given["share"][g] for g in groups]),
        np.zeros((len(groups), demand.shape[1])), given["eta"], 0.2, 1.0, given["kappaC"],
        given["rp"], given["factor"] == "slot", True, 100,
    )  # fmt: skip
    expected = case["expected"]
    assert [tasks[i]["id"] for i in picked] == expected["picked"]
    assert terms[:, 0] == pytest.approx(expected["perf"], abs=1e-6)
    assert deficit == pytest.approx([expected["deficits"][g] for g in groups], abs=1e-6)


class TwoJobs:
    """Figure 3's two jobs on one machine: an event loop around a kernel's picks."""

    def __init__(self, jobs: list[dict[str, Any]]) -> None:
        self.tasks = [(j, t) for j, job in enumerate(jobs) for t in job["tasks"]]
        names = jobs[0]["resources"]
        self.demand = np.array([[t["demand"].get(n, 0.0) for n in names] for _, t in self.tasks])
        self.duration = np.array([t["duration"] for _, t in self.tasks])
        self.job = np.array([j for j, _ in self.tasks])
        self.jobs = len(jobs)

    def run(self, pick: Callable[[IntArray, FloatArray, FloatArray], list[int]]) -> list[float]:
        """Completion times by job; `pick(ready, free, work left)` answers positions in ready."""
        now, free = 0.0, np.ones(self.demand.shape[1])
        started: set[int] = set()
        done: dict[tuple[int, str], float] = {}
        running: list[tuple[float, int]] = []
        while len(done) < len(self.tasks):
            while True:
                ready = np.array(
                    [
                        i
                        for i, (j, t) in enumerate(self.tasks)
                        if i not in started and all((j, p) in done for p in t["parents"])
                    ],
                    dtype=np.int64,
                )
                left = np.zeros(self.jobs)
                for i in range(len(self.tasks)):
                    if i not in started:
                        left[self.job[i]] += self.duration[i] * self.demand[i].sum()
                chosen = [int(ready[i]) for i in pick(ready, free.copy(), left)]
                for i in chosen:
                    started.add(i)
                    free -= self.demand[i]
                    heapq.heappush(running, (now + self.duration[i], i))
                if not chosen:
                    break
            now = running[0][0]
            while running and running[0][0] <= now + 1e-9:
                _, i = heapq.heappop(running)
                free += self.demand[i]
                done[self.tasks[i][0], self.tasks[i][1]["id"]] = now
        return [max(t for (j, _), t in done.items() if j == job) for job in range(self.jobs)]


@pytest.mark.parametrize("case", cases("fig3"))
def test_two_jobs_under_slot_fairness_take_the_times_of_figure_3(case: dict[str, Any]) -> None:
    """Each preferred order gives the paper's completion times and makespan."""
    given = case["input"]
    jobs = TwoJobs(given["jobs"])
    for name, order in given["orders"].items():
        pri = np.array([1.0 - order.index(t["id"]) / len(order) for _, t in jobs.tasks])
        slots = np.zeros(jobs.jobs)

        def pick(
            ready: IntArray, free: FloatArray, left: FloatArray, pri: FloatArray = pri,
            slots: FloatArray = slots,
        ) -> list[int]:  # fmt: skip
            picked, _ = picks_by_turn(
                jobs.demand[ready], np.ones(len(ready)), pri[ready],
                np.ones(len(ready), dtype=np.int64), jobs.job[ready], ready, free, slots, 1,
                NOBODY,
            )  # fmt: skip
            return [int(i) for i in picked]

        ends = np.array(jobs.run(pick)) / given["T"]
        abs_tolerance = case["tolerance"]["abs"]
        assert ends.mean() == pytest.approx(
            case["expected"]["avg_jct_over_T"][name], abs=abs_tolerance
        )
        assert ends.max() == pytest.approx(
            case["expected"]["makespan_over_T"][name], abs=abs_tolerance
        )


@pytest.mark.parametrize("case", cases("fig3_scored"))
def test_two_jobs_under_figure_15_take_the_expected_times(case: dict[str, Any]) -> None:
    """A tight unfairness bound makes the jobs alternate; a loose one finishes the shorter first."""
    given = case["input"]
    jobs = TwoJobs(given["jobs"])
    pri = np.array([given["priScore"][t["id"]] for _, t in jobs.tasks])
    for number, bound in enumerate(given["kappaC"]):
        deficit = np.zeros(jobs.jobs)

        def pick(
            ready: IntArray, free: FloatArray, left: FloatArray, bound: float = bound,
            deficit: FloatArray = deficit,
        ) -> list[int]:  # fmt: skip
            share = np.zeros(jobs.jobs)
            share[np.unique(jobs.job[ready])] = 1.0
            picked, _, _ = graphene_picks(
                jobs.demand[ready], jobs.demand[ready], jobs.duration[ready], pri[ready],
                np.ones(len(ready), dtype=np.int64), jobs.job[ready], jobs.job[ready], ready,
                np.zeros(len(ready)), np.zeros(len(ready)), free, free.copy(), left, deficit,
                share / max(share.sum(), 1.0), np.zeros((jobs.jobs, 2)), -1.0, given["m"],
                float(left[left > 0].mean()) if (left > 0).any() else 0.0, bound, 1.0, True, True,
                1,
            )  # fmt: skip
            return [int(i) for i in picked]

        ends = np.array(jobs.run(pick)) / given["T"]
        tolerance = case["tolerance"]["abs"]
        expected = case["expected"]
        assert ends.mean() == pytest.approx(expected["avg_jct_over_T"][number], abs=tolerance)
        assert ends.max() == pytest.approx(expected["makespan_over_T"][number], abs=tolerance)


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
