"""Tapes of live runs, faults and all, replay equal; a change in a policy shows where it begins."""

import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from lab.cli import weft
from lab.play.runs import read_tapes
from lab.play.views import Run
from rm.match.capacity import CapacityMatcher
from sim.replay.verify import Replay
from testkit.live import Cluster, Part, chain, until, wait_for_nodes
from weft.client.api import Client
from weft.protocol.effects import ClientRequested
from weft.protocol.messages import MANAGER
from weft.protocol.record import changed
from weft.protocol.requests import SubmitApplication
from weft.runtime.tapefile import TapeFile, find_tapes
from weft.tape.rows import Handled, Row

NODE = "--cluster=1x4vcores,8192memory_mb"


def replayed(tape: TapeFile) -> Replay:
    run = Replay(checked=True).run(tape.rows())
    assert run.difference is None, f"{tape.path.name}: {run.difference}"
    return run


def again(part: Part) -> str:
    """The flag that has a process listen where an earlier one did."""
    return f"--port={part.address.rpartition(':')[2]}"


def test_a_run_with_killed_processes_replays_and_a_changed_matcher_is_found(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = cluster.folder / "tapes"
    tape = f"--tape={folder}"
    keeps = ("--node-expiry-s=3", f"--state-dir={cluster.folder / 'state'}", "--max-attempts=9")
    manager = cluster.manager(*keeps, tape)
    host = cluster.host(manager, tape, "--scheduler=graphene")
    hosted = f"--am-host={host.address}"
    cluster.nodes(manager, hosted, "--nodes=2", "--node-name=a", NODE, tape)
    lost = cluster.nodes(manager, hosted, "--nodes=2", "--node-name=b", NODE, tape)
    with Client(manager.address) as client:
        wait_for_nodes(client, 4)
        jobs = [chain("one", 4, 12, 0.4), chain("two", 3, 12, 0.3)]
        apps = [client.submit(job) for job in jobs]
        until(lambda: client.application(apps[0]).finished_tasks > 2, "tasks end")
        lost.kill()
        until(lambda: client.application(apps[0]).finished_tasks > 14, "more tasks end")
        host.kill()
        cluster.host(manager, tape, "--scheduler=graphene", again(host))
        until(lambda: client.application(apps[1]).finished_tasks > 14, "and more")
        manager.kill()
        cluster.manager(*keeps, tape, again(manager))
        ended = client.wait(apps)
        assert {report.final_status for report in ended.values()} == {"SUCCEEDED"}
    for part in cluster.parts:
        if part.process.poll() is None:
            part.stop()
    tapes = find_tapes(folder)
    assert [tape.role for tape in tapes] == ["rm", "rm", "am", "am", "nm", "nm"]
    runs = [replayed(tape) for tape in tapes]
    assert [not run.ended for run in runs] == [True, False, True, False, False, True]
    assert runs[0].placements >= 14  # of a killed process the last moment is lost
    # One answer in so many is compared as a whole: a node that dies early may have had none.
    assert all(run.sums for run in runs if run.ended or run.placements)
    _shows_the_state(tapes[0], apps[0])
    _asks_what_if(folder)
    _forks(folder, tapes[1])
    _plays(folder, sum(run.placements for run in runs[:2]))
    _finds_a_change(tapes[0], monkeypatch)


def _plays(folder: Path, placements: int) -> None:
    """Both lives of the manager are one run, with every decision of both."""
    run = Run(read_tapes(folder))
    told = run.described()
    assert (told["scheduler"], told["simulated"]) == ("tez_g_cs", False)
    assert run.timeline.decisions == placements
    assert {job["final"] for job in run.timeline.jobs} == {"SUCCEEDED"}
    last = max(row for row, stage in enumerate(run.timeline.stage) if stage >= 0)
    assert run.weighed(last)["ranked"][0][:2] == [run.timeline.job[last], run.timeline.stage[last]]
    assert run.timeline.step[last] > next(
        place for place, step in enumerate(run.played.steps) if place and step.begin
    )


def _shows_the_state(tape: TapeFile, app: int) -> None:
    middle_s = next(
        row.now for row in tape.rows() if isinstance(row, Handled) and len(row.placed) > 1
    )
    asked = ["replay", str(tape.path), "--until", repr(middle_s), "--app", str(app), "--json"]
    said = CliRunner().invoke(weft, asked, catch_exceptions=False)
    told = json.loads(said.stdout)
    assert told["now_s"] == middle_s
    first_s = next(row.now for row in tape.rows() if isinstance(row, Handled))
    asked[3] = f"+{middle_s + 1e-6 - first_s!r}"
    again = CliRunner().invoke(weft, asked, catch_exceptions=False)
    assert json.loads(again.stdout)["now_s"] == middle_s, "counted from the first event on"
    assert told["application"]["state"] == "RUNNING"
    assert told["application"]["name"] == "one"


def _asks_what_if(folder: Path) -> None:
    """Half as many cores: the same jobs, simulated, take longer than as simulated before."""
    asked = ["whatif", str(folder), "--cluster", "2x4vcores,8192memory_mb", "--json"]
    told = json.loads(CliRunner().invoke(weft, asked, catch_exceptions=False).stdout)
    assert [row["name"] for row in told["jobs"]] == ["one", "two"]
    assert told["jobs_in_mean"] == 2
    assert told["mean"]["changed_s"] > told["mean"]["same_s"] > 0
    assert told["mean"]["recorded_s"] > told["mean"]["same_s"], "it had faults, this has none"
    same = json.loads(
        CliRunner().invoke(weft, ["whatif", str(folder), "--json"], catch_exceptions=False).stdout
    )
    assert all(row["same_s"] == row["changed_s"] for row in same["jobs"])
    assert [row["same_s"] for row in same["jobs"]] == [row["same_s"] for row in told["jobs"]]


def _times(rows: Iterable[Row]) -> Iterator[float]:
    return (row.now for row in rows if isinstance(row, Handled))


def _forks(folder: Path, tape: TapeFile) -> None:
    """After the faults nothing is left to chance: what is open ends about when it ended."""
    ends = [row.now for row in tape.rows() if isinstance(row, Handled) and row.placed]
    firsts = [next(_times(one.rows()), math.inf) for one in find_tapes(folder)]
    at = f"+{ends[-1] - 0.2 - min(firsts)!r}"
    asked = ["whatif", str(folder), "--at", at, "--json", "--draws", "1"]
    told = json.loads(CliRunner().invoke(weft, asked, catch_exceptions=False).stdout)
    assert told["jobs"], "one was open"
    for row in told["jobs"]:
        assert row["same_s"] == row["changed_s"]
        assert abs(row["same_s"] - row["recorded_s"]) < 0.25 * row["recorded_s"]


def _finds_a_change(tape: TapeFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the middle of the run on the matcher keeps its last choice to itself."""
    placed = [row for row in tape.rows() if isinstance(row, Handled) and row.placed]
    right, middle_s = CapacityMatcher.match, placed[len(placed) // 2].now

    def forgetful(self: CapacityMatcher, view: Any, node: int, now: float) -> Any:
        match = right(self, view, node, now)
        return changed(match, placements=match.placements[:-1]) if now >= middle_s else match

    monkeypatch.setattr(CapacityMatcher, "match", forgetful)
    run = Replay().run(tape.rows())
    found = run.difference
    assert found is not None
    assert found.core == MANAGER
    assert found.now == middle_s
    assert run.placements == sum(len(row.placed) for row in placed if row.now < found.now)
    assert "placement" in found.live
    assert found.live != found.replayed
    said = CliRunner().invoke(weft, ["replay", str(tape.path)])
    assert isinstance(said.exception, Exception)
    assert "replay otherwise" in str(said.exception)
    assert f"at {found.now:.6f} s in rm" in said.stdout


def test_real_commands_on_heartbeats_replay(cluster: Cluster, tmp_path: Path) -> None:
    """Ends and use of processes are inputs that no core decides: they are on the tape."""
    tape = f"--tape={tmp_path / 'tapes'}"
    manager = cluster.manager("--pace=yarn", "--heartbeat-s=0.3", "--master-heartbeat-s=0.3", tape)
    cluster.nodes(
        manager,
        "--mode=process",
        "--launch=process",
        f"--work-dir={tmp_path / 'work'}",
        "--cluster=1x4vcores,8192memory_mb",
        "--cgroups=off",
        tape,
    )
    with Client(manager.address) as client:
        wait_for_nodes(client, 1)
        app = client.submit(chain("real", 2, 4, 1.0, command=("sh", "-c", "sleep 0.3; echo x")))
        assert client.wait([app])[app].final_status == "SUCCEEDED"
    for part in reversed(cluster.parts):
        part.stop()
    tapes = find_tapes(tmp_path / "tapes")
    assert [tape.role for tape in tapes] == ["rm", "am", "nm"]
    runs = [replayed(tape) for tape in tapes]
    assert runs[0].placements == 8
    said = CliRunner().invoke(weft, ["whatif", str(tmp_path / "tapes"), "--json"])
    (row,) = json.loads(said.stdout)["jobs"]
    assert row["same_s"] >= 2 * 0.3, "tasks take what their commands took"
    assert row["same_s"] < 2 * row["recorded_s"]
    placed = (one.now for one in tapes[0].rows() if isinstance(one, Handled) and one.placed)
    middle_s = next(placed) + 0.1
    asked = ["whatif", str(tmp_path / "tapes"), "--at", repr(middle_s), "--json"]
    (row,) = json.loads(CliRunner().invoke(weft, asked, catch_exceptions=False).stdout)["jobs"]
    assert abs(row["same_s"] - row["recorded_s"]) < 0.5, "commands take what they took"
    (job,) = (
        row.event.request.job
        for row in tapes[0].rows()
        if isinstance(row, Handled)
        and isinstance(row.event, ClientRequested)
        and isinstance(row.event.request, SubmitApplication)
    )
    assert job.name == "real"
