"""The settings of a node manager."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class Mode(StrEnum):
    """Emulated: tasks are timers that contend. Process: tasks are commands."""

    EMULATED = "emulated"
    PROCESS = "process"


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """One node's settings; times in s on the cluster's clock."""

    mode: Mode = Mode.EMULATED
    # An unanswered registration is repeated after so long, s.
    register_retry_s: float = 2.0
    # An unacknowledged report is sent again after so long, s.
    resend_after_s: float = 3.0
    # An ended container is remembered for so long, s.
    tombstone_s: float = 600.0
    # Emulated tasks last their duration divided by it; planners know it.
    speed: float = 1.0
    # A new emulated container takes so long on average before its first task, s.
    start_up_s: float = 0.0
    # The coefficient of variation of that time, which is log-normal.
    start_up_cov: float = 0.0
    # The share of emulated tasks that straggle.
    straggler_share: float = 0.0
    # A straggler lasts so many times as long.
    straggler_factor: float = 3.0
    # The share of tries of emulated tasks that fail, anywhere in their run.
    failure_share: float = 0.0
    # Takes rare paths on purpose (`weft.protocol.buggify`).
    buggify: Callable[[str], bool] | None = None
    # Links lose and delay nothing, so nothing is acknowledged.
    lossless: bool = False
    # Start nothing when no report was answered for the manager's expiry.
    lease: bool = True
    # Heartbeats name the tasks that began; a simulation has nobody who looks.
    report_tasks: bool = False
