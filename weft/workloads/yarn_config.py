"""Configurations of real YARN clusters: queues, nodes and settings, with what has no counterpart.

Read are `capacity-scheduler.xml`, `fair-scheduler.xml`, `yarn-site.xml`, node lists of the
Scheduler Load Simulator, and answers of YARN's REST call `/ws/v1/cluster/nodes`. Meanings and
defaults are those of Hadoop 3.4 (CapacityScheduler.html, FairScheduler.html, yarn-default.xml).
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from weft.errors import InputError

BYTES_MAX = 64 * 2**20
_CAPACITY = "yarn.scheduler.capacity."
_PREEMPTION = "yarn.resourcemanager.monitor.capacity.preemption."
_VARIABLE = re.compile(r"\$\{([^}$\s]+)\}")
_WEIGHT = re.compile(r"(\d+(?:\.\d+)?)\s*w")
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%?")
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z][\w.-]*)|([A-Za-z][\w.-]*)\s*=\s*(\d+)")
_NAMES = {
    "memory": "memory_mb", "memory-mb": "memory_mb", "mb": "memory_mb", "vcores": "vcores",
    "vcore": "vcores",
}  # fmt: skip
_REPORTED = {
    "vcores": ("availableVirtualCores", "usedVirtualCores"),
    "memory_mb": ("availMemoryMB", "usedMemoryMB"),
}
_SCHEDULERS = {"CapacityScheduler": "capacity", "FairScheduler": "fair", "FifoScheduler": "fifo"}

# property -> (field of the manager's settings, what one of its units is)
_SETTINGS: Mapping[str, tuple[str, float]] = {
    "yarn.resourcemanager.am.max-attempts": ("max_attempts", 1),
    "yarn.resourcemanager.nodemanagers.heartbeat-interval-ms": ("heartbeat_s", 1e-3),
    "yarn.nm.liveness-monitor.expiry-interval-ms": ("node_expiry_s", 1e-3),
    "yarn.am.liveness-monitor.expiry-interval-ms": ("master_expiry_s", 1e-3),
    "yarn.resourcemanager.max-completed-applications": ("completed_apps_max", 1),
    _CAPACITY + "maximum-am-resource-percent": ("master_share_max", 1),
    _CAPACITY + "maximum-applications": ("queue_apps_max", 1),
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
    _CAPACITY + "node-locality-delay": "node_locality_delay",
    _CAPACITY + "rack-locality-additional-delay": "rack_locality_delay",
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
    for path in sources:
        text = _text(path)
        if text.lstrip().startswith(("{", "[")):
            _read_nodes(path, text, found)
            continue
        root = _xml(path, text)
        if root.tag == "configuration":
            properties |= _properties(path, root)
        elif root.tag == "allocations":
            fair.append((path, root))
        else:
            raise InputError(str(path), f"is no file of YARN's: it holds a <{root.tag}>")
    if nodes and not found.nodes:
        found.nodes = [{"count": nodes, "capacity": _node_of(properties)}]
    _read_settings(properties, found)
    total = _total(found.nodes)
    if any(name.startswith(_CAPACITY + "root.") for name in properties):
        found.queues = _capacity_queues(properties, found, total)
    for path, root in fair:
        if found.queues:
            why = "the queues of capacity-scheduler.xml were taken"
            found.left_out[str(path)] = why
        else:
            found.queues = _fair_queues(root, found, total, "root")
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
    """A value with `${other.property}` in place, up to 20 deep as in Hadoop."""
    value = given[name]
    for _ in range(20):
        made = _VARIABLE.sub(lambda found: given.get(found[1], found[0]), value)
        if made == value:
            return value
        value = made
    raise InputError(name, "refers to itself")


def _read_nodes(path: Path, text: str, into: YarnConfig) -> None:
    """A node list of SLS (racks of nodes, one JSON object after another), or YARN's REST answer."""
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
            into.nodes += [_listed(path, row.get("rack"), node) for node in row["nodes"] if node]
            if not all(row["nodes"]):  # SLS's own sample has one
                into.left_out[f"{path}: rack {row.get('rack')}"] = "an entry that names no node"
    if len(into.nodes) == before:
        raise InputError(str(path), "lists no node")


def _listed(path: Path, rack: Any, node: Any) -> dict[str, Any]:
    """A node of SLS; 10 GB and 10 cores unless it says otherwise, as SLS has it."""
    if not isinstance(node, dict) or not isinstance(node.get("node"), str):
        raise InputError(str(path), f"a node without a name: {node!r}")
    made: dict[str, Any] = {
        "name": node["node"].strip("/"),
        "capacity": {
            "vcores": _number(node.get("vcores", 10), f"{path}: {node['node']}.vcores"),
            "memory_mb": _number(node.get("memory-mb", 10240), f"{path}: {node['node']}.memory-mb"),
        },
    }
    if isinstance(rack, str) and rack:
        made["rack"] = rack.strip("/")
    labels = [each.partition("(")[0].strip() for each in str(node.get("labels", "")).split(",")]
    if any(labels):
        made["labels"] = [label for label in labels if label]
    return made


def _reported(path: Path, node: Any) -> dict[str, Any]:
    """A node as YARN's REST API tells it: what it offers is free and used together."""
    if not isinstance(node, dict):
        raise InputError(str(path), f"a node that is no object: {node!r}")
    name = str(node.get("nodeHostName") or node.get("id", ""))
    capacity = {
        ours: sum(_number(node.get(each, 0), f"{path}: {name}.{each}") for each in theirs)
        for ours, theirs in _REPORTED.items()
    }
    made: dict[str, Any] = {"name": name, "capacity": capacity}
    if node.get("rack"):
        made["rack"] = str(node["rack"]).strip("/")
    if node.get("nodeLabels"):
        made["labels"] = [str(label) for label in node["nodeLabels"]]
    return made


# -- settings --------------------------------------------------------------------------------------


def _node_of(given: Mapping[str, str]) -> dict[str, float]:
    """A node's size by yarn-site.xml; YARN's defaults are 8 cores and 8 GB."""
    memory, vcores = "yarn.nodemanager.resource.memory-mb", "yarn.nodemanager.resource.cpu-vcores"
    return {
        "vcores": max(_number(given.get(vcores, 8), vcores), 0) or 8.0,
        "memory_mb": max(_number(given.get(memory, 8192), memory), 0) or 8192.0,
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
            number = _number(value, name) * unit
            into.manager[to] = int(number) if number == int(number) and unit == 1 else number
        elif name in _SWITCHES:
            into.manager[_SWITCHES[name]] = into.manager.get(_SWITCHES[name], False) or _switched(
                value, name
            )
        elif name in _MATCHER:
            number = _number(value, name)
            into.matcher[_MATCHER[name]] = max(int(number), 0)
        elif not _is_read_elsewhere(name):
            into.left_out[name] = _why(name)


def _is_read_elsewhere(name: str) -> bool:
    if _SAME.search(name) or name.startswith("yarn.nodemanager.resource."):
        return True
    last = name.rpartition(".")[2]
    return name.startswith(_CAPACITY + "root") and last in _QUEUE_KEYS


def _why(name: str) -> str:
    reasons = {
        r"\.acl_": "no access lists of queues",
        r"accessible-node-labels|default-node-label": "every queue may ask for every label",
        r"queue-mappings|user-group|placement": "a job names its queue itself",
        r"reservation": "no reservations in advance",
        r"timeline|log-aggregation|webapp|\.ha\.|store|security|principal|keytab": (
            "not about scheduling"
        ),
        r"maximum-applications$|maximum-am-resource-percent$|max-parallel-apps": (
            "limits of applications are of all queues alike"
        ),
        r"allocation-(mb|vcores)$": "asks are not rounded; a node's size is the largest",
    }
    found = (why for pattern, why in reasons.items() if re.search(pattern, name))
    return next(found, "no counterpart")


def _switched(value: str, place: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise InputError(place, f"expected true or false, got {value!r}")
    return value.lower() == "true"


def _number(value: Any, place: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InputError(place, f"expected a number, got {value!r}") from None
    if not abs(number) < 2**53:
        raise InputError(place, f"expected a number, got {value!r}")
    return number


def _total(nodes: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """What all nodes offer, by resource."""
    total: dict[str, float] = {}
    for node in nodes:
        for name, amount in node["capacity"].items():
            total[name] = total.get(name, 0.0) + amount * node.get("count", 1)
    return total


# -- queues ----------------------------------------------------------------------------------------

_QUEUE_KEYS = {
    "queues", "capacity", "maximum-capacity", "minimum-user-limit-percent", "user-limit-factor",
    "state",
}  # fmt: skip


def _capacity_queues(
    given: Mapping[str, str], into: YarnConfig, total: Mapping[str, float]
) -> dict[str, Any]:
    """The queue tree of capacity-scheduler.xml, below root, as a cluster file has it."""

    def below(path: str, amounts: Mapping[str, float]) -> dict[str, Any]:
        names = [n.strip() for n in given.get(f"{_CAPACITY}{path}.queues", "").split(",")]
        names = [name for name in names if name]
        if len(set(names)) != len(names):
            raise InputError(f"{_CAPACITY}{path}.queues", "a queue occurs twice")
        parts = {name: _part(given, f"{path}.{name}", amounts) for name in names}
        weights = sum(amount for kind, amount in parts.values() if kind == "w")
        left = max(0.0, 1.0 - sum(amount for kind, amount in parts.values() if kind == "%"))
        return {
            name: queue(
                f"{path}.{name}", left * amount / weights if kind == "w" else amount, amounts
            )
            for name, (kind, amount) in parts.items()
        }

    def queue(path: str, capacity: float, amounts: Mapping[str, float]) -> dict[str, Any]:
        prefix = f"{_CAPACITY}{path}."
        made: dict[str, Any] = {"capacity": round(capacity, 9)}
        most = given.get(f"{prefix}maximum-capacity", "100")
        made["max_capacity"] = round(
            max(_share(most, f"{prefix}maximum-capacity", amounts), capacity), 9
        )
        children = below(path, {name: each * capacity for name, each in amounts.items()})
        if children:
            return made | children
        user = _number(
            given.get(f"{prefix}minimum-user-limit-percent", 100),
            prefix + "minimum-user-limit-percent",
        )
        made["user_limit"] = min(user, 100.0) / 100
        factor = _number(given.get(f"{prefix}user-limit-factor", 1), f"{prefix}user-limit-factor")
        if factor > 0:  # -1: none
            made["user_limit_factor"] = factor
        if given.get(f"{prefix}state", "RUNNING").upper() != "RUNNING":
            into.left_out[f"{prefix}state"] = "queues cannot be stopped"
        return made

    return below("root", total)


def _part(given: Mapping[str, str], path: str, amounts: Mapping[str, float]) -> tuple[str, float]:
    """A queue's capacity: ("w", weight) or ("%", fraction of its parent)."""
    place = f"{_CAPACITY}{path}.capacity"
    text = given.get(place, "")
    if not text:
        raise InputError(place, "is missing")
    weight = _WEIGHT.fullmatch(text)
    return ("w", float(weight[1])) if weight else ("%", _share(text, place, amounts))


def _share(text: str, place: str, amounts: Mapping[str, float]) -> float:
    """A fraction of the parent: a percentage, or amounts as `[memory=1024,vcores=2]`."""
    if text.strip().startswith("-"):
        return 1.0
    percent = _PERCENT.fullmatch(text.strip())
    if percent:
        return min(float(percent[1]) / 100, 1.0)
    shares = []
    for found in _AMOUNT.finditer(text):
        name = _NAMES.get((found[2] or found[3]).lower(), found[2] or found[3])
        if not amounts.get(name):
            raise InputError(place, f"{text!r} is an amount of {name}, and no node offers any")
        shares.append(float(found[1] or found[4]) / amounts[name])
    if not shares:
        raise InputError(place, f"expected a percentage, a weight or amounts, got {text!r}")
    return min(max(shares), 1.0)


def _fair_queues(
    root: ElementTree.Element, into: YarnConfig, total: Mapping[str, float], path: str
) -> dict[str, Any]:
    """The queue tree of fair-scheduler.xml: weights over those of their siblings."""
    rows = [item for item in root if item.tag in ("queue", "pool")]
    if path == "root" and len(rows) == 1 and rows[0].get("name") == "root":
        return _fair_queues(rows[0], into, total, path)
    names = [item.get("name", "") for item in rows]
    if not all(names) or len(set(names)) != len(names):
        raise InputError(f"queues of {path}", f"each needs a name of its own, got {names}")
    weights = [
        _number(item.findtext("weight", "1"), f"{path}.{name}.weight")
        for name, item in zip(names, rows, strict=True)
    ]
    made: dict[str, Any] = {}
    for name, item, weight in zip(names, rows, weights, strict=True):
        where = f"{path}.{name}"
        entry: dict[str, Any] = {
            "capacity": round(weight / sum(weights), 9) if any(weights) else 0.0
        }
        most = item.findtext("maxResources")
        if most is not None:
            entry["max_capacity"] = round(
                max(_share(most, f"{where}.maxResources", total), entry["capacity"]), 9
            )
        for child in item:
            if child.tag not in ("queue", "pool", "weight", "maxResources", "schedulingMode"):
                into.left_out[f"{where}.{child.tag}"] = _fair_why(child.tag)
        amounts = {resource: each * entry["capacity"] for resource, each in total.items()}
        made[name] = entry | _fair_queues(item, into, amounts, where)
    for item in root:
        if path == "root" and item.tag not in ("queue", "pool"):
            into.left_out[item.tag] = _fair_why(item.tag)
    return made


def _fair_why(tag: str) -> str:
    if tag == "minResources":
        return "a queue's guarantee is its weight's share"
    if "Preemption" in tag:
        return "one grace period for all queues (manager.preemption_grace_s)"
    if "max" in tag.lower():
        return "limits of applications are of all queues alike"
    return "no counterpart"
