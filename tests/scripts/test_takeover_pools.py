"""Reusable containers are taken over with what runs in them, and belong to one attempt each."""

from dataclasses import replace

import numpy as np
import pytest

from am.ask.registry import asker
from am.core import ApplicationMaster
from am.lifecycle import MasterState
from am.settings import MasterSettings
from nm.core import NodeManager
from nm.runner import TAKEN_OVER
from nm.settings import NodeSettings
from rm.settings import ManagerSettings
from sim.cluster import Simulation
from sim.faults import Fault, FaultKind, Faults
from sim.settings import SimSettings
from testkit.builders import TWO_TYPES, FakeMaster, ask, job, sent, stage
from testkit.manager import Rig
from testkit.master import accepted
from weft.model.cluster import cluster_from_text
from weft.model.errors import InputError
from weft.model.ids import attempt_id, container_id
from weft.policies.presets import preset
from weft.protocol.effects import Effect, Send, Started, TimerFired
from weft.protocol.facts import TaskStarted
from weft.protocol.messages import (
    AttemptRegistered,
    Container,
    ContainerEnd,
    ContainersAsked,
    ContainersGranted,
    ContainerUse,
    ItemAnswer,
    NodeAccepted,
    NodeAnswered,
    NodeHeartbeated,
    Outcome,
    QueryContainers,
    RunningContainer,
    StartAnswered,
    StartContainers,
    StopContainers,
    TaskEnd,
    TaskLaunch,
    TasksEnded,
    master_address,
)
from weft.wire import rules

FIRST, SECOND, OTHER = attempt_id(1, 1), attempt_id(1, 2), attempt_id(2, 9)
A, B, C = (container_id(FIRST, number) for number in (2, 3, 4))
SIZE = (2.0, 4096.0)

# -- the node --------------------------------------------------------------------------------------


def runs(task: int, attempt: int = 0, lasts_s: float = 10.0) -> TaskLaunch:
    """An order to start a task in A."""
    demand = (1.0, 1024.0)
    return TaskLaunch(A, 0, task, attempt, lasts_s, demand, reusable=True, granted=SIZE)


def holding_node() -> NodeManager:
    """A node in whose container A one task of the first attempt ended, and one runs."""
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
    node.handle(StartContainers(FIRST, "n1", (runs(0, 2, lasts_s=1.0), runs(1))), 0.0)
    node.handle(TimerFired("tasks"), 1.0)
    return node


def test_a_node_tells_what_a_container_holds_and_which_tries_are_taken_there() -> None:
    node = holding_node()
    effects = node.handle(QueryContainers(SECOND, "n1", (A,)), 2.0)
    (ended,), (answer,) = sent(effects, TasksEnded), sent(effects, StartAnswered)
    assert [(e.task, e.attempt, e.outcome) for e in ended.ended] == [(0, 2, Outcome.SUCCEEDED)]
    assert answer.items == (
        ItemAnswer(A, attempt=3, granted=SIZE),
        ItemAnswer(A, 0, 1, attempt=0),
    )


def test_what_a_node_tells_of_the_highest_try_that_may_be_ordered_passes_the_gate() -> None:
    node = holding_node()
    order = StartContainers(FIRST, "n1", (runs(2, rules.TRIES_MAX),))
    rules.check(order, 2)
    node.handle(order, 1.5)
    (answer,) = sent(node.handle(QueryContainers(SECOND, "n1", (A,)), 2.0), StartAnswered)
    assert answer.items[0].attempt == rules.TRIES_MAX + 1
    rules.check(answer, 2)
    with pytest.raises(InputError, match="attempt"):
        rules.check(StartContainers(FIRST, "n1", (runs(2, rules.TRIES_MAX + 1),)), 2)


def test_a_container_obeys_the_last_attempt_that_asked_for_it_and_no_earlier_one() -> None:
    node = holding_node()
    node.handle(QueryContainers(SECOND, "n1", (A,)), 2.0)
    for message in (
        StartContainers(FIRST, "n1", (runs(2),)),
        StopContainers(FIRST, "n1", (A,)),
        QueryContainers(FIRST, "n1", (A,)),
        QueryContainers(OTHER, "n1", (A,)),
    ):
        (answer,) = sent(node.handle(message, 3.0), StartAnswered)
        assert [item.error for item in answer.items] == [TAKEN_OVER], message
    (answer,) = sent(node.handle(StartContainers(SECOND, "n1", (runs(2, 3),)), 3.0), StartAnswered)
    assert not answer.items[0].error
    (told,) = [
        effect
        for effect in node.handle(TimerFired("tasks"), 10.0)
        if isinstance(effect, Send) and isinstance(effect.message, TasksEnded)
    ]
    assert told.to == master_address(SECOND), "nobody else waits for its end"
    node.check()
    node.handle(StopContainers(SECOND, "n1", (A,)), 11.0)
    assert not node.containers


def test_a_container_that_is_idle_without_a_master_is_given_back() -> None:
    node = holding_node()
    node.handle(NodeAnswered("n1", 1, spare=(A,)), 2.0)
    assert node.containers == (A,), "a task runs in it"
    node.handle(TimerFired("tasks"), 10.0)
    node.handle(NodeAnswered("n1", 2, spare=(A,)), 11.0)
    assert not node.containers
    (beat,) = sent(node.handle(TimerFired("heartbeat"), 12.0), NodeHeartbeated)
    assert [(e.container_id, e.outcome) for e in beat.ended] == [(A, Outcome.RELEASED)]


def test_the_manager_has_a_node_give_back_what_becomes_idle_without_a_master() -> None:
    rig = Rig(settings=ManagerSettings(master_demand={"vcores": 2.0}))
    rig.add_node("n1")
    master = rig.start(job("j", stage(tasks=4)))
    rig.tell(AttemptRegistered(FIRST, takes_over=True))
    rig.allocate(master, ask(total=1))
    rig.beat()
    rig.allocate(master)
    (number,) = master.containers
    rig.add_node("n2", 1.0)
    rig.beat("n1", ContainerEnd(next(iter(rig.nodes["n1"].masters)), Outcome.FAILED, 1))
    assert rig.manager.books.waiting, "n1 is avoided, n2 is too small"
    rig.heard.clear()
    done = TaskEnd(number, 0, 0, 0, Outcome.SUCCEEDED, 0, 1.0)
    rig.tell(replace(rig.nodes["n1"].heartbeat(), tasks_ended=(done,)))
    rig.beat("n1")
    spared = {c for m in rig.heard if isinstance(m, NodeAnswered) for c in m.spare}
    assert spared == {number}
    assert rig.manager.books.apps[1].finished[0] == {0: 1.0}, "its success counts"


def test_a_master_hears_that_a_node_which_came_first_gave_its_idle_container_back() -> None:
    free = ManagerSettings(master_demand={}, node_expiry_s=10.0)
    rig = Rig(settings=free)
    rig.add_node("n1")
    master = rig.start(job("j", stage(tasks=4)))
    rig.tell(AttemptRegistered(FIRST, takes_over=True))
    rig.allocate(master, ask(total=1))
    rig.beat()
    rig.allocate(master)
    (number,) = master.containers
    rig.beat("n1", ContainerEnd(next(iter(rig.nodes["n1"].masters)), Outcome.FAILED, 1))
    rig.beat()
    rig.masters[SECOND] = FakeMaster(SECOND)
    rig.tell(AttemptRegistered(SECOND, takes_over=True))
    again = Rig(settings=free, records=rig.records)
    own = RunningContainer(container_id(SECOND, 1), (0.0, 0.0), ())
    again.add_node("n1", running=[RunningContainer(number, (1.0, 1024.0), ()), own])
    again.masters[SECOND] = FakeMaster(SECOND)
    again.tell(AttemptRegistered(SECOND, held=((number, "n1"),), takes_over=True))
    again.beat()
    again.allocate(again.masters[SECOND])
    assert again.masters[SECOND].ended[number].outcome is Outcome.LOST
    assert number in again.nodes["n1"].stops


# -- the master ------------------------------------------------------------------------------------


class Successor:
    """A second COBRA master that was told of three containers on two nodes."""

    def __init__(self, tasks: int = 8) -> None:
        size = {"vcores": 2.0, "memory_mb": 4096.0}
        own = asker("cobra", {"container": size, "over_estimate": 0.0})  # two tasks in each
        rng = np.random.default_rng(0)
        self.asker = own
        self.core = ApplicationMaster(SECOND, MasterSettings(planner=""), own, rng)
        (registered,) = sent(self.core.handle(Started(), 0.0), AttemptRegistered)
        assert registered.takes_over
        held = (Container(A, "n1", 0, 7), Container(B, "n1", 0, 7), Container(C, "n2", 0, 8))
        both = job("j", stage("a", tasks), stage("b", 2, parents=["a"]))
        self.effects = self.core.handle(accepted(both, attempt_id=SECOND, held=held), 0.0)

    def tell(self, now: float, *events: object) -> list[Effect]:
        """What it does about events, after each of which its books agree."""
        effects: list[Effect] = []
        for event in events:
            effects += self.core.handle(event, now)  # type: ignore[arg-type]
            self.core.check()
        return effects

    def asked(self, now: float) -> list[ContainersAsked]:
        """What it asks at its next heartbeat."""
        return sent(self.tell(now, TimerFired("heartbeat")), ContainersAsked)


def pool(number: int, *tasks: tuple[int, int, int], first_try: int = 0) -> tuple[ItemAnswer, ...]:
    """A node's answer for a reusable container with these tasks: stage, task, try."""
    whole = ItemAnswer(number, attempt=first_try, granted=(*SIZE, 0.0, 0.0))
    return (whole, *(ItemAnswer(number, s, t, attempt=tried) for s, t, tried in tasks))


N1 = (*pool(A, (0, 0, 0), (0, 1, 1), first_try=4), *pool(B, (0, 2, 0), first_try=1))


def test_a_successor_goes_on_in_the_containers_and_starts_only_what_runs_nowhere() -> None:
    master = Successor()
    asked = {m.node_id: m.containers for m in sent(master.effects, QueryContainers)}
    assert asked == {"n1": (A, B), "n2": (C,)}
    assert not sent(master.tell(0.1, StartAnswered("n1", SECOND, N1)), StartContainers)
    effects = master.tell(0.2, StartAnswered("n2", SECOND, pool(C, first_try=2)))
    started = [
        (item.container_id, item.task, item.attempt, m.boot)
        for m in sent(effects, StartContainers)
        for item in m.items
    ]
    assert sorted(task for _, task, _, _ in started) == [3, 4, 5], "0 to 2 run, A is full"
    assert getattr(master.asker, "desire", 0.0) == 3.0, "as many as there are"
    assert {(number, tried, boot) for number, _, tried, boot in started} == {(B, 1, 7), (C, 2, 8)}
    ends = [TaskEnd(A, 0, t, tried, Outcome.SUCCEEDED, 0, 5.0) for t, tried in ((0, 0), (1, 1))]
    effects = master.tell(5.0, TasksEnded("n1", SECOND, tuple(ends)))
    (order,) = sent(effects, StartContainers)
    assert [(i.container_id, i.task, i.attempt) for i in order.items] == [(A, 6, 4), (A, 7, 4)]


def test_what_ended_before_the_answer_came_is_not_waited_for() -> None:
    master = Successor()
    failed = TaskEnd(A, 0, 0, 0, Outcome.FAILED, 1, 1.0)
    relayed = ContainerEnd(A, Outcome.SUCCEEDED, 0, 0, 1, 1, 1.0)
    master.tell(0.1, TasksEnded("n1", SECOND, (failed,)))
    master.tell(0.1, ContainersGranted(SECOND, 1, ended=(relayed,)))
    master.tell(0.2, StartAnswered("n2", SECOND, pool(C)))
    effects = master.tell(0.3, StartAnswered("n1", SECOND, N1))
    started = {item.task for m in sent(effects, StartContainers) for item in m.items}
    assert 0 in started, "it failed there"
    assert not {1, 2} & started, "one is done, the other runs"


def test_a_container_whose_tasks_another_runs_is_given_back_whole() -> None:
    master = Successor()
    master.tell(0.1, StartAnswered("n1", SECOND, N1))
    twice = pool(C, (0, 2, 0), (0, 3, 0))
    effects = master.tell(0.2, StartAnswered("n2", SECOND, twice))
    assert C not in {i.container_id for m in sent(effects, StartContainers) for i in m.items}
    (request,) = master.asked(1.0)
    assert request.releases == (C,)


def test_a_container_that_is_lost_meanwhile_is_not_in_the_pool() -> None:
    master = Successor()
    master.tell(0.1, StartAnswered("n1", SECOND, N1))
    lost = (ContainerEnd(A, Outcome.LOST, -100), ContainerEnd(C, Outcome.LOST, -100))
    effects = master.tell(0.2, ContainersGranted(SECOND, 1, ended=lost))
    started = [(i.container_id, i.task) for m in sent(effects, StartContainers) for i in m.items]
    assert started == [(B, 0)], "what ran in A begins anew where there is room"


def test_a_node_that_does_not_answer_is_not_waited_for_for_ever() -> None:
    master = Successor()
    master.tell(0.1, StartAnswered("n1", SECOND, N1))
    assert not sent(master.tell(9.0, TimerFired("wake")), StartContainers)
    effects = master.tell(10.1, TimerFired("wake"))
    assert [i.task for m in sent(effects, StartContainers) for i in m.items] == [3]
    (request,) = master.asked(10.2)
    assert C in request.releases


@pytest.mark.parametrize(
    "told",
    [
        (ItemAnswer(C, attempt=0, granted=(1.0, 2.0)),),
        (ItemAnswer(C, attempt=0, granted=(1.0,) * 7), ItemAnswer(C, 0, 3, attempt=0)),
        (ItemAnswer(C, attempt=2**53, granted=(*SIZE, 0.0, 0.0)),),
        pool(C, (0, 3, 0), (0, 3, 1)),
        pool(C, (0, 3, 0), (0, 3, 0)),
    ],
    ids=["short", "long", "no numbers left", "a task twice", "a task doubled"],
)
def test_what_no_node_can_mean_costs_its_container_and_not_the_master(
    told: tuple[ItemAnswer, ...],
) -> None:
    master = Successor()
    master.tell(0.1, StartAnswered("n1", SECOND, N1))
    effects = master.tell(0.2, StartAnswered("n2", SECOND, told))
    (request,) = master.asked(1.0)
    assert request.releases == (C,)
    ends = tuple(TaskEnd(C, 0, 3, tried, Outcome.KILLED, 0, 1.0) for tried in (0, 1))
    gone = ContainersGranted(SECOND, 1, ended=(ContainerEnd(C, Outcome.KILLED),))
    effects += master.tell(1.1, TasksEnded("n2", SECOND, ends), gone)
    begun = [i for m in sent(effects, StartContainers) for i in m.items]
    assert [(i.container_id, i.task, i.attempt) for i in begun] == [(B, 3, 1)]


@pytest.mark.parametrize("use", [(), (1.0,), (1.0,) * 7])
def test_a_use_that_is_no_vector_of_the_cluster_is_not_counted(use: tuple[float, ...]) -> None:
    master = Successor()
    master.tell(0.1, StartAnswered("n1", SECOND, N1))
    master.tell(0.2, StartAnswered("n2", SECOND, pool(C)))
    master.tell(1.0, TasksEnded("n2", SECOND, (), (ContainerUse(C, use),)))
    master.asked(6.0)


def test_a_manager_that_restarts_meanwhile_is_told_of_all_of_them() -> None:
    master = Successor()
    master.tell(0.1, StartAnswered("n1", SECOND, N1))
    resync = ContainersGranted(SECOND, 0, resync=True, epoch=1)
    (registered,) = sent(master.tell(1.0, resync), AttemptRegistered)
    assert {number for number, _ in registered.held} == {A, B, C}


def test_a_node_is_asked_again_for_ends_that_did_not_come_with_its_answer() -> None:
    """The master waited for ever for a task that its node had told the end of, unheard."""
    master = Successor()
    master.tell(0.1, StartAnswered("n1", SECOND, N1))
    master.tell(0.2, StartAnswered("n2", SECOND, pool(C, first_try=2)))
    began = tuple(ItemAnswer(c, 0, t) for c, t in ((B, 3), (C, 4), (C, 5)))
    master.tell(0.3, StartAnswered("n1", SECOND, began))
    master.tell(1.0, ContainersGranted(SECOND, 0, resync=True, epoch=1))
    job_ = job("j", stage("a", 8, 20.0), stage("b", 2, 20.0, parents=["a"]))
    effects = master.tell(1.1, accepted(job_, attempt_id=SECOND, epoch=1))
    assert A in next(m.containers for m in sent(effects, QueryContainers) if m.node_id == "n1")

    def asked_again(now: float) -> set[int]:
        effects = master.tell(now, TimerFired("heartbeat"))
        return {one for m in sent(effects, QueryContainers) for one in m.containers}

    master.tell(1.2, StartAnswered("n1", SECOND, pool(A, (0, 0, 0), first_try=4)))
    assert asked_again(5.0) >= {A}, "task 1 runs there no more"
    end = TaskEnd(A, 0, 1, 1, Outcome.SUCCEEDED, 0, 5.0)
    master.tell(5.1, TasksEnded("n1", SECOND, (end,)))
    master.tell(5.1, StartAnswered("n1", SECOND, pool(A, (0, 0, 0), first_try=4)))
    assert A not in asked_again(9.0)


def test_a_job_ends_with_what_was_taken_over() -> None:
    master = Successor(tasks=3)
    master.tell(0.1, StartAnswered("n1", SECOND, N1))
    master.tell(0.2, StartAnswered("n2", SECOND, pool(C)))
    tries = ((A, 0, 0), (A, 1, 1), (B, 2, 0))
    ends = tuple(TaskEnd(c, 0, t, tried, Outcome.SUCCEEDED, 0, 5.0) for c, t, tried in tries)
    effects = master.tell(5.0, TasksEnded("n1", SECOND, ends))
    begun = [i for m in sent(effects, StartContainers) for i in m.items]
    assert sorted(i.task for i in begun if i.stage == 1) == [0, 1]
    more = tuple(
        TaskEnd(i.container_id, 1, i.task, i.attempt, Outcome.SUCCEEDED, 0, 5.0) for i in begun
    )
    master.core.handle(TasksEnded("n1", SECOND, more), 9.0)
    assert master.core.state is MasterState.FINISHING


# -- the whole cluster in virtual time -------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cobra", "drs"])
def test_a_job_that_loses_its_masters_starts_each_task_once(name: str) -> None:
    for prompt in (True, False):
        ends = {}
        for takeover in (True, False):
            script = tuple(Fault(at, FaultKind.LOSE_MASTER) for at in (12.0, 31.0))
            work = job("j", stage("a", 8, 20.0), stage("b", 4, 20.0, parents=["a"]))
            simulation = Simulation(
                cluster_from_text("3x4vcores,8192memory_mb"),
                [work],
                SimSettings(
                    preset(name),
                    prompt=prompt,
                    checks=True,
                    faults=Faults(script),
                    node=NodeSettings(),
                    manager={"takeover": takeover, "max_attempts": 5},
                ),
            )
            began: list[tuple[int, int]] = []

            def note(now: float, fact: object, began: list[tuple[int, int]] = began) -> None:
                if isinstance(fact, TaskStarted) and fact.stage >= 0:
                    began.append((fact.stage, fact.task))

            simulation.watchers.append(note)
            recorder = simulation.run()
            assert recorder.jobs[0].state == "FINISHED"
            assert (len(began) == len(set(began))) is takeover
            ends[takeover] = recorder.jobs[0].finish_s
        assert ends[True] < ends[False], "idle ones are not in the next master's way either"
