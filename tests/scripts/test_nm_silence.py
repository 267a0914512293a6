"""When a node's heartbeat says nothing, so that it may be left out."""

from dataclasses import replace

import numpy as np

from nm.core import NodeManager
from nm.settings import Mode, NodeSettings
from testkit.builders import TWO_TYPES, sent
from weft.model.ids import container_id
from weft.protocol.effects import ContainersMeasured, NodeExamined, SetTimer, Started, TimerFired
from weft.protocol.messages import (
    NodeAccepted,
    NodeAnswered,
    NodeHeartbeated,
    NodeRegistered,
    StartContainers,
    TaskLaunch,
)

ILL = "ERROR: the disk is full"
ATTEMPT = 1 << 24 | 1
ACCEPTED = NodeAccepted("n1", TWO_TYPES, 1.0, False, 0, 1)


def running(**settings: object) -> NodeManager:
    node = NodeManager(
        "n1",
        "",
        {"vcores": 4.0, "memory_mb": 1024.0},
        "r1",
        (),
        NodeSettings(**settings),
        np.random.default_rng(0),
    )
    node.handle(Started(), 0.0)
    node.handle(ACCEPTED, 0.0)
    assert node.silent
    return node


def beat(node: NodeManager, now: float) -> NodeHeartbeated:
    (told,) = sent(node.handle(TimerFired("heartbeat"), now), NodeHeartbeated)
    return told


def answer(node: NodeManager, told: NodeHeartbeated, now: float) -> None:
    node.handle(NodeAnswered("n1", 1, acks=(told.request_id,), life=1), now)


def test_it_says_how_its_host_is_until_the_manager_has_heard_it() -> None:
    node = running()
    for health in (ILL, ""):
        node.handle(NodeExamined(health), 1.0)
        assert beat(node, 2.0).unhealthy == health
        assert not node.silent, "that report may be lost"
        told = beat(node, 3.0)
        assert told.unhealthy == health
        answer(node, told, 3.5)
        assert node.silent


def test_whatever_was_said_in_between_the_manager_knows_the_last() -> None:
    node = running()
    node.handle(NodeExamined(ILL), 1.0)
    ill = beat(node, 2.0)
    node.handle(NodeExamined(""), 2.5)
    assert not node.silent, "that it was ill may be all that the manager hears"
    well = beat(node, 3.0)
    answer(node, ill, 3.1)
    assert not node.silent
    answer(node, well, 3.2)
    assert node.silent


def test_of_a_registration_that_was_repeated_any_copy_may_count() -> None:
    node = running()
    node.handle(NodeAnswered("n1", 0, resync=True, life=1), 1.0)
    node.handle(NodeExamined(ILL), 2.0)
    (again,) = sent(node.handle(TimerFired("register"), 3.0), NodeRegistered)
    assert again.unhealthy == ILL
    node.handle(replace(ACCEPTED, request_id=again.request_id), 4.0)
    assert not node.silent
    answer(node, beat(node, 5.0), 5.5)
    assert node.silent


def test_it_takes_over_an_interval_before_it_falls_silent() -> None:
    node = running()
    beat(node, 1.0)
    (again,) = sent(node.handle(NodeAnswered("n1", 0, resync=True, life=2), 1.5), NodeRegistered)
    accepted = replace(ACCEPTED, heartbeat_s=0.2, life=2, request_id=again.request_id)
    node.handle(accepted, 1.6)
    assert not node.silent, "its timer has the interval of before, which may be too long"
    effects = node.handle(TimerFired("heartbeat"), 2.0)
    assert [e.delay_s for e in effects if isinstance(e, SetTimer)] == [0.2]
    assert node.silent


def test_what_processes_use_is_said_with_every_heartbeat() -> None:
    """By it the manager finds those that nobody knows of."""
    node = running(mode=Mode.PROCESS)
    container = container_id(ATTEMPT, 2)
    item = TaskLaunch(container, 0, 1, 0, 9.0, (1.0, 100.0))
    node.handle(StartContainers(ATTEMPT, "n1", (item,)), 1.0)
    node.handle(ContainersMeasured(((container, (1.0, 50.0)),)), 2.0)
    for now in (3.0, 4.0):
        assert beat(node, now).container_use
        assert not node.silent, "the same again, but of a container that may be unknown by now"
