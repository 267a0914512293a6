"""A cluster as told to every role: resource types, nodes and the queue tree.

`cluster_from_dict` reads the cluster file's data, `cluster_from_text` the command line's short form
(`100x16vcores,65536memory_mb`). Nothing here touches a file.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from weft.model.dag import Machines
from weft.model.errors import InputError
from weft.model.ids import NodeId
from weft.model.json_types import Json, Table
from weft.model.reading import read_integer, read_table, read_text
from weft.model.resources import Kind, ResourceType, ResourceTypes, Vector, guess_kind, read_amount

NODES_MAX = 1_000_000
SPEED_MAX = 1e6
_QUEUE_KEYS = {
    "capacity",
    "max_capacity",
    "user_limit",
    "user_limit_factor",
    "max_applications",
    "max_user_applications",
    "max_am_share",
    "default_lifetime_s",
    "max_lifetime_s",
    "submit",
    "administer",
    "priority",
    "order",
    "labels",
    "user_weights",
    "default_label",
}
_ORDERS = ("", "utilization", "priority", "fair", "weighted")
_APPLICATIONS_MAX = 2**31 - 1
_PRIORITY_MAX = 2**31 - 1
_NODE_KEYS = {"count", "capacity", "racks", "rack", "labels", "name", "speed"}
_GROUP = re.compile(r"(\d+)\s*[xX]\s*(\d.*)")
_AMOUNT = re.compile(r"(\d+(?:\.\d*)?)\s*([A-Za-z_][\w.-]*)")


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """One node; `capacity` is absolute, in the order of the cluster's resource types.

    Tasks run `speed` times as fast as their durations say.
    """

    node_id: NodeId
    capacity: Vector
    rack: str = "r1"
    labels: tuple[str, ...] = ()
    speed: float = 1.0


@dataclass(frozen=True, slots=True)
class QueueSpec:
    """A queue; `capacity` (guaranteed) and `max_capacity` are fractions of the parent's.

    With n active users each may hold max(1/n, user_limit) of the queue, and none more than
    user_limit_factor times its capacity (YARN's minimum-user-limit-percent, user-limit-factor).
    It and those below it take `max_applications` that have not ended (0: any number) and refuse
    more, and of a user `max_user_applications` (-1: any number); their masters hold `max_am_share`
    of its guarantee at most, but one may always run: the others wait (YARN's maximum-applications,
    maximum-am-resource-percent).
    Applications that say no lifetime have the default, s, and none has more than the most (YARN's
    default- and maximum-application-lifetime); 0: as the queue above says, at the root without end.
    `administer` names the users who may do everything with the applications here and below, and
    `submit` those who may submit besides (None: as the queue above says, at the root everybody);
    "*" is everybody. Both hold where callers are known.
    The matcher `yarn` alone goes by the rest: `priority` among queues whose parent has the `order`
    "priority" (YARN's priority-utilization; "" is as above, "utilization" without); the `order` of
    a leaf's applications, "fair" (least used first) or "weighted" (over the logarithm of what they
    want) instead of by submission; (capacity, max_capacity) of nodes with a label; how much more
    than others a user may hold; the label that asks without one need.
    """

    name: str
    capacity: float = 1.0
    max_capacity: float = 1.0
    user_limit: float = 1.0
    user_limit_factor: float = math.inf
    max_applications: int = 0
    max_user_applications: int = -1
    max_am_share: float = 1.0
    default_lifetime_s: float = 0.0
    max_lifetime_s: float = 0.0
    submit: tuple[str, ...] | None = None
    administer: tuple[str, ...] = ()
    priority: int = 0
    order: str = ""
    labels: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    user_weights: Mapping[str, float] = field(default_factory=dict)
    default_label: str = ""
    children: tuple["QueueSpec", ...] = ()

    def walk(self, above: str = "") -> Iterator[tuple[str, "QueueSpec"]]:
        """Yield every queue with its path (`root.prod`), parents first."""
        path = f"{above}.{self.name}" if above else self.name
        yield path, self
        for child in self.children:
            yield from child.walk(path)

    def leaves(self) -> Iterator[tuple[str, "QueueSpec"]]:
        """Return the queues that take jobs, with their paths, in file order."""
        return ((path, queue) for path, queue in self.walk() if not queue.children)


DEFAULT_QUEUES = QueueSpec("root", children=(QueueSpec("default"),))


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """A checked cluster: node ids are unique, leaf queues' names are unique."""

    types: ResourceTypes
    nodes: tuple[NodeSpec, ...]
    queues: QueueSpec = field(default=DEFAULT_QUEUES)

    def __post_init__(self) -> None:
        if not self.nodes:
            raise InputError("nodes", "a cluster needs at least one node")
        seen: set[str] = set()
        for node in self.nodes:
            if node.node_id in seen:
                raise InputError("nodes", f"node {node.node_id!r} occurs twice")
            seen.add(node.node_id)
        leaves: set[str] = set()
        for path, queue in self.queues.leaves():
            if queue.name in leaves:
                raise InputError(f"queues.{path}", f"leaf queue {queue.name!r} occurs twice")
            leaves.add(queue.name)

    @property
    def total(self) -> Vector:
        """C: the sum of all nodes' capacities."""
        return tuple(map(sum, zip(*(node.capacity for node in self.nodes), strict=True)))

    def machines(self) -> Machines:
        """Return all nodes as the planners see them, in the order of `nodes`."""
        capacity = np.array([node.capacity for node in self.nodes], dtype=np.float64)
        speeds = np.array([node.speed for node in self.nodes], dtype=np.float64)
        return Machines(capacity, speeds) if np.any(speeds != 1.0) else Machines(capacity)

    def leaf(self, name: str) -> str:
        """Return a leaf queue's path, given by name or path; raises InputError naming the known."""
        known = []
        for path, queue in self.queues.leaves():
            if name in (queue.name, path, path.partition(".")[2]):
                return path
            known.append(queue.name)
        raise InputError("queue", f"unknown queue {name!r}; known: {', '.join(known)}")


def cluster_from_dict(data: object, place: str = "") -> ClusterSpec:
    """Read the data of a cluster file; raises InputError with the place of the first problem.

    Without `resources` the types are those that the nodes name, in order of appearance.
    """
    prefix = f"{place}." if place else ""
    table = read_table(data, place or "cluster", {"resources", "nodes", "queues"})
    rows = table.get("nodes")
    if not isinstance(rows, list) or not rows:
        raise InputError(f"{prefix}nodes", "expected a list of at least one group of nodes")
    groups = [read_table(row, f"{prefix}nodes[{i}]", _NODE_KEYS) for i, row in enumerate(rows)]
    if "resources" in table:
        types = _types(table["resources"], f"{prefix}resources")
    else:
        types = _types_of_nodes(groups, f"{prefix}nodes")
    nodes: list[NodeSpec] = []
    for i, group in enumerate(groups):
        nodes.extend(_nodes(group, types, len(nodes), f"{prefix}nodes[{i}]"))
    queues = _queues(table["queues"], f"{prefix}queues") if "queues" in table else DEFAULT_QUEUES
    return ClusterSpec(types, tuple(nodes), queues)


def cluster_from_text(text: str) -> ClusterSpec:
    """Read the short form `100x16vcores,65536memory_mb`; groups of nodes are joined with `+`."""
    groups: list[Json] = []
    for part in text.split("+"):
        match = _GROUP.fullmatch(part.strip())
        if match is None:
            raise InputError("cluster", f"{text!r} is not like 100x16vcores,65536memory_mb")
        capacity: dict[str, float] = {}
        for item in match[2].split(","):
            amount = _AMOUNT.fullmatch(item.strip())
            if amount is None:
                raise InputError("cluster", f"{item!r} in {text!r} is not an amount like 16vcores")
            if amount[2] in capacity:
                raise InputError("cluster", f"resource {amount[2]!r} occurs twice in {part!r}")
            capacity[amount[2]] = float(amount[1])
        groups.append({"count": int(match[1]), "capacity": capacity})
    return cluster_from_dict({"nodes": groups}, "cluster")


def _types(value: object, place: str) -> ResourceTypes:
    if not isinstance(value, list) or not value:
        raise InputError(place, "expected a list of at least one resource type")
    types = []
    for i, item in enumerate(value):
        where = f"{place}[{i}]"
        if isinstance(item, str):
            types.append(ResourceType(read_text(item, where), guess_kind(item)))
            continue
        table = read_table(item, where, {"name", "kind"})
        name = read_text(table.get("name"), f"{where}.name")
        kind = table.get("kind", guess_kind(name).value)
        if kind not in {k.value for k in Kind}:
            raise InputError(f"{where}.kind", f"expected divisible or rigid, got {kind!r}")
        types.append(ResourceType(name, Kind(kind)))
    return ResourceTypes(tuple(types))


def _types_of_nodes(groups: list[Table], place: str) -> ResourceTypes:
    names: dict[str, None] = {}
    for i, group in enumerate(groups):
        where = f"{place}[{i}].capacity"
        names.update(dict.fromkeys(read_table(group.get("capacity"), where)))
    if not names:
        raise InputError(place, "the nodes have no capacity of any resource")
    return ResourceTypes(tuple(ResourceType(name, guess_kind(name)) for name in names))


def _nodes(table: Table, types: ResourceTypes, before: int, place: str) -> Iterator[NodeSpec]:
    count = read_integer(table.get("count", 1), f"{place}.count", 1, NODES_MAX - before)
    where = f"{place}.capacity"
    named = read_table(table.get("capacity"), where)
    amounts = {name: read_amount(value, f"{where}.{name}") for name, value in named.items()}
    capacity = types.vector(amounts, where)
    if not any(capacity):
        raise InputError(where, "expected a positive amount of at least one resource")
    labels = table.get("labels", [])
    if not isinstance(labels, list):
        raise InputError(f"{place}.labels", "expected a list of names")
    tags = tuple(read_text(label, f"{place}.labels[{i}]") for i, label in enumerate(labels))
    if "rack" in table and "racks" in table:
        raise InputError(f"{place}.racks", "say either rack (a name) or racks (how many)")
    rack = read_text(table["rack"], f"{place}.rack") if "rack" in table else ""
    racks = read_integer(table.get("racks", 1), f"{place}.racks", 1, NODES_MAX)
    name = read_text(table["name"], f"{place}.name") if "name" in table else ""
    speed = read_amount(table.get("speed", 1.0), f"{place}.speed", positive=True)
    if not 1 / SPEED_MAX <= speed <= SPEED_MAX:
        where = f"expected a speed from {1 / SPEED_MAX:g} to {SPEED_MAX:g}, got {speed:g}"
        raise InputError(f"{place}.speed", where)
    for i in range(count):
        if not name:
            node_id = f"n{before + i + 1}"
        else:
            node_id = name if count == 1 else f"{name}{i + 1}"
        yield NodeSpec(node_id, capacity, rack or f"r{i % racks + 1}", tags, speed)


def _queues(value: object, place: str) -> QueueSpec:
    table = read_table(value, place)
    if list(table) != ["root"]:
        raise InputError(place, "expected one queue at the top, named root")
    return _queue("root", table["root"], 1.0, f"{place}.root")


def _lifetime(table: Table, key: str, place: str) -> float:
    return read_amount(table.get(key, 0.0), f"{place}.{key}")


def _users(value: object, place: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise InputError(place, "expected a list of users, or of * for everybody")
    return tuple(read_text(user, f"{place}[{i}]") for i, user in enumerate(value))


def _queue(name: str, value: object, share: float, place: str) -> QueueSpec:
    """Return a queue; `share` is its capacity where it says none."""
    table = {} if value is None else read_table(value, place)
    below = {key: entry for key, entry in table.items() if key not in _QUEUE_KEYS}
    for key, entry in below.items():
        if entry is not None and not isinstance(entry, Mapping):
            known = ", ".join(sorted(_QUEUE_KEYS))
            raise InputError(f"{place}.{key}", f"neither a queue nor a setting; known: {known}")
        if "." in key or not key:
            raise InputError(f"{place}.{key}", "a queue's name has no dot and is not empty")
    capacity = _fraction(table, "capacity", share, place)
    max_capacity = _fraction(table, "max_capacity", 1.0, place)
    if max_capacity < capacity:
        raise InputError(
            f"{place}.max_capacity", f"{max_capacity:g} is below the capacity {capacity:g}"
        )
    factor = table.get("user_limit_factor", math.inf)
    if factor != math.inf:
        factor = read_amount(factor, f"{place}.user_limit_factor", positive=True)
    return QueueSpec(
        name=name,
        capacity=capacity,
        max_capacity=max_capacity,
        user_limit=_fraction(table, "user_limit", 1.0, place),
        user_limit_factor=factor,
        max_applications=read_integer(
            table.get("max_applications", 0), f"{place}.max_applications", 0, _APPLICATIONS_MAX
        ),
        max_user_applications=read_integer(
            table.get("max_user_applications", -1),
            f"{place}.max_user_applications",
            -1,
            _APPLICATIONS_MAX,
        ),
        max_am_share=_fraction(table, "max_am_share", 1.0, place),
        default_lifetime_s=_lifetime(table, "default_lifetime_s", place),
        max_lifetime_s=_lifetime(table, "max_lifetime_s", place),
        submit=_users(table["submit"], f"{place}.submit") if "submit" in table else None,
        administer=_users(table.get("administer", []), f"{place}.administer"),
        priority=read_integer(
            table.get("priority", 0), f"{place}.priority", -_PRIORITY_MAX, _PRIORITY_MAX
        ),
        order=_order(table, place),
        labels=_labels(table.get("labels", {}), f"{place}.labels"),
        user_weights=_weights(table.get("user_weights", {}), f"{place}.user_weights"),
        default_label=read_text(table["default_label"], place) if "default_label" in table else "",
        children=_children(below, place),
    )


def _order(table: Table, place: str) -> str:
    order = table.get("order", "")
    if not isinstance(order, str) or order not in _ORDERS:
        raise InputError(f"{place}.order", f"expected one of {', '.join(_ORDERS[1:])}")
    return order


def _labels(value: object, place: str) -> dict[str, tuple[float, float]]:
    """Return what a queue may use of the nodes of each label: guaranteed, at most."""
    found: dict[str, tuple[float, float]] = {}
    for label, entry in read_table(value, place).items():
        table = read_table(entry, f"{place}.{label}", {"capacity", "max_capacity"})
        least = _fraction(table, "capacity", 0.0, f"{place}.{label}")
        found[label] = (least, _fraction(table, "max_capacity", 1.0, f"{place}.{label}"))
    return found


def _weights(value: object, place: str) -> dict[str, float]:
    table = read_table(value, place)
    return {
        user: read_amount(weight, f"{place}.{user}", positive=True)
        for user, weight in table.items()
    }


def _children(below: Table, place: str) -> tuple[QueueSpec, ...]:
    """Return child queues whose capacities sum to at most 1; those that say none share the rest."""
    said = {
        key: _fraction(entry, "capacity", 0.0, f"{place}.{key}")
        for key, entry in below.items()
        if entry and "capacity" in entry
    }
    taken, silent = sum(said.values()), len(below) - len(said)
    if taken > 1 + 1e-9:
        raise InputError(place, f"the capacities of its queues sum to {taken:g}, more than 1")
    share = max(0.0, 1.0 - taken) / silent if silent else 0.0
    return tuple(_queue(key, entry, share, f"{place}.{key}") for key, entry in below.items())


def _fraction(table: Table, key: str, default: float, place: str) -> float:
    number = read_amount(table.get(key, default), f"{place}.{key}")
    if number > 1:
        raise InputError(f"{place}.{key}", f"expected a fraction from 0 to 1, got {number:g}")
    return number
