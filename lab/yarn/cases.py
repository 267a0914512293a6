"""Scenarios of the comparison: what goes into both schedulers, as one JSON file each.

`configuration` holds YARN's properties; `nodes` name, mem, vcores, rack and label; `labels` says of
each whether it is exclusive; `applications` id, at (round), user, queue, priority, `am` (the
container of a master, which never ends), until (the round after which it ends) and `asks`: pri,
mem, vcores, count, dur (rounds), `hosts` and `racks` with counts, label, relax, at.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.model.cluster import ClusterSpec, cluster_from_dict
from weft.model.errors import InputError
from weft.policies.presets import PRESETS, Preset
from weft.workloads.yarn_config import read_properties
from weft.workloads.yarn_properties import PREEMPTION

FORCED = {"yarn.scheduler.capacity.schedule-asynchronously.enable": "false"}


@dataclass(frozen=True, slots=True)
class Case:
    """A scenario, with the cluster and the scheduler that its properties say."""

    name: str
    data: Mapping[str, Any]
    cluster: ClusterSpec
    preset: Preset
    matcher: Mapping[str, Any]
    manager: Mapping[str, Any]

    @property
    def rounds(self) -> int:
        """Return how many rounds it has; a node has one heartbeat in each."""
        return int(self.data["rounds"])


def read_case(path: Path) -> Case:
    """Read a scenario's file; raises InputError."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(str(path), f"is no scenario: {error}") from None
    return case_of(path.stem, data)


def case_of(name: str, data: Mapping[str, Any]) -> Case:
    """Return the scenario that a file's data say; raises InputError."""
    given = {key: str(value) for key, value in data["configuration"].items()} | FORCED
    given = {
        key: value.lower() if value in ("True", "False") else value for key, value in given.items()
    }
    nodes = [
        {
            "name": node["name"],
            "rack": node.get("rack", "/default-rack").strip("/"),
            "capacity": {"vcores": node.get("vcores", 1), "memory_mb": node["mem"]},
            "labels": [node["label"]] if node.get("label") else [],
        }
        for node in data["nodes"]
    ]
    if any(key.startswith(PREEMPTION) for key in given):
        given.setdefault("yarn.resourcemanager.scheduler.monitor.enable", "true")
    fair = given.get("yarn.resourcemanager.scheduler.class", "").endswith("FairScheduler")
    if fair:
        # The driver's update is once a round, before the nodes' heartbeats.
        given.setdefault("yarn.scheduler.fair.update-interval-ms", "1000")
    found = read_properties(given, nodes, data.get("allocations", ""))
    if not data.get("places"):
        # The queues of such a scenario are those of its applications.
        found.queues.pop("placement", None)
    shared = [label for label, exclusive in data.get("labels", {}).items() if not exclusive]
    matcher = dict(found.matcher)
    if shared and found.scheduler == "yarn":
        matcher["shared_labels"] = ",".join(shared)
    cluster = cluster_from_dict(found.cluster(), name)
    return Case(name, data, cluster, PRESETS[found.scheduler], matcher, found.manager)
