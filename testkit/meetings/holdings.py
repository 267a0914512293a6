"""Who holds what at each moment of a run, and what limits, labels and places allow, from facts."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from testkit.meetings.evidence import Evidence
from weft.model.cluster import NodeSpec
from weft.model.ids import AppId, AttemptId, ContainerId, NodeId
from weft.model.job import Job
from weft.model.resources import Vector
from weft.protocol.messages import Ask

SLACK = 1e-6
# So much of the cluster masters may hold beside what asks do.
MASTERS_SHARE = 0.02


@dataclass(slots=True)
class Row:
    """An ask as the manager knows it, and how its wait went.

    `told_s` is when its total was sent last. Since `waits_s` it got nothing though limits would let
    it, `ahead` has the large ones that limits let have a node since (their pending containers), and
    `beside` has since when each node has room. A maximum may have it `held_back`.
    """

    app: AppId
    attempt: AttemptId
    ask: Ask
    asked_s: float
    told_s: float = 0.0
    granted: int = 0
    waits_s: float = 0.0
    overtaken: int = 0
    ahead: dict[tuple[AttemptId, int], int] = field(default_factory=dict)
    held_back: bool = False
    beside: dict[NodeId, float] = field(default_factory=dict)

    @property
    def pending(self) -> int:
        """Containers that it still wants."""
        return self.ask.total - self.granted


class Holdings:
    """Follows asks, containers and masters."""

    def __init__(self, seen: Evidence) -> None:
        """Start with nothing held."""
        self.seen = seen
        cluster = seen.cluster
        self.nodes: dict[NodeId, NodeSpec] = {spec.node_id: spec for spec in cluster.nodes}
        self.free = {name: list(spec.capacity) for name, spec in self.nodes.items()}
        self.total = cluster.total
        self.largest = tuple(map(max, zip(*(spec.capacity for spec in cluster.nodes), strict=True)))
        self.job: dict[AppId, Job] = {end.app: end.job for end in seen.jobs if end.app}
        self.queue = {app: cluster.leaf(job.queue) for app, job in self.job.items()}
        self.rows: dict[tuple[AttemptId, int], Row] = {}
        self.pending_rows: dict[tuple[AttemptId, int], Row] = {}
        self.avoided: dict[AttemptId, tuple[float, frozenset[NodeId]]] = {}
        self.held: dict[str, list[float]] = defaultdict(lambda: [0.0] * len(self.total))
        self.user_held: dict[tuple[str, str], list[float]] = defaultdict(
            lambda: [0.0] * len(self.total)
        )
        self.containers_by_queue: Counter[str] = Counter()
        self.placed: dict[ContainerId, tuple[NodeId, AppId, Vector]] = {}
        self.masters: dict[ContainerId, tuple[NodeId, AppId, Vector]] = {}
        # Leaves and users that were granted something at this moment: they wanted it until then.
        self.served_now: set[tuple[str, str]] = set()
        # The states of applications that are not over.
        self.live_app_states: dict[AppId, str] = {}
        # The time of the last round, and what it chose.
        self.chosen: tuple[float, set[ContainerId]] = (0.0, set())
        # Guarantee and maximum of each queue, as shares of the cluster.
        self.share: dict[str, tuple[float, float]] = {}
        self.limits = dict(cluster.queues.walk())
        for path, spec in self.limits.items():
            above = self.share.get(path.rpartition(".")[0], (1.0, 1.0))
            self.share[path] = (above[0] * spec.capacity, above[1] * spec.max_capacity)

    def count(self, app: AppId, node: NodeId, demand: Vector, sign: float) -> None:
        """Add what an ask's container holds, or take it away (`sign` -1)."""
        path, user = self.queue[app], self.job[app].user
        for r, amount in enumerate(demand):
            self.free[node][r] -= sign * amount
            self.user_held[path, user][r] += sign * amount
        above = path
        while above:
            for r, amount in enumerate(demand):
                self.held[above][r] += sign * amount
            self.containers_by_queue[above] += int(sign)
            above = above.rpartition(".")[0]

    def closed(self, container: ContainerId) -> None:
        """Note that the manager knows of a container's end."""
        if container in self.masters:
            node, _, demand = self.masters.pop(container)
            for r, amount in enumerate(demand):
                self.free[node][r] += amount
        if container in self.placed:
            node, app, demand = self.placed.pop(container)
            self.count(app, node, demand, -1.0)

    def user_limit(self, leaf: str, demand: Vector, at_s: float | None = None) -> list[float]:
        """Return what each user of a leaf may hold, one of those who wait for something.

        With `at_s` as much as it can be then: by what the leaf holds, and without those whose word
        comes at that moment. Else as little as it can be.
        """
        spec, guarantee = self.limits[leaf], self.share[leaf][0]
        users = {
            self.job[row.app].user
            for row in self.pending_rows.values()
            if self.leaf(row) == leaf and (at_s is None or row.told_s < at_s)
        }
        if at_s is None:
            users |= {user for at, user in self.served_now if at == leaf}
        infinite = [float("inf")] * len(self.total)
        parts = infinite
        if len(users) > 1:
            part = max(1 / len(users), spec.user_limit)
            held = [0.0] * len(self.total)
            if at_s is not None:
                held = [h + m for h, m in zip(self.held[leaf], self.of_masters(leaf), strict=True)]
            more = demand if at_s is not None else (0.0,) * len(self.total)
            parts = [
                max(guarantee * c, h + need) * part
                for c, h, need in zip(self.total, held, more, strict=True)
            ]
        if spec.user_limit_factor < float("inf"):
            most = [guarantee * spec.user_limit_factor * c for c in self.total]
            parts = [min(a, b) for a, b in zip(parts, most, strict=True)]
        return parts

    def of_masters(self, path: str) -> list[float]:
        """Return what the masters of a queue hold."""
        found = [0.0] * len(self.total)
        for _, app, own in self.masters.values():
            if f"{self.queue.get(app)}.".startswith(f"{path}."):
                found = [f + o for f, o in zip(found, own, strict=True)]
        return found

    def leaf(self, row: Row) -> str:
        """Return the queue of an ask."""
        return self.queue[row.app]

    def over(self, held: list[float], share: float, demand: Vector) -> bool:
        """Return whether more than a share is held of anything that is demanded."""
        return any(
            need > 0 and amount > share * c * (1 + SLACK)
            for need, amount, c in zip(demand, held, self.total, strict=True)
        )

    def dominant(self, path: str, more: Vector = ()) -> float:
        """Return the dominant share of the cluster that a queue holds, with `more`."""
        held = self.held[path]
        extra = more or (0.0,) * len(held)
        return max((h + e) / c for h, e, c in zip(held, extra, self.total, strict=True) if c)

    def used_ratio(self, path: str, more: Vector = ()) -> float:
        """Return the dominant share that a queue holds, masters and `more`, over its guarantee."""
        extra = more or (0.0,) * len(self.total)
        held = zip(self.held[path], self.of_masters(path), extra, self.total, strict=True)
        return max((h + m + e) / c for h, m, e, c in held if c) / max(self.share[path][0], 1e-9)

    def able(self, row: Row, name: NodeId) -> bool:
        """Return whether a node may run it once it is empty."""
        node, ask = self.nodes[name], row.ask
        if not label_fits(ask.label, node) or not place_fits(ask, node):
            return False
        if name in self.avoided.get(row.attempt, (0.0, frozenset()))[1]:
            return False
        return all(n <= c * (1 + SLACK) for n, c in zip(ask.demand, node.capacity, strict=True))

    def is_open(self, row: Row, name: NodeId) -> bool:
        """Return whether it could start on a node as it is."""
        if any(n > f + SLACK for n, f in zip(row.ask.demand, self.free[name], strict=True)):
            return False
        return self.able(row, name)

    def all_fit(self, row: Row, free: dict[NodeId, list[float]]) -> bool:
        """Take the room of all that is pending out of what is free; return whether there was."""
        for _ in range(row.pending):
            for name, left in free.items():
                needs = zip(row.ask.demand, left, strict=True)
                if self.able(row, name) and all(need <= f + SLACK for need, f in needs):
                    free[name] = [f - n for f, n in zip(left, row.ask.demand, strict=True)]
                    break
            else:
                return False
        return True

    def may_hold(self, row: Row) -> bool:
        """Return whether limits surely let it have one more, whatever is counted how."""
        demand, path, leaf = row.ask.demand, self.leaf(row), self.leaf(row)
        own = self.of_masters(leaf)
        margin = [MASTERS_SHARE * c + m for c, m in zip(self.total, own, strict=True)]
        while path:
            most = self.share[path][1]
            if most < 1 and any(
                need > 0 and h + need + m > most * c
                for need, h, m, c in zip(demand, self.held[path], margin, self.total, strict=True)
            ):
                return False
            path = path.rpartition(".")[0]
        limit = self.user_limit(leaf, demand)
        held = self.user_held[leaf, self.job[row.app].user]
        return not any(
            need > 0 and h + need + m > most
            for need, h, m, most in zip(demand, held, margin, limit, strict=True)
        )

    def is_large(self, row: Row) -> bool:
        """Return whether no two of it fit on any node."""
        return any(2 * need > most for need, most in zip(row.ask.demand, self.largest, strict=True))

    def is_held_back(self, row: Row) -> bool:
        """Return whether a queue's maximum surely lets it have no more."""
        path = self.leaf(row)
        while path:
            held = [h + d for h, d in zip(self.held[path], row.ask.demand, strict=True)]
            if any(self.held[path]) and self.over(held, self.share[path][1], row.ask.demand):
                return True
            path = path.rpartition(".")[0]
        return False

    def at_once(self, row: Row) -> Vector:
        """Return what limits must let it have at once: one container, or all of a gang."""
        if not row.ask.gang:
            return row.ask.demand
        rest = [0.0] * len(self.total)
        for other in self.pending_rows.values():
            if (other.app, other.ask.stage) == (row.app, row.ask.stage):
                rest = [r + other.pending * d for r, d in zip(rest, other.ask.demand, strict=True)]
        return tuple(rest)


def label_fits(label: str, node: NodeSpec) -> bool:
    """Return whether a node has the label that is needed, or none where none is."""
    return label in node.labels if label else not node.labels


def place_fits(ask: Ask, node: NodeSpec) -> bool:
    """Return whether a node is one that a strict ask names."""
    return not ask.strict or node.node_id in ask.nodes or node.rack in ask.racks


def prefers(ask: Ask) -> bool:
    """Return whether it would rather be somewhere, and may be elsewhere."""
    return bool((ask.nodes or ask.racks) and not ask.strict)


def parting(one: str, other: str) -> tuple[str, str]:
    """Return the queues above (or at) two leaves at which their ways part; empty: the same leaf."""
    first, second = one.split("."), other.split(".")
    for depth, (a, b) in enumerate(zip(first, second, strict=False), start=1):
        if a != b:
            return ".".join(first[:depth]), ".".join(second[:depth])
    return "", ""
