"""An event loop may fire a timer a fraction of a ms early; no end of a task waits for that."""

import numpy as np

from nm.core import TASKS, NodeManager
from nm.settings import NodeSettings
from testkit.builders import noted, timers
from weft.model.ids import attempt_id, container_id
from weft.model.resources import DEFAULT_RESOURCE_TYPES
from weft.protocol.effects import SetTimer, Started, TimerFired
from weft.protocol.facts import TaskStopped
from weft.protocol.messages import NodeAccepted, StartContainers, TaskLaunch

ATTEMPT = attempt_id(1, 1)


def test_a_timer_that_fires_early_is_set_again() -> None:
    capacity = {"vcores": 4.0, "memory_mb": 4096.0}
    rng = np.random.default_rng(0)
    node = NodeManager("n1", "", capacity, "r", (), NodeSettings(), rng)
    node.handle(Started(), 0.0)
    node.handle(NodeAccepted("n1", DEFAULT_RESOURCE_TYPES, 1.0, True, 0), 0.0)
    task = TaskLaunch(container_id(ATTEMPT, 2), 0, 0, 0, 2.0, (1.0, 1024.0, 0.0, 0.0))
    node.handle(StartContainers(ATTEMPT, "n1", (task,)), 0.0)
    early = node.handle(TimerFired(TASKS), 1.9995)
    assert not noted(early, TaskStopped)
    [again] = [timer for timer in timers(early) if timer.key == TASKS]
    assert isinstance(again, SetTimer)
    assert again.delay_s is not None
    assert 0 < again.delay_s < 0.001
    assert noted(node.handle(TimerFired(TASKS), 2.0), TaskStopped)
