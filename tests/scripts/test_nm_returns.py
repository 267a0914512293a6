"""What a node owes reaches a manager that takes it in again at once, not when it is said again."""

import numpy as np
import pytest

from nm.core import NodeManager
from nm.settings import NodeSettings
from testkit.builders import TWO_TYPES, sent
from weft.model.ids import attempt_id, container_id
from weft.protocol.effects import SetTimer, Started, TimerFired
from weft.protocol.messages import (
    NodeAccepted,
    NodeAnswered,
    NodeHeartbeated,
    NodeRegistered,
    StartContainers,
    TaskLaunch,
)

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
