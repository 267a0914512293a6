"""A run that is played is the run that was: its columns, any moment of it, and who competed."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import sim.replay.candidate_scores
from lab.cli import weft
from lab.functions import cluster_of
from lab.learning.gym import synthetic
from lab.play.runs import read_run, simulate_run
from lab.play.views import PlayedClient, Run, put_first_by
from lab.simulate_options import request_of
from rm.core import ResourceManager
from rm.match.protocol import Placement
from sim.faults import NO_FAULTS, Fault, FaultKind, Faults
from sim.recorder import Recorder
from sim.replay.candidate_scores import RANKED_CANDIDATES_MAX, Candidate, Weighed, Weighings
from sim.replay.client_view import AskedManager
from sim.replay.recorded_run import RecordedRun, Rerun, Step, Watched, of_simulation, until
from sim.replay.timeline import MASTER, timeline_of
from sim.request import Request
from sim.settings import SimSettings
from weft.client.api import RefusedError
from weft.model.errors import InputError
from weft.model.ids import AppId, ContainerId
from weft.model.jobfile import job_to_dict
from weft.model.queues import QueueSpec
from weft.policies.presets import PROMISING, preset
from weft.protocol.effects import ClientRequested
from weft.protocol.facts import Placed
from weft.protocol.requests import MoveApplication, QueueReport, SetQueues, UpdateNode
from weft.web.history import History

CLUSTER = "3x5vcores,10240memory_mb,200disk_mbps,300network_mbps"
EXAMPLE = Path(__file__).parents[2] / "docs" / "examples"


class Heard(Recorder):
    """Also keeps where every container was placed."""

    def __init__(self) -> None:
        super().__init__()
        self.placed: list[tuple[float, ContainerId, str, int]] = []

    def watch(self, now: float, fact: Any) -> None:
        """Take a fact of the simulation."""
        if isinstance(fact, Placed):
            self.placed.append((now, fact.container, fact.node, fact.stage))


def simulated(
    scheduler: str, pace: str = "prompt", faults: Faults = NO_FAULTS
) -> tuple[RecordedRun, Heard]:
    jobs = synthetic(np.random.default_rng(7), jobs=9, interarrival_s=0.5, smaller=16)
    heard = Heard()
    settings = SimSettings(preset(scheduler), prompt=pace == "prompt", faults=faults)
    run = Watched(cluster_of(CLUSTER), jobs, settings, heard)
    run.watchers.append(heard.watch)
    run.run()
    return of_simulation(scheduler, scheduler, run), heard


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", ["capacity", "graphene", "carbyne", "cobra"])
@pytest.mark.parametrize("pace", ["yarn", "prompt"])
def test_the_columns_are_what_the_simulation_decided(scheduler: str, pace: str) -> None:
    played, heard = simulated(scheduler, pace)
    timeline = timeline_of(played)
    rows = [row for row, stage in enumerate(timeline.stage) if stage != MASTER]
    found = [
        (timeline.start[row], timeline.nodes[timeline.node[row]]["name"], timeline.stage[row])
        for row in rows
    ]
    assert found == [(round(at, 6), node, stage) for at, _, node, stage in heard.placed]
    ends = {job["app"]: job["finished"] for job in timeline.jobs}
    assert ends == {row.app: round(row.finish_s, 6) for row in heard.jobs}
    assert sum(timeline.progress[-1][3:]) > 0
    done = {job: finished for _, _, job, finished in timeline.progress}
    assert sum(done.values()) == heard.finished_tasks
    assert all(end >= start for start, end in zip(timeline.start, timeline.end, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", sorted(PROMISING))
def test_every_decision_names_its_winner_first_and_changes_nothing(
    scheduler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    played, _ = simulated(scheduler)
    agreed: list[bool] = []

    def weigh(books: Any, matcher: Any, node: int, now: float, winner: Placement) -> Weighed:
        """The matcher, asked anew amid its own answer, goes on as it did."""
        again = matcher.would_match(books.view, node, now).placements
        agreed.append(bool(again) and again[0].row == winner.row)
        return weighing.weigh(books, matcher, node, now, winner)

    weighing = SimpleNamespace(weigh=sim.replay.candidate_scores.weigh)
    monkeypatch.setattr(sim.replay.candidate_scores, "weigh", weigh)
    timeline, weighings = timeline_of(played), Weighings(played.steps)
    rows = [row for row, stage in enumerate(timeline.stage) if stage != MASTER]
    competed = 0
    for row in [*rows, *rows[::-7]]:  # forward, and then here and there backward
        found = weighings.of(timeline.step[row], timeline.turn[row], ahead=20)
        assert found is not None
        assert found.ranked or found.gang
        best = found.ranked[0]
        app = timeline.jobs[timeline.job[row]]["app"]
        assert (best.app, best.stage) == (app, timeline.stage[row])
        scores = {name: column[row] for name, column in timeline.scores.items()}
        told = {name: float(f"{value:.7g}") for name, value in best.scores}
        decided = {name: value for name, value in scores.items() if value is not None}
        # The order of a line goes by more than a decision keeps.
        assert decided.items() <= told.items()
        assert len(found.ranked) <= RANKED_CANDIDATES_MAX
        competed += len(found.ranked) > 1
        assert all(one.pending > 0 for one in (*found.ranked, *found.others))
    assert competed, "nobody ever competed: the run shows nothing"
    assert agreed.count(True) >= 0.99 * len(agreed)


def test_each_decision_names_what_put_the_chosen_one_first() -> None:
    """Also where the next one's score is larger: that is of another choice, with another eta."""
    played, _ = simulated("graphene")
    run = Run(played)
    by: Counter[str] = Counter()
    for row, stage in enumerate(run.timeline.stage):
        if stage == MASTER:
            continue
        told = run.weighed(row)
        scores = [scores for _, _, _, scores in told["ranked"]]
        if len(scores) < 2:
            continue
        name = told["by"].partition(":")[0]
        by[name] += 1
        if scores[0]["perf"] < scores[1]["perf"]:
            assert name in ("deficit", "eta", "pri", "bundle", "reservation"), (told["by"], scores)
    assert "perf" in by, by


@pytest.mark.parametrize(
    ("kept", "before", "wanted"), [(True, 0, "reservation: "), (False, 2, "bundle: ")]
)
def test_a_choice_that_no_term_explains_names_its_rule(
    kept: bool, before: int, wanted: str
) -> None:
    two = tuple(Candidate(app, 0, 1, (("perf", float(app)),)) for app in (1, 2))
    assert put_first_by(Weighed(two, (), 0, (), kept=kept, before=before)).startswith(wanted)


def test_what_is_ruled_out_says_by_what() -> None:
    played, _ = simulated("capacity")
    timeline, weighings = timeline_of(played), Weighings(played.steps)
    whys: Counter[str] = Counter()
    for row, stage in enumerate(timeline.stage):
        found = weighings.of(timeline.step[row], timeline.turn[row]) if stage != MASTER else None
        whys.update(other.why for other in found.others) if found else None
    assert any(why.startswith("does not fit: ") for why in whys), whys
    known = {"", "node is reserved for another ask"}
    assert set(whys) <= known | {f"does not fit: {name}" for name in played.types.names}, whys


def test_any_moment_is_reached_from_before_and_from_after() -> None:
    played, _ = simulated("graphene")
    count = len(played.steps)
    known: dict[int, Any] = {}

    def stands(rerun: Rerun) -> Any:
        books = rerun.manager.books
        held = sorted((number, h.node.node_id) for number, h in books.holdings.items())
        return held, books.ledger.nodes.available[: books.ledger.node_count].tolist()

    forward = Rerun(played.steps)
    for number in range(1, count, 37):
        forward.seek(number)
        known[number] = stands(forward)
    for number in sorted(known, reverse=True)[:12]:
        forward.seek(number)
        assert stands(forward) == known[number]
        assert until(played.steps, forward.now) >= number


AWAY = Fault(20.0, FaultKind.RESTART_MANAGER, for_s=20.0)


@pytest.mark.parametrize(
    "more",
    [
        (),
        (Fault(25.0, FaultKind.CRASH, ("n1",), for_s=5.0),),
        (Fault(25.0, FaultKind.CRASH, ("n1",)),),
    ],
    ids=["nothing", "a node comes back", "a node is lost"],
)
def test_what_ended_while_the_manager_was_away_has_ended(more: tuple[Fault, ...]) -> None:
    """And is no longer counted as in use."""
    played, _ = simulated("capacity", faults=Faults((AWAY, *more)))
    run = Run(played)
    timeline, history = run.timeline, History()
    assert min(timeline.end) >= 0
    assert any(AWAY.at_s < end_s <= AWAY.at_s + AWAY.for_s + 2.0 for end_s in timeline.end)
    moments = [*timeline.start, *timeline.end]
    most = cluster_of(CLUSTER).nodes[0].capacity[0]
    for at_s in sorted(set(moments))[::7]:
        held = [0.0] * len(timeline.nodes)
        for row, node in enumerate(timeline.node):
            if timeline.start[row] <= at_s < timeline.end[row]:
                held[node] += timeline.demands[timeline.demand[row]][0]
        assert max(held) <= most + 1e-9, at_s
    client = PlayedClient([run], history)
    asyncio.run(client.look(0, timeline.last_s))
    assert history.tracks
    assert not history.running()


def test_the_cluster_is_read_at_any_moment_and_cannot_be_changed() -> None:
    played, _ = simulated("capacity")
    run = Run(played)
    timeline, history = run.timeline, History()
    client = PlayedClient([run], history)

    async def look() -> None:
        for part in (0.7, 0.2, 1.0):
            at_s = timeline.first_s + part * (timeline.last_s - timeline.first_s)
            await client.look(0, at_s)
            now = [
                row
                for row, start in enumerate(timeline.start)
                if start <= at_s and (timeline.end[row] < 0 or timeline.end[row] > at_s)
            ]
            metrics = await client.metrics()
            assert metrics.containers_running == len(now)
            assert metrics.now_s == pytest.approx(at_s)
            spans = [s for track in history.tracks.values() for s in track.spans.values()]
            running = [span for span in spans if not span.end_s]
            assert len(running) == sum(timeline.stage[row] != MASTER for row in now)
        with pytest.raises(RefusedError, match="this run is over"):
            await client.kill(1)

    asyncio.run(look())


def test_the_columns_have_the_queues_and_nodes_of_each_moment() -> None:
    """An operator changes queues, moves an application and sizes a node, as the pages tell it."""
    played, _ = simulated("capacity")
    middle = len(played.steps) // 2
    at_s = played.steps[middle].now
    halves = QueueSpec("root", children=(QueueSpec("default", 0.5), QueueSpec("new", 0.5)))
    name = cluster_of(CLUSTER).nodes[0].node_id
    open_app = next(
        app.app_id
        for app in AskedManager(_at(played, middle), at_s).applications()
        if app.state == "RUNNING"
    )
    orders = [
        SetQueues(halves),
        MoveApplication(open_app, "new"),
        UpdateNode(name, {"vcores": 3.0}),
    ]
    changes = [Step(ClientRequested("", order), at_s) for order in orders]
    steps = [*played.steps[:middle], *changes, *played.steps[middle:]]
    changed = replace(played, steps=steps)
    timeline = timeline_of(changed)
    place = [job["app"] for job in timeline.jobs].index(open_app)
    for number in (middle, middle + len(changes)):
        asked = AskedManager(_at(changed, number), at_s)
        queues = {report.name: report.capacity for report in _leaves(asked.queues())}
        found: dict[str, float] = {}
        for _, step, queue, capacity, leaf in timeline.queue_states:
            if step < number:
                found[timeline.queues[queue]] = capacity if leaf else -1.0
        assert {path: share for path, share in found.items() if share >= 0} == queues
        moves = [move for move in timeline.moved if move[2] == place and move[1] < number]
        assert timeline.queues[moves[-1][3]] == asked.application(open_app).queue
        sizes = {node: size for _, step, node, _, size in timeline.node_states if step < number}
        for node in asked.nodes():
            known = [one["name"] for one in timeline.nodes].index(node.node_id)
            assert sizes[known] == list(node.capacity.values())
    assert len(queues) == 2


def _at(played: RecordedRun, number: int) -> ResourceManager:
    rerun = Rerun(played.steps)
    rerun.seek(number)
    return rerun.manager


def _leaves(queue: QueueReport) -> Iterator[QueueReport]:
    for below in queue.children:
        yield from _leaves(below)
    if not queue.children:
        yield queue


@pytest.mark.slow
def test_results_of_a_simulation_are_played_again(tmp_path: Path) -> None:
    jobs = synthetic(np.random.default_rng(7), jobs=3, interarrival_s=4.0, smaller=8)
    file = tmp_path / "jobs.jsonl"
    file.write_text("".join(f"{json.dumps(job_to_dict(job))}\n" for job in jobs))
    asked = [
        "simulate",
        str(file),
        "--cluster",
        CLUSTER,
        "--scheduler",
        "graphene",
        "--pace",
        "prompt",
        "--set",
        "matcher.kappa=0.3",
        "--out",
        str(tmp_path / "run"),
    ]
    assert CliRunner().invoke(weft, asked, catch_exceptions=False).exit_code == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert request_of(summary["command"]).options == {"matcher.kappa": "0.3"}
    said: list[str] = []
    played = read_run(tmp_path / "run", said.append)
    assert (played.name, said) == ("run", [])
    assert timeline_of(played).decisions == summary["tasks"]
    file.write_text("".join(f"{json.dumps(job_to_dict(job))}\n" for job in jobs[:2]))
    read_run(tmp_path / "run", said.append)
    assert "decides otherwise today" in said[0]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["nosuch"], "there is no such file or folder"),
        (["."], "holds neither tapes nor a simulation's summary.json"),
        (["a", "b", "c"], "one run or two side by side, got 3"),
        (["a", "--scheduler", "tetris"], "goes with --cluster"),
        (["a", "--cluster", CLUSTER, *(["--scheduler", "fifo"] * 3)], "one or two side by side"),
    ],
)
def test_what_cannot_be_played_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    said = CliRunner().invoke(weft, ["play", *arguments])
    assert isinstance(said.exception, InputError)
    assert problem in str(said.exception)


def test_a_run_in_which_nothing_was_granted_is_refused(tmp_path: Path) -> None:
    request = Request((str(EXAMPLE / "none"),), CLUSTER)
    with pytest.raises(InputError):
        simulate_run(request, lambda text: None)


def test_jobs_are_numbered_as_they_came() -> None:
    timeline = timeline_of(simulated("capacity")[0])
    numbers: list[AppId] = [job["app"] for job in timeline.jobs]
    assert numbers == sorted(numbers)
