"""Configurations of real YARN clusters: queues, nodes and settings, with what has no counterpart.

Read are `capacity-scheduler.xml`, `fair-scheduler.xml`, `yarn-site.xml`, `sls-runner.xml` and node
lists of the Scheduler Load Simulator, and answers of YARN's REST call `/ws/v1/cluster/nodes`.
Meanings and defaults are those of Hadoop 3.5 (CapacityScheduler.html, yarn-default.xml).
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from weft.model.errors import InputError
from weft.workloads.yarn_fair import fair_limits, fair_queues
from weft.workloads.yarn_placement import capacity_placement, fair_placement
from weft.workloads.yarn_properties import CAPACITY, FAIR, PREEMPTION, Noted, why_left_out
from weft.workloads.yarn_queues import capacity_queues
from weft.workloads.yarn_words import read_number, read_switch

BYTES_MAX = 64 * 2**20
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
_NODE_TYPE = "yarn.nodemanager.resource-type.{}"
_SLS_NODE = ("yarn.sls.nm.vcores", "yarn.sls.nm.memory.mb", 10.0, 10240.0)
_SCHEDULERS = {"CapacityScheduler": "yarn", "FairScheduler": "yarn_fair", "FifoScheduler": "fifo"}

# property -> (field of the manager's settings, what one of its units is)
_SETTINGS: Mapping[str, tuple[str, float]] = {
    "yarn.resourcemanager.am.max-attempts": ("max_attempts", 1),
    "yarn.resourcemanager.nodemanagers.heartbeat-interval-ms": ("heartbeat_s", 1e-3),
    "yarn.sls.nm.heartbeat.interval.ms": ("heartbeat_s", 1e-3),
    "yarn.sls.am.heartbeat.interval.ms": ("master_heartbeat_s", 1e-3),
    "yarn.nm.liveness-monitor.expiry-interval-ms": ("node_expiry_s", 1e-3),
    "yarn.am.liveness-monitor.expiry-interval-ms": ("master_expiry_s", 1e-3),
    "yarn.resourcemanager.max-completed-applications": ("completed_apps_max", 1),
    PREEMPTION + "monitoring_interval": ("preemption_interval_s", 1e-3),
    PREEMPTION + "max_wait_before_kill": ("preemption_grace_s", 1e-3),
    FAIR + "waitTimeBeforeKill": ("preemption_grace_s", 1e-3),
    PREEMPTION + "total_preemption_per_round": ("preemption_round_max", 1),
    PREEMPTION + "max_ignored_over_capacity": ("preemption_dead_zone", 1),
    PREEMPTION + "natural_termination_factor": ("preemption_natural", 1),
}
_FAIR_NUMBERS: Mapping[str, str] = {
    "yarn.scheduler.minimum-allocation-mb": "minimum_allocation_mb",
    "yarn.scheduler.minimum-allocation-vcores": "minimum_allocation_vcores",
    "yarn.scheduler.maximum-allocation-mb": "maximum_allocation_mb",
    "yarn.scheduler.maximum-allocation-vcores": "maximum_allocation_vcores",
    "yarn.scheduler.increment-allocation-mb": "increment_allocation_mb",
    "yarn.scheduler.increment-allocation-vcores": "increment_allocation_vcores",
    "yarn.resource-types.memory-mb.increment-allocation": "increment_allocation_mb",
    "yarn.resource-types.vcores.increment-allocation": "increment_allocation_vcores",
    FAIR + "locality.threshold.node": "node_locality_threshold",
    FAIR + "locality.threshold.rack": "rack_locality_threshold",
    FAIR + "max.assign": "max_assign",
    FAIR + "reservable-nodes": "reservable_nodes",
    FAIR + "preemption.cluster-utilization-threshold": "preemption_utilization_threshold",
    "yarn.scheduler.reservation-threshold.increment-multiple": "reservation_multiple",
}
_FAIR_SWITCHES: Mapping[str, str] = {
    FAIR + "assignmultiple": "assign_multiple",
    FAIR + "dynamic.max.assign": "dynamic_max_assign",
    FAIR + "sizebasedweight": "size_based_weight",
}
_INTRA = PREEMPTION + "intra-queue-preemption.enabled"
_MONITOR = "yarn.resourcemanager.scheduler.monitor."
_PROPORTIONAL = "ProportionalCapacityPreemptionPolicy"
# property -> parameter of the matcher `yarn`
_NUMBERS: Mapping[str, str] = {
    "yarn.scheduler.minimum-allocation-mb": "minimum_allocation_mb",
    "yarn.scheduler.minimum-allocation-vcores": "minimum_allocation_vcores",
    "yarn.scheduler.maximum-allocation-mb": "maximum_allocation_mb",
    "yarn.scheduler.maximum-allocation-vcores": "maximum_allocation_vcores",
    CAPACITY + "node-locality-delay": "node_locality_delay",
    CAPACITY + "rack-locality-additional-delay": "rack_locality_additional_delay",
    CAPACITY + "per-node-heartbeat.maximum-container-assignments": "maximum_container_assignments",
    CAPACITY + "per-node-heartbeat.maximum-offswitch-assignments": "maximum_offswitch_assignments",
}
_SWITCHES: Mapping[str, str] = {
    CAPACITY + "rack-locality-full-reset": "rack_locality_full_reset",
    CAPACITY + "per-node-heartbeat.multiple-assignments-enabled": "multiple_assignments_enabled",
    CAPACITY + "reservations-continue-look-all-nodes": "reservations_continue_look_all_nodes",
    "yarn.resourcemanager.node-labels.am.allow-non-exclusive-allocation": "am_non_exclusive",
    PREEMPTION + "conservative-drf": "preemption_conservative_drf",
    PREEMPTION + "intra-queue-preemption.conservative-drf": (
        "preemption_intra_queue_conservative_drf"
    ),
    PREEMPTION + "additional_res_balance_based_on_reserved_containers": (
        "preemption_based_on_reserved"
    ),
}
_PARTS: Mapping[str, str] = {
    PREEMPTION + "intra-queue-preemption.max-allowable-limit": "preemption_max_allowable_limit",
    PREEMPTION + "intra-queue-preemption.minimum-threshold": "preemption_minimum_threshold",
}


@dataclass(slots=True)
class YarnConfig:
    """What was read: a cluster file's data, settings, and what Weft has no counterpart for.

    `queues` are root's children as in a cluster file, `manager` has fields of the manager's
    settings, and `left_out` tells by property why.
    """

    queues: dict[str, Any] = field(default_factory=dict)
    nodes: list[dict[str, Any]] = field(default_factory=list)
    scheduler: str = ""
    manager: dict[str, Any] = field(default_factory=dict)
    matcher: dict[str, Any] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

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


def read_yarn(
    sources: Sequence[Path], nodes: int = 0, there: Sequence[dict[str, Any]] = ()
) -> YarnConfig:
    """Read YARN's files together; `nodes` of `yarn-site.xml`'s size where none are listed.

    `there`: groups of nodes that a cluster has anyhow, as its file has them. Raises InputError for
    a file that is none of YARN's, and for values that YARN refuses too.
    """
    found, properties, final = YarnConfig(nodes=list(there)), dict[str, str](), set[str]()
    fair: list[tuple[Path, ElementTree.Element]] = []
    lists: list[tuple[Path, str]] = []
    for path in sources:
        text = _text(path)
        if text.lstrip().startswith(("{", "[")):
            lists.append((path, text))
            continue
        root = _xml(path, text)
        if root.tag == "configuration":
            _add_properties(path, root, properties, final)
        elif root.tag == "allocations":
            fair.append((path, root))
        else:
            raise InputError(str(path), f"is no file of YARN's: it holds a <{root.tag}>")
    # They come last: their nodes may leave their size to sls-runner.xml.
    for path, text in lists:
        _read_nodes(path, text, found, _node_of(properties, *_SLS_NODE))
    if nodes and not found.nodes:
        size = _node_of(properties, *_YARN_NODE) | _other_types(properties, _NODE_TYPE)
        found.nodes = [{"count": nodes, "capacity": size}]
    expanded = {name: _expanded(name, properties) for name in properties}
    _take(Noted(expanded), fair, found)
    return found


def read_properties(
    properties: Mapping[str, str], nodes: list[dict[str, Any]], allocations: str = ""
) -> YarnConfig:
    """Take properties and nodes as they are, and fair-scheduler.xml's text if there is any."""
    found = YarnConfig(nodes=nodes)
    where = Path("allocations")
    fair = [(where, _xml(where, allocations))] if allocations else []
    _take(Noted(properties), fair, found)
    return found


def _take(given: Noted, fair: list[tuple[Path, ElementTree.Element]], found: YarnConfig) -> None:
    """Take queues and settings; what nobody asked for is left out, each with the reason."""
    for name in (*_YARN_NODE[:2], *_SLS_NODE[:2]):
        given.get(name)
    _other_types(given, _NODE_TYPE)
    total = _total(found.nodes)
    _read_settings(given, found)
    if any(name.startswith(CAPACITY + "root.") for name in given):
        found.queues = capacity_queues(given, found.left_out, found.nodes)
        if rules := capacity_placement(given, found.left_out):
            found.queues["placement"] = rules
        found.scheduler = found.scheduler or "yarn"
    for path, root in fair:
        if found.queues:
            why = "the queues of capacity-scheduler.xml were taken"
            found.left_out[str(path)] = why
        else:
            found.queues = fair_queues(root, given, found.left_out, total)
            found.queues["placement"] = fair_placement(root, given, found.left_out)
            found.matcher |= fair_limits(root)
            found.scheduler = found.scheduler or "yarn_fair"
    if found.scheduler == "yarn_fair" and not found.queues:
        # Without an allocation file, queues are those that submissions make.
        root = ElementTree.Element("allocations")
        found.queues = {"placement": fair_placement(root, given, found.left_out), "creates": {}}
    if found.scheduler in ("yarn", "yarn_fair"):
        most = _largest_allocation(given, zero=found.scheduler == "yarn_fair")
        if found.queues:
            if found.scheduler == "yarn":
                _check_sizes(found.queues, most, "root")
            found.queues["max_allocation"] = most | found.queues.get("max_allocation", {})
    if found.scheduler == "yarn":
        _read_matcher(given, found)
    elif found.scheduler == "yarn_fair":
        _read_fair(given, found)
    if found.scheduler not in ("yarn", "yarn_fair"):
        # Limits of users in running applications are the Fair Scheduler's alone.
        for name in ("user_max_running", "users_max_running"):
            found.matcher.pop(name, None)
    for name in given.unread():
        found.left_out[name] = why_left_out(name)


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


def _add_properties(
    path: Path, root: ElementTree.Element, known: dict[str, str], final: set[str]
) -> None:
    """Add a file's properties to those of the files before it; what is `final` stays as it is."""
    for number, item in enumerate(root):
        if item.tag.endswith("include"):
            raise InputError(
                str(path), "includes another file: name that file as well, and remove it"
            )
        name, value = (item.findtext("name") or "").strip(), item.findtext("value")
        if not name:
            raise InputError(f"{path}: property {number + 1}", "has no name")
        if value is None or name in final:
            continue
        known[name] = value.strip()
        if (item.findtext("final") or "").strip() == "true":
            final.add(name)


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
            # SLS's own sample has an empty entry.
            if not all(row["nodes"]):
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


def _other_types(given: Mapping[str, str], place: str) -> dict[str, float]:
    """Return a number of each type beside memory and vcores, where a property says one."""
    listed = [one.strip() for one in given.get("yarn.resource-types", "").split(",")]
    names = {one: place.format(one) for one in listed if one not in ("", "memory-mb", "vcores")}
    return {one: read_number(given[at], at) for one, at in names.items() if at in given}


def _read_settings(given: Mapping[str, str], into: YarnConfig) -> None:
    """Take the scheduler's class, times and limits of the manager, and whether it preempts."""
    name = "yarn.resourcemanager.scheduler.class"
    if name in given:
        short = given[name].rpartition(".")[2]
        if short in _SCHEDULERS:
            into.scheduler = _SCHEDULERS[short]
        else:
            into.left_out[name] = f"{short} is not known; --scheduler chooses one"
    for name, (to, unit) in _SETTINGS.items():
        if name in given:
            number = read_number(given[name], name) * unit
            into.manager[to] = int(number) if number == int(number) and unit == 1 else number
    preempts, observes = (
        _is_on(given, _MONITOR + "enable"),
        _is_on(given, PREEMPTION + "observe_only"),
    )
    policies = given.get(_MONITOR + "policies", _PROPORTIONAL)
    preempts = preempts and not observes and _PROPORTIONAL in policies
    if preempts and into.scheduler in ("", "yarn"):
        # YARN's monitor looks so often where nobody says otherwise.
        into.manager.setdefault("preemption_interval_s", 3.0)
    if _is_on(given, "yarn.scheduler.fair.preemption"):
        preempts = True
        # The Fair Scheduler waits so long where nobody says otherwise.
        into.manager.setdefault("preemption_grace_s", 15.0)
    if preempts or _MONITOR + "enable" in given:
        into.manager["preemption"] = preempts
    if _INTRA in given:
        into.manager["preemption_intra_queue"] = _is_on(given, _INTRA) and preempts


def _largest_allocation(given: Mapping[str, str], *, zero: bool) -> dict[str, float]:
    """Return the most that a container may have, by type.

    Raises InputError where the schedulers would not start; the Fair Scheduler takes a `zero`.
    """
    found: dict[str, float] = {}
    for what, least_usual, most_usual in (("mb", 1024, 8192), ("vcores", 1, 4)):
        names = [f"yarn.scheduler.{end}-allocation-{what}" for end in ("minimum", "maximum")]
        usual = zip(names, (least_usual, most_usual), strict=True)
        least, most = (int(read_number(given.get(name, one), name)) for name, one in usual)
        if least < 0 or (not least and not zero):
            raise InputError(names[0], f"expected an amount above 0, got {least}")
        if least > most:
            raise InputError(names[0], f"{least} are more than the maximum allocation, {most}")
        found["memory_mb" if what == "mb" else what] = most
    return found | _other_types(given, "yarn.resource-types.{}.maximum-allocation")


def _check_sizes(queue: Mapping[str, Any], most: Mapping[str, float], path: str) -> None:
    """Raise InputError for a queue whose containers may be larger than the cluster's."""
    for name, amount in queue.get("max_allocation", {}).items():
        if amount > most.get(name, amount):
            raise InputError(
                f"maximum allocation of {path}",
                f"{amount:g} {name} are more than the cluster's maximum, {most[name]:g}",
            )
    for name, below in queue.items():
        if isinstance(below, dict) and "capacity" in below:
            _check_sizes(below, most, f"{path}.{name}")


def _read_matcher(given: Mapping[str, str], into: YarnConfig) -> None:
    """Take what the matcher `yarn` goes by."""
    for name, to in _NUMBERS.items():
        if name in given:
            into.matcher[to] = int(read_number(given[name], name))
    for name, to in _SWITCHES.items():
        if name in given:
            into.matcher[to] = read_switch(given[name], name)
    user = CAPACITY + "user."
    if user + "max-parallel-apps" in given:
        name = user + "max-parallel-apps"
        into.matcher["user_max_running"] = int(read_number(given[name], name))
    most = {
        name.removeprefix(user).removesuffix(".max-parallel-apps"): name
        for name in given
        if name.startswith(user) and name.endswith(".max-parallel-apps")
    }
    if most:
        pairs = [f"{one}={int(read_number(given[name], name))}" for one, name in most.items()]
        into.matcher["users_max_running"] = ",".join(pairs)
    for name, to in _PARTS.items():
        if name in given:
            into.matcher[to] = read_number(given[name], name)
    if order := given.get(PREEMPTION + "intra-queue-preemption.preemption-order-policy", ""):
        into.matcher["preemption_order"] = order.lower()
    name = "yarn.cluster.max-application-priority"
    # Unless it is said, no application goes before another one by its priority.
    into.matcher["max_application_priority"] = max(0, int(read_number(given.get(name, 0), name)))
    name = "yarn.resourcemanager.node-labels.am.default-node-label-expression"
    if label := given.get(name, "").strip():
        into.matcher["am_default_label"] = label
    calculator = given.get(CAPACITY + "resource-calculator", "").rpartition(".")[2]
    if calculator:
        dominant = calculator == "DominantResourceCalculator"
        into.matcher["resource_calculator"] = "dominant" if dominant else "memory"


def _read_fair(given: Mapping[str, str], into: YarnConfig) -> None:
    """Take what the matcher `yarn_fair` goes by."""
    for name, to in _FAIR_NUMBERS.items():
        if name in given:
            number = read_number(given[name], name)
            into.matcher[to] = int(number) if number == int(number) else number
    for name, to in _FAIR_SWITCHES.items():
        if name in given:
            into.matcher[to] = read_switch(given[name], name)
    if (name := FAIR + "update-interval-ms") in given:
        into.matcher["update_interval_s"] = read_number(given[name], name) / 1000
    if into.manager.get("preemption"):
        # Who starves is looked for after each update. YARN means to add four heartbeats to the
        # pause, but reads their interval too late.
        into.manager["preemption_interval_s"] = into.matcher.get("update_interval_s", 0.5)
        name = FAIR + "waitTimeBeforeNextStarvationCheck"
        if name in given:
            into.matcher["preemption_check_delay_s"] = read_number(given[name], name) / 1000


def _is_on(given: Mapping[str, str], name: str) -> bool:
    return name in given and read_switch(given[name], name)


def _total(nodes: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Return what all nodes offer, by resource."""
    total: dict[str, float] = {}
    for node in nodes:
        for name, amount in node["capacity"].items():
            total[name] = total.get(name, 0.0) + amount * node.get("count", 1)
    return total
