"""The worked examples of the online side, through the matcher that the manager asks.

Every case places through `Matcher.match` and `Matcher.granted`, as `rm.placing.allocation` does, so
that a fault in any of the kernels below shows here.
"""

import heapq
from typing import Any

import numpy as np
import pytest

from am.progress import Progress
from am.task_groups import build_groups
from rm.match.fairness import drf_closed_form, drf_progressive
from rm.match.graphene_kernels import FIT, ROWS
from rm.match.overbook_kernels import fluid_ends
from rm.match.protocol import Match, Placement
from rm.match.score_kernels import REMOTE_PENALTY
from sim.results import jain
from testkit.examples import Table, examples, read_types, reading
from testkit.matching import MatcherHarness
from weft.model.job import Edge, Job, Stage
from weft.model.queues import QueueSpec
from weft.protocol.messages import Ask, AskType

PLAIN = {"overbook": "", "eta_m": 0.0, "kappa": -1.0}
UNIT = {"slot": "slots", "drf": "drf"}
SPARE = 0.1  # of the root, for the queue of what is there already


def wants(demand: Any, duration_s: float = 1.0, pri: float = 1.0, **more: Any) -> Ask:
    """An ask for one container."""
    return Ask(1, more.pop("total", 1), tuple(demand), duration_s, pri, AskType.DEFAULT, 0, **more)


def queues_of(share: Table) -> QueueSpec:
    """Leaf queues by share, and one more for containers that were there before."""
    whole = sum(share.values())
    leaves = [QueueSpec(name, part / whole * (1 - SPARE)) for name, part in share.items()]
    return QueueSpec("root", children=(*leaves, QueueSpec("rest", SPARE)))


def take(harness: MatcherHarness, node: int, amount: Any) -> None:
    """Hold something on a node that no group is charged for."""
    harness.ledger.book(node, harness.add_app("rest"), np.maximum(amount, 0.0), 1, None)


@examples("deficit")
def test_deficit_counters_follow_figure_15(case: dict[str, Any]) -> None:
    """Each placement moves every counter by factor x (share - [own])."""
    with reading(case) as (given, expected, tolerance):
        factors = [factor for _, factor in given["scheduled"]]
        slots = all(factor == 1.0 for factor in factors)
        options = {**PLAIN, "deficit_unit": "slots" if slots else "drf"}
        harness = MatcherHarness("graphene", options, queues_of(given["share"]), read_types(["r"]))
        node = harness.add_node((1.0,))
        harness.owe(dict(given["start"].items()))
        for name in given["share"]:  # all of them go on asking
            harness.ask(harness.add_app(name), wants([1e-3], total=1000))
        for number, (name, factor) in enumerate(given["scheduled"], 1):
            entry = harness.ask(harness.add_app(name), wants([1e-9 if slots else factor]))
            harness.place(node, Match([Placement(entry.row, 1, (("turn", float(number)),))]))
            found = harness.owed()
            assert abs(sum(found.values())) < 1e-9
            if number == 2 and "after_two" in expected:
                for group, value in expected["after_two"].items():
                    assert found[group] == pytest.approx(value, abs=tolerance["abs"])
        for group, value in expected["deficits"].items():
            assert found[group] == pytest.approx(value, abs=tolerance["abs"])


@examples("eta")
def test_eta_scales_work_to_scores(case: dict[str, Any]) -> None:
    """eta x an average job's srpt is m x an average task's score."""
    with reading(case) as (given, expected, tolerance):
        options = {**PLAIN, "eta_m": given["m"]}
        harness = MatcherHarness("graphene", options, QueueSpec("root"), read_types(["r"]))
        node = harness.add_node((1.0,))
        apps = [harness.add_app("root", work=work) for work in given["srpt_by_job"]]
        # on an empty machine with one resource, a task's pScore is its demand
        for number, score in enumerate(given["weighted_pscores"]):
            harness.ask(apps[number % len(apps)], wants([score]))
        first = harness.match(node).placements[0]
        assert dict(first.scores)["eta"] == pytest.approx(expected["eta"], abs=tolerance["abs"])


@examples("match")
def test_figure_15_picks_and_scores(case: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Which tasks are picked, their perfScore, and the counters afterwards."""
    with reading(case) as (given, expected, tolerance):
        tasks, names = given["tasks"], [f"r{i}" for i in range(len(given["avail"]))]
        assert given["factor"] in ("slot", "drf")
        assert given["rp"] == REMOTE_PENALTY
        options: dict[str, Any] = {
            "overbook": "",
            "eta": given["eta"],
            "kappa": given["kappaC"],
            "group": "queue",
            "deficit_unit": UNIT[given["factor"]],
            "overbook_limit": 10.0,
        }
        stated = [(t["demand"], t["duration"], t["oScore"]) for t in tasks if "oScore" in t]
        if stated:  # the what-if itself is proved by the family `overbook`
            options["overbook"] = ",".join(names)
            monkeypatch.setattr(
                "rm.match.graphene._weigh.code",
                lambda site, standing, desk, *_: [
                    desk.over.__setitem__(place, score)
                    for place in range(desk.tally[FIT], desk.tally[ROWS])
                    for wanted, _, score in stated
                    if list(desk.waiting.demand[place - desk.tally[FIT]]) == wanted
                ],
            )
        assert set(given["share"]) == set(given["deficits"]), "a share of no queue"
        harness = MatcherHarness("graphene", options, queues_of(given["share"]), read_types(names))
        node = harness.add_node((1.0,) * len(names))
        take(harness, node, 1.0 - np.array(given["avail"]))
        works: dict[str, float] = {}
        for t in tasks:
            work = t["duration"] * sum(t["demand"])
            works[t["job"]] = works.get(t["job"], 0.0) + work
        queue = {t["job"]: t["group"] for t in tasks}
        apps = {job: harness.add_app(queue[job], work=works[job]) for job in sorted(works)}
        rows = {}
        for t in tasks:
            away = ("elsewhere",) if t.get("remote", False) else ()
            ask = wants(t["demand"], t["duration"], t["priScore"], nodes=away)
            rows[harness.ask(apps[t["job"]], ask).row] = t["id"]
        harness.owe(dict(given["deficits"].items()))
        answer = harness.match(node)
        assert [rows[p.row] for p in answer.placements] == expected["picked"]
        perf = [dict(p.scores)["perf"] for p in answer.placements]
        assert perf == pytest.approx(expected["perf"], abs=tolerance["abs"])
        harness.place(node, answer)
        found = harness.owed()
        for group, value in expected["deficits"].items():
            assert found[group] == pytest.approx(value, abs=tolerance["abs"])


class TwoJobs:
    """Figure 3's two jobs on one machine: virtual time around a matcher's answers."""

    def __init__(self, given: Table, priority: Any, options: dict[str, Any]) -> None:
        jobs, cluster = given["jobs"], given["cluster"]
        assert cluster["num_machines"] == 1
        names = jobs[0]["resources"]
        capacity = np.array([cluster["capacity"][n] for n in names])
        self.harness = MatcherHarness("graphene", options, QueueSpec("root"), read_types(names))
        self.node = self.harness.add_node(tuple(capacity))
        self.apps, self.tasks = [], []
        for job in jobs:
            assert job["resources"] == names
            job.prose("name")
            self.apps.append(self.harness.add_app("root"))
            for t in job["tasks"]:
                demand = np.array([t["demand"].get(n, 0.0) for n in names])
                self.tasks.append((len(self.apps) - 1, t, demand, float((demand / capacity).sum())))
        self.priority = priority

    def run(self) -> list[float]:
        """Completion times by job."""
        harness, now = self.harness, 0.0
        asked: dict[int, int] = {}  # serial of an ask -> task
        waiting, started, done = set(range(len(self.tasks))), set[int](), dict[Any, float]()
        running: list[tuple[float, int, int]] = []
        while len(done) < len(self.tasks):
            for i in sorted(waiting):
                job, t, demand, _ = self.tasks[i]
                if all((job, parent) in done for parent in t["parents"]):
                    waiting.discard(i)
                    ask = wants(demand, t["duration"], self.priority[t["id"]])
                    asked[harness.ask(self.apps[job], ask).serial] = i
            while True:  # one task at a time, its job's remaining work told after each
                for job, app in enumerate(self.apps):
                    left = [
                        t["duration"] * norm
                        for i, (j, t, _, norm) in enumerate(self.tasks)
                        if j == job and i not in started
                    ]
                    harness.ledger.apps.w["remaining"][app] = sum(left)
                answer = harness.match(self.node)
                if not answer.placements:
                    break
                first = answer.placements[0]
                entry = harness.rows.entries[first.row]
                assert entry is not None
                i = asked[entry.serial]
                (container,) = harness.place(self.node, Match([first]))
                started.add(i)
                heapq.heappush(running, (now + self.tasks[i][1]["duration"], i, container))
            now = running[0][0]
            while running and running[0][0] <= now + 1e-9:
                _, i, container = heapq.heappop(running)
                harness.end(container)
                done[self.tasks[i][0], self.tasks[i][1]["id"]] = now
        jobs = range(len(self.apps))
        return [max(t for (j, _), t in done.items() if j == job) for job in jobs]


@examples("fig3")
def test_two_jobs_under_slot_fairness_take_the_times_of_figure_3(case: dict[str, Any]) -> None:
    """Each preferred order gives the paper's completion times and makespan."""
    with reading(case) as (given, expected, tolerance):
        given.prose("fairness")  # fewest slots so far first; the other job where nothing fits
        expected.prose("notes")
        shortest = min(t["duration"] for job in given["jobs"] for t in job["tasks"])
        assert given["epsilon"] == shortest
        options = {
            **PLAIN,
            "kappa": 0.0,
            "deficit_unit": "slots",
            "group": "app",
            "use_packing": False,
        }
        for name, order in given["orders"].items():
            priority = {task: 1.0 - place / len(order) for place, task in enumerate(order)}
            ends = np.array(TwoJobs(given, priority, options).run()) / given["T"]
            for found, key in ((ends.mean(), "avg_jct_over_T"), (ends.max(), "makespan_over_T")):
                assert found == pytest.approx(expected[key][name], abs=tolerance["abs"]), name


@examples("fig3_scored")
def test_two_jobs_under_figure_15_take_the_expected_times(
    case: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tight unfairness bound makes the jobs alternate; a loose one finishes the shorter first."""
    with reading(case) as (given, expected, tolerance):
        given.prose("ties")
        monkeypatch.setattr("rm.match.graphene.ETA_WEIGHT", 1.0)
        assert len(set(given["share"])) == 1  # as applications of one queue have them
        bounds = given["kappaC"]
        first = given["jobs"][0]["resources"][0]  # a slot's: the matcher's kappa is over all of it
        slots = max(1.0, given["cluster"]["capacity"][first])
        assert given["factor"] == "slot" or slots == 1
        wanted = zip(bounds, expected["avg_jct_over_T"], expected["makespan_over_T"], strict=True)
        for bound, mean, makespan in wanted:
            options = {
                "overbook": "",
                "eta_m": given["m"],
                "kappa": bound / slots,
                "deficit_unit": UNIT[given["factor"]],
                "group": "app",
            }
            ends = np.array(TwoJobs(given, given["priScore"], options).run()) / given["T"]
            assert ends.mean() == pytest.approx(mean, abs=tolerance["abs"])
            assert ends.max() == pytest.approx(makespan, abs=tolerance["abs"])


@pytest.mark.slow
@examples("overbook")
def test_overbooking_weighs_waiting_against_slowing(case: dict[str, Any]) -> None:
    """The matcher overbooks where the fluid model says that it pays, with the said score."""
    with reading(case) as (given, expected, tolerance):
        names, task, running = list(given["caps"]), given["task"], given["running"]
        caps = tuple(given["caps"].values())
        used = {name for each in [task, *running] for name in each["demand"]}
        assert used == set(names), "a capacity of nothing that is used"
        options = {**PLAIN, "overbook": ",".join(names), "overbook_limit": 10.0}
        harness = MatcherHarness("graphene", options, QueueSpec("root"), read_types(names))
        harness.now, app, node = given["now"], harness.add_app("root"), harness.add_node(caps)
        for t in running:
            harness.ask(app, wants([t["demand"].get(n, 0.0) for n in names], t["remaining"]))
            assert len(harness.beat(node)) == 1, t["id"]
        other, wait_s = harness.add_node(caps), given["next_opp"] - given["now"]
        harness.ask(app, wants(caps, wait_s))  # another machine, full until then
        assert len(harness.beat(other)) == 1
        need = [task["demand"].get(n, 0.0) for n in names]
        harness.ask(app, wants(need, task["duration"]))
        found = harness.match(node).placements
        assert bool(found) is expected["overbook"]
        score = dict(found[0].scores)["overbook"] if found else 0.0
        assert score == pytest.approx(expected["oScore"], abs=tolerance["abs"])
        assert all(p.overbooked for p in found)
        check_fluid(given, expected, tolerance["abs"])


def check_fluid(given: Table, expected: Table, abs_: float) -> None:
    """Completion times of the fluid model, and what they say for and against overbooking."""
    names, running, task = list(given["caps"]), given["running"], given["task"]
    parts = [*[t["demand"] for t in running], task["demand"]]
    demand = np.array([[part.get(n, 0.0) for n in names] for part in parts])
    left = np.array([*[t["remaining"] for t in running], task["duration"]])
    caps, n = np.array(list(given["caps"].values())), len(running)
    before, after = fluid_ends(left, demand, caps, n), fluid_ends(left, demand, caps, n + 1)
    ids = [*[t["id"] for t in running], task["id"]]
    opportunity = given["next_opp"]
    found = {
        "after": dict(zip(ids, after + given["now"], strict=True)),
        "cost": float((after[:n] - before).sum()),
        "benefit": opportunity + task["duration"] - after[n] - given["now"],
        "finish_if_wait": [*before, opportunity + task["duration"]],
        "throughput_overbooked": left.sum() / after.max(),
    }
    for key, value in found.items():
        if key in expected:
            wanted = expected[key]
            wanted = dict(wanted.items()) if isinstance(wanted, Table) else wanted
            assert value == pytest.approx(wanted, abs=abs_), key


@examples("drf")
def test_drf_shares(case: dict[str, Any]) -> None:
    """Closed form, and progressive filling where the example asks for it; both agree otherwise."""
    with reading(case) as (given, expected, tolerance):
        total, demand = np.array(given["total"]), np.array(given["demands"])
        weight = np.array(given.get("weights", np.ones(len(demand))))
        filled = drf_progressive(total, demand, weight)
        shares = filled if given.get("progressive") else drf_closed_form(total, demand, weight)
        found = {
            "alloc": shares.allocation,
            "unallocated": shares.unallocated,
            "dominant": shares.dominant,
            "x": (shares.dominant / weight).max(),
            "tasks": (shares.allocation / np.where(demand > 0, demand, np.inf)).max(axis=1),
        }
        for key, value in found.items():
            if key in expected:
                assert value == pytest.approx(np.array(expected[key]), abs=tolerance["abs"]), key
        if "tasks" in expected:
            assert filled.allocation == pytest.approx(shares.allocation, abs=tolerance["abs"])


@examples("jain")
def test_jains_index(case: dict[str, Any]) -> None:
    """1 for equal shares, 1/n when one has all: the function behind every run's summary."""
    with reading(case) as (given, expected, tolerance):
        found = [jain(np.array(values, dtype=float)) for values in given["cases"]]
        assert found == pytest.approx(expected["index"], abs=tolerance["abs"])


@examples("srpt")
def test_srpt_is_duration_times_the_l1_norm(case: dict[str, Any]) -> None:
    """The remaining work that a master reports is the example's (figure 15 line 20)."""
    with reading(case) as (given, expected, tolerance):
        capacity = tuple(given["capacity"])
        types = read_types([f"r{i}" for i in range(len(capacity))])
        parts = tuple(
            Stage(f"s{i}", 1, duration, types.mapping(tuple(demand)), (Edge("s0"),) * (i > 0))
            for i, (duration, demand) in enumerate(given["pending"])
        )
        job = Job("j", parts)
        progress, base = Progress(job), [part.duration_s for part in parts]
        progress.adopt(build_groups(job, types, capacity, None, base))
        assert progress.remaining_work == pytest.approx(expected["srpt"], abs=tolerance["abs"])
