"""What a simulation is told."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nm.settings import NodeSettings
from sim.faults import NO_FAULTS, Faults
from weft.presets import Preset, preset


@dataclass(frozen=True, slots=True)
class SimSettings:
    """One run's settings; the same settings, cluster, jobs and seed give the same run.

    `skip_idle` leaves out heartbeats that would change nothing (`sim.idle`): the result is the
    same, only faster. `manager` and `master` override fields of the roles' own settings.
    """

    scheduler: Preset = field(default_factory=lambda: preset("capacity"))
    seed: int = 0
    prompt: bool = False
    skip_idle: bool = True
    checks: bool = False  # every checker after every event: slow
    check_every: int = 1  # with `checks`: cores check their own books after so many events
    faults: Faults = NO_FAULTS
    node: NodeSettings = field(default_factory=NodeSettings)
    manager: Mapping[str, Any] = field(default_factory=dict)
    master: Mapping[str, Any] = field(default_factory=dict)
    until_s: float = float("inf")
