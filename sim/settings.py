"""The settings of a simulation."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from am.settings import MasterSettings
from nm.settings import NodeSettings
from rm.settings import ManagerSettings
from sim.faults import NO_FAULTS, Faults
from weft.model.errors import InputError
from weft.model.json_types import Arguments, Options, Table
from weft.policies.parameters import read_parameter, read_parameters
from weft.policies.presets import Preset, preset


@dataclass(frozen=True, slots=True)
class SimSettings:
    """One run's settings; the same settings, cluster, jobs and seed give the same run.

    `skip_idle` leaves out heartbeats that would change nothing (`sim.heartbeat_elision`) and, as
    then no message is lost, acknowledgements: the result is the same, only faster. `manager` and
    `master` override fields of the roles' own settings.

    With `checks`, every checker runs after every event, which is slow, and cores check their own
    books after every `check_every` events. More than `events_max` events are a storm that never
    ends.
    """

    scheduler: Preset = field(default_factory=lambda: preset("capacity"))
    seed: int = 0
    prompt: bool = False
    skip_idle: bool = True
    checks: bool = False
    check_every: int = 1
    faults: Faults = NO_FAULTS
    node: NodeSettings = field(default_factory=NodeSettings)
    manager: Table = field(default_factory=dict)
    master: Table = field(default_factory=dict)
    until_s: float = float("inf")
    events_max: float = float("inf")


def manager_settings(settings: SimSettings, *, lossless: bool = False) -> ManagerSettings:
    """Return the Resource Manager's settings in a simulation."""
    base = ManagerSettings(
        prompt=settings.prompt, recovery=settings.faults.restarts, lossless=lossless
    )
    return replace(base, **settings.manager)


def master_settings(settings: SimSettings, *, lossless: bool = False) -> MasterSettings:
    """Return a master's settings in a simulation."""
    chosen = settings.scheduler
    base = MasterSettings(
        planner=chosen.planner, planner_options=chosen.planner_options, lossless=lossless
    )
    return replace(base, **settings.master)


_ROLES: Mapping[str, type] = {
    "manager": ManagerSettings,
    "master": MasterSettings,
    "node": NodeSettings,
}
# Settings that have a flag of their own, or that the scheduler's preset holds.
ELSEWHERE = {
    "manager": (
        "prompt",
        "recovery",
        "buggify",
        "lossless",
        "nodes_return",
        "min_demand",
        "master_demand",
        "member",
        "members",
    ),
    "master": ("planner", "planner_options", "history", "address", "buggify", "lossless"),
    "node": ("mode", "launch", "buggify", "lossless", "lease", "report_tasks"),
}
# What a master holds is set by resource, as of a live manager.
OF_MASTER = {"master_vcores": "vcores", "master_memory_mb": "memory_mb"}
_ABOVE_ZERO = (
    "heartbeat_s",
    "master_heartbeat_s",
    "resend_after_s",
    "resend_s",
    "speed",
    "node_expiry_s",
    "master_expiry_s",
)
# A clock that hardly moves between two events would never get anywhere.
_INTERVAL_MIN_S = 0.001


def role_settings(role: str, given: Options) -> Arguments:
    """Return a role's settings from names and texts; raises InputError for a wrong one."""
    for key in given:
        if key.partition(".")[0] in ELSEWHERE[role]:
            raise InputError(
                f"--set {role}.{key}", "is not set here: it follows from other options"
            )
    texts = dict(given)
    master = {
        resource: _amount(texts.pop(name), f"--set {role}.{name}")
        for name, resource in OF_MASTER.items()
        if role == "manager" and name in texts
    }
    read = read_parameters(_ROLES[role], texts, f"--set {role}")
    if master:
        read["master_demand"] = {**ManagerSettings().master_demand, **master}
    for name, value in read.items():
        place = f"--set {role}.{name}"
        if name in _ABOVE_ZERO and not value > 0:
            raise InputError(place, f"expected a positive number, got {value}")
        if name in _ABOVE_ZERO and name != "speed" and value < _INTERVAL_MIN_S:
            raise InputError(place, f"expected at least {_INTERVAL_MIN_S} s, got {value}")
        if isinstance(value, int | float) and not isinstance(value, bool) and value < 0:
            raise InputError(place, f"expected a number from 0, got {value}")
        if name == "max_attempts" and not 1 <= value <= 255:
            raise InputError(place, f"expected a whole number from 1 to 255, got {value}")
        if role == "node" and name.endswith("_share") and value > 1:
            raise InputError(place, f"expected a number from 0 to 1, got {value}")
        if name.endswith("_share_max") and not 0 < value <= 1:
            raise InputError(place, f"expected a number above 0, at most 1, got {value}")
    return read


def _amount(value: object, place: str) -> float:
    amount = read_parameter("", 0.0, value, place)
    assert isinstance(amount, float)
    if not 0 <= amount < math.inf:
        raise InputError(place, f"expected a number from 0, got {value!r}")
    return amount
