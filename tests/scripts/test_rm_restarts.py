"""What a restarted Resource Manager hears late, twice or not at all costs no job its end."""

from rm.recovery import compact
from rm.settings import ManagerSettings
from testkit.builders import ask, job, node_registered, sent, stage, succeeded
from testkit.manager import Rig
from weft.model.ids import attempt_id, container_id
from weft.protocol.effects import ReportsWaited, Send, TimerFired
from weft.protocol.messages import (
    AttemptAccepted,
    AttemptFinished,
    AttemptRegistered,
    ContainerEnd,
    ContainersAsked,
    ContainersGranted,
    ContainerUse,
    NodeAccepted,
    NodeAnswered,
    NodeUnregistered,
    Outcome,
    RunningContainer,
)
from weft.protocol.requests import Explain, GetApplication, ListContainers, SubmitApplication

FREE = ManagerSettings(master_demand={})


def restarted(rig: Rig) -> Rig:
    """The next life of a manager, with the same nodes and masters around it."""
    again = Rig(settings=rig.manager.books.settings, records=rig.records)
    again.now = rig.now
    again.nodes, again.masters = rig.nodes, rig.masters
    return again


def lost(effects: list) -> list[int]:
    """Which containers masters are told to be lost."""
    return [
        end.container_id
        for answer in sent(effects, ContainersGranted)
        for end in answer.ended
        if end.outcome is Outcome.LOST
    ]


def wait(rig: Rig, seconds: float, attempt: int) -> list[int]:
    """Let time pass; what the master was told to be lost."""
    told: list[int] = []
    for _ in range(int(seconds)):
        rig.now += 1.0
        rig.tell(TimerFired("liveness"))
        rig.beat()
        told += lost(rig.allocate(rig.masters[attempt]))
    return told


def test_what_a_master_holds_counts_though_a_late_copy_of_its_registration_came_first() -> None:
    rig = Rig(settings=ManagerSettings(node_expiry_s=600.0))
    for name in ("n1", "n2"):
        rig.add_node(name, boot=1)
    master = rig.start(job("j", stage("w", 3)))
    (home,) = [name for name, node in rig.nodes.items() if node.masters]
    (own,) = rig.nodes[home].masters
    other = {"n1": "n2", "n2": "n1"}[home]
    held = container_id(master.attempt_id, 7)  # on the other node, which crashed meanwhile

    again = restarted(rig)
    vector = again.manager.books.master_vector
    carried = (RunningContainer(own, vector, ()),)
    again.tell(node_registered(home, boot=1, running=carried))
    again.tell(AttemptRegistered(master.attempt_id))
    assert sent(again.allocate(master, epoch=0), ContainersGranted)[0].resync
    again.tell(AttemptRegistered(master.attempt_id, "", ((held, other),)))
    again.tell(node_registered(other, boot=2))
    assert wait(again, 15, master.attempt_id) == [held]
    assert held in again.nodes[other].stops, "should it be started all the same"
    assert not again.manager.books.unseen_containers


def test_a_container_that_a_node_reports_and_nobody_knows_is_stopped() -> None:
    rig = Rig(settings=FREE)
    rig.add_node("n1")
    orphan = container_id(attempt_id(9, 1), 3)
    rig.tell(rig.nodes["n1"].heartbeat(container_use=(ContainerUse(orphan, (0.0, 0.0)),)))
    assert rig.nodes["n1"].stops == [orphan]


def test_a_node_manager_that_starts_anew_is_taken_in_whatever_its_clock_says() -> None:
    rig = Rig(settings=FREE)
    rig.add_node("n1", boot=77)
    effects = rig.tell(node_registered("n1", boot=5))
    (asked,) = sent(effects, NodeAnswered)
    assert asked.resync
    assert asked.token, "an earlier process may have sent it: which one lives?"
    again = rig.tell(node_registered("n1", boot=5))
    assert sent(again, NodeAnswered)[0].token == asked.token, "one question for one process"
    told = node_registered("n1", boot=5, life=asked.life, token=asked.token)
    assert sent(rig.tell(told), NodeAccepted)
    assert not sent(rig.tell(node_registered("n1", boot=77)), NodeAccepted), "that one is dead"
    assert rig.manager.books.nodes["n1"].boot == 5


def test_a_registration_for_an_earlier_life_of_the_manager_is_asked_for_again() -> None:
    rig = Rig(settings=FREE)
    rig.add_node("n1", boot=1)
    again = restarted(rig)
    (asked,) = sent(again.tell(node_registered("n1", boot=1, life=1)), NodeAnswered)
    assert (asked.resync, asked.life) == (True, 2)
    # a copy of its very first registration says nothing of what it runs by now
    assert sent(again.tell(node_registered("n1", boot=1)), NodeAccepted)[0].life == 2
    carried = (RunningContainer(container_id(attempt_id(1, 1), 4), (1.0, 1024.0), ()),)
    again.tell(node_registered("n1", boot=1, life=2, running=carried))
    again.beat()
    assert again.nodes["n1"].stops == [carried[0].container_id]


def test_what_is_given_back_before_its_node_returns_is_stopped_then() -> None:
    """A manager that started anew hears of it from the master first; it may not forget that."""
    rig = Rig(settings=FREE)
    rig.add_node("n1", boot=1)
    master = rig.start(job("j", stage(tasks=2)))
    number = container_id(master.attempt_id, 7)
    again = restarted(rig)
    again.tell(AttemptRegistered(master.attempt_id, "", ((number, "n1"),)))
    again.tell(ContainersAsked(master.attempt_id, 1, releases=(number,), epoch=1))
    carried = [RunningContainer(number, (1.0, 1024.0), ((0, 0, 0),))]
    again.tell(node_registered("n1", boot=1, life=2, running=carried))
    again.beat()
    assert again.nodes["n1"].stops == [number]
    again.beat("n1", ContainerEnd(number, Outcome.RELEASED))
    assert number not in again.manager.books.holdings
    (told,) = sent(again.allocate(master, epoch=1), ContainersGranted)
    assert [end.container_id for end in told.ended] == [number]
    assert not again.manager.books.apps[1].given_back


def test_who_returns_first_after_a_restart_makes_no_difference_to_the_work() -> None:
    """What masters wait for is kept by node, so that a node's return looks at its own only."""
    rig = Rig(settings=FREE)
    for n in range(40):
        rig.add_node(f"n{n}", vcores=8, memory_mb=8192)
    master = rig.start(job("j", stage("w", 200)))
    again = restarted(rig)
    held = tuple((container_id(master.attempt_id, 2 + i), f"n{i % 40}") for i in range(200))
    again.tell(AttemptRegistered(master.attempt_id, "", held))
    waiting = again.manager.books.unseen_containers
    assert {name: len(numbers) for name, numbers in waiting.items()} == {
        f"n{n}": 5 for n in range(40)
    }
    for n in range(40):
        carried = [
            RunningContainer(c, (1.0, 1024.0), ((0, 0, 0),)) for c, at in held if at == f"n{n}"
        ]
        again.tell(node_registered(f"n{n}", 8, 8192, running=carried))
    again.tell(TimerFired("liveness"))
    assert not waiting
    assert len(again.manager.books.apps[1].attempts[0].holdings) == 200
    assert not [e for e in again.effects if isinstance(e, Send)]


def test_a_manager_that_was_paused_hears_what_waits_before_it_declares_anyone_lost() -> None:
    rig = Rig(settings=ManagerSettings(node_expiry_s=10.0, master_expiry_s=10.0, master_demand={}))
    rig.add_node("n1")
    master = rig.start(job("j", stage("w", 3)))
    rig.tell(TimerFired("liveness"), 0.5)
    rig.tell(TimerFired("liveness"), 600.0, paused=True)
    assert rig.manager.books.nodes["n1"].present
    rig.beat("n1")
    rig.allocate(master)
    rig.tell(TimerFired("liveness"), 9.8)
    assert rig.manager.books.nodes["n1"].present
    rig.allocate(master)
    rig.tell(TimerFired("liveness"), 1.2, paused=True)
    assert rig.manager.books.nodes["n1"].present, "a look that is late judges nobody"
    rig.tell(TimerFired("liveness"), 2.0)
    assert not rig.manager.books.nodes["n1"].present, "who stays silent is lost all the same"


def test_reports_that_wait_to_be_read_are_nobodys_silence() -> None:
    rig = Rig(settings=ManagerSettings(node_expiry_s=10.0, master_expiry_s=10.0, master_demand={}))
    rig.add_node("n1")
    master = rig.start(job("j", stage("w", 3)))
    attempt = rig.manager.books.apps[1].attempt
    for _ in range(30):
        rig.tell(ReportsWaited(1.0), 1.0)
        rig.tell(TimerFired("liveness"))
    assert rig.manager.books.nodes["n1"].present
    assert rig.manager.books.apps[1].attempt is attempt
    for _ in range(11):
        rig.tell(TimerFired("liveness"), 1.0)
    assert not rig.manager.books.nodes["n1"].present, "who stays silent is lost all the same"
    assert master.attempt_id


def test_a_success_that_a_lost_node_brings_back_counts_while_its_task_is_open() -> None:
    rig = Rig(settings=ManagerSettings(node_expiry_s=10.0, master_demand={}))
    rig.add_node("n1")
    rig.add_node("n2")
    master = rig.start(job("j", stage("w", 8)))
    rig.allocate(master, ask(total=8))
    for name in rig.nodes:
        rig.beat(name)
    rig.allocate(master)
    away = next(n for n in rig.nodes if not rig.nodes[n].masters)
    first, second, *_ = sorted(c for c, held in master.containers.items() if held.node_id == away)
    (stays,) = set(rig.nodes) - {away}
    rig.beat(stays, later_s=11.0)
    rig.tell(TimerFired("liveness"))
    assert first in lost(rig.allocate(master))
    rig.records.clear()
    rig.tell(node_registered(away))
    rig.beat(away, succeeded(first, 0, 3), succeeded(second, 0, 4))
    rig.beat(away, succeeded(first, 0, 3))
    tasks = [r["tasks"] for r in rig.records if r["kind"] == "tasks"]
    assert tasks == [[[0, 3, 10.0], [0, 4, 10.0]]], "journalled, once"
    told = [end for m in sent(rig.allocate(master), ContainersGranted) for end in m.ended]
    assert {(end.container_id, end.outcome) for end in told} == {
        (first, Outcome.SUCCEEDED),
        (second, Outcome.SUCCEEDED),
    }


def test_a_new_master_is_accepted_once_there_are_machines_that_it_can_go_by() -> None:
    """One that was told of none held one container of one task's size, and so for all its life."""
    rig = Rig(settings=FREE)
    rig.add_node("n1", boot=1)
    app = rig.submit(job("j", stage("w", 3)))
    rig.beat()
    (own,) = rig.nodes["n1"].masters
    rig = restarted(rig)
    attempt = attempt_id(app, 1)
    assert not sent(rig.tell(AttemptRegistered(attempt)), AttemptAccepted)
    carried = [RunningContainer(own, (0.0, 0.0), ())]
    rig.tell(node_registered("n1", boot=1, running=carried))
    (accepted,) = sent(rig.tell(AttemptRegistered(attempt)), AttemptAccepted)
    assert accepted.machines == (((4.0, 8192.0), 1),)


def test_what_fits_on_nodes_that_are_still_to_come_is_not_refused_for_good() -> None:
    rig = Rig(settings=FREE)
    rig.add_node("n1", boot=1)
    rig.add_node("n2", vcores=16.0, boot=2)
    large = job("large", stage("w", demand={"vcores": 9.0, "memory_mb": 1.0}))
    gang = job("gang", stage("g", 10, demand={"vcores": 2.0, "memory_mb": 1.0}, gang=True))
    first = rig.submit(large)
    rig = restarted(rig)
    rig.tell(node_registered("n1", boot=1))  # n2 is a second later
    for wanted in (large, gang):
        refused = rig.ask_manager(SubmitApplication(wanted, ""))
        assert (refused.code, "try again" in refused.problem) == ("unavailable", True), refused
    wrong = job("wrong", stage("w", demand={"cores": 1.0}))
    assert rig.ask_manager(SubmitApplication(wrong, "")).code == "invalid_argument"
    rig.tell(node_registered("n2", vcores=16.0, boot=2))
    assert rig.submit(large) > first
    assert rig.submit(gang) > first
    rig.tell(NodeUnregistered("n2"))
    rig.now += 60.0
    assert rig.ask_manager(SubmitApplication(gang, "")).code == "invalid_argument"


def test_what_a_master_that_registered_does_not_hold_is_stopped_and_it_is_told() -> None:
    """It gave the container up, or heard of it only after it had registered."""
    rig = Rig(settings=FREE)
    for name in ("n1", "n2"):
        rig.add_node(name, boot=1)
    master = rig.start(job("j", stage("w", 3)))
    (home,) = [name for name, node in rig.nodes.items() if node.masters]
    (own,) = rig.nodes[home].masters
    away = {"n1": "n2", "n2": "n1"}[home]
    known, unknown = (container_id(master.attempt_id, number) for number in (7, 8))
    again = restarted(rig)
    vector = again.manager.books.master_vector
    again.tell(node_registered(home, boot=1, running=(RunningContainer(own, vector, ()),)))
    again.tell(AttemptRegistered(master.attempt_id, "", ((known, away),)))
    runs = tuple(RunningContainer(number, (1.0, 1024.0), ()) for number in (known, unknown))
    again.tell(node_registered(away, boot=1, running=runs))
    assert again.manager.books.holdings[known].attempt is not None
    assert again.manager.books.holdings[unknown].attempt is None
    assert wait(again, 2, master.attempt_id) == [unknown]
    assert again.nodes[away].stops == [unknown]


def test_times_and_tries_of_a_job_stay_over_restarts() -> None:
    """When its first master came, while it runs and once it ended, and what failed before."""
    rig = Rig(settings=FREE)
    rig.add_node("n1")
    rig.now = 5.0
    master = rig.start(job("j", stage("w", 3)))
    rig.allocate(master, ask(1, 3))
    rig.beat()
    rig.allocate(master)
    rig.beat("n1", ContainerEnd(min(master.containers), Outcome.FAILED, 1, 0, 0, 0, 1.0))
    (app,) = rig.manager.books.apps.values()
    before = rig.ask_manager(GetApplication(app.app_id))
    assert before.started_s == 5.0
    assert before.stages[0].failed_attempts == 1

    again = restarted(rig)
    again.now = 50.0
    told = again.ask_manager(GetApplication(app.app_id))
    assert told.started_s == 5.0
    assert "started anew" in told.diagnostics
    assert "up to 10 s for nodes to come back" in told.diagnostics
    assert again.ask_manager(Explain(app.app_id)).text == told.diagnostics
    again.add_node("n2")
    again.tell(AttemptRegistered(master.attempt_id))
    told = again.ask_manager(GetApplication(app.app_id))
    assert (told.started_s, told.diagnostics) == (5.0, "")

    rig.now = 60.0
    rig.tell(AttemptFinished(master.attempt_id, True))
    ended = rig.ask_manager(GetApplication(app.app_id))
    records = compact(rig.records)
    for known in (rig.records, records, compact(records)):
        last = Rig(settings=FREE, records=known)
        last.now = 100.0
        told = last.ask_manager(GetApplication(app.app_id))
        assert told.started_s == 5.0
        assert told.attempt_id == ended.attempt_id > 0
        assert told.stages[0].failed_attempts == 1


def test_what_was_finished_is_progress_before_the_master_is_back() -> None:
    rig = Rig(settings=FREE)
    rig.add_node("n1")
    master = rig.start(job("j", stage("w", 4)))
    rig.allocate(master, ask(1, 4))
    rig.beat()
    rig.allocate(master)
    rig.beat("n1", succeeded(min(master.containers)))
    (app,) = rig.manager.books.apps
    assert restarted(rig).ask_manager(GetApplication(app)).progress == 0.25


def test_a_restart_loses_no_start_of_what_runs_nor_what_it_held_until_then() -> None:
    rig = Rig(settings=FREE)
    rig.add_node("n1", boot=1)
    rig.now = 10.0
    master = rig.start(job("j", stage("w", 2)))
    (own,) = rig.nodes["n1"].masters
    rig.allocate(master, ask(total=2))
    rig.beat()
    rig.allocate(master)
    first, second = master.containers
    rig.now = 50.0
    again = restarted(rig)
    runs = [
        RunningContainer(own, (0.0, 0.0), (), 10.5),
        RunningContainer(first, (1.0, 1024.0), ((0, 0, 0),), 12.0),
        # The clock of no node makes a container older than its application, or of the future.
        RunningContainer(second, (1.0, 1024.0), ((0, 1, 0),), 3.0),
    ]
    again.tell(node_registered("n1", boot=1, life=2, running=runs))
    again.now = 60.0
    told = again.ask_manager(ListContainers(1)).items
    assert [one.started_s for one in told] == [10.5, 12.0, 10.0]
    assert [one.index for one in told] == [-1, 0, 1]
    held_s = again.ask_manager(GetApplication(1)).held_s
    tasks_s = (60.0 - 12.0) + (60.0 - 10.0)
    assert tasks_s <= held_s["vcores"] <= tasks_s + 0.1, "its master's holds a thousandth"
