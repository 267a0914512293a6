"""Nodes leave service without harm and come back; attempts lost with their node are not counted."""

import pytest

from rm.recovery import compact
from rm.settings import ManagerSettings
from rm.state.lifecycle import AppState, RmNodeState
from testkit.builders import (
    FakeMaster,
    ask,
    job,
    node_registered,
    noted,
    sent,
    stage,
    succeeded,
    timers,
)
from testkit.manager import Rig
from weft.model.ids import attempt_id
from weft.protocol.effects import TimerFired
from weft.protocol.facts import NodeChanged, Placed
from weft.protocol.messages import (
    ContainerEnd,
    NodeAnswered,
    NodeUnregistered,
    Outcome,
    RunningContainer,
)
from weft.protocol.requests import (
    DecommissionNode,
    Done,
    Explain,
    GetApplication,
    GetMetrics,
    ListNodes,
    RecommissionNode,
    Refused,
)

FREE = ManagerSettings(master_demand={}, node_expiry_s=10.0, master_expiry_s=1000.0)
ALARM = ("decommission", "n1")


def state(rig: Rig, name: str = "n1") -> str:
    return rig.manager.books.nodes[name].state.name


def decommission(rig: Rig, name: str = "n1", timeout_s: float = 60.0) -> str:
    answer = rig.ask_manager(DecommissionNode(name, timeout_s))
    assert isinstance(answer, Done), answer
    return answer.state


def recommission(rig: Rig, name: str = "n1") -> str:
    answer = rig.ask_manager(RecommissionNode(name))
    assert isinstance(answer, Done), answer
    return answer.state


def busy(tasks: int = 2) -> tuple[Rig, FakeMaster]:
    """n1 runs a master and its tasks; n2 came later and is idle."""
    rig = Rig(settings=FREE)
    rig.add_node("n1")
    master = rig.start(job("j", stage(tasks=8)))
    rig.allocate(master, ask(total=tasks))
    rig.beat()
    rig.allocate(master)
    assert {c.node_id for c in master.containers.values()} == {"n1"}
    rig.add_node("n2")
    return rig, master


def end_all(rig: Rig, master: FakeMaster, outcome: Outcome = Outcome.SUCCEEDED) -> None:
    """Everything that n1 runs but its master ends."""
    for number, container in enumerate(sorted(master.containers)):
        if container in rig.manager.books.holdings:
            rig.beat("n1", ContainerEnd(container, outcome, 0, 0, number, 0, 1.0))


def test_an_idle_node_is_decommissioned_at_once() -> None:
    rig = Rig(settings=FREE)
    rig.add_node("n1")
    assert decommission(rig) == "DECOMMISSIONED"
    assert [f.state for f in noted(rig.effects, NodeChanged)] == [
        "DECOMMISSIONING",
        "DECOMMISSIONED",
    ]
    assert rig.ask_manager(GetMetrics()).capacity == {"vcores": 0.0, "memory_mb": 0.0}
    assert [r.state for r in rig.ask_manager(ListNodes()).items] == ["DECOMMISSIONED"]


def test_nothing_new_runs_on_a_node_that_leaves_and_what_runs_ends_there() -> None:
    rig, master = busy(tasks=2)
    assert decommission(rig) == "DECOMMISSIONING"
    assert rig.ask_manager(GetMetrics()).capacity["vcores"] == 4.0, "n2 only"
    rig.allocate(master, ask(total=4))
    rig.beat("n1")
    rig.beat("n2")
    rig.allocate(master)
    assert [c.node_id for c in master.containers.values()] == ["n1", "n1", "n2", "n2"]
    end_all(rig, master)
    assert state(rig) == "DECOMMISSIONING", "the master still runs"
    assert not rig.nodes["n1"].stops, "nobody was stopped"
    (own,) = rig.nodes["n1"].masters
    rig.beat("n1", ContainerEnd(own, Outcome.SUCCEEDED))
    assert state(rig) == "DECOMMISSIONED"
    assert not sent(rig.tell(rig.nodes["n1"].heartbeat()), NodeAnswered)[0].resync


def test_when_its_time_is_over_what_runs_is_stopped_and_no_failure_is_counted() -> None:
    rig, master = busy(tasks=2)
    decommission(rig, timeout_s=30.0)
    (timer,) = [t for t in timers(rig.effects) if t.key == ALARM]
    assert timer.delay_s == 30.0
    rig.beat("n1", later_s=29.0)
    rig.tell(TimerFired(ALARM))
    assert [t.delay_s for t in timers(rig.effects) if t.key == ALARM] == [1.0], "a bit early"
    assert not rig.nodes["n1"].stops
    rig.tell(TimerFired(ALARM), 1.0)
    rig.beat("n1")
    (own,) = rig.nodes["n1"].masters
    assert set(rig.nodes["n1"].stops) == {own, *master.containers}
    assert state(rig) == "DECOMMISSIONING", "until the node says that they ended"
    first, second = sorted(master.containers)
    rig.beat("n1", succeeded(first, 0, 0), ContainerEnd(second, Outcome.RELEASED))
    rig.allocate(master)
    assert master.ended[first].outcome is Outcome.SUCCEEDED, "it was quicker than the order"
    assert master.ended[second].outcome is Outcome.LOST
    assert master.ended[second].message == "its node was decommissioned"
    rig.beat("n1", ContainerEnd(own, Outcome.KILLED, 137))
    assert state(rig) == "DECOMMISSIONED"
    app = rig.manager.books.apps[1]
    assert (app.state, len(app.attempts)) == (AppState.ACCEPTED, 1 + 1)
    assert not app.attempts[0].counts
    rig.beat("n2")
    assert attempt_id(1, 2) in rig.nodes["n2"].masters.values()


def test_a_running_task_that_is_stopped_is_killed_not_failed() -> None:
    rig, master = busy(tasks=1)
    decommission(rig, timeout_s=0.0)
    rig.beat("n1")
    (task,) = master.containers
    rig.beat("n1", ContainerEnd(task, Outcome.KILLED, 137, 0, 0, 0, 1.0))
    rig.allocate(master)
    end = master.ended[task]
    assert (end.outcome, end.message) == (Outcome.KILLED, "its node was decommissioned")
    assert rig.ask_manager(GetApplication(1)).stages[0].failed_attempts == 0


def test_below_zero_is_for_ever_and_another_order_changes_the_time() -> None:
    rig, _ = busy()
    decommission(rig, timeout_s=-1.0)
    assert [t.delay_s for t in timers(rig.effects) if t.key == ALARM] == [None]
    rig.tell(TimerFired(ALARM), 10_000.0)  # one of before
    rig.beat("n1")
    assert not rig.nodes["n1"].stops
    assert decommission(rig, timeout_s=5.0) == "DECOMMISSIONING"
    rig.tell(TimerFired(ALARM), 5.0)
    rig.beat("n1")
    assert len(rig.nodes["n1"].stops) == 3


def test_a_node_that_is_put_back_is_matched_again() -> None:
    rig, master = busy(tasks=2)
    rig.tell(NodeUnregistered("n2"))
    decommission(rig, timeout_s=30.0)
    rig.allocate(master, ask(total=4))
    rig.beat("n1")
    rig.allocate(master)
    assert len(master.containers) == 2
    assert recommission(rig) == "RUNNING"
    assert [t.delay_s for t in timers(rig.effects) if t.key == ALARM] == [None]
    rig.tell(TimerFired(ALARM), 31.0)  # it was on its way
    rig.beat("n1")
    rig.allocate(master)
    assert len(master.containers) == 4
    assert not rig.nodes["n1"].stops
    assert recommission(rig) == "RUNNING", "said again"


def test_a_decommissioned_node_serves_again_without_a_restart_or_after_one() -> None:
    rig = Rig(settings=FREE)
    rig.add_node("n1", boot=1)
    decommission(rig)
    rig.beat("n1")
    assert recommission(rig) == "RUNNING"
    decommission(rig)
    rig.tell(NodeUnregistered("n1"))
    assert state(rig) == "DECOMMISSIONED"
    rig.restart_node("n1", 2)
    assert state(rig) == "DECOMMISSIONED", "starting its process does not put it back"
    assert recommission(rig) == "RUNNING"
    decommission(rig)
    rig.tell(NodeUnregistered("n1"))
    assert recommission(rig) == "SHUTDOWN", "it is away"
    assert sent(rig.tell(rig.nodes["n1"].heartbeat()), NodeAnswered)[0].resync
    rig.restart_node("n1", 3)
    assert state(rig) == "RUNNING"


@pytest.mark.parametrize("how", ["silent", "leaves"])
def test_a_node_that_goes_while_it_is_drained_is_decommissioned_and_its_tasks_lost(
    how: str,
) -> None:
    rig, master = busy(tasks=2)
    decommission(rig, timeout_s=-1.0)
    if how == "leaves":
        rig.tell(NodeUnregistered("n1"))
    else:
        rig.beat("n2", later_s=9.0)
        rig.tell(TimerFired("liveness"), 2.0)
    assert state(rig) == "DECOMMISSIONED"
    attempt = rig.manager.books.apps[1].attempts[0]
    assert not attempt.counts
    assert "LOST" in attempt.diagnostics
    answer = rig.tell(rig.nodes["n1"].heartbeat())
    assert sent(answer, NodeAnswered)[0].resync
    carried = tuple(RunningContainer(c, (1.0, 1024.0), ((0, 0, 0),)) for c in master.containers)
    rig.tell(node_registered("n1", running=carried))
    assert state(rig) == "DECOMMISSIONED"
    rig.beat("n1")
    (own,) = rig.nodes["n1"].masters
    assert set(rig.nodes["n1"].stops) == {own, *master.containers}, "it may still run them"


def test_a_lost_node_can_be_taken_out_of_service() -> None:
    rig = Rig(settings=FREE)
    rig.add_node("n1")
    rig.tell(TimerFired("liveness"), 11.0)
    assert state(rig) == "LOST"
    assert decommission(rig) == "DECOMMISSIONED"
    rig.tell(node_registered("n1"))
    assert state(rig) == "DECOMMISSIONED"


def test_a_reservation_does_not_outlast_its_nodes_service() -> None:
    """The starving ask gets another node kept."""
    rig = Rig("capacity", ManagerSettings(master_demand={}, reserve_after_s=4.0))
    rig.add_node("n1")
    rig.add_node("n2")
    big = rig.start(job("big", stage(tasks=1, demand={"vcores": 4})))
    small = rig.start(job("small", stage(tasks=1000)))
    rig.allocate(small, ask(1, 1000))
    rig.beat()
    rig.allocate(small)
    rig.allocate(big, ask(1, 1, (4.0, 1024.0)))
    books, tasks = rig.manager.books, iter(range(1000))

    def beat() -> None:
        """One small task of each node ends, so that four cores are never free."""
        for name in rig.nodes:
            running = [h for h in books.holdings.values() if h.node.node_id == name]
            done = [h.container_id for h in running if h.stage >= 0][:1]
            rig.beat(name, *[succeeded(c, 0, next(tasks)) for c in done], later_s=1.0)

    def kept() -> list[str]:
        reserved = books.matching.reserved.values()
        return [books.node_at[slot].node_id for _, slots in reserved for slot in slots]

    for _ in range(6):
        beat()
        if kept():
            break
    (first,) = kept()
    decommission(rig, first, timeout_s=-1.0)
    assert not books.ledger.nodes.reserved[books.nodes[first].slot]
    for _ in range(6):
        beat()
        rig.allocate(big)
        assert first not in kept()
        if big.containers:
            break
    assert {c.node_id for c in big.containers.values()} == {"n2" if first == "n1" else "n1"}


def test_who_waits_is_told_of_nodes_that_leave() -> None:
    rig, master = busy(tasks=4)
    decommission(rig, "n2")
    decommission(rig, "n1", timeout_s=-1.0)
    rig.allocate(master, ask(total=6))
    (stage_,) = rig.ask_manager(Explain(1)).stages
    assert (stage_.pending, stage_.reasons) == (2, {"node is being decommissioned": 1})
    rig.submit()
    assert "no node is in service" in rig.ask_manager(Explain(2)).text


def test_an_unknown_node_and_a_time_that_is_none_are_refused() -> None:
    rig = Rig(settings=FREE)
    rig.add_node("n1")
    for request in (DecommissionNode("n9", 1.0), RecommissionNode("n9")):
        answer = rig.ask_manager(request)
        assert isinstance(answer, Refused)
        assert (answer.code, answer.place) == ("not_found", "node_id")
    answer = rig.ask_manager(DecommissionNode("n1", float("nan")))
    assert (answer.code, answer.place) == ("invalid_argument", "timeout_s")
    assert state(rig) == "RUNNING"


# -- over a restart of the manager -----------------------------------------------------------------


def restarted(rig: Rig) -> Rig:
    records = compact(rig.records)
    assert compact(records) == records
    fresh = Rig(settings=FREE, records=records)
    fresh.nodes, fresh.masters = rig.nodes, rig.masters
    fresh.now = rig.now
    return fresh


def test_a_decommission_goes_on_over_a_restart() -> None:
    rig, master = busy(tasks=2)
    decommission(rig, timeout_s=30.0)
    (own,) = rig.nodes["n1"].masters
    rig = restarted(rig)
    assert state(rig) == "DECOMMISSIONING"
    assert "n2" not in rig.manager.books.nodes, "it is known when it registers"
    assert [t.delay_s for t in timers(rig.effects) if t.key == ALARM] == [0.0 if rig.now else 30.0]
    rig.tell(TimerFired(ALARM), 40.0)
    assert state(rig) == "DECOMMISSIONING", "it may run anything until it says what it runs"
    assert sent(rig.tell(rig.nodes["n1"].heartbeat()), NodeAnswered)[0].resync
    carried = [RunningContainer(own, (0.0, 0.0), ())]
    carried += [
        RunningContainer(c, (1.0, 1024.0), ((0, n, 0),))
        for n, c in enumerate(sorted(master.containers))
    ]
    rig.nodes["n1"].stops.clear()
    rig.tell(node_registered("n1", running=tuple(carried)))
    rig.beat("n1")
    assert set(rig.nodes["n1"].stops) == {own, *master.containers}, "its time is over"
    rig.beat("n1", *[ContainerEnd(c, Outcome.KILLED) for c in rig.nodes["n1"].stops])
    assert state(rig) == "DECOMMISSIONED"
    rig = restarted(rig)
    assert state(rig) == "DECOMMISSIONED"
    rig.tell(node_registered("n1"))
    assert state(rig) == "DECOMMISSIONED"
    assert not rig.manager.books.classes
    assert recommission(rig) == "RUNNING"
    rig = restarted(rig)
    assert "n1" not in rig.manager.books.nodes


def test_a_node_that_never_comes_back_after_a_restart_is_decommissioned() -> None:
    rig, _ = busy()
    decommission(rig, timeout_s=-1.0)
    rig = restarted(rig)
    rig.tell(TimerFired("liveness"), 9.0 - rig.now)
    assert state(rig) == "DECOMMISSIONING"
    rig.tell(TimerFired("liveness"), 11.0)
    assert state(rig) == "DECOMMISSIONED"
    assert recommission(rig) == "SHUTDOWN"


def test_what_a_node_still_runs_that_was_given_up_before_a_restart_is_nobodys() -> None:
    """The master, on another node, was told that they are lost: they must not come back."""
    rig = Rig(settings=FREE)
    rig.add_node("n1")
    master = rig.start(job("j", stage(tasks=8)))
    rig.add_node("n2")
    rig.allocate(master, ask(total=8))
    rig.beat()
    rig.allocate(master)
    at_n2 = [c for c, held in master.containers.items() if held.node_id == "n2"]
    (own,) = rig.nodes["n1"].masters
    decommission(rig, "n2", timeout_s=-1.0)
    rig.beat("n1", later_s=9.0)
    rig.tell(TimerFired("liveness"), 2.0)
    assert state(rig, "n2") == "DECOMMISSIONED"
    rig = restarted(rig)
    rig.tell(node_registered("n1", running=(RunningContainer(own, (0.0, 0.0), ()),)))
    carried = tuple(RunningContainer(c, (1.0, 1024.0), ((0, 0, 0),)) for c in at_n2)
    rig.tell(node_registered("n2", running=carried))
    rig.beat("n2")
    assert set(rig.nodes["n2"].stops) == set(at_n2)
    assert state(rig, "n2") == "DECOMMISSIONED"


# -- attempts --------------------------------------------------------------------------------------


def launched(rig: Rig) -> tuple[str, int]:
    """Where the newest master is, and its container."""
    attempt = rig.manager.books.apps[1].attempt
    assert attempt is not None
    assert attempt.master is not None
    return attempt.master.node.node_id, attempt.master_id


def test_masters_that_are_lost_with_their_nodes_are_not_counted() -> None:
    """YARN: of two attempts allowed, those that went with a node are not taken off."""
    rig = Rig(settings=FREE)
    rig.add_node("n1")
    rig.submit()
    rig.beat()
    for round_ in range(4):
        name, _ = launched(rig)
        assert name == f"n{round_ + 1}"
        rig.add_node(f"n{round_ + 2}")
        rig.tell(NodeUnregistered(name))
        rig.beat(f"n{round_ + 2}")
    assert rig.ask_manager(GetApplication(1)).state == "ACCEPTED"
    for _ in range(2):
        name, own = launched(rig)
        rig.beat(name, ContainerEnd(own, Outcome.FAILED, 3))
        rig.beat(name)
    report = rig.ask_manager(GetApplication(1))
    assert report.state == "FAILED"
    assert "2 attempts failed, and 4 went with their nodes" in report.diagnostics


def test_a_node_that_is_started_anew_takes_its_master_along_uncounted() -> None:
    rig = Rig(settings=FREE)
    rig.add_node("n1", boot=1)
    rig.submit()
    rig.beat()
    _, own = launched(rig)
    rig.restart_node("n1", 2)
    rig.beat("n1", ContainerEnd(own, Outcome.RELEASED))
    assert not rig.manager.books.apps[1].attempts[0].counts


def test_a_restarted_manager_remembers_which_attempts_counted() -> None:
    rig = Rig(settings=FREE)
    rig.add_node("n1")
    rig.submit()
    rig.beat()
    rig.add_node("n2")
    rig.tell(NodeUnregistered("n1"))
    rig.beat("n2")
    _, own = launched(rig)
    rig.beat("n2", ContainerEnd(own, Outcome.FAILED, 3))
    own = rig.manager.books.apps[1].attempts[2].master_id
    rig = restarted(rig)
    assert [a.counts for a in rig.manager.books.apps[1].attempts] == [False, True, False]
    rig.tell(node_registered("n2", running=(RunningContainer(own, (0.0, 0.0), ()),)))
    rig.beat("n2", ContainerEnd(own, Outcome.FAILED, 3))
    assert rig.ask_manager(GetApplication(1)).state == "FAILED"


def test_attempts_are_numbered_by_a_byte_and_end_with_it() -> None:
    """However often nodes are lost, an attempt's id stays its own."""
    rig = Rig(settings=FREE)
    rig.add_node("n1", boot=1)
    rig.submit()
    for boot in range(2, 258):
        rig.beat("n1")
        _, own = launched(rig)
        rig.restart_node("n1", boot)
        rig.beat("n1", ContainerEnd(own, Outcome.RELEASED))
        if rig.manager.books.apps[1].state is AppState.FAILED:
            break
    report = rig.ask_manager(GetApplication(1))
    assert report.state == "FAILED"
    assert report.attempt_id == attempt_id(1, 255)
    assert "255 went with their nodes" in report.diagnostics


def test_a_placement_never_names_a_node_out_of_service() -> None:
    """One pass over a large cluster, half of it out of service."""
    rig = Rig(settings=ManagerSettings(master_demand={}, prompt=True))
    for number in range(20):
        rig.add_node(f"n{number}")
    master = rig.start(job("j", stage(tasks=200)))
    for number in range(0, 20, 2):
        decommission(rig, f"n{number}")
    effects = rig.allocate(master, ask(total=80))
    placed = noted(effects, Placed)
    assert len(placed) == 40
    assert {int(fact.node[1:]) % 2 for fact in placed} == {1}
    up = [n.state is RmNodeState.RUNNING for n in rig.manager.books.node_at]
    assert up == [False, True] * 10
