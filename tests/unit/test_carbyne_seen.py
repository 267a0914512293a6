"""Carbyne's two types of ask can be seen: in explanations, metrics, summaries and reports."""

from pathlib import Path

import numpy as np
import pytest

from lab.report.html import write_report
from rm.process.metrics import ManagerMetrics
from rm.settings import ManagerSettings
from sim.cluster import Simulation
from sim.process.outputs import summarise, write_run
from sim.recorder import Recorder
from sim.results import Run
from sim.settings import SimSettings
from testkit.builders import ask, job, stage
from testkit.manager import Rig
from weft.client.show import show_explanation
from weft.model.cluster import cluster_from_text
from weft.model.job import Job, Stage
from weft.policies.presets import preset
from weft.protocol.facts import Closed, Placed
from weft.protocol.messages import AskType, Outcome
from weft.protocol.requests import Explain, Explanation
from weft.runtime.exposition import Exposition
from weft.wire import client_pb2 as pb
from weft.wire.schema import codec_of

FREE = ManagerSettings(master_demand={"vcores": 0.0})


def test_an_explanation_tells_how_many_may_wait(capsys: pytest.CaptureFixture[str]) -> None:
    """Nine pending on a full node: two of them must run. It survives the wire and is printed."""
    rig = Rig("carbyne", FREE)
    rig.add_node("n1", vcores=1.0)
    busy, other = rig.start(job("busy", stage(tasks=1))), rig.start(job("j", stage(tasks=9)))
    rig.allocate(busy, ask(1, 1))
    rig.beat()
    rig.allocate(other, ask(1, 2), ask(2, 7, kind=AskType.ALTRUISTIC))
    explained = rig.ask_manager(Explain(2))
    [found] = explained.stages
    assert (found.pending, found.altruistic) == (9, 7)
    codec = codec_of(Explanation, pb.Explanation)
    assert codec.decode(codec.encode(explained)) == explained
    show_explanation(explained)
    printed = capsys.readouterr().out
    assert "may wait: asked ALTRUISTIC" in printed
    assert [line.split()[1:3] for line in printed.splitlines() if "does not fit" in line] == [
        ["9", "7"]
    ]


def test_containers_in_leftover_are_counted_until_they_end() -> None:
    out = Exposition()
    metrics = ManagerMetrics(out)

    def shown() -> str:
        lines = out.text().decode().splitlines()
        [line] = [each for each in lines if each.startswith("weft_leftover_containers ")]
        return f"{float(line.split()[1]):g}"

    assert shown() == "0"
    for container, kind in ((1, AskType.DEFAULT), (2, AskType.ALTRUISTIC), (3, AskType.ALTRUISTIC)):
        metrics.note(Placed(container, "n1", 1, 0, (1.0,), kind, "root.default"))
    assert shown() == "2"
    for container in (1, 2):
        metrics.note(Closed(container, "n1", Outcome.SUCCEEDED, 0, 0, 0))
    assert shown() == "1"


def run_of(scheduler: str) -> tuple[Run, Recorder]:
    """One long task that must run, eight short ones that may wait, on eight cores."""
    one = {"cores": 1.0}
    cluster = cluster_from_text("1x8cores")
    jobs = [Job("j", (Stage("long", 1, 40.0, one), Stage("short", 8, 4.0, one)))]
    recorder = Recorder()
    Simulation(cluster, jobs, SimSettings(preset(scheduler)), recorder).run()
    return Run(cluster, recorder.jobs, recorder.columns()), recorder


@pytest.mark.slow
def test_summary_and_report_tell_what_ran_in_leftover(tmp_path: Path) -> None:
    """Seven cores are left beside the long task; one short task waits for a place."""
    run, recorder = run_of("carbyne")
    summary = summarise(run, recorder, scheduler="carbyne", seed=0, events=0, wall_s=0.0)
    assert summary["altruistic"] == pytest.approx(8 / 9)
    told = summary["leftover"]
    assert told["resource"] == "cores"
    assert max(told["altruistic"]) == pytest.approx(7 / 8)
    assert max(told["default"]) == pytest.approx(1 / 8)
    used = np.add(told["default"], told["altruistic"])
    assert used.max() <= 1.0
    write_run(tmp_path, run, summary)
    page = write_report([tmp_path]).read_text()
    assert "89 % of the tasks were placed as ALTRUISTIC" in page


@pytest.mark.slow
def test_without_altruism_nothing_is_told_of_leftover(tmp_path: Path) -> None:
    run, recorder = run_of("drf")
    summary = summarise(run, recorder, scheduler="drf", seed=0, events=0, wall_s=0.0)
    assert "leftover" not in summary
    write_run(tmp_path, run, summary)
    assert "ALTRUISTIC" not in write_report([tmp_path]).read_text()
