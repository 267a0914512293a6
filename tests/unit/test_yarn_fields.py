"""The fields of YARN 3.5's REST answers (recorded from a real Resource Manager), one by one."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from weft.protocol.requests import ApplicationReport, ClusterMetrics, NodeReport, QueueReport
from weft.web import yarn, yarn_queues

REAL = json.loads(Path(__file__).with_name("yarn_fields.json").read_text())
SIZE = {"memory_mb": 1024.0, "vcores": 1.0}
SOURCE = SimpleNamespace(time_scale=1.0, unix_ms=int, wall_ms=int)
FACE: Any = SimpleNamespace(source=SOURCE, base="http://web", host="web")
# What is not told, by object; docs/web.md says why.
LEFT_OUT = {
    "clusterMetrics": {
        "containerAssignedPerSecond",
        "pendingMB",
        "pendingVirtualCores",
        "rmSchedulerBusyPercent",
    },
    "node": set(),
    "app": {
        "clusterUsagePercentage",
        "masterNodeId",
        "preemptedMemorySeconds",
        "preemptedVcoreSeconds",
        "queueUsagePercentage",
        "resourceInfo",
    },
    "leaf queue": {
        "AMResourceLimit",
        "configuredMaxAMResourceLimit",
        "defaultApplicationLifetime",
        "defaultPriority",
        "intraQueuePreemptionDisabled",
        "leafQueueTemplate",
        "maxApplicationLifetime",
        "maxEffectiveCapacity",
        "maxParallelApps",
        "maximumAllocation",
        "minEffectiveCapacity",
        "orderingPolicyInfo",
        "preemptionDisabled",
        "queueAcls",
        "queuePriority",
        "resources",
        "usedAMResource",
        "userAMResourceLimit",
    },
}


def told(kind: str) -> dict[str, Any]:
    """Return Weft's object."""
    if kind == "clusterMetrics":
        return yarn.cluster_metrics(ClusterMetrics("yarn", 0, 1, {}, {}, SIZE, SIZE, 1, 0))
    if kind == "node":
        found = NodeReport("n1", "h:1", "r", (), "RUNNING", SIZE, SIZE, SIZE, 1, 0.0)
        return yarn.node(FACE, found)
    if kind == "app":
        times = (0.0, 0.0, 0.0)
        state = ("RUNNING", "UNDEFINED", 0.5, 0, "n1", *times, 1, 0, 1, 0)
        return yarn.app(FACE, ApplicationReport(1, "a", "u", "root.q", 0, *state, SIZE), 1.0)
    leaf = QueueReport("root.q", 1.0, 1.0, 0.5, "RUNNING", 1, 0, SIZE, 0)
    root = QueueReport("root", 1.0, 1.0, 0.5, "RUNNING", 1, 0, SIZE, 0, children=(leaf,))
    queue: dict[str, Any] = yarn_queues.scheduler(root, "yarn", [])["queues"]["queue"][0]
    return queue


@pytest.mark.parametrize("kind", REAL)
def test_every_field_of_yarns_is_told_or_known_to_be_left_out(kind: str) -> None:
    assert set(REAL[kind]) - told(kind).keys() == LEFT_OUT[kind]
