"""Configurations of real YARN clusters: queues, nodes and settings, with what has no counterpart.

Read are `capacity-scheduler.xml`, `fair-scheduler.xml`, `yarn-site.xml`, `sls-runner.xml` and node
lists of the Scheduler Load Simulator, and answers of YARN's REST call `/ws/v1/cluster/nodes`.
Meanings and defaults are those of Hadoop 3.4 (CapacityScheduler.html, yarn-default.xml).
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from weft.model.errors import InputError
from weft.workloads.yarn_queues import (
    CAPACITY,
    QUEUE_KEYS,
    capacity_queues,
    fair_queues,
    read_number,
)

BYTES_MAX = 64 * 2**20
_PREEMPTION = "yarn.resourcemanager.monitor.capacity.preemption."
_VARIABLE = re.compile(r"\$\{([^}$\s]+)\}")
_REPORTED = {
    "vcores": ("availableVirtualCores", "usedVirtualCores"),
    "memory_mb": ("availMemoryMB", "usedMemoryMB"),
}
_YARN_NODE = (
    "yarn.nodemanager.resource.cpu-vcores",
    "yarn.nodemanager.resource.memory-mb",
    8.0,
    8192.0,
)
_SLS_NODE = ("yarn.sls.nm.vcores", "yarn.sls.nm.memory.mb", 10.0, 10240.0)
_SCHEDULERS = {"CapacityScheduler": "capacity", "FairScheduler": "fair", "FifoScheduler": "fifo"}

# property -> (field of the manager's settings, what one of its units is)
_SETTINGS: Mapping[str, tuple[str, float]] = {
    "yarn.resourcemanager.am.max-attempts": ("max_attempts", 1),
    "yarn.resourcemanager.nodemanagers.heartbeat-interval-ms": ("heartbeat_s", 1e-3),
    "yarn.sls.nm.heartbeat.interval.ms": ("heartbeat_s", 1e-3),
    "yarn.sls.am.heartbeat.interval.ms": ("master_heartbeat_s", 1e-3),
    "yarn.nm.liveness-monitor.expiry-interval-ms": ("node_expiry_s", 1e-3),
    "yarn.am.liveness-monitor.expiry-interval-ms": ("master_expiry_s", 1e-3),
    "yarn.resourcemanager.max-completed-applications": ("completed_apps_max", 1),
    CAPACITY + "maximum-am-resource-percent": ("master_share_max", 1),
    CAPACITY + "maximum-applications": ("queue_apps_max", 1),
    _PREEMPTION + "monitoring_interval": ("preemption_interval_s", 1e-3),
    _PREEMPTION + "max_wait_before_kill": ("preemption_grace_s", 1e-3),
    _PREEMPTION + "total_preemption_per_round": ("preemption_round_max", 1),
    _PREEMPTION + "max_ignored_over_capacity": ("preemption_dead_zone", 1),
    _PREEMPTION + "natural_termination_factor": ("preemption_natural", 1),
}
_SWITCHES: Mapping[str, str] = {
    "yarn.resourcemanager.scheduler.monitor.enable": "preemption",
    "yarn.scheduler.fair.preemption": "preemption",
    _PREEMPTION + "intra-queue-preemption.enabled": "preemption_intra_queue",
}
_MATCHER: Mapping[str, str] = {
    CAPACITY + "node-locality-delay": "node_locality_delay",
    CAPACITY + "rack-locality-additional-delay": "rack_locality_delay",
}
# what says the same here, or says nothing about scheduling
_SAME = re.compile(
    r"\.state$|ordering-policy$|assignmultiple$|resource-calculator$|(address|bind-host|hostname)(\.|$)"
    r"|\.use_ip$|\.queues$|per-node-heartbeat\."
)


@dataclass(slots=True)
class YarnConfig:
    """What was read: a cluster file's data, settings, and what Weft has no counterpart for."""

    queues: dict[str, Any] = field(default_factory=dict)  # as in a cluster file, root's children
    nodes: list[dict[str, Any]] = field(default_factory=list)
    scheduler: str = ""
    manager: dict[str, Any] = field(default_factory=dict)  # fields of the manager's settings
    matcher: dict[str, Any] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)  # property -> why

    def cluster(self) -> dict[str, Any]:
        """Return the data of a cluster file; raises InputError where no node is known."""
        if not self.nodes:
            raise InputError(
                "nodes", "no file names nodes: give a node list, or their number with --nodes"
            )
        made: dict[str, Any] = {"nodes": self.nodes}
        if self.queues:
            made["queues"] = {"root": self.queues}
        return made


def read_yarn(sources: Sequence[Path], nodes: int = 0) -> YarnConfig:
    """Read YARN's files together; `nodes` of `yarn-site.xml`'s size where none are listed.

    Raises InputError for a file that is none of YARN's, and for values that YARN refuses too.
    """
    found, properties = YarnConfig(), dict[str, str]()
    fair: list[tuple[Path, ElementTree.Element]] = []
    lists: list[tuple[Path, str]] = []
    for path in sources:
        text = _text(path)
        if text.lstrip().startswith(("{", "[")):
            lists.append((path, text))
            continue
        root = _xml(path, text)
        if root.tag == "configuration":
            properties |= _properties(path, root)
        elif root.tag == "allocations":
            fair.append((path, root))
        else:
            raise InputError(str(path), f"is no file of YARN's: it holds a <{root.tag}>")
    for path, text in lists:  # last: their nodes may leave their size to sls-runner.xml
        _read_nodes(path, text, found, _node_of(properties, *_SLS_NODE))
    if nodes and not found.nodes:
        found.nodes = [{"count": nodes, "capacity": _node_of(properties, *_YARN_NODE)}]
    _read_settings(properties, found)
    total = _total(found.nodes)
    if any(name.startswith(CAPACITY + "root.") for name in properties):
        found.queues = capacity_queues(properties, found.left_out, total)
    for path, root in fair:
        if found.queues:
            why = "the queues of capacity-scheduler.xml were taken"
            found.left_out[str(path)] = why
        else:
            found.queues = fair_queues(root, found.left_out, total, "root")
            found.scheduler = found.scheduler or "fair"
    return found


# -- files -----------------------------------------------------------------------------------------


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > BYTES_MAX:
            raise InputError(str(path), f"a configuration has at most {BYTES_MAX} bytes")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(str(path), error.strerror or "cannot be read") from None
    except UnicodeDecodeError:
        raise InputError(str(path), "is not UTF-8 text") from None


def _xml(path: Path, text: str) -> ElementTree.Element:
    if "<!ENTITY" in text:
        raise InputError(str(path), "declares entities, which are not expanded here")
    try:
        return ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise InputError(str(path), f"is not valid XML: {error}") from None


def _properties(path: Path, root: ElementTree.Element) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, item in enumerate(root):
        if item.tag.endswith("include"):
            raise InputError(
                str(path), "includes another file: name that file as well, and remove it"
            )
        name, value = (item.findtext("name") or "").strip(), item.findtext("value")
        if not name:
            raise InputError(f"{path}: property {number + 1}", "has no name")
        if value is not None:
            found[name] = value.strip()
    return {name: _expanded(name, found) for name in found}


def _expanded(name: str, given: Mapping[str, str]) -> str:
    """Return a value with `${other.property}` in place, up to 20 deep as in Hadoop."""
    value = given[name]
    for _ in range(20):
        made = _VARIABLE.sub(lambda found: given.get(found[1], found[0]), value)
        if made == value:
            return value
        value = made
    raise InputError(name, "refers to itself")


def _read_nodes(path: Path, text: str, into: YarnConfig, usual: Mapping[str, float]) -> None:
    """Read a node list of SLS (racks of nodes, as JSON objects), or YARN's REST answer."""
    decoder, at = json.JSONDecoder(), 0
    rows: list[Any] = []
    while at < len(text):
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            raise InputError(str(path), f"is not valid JSON: {error}") from None
        rows.append(value)
        at += len(text[at:]) - len(text[at:].lstrip())
    if len(rows) == 1 and isinstance(rows[0], list):
        rows = rows[0]
    before = len(into.nodes)
    for row in rows:
        if not isinstance(row, dict) or not isinstance(row.get("nodes"), list | dict):
            raise InputError(str(path), "holds neither racks of nodes nor YARN's list of nodes")
        if isinstance(row["nodes"], dict):
            into.nodes += [_reported(path, node) for node in row["nodes"].get("node", [])]
        else:
            rack = row.get("rack")
            into.nodes += [_listed(path, rack, node, usual) for node in row["nodes"] if node]
            if not all(row["nodes"]):  # SLS's own sample has one
                into.left_out[f"{path}: rack {rack}"] = "an entry that names no node"
    if len(into.nodes) == before:
        raise InputError(str(path), "lists no node")


def _listed(path: Path, rack: Any, node: Any, usual: Mapping[str, float]) -> dict[str, Any]:
    """Return a node of SLS, of the usual size unless it says otherwise."""
    if not isinstance(node, dict) or not isinstance(node.get("node"), str):
        raise InputError(str(path), f"a node without a name: {node!r}")
    said = {"vcores": node.get("vcores"), "memory_mb": node.get("memory-mb")}
    made: dict[str, Any] = {
        "name": node["node"].strip("/"),
        "capacity": {
            name: usual[name]
            if value is None
            else read_number(value, f"{path}: {node['node']}.{name}")
            for name, value in said.items()
        },
    }
    if isinstance(rack, str) and rack:
        made["rack"] = rack.strip("/")
    labels = [each.partition("(")[0].strip() for each in str(node.get("labels", "")).split(",")]
    if any(labels):
        made["labels"] = [label for label in labels if label]
    return made


def _reported(path: Path, node: Any) -> dict[str, Any]:
    """Return a node as YARN's REST API tells it: it offers what is free and used together."""
    if not isinstance(node, dict):
        raise InputError(str(path), f"a node that is no object: {node!r}")
    name = str(node.get("nodeHostName") or node.get("id", ""))
    capacity = {
        ours: sum(read_number(node.get(each, 0), f"{path}: {name}.{each}") for each in theirs)
        for ours, theirs in _REPORTED.items()
    }
    made: dict[str, Any] = {"name": name, "capacity": capacity}
    if node.get("rack"):
        made["rack"] = str(node["rack"]).strip("/")
    if node.get("nodeLabels"):
        made["labels"] = [str(label) for label in node["nodeLabels"]]
    return made


# -- settings --------------------------------------------------------------------------------------


def _node_of(
    given: Mapping[str, str], vcores: str, memory: str, vcores_usual: float, memory_usual: float
) -> dict[str, float]:
    """Return a node's size by two properties, or the usual one; YARN's -1 means that too."""
    return {
        "vcores": max(read_number(given.get(vcores, 0), vcores), 0) or vcores_usual,
        "memory_mb": max(read_number(given.get(memory, 0), memory), 0) or memory_usual,
    }


def _read_settings(given: Mapping[str, str], into: YarnConfig) -> None:
    for name, value in given.items():
        if name == "yarn.resourcemanager.scheduler.class":
            short = value.rpartition(".")[2]
            if short in _SCHEDULERS:
                into.scheduler = _SCHEDULERS[short]
            else:
                into.left_out[name] = f"{short} is not known; --scheduler chooses one"
        elif name in _SETTINGS:
            to, unit = _SETTINGS[name]
            number = read_number(value, name) * unit
            into.manager[to] = int(number) if number == int(number) and unit == 1 else number
        elif name in _SWITCHES:
            into.manager[_SWITCHES[name]] = into.manager.get(_SWITCHES[name], False) or _switched(
                value, name
            )
        elif name in _MATCHER:
            number = read_number(value, name)
            into.matcher[_MATCHER[name]] = max(int(number), 0)
        elif not _is_read_elsewhere(name):
            into.left_out[name] = _why(name)


def _is_read_elsewhere(name: str) -> bool:
    if _SAME.search(name) or name in (*_YARN_NODE, *_SLS_NODE):
        return True
    last = name.rpartition(".")[2]
    return name.startswith(CAPACITY + "root") and last in QUEUE_KEYS


def _why(name: str) -> str:
    reasons = {
        r"\.acl_": "no access lists of queues",
        r"accessible-node-labels|default-node-label": "every queue may ask for every label",
        r"queue-mappings|user-group|placement": "a job names its queue itself",
        r"reservation": "no reservations in advance",
        r"timeline|log-aggregation|webapp|\.ha\.|store|security|principal|keytab": (
            "not about scheduling"
        ),
        r"max-parallel-apps": "applications beyond a limit are refused, not kept",
        r"allocation-(mb|vcores)$": "asks are not rounded; a node's size is the largest",
    }
    found = (why for pattern, why in reasons.items() if re.search(pattern, name))
    return next(found, "no counterpart")


def _switched(value: str, place: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise InputError(place, f"expected true or false, got {value!r}")
    return value.lower() == "true"


def _total(nodes: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Return what all nodes offer, by resource."""
    total: dict[str, float] = {}
    for node in nodes:
        for name, amount in node["capacity"].items():
            total[name] = total.get(name, 0.0) + amount * node.get("count", 1)
    return total
