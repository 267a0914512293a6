"""Faults as a script: what breaks when, and for how long; or drawn at random from a seed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

import numpy as np

from sim.network import LinkSettings
from weft.effects import SetTimer, Started
from weft.errors import InputError
from weft.ids import NodeId
from weft.reading import read_integer, read_table, read_text
from weft.resources import read_amount


class FaultKind(StrEnum):
    """What can break."""

    CRASH = "crash"  # nodes lose all that runs on them, and come back empty after `for_s`
    SLOW = "slow"  # nodes run at `speed` for `for_s`
    PARTITION = "partition"  # nobody reaches the nodes for `for_s`; what runs there runs on
    LOSE_MASTER = "lose_master"  # a job's master dies
    RESTART_MANAGER = "restart_manager"  # the Resource Manager is gone for `for_s`
    DECOMMISSION = "decommission"  # an operator drains nodes, and takes them back after `for_s`
    RECOMMISSION = "recommission"  # an operator takes nodes back


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault; `for_s` 0 is for ever (for a restart: at once back)."""

    at_s: float
    kind: FaultKind
    nodes: tuple[str, ...] = ()
    job: int = 0  # place in the workload, for LOSE_MASTER
    for_s: float = 0.0
    speed: float = 1.0
    timeout_s: float = -1.0  # of a decommission: what runs then is stopped; below 0: never


@dataclass(frozen=True, slots=True)
class Faults:
    """A script and how the links behave."""

    script: tuple[Fault, ...] = ()
    network: LinkSettings = field(default_factory=LinkSettings)

    @property
    def restarts(self) -> bool:
        """Whether the Resource Manager is restarted, so that it must keep records."""
        return any(fault.kind is FaultKind.RESTART_MANAGER for fault in self.script)


NO_FAULTS = Faults()
REPEAT = "repeat"  # key of the timer after which an operator's order is given again


def faults_from_dict(data: object, nodes: Sequence[str], jobs: int) -> Faults:
    """Read `{network: {...}, faults: [{at_s, fault, ...}]}`; raises InputError with the place."""
    table = read_table(data, "faults", {"network", "faults"})
    rows = table.get("faults", [])
    if not isinstance(rows, list):
        raise InputError("faults", "expected a list of faults")
    known = set(nodes)
    script = [_fault(row, f"faults[{i}]", known, jobs) for i, row in enumerate(rows)]
    return Faults(tuple(sorted(script, key=lambda f: f.at_s)), _links(table.get("network", {})))


def _links(data: object) -> LinkSettings:
    keys = {"delay_s_min", "delay_s_max", "loss", "duplicate"}
    table = read_table(data, "network", keys)
    return LinkSettings(**{key: read_amount(v, f"network.{key}") for key, v in table.items()})


def _fault(data: object, place: str, known: set[str], jobs: int) -> Fault:
    table: Mapping[str, Any] = read_table(
        data, place, {"at_s", "fault", "node", "nodes", "job", "for_s", "speed", "timeout_s"}
    )
    kind = read_text(table.get("fault"), f"{place}.fault")
    if kind not in {k.value for k in FaultKind}:
        names = ", ".join(k.value for k in FaultKind)
        raise InputError(f"{place}.fault", f"unknown fault {kind!r}; known: {names}")
    named = table.get("nodes", [table["node"]] if "node" in table else [])
    if not isinstance(named, list):
        raise InputError(f"{place}.nodes", "expected a list of node names")
    nodes = tuple(read_text(name, f"{place}.nodes") for name in named)
    for name in nodes:
        if name not in known:
            raise InputError(f"{place}.nodes", f"unknown node {name!r}")
    if kind not in (FaultKind.LOSE_MASTER, FaultKind.RESTART_MANAGER) and not nodes:
        raise InputError(f"{place}.nodes", f"a {kind} needs at least one node")
    return Fault(
        at_s=read_amount(table.get("at_s", 0.0), f"{place}.at_s"),
        kind=FaultKind(kind),
        nodes=nodes,
        job=read_integer(table.get("job", 0), f"{place}.job", 0, max(0, jobs - 1)),
        for_s=read_amount(table.get("for_s", 0.0), f"{place}.for_s"),
        speed=read_amount(table.get("speed", 1.0), f"{place}.speed"),
        timeout_s=(
            read_amount(table["timeout_s"], f"{place}.timeout_s") if "timeout_s" in table else -1.0
        ),
    )


_BREAKS = tuple(k for k in FaultKind if k not in (FaultKind.DECOMMISSION, FaultKind.RECOMMISSION))


def random_faults(seed: int, nodes: Sequence[str], jobs: int, horizon_s: float) -> Faults:
    """A few faults of every kind and bad links; all end in time, so that the jobs can end too."""
    rng = np.random.default_rng([seed, 11])
    script: list[Fault] = []

    def some() -> tuple[str, ...]:
        count = int(rng.integers(1, max(2, len(nodes) // 4 + 1)))
        return tuple(nodes[int(i)] for i in sorted(rng.choice(len(nodes), count, replace=False)))

    for kind in _BREAKS:
        for _ in range(int(rng.integers(0, 3))):
            fault = Fault(
                at_s=float(rng.random() * horizon_s),
                kind=kind,
                nodes=some() if kind not in (FaultKind.LOSE_MASTER,) else (),
                job=int(rng.integers(0, max(1, jobs))),
                for_s=float(rng.random() * horizon_s / 4 + 0.1),
                speed=float(rng.uniform(0.2, 0.9)),
            )
            script.append(fault)
    delay_s = float(rng.random() * 0.2)
    network = LinkSettings(0.0, delay_s, float(rng.random() * 0.1), float(rng.random() * 0.1))
    for _ in range(int(rng.integers(0, 4))):  # last, so that older seeds break what they broke
        drained = Fault(
            at_s=float(rng.random() * horizon_s),
            kind=FaultKind.DECOMMISSION,
            nodes=some(),
            for_s=float(rng.random() * horizon_s / 2 + 0.1),
            timeout_s=float(rng.choice([-1.0, 0.0, rng.random() * horizon_s / 4])),
        )
        script.append(drained)
    return Faults(tuple(sorted(script, key=lambda f: f.at_s)), network)


class Breakable(Protocol):
    """What can be done to a simulated cluster."""

    @property
    def faults(self) -> Faults:
        """The script."""

    def crash_node(self, node: NodeId) -> None:
        """A node vanishes with all that runs there."""

    def back(self, node: NodeId) -> None:
        """It returns, empty."""

    def slow(self, node: NodeId, speed: float) -> None:
        """A node becomes a straggler."""

    def cut(self, nodes: Iterable[NodeId]) -> None:
        """A partition begins."""

    def heal(self, nodes: Iterable[NodeId]) -> None:
        """It ends."""

    def lose_master(self, number: int) -> None:
        """The master of a job dies."""

    def decommission(self, nodes: Iterable[NodeId], timeout_s: float) -> None:
        """An operator takes nodes out of service."""

    def recommission(self, nodes: Iterable[NodeId]) -> None:
        """An operator puts them back."""

    def give_order(self) -> None:
        """The operator says again what was refused."""

    def stop_manager(self) -> None:
        """The Resource Manager's process is gone."""

    def start_manager(self) -> None:
        """It starts again from what it persisted."""


class Chaos:
    """The actor that breaks things on time; each fault has a timer for its start and its end."""

    def __init__(self, cluster: Breakable) -> None:
        self._cluster = cluster

    def handle(self, event: Any, now: float) -> list[Any]:
        """`Started` sets the timers; a timer's key is (number of the fault, whether it ends)."""
        script = self._cluster.faults.script
        if isinstance(event, Started):
            return [SetTimer(fault.at_s, (n, False)) for n, fault in enumerate(script)]
        if event.key == REPEAT:
            self._cluster.give_order()
            return []
        number, over = event.key
        fault = script[number]
        if over:
            self._end(fault)
        else:
            self._begin(fault)
            if fault.for_s or fault.kind is FaultKind.RESTART_MANAGER:
                return [SetTimer(fault.for_s, (number, True))]
        return []

    def _begin(self, fault: Fault) -> None:
        cluster = self._cluster
        if fault.kind is FaultKind.CRASH:
            for node in fault.nodes:
                cluster.crash_node(node)
        elif fault.kind is FaultKind.SLOW:
            for node in fault.nodes:
                cluster.slow(node, fault.speed)
        elif fault.kind is FaultKind.PARTITION:
            cluster.cut(fault.nodes)
        elif fault.kind is FaultKind.LOSE_MASTER:
            cluster.lose_master(fault.job)
        elif fault.kind is FaultKind.DECOMMISSION:
            cluster.decommission(fault.nodes, fault.timeout_s)
        elif fault.kind is FaultKind.RECOMMISSION:
            cluster.recommission(fault.nodes)
        else:
            cluster.stop_manager()

    def _end(self, fault: Fault) -> None:
        cluster = self._cluster
        if fault.kind is FaultKind.CRASH:
            for node in fault.nodes:
                cluster.back(node)
        elif fault.kind is FaultKind.SLOW:
            for node in fault.nodes:
                cluster.slow(node, 1.0)
        elif fault.kind is FaultKind.PARTITION:
            cluster.heal(fault.nodes)
        elif fault.kind is FaultKind.DECOMMISSION:
            cluster.recommission(fault.nodes)
        elif fault.kind is FaultKind.RESTART_MANAGER:
            cluster.start_manager()
