"""Nodes, masters and the manager itself fail; accepted jobs and finished tasks are not lost."""

import pytest

from rm.recovery import compact
from rm.settings import ManagerSettings
from rm.state.lifecycle import AppState, AttemptState
from testkit.builders import FakeMaster, ask, job, node_registered, noted, sent, stage, succeeded
from testkit.manager import Rig
from weft.model.ids import attempt_id
from weft.protocol.effects import TimerFired
from weft.protocol.facts import AppChanged, NodeChanged
from weft.protocol.messages import (
    AttemptAccepted,
    AttemptFinished,
    AttemptRegistered,
    AttemptStopped,
    AttemptUnregistered,
    ContainerEnd,
    ContainersAsked,
    ContainersGranted,
    NodeAccepted,
    NodeAnswered,
    NodeHeartbeated,
    NodeUnregistered,
    Outcome,
    RunningContainer,
    TaskEnd,
)
from weft.protocol.requests import GetApplication, KillApplication

FREE = ManagerSettings(master_demand={}, node_expiry_s=10.0, master_expiry_s=12.0)


def running(rig: Rig, tasks: int = 2) -> FakeMaster:
    """A job whose tasks are granted."""
    master = rig.start(job("j", stage(tasks=4)))
    rig.allocate(master, ask(total=tasks))
    rig.beat()
    rig.allocate(master)
    assert len(master.containers) == tasks
    return master


def test_a_silent_node_is_lost_and_its_ends_are_relayed() -> None:
    rig = Rig(settings=FREE)
    rig.add_node("n1")
    rig.add_node("n2")
    master = rig.start(job("j", stage(tasks=8)))
    rig.allocate(master, ask(total=8))
    rig.beat()
    rig.allocate(master)
    at_n2 = {c.container_id for c in master.containers.values() if c.node_id == "n2"}
    master_node = rig.ask_manager(GetApplication(1)).master_node
    assert master_node == "n1"
    assert len(at_n2) == 4
    rig.beat("n1", later_s=9.0)
    rig.allocate(master)
    effects = rig.tell(TimerFired("liveness"), 2.0)
    assert [(f.node, f.state) for f in noted(effects, NodeChanged)] == [("n2", "LOST")]
    rig.allocate(master)
    assert {c for c, end in master.ended.items() if end.outcome is Outcome.LOST} == at_n2

    answer = rig.tell(rig.nodes["n2"].heartbeat())
    assert sent(answer, NodeAnswered)[0].resync
    carried = tuple(RunningContainer(c, (1.0, 1024.0), ((0, 0, 0),)) for c in sorted(at_n2)[:2])
    rig.tell(node_registered("n2", running=carried))
    assert rig.manager.books.ledger.nodes.available[1].tolist() == [0.0, 4096.0], (
        "what it may still run counts until the node says that it ended"
    )
    rig.beat("n2")
    assert set(rig.nodes["n2"].stops) == at_n2
    ends = [ContainerEnd(c, Outcome.RELEASED) for c in at_n2]
    rig.beat("n2", *ends)
    assert rig.manager.books.ledger.nodes.containers[1] == 0


def test_successes_told_late_in_a_lost_reusable_container_do_not_hide_that_it_is_lost() -> None:
    """Else its master starts more tasks there, whose ends nobody relays any more."""
    rig = Rig(settings=FREE)
    rig.add_node("n1")
    rig.add_node("n2")
    master = rig.start(job("j", stage(tasks=8)))
    rig.allocate(master, ask(total=8))
    rig.beat()
    rig.allocate(master)
    lost = min(c.container_id for c in master.containers.values() if c.node_id == "n2")
    rig.beat("n1", later_s=9.0)
    rig.allocate(master)
    rig.tell(TimerFired("liveness"), 2.0)
    # what a node with a pool tells that was given up, before the master was told so
    rig.tell(node_registered("n2", running=[RunningContainer(lost, (1.0, 1024.0), ())]))
    ends = [TaskEnd(lost, 0, task, 0, Outcome.SUCCEEDED, 0, 1.0) for task in (2, 3)]
    rig.tell(rig.nodes["n2"].heartbeat(tasks_ended=tuple(ends)))
    (told,) = sent(rig.allocate(master), ContainersGranted)
    heard = [(end.outcome, end.stage, end.task) for end in told.ended if end.container_id == lost]
    assert (Outcome.SUCCEEDED, 0, 2) in heard
    assert (Outcome.SUCCEEDED, 0, 3) in heard
    assert Outcome.LOST in [outcome for outcome, _, _ in heard]


def test_a_repeated_registration_changes_nothing_a_restarted_node_lost_all() -> None:
    rig = Rig(settings=FREE)
    rig.add_node("n1", boot=5)
    master = running(rig)
    effects = rig.restart_node("n1", 5)
    assert sent(effects, NodeAccepted)
    rig.beat()
    assert not rig.nodes["n1"].stops
    assert not sent(rig.tell(node_registered("n1", boot=4)), NodeAccepted), "an old message"

    rig.restart_node("n1", 6)
    rig.beat()
    assert set(rig.nodes["n1"].stops) >= set(master.containers)
    rig.beat("n1", *[ContainerEnd(c, Outcome.RELEASED) for c in rig.nodes["n1"].stops])
    assert rig.manager.books.apps[1].attempts[0].state is AttemptState.FAILED


def test_a_lost_master_is_tried_again_and_told_what_is_finished() -> None:
    rig = Rig(settings=FREE)
    rig.add_node("n1")
    master = running(rig)
    first, second = sorted(master.containers)
    rig.beat("n1", succeeded(first, 0, 0))
    (own,) = rig.nodes["n1"].masters
    rig.beat("n1", ContainerEnd(own, Outcome.FAILED, 1))
    app = rig.manager.books.apps[1]
    assert (app.state, app.attempts[0].state) == (AppState.ACCEPTED, AttemptState.FAILED)
    rig.beat()
    assert second in rig.nodes["n1"].stops, "masters of this kind do not take over"
    old = rig.tell(AttemptRegistered(master.attempt_id))
    assert sent(old, AttemptStopped), "the old master is told to stop"

    again = attempt_id(1, 2)
    assert again in rig.nodes["n1"].masters.values()
    assert not sent(rig.tell(AttemptRegistered(again)), AttemptAccepted), "the old task may end yet"
    rig.beat("n1", succeeded(second, 0, 1))
    effects = rig.tell(AttemptRegistered(again))
    (accepted,) = sent(effects, AttemptAccepted)
    assert [(f.stage, f.task) for f in accepted.finished] == [(0, 0), (0, 1)]


def test_a_job_fails_when_its_masters_fail_too_often() -> None:
    rig = Rig(settings=FREE)
    rig.add_node("n1")
    rig.submit()
    for _ in range(2):
        rig.beat()
        own = max(rig.nodes["n1"].masters)
        rig.beat("n1", ContainerEnd(own, Outcome.FAILED, 3))
    report = rig.ask_manager(GetApplication(1))
    assert (report.state, report.final_status) == ("FAILED", "FAILED")
    assert "2 attempts failed" in report.diagnostics


def test_a_silent_master_is_replaced() -> None:
    rig = Rig(settings=FREE)
    rig.add_node("n1")
    rig.start()
    for _ in range(4):
        rig.beat(later_s=4.0)
        rig.tell(TimerFired("liveness"))
    assert [a.state.name for a in rig.manager.books.apps[1].attempts] == ["FAILED", "ALLOCATED"]


def test_a_kill_is_durable_stops_all_and_is_answered_again() -> None:
    rig = Rig(settings=FREE)
    rig.add_node("n1")
    master = running(rig)
    answer = rig.ask_manager(KillApplication(1))
    assert sent(rig.effects, AttemptStopped)
    assert answer.state == "KILLED"
    assert rig.records[-1]["kind"] == "final"
    assert rig.manager.books.apps[1].state is AppState.KILLING
    rig.beat()
    everything = {*master.containers, *rig.nodes["n1"].masters}
    assert set(rig.nodes["n1"].stops) == everything
    rig.beat("n1", *[ContainerEnd(c, Outcome.KILLED) for c in everything])
    assert [f.state for f in noted(rig.effects, AppChanged)] == ["KILLED"]
    assert rig.ask_manager(KillApplication(1)).state == "KILLED"


def test_orders_are_repeated_until_the_node_has_them() -> None:
    rig = Rig(settings=FREE)
    rig.add_node("n1")
    rig.submit()
    rig.tell(NodeHeartbeated("n1", 1))
    rig.nodes["n1"].masters.clear()
    assert not sent(rig.tell(NodeHeartbeated("n1", 2), 1.0), NodeAnswered)[0].start
    (answer,) = sent(rig.tell(NodeHeartbeated("n1", 3), 3.0), NodeAnswered)
    assert len(answer.start) == 1
    rig.tell(NodeHeartbeated("n1", 4, acks=(answer.response_id,)), 4.0)
    assert not sent(rig.tell(NodeHeartbeated("n1", 5), 9.0), NodeAnswered)[0].start


def test_a_late_or_doubled_ask_asks_once() -> None:
    rig = Rig(settings=FREE)
    rig.add_node("n1")
    master = rig.start(job("j", stage(tasks=4)))
    newer = ContainersAsked(master.attempt_id, 2, asks=(ask(total=3),))
    older = ContainersAsked(master.attempt_id, 1, asks=(ask(total=1),))
    for message in (newer, older, newer):
        rig.tell(message)
    rig.beat()
    rig.allocate(master)
    assert len(master.containers) == 3


def test_a_node_that_leaves_takes_its_containers_along() -> None:
    rig = Rig(settings=FREE)
    rig.add_node("n1")
    rig.add_node("n2")
    running(rig)
    rig.tell(NodeUnregistered("n1"))
    rig.tell(NodeUnregistered("n1"))
    assert [n.state.name for n in rig.manager.books.node_at] == ["SHUTDOWN", "RUNNING"]


def restarted(rig: Rig) -> Rig:
    """A new manager that read the records of the old one, compacted."""
    records = compact(rig.records)
    assert compact(records) == records
    fresh = Rig(settings=FREE, records=records)
    fresh.now, fresh.nodes, fresh.masters = rig.now, rig.nodes, rig.masters
    return fresh


def test_a_restarted_manager_adopts_what_runs_and_remembers_what_ended() -> None:
    rig = Rig(settings=FREE)
    rig.add_node("n1")
    master = running(rig)
    first, second = sorted(master.containers)
    rig.beat("n1", succeeded(first, 0, 0))
    (own,) = rig.nodes["n1"].masters

    rig = restarted(rig)
    assert sent(rig.tell(rig.nodes["n1"].heartbeat()), NodeAnswered)[0].resync
    rig.allocate(master)
    assert master.resync
    carried = (
        RunningContainer(own, (0.0, 0.0), ()),
        RunningContainer(second, (1.0, 1024.0), ((0, 1, 0),)),
        RunningContainer(attempt_id(9, 1) << 32 | 5, (1.0, 1024.0), ((0, 0, 0),)),
    )
    rig.tell(node_registered("n1", running=carried))
    rig.beat()
    assert rig.nodes["n1"].stops == [attempt_id(9, 1) << 32 | 5], "nobody knows that one"

    effects = rig.tell(AttemptRegistered(master.attempt_id))
    (accepted,) = sent(effects, AttemptAccepted)
    assert [(f.stage, f.task) for f in accepted.finished] == [(0, 0)]
    rig.allocate(master, ask(total=1))
    rig.beat()
    rig.allocate(master)
    fresh = set(master.containers) - {first, second}
    assert len(fresh) == 1, "its id was not used before"
    rig.beat("n1", succeeded(second, 0, 1))
    rig.allocate(master)
    assert second in master.ended
    rig.tell(AttemptFinished(master.attempt_id, True))
    rig.beat("n1", *[ContainerEnd(c, Outcome.RELEASED) for c in fresh], succeeded(own, -1, -1))
    assert rig.ask_manager(GetApplication(1)).state == "FINISHED"

    rig = restarted(rig)
    report = rig.ask_manager(GetApplication(1))
    assert (report.state, report.final_status, report.finished_tasks) == (
        "FINISHED",
        "SUCCEEDED",
        4,
    )
    assert sent(rig.tell(AttemptFinished(master.attempt_id, True)), AttemptUnregistered)
    assert rig.submit() == 2, "application numbers go on"


def test_a_late_registration_does_not_hide_a_restart_from_its_master() -> None:
    rig = Rig(settings=FREE)
    rig.add_node("n1")
    master = running(rig)
    (own,) = rig.nodes["n1"].masters
    rig = restarted(rig)
    rig.tell(node_registered("n1", running=(RunningContainer(own, (0.0, 0.0), ()),)))

    late = AttemptRegistered(master.attempt_id)  # sent to the manager of before
    (accepted,) = sent(rig.tell(late), AttemptAccepted)
    answers = sent(rig.tell(master.asks(ask(total=9), epoch=0)), ContainersGranted)
    assert [(a.resync, a.epoch, a.acks) for a in answers] == [(True, accepted.epoch, ())]
    assert rig.ask_manager(GetApplication(1)).pending_containers == 0, "it was not heard"
    rig.tell(master.asks(ask(total=9), epoch=accepted.epoch))
    assert rig.ask_manager(GetApplication(1)).pending_containers == 9


@pytest.mark.parametrize("launched", [False, True])
def test_an_accepted_job_survives_before_its_master_is_up(launched: bool) -> None:
    rig = Rig(settings=FREE)
    if launched:
        rig.add_node("n1")
    rig.submit(submission_id="mine")
    if launched:
        rig.beat()
    rig = restarted(rig)
    assert rig.submit(submission_id="mine") == 1, "the same submission is the same application"
    rig.add_node("n1")
    rig.beat()
    # the node came back without the master, so the next attempt need not wait for a time-out
    master = rig.register(attempt_id(1, 2 if launched else 1))
    assert master.accepted is not None
