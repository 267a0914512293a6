"""A run of identical containers on a node is what as many orders are, whatever befalls one."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nm.core import HEARTBEAT, TASKS, NodeManager
from nm.settings import NodeSettings
from weft.model.ids import attempt_id, container_id
from weft.model.resources import DEFAULT_RESOURCE_TYPES
from weft.protocol.effects import NodeSlowed, Note, Send, SetTimer, Started, TimerFired
from weft.protocol.facts import TaskStopped, facts_of
from weft.protocol.messages import (
    NodeAccepted,
    NodeAnswered,
    NodeHeartbeated,
    NodeRegistered,
    QueryContainers,
    StartAnswered,
    StartContainers,
    StopContainers,
    TaskLaunch,
    ends_of,
    launches_of,
)

ATTEMPT = attempt_id(1, 1)
CAPACITY = {"vcores": 4.0, "memory_mb": 1000.0, "disk_mbps": 100.0}
# what fits many times; what contends for the disk or for vcores; what exceeds memory
DEMANDS = ((0.3, 10.0, 0.1, 0.0), (0.7, 10.0, 30.0, 0.0), (1.0, 300.0, 0.0, 0.0))


class Driver:
    """One node, told the same story with runs as they are or taken apart."""

    def __init__(self, *, apart: bool) -> None:
        self.apart = apart
        self.node = NodeManager(
            "n1", "", CAPACITY, "r", (), NodeSettings(), np.random.default_rng(1), boot=7
        )
        self.timers: dict = {}
        self.now = 0.0
        self.facts: list = []
        self.ended: list = []
        self.answers: list = []
        self.runs = 0
        self.tell(Started())
        self.tell(NodeAccepted("n1", DEFAULT_RESOURCE_TYPES, 1.0, False, 0))

    def tell(self, event) -> None:
        for effect in self.node.handle(event, self.now):
            if isinstance(effect, SetTimer):
                self.timers[effect.key] = (
                    inf if effect.delay_s is None else (self.now + effect.delay_s)
                )
            elif isinstance(effect, Note):
                self.facts += [(self.now, fact) for fact in facts_of(effect.fact)]
            elif isinstance(effect, Send):
                self.hear(effect.message)
        self.node.check()

    def hear(self, message) -> None:
        if isinstance(message, NodeHeartbeated):
            self.runs += sum(bool(end.tasks) for end in message.ended)
            self.ended += [(self.now, one) for end in message.ended for one in ends_of(end)]
            self.tell(NodeAnswered("n1", 1, (message.request_id,)))
        elif isinstance(message, NodeRegistered):
            self.answers.append(message.running)
        elif isinstance(message, StartAnswered):
            self.answers += [
                replace(item, container_id=item.container_id + place, count=1, task=0)
                for item in message.items
                for place in range(item.count)
            ]

    def wait(self, seconds: float) -> None:
        until = self.now + seconds
        while (due := min((t, k) for k, t in self.timers.items() if k in (TASKS, HEARTBEAT))) and (
            due[0] <= until
        ):
            self.now = due[0]
            del self.timers[due[1]]
            self.tell(TimerFired(due[1]))
        self.now = until

    def start(self, item: TaskLaunch) -> None:
        self.tell(StartContainers(ATTEMPT, "n1", launches_of(item) if self.apart else (item,)))


def run(first: int, count: int, duration_s: float, demand: int, attempt: int = 0) -> TaskLaunch:
    tasks = tuple(range(first, first + count))
    return TaskLaunch(
        container_id(ATTEMPT, first),
        0,
        first,
        attempt,
        duration_s,
        DEMANDS[demand],
        tasks=tasks if count > 1 else (),
    )


def by_container(facts: list) -> dict:
    found: dict = {}
    for now, fact in facts:
        found.setdefault(getattr(fact, "container", None), []).append((now, fact))
    return found


NUMBER = st.integers(2, 30)
DEED = st.one_of(
    st.tuples(
        st.just("start"),
        NUMBER,
        st.integers(1, 6),
        st.sampled_from([0.0, 0.7, 2.5]),
        st.sampled_from([0, 0, 1, 2]),
    ),
    st.tuples(st.just("stop"), NUMBER),
    st.tuples(st.just("query"), NUMBER),
    st.tuples(st.just("slow"), st.sampled_from([0.5, 1.0])),
    st.tuples(st.just("resync")),
)


def act(driver: Driver, deed: tuple) -> None:
    if deed[0] == "start":
        driver.start(run(*deed[1:]))
    elif deed[0] == "stop":
        driver.tell(StopContainers(ATTEMPT, "n1", (container_id(ATTEMPT, deed[1]),)))
    elif deed[0] == "query":
        driver.tell(QueryContainers(ATTEMPT, "n1", (container_id(ATTEMPT, deed[1]),)))
    elif deed[0] == "slow":
        driver.tell(NodeSlowed(deed[1]))
    else:
        driver.tell(NodeAnswered("n1", 0, resync=True))
        driver.tell(NodeAccepted("n1", DEFAULT_RESOURCE_TYPES, 1.0, False, 0))


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([0.0, 0.3, 1.1]), DEED), max_size=25))
def test_a_run_is_what_as_many_orders_are(story: list) -> None:
    whole, apart = Driver(apart=False), Driver(apart=True)
    for wait_s, deed in [*story, (0.0, ("slow", 1.0))]:
        for driver in (whole, apart):
            driver.wait(wait_s)
            act(driver, deed)
    for driver in (whole, apart):
        driver.wait(100.0)
    # of tasks that take no time, started together, it is told of all that they began before ends
    assert by_container(whole.facts) == by_container(apart.facts)
    assert [now for now, _ in whole.facts] == [now for now, _ in apart.facts]
    assert whole.ended == apart.ended
    assert whole.answers == apart.answers
    assert whole.node.containers == apart.node.containers == ()


def test_a_run_that_ends_whole_is_told_in_one_word() -> None:
    driver = Driver(apart=False)
    driver.start(run(2, 5, 2.0, 0))
    assert len(driver.node.containers) == 5
    driver.start(run(2, 5, 2.0, 0))  # the same order again
    driver.wait(10.0)
    assert driver.runs == 1
    assert [end.task for _, end in driver.ended] == [2, 3, 4, 5, 6]


def test_a_run_that_takes_no_time_ends_whole_and_once() -> None:
    driver = Driver(apart=False)
    for _ in range(2):  # the same order again
        driver.start(run(2, 5, 0.0, 2))
    driver.wait(10.0)
    assert driver.runs == 1
    assert [end.task for _, end in driver.ended] == [2, 3, 4, 5, 6]
    assert [type(fact).__name__ for _, fact in driver.facts if hasattr(fact, "container")] == [
        *["TaskStarted"] * 5,
        *["TaskStopped"] * 5,
    ]


def test_one_that_is_stopped_leaves_the_others_of_its_run() -> None:
    driver = Driver(apart=False)
    driver.start(run(2, 4, 2.0, 0))
    driver.wait(1.0)
    driver.tell(StopContainers(ATTEMPT, "n1", (container_id(ATTEMPT, 3),)))
    driver.wait(10.0)
    stops = [
        (fact.task, fact.outcome.name) for _, fact in driver.facts if isinstance(fact, TaskStopped)
    ]
    assert stops == [(3, "KILLED"), (2, "SUCCEEDED"), (4, "SUCCEEDED"), (5, "SUCCEEDED")]
    assert driver.runs == 0
