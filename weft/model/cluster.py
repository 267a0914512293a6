"""A cluster as told to every role: resource types, nodes and the queue tree.

`cluster_from_dict` reads the cluster file's data, `cluster_from_text` the command line's short form
(`100x16vcores,65536memory_mb`). Nothing here touches a file.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from weft.model.dag import Machines
from weft.model.errors import InputError
from weft.model.ids import NodeId
from weft.model.json_types import Json, Table
from weft.model.queues import DEFAULT_QUEUES, QueueSpec, queues_from_dict
from weft.model.reading import read_integer, read_table, read_text
from weft.model.resources import Kind, ResourceType, ResourceTypes, Vector, guess_kind, read_amount

NODES_MAX = 1_000_000
SPEED_MAX = 1e6
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
class ClusterSpec:
    """A checked cluster: node ids are unique."""

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
    queues = DEFAULT_QUEUES
    if "queues" in table:
        queues = queues_from_dict(table["queues"], f"{prefix}queues")
    return ClusterSpec(types, tuple(nodes), queues)


def cluster_from_text(text: str) -> ClusterSpec:
    """Read the short form `100x16vcores,65536memory_mb`; groups of nodes are joined with `+`."""
    groups: list[Json] = []
    for part in text.split("+"):
        match = _GROUP.fullmatch(part.strip())
        if match is None:
            raise InputError("cluster", f"{text!r} is not like 100x16vcores,65536memory_mb")
        capacity = amounts_from_text(match[2], "cluster")
        groups.append({"count": int(match[1]), "capacity": capacity})
    return cluster_from_dict({"nodes": groups}, "cluster")


def amounts_from_text(text: str, place: str) -> dict[str, float]:
    """Read `16vcores,65536memory_mb`; raises InputError that names `place`."""
    amounts: dict[str, float] = {}
    for item in text.split(","):
        amount = _AMOUNT.fullmatch(item.strip())
        if amount is None:
            raise InputError(place, f"{item!r} in {text!r} is not an amount like 16vcores")
        if amount[2] in amounts:
            raise InputError(place, f"resource {amount[2]!r} occurs twice in {text!r}")
        amounts[amount[2]] = float(amount[1])
    return amounts


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
