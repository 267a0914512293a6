"""The end of a run of containers reaches the manager and the master, whatever crosses it."""

from collections.abc import Callable

import numpy as np
import pytest

from nm.core import HEARTBEAT, REPORT, TASKS, NodeManager
from nm.settings import NodeSettings
from rm.settings import ManagerSettings
from testkit.builders import ask, job, node_registered, sent, stage
from testkit.manager import Rig
from weft.model.ids import attempt_id, container_id
from weft.protocol.effects import Effect, Send, Started, TimerFired
from weft.protocol.messages import (
    ContainerEnd,
    ContainersGranted,
    NodeAnswered,
    Outcome,
    RunningContainer,
    StartContainers,
    TaskLaunch,
    ends_of,
)
from weft.protocol.requests import (
    Explain,
    GetApplication,
    GetMetrics,
    ListApplications,
    ListContainers,
    ListNodes,
    ListQueues,
)


class Pair:
    """A manager and one real node's core; what the node says waits until it is carried."""

    def __init__(self, prompt: bool) -> None:
        self.rig = Rig(settings=ManagerSettings(prompt=prompt))
        self.node = NodeManager(
            "n1",
            "n1:1",
            {"vcores": 8.0, "memory_mb": 8192.0},
            "r",
            (),
            NodeSettings(),
            np.random.default_rng(1),
            boot=5,
        )
        self.said: list = []
        self.to_node(Started())
        self.carry()

    def to_node(self, event: object) -> None:
        for effect in self.node.handle(event, self.rig.now):
            if isinstance(effect, Send) and effect.to == "rm":
                self.said.append(effect.message)
        self.node.check()

    def deliver(self) -> list:
        """The manager hears what was said; its answers."""
        answers: list = []
        while self.said:
            effects = self.rig.tell(self.said.pop(0))
            answers += [e.message for e in effects if isinstance(e, Send) and e.to == "node:n1"]
        return answers

    def carry(self) -> None:
        while self.said:
            for answer in self.deliver():
                self.to_node(answer)

    def beat(self, seconds: float) -> None:
        self.rig.now += seconds
        self.to_node(TimerFired(HEARTBEAT))

    def run_of_three(self) -> int:
        """The first of three containers in which tasks of 5 s began now."""
        app = self.rig.submit(job("j", stage("a", 3, 5.0)))
        self.beat(1.0)
        self.carry()
        self.master = self.rig.register(attempt_id(app, 1))
        self.rig.tell(self.master.asks(ask(total=3)))
        self.beat(1.0)
        self.carry()
        self.rig.tell(self.master.asks())
        first, *others = sorted(self.master.containers)
        assert others == [first + 1, first + 2]
        item = TaskLaunch(
            first, 0, 0, 0, 5.0, (1.0, 1024.0), granted=(1.0, 1024.0), tasks=(0, 1, 2)
        )
        self.to_node(StartContainers(self.master.attempt_id, "n1", (item,), 5))
        return first


def cross(pair: Pair, first: int) -> None:
    """The answer to a report that left just before the end brings the stop just after it."""
    pair.beat(4.9)
    released = pair.rig.tell(pair.master.asks(releases=(first,)))
    answers = sent(released, NodeAnswered) + pair.deliver()  # in prompt pace it is told at once
    pair.rig.now += 0.1
    pair.to_node(TimerFired(TASKS))
    assert any(answer.stop == (first,) for answer in answers)
    for answer in answers:
        pair.to_node(answer)


def lose(pair: Pair, first: int) -> None:
    """The report of the end is lost, and an answer brings the stop."""
    pair.rig.now += 5.0
    released = pair.rig.tell(pair.master.asks(releases=(first,)))
    pair.to_node(TimerFired(TASKS))
    pair.to_node(TimerFired(REPORT))
    pair.to_node(TimerFired(HEARTBEAT))
    assert [len(one.tasks) for said in pair.said for one in said.ended] == [3]
    pair.said.clear()
    for answer in sent(released, NodeAnswered):
        pair.to_node(answer)


def ends(effects: list[Effect]) -> list[ContainerEnd]:
    return [
        one
        for message in sent(effects, ContainersGranted)
        for end in message.ended
        for one in ends_of(end)
    ]


@pytest.mark.parametrize("prompt", [False, True])
@pytest.mark.parametrize("meet", [cross, lose])
def test_a_stop_of_its_first_container_that_meets_the_end_of_a_run_loses_none(
    meet: Callable[[Pair, int], None], prompt: bool
) -> None:
    pair = Pair(prompt)
    first = pair.run_of_three()
    meet(pair, first)
    told: set[int] = set()
    for _ in range(12):
        pair.beat(1.0)
        pair.carry()
        pair.rig.tell(pair.master.asks())
    for message in pair.rig.heard:
        if isinstance(message, ContainersGranted):
            told |= {one.container_id for end in message.ended for one in ends_of(end)}
    numbers = {first, first + 1, first + 2}
    assert not numbers & set(pair.rig.manager.books.holdings)
    assert not pair.node.owes
    assert told == numbers


def test_an_end_told_again_of_its_first_container_does_not_replace_that_of_a_run() -> None:
    """A master that lived through a restart is told of ends that the manager knows nothing of."""
    free = ManagerSettings(prompt=False, master_demand={})
    rig = Rig(settings=free)
    rig.add_node("n1")
    master = rig.start(job("j", stage("a", 3)))
    again = Rig(settings=free, records=rig.records)
    again.now, again.nodes, again.masters = rig.now, rig.nodes, rig.masters
    own = RunningContainer(container_id(master.attempt_id, 1), (0.0, 0.0), ())
    again.tell(node_registered("n1", running=(own,)))
    master = again.register(master.attempt_id)
    again.tell(master.asks(ask(total=3)))
    again.beat()
    again.tell(master.asks())
    first, *others = sorted(master.containers)
    assert others == [first + 1, first + 2]
    run = ContainerEnd(first, Outcome.SUCCEEDED, 0, 0, 0, 0, 1.0, "", (0, 1, 2))
    again.beat("n1", run, ends_of(run)[0])
    told = {one.container_id for one in ends(again.tell(master.asks()))}
    assert told == {first, first + 1, first + 2}


def test_of_a_run_that_no_master_can_have_started_only_what_is_held_ends() -> None:
    rig = Rig(settings=ManagerSettings(prompt=False, master_demand={}))
    rig.add_node("n1")
    master = rig.start(job("j", stage("a", 3)))
    rig.tell(master.asks(ask(total=3)))
    rig.beat()
    rig.tell(master.asks())
    first = min(master.containers)
    strange = ContainerEnd(first, Outcome.SUCCEEDED, 0, 0, 0, 0, 1.0, "", (0, 1, 2, 0, 1))
    unknown = ContainerEnd(99 << 40, Outcome.SUCCEEDED, 0, 0, 0, 0, 1.0, "", (0,) * 1_000)
    rig.beat("n1", unknown)
    assert len(rig.manager.books.holdings.keys() & set(master.containers)) == 3
    rig.beat("n1", strange)
    assert not rig.manager.books.holdings.keys() & set(master.containers)
    told = {one.container_id for one in ends(rig.tell(master.asks()))}
    assert told == set(master.containers)


def test_who_only_looks_takes_no_run_apart() -> None:
    rig = Rig(settings=ManagerSettings(prompt=False, master_demand={}))
    rig.add_node("n1")
    master = rig.start(job("j", stage("a", 3)))
    rig.tell(master.asks(ask(total=3)))
    rig.beat()
    rig.tell(master.asks())
    rig.now += 10.0
    first, *_ = numbers = sorted(master.containers)
    listed = rig.ask_manager(ListContainers(1)).items
    assert [one.container_id for one in listed[1:]] == numbers
    assert {(one.state, one.stage) for one in listed[1:]} == {("ACQUIRED", "a")}
    report = rig.ask_manager(GetApplication(1))
    assert report.held_s["vcores"] == pytest.approx(30.0)
    for request in (ListApplications(), ListNodes(), ListQueues(), GetMetrics(), Explain(1)):
        rig.ask_manager(request)
    whole = rig.manager.books.holdings.peek(first)
    assert whole is not None
    assert whole.count == 3
