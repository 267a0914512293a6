"""What YARN 3.5 answers over REST, and Weft does: the same statuses, errors, names and types.

`yarn_rest.json` was recorded from the real manager by `python -m lab.yarn.wire`. What is otherwise
is listed here, and told in docs/web.md.
"""

import json
from pathlib import Path
from typing import Any

from lab.yarn.wire import differences, kept
from testkit.rest import APP, Ask, over_http
from testkit.web import CLUSTER_TS, FakeClient

RECORDED = json.loads(Path(__file__).with_name("yarn_rest.json").read_text())
NAMES = {
    "{runs}": APP,
    "{failed}": f"application_{CLUSTER_TS}_0008",
    "{killed}": f"application_{CLUSTER_TS}_0009",
    "{attempt}": f"appattempt_{CLUSTER_TS}_0006_000001",
    "{container}": f"container_{CLUSTER_TS}_0006_01_000001",
    "{node}": "n1:8041",
}
SENT = {"/state": {"state": "KILLED"}, "/priority": {"priority": 5}}
# Of queues, nodes and applications alike.
QUEUE = """queueCapacityVectorInfo maxParallelApps weight normalizedWeight configuredMinResource
 configuredMaxResource effectiveMinResource effectiveMaxResource resources minEffectiveCapacity
 maxEffectiveCapacity maximumAllocation queueAcls queuePriority orderingPolicyInfo leafQueueTemplate
 AMResourceUsed userResourceLimit userWeight isActive configuredMaxAMResourceLimit AMResourceLimit
 usedAMResource userAMResourceLimit preemptionDisabled intraQueuePreemptionDisabled defaultPriority
 maxApplicationLifetime defaultApplicationLifetime health"""
LACKS = {
    "pendingMB",
    "pendingVirtualCores",
    "rmSchedulerBusyPercent",
    "containerAssignedPerSecond",
    "masterNodeId",
    "queueUsagePercentage",
    "clusterUsagePercentage",
    "preemptedMemorySeconds",
    "preemptedVcoreSeconds",
    "resourceInfo",
    "nodesBlacklistedBySystem",
    "exportPorts",
    "exposedPorts",
    "nodeVirtualMemoryMB",
    "aggregatedContainersPhysicalMemoryMB",
    "aggregatedContainersVirtualMemoryMB",
    "containersCPUUsage",
    *QUEUE.split(),
}
# These calls are otherwise: YARN 3.5 fails where its documentation promises an answer, wraps a list
# in another name, or has labels' own calls; and a move to no queue is its 503.
OTHERWISE = {
    "/apps/{runs}/appattempts/{attempt}",
    "/apps/{runs}/appattempts/{attempt}/containers",
    "/get-node-labels",
    "/get-node-to-labels",
    "/nowhere",
    "/apps/{runs}/queue PUT",
    "/apps POST",
}
# Here a list, there one object.
RETYPED = {"allocatedResources"}


def asked(row: dict[str, Any], path: str) -> dict[str, Any]:
    """Return what goes with a call."""
    if row["verb"] == "GET":
        return {}
    body = next((data for end, data in SENT.items() if path.endswith(end)), {})
    if "Only 'KILLED'" in str(row.get("error")):
        body = {"state": "RUNNING"}
    return {"json": body}


def test_answers_are_those_of_yarn_but_for_what_is_listed() -> None:
    lacks: set[str] = set()

    async def check(ask: Ask, _: FakeClient) -> None:
        for row in RECORDED:
            short, path = row["path"].removeprefix("/ws/v1/cluster"), row["path"]
            if {short, f"{short} {row['verb']}"} & OTHERWISE:
                continue
            for name, known in NAMES.items():
                path = path.replace(name, known)
            ours = kept(*await ask(path, row["verb"], **asked(row, path)))
            assert (ours["status"], ours.get("error")) == (row["status"], row.get("error")), path
            found = set(differences(row.get("shape"), ours.get("shape")))
            retyped = {one for one in found if one[0] == "~"}
            assert {one.rpartition(".")[2] for one in retyped} <= RETYPED, path
            lacks.update(one.rpartition(".")[2] for one in found if one[0] == "-")

    over_http(check)
    assert lacks == LACKS
