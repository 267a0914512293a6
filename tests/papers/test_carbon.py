"""CAP and PCAPS (Lechowicz et al. 2025): thresholds by hand, and what they hold back."""

from pathlib import Path

import numpy as np
import pytest

from rm.match.carbon import CarbonMatcher, psi, quota, thresholds, trace_of
from rm.match.registry import make_matcher
from sim.cluster import Simulation
from sim.settings import SimSettings
from testkit.matching import VIEWING, MatcherHarness
from weft.model.cluster import cluster_from_text
from weft.model.errors import InputError
from weft.model.job import Edge, Job, Stage
from weft.policies.presets import Preset
from weft.protocol.facts import Placed
from weft.protocol.messages import Ask, AskType
from weft.protocol.record import changed
from weft.workloads.carbon_trace import inlined

ROUND = (10.0, 10_240.0, 1000.0)
ONE = (1.0, 0.0, 0.0)


def test_the_thresholds_of_the_k_search_by_hand() -> None:
    """One machine to decide on: sqrt(U L). Two, U = 320, L = 70: x = 1/2, so 160 and 120."""
    assert thresholds(1, 100.0, 400.0) == pytest.approx([200.0])
    assert thresholds(2, 70.0, 320.0) == pytest.approx([160.0, 120.0])
    assert thresholds(3, 50.0, 50.0) == pytest.approx([50.0] * 3)
    assert [quota(5, 3, c, 70.0, 320.0) for c in (70, 120, 121, 160, 161, 320)] == [
        5,
        5,
        4,
        4,
        3,
        3,
    ]
    assert quota(5, 3, 50.0, 50.0, 50.0) == 5  # nothing to wait for


def test_psi_by_hand() -> None:
    """gamma = 1/2, L = 100, U = 300: 200 at r = 0, U at r = 1, 243.78 half way."""
    assert psi(np.array([0.0, 0.5, 1.0]), 0.5, 100.0, 300.0) == pytest.approx(
        [200, 243.78, 300], abs=0.01
    )
    assert psi(np.array([0.0]), 1e-6, 100.0, 300.0) == pytest.approx(
        300.0, rel=1e-5
    )  # blind to carbon


def harness(policy: str, intensity: str, name: str = "fifo", **more: object) -> MatcherHarness:
    """Five nodes of ten slots, and one application that asks for whatever a test tells."""
    made = MatcherHarness(name, {"carbon": intensity, "carbon_policy": policy, **more})
    for _ in range(5):
        made.add_node(ROUND)
    return made


def test_cap_holds_the_cluster_to_its_quota() -> None:
    """U = 320, L = 70, B = 3 of 5 nodes: 40 slots at 150, 30 at 300, all at 100."""
    for first, slots in ((150, 40), (300, 30), (100, 50)):
        made = harness("cap", f"60;{first},70,320", carbon_least=0.6)
        made.ask(made.add_app(), Ask(0, 60, ONE, 10.0, 1.0, AskType.DEFAULT, 0))
        answers = [made.match(0)]
        for node in range(5):
            made.beat(node)
        assert len(made.held) == slots
        assert answers[0].settled  # a node full of what was asked for
        last = made.match(4)
        assert last.placements == []
        assert last.settled == (slots == 50)
        made.now = 60.0  # L: everything may be used
        for node in range(5):
            made.beat(node)
        assert len(made.held) == 50


def test_pcaps_defers_the_unimportant_while_something_runs() -> None:
    """gamma = 1/2, L = 100, U = 300: at 250 a task of importance 1/2 waits, one of 1 does not."""
    made = harness("pcaps", "60;250,100,300", carbon_gamma=0.5)
    app = made.add_app()
    low = made.ask(app, Ask(0, 3, ONE, 10.0, 0.4, AskType.DEFAULT, 0))
    high = made.ask(app, Ask(1, 3, ONE, 10.0, 0.8, AskType.DEFAULT, 1))
    matcher = made.matcher
    assert isinstance(matcher, CarbonMatcher)
    assert not matcher.deferred(made.view, 0.0)  # nothing runs: the cluster does not stand idle
    other = made.add_app()
    made.ask(other, Ask(0, 2, ONE, 10.0, 0.8, AskType.DEFAULT, 0))
    made.place(4, changed(made.match(4), placements=[made.match(4).placements[-1]]))
    assert matcher.deferred(made.view, 0.0) == {low.row}
    answer = made.match(0)
    assert {p.row for p in answer.placements} == {high.row}
    assert not answer.settled
    assert "cleaner electricity" in matcher.why_not(made.view, 0, low.row)
    made.now = 60.0
    assert {p.row for p in made.match(0).placements} == {low.row, high.row}


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["cap", "pcaps"])
@pytest.mark.parametrize("prompt", [False, True], ids=["yarn", "prompt"])
@pytest.mark.parametrize("name", VIEWING)
def test_every_job_ends_and_no_grant_passes_the_cap(name: str, prompt: bool, policy: str) -> None:
    """Around every matcher, every checker on, in both paces."""
    demand = {"vcores": 1.0, "memory_mb": 512.0}
    jobs = [
        Job(
            f"j{n}",
            (Stage("a", 6 + n, 4.0, demand), Stage("b", 3, 6.0, demand, (Edge("a"),))),
            arrival_s=5.0 * n,
        )
        for n in range(4)
    ]
    cluster = cluster_from_text("5x4vcores,8192memory_mb")
    options = {"carbon": "20;400,300,100,350,80", "carbon_policy": policy}
    scheduler = Preset(name, "bfs", "all_ready", matcher_options=options)
    simulation = Simulation(cluster, jobs, SimSettings(scheduler, prompt=prompt, checks=True))
    books = simulation.manager.books
    assert isinstance(books.matcher, CarbonMatcher)
    over: list[float] = []

    def note(now: float, fact: object) -> None:
        if isinstance(fact, Placed) and policy == "cap":
            part = books.matcher.part(books.view, now)  # type: ignore[attr-defined]
            held = books.view.by_queue.held[0] / books.view.total
            tasks = int(books.view.apps.containers[books.view.apps.active].sum()) - len(jobs)
            if tasks > 1:
                over.append(float(held.max() - part))

    simulation.watchers.append(note)
    recorder = simulation.run()
    assert [row.end for row in recorder.jobs] == ["SUCCEEDED"] * 4
    assert all(extra <= 1e-9 for extra in over)
    assert policy == "pcaps" or over


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"carbon": "60"}, "expected STEP_S"),
        ({"carbon": "60;1,x"}, "expected STEP_S"),
        ({"carbon": "0;1"}, "positive time"),
        ({"carbon": "60;-1"}, "from 0 on"),
        ({"carbon": "diurnal:9:1"}, "expected STEP_S"),
        ({"carbon_gamma": 0.5}, "need a trace"),
        ({"carbon": "60;1", "carbon_policy": "most"}, "cap, pcaps"),
    ],
)
def test_wrong_settings_are_named(options: dict[str, object], problem: str) -> None:
    with pytest.raises(InputError) as caught:
        make_matcher("capacity", options)
    assert problem in str(caught.value)


def test_a_trace_is_read_from_a_file_and_kept_whole(tmp_path: Path) -> None:
    """Electricity Maps' columns; the option is the content, so that a tape needs no file."""
    file = tmp_path / "de.csv"
    head = "datetime,timestamp,zone_name,carbon_intensity_avg"
    file.write_text(f"{head}\na,1609459200,DE,541.69\nb,1609461000,DE,548.44\n", encoding="utf-8")
    found = inlined({"matcher.carbon": str(file), "matcher.lend": "false"})
    assert found == {"matcher.carbon": "1800;541.69,548.44", "matcher.lend": "false"}
    trace = trace_of(str(found["matcher.carbon"]))
    assert [trace.at(t) for t in (0.0, 1799.0, 1800.0, 3600.0)] == [541.69, 541.69, 548.44, 541.69]
    assert trace.at(1800.0) == 548.44
    file.write_text("datetime,price\na,1\n", encoding="utf-8")
    with pytest.raises(InputError, match="no column of carbon intensity"):
        inlined({"matcher.carbon": str(file)})
    with pytest.raises(InputError, match="No such file"):
        inlined({"matcher.carbon": str(tmp_path / "none.csv")})
    day = trace_of("diurnal:100:300:240")
    assert (min(day.values), max(day.values), day.step_s) == (100.0, 300.0, 10.0)
