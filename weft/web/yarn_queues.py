"""The queues as YARN's REST API tells them: `schedulerInfo`, the root and all below it."""

from collections.abc import Mapping, Sequence

from weft.client.api import ENDED
from weft.protocol.requests import ApplicationReport, QueueReport
from weft.web.yarn import ANY_NUMBER, Data, leaf, resource, text_of

SCHEDULERS = {"fair": "fairScheduler", "fifo": "fifoScheduler"}


def scheduler(root: QueueReport, name: str, apps: Sequence[ApplicationReport]) -> Data:
    """Return the `schedulerInfo` object: the root, and `queues` below all but the leaves."""
    alive: dict[str, list[ApplicationReport]] = {}
    for report in apps:
        if report.state not in ENDED:
            alive.setdefault(report.queue, []).append(report)
    data = _queue(root, None, alive)
    data["type"] = SCHEDULERS.get(name, "capacityScheduler")
    data["schedulerName"] = name
    return data


def _queue(
    report: QueueReport,
    parent: QueueReport | None,
    alive: Mapping[str, Sequence[ApplicationReport]],
) -> Data:
    above = parent.capacity if parent is not None else 1.0
    above_max = parent.max_capacity if parent is not None else 1.0
    own = _percent(report.capacity / above if above else 0.0)
    most = _percent(report.max_capacity / above_max if above_max else 0.0)
    used = _percent(report.used / report.capacity if report.capacity else 0.0)
    share = {
        "capacity": own,
        "usedCapacity": used,
        "maxCapacity": most,
        "absoluteCapacity": _percent(report.capacity),
        "absoluteMaxCapacity": _percent(report.max_capacity),
        "absoluteUsedCapacity": _percent(report.used),
    }
    data: Data = {
        **share,
        "numApplications": report.running_apps + report.pending_apps,
        "usedResources": text_of(report.allocated),
        "queueName": leaf(report.name),
        "queuePath": report.name,
        "state": report.state,
        "resourcesUsed": resource(report.allocated),
        "pendingContainers": report.pending_containers,
        "capacities": {
            "queueCapacitiesByPartition": [
                {
                    "partitionName": "",
                    **share,
                    "maxAMLimitPercentage": _percent(report.max_am_share),
                }
            ]
        },
        "nodeLabels": ["*"],
        "weight": -1.0,
        "normalizedWeight": 0.0,
        "isAbsoluteResource": False,
        "mode": "percentage",
        "queueType": "parent" if report.children else "leaf",
        # Queues are those of the file, or set by an operator.
        "creationMethod": "static",
        "autoCreationEligibility": "off",
        "autoCreateChildQueueEnabled": False,
        "autoQueueTemplateProperties": {},
        "autoQueueParentTemplateProperties": {},
        "autoQueueLeafTemplateProperties": {},
        "hideReservationQueues": False,
        "reservedContainers": 0,
        "deficit": round(report.deficit, 6),
    }
    if report.children:
        data["queues"] = {"queue": [_queue(child, report, alive) for child in report.children]}
        return data
    apps = alive.get(report.name, ())
    return data | {
        "type": "capacitySchedulerLeafQueueInfo",
        "numActiveApplications": report.running_apps,
        "numPendingApplications": report.pending_apps,
        "numContainers": sum(a.running_containers for a in apps),
        "maxApplications": report.max_applications or ANY_NUMBER,
        "maxApplicationsPerUser": report.max_applications or ANY_NUMBER,
        "allocatedContainers": sum(a.running_containers for a in apps),
        "isAutoCreatedLeafQueue": False,
        "userLimit": 100.0,
        "userLimitFactor": 1.0,
        "users": {"user": _users(apps)},
    }


def _users(apps: Sequence[ApplicationReport]) -> list[Data]:
    by_user: dict[str, list[ApplicationReport]] = {}
    for report in apps:
        by_user.setdefault(report.user, []).append(report)
    found = []
    for name, own in by_user.items():
        held: dict[str, float] = {}
        for report in own:
            for key, amount in report.allocated.items():
                held[key] = held.get(key, 0.0) + amount
        running = sum(report.state == "RUNNING" for report in own)
        found.append(
            {
                "username": name,
                "resourcesUsed": resource(held),
                "numActiveApplications": running,
                "numPendingApplications": len(own) - running,
            }
        )
    return found


def _percent(share: float) -> float:
    return round(100.0 * share, 4)
