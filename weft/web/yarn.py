"""Reports as YARN's REST API names their fields: pure, from `weft.protocol.requests` to plain data.

Field names and meanings after Hadoop's ResourceManagerRest and NodeManagerRest. What YARN knows
and Weft does not have (reservations, HA) is there with its neutral value.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from weft.client.api import ENDED
from weft.model.ids import (
    app_of_attempt,
    attempt_of_container,
    container_id,
    format_app,
    format_attempt,
    format_container,
    number_of_attempt,
)
from weft.model.job import Job
from weft.protocol.messages import TASK_FAULTS
from weft.protocol.requests import (
    ApplicationReport,
    ClusterMetrics,
    ContainerReport,
    ManagerReport,
    NodeReport,
)
from weft.runtime import expiries
from weft.web.source import Source

VERSION = version("weft-rm")
BUILD = f"weft {VERSION}"
# This is the version of the interface, not of any code here.
HADOOP_VERSION = "3.3.6"
TYPE = "WEFT"
APP_STATES = (
    "NEW",
    "NEW_SAVING",
    "SUBMITTED",
    "ACCEPTED",
    "RUNNING",
    "FINISHED",
    "FAILED",
    "KILLED",
)
ANY_NUMBER = 2**31 - 1
FINAL_STATES = ("UNDEFINED", "SUCCEEDED", "FAILED", "KILLED")
NODE_STATES = (
    "NEW",
    "RUNNING",
    "UNHEALTHY",
    "DECOMMISSIONED",
    "LOST",
    "REBOOTED",
    "DECOMMISSIONING",
    "SHUTDOWN",
)
_FAULTS = tuple(outcome.name for outcome in TASK_FAULTS)
Data = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Face:
    """What translations need besides the reports: the clock, and this server's own address.

    `base` is http://host:port.
    """

    source: Source
    base: str

    @property
    def host(self) -> str:
        """host:port."""
        return self.base.partition("://")[2]


def memory(amounts: Mapping[str, float]) -> int:
    """Return MB of memory."""
    return round(amounts.get("memory_mb", 0.0))


def cores(amounts: Mapping[str, float]) -> int:
    """Return whole virtual cores: YARN knows no parts of one."""
    return round(amounts.get("vcores", 0.0))


def resource(amounts: Mapping[str, float]) -> Data:
    """Return a resource object; other resources by YARN's `resourceInformations`."""
    units = {"memory_mb": "Mi"}
    listed = [
        {
            "name": "memory-mb" if name == "memory_mb" else name,
            "resourceType": "COUNTABLE",
            "units": units.get(name, ""),
            "value": round(amount),
            "minimumAllocation": 0,
            "maximumAllocation": 2**63 - 1,
        }
        for name, amount in amounts.items()
    ]
    return {
        "memory": memory(amounts),
        "vCores": cores(amounts),
        "resourceInformations": {"resourceInformation": listed},
    }


def text_of(amounts: Mapping[str, float]) -> str:
    """Return `<memory:1024, vCores:1>`."""
    return f"<memory:{memory(amounts)}, vCores:{cores(amounts)}>"


# YARN's word for how a manager that answers stands to others; a standby that was asked names one
HA_STATES = {"SUSPENDED": "STANDBY"}


def cluster_info(face: Face, metrics: ClusterMetrics, manager: ManagerReport) -> Data:
    """Return the `clusterInfo` object of the manager that leads, whoever was asked for it."""
    shared = manager.standing != "ALONE"
    connection = "CONNECTED" if manager.standing != "SUSPENDED" else "DISCONNECTED"
    return {
        "id": metrics.cluster_ts,
        "startedOn": face.source.unix_ms(metrics.started_s) or metrics.cluster_ts,
        "state": "STARTED",
        "haState": HA_STATES.get(manager.standing, "ACTIVE"),
        "rmStateStoreName": manager.store if shared else "weft.journal",
        "resourceManagerVersion": VERSION,
        "resourceManagerBuildVersion": BUILD,
        "resourceManagerVersionBuiltOn": "",
        "hadoopVersion": HADOOP_VERSION,
        "hadoopBuildVersion": BUILD,
        "hadoopVersionBuiltOn": "",
        "haZooKeeperConnectionState": (
            connection if shared else "ResourceManager HA is not enabled."
        ),
    }


def cluster_metrics(metrics: ClusterMetrics) -> Data:
    """Return the `clusterMetrics` object."""
    apps, nodes = metrics.apps, metrics.nodes
    total, held = metrics.capacity, metrics.allocated
    free = {name: max(0.0, amount - held.get(name, 0.0)) for name, amount in total.items()}
    return {
        "appsSubmitted": sum(apps.values()),
        "appsCompleted": apps.get("FINISHED", 0),
        "appsPending": sum(apps.get(s, 0) for s in ("NEW", "SUBMITTED", "ACCEPTED")),
        "appsRunning": apps.get("RUNNING", 0),
        "appsFailed": apps.get("FAILED", 0),
        "appsKilled": apps.get("KILLED", 0),
        "reservedMB": 0,
        "availableMB": memory(free),
        "allocatedMB": memory(held),
        "totalMB": memory(total),
        "reservedVirtualCores": 0,
        "availableVirtualCores": cores(free),
        "allocatedVirtualCores": cores(held),
        "totalVirtualCores": cores(total),
        "containersAllocated": metrics.containers_running,
        "containersReserved": 0,
        "containersPending": metrics.containers_pending,
        "totalNodes": sum(nodes.values()),
        "activeNodes": nodes.get("RUNNING", 0),
        "lostNodes": nodes.get("LOST", 0),
        "unhealthyNodes": nodes.get("UNHEALTHY", 0),
        "decommissioningNodes": nodes.get("DECOMMISSIONING", 0),
        "decommissionedNodes": nodes.get("DECOMMISSIONED", 0),
        "rebootedNodes": nodes.get("REBOOTED", 0),
        "shutdownNodes": nodes.get("SHUTDOWN", 0),
        "utilizedMB": memory(metrics.use),
        "utilizedVirtualCores": cores(metrics.use),
        "utilizedMBPercent": _part(memory(metrics.use), memory(total)),
        "utilizedVirtualCoresPercent": _part(cores(metrics.use), cores(total)),
        "totalUsedResourcesAcrossPartition": resource(held),
        "totalClusterResourcesAcrossPartition": resource(total),
        "totalReservedResourcesAcrossPartition": resource(dict.fromkeys(total, 0.0)),
        "totalAllocatedContainersAcrossPartition": metrics.containers_running,
        "crossPartitionMetricsAvailable": True,
        # Events are handled one by one as they come.
        "rmEventQueueSize": 0,
        "schedulerEventQueueSize": 0,
    }


def _part(amount: int, total: int) -> int:
    """Return a whole percentage."""
    return round(100 * amount / total) if total else 0


def node_key(report: NodeReport) -> str:
    """Return YARN's node id: the host's name and its service's port."""
    return f"{report.node_id}:{report.address.rpartition(':')[2] or 0}"


def node(face: Face, report: NodeReport) -> Data:
    """Return a `node` object."""
    healthy = report.state in ("RUNNING", "DECOMMISSIONING")
    free = {n: max(0.0, a - report.allocated.get(n, 0.0)) for n, a in report.capacity.items()}
    data: Data = {
        "rack": report.rack if report.rack.startswith("/") else f"/{report.rack}",
        "state": report.state,
        "id": node_key(report),
        "nodeHostName": report.node_id,
        "nodeHTTPAddress": f"{face.host}/node/{report.node_id}",
        "lastHealthUpdate": face.source.unix_ms(report.last_heartbeat_s),
        "version": VERSION,
        "healthStatus": "Healthy" if healthy else "Unhealthy",
        "healthReport": report.health_report or ("" if healthy else f"the node is {report.state}"),
        "numContainers": report.containers,
        "usedMemoryMB": memory(report.allocated),
        "availMemoryMB": memory(free),
        "usedVirtualCores": cores(report.allocated),
        "availableVirtualCores": cores(free),
        "memUtilization": float(_part(memory(report.use), memory(report.capacity))),
        "cpuUtilization": float(_part(cores(report.use), cores(report.capacity))),
        # There are no opportunistic containers.
        "numRunningOpportContainers": 0,
        "usedMemoryOpportGB": 0,
        "usedVirtualCoresOpport": 0,
        "numQueuedContainers": 0,
        "allocationTags": {},
        "nodeAttributesInfo": {},
        "totalResource": resource(report.capacity),
        "usedResource": resource(report.allocated),
        "availableResource": resource(free),
        "resourceUtilization": {
            "nodePhysicalMemoryMB": memory(report.use),
            "nodeCPUUsage": round(report.use.get("vcores", 0.0), 3),
        },
    }
    if report.labels:
        data["nodeLabels"] = list(report.labels)
    return data


def app(face: Face, report: ApplicationReport, now_s: float) -> Data:
    """Return an `app` object; what it held over time is counted in seconds of the wall clock."""
    source, number = face.source, format_app(report.cluster_ts, report.app_id)
    ended = report.state in ENDED
    end_s = report.finished_s if ended else now_s
    begun_s = report.started_s or report.submitted_s
    master = report.attempt_id
    logs = ""
    if master and report.master_node:
        first = format_container(report.cluster_ts, container_id(master, 1))
        logs = f"{face.base}/node/{report.master_node}/containerlogs/{first}/{report.user or '-'}"
    return {
        "id": number,
        "user": report.user,
        "name": report.name,
        "queue": report.queue,
        "state": report.state,
        "finalStatus": report.final_status,
        "progress": round(100.0 * report.progress, 3),
        "trackingUI": "History" if ended else "ApplicationMaster",
        "trackingUrl": f"{face.base}/cluster/app/{number}",
        "diagnostics": report.diagnostics,
        "clusterId": report.cluster_ts,
        "applicationType": TYPE,
        "applicationTags": "",
        "priority": report.priority,
        "startedTime": source.unix_ms(report.submitted_s),
        "launchTime": source.unix_ms(report.started_s),
        "finishedTime": source.unix_ms(report.finished_s) if ended else 0,
        "elapsedTime": source.wall_ms(end_s - report.submitted_s) if begun_s else 0,
        "amContainerLogs": logs,
        "amHostHttpAddress": f"{face.host}/node/{report.master_node}" if report.master_node else "",
        "allocatedMB": memory(report.allocated),
        "allocatedVCores": cores(report.allocated),
        "reservedMB": 0,
        "reservedVCores": 0,
        "runningContainers": report.running_containers,
        "memorySeconds": round(report.held_s.get("memory_mb", 0.0) / source.time_scale),
        "vcoreSeconds": round(report.held_s.get("vcores", 0.0) / source.time_scale),
        "resourceSecondsMap": {
            "entry": [
                {
                    "key": "memory-mb" if name == "memory_mb" else name,
                    "value": round(amount_s / source.time_scale),
                }
                for name, amount_s in report.held_s.items()
            ]
        },
        "preemptedResourceMB": memory(report.preempted),
        "preemptedResourceVCores": cores(report.preempted),
        "numNonAMContainerPreempted": report.preempted_containers,
        "numAMContainerPreempted": 0,
        "logAggregationStatus": "DISABLED",
        "unmanagedApplication": False,
        "applicationPriority": report.priority,
        "appNodeLabelExpression": "",
        "amNodeLabelExpression": "",
        "timeouts": {"timeout": [timeout(face, report)]},
    }


def timeout(face: Face, report: ApplicationReport) -> Data:
    """Return a `timeout` object: when an application is killed, done or not."""
    at_ms = face.source.unix_ms(report.expires_s) if report.expires_s else None
    expires, left_s = expiries.told(at_ms)
    return {"type": "LIFETIME", "expiryTime": expires, "remainingTimeInSeconds": left_s}


def leaf(path: str) -> str:
    """Return a queue's own name: leaf queues are unique by it."""
    return path.rpartition(".")[2]


def attempts(
    face: Face, report: ApplicationReport, containers: Sequence[ContainerReport]
) -> list[Data]:
    """Return `appAttempt` objects, the first first; only the newest's place is known for sure."""
    masters = {attempt_of_container(c.container_id): c for c in containers if not c.stage}
    found = []
    for number in range(1, number_of_attempt(report.attempt_id) + 1 if report.attempt_id else 1):
        attempt = report.attempt_id - number_of_attempt(report.attempt_id) + number
        newest = attempt == report.attempt_id
        master = masters.get(attempt)
        where = master.node_id if master else report.master_node if newest else ""
        first = master.container_id if master else container_id(attempt, 1)
        text = format_container(report.cluster_ts, first)
        started = master.started_s if master else report.started_s if newest else 0.0
        finished = master.finished_s if master else report.finished_s
        state = _attempt_state(report) if newest else "FAILED"
        logs = f"{face.base}/node/{where}/containerlogs/{text}/{report.user or '-'}"
        found.append(
            {
                "id": number,
                "appAttemptId": format_attempt(report.cluster_ts, attempt),
                "startTime": face.source.unix_ms(started),
                "finishedTime": face.source.unix_ms(finished) if state != "RUNNING" else 0,
                "containerId": text,
                "amContainerId": text,
                "nodeHttpAddress": f"{face.host}/node/{where}" if where else "",
                "nodeId": where,
                "host": where,
                "rpcPort": -1,
                "logsLink": logs if where else "",
                "trackingUrl": f"{face.base}/cluster/app/"
                f"{format_app(report.cluster_ts, app_of_attempt(attempt))}",
                "diagnosticsInfo": report.diagnostics if newest else "",
                "appAttemptState": state,
                "blacklistedNodes": "",
            }
        )
    return found


def _attempt_state(report: ApplicationReport) -> str:
    return report.state if report.state in ENDED or report.state == "RUNNING" else "LAUNCHED"


def container(
    face: Face, report: ContainerReport, cluster_ts: int, user: str, job: Job, now_s: float
) -> Data:
    """Return a `container` object of an attempt; its size is its stage's demand."""
    source, number = face.source, format_container(cluster_ts, report.container_id)
    known = {stage.name: stage for stage in job.stages}
    stage = known.get(report.stage)
    demand: Mapping[str, float] = {}
    if stage is not None:
        demand = stage.demand_of(report.index) if report.index >= 0 else stage.demand
    end_s = report.finished_s or now_s
    base = f"{face.base}/node/{report.node_id}"
    return {
        "containerId": number,
        "allocatedMB": memory(demand),
        "allocatedVCores": cores(demand),
        "assignedNodeId": report.node_id,
        "priority": 0,
        "startedTime": source.unix_ms(report.started_s),
        "finishedTime": source.unix_ms(report.finished_s),
        "elapsedTime": source.wall_ms(end_s - report.started_s),
        "diagnosticsInfo": _why_ended(report),
        "logUrl": f"{base}/containerlogs/{number}/{user or '-'}",
        "containerExitStatus": exit_status(report),
        "containerState": "COMPLETE" if report.finished_s else "RUNNING",
        "nodeHttpAddress": base,
        "nodeId": report.node_id,
        "allocatedResources": [
            {"key": "memory-mb" if name == "memory_mb" else name, "value": str(round(amount))}
            for name, amount in demand.items()
        ],
    }


def exit_status(report: ContainerReport) -> int:
    """Return YARN's numbers: -1000 not yet, 0 right, -100 the framework's; else the command's."""
    if not report.finished_s:
        return -1000
    if report.state == "SUCCEEDED":
        return 0
    return report.exit_code or 1 if report.state in _FAULTS else -100


def _why_ended(report: ContainerReport) -> str:
    if not report.finished_s or report.state == "SUCCEEDED":
        return ""
    return report.message or report.state
