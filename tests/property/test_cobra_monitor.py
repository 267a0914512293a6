"""COBRA's monitor: a node tells its masters what each reusable container uses, idle ones too."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from nm.core import HEARTBEAT, NodeManager
from nm.settings import Mode, NodeSettings
from weft.model.ids import attempt_id, container_id
from weft.model.resources import Kind, ResourceType, ResourceTypes, Vector
from weft.protocol.effects import ContainersMeasured, ProcessEnded, Send, Started, TimerFired
from weft.protocol.messages import (
    NodeAccepted,
    NodeHeartbeated,
    Outcome,
    StartContainers,
    TaskLaunch,
    TasksEnded,
)

TYPES = ResourceTypes(
    (ResourceType("vcores", Kind.DIVISIBLE), ResourceType("memory_mb", Kind.RIGID))
)
ATTEMPT = attempt_id(1, 1)
CONTAINER = container_id(ATTEMPT, 2)
GRANTED = (2.0, 4096.0)


class Node:
    """A node that a master holds one reusable container on."""

    def __init__(self, mode: Mode) -> None:
        rng = np.random.default_rng(0)
        capacity = {"vcores": 4.0, "memory_mb": 8192.0}
        self.core = NodeManager("n1", "", capacity, "r", (), NodeSettings(mode=mode), rng)
        self.core.handle(Started(), 0.0)
        self.core.handle(NodeAccepted("n1", TYPES, 1.0, True, 0), 0.0)

    def run(self, task: int, demand: Vector, now: float, duration_s: float = 2.0) -> None:
        launch = TaskLaunch(
            CONTAINER, 0, task, 0, duration_s, demand, reusable=True, granted=GRANTED
        )
        self.core.handle(StartContainers(ATTEMPT, "n1", (launch,)), now)

    def told(self, now: float) -> Vector:
        """What a heartbeat tells the master; the manager hears the same."""
        effects = self.core.handle(TimerFired(HEARTBEAT), now)
        messages = [effect.message for effect in effects if isinstance(effect, Send)]
        (to_master,) = uses(messages, TasksEnded)
        (to_manager,) = uses(messages, NodeHeartbeated)
        assert to_master == to_manager
        return to_master


def uses(messages: Sequence[Any], kind: type[Any]) -> list[Vector]:
    found = [use for m in messages if isinstance(m, kind) for use in m.container_use]
    assert {use.container_id for use in found} == {CONTAINER}
    return [use.use for use in found]


def test_an_emulated_container_uses_what_its_tasks_get() -> None:
    node = Node(Mode.EMULATED)
    node.run(0, (1.0, 1000.0), 0.0)
    node.run(1, (1.0, 500.0), 0.0, duration_s=0.5)
    assert node.told(1.0) == pytest.approx((1.5, 1250.0))
    assert node.told(2.0) == pytest.approx((1.0, 1000.0))
    assert node.told(3.0) == (0.0, 0.0), "it idles"
    node.run(2, (2.0, 100.0), 3.5)
    assert node.told(4.0) == pytest.approx((1.0, 50.0))


def test_contention_is_seen() -> None:
    """Twice as many cores wanted as there are: everybody uses half of what it wants."""
    node = Node(Mode.EMULATED)
    node.run(0, (8.0, 1000.0), 0.0, duration_s=10.0)
    assert node.told(1.0)[0] == pytest.approx(4.0)


def test_a_real_container_without_a_process_uses_nothing() -> None:
    """Nobody measures it any more, and what it used last must not count on for ever."""
    node = Node(Mode.PROCESS)
    node.run(0, (1.0, 1000.0), 0.0)
    node.core.handle(ContainersMeasured(((CONTAINER, (0.7, 300.0)),)), 0.9)
    assert node.told(1.0) == (0.7, 300.0)
    ended = ProcessEnded(CONTAINER, Outcome.SUCCEEDED, 0, stage=0, task=0)
    node.core.handle(ended, 1.5)
    assert node.told(2.0) == (0.0, 0.0)
    node.run(1, (1.0, 1000.0), 2.5)
    node.core.handle(ContainersMeasured(((CONTAINER, (0.4, 200.0)),)), 2.9)
    assert node.told(3.0) == (0.4, 200.0)
