"""Faults as a script: what breaks when, and for how long; or drawn at random from a seed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import isfinite

import numpy as np

from sim.network import LinkSettings
from weft.model.errors import InputError
from weft.model.json_types import Json, Table
from weft.model.queues import DEFAULT_QUEUES, QueueSpec, queues_from_dict, queues_to_dict
from weft.model.reading import read_integer, read_table, read_text
from weft.model.resources import read_amount


class FaultKind(StrEnum):
    """What can break."""

    # Nodes lose all that runs on them, and come back empty after `for_s`.
    CRASH = "crash"
    # Nodes run at `speed` for `for_s`.
    SLOW = "slow"
    # Nobody reaches the nodes for `for_s`; what runs there runs on.
    PARTITION = "partition"
    # Nodes hear nothing for `for_s`, but are heard.
    DEAF = "deaf"
    # Nodes are not heard for `for_s`, but hear.
    MUTE = "mute"
    # Nodes, and the masters there, stand still for `for_s`, then hear what came.
    PAUSE = "pause"
    # A job's master dies.
    LOSE_MASTER = "lose_master"
    # The Resource Manager is gone for `for_s`.
    RESTART_MANAGER = "restart_manager"
    # The Resource Manager stands still for `for_s`.
    PAUSE_MANAGER = "pause_manager"
    # A manager that must write ends; it comes back after `for_s`.
    DISK_FULL = "disk_full"
    # Processes of nodes (none: the manager) that start later are `step_s` ahead.
    CLOCK = "clock"
    # Nodes' health scripts find fault with them for `for_s`.
    UNHEALTHY = "unhealthy"
    # Earlier messages, `count` of them, arrive once more.
    REPLAY = "replay"
    # Messages arrive, `count` of them, that no honest node or master would send.
    HOSTILE = "hostile"
    # An operator drains nodes, and takes them back after `for_s`.
    DECOMMISSION = "decommission"
    # An operator takes nodes back.
    RECOMMISSION = "recommission"
    # An operator sets other `queues`.
    QUEUES = "queues"
    # The router of members is gone for `for_s`.
    LOSE_ROUTER = "lose_router"
    # What the router has members guarantee queues is lost for `for_s`.
    LOSE_SHARES = "lose_shares"
    # It comes twice, the second time `for_s` later, of what is said within `for_s`.
    REPEAT_SHARES = "repeat_shares"
    # It comes `for_s` late, of what is said within `for_s`.
    DELAY_SHARES = "delay_shares"


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault; `for_s` 0 is for ever (for a restart: at once back).

    `job` is a place in the workload, for LOSE_MASTER. A decommission stops what still runs after
    `timeout_s` (below 0: never), QUEUES sets `queues`. Of several members, what befalls a manager
    befalls that of `member`, from 1. With `effect` of 0 or more a crash comes
    amid the effects of an event, after so many of them, else at once.
    """

    at_s: float
    kind: FaultKind
    nodes: tuple[str, ...] = ()
    job: int = 0
    for_s: float = 0.0
    speed: float = 1.0
    timeout_s: float = -1.0
    effect: int = -1
    step_s: float = 0.0
    count: int = 1
    queues: QueueSpec = DEFAULT_QUEUES
    member: int = 1


@dataclass(frozen=True, slots=True)
class Faults:
    """A script and how the links behave.

    `rare` is how often cores take rare paths (`weft.protocol.buggify`), for the fault search.
    """

    script: tuple[Fault, ...] = ()
    network: LinkSettings = field(default_factory=LinkSettings)
    rare: float = 0.0

    @property
    def restarts(self) -> bool:
        """Whether the Resource Manager is restarted, so that it must keep records."""
        stops = (FaultKind.RESTART_MANAGER, FaultKind.DISK_FULL)
        return any(fault.kind in stops for fault in self.script)


NO_FAULTS = Faults()


def faults_from_dict(data: object, nodes: Sequence[str], jobs: int) -> Faults:
    """Read `{network: {...}, faults: [{at_s, fault, ...}]}`; raises InputError with the place."""
    table = read_table(data, "faults", {"network", "faults", "rare", "fuzz"})
    rows = table.get("faults", [])
    if not isinstance(rows, list):
        raise InputError("faults", "expected a list of faults")
    known = set(nodes)
    script = [_fault(row, f"faults[{i}]", known, jobs) for i, row in enumerate(rows)]
    links, rare = _links(table.get("network", {})), read_amount(table.get("rare", 0.0), "rare")
    return Faults(tuple(sorted(script, key=lambda f: f.at_s)), links, rare)


def faults_to_dict(faults: Faults) -> Json:
    """Return the document that `faults_from_dict` reads."""
    links = faults.network
    named = ("delay_s_min", "delay_s_max", "loss", "duplicate")
    network = {name: getattr(links, name) for name in named if getattr(links, name)}
    rows = []
    for fault in faults.script:
        row: Json = {"at_s": fault.at_s, "fault": fault.kind.value}
        if fault.nodes:
            row["nodes"] = list(fault.nodes)
        row.update({name: getattr(fault, name) for name in _USED.get(fault.kind, ("for_s",))})
        if fault.kind is FaultKind.QUEUES:
            row["queues"] = queues_to_dict(fault.queues)
        if fault.member > 1:
            row["member"] = fault.member
        if fault.effect >= 0:
            row["effect"] = fault.effect
        rows.append(row)
    found: Json = {"network": network} if network else {}
    return {**found, **({"rare": faults.rare} if faults.rare else {}), "faults": rows}


_USED: Mapping[FaultKind, tuple[str, ...]] = {
    FaultKind.SLOW: ("for_s", "speed"),
    FaultKind.LOSE_MASTER: ("job",),
    FaultKind.CLOCK: ("step_s",),
    FaultKind.REPLAY: ("count",),
    FaultKind.HOSTILE: ("count",),
    FaultKind.DECOMMISSION: ("for_s", "timeout_s"),
    FaultKind.RECOMMISSION: (),
    FaultKind.QUEUES: (),
}
_ANYWHERE = (
    FaultKind.LOSE_MASTER,
    FaultKind.RESTART_MANAGER,
    FaultKind.PAUSE_MANAGER,
    FaultKind.DISK_FULL,
    FaultKind.CLOCK,
    FaultKind.REPLAY,
    FaultKind.HOSTILE,
    FaultKind.QUEUES,
    FaultKind.LOSE_ROUTER,
    FaultKind.LOSE_SHARES,
    FaultKind.REPEAT_SHARES,
    FaultKind.DELAY_SHARES,
)
# They befall what is between members, and nothing where there is one.
OF_ROUTER = (
    FaultKind.LOSE_ROUTER,
    FaultKind.LOSE_SHARES,
    FaultKind.REPEAT_SHARES,
    FaultKind.DELAY_SHARES,
)


def _links(data: object) -> LinkSettings:
    keys = {"delay_s_min", "delay_s_max", "loss", "duplicate"}
    table = read_table(data, "network", keys)
    return LinkSettings(**{key: read_amount(v, f"network.{key}") for key, v in table.items()})


def _fault(data: object, place: str, known: set[str], jobs: int) -> Fault:
    table: Table = read_table(
        data,
        place,
        {
            "at_s",
            "fault",
            "node",
            "nodes",
            "job",
            "for_s",
            "speed",
            "timeout_s",
            "effect",
            "step_s",
            "count",
            "queues",
            "member",
        },
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
    if kind not in _ANYWHERE and not nodes:
        raise InputError(f"{place}.nodes", f"a {kind} needs at least one node")
    return Fault(
        at_s=read_amount(table.get("at_s", 0.0), f"{place}.at_s"),
        kind=FaultKind(kind),
        nodes=nodes,
        job=read_integer(table.get("job", 0), f"{place}.job", 0, max(0, jobs - 1)),
        for_s=read_amount(table.get("for_s", 0.0), f"{place}.for_s"),
        speed=read_amount(table.get("speed", 1.0), f"{place}.speed"),
        timeout_s=(
            _timeout(table["timeout_s"], f"{place}.timeout_s") if "timeout_s" in table else -1.0
        ),
        effect=read_integer(table.get("effect", -1), f"{place}.effect", -1, 1000),
        step_s=_number(table.get("step_s", 0.0), f"{place}.step_s"),
        count=read_integer(table.get("count", 1), f"{place}.count", 1, 10_000),
        queues=(
            queues_from_dict(table["queues"], f"{place}.queues")
            if "queues" in table
            else DEFAULT_QUEUES
        ),
        member=read_integer(table.get("member", 1), f"{place}.member", 1, 1000),
    )


def _timeout(value: object, place: str) -> float:
    """Return a time from 0 on, s, or -1 for never."""
    found = _number(value, place)
    if found < 0 and found != -1:
        raise InputError(place, f"expected a time from 0 on, or -1 for never, got {found:g}")
    return found


def _number(data: object, place: str) -> float:
    """Return a finite number of either sign."""
    if isinstance(data, bool) or not isinstance(data, int | float) or not isfinite(data):
        raise InputError(place, f"{data!r} is not a number")
    return float(data)


_BREAKS = (
    FaultKind.CRASH,
    FaultKind.SLOW,
    FaultKind.PARTITION,
    FaultKind.LOSE_MASTER,
    FaultKind.RESTART_MANAGER,
)


def random_faults(seed: int, nodes: Sequence[str], jobs: int, horizon_s: float) -> Faults:
    """Return a few faults of every kind and bad links; all end in time, so that jobs can end."""
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
    # These are drawn last, so that older seeds break what they broke.
    for _ in range(int(rng.integers(0, 4))):
        drained = Fault(
            at_s=float(rng.random() * horizon_s),
            kind=FaultKind.DECOMMISSION,
            nodes=some(),
            for_s=float(rng.random() * horizon_s / 2 + 0.1),
            timeout_s=float(rng.choice([-1.0, 0.0, rng.random() * horizon_s / 4])),
        )
        script.append(drained)
    return Faults(tuple(sorted(script, key=lambda f: f.at_s)), network)
