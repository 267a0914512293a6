"""What tapes tell of a run that `weft whatif` and `weft predict` go by."""

import json
import re
from dataclasses import replace

import pytest

from lab.commands.replay import none_began, show_times
from rm.making import ManagerParts
from rm.settings import ManagerSettings
from sim.cluster import Simulation
from sim.faults import Fault, FaultKind, Faults
from sim.recorder import Recorder
from sim.replay import whatif
from sim.replay.recorded_delays import Delays
from sim.replay.recorded_run import Rerun, Watched, of_simulation
from sim.replay.timeline import timeline_of
from sim.settings import SimSettings
from testkit.builders import chain
from tests.parity.test_tapes import CLUSTER, jobs
from weft.model.ids import attempt_id
from weft.model.queues import queues_from_dict, queues_to_dict
from weft.protocol.effects import ClientRequested, Note, Recovered, Started
from weft.protocol.facts import AppChanged, AttemptChanged
from weft.protocol.messages import MANAGER, Outcome
from weft.protocol.requests import (
    DecommissionNode,
    MoveApplication,
    SetPriority,
    SetQueues,
    UpdateNode,
)
from weft.tape.rows import Handled


def test_what_ended_before_a_restart_of_the_manager_ended_then() -> None:
    restart = Fault(40.0, FaultKind.RESTART_MANAGER, for_s=20.0)
    settings = SimSettings(prompt=True, faults=Faults((restart,)))
    run = Watched(CLUSTER, [chain("early"), chain("late", arrival_s=80.0)], settings, Recorder())
    rows = run.run().jobs
    assert rows[0].finish_s < restart.at_s
    steps = run.steps
    seen = whatif.Seen()
    Rerun(steps).seek(len(steps), lambda event, now, o, _: seen.listen(MANAGER, event, now, o))
    ends = {row.app: row.finish_s for row in rows}
    assert {app: ended_s for app, (_, ended_s) in seen.ended.items()} == ends
    played = timeline_of(of_simulation("run", "capacity", run))
    assert {job["app"]: job["finished"] for job in played.jobs} == pytest.approx(ends, abs=1e-5)


def test_tasks_that_ended_alike_are_each_known() -> None:
    """Nodes tell them as one run, also when a manager is back."""
    restart = Fault(10.0, FaultKind.RESTART_MANAGER, for_s=6.0)
    settings = SimSettings(prompt=True, faults=Faults((restart,)))
    run = Watched(CLUSTER, jobs(5), settings, Recorder())
    run.run()
    assert set(timeline_of(of_simulation("run", "capacity", run)).outcome) == {Outcome.SUCCEEDED}
    seen = whatif.Seen()
    steps = run.steps
    Rerun(steps).seek(len(steps), lambda event, now, o, _: seen.listen(MANAGER, event, now, o))
    assert len(seen.run_s) == sum(job.task_count for job in jobs(5))


def test_masters_that_end_with_their_cluster_did_not_fail() -> None:
    """Only those count after which a job went on or ended."""
    lost = attempt_id(1, 1)
    for later, failed in (
        ([AttemptChanged(attempt_id(1, 2), "SCHEDULED")], 0),
        ([AttemptChanged(attempt_id(1, 2), "RUNNING")], 1),
        ([AppChanged(1, "job", "default", "FAILED")], 1),
    ):
        seen = whatif.Seen()
        notes = [AttemptChanged(lost, "RUNNING"), AttemptChanged(lost, "FAILED"), *later]
        seen.listen(MANAGER, Started(), 5.0, [Note(fact) for fact in notes])
        assert seen.faults["failed master"] == failed


def test_jobs_without_a_completion_time_say_why(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = replace(CLUSTER, queues=queues_from_dict({"root": {"a": {}}}))
    parts = ManagerParts(1, cluster.types, cluster.queues, "capacity", {}, ManagerSettings(), 0)
    seen = whatif.Seen(parts=parts, nodes={one.node_id: one for one in cluster.nodes})
    jobs = {1: chain("good", queue="a"), 2: chain("gone", queue="a"), 3: chain("new", queue="b")}
    seen.jobs = {app: (job, 1.0) for app, job in jobs.items()}
    seen.ended = {1: ("SUCCEEDED", 30.0), 2: ("KILLED", 9.0), 3: ("SUCCEEDED", 30.0)}
    settings = SimSettings(prompt=True)
    rows = whatif.compare(seen, settings, settings, cluster, False, Delays({}))
    assert [row.why for row in rows[:2]] == ["", "KILLED"]
    assert rows[2].why.startswith("simulated, it was REFUSED: ")
    assert "unknown queue 'b'" in rows[2].why
    show_times(rows, as_json=False)
    told = capsys.readouterr().out
    assert "-1.0" not in told
    assert "0002 gone, simulated all the same: KILLED" in told
    assert "0003 new, not in the mean: simulated, it was REFUSED: " in told


def test_queues_and_nodes_change_in_a_simulation_as_they_did_live() -> None:
    """A queue that was added live is there for its jobs, and a node made small stays so."""
    cluster = replace(CLUSTER, queues=queues_from_dict({"root": {"a": {}}}))
    grown = queues_from_dict({"root": {"a": {}, "b": {}}})
    jobs = [chain("old", queue="a"), chain("new", arrival_s=40.0, queue="b")]
    run = Watched(cluster, jobs, SimSettings(prompt=True), Recorder())
    smaller = UpdateNode(cluster.nodes[0].node_id, {"vcores": 1.0})
    for at_s, request in ((20.0, SetQueues(grown)), (30.0, smaller)):
        run.engine.at(at_s, run.actors[MANAGER], ClientRequested(f"by-{at_s}", request))
    assert [row.final_status for row in run.run().jobs] == ["SUCCEEDED"] * 2
    parts = ManagerParts(1, cluster.types, cluster.queues, "capacity", {}, ManagerSettings(), 0)
    seen, steps = whatif.Seen(parts=parts), run.steps
    Rerun(steps).seek(len(steps), lambda event, now, o, _: seen.listen(MANAGER, event, now, o))
    rows = whatif.compare(
        seen, run.settings, run.settings, whatif.cluster_of(seen), False, Delays({})
    )
    assert [(row.why, row.changed_s > 0) for row in rows] == [("", True)] * 2
    changes = whatif.recorded_of(seen).requests
    first_s = min(arrival_s for _, arrival_s in seen.jobs.values())
    assert [at_s - whatif.WARM_S + first_s for at_s, _ in changes] == [20.0, 30.0]
    assert [event.request for _, event in changes] == [SetQueues(grown), smaller]


def test_what_clients_had_changed_before_the_tape_began_is_taken_from_its_journal() -> None:
    grown = queues_from_dict({"root": {"a": {}, "b": {}}})
    parts = ManagerParts(1, CLUSTER.types, CLUSTER.queues, "capacity", {}, ManagerSettings(), 0)
    nodes = {one.node_id: one for one in CLUSTER.nodes}
    seen = whatif.Seen(parts=parts, nodes=nodes, jobs={1: (chain("j"), 9.0)})
    journal = (
        {"kind": "queues", "queues": queues_to_dict(grown)},
        {"kind": "update", "node": "n1", "capacity": {"vcores": 1.0}, "labels": ["big"]},
        {"kind": "node", "node": "n2", "state": "DECOMMISSIONING", "until_s": 7.0},
    )
    seen.listen(MANAGER, Recovered(journal), 3.0, [])
    assert whatif.cluster_of(seen).queues == grown
    requests = whatif.recorded_of(seen).requests
    assert {at_s for at_s, _ in requests} == {whatif.WARM_S / 2}
    assert [event.request for _, event in requests] == [
        UpdateNode("n1", {"vcores": 1.0}, ("big",), relabel=True, own=True),
        DecommissionNode("n2", 4.0),
    ]
    assert not whatif.recorded_of(seen, own_nodes=False).requests, "other nodes are as they are"
    seen.listen(MANAGER, Recovered(()), 30.0, [])
    assert whatif.cluster_of(seen).queues == grown, "a manager that starts anew is no beginning"


def test_what_a_simulation_refuses_is_told_before_what_ran_on_live() -> None:
    cluster = replace(CLUSTER, queues=queues_from_dict({"root": {"a": {}}}))
    parts = ManagerParts(1, cluster.types, cluster.queues, "capacity", {}, ManagerSettings(), 0)
    seen = whatif.Seen(parts=parts, nodes={one.node_id: one for one in cluster.nodes})
    seen.jobs = {1: (chain("j", queue="b"), 1.0)}
    settings = SimSettings(prompt=True)
    (row,) = whatif.compare(seen, settings, settings, cluster, False, Delays({}))
    assert row.why.startswith("simulated, it was REFUSED: ")


def test_jobs_of_a_cluster_that_still_runs_are_compared_as_simulated(
    capsys: pytest.CaptureFixture[str],
) -> None:
    why = "had not ended when the tape did"
    rows = [whatif.Jct(app, "m", -1.0, 30.0, 24.0, why) for app in (1, 2, 3)]
    show_times(rows, as_json=False)
    told = capsys.readouterr().out
    assert f"0001 m, 0002 m, 0003 m, simulated all the same: {why}\n" in told
    assert told.count(why) == 1
    assert "mean of 3: simulated 30.00 s, what if 24.00 s (-20.0 %)\n" in told
    assert "ran" not in told.splitlines()[-2]
    show_times([*rows, whatif.Jct(4, "m", 33.0, 30.0, 24.0)], as_json=False)
    told = capsys.readouterr().out
    wanted = "mean of 1 that ended: ran 33.00 s, simulated 30.00 s (-9.1 %; single jobs are off by"
    assert wanted in told
    assert "mean of 4: " in told


def test_a_difference_is_told_from_chance_by_the_draws(capsys: pytest.CaptureFixture[str]) -> None:
    def mean(same_s: tuple[float, ...], changed_s: tuple[float, ...]) -> list[whatif.Jct]:
        pairs = zip(same_s, changed_s, strict=True)
        return whatif.mean_of([[whatif.Jct(1, "m", 10.0, *pair)] for pair in pairs])

    for same_s, changed_s, words in (
        ((9.0, 11.0), (6.0, 8.0), "every draw tells them apart"),
        ((9.0, 11.0), (10.0, 6.0), "these overlap, so the change may be chance"),
        ((9.0,), (6.0,), "whether that is chance is not known: --draws 5"),
    ):
        show_times(mean(same_s, changed_s), as_json=False)
        assert words in capsys.readouterr().out
    show_times(mean((9.0, 11.0), (6.0, 8.0)), as_json=False)
    told = capsys.readouterr().out
    assert re.search(r"0001 m +10\S* +10\S* +9\.00 to 11\.00 +7\S* +6\.00 to 8\.00 +-30", told), (
        told
    )
    assert "2 draws: simulated 9.00 to 11.00 s, what if 6.00 to 8.00 s" in told
    assert "smaller than what the simulation itself is off by" not in told
    show_times([replace(one, recorded_s=15.0) for one in mean((9.0, 11.0), (6.0, 8.0))], False)
    assert "smaller than what the simulation itself is off by" in capsys.readouterr().out
    show_times(mean((9.0, 11.0), (6.0, 8.0)), as_json=True)
    means = json.loads(capsys.readouterr().out)["mean"]
    assert (means["same_by_draw_s"], means["changed_by_draw_s"]) == ([9.0, 11.0], [6.0, 8.0])


def test_what_broke_in_a_run_is_counted_as_no_simulation_has_it() -> None:
    crash = Fault(12.0, FaultKind.CRASH, ("n1",), for_s=40.0)
    restart = Fault(30.0, FaultKind.RESTART_MANAGER, for_s=1.0)
    settings = SimSettings(prompt=True, faults=Faults((crash, restart)))
    run = Watched(CLUSTER, jobs(5), settings, Recorder())
    run.run()
    parts = ManagerParts(1, CLUSTER.types, CLUSTER.queues, "capacity", {}, ManagerSettings(), 0)
    seen, steps = whatif.Seen(parts=parts), run.steps
    Rerun(steps).seek(len(steps), lambda event, now, o, _: seen.listen(MANAGER, event, now, o))
    found = {what: count for what, count in seen.faults.items() if count}
    assert found == {"restarted node": 1, "manager restart": 1, "failed master": 2}


def test_a_time_before_a_manager_is_refused_with_when_one_began() -> None:
    def tape() -> list[Handled]:
        return [Handled(MANAGER, Started(), now) for now in (18.25, 19.0)]

    assert none_began(15.0, [tape]) == (
        "no Resource Manager had begun by 15 s; the first began at 18.2 s"
    )


def test_a_journal_that_was_restored_tells_of_the_jobs_that_were_open() -> None:
    """Those that had ended are of another run; the others are where clients had moved them."""
    cluster = replace(CLUSTER, queues=queues_from_dict({"root": {"a": {}, "b": {}}}))
    jobs = [chain("ended", queue="a"), chain("open", queue="a", arrival_s=4.0)]
    restart = Fault(900.0, FaultKind.RESTART_MANAGER, for_s=1.0)
    run = Simulation(cluster, jobs, SimSettings(prompt=True, faults=Faults((restart,))))
    for request in (MoveApplication(2, "root.b"), SetPriority(2, 7)):
        run.engine.at(5.0, run.actors[MANAGER], ClientRequested("by", request))
    run.run()
    journal = [one for one in run._records if (one["kind"], one.get("app")) != ("final", 2)]
    manager = run.make_manager(2)
    seen = whatif.Seen(began_s=500.0)
    manager.handle(Recovered(tuple(journal)), 500.0)
    seen.recovered(manager.books, 500.0)
    assert {app: (job.name, at_s) for app, (job, at_s) in seen.jobs.items()} == {2: ("open", 500.0)}
    assert [event.request for _, event in whatif.recorded_of(seen).requests] == [
        MoveApplication(2, "root.b"),
        SetPriority(2, 7),
    ]
