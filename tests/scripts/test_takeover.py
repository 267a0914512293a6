"""A master that follows a lost one takes over what runs: no task is started a second time."""

from dataclasses import replace

import numpy as np

from am.ask.registry import asker
from am.core import ApplicationMaster
from am.lifecycle import MasterState
from am.settings import MasterSettings
from nm.core import NodeManager
from nm.settings import NodeSettings
from rm.settings import ManagerSettings
from sim.cluster import Simulation
from sim.faults import Fault, FaultKind, Faults
from sim.settings import SimSettings
from testkit.builders import (
    TWO_TYPES,
    FakeMaster,
    ask,
    job,
    node_registered,
    sent,
    stage,
    succeeded,
)
from testkit.manager import Rig
from testkit.master import accepted
from weft.model.cluster import cluster_from_text
from weft.model.ids import attempt_id, container_id
from weft.policies.presets import preset
from weft.protocol.effects import Started, TimerFired
from weft.protocol.facts import TaskStarted
from weft.protocol.messages import (
    AttemptAccepted,
    AttemptRegistered,
    Container,
    ContainerEnd,
    ContainersAsked,
    ContainersGranted,
    FinishedTask,
    ItemAnswer,
    NodeAccepted,
    NodeAnswered,
    NodeHeartbeated,
    Outcome,
    QueryContainers,
    RunningContainer,
    StartAnswered,
    StartContainers,
    TaskLaunch,
)
from weft.protocol.requests import KillApplication

FREE = ManagerSettings(master_demand={}, node_expiry_s=10.0, master_expiry_s=12.0)
FIRST, SECOND = attempt_id(1, 1), attempt_id(1, 2)


def orphaned(rig: Rig, *, takes_over: bool = True) -> tuple[FakeMaster, list[int]]:
    """A master with two tasks under way is lost, and the next one is up."""
    rig.add_node("n1")
    rig.add_node("n2")
    master = rig.start(job("j", stage(tasks=4)))
    rig.tell(AttemptRegistered(FIRST, takes_over=takes_over))
    rig.allocate(master, ask(total=2))
    rig.beat()
    rig.allocate(master)
    assert len(master.containers) == 2
    (where,) = [n for n in rig.nodes.values() if n.masters]
    rig.beat(where.node_id, ContainerEnd(next(iter(where.masters)), Outcome.FAILED, 1))
    rig.beat()
    rig.beat()
    return master, sorted(master.containers)


def take_over(rig: Rig) -> AttemptAccepted:
    """The second master registers."""
    rig.masters[SECOND] = FakeMaster(SECOND)
    (answer,) = sent(rig.tell(AttemptRegistered(SECOND, takes_over=True)), AttemptAccepted)
    return answer


# -- the manager -----------------------------------------------------------------------------------


def test_containers_of_a_lost_attempt_go_on_under_the_next_one() -> None:
    rig = Rig(settings=FREE)
    _, containers = orphaned(rig)
    answer = take_over(rig)
    assert [one.container_id for one in answer.held] == containers
    assert {name for name, _ in answer.addresses} == {one.node_id for one in answer.held}
    assert all(c not in node.stops for node in rig.nodes.values() for c in containers)
    again = sent(rig.tell(AttemptRegistered(SECOND, takes_over=True)), AttemptAccepted)
    assert again[0].held == answer.held, "the answer may have been lost"
    rig.allocate(rig.masters[SECOND])
    rig.beat(answer.held[0].node_id, succeeded(containers[0], 0, 0))
    rig.allocate(rig.masters[SECOND])
    assert rig.masters[SECOND].ended[containers[0]].outcome is Outcome.SUCCEEDED
    assert list(rig.manager.books.apps[1].attempt.holdings) == [
        rig.manager.books.apps[1].attempt.master_id,
        containers[1],
    ]


def test_what_its_master_was_never_told_of_is_stopped() -> None:
    rig = Rig(settings=FREE)
    rig.add_node("n1")
    master = rig.start(job("j", stage(tasks=4)))
    rig.allocate(master, ask(total=2))
    rig.beat()
    held = rig.manager.books.apps[1].attempt.holdings
    granted = [number for number, one in held.items() if one.state.name == "ALLOCATED"]
    assert len(granted) == 2
    rig.beat("n1", ContainerEnd(next(iter(rig.nodes["n1"].masters)), Outcome.FAILED, 1))
    rig.beat()
    assert set(granted) <= set(rig.nodes["n1"].stops)


def test_a_container_in_which_nothing_was_started_is_not_kept() -> None:
    rig = Rig(settings=FREE)
    _, containers = orphaned(rig)
    told = {c for message in rig.heard if isinstance(message, NodeAnswered) for c in message.spare}
    assert told == set(containers)
    node = NodeManager(
        "n1",
        "",
        {"vcores": 4.0, "memory_mb": 8192.0},
        "r1",
        (),
        NodeSettings(),
        np.random.default_rng(0),
    )
    node.handle(Started(), 0.0)
    node.handle(NodeAccepted("n1", TWO_TYPES, 1.0, False, 0), 0.0)
    runs = TaskLaunch(containers[0], 0, 0, 0, 10.0, (1.0, 1024.0), granted=(1.0, 1024.0))
    node.handle(StartContainers(FIRST, "n1", (runs,)), 0.0)
    node.handle(NodeAnswered("n1", 1, spare=tuple(containers)), 1.0)
    assert node.containers == (containers[0],)
    (beat,) = sent(node.handle(TimerFired("heartbeat"), 2.0), NodeHeartbeated)
    assert [(e.container_id, e.outcome) for e in beat.ended] == [(containers[1], Outcome.RELEASED)]
    late = StartContainers(FIRST, "n1", (replace(runs, container_id=containers[1], task=1),))
    (answer,) = sent(node.handle(late, 3.0), StartAnswered)
    assert answer.items[0].error, "a start that comes late is refused"


def test_what_goes_on_gives_way_to_a_master_that_finds_no_room() -> None:
    rig = Rig(settings=ManagerSettings(master_demand={"vcores": 2.0}, reserve_after_s=5.0))
    rig.add_node("n1")
    master = rig.start(job("j", stage(tasks=4)))
    rig.tell(AttemptRegistered(FIRST, takes_over=True))
    rig.allocate(master, ask(total=2))
    rig.beat()
    rig.allocate(master)
    rig.add_node("n2", 1.0)
    rig.manager.books.nodes["n1"].labels = ()
    rig.beat("n1", ContainerEnd(next(iter(rig.nodes["n1"].masters)), Outcome.FAILED, 1))
    next(iter(rig.manager.books.waiting)).avoid = frozenset({"n1"})  # nowhere else is room
    rig.beat(later_s=1.0)
    assert not set(master.containers) & set(rig.nodes["n1"].stops)
    rig.tell(TimerFired("liveness"), 6.0)
    rig.beat()
    assert set(master.containers) <= set(rig.nodes["n1"].stops)


def test_what_was_kept_is_stopped_when_the_application_is_killed() -> None:
    rig = Rig(settings=FREE)
    _, containers = orphaned(rig)
    rig.ask_manager(KillApplication(1))
    rig.beat()
    assert set(containers) <= {c for node in rig.nodes.values() for c in node.stops}


def test_nothing_is_kept_that_nobody_will_take_over() -> None:
    for settings, takes_over in (
        (FREE, False),
        (ManagerSettings(master_demand={}, takeover=False), True),
        (ManagerSettings(master_demand={}, max_attempts=1), True),
    ):
        rig = Rig(settings=settings)
        _, containers = orphaned(rig, takes_over=takes_over)
        rig.beat()
        assert set(containers) <= {c for node in rig.nodes.values() for c in node.stops}


def test_a_restarted_manager_gives_the_next_attempt_what_nodes_still_run() -> None:
    rig = Rig(settings=FREE)
    _, containers = orphaned(rig)
    again = Rig(settings=FREE, records=rig.records)
    carried = [
        RunningContainer(number, (1.0, 1024.0), ((0, task, 0),))
        for task, number in enumerate(containers)
    ]
    (where,) = [n.node_id for n in rig.nodes.values() if SECOND in n.masters.values()]
    own = RunningContainer(container_id(SECOND, 1), (0.0, 0.0), ())
    again.add_node(where, running=[*carried, own])
    soon = again.tell(AttemptRegistered(SECOND, takes_over=True), 9.0)
    assert not sent(soon, AttemptAccepted), "other nodes may still bring theirs"
    again.now += 1.0
    answer = take_over(again)
    assert {one.container_id for one in answer.held} == set(containers)


def test_what_ended_while_the_manager_was_down_is_not_run_again_by_the_next_attempt() -> None:
    """The node of the lost master is back before the one that knows of two successes."""
    rig = Rig(settings=FREE)
    rig.add_node("n1")
    rig.add_node("n2")
    master = rig.start(job("j", stage(tasks=2)))
    rig.tell(AttemptRegistered(FIRST, takes_over=True))
    rig.allocate(master, ask(total=2))
    rig.beat()
    rig.allocate(master)
    assert len(master.containers) == 2
    (where,) = [n.node_id for n in rig.nodes.values() if n.masters]
    (other,) = {"n1", "n2"} - {where}
    again = Rig(settings=FREE, records=rig.records)
    again.add_node(where)  # without its master: the next attempt begins
    again.beat(where)
    assert SECOND in again.nodes[where].masters.values()
    again.masters[SECOND] = FakeMaster(SECOND)
    for _ in range(3):
        told = again.tell(AttemptRegistered(SECOND, takes_over=True), 1.0)
        assert not sent(told, AttemptAccepted)
    again.add_node(other)
    again.beat(other, *(succeeded(c, 0, t) for t, c in enumerate(sorted(master.containers))))
    again.now = again.manager.books.started_s + 10.0
    answer = take_over(again)
    assert {(one.stage, one.task) for one in answer.finished} == {(0, 0), (0, 1)}


def test_a_restarted_manager_keeps_what_the_attempt_took_over_and_stops_the_rest() -> None:
    rig = Rig(settings=FREE)
    _, containers = orphaned(rig)
    take_over(rig)
    (where,) = [n.node_id for n in rig.nodes.values() if SECOND in n.masters.values()]
    again = Rig(settings=FREE, records=rig.records)
    again.masters[SECOND] = FakeMaster(SECOND)
    held = ((containers[0], where),)
    own = RunningContainer(container_id(SECOND, 1), (0.0, 0.0), ())
    again.tell(AttemptRegistered(SECOND, held=held, takes_over=True))
    carried = [
        RunningContainer(number, (1.0, 1024.0), ((0, task, 0),))
        for task, number in enumerate(containers)
    ]
    again.add_node(where, running=[*carried, own])
    again.beat()
    assert containers[1] in again.nodes[where].stops
    assert containers[0] not in again.nodes[where].stops
    again.beat(where, ContainerEnd(containers[0], Outcome.FAILED, 1, 0, 0))
    again.allocate(again.masters[SECOND])
    assert again.masters[SECOND].ended[containers[0]].outcome is Outcome.FAILED


def test_an_end_that_a_restart_swallowed_reaches_who_took_the_container_over() -> None:
    rig = Rig(settings=FREE)
    _, containers = orphaned(rig)
    take_over(rig)
    (where,) = [n.node_id for n in rig.nodes.values() if SECOND in n.masters.values()]
    again = Rig(settings=FREE, records=rig.records)
    again.masters[SECOND] = FakeMaster(SECOND)
    again.tell(AttemptRegistered(SECOND, held=((containers[0], where),), takes_over=True))
    own = RunningContainer(container_id(SECOND, 1), (0.0, 0.0), ())
    again.tell(node_registered(where, running=(own,)))
    again.tell(rig.nodes[where].heartbeat(ContainerEnd(containers[0], Outcome.FAILED, 1, 0, 0)))
    again.allocate(again.masters[SECOND])
    assert again.masters[SECOND].ended[containers[0]].outcome is Outcome.FAILED


# -- the master ------------------------------------------------------------------------------------

DIRECT = MasterSettings(planner="")
A, B, C = (container_id(FIRST, number) for number in (2, 3, 4))


def successor(**fields: object) -> tuple[ApplicationMaster, list[object]]:
    """A second master that was told of three containers on two nodes."""
    master = ApplicationMaster(SECOND, DIRECT, asker("all_ready"), np.random.default_rng(0))
    (registered,) = sent(master.handle(Started(), 0.0), AttemptRegistered)
    assert registered.takes_over
    held = (Container(A, "n1", 0), Container(B, "n1", 0), Container(C, "n2", 0))
    answer = accepted(job("j", stage(tasks=5)), attempt_id=SECOND, held=held, **fields)
    return master, master.handle(answer, 0.0)


def all_asked(master: ApplicationMaster, now: float) -> list[ContainersAsked]:
    """What it asks when its time has come."""
    return sent(master.handle(TimerFired("ask"), now), ContainersAsked)


def test_a_successor_asks_the_nodes_first_and_the_manager_for_the_rest() -> None:
    master, effects = successor(finished=(FinishedTask(0, 4, 1.0),))
    asked = {m.node_id: m.containers for m in sent(effects, QueryContainers)}
    assert asked == {"n1": (A, B), "n2": (C,)}
    assert not all_asked(master, 0.1), "before it knows what runs it wants nothing"
    n1 = (ItemAnswer(A), ItemAnswer(A, 0, 0), ItemAnswer(B), ItemAnswer(B, 0, 2))
    master.handle(StartAnswered("n1", SECOND, n1), 0.2)
    assert not all_asked(master, 0.2)
    effects = master.handle(StartAnswered("n2", SECOND, (ItemAnswer(C), ItemAnswer(C, 0, 1))), 0.3)
    assert not sent(effects, StartContainers)
    (request,) = all_asked(master, 0.3)
    assert [a.total for a in request.asks] == [1], "only task 3 runs nowhere"
    ends = (succeeded(A, 0, 0), succeeded(B, 0, 2), succeeded(C, 0, 1), succeeded(A, 0, 0))
    master.handle(ContainersGranted(SECOND, 1, ended=ends), 4.0)
    master.check()
    own = Container(container_id(SECOND, 2), "n1", request.asks[0].ask_id)
    (start,) = sent(
        master.handle(ContainersGranted(SECOND, 2, containers=(own,)), 5.0), StartContainers
    )
    assert [item.task for item in start.items] == [3]
    master.handle(ContainersGranted(SECOND, 3, ended=(succeeded(own.container_id, 0, 3),)), 6.0)
    assert master.state is MasterState.FINISHING


def test_a_task_of_a_container_that_is_gone_waits_for_its_end() -> None:
    master, _ = successor()
    n1 = (ItemAnswer(A, error="no such container runs here"), ItemAnswer(B), ItemAnswer(B, 0, 2))
    master.handle(StartAnswered("n1", SECOND, n1), 0.2)
    master.handle(StartAnswered("n2", SECOND, (ItemAnswer(C), ItemAnswer(C, 0, 2))), 0.2)
    (request,) = all_asked(master, 0.2)
    assert sorted(request.releases) == [A, C], "C runs a task that is followed in B"
    assert not request.asks, "what ran there may just have succeeded"
    end = ContainerEnd(C, Outcome.KILLED, 1, 0, 2)
    master.handle(ContainersGranted(SECOND, 1, ended=(succeeded(A, 0, 0), end)), 1.0)
    (request,) = all_asked(master, 1.0)
    assert [a.total for a in request.asks] == [3], "tasks 1, 3 and 4"
    master.check()


def test_a_node_that_does_not_answer_is_not_waited_for_for_ever() -> None:
    master, _ = successor()
    n1 = (ItemAnswer(A), ItemAnswer(A, 0, 0), ItemAnswer(B), ItemAnswer(B, 0, 1))
    master.handle(StartAnswered("n1", SECOND, n1), 0.2)
    again = master.handle(TimerFired("heartbeat"), 4.0)
    assert [m.containers for m in sent(again, QueryContainers)] == [(C,)], "it is asked again"
    master.handle(TimerFired("wake"), 10.1)
    (request,) = all_asked(master, 10.1)
    assert request.releases == (C,)
    assert [a.total for a in request.asks] == [3]
    late = master.handle(StartAnswered("n2", SECOND, (ItemAnswer(C), ItemAnswer(C, 0, 3))), 11.0)
    assert not sent(late, StartContainers)
    master.check()


def test_a_manager_that_restarts_meanwhile_is_told_of_all_of_them() -> None:
    master, _ = successor()
    master.handle(StartAnswered("n1", SECOND, (ItemAnswer(A), ItemAnswer(A, 0, 0))), 0.2)
    effects = master.handle(ContainersGranted(SECOND, 0, resync=True, epoch=1), 1.0)
    (registered,) = sent(effects, AttemptRegistered)
    assert {number for number, _ in registered.held} == {A, B, C}
    D = container_id(FIRST, 9)
    held = (Container(A, "n1", 0), Container(D, "n1", 0))
    master.handle(accepted(job("j", stage(tasks=5)), attempt_id=SECOND, held=held, epoch=1), 1.0)
    (request,) = all_asked(master, 1.1)
    assert request.releases == (D,), "which it does not know"


# -- the whole cluster in virtual time -------------------------------------------------------------


def runs(prompt: bool, takeover: bool) -> tuple[dict[tuple[int, int], int], float]:
    """How often each task began in a job whose master is lost twice, and when the job ended."""
    script = tuple(Fault(at, FaultKind.LOSE_MASTER) for at in (12.0, 31.0))
    work = job("j", stage("a", 8, 20.0), stage("b", 4, 20.0, parents=["a"]))
    simulation = Simulation(
        cluster_from_text("3x4vcores,8192memory_mb"),
        [work],
        SimSettings(
            preset("capacity"),
            prompt=prompt,
            checks=True,
            faults=Faults(script),
            node=NodeSettings(),
            manager={"takeover": takeover, "max_attempts": 5},
        ),
    )
    began: dict[tuple[int, int], int] = {}

    def note(now: float, fact: object) -> None:
        if isinstance(fact, TaskStarted) and fact.stage >= 0:
            key = (fact.stage, fact.task)
            began[key] = began.get(key, 0) + 1

    simulation.watchers.append(note)
    recorder = simulation.run()
    assert recorder.jobs[0].state == "FINISHED"
    return began, recorder.jobs[0].finish_s


def test_a_job_that_loses_its_masters_starts_each_task_once() -> None:
    for prompt in (True, False):
        began, end_s = runs(prompt, takeover=True)
        assert set(began.values()) == {1}, began
        again, late_s = runs(prompt, takeover=False)
        assert max(again.values()) > 1, "without it tasks are started again"
        assert end_s < late_s
