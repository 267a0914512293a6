"""What a node owes reaches a manager that takes it in again at once, not when it is said again."""

import numpy as np
import pytest

from nm.core import NodeManager
from nm.settings import NodeSettings
from testkit.builders import TWO_TYPES, sent
from weft.model.ids import attempt_id, container_id
from weft.protocol.effects import SetTimer, Started, TimerFired
from weft.protocol.messages import (
    MasterLaunch,
    NodeAccepted,
    NodeAnswered,
    NodeHeartbeated,
    NodeRegistered,
    StartContainers,
    TaskLaunch,
)
from weft.protocol.record import changed

MASTER = attempt_id(1, 1)
TASK = TaskLaunch(container_id(MASTER, 2), 0, 0, 0, 1.0, (1.0, 1024.0))


@pytest.mark.parametrize("prompt", [True, False])
def test_the_end_of_a_task_that_a_manager_did_not_take_follows_its_acceptance(
    prompt: bool,
) -> None:
    capacity = {"vcores": 4.0, "memory_mb": 8192.0}
    rng = np.random.default_rng(0)
    node = NodeManager("n1", "", capacity, "r1", (), NodeSettings(resend_after_s=30.0), rng)
    node.handle(Started(), 0.0)
    node.handle(NodeAccepted("n1", TWO_TYPES, 1.0, prompt, 0, life=1), 0.0)
    node.handle(StartContainers(MASTER, "n1", (TASK,)), 0.0)
    node.handle(TimerFired("tasks"), 1.0)
    tells = TimerFired("report" if prompt else "heartbeat")
    (beat,) = sent(node.handle(tells, 1.0), NodeHeartbeated)
    assert [end.container_id for end in beat.ended] == [TASK.container_id]
    effects = node.handle(NodeAnswered("n1", 0, resync=True, life=1), 2.0)
    (registered,) = sent(effects, NodeRegistered)
    again = NodeAccepted("n1", TWO_TYPES, 1.0, prompt, 0, life=1, request_id=registered.request_id)
    effects = node.handle(again, 2.0)
    assert (SetTimer(0.0, "report") in effects) is prompt, "in prompt pace nothing waits"
    (beat,) = sent(node.handle(tells, 2.0), NodeHeartbeated)
    assert [end.container_id for end in beat.ended] == [TASK.container_id]


def test_a_node_tells_a_manager_that_began_anew_since_when_each_container_runs() -> None:
    """The same of a master, of a task, and of a reusable container: since its task began."""
    capacity = {"vcores": 4.0, "memory_mb": 8192.0}
    node = NodeManager("n1", "", capacity, "r1", (), NodeSettings(), np.random.default_rng(0))
    node.handle(Started(), 0.0)
    node.handle(NodeAccepted("n1", TWO_TYPES, 1.0, True, 0, life=1), 0.0)
    own = container_id(MASTER, 1)
    node.handle(NodeAnswered("n1", 1, start=(MasterLaunch(own, MASTER, (0.0, 0.0)),), life=1), 3.0)
    long = changed(TASK, duration_s=100.0)
    node.handle(StartContainers(MASTER, "n1", (long,)), 5.0)
    pool = container_id(MASTER, 3)
    first = changed(TASK, container_id=pool, reusable=True)
    node.handle(StartContainers(MASTER, "n1", (first,)), 5.0)
    node.handle(TimerFired("tasks"), 6.0)
    second = changed(first, task=1, duration_s=100.0)
    node.handle(StartContainers(MASTER, "n1", (second,)), 8.0)
    (told,) = sent(node.handle(NodeAnswered("n1", 0, resync=True, life=2), 20.0), NodeRegistered)
    assert {one.container_id: one.started_s for one in told.running} == {
        own: 3.0,
        TASK.container_id: 5.0,
        pool: 8.0,
    }
