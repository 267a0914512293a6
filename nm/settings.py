"""What a node manager may be told to do differently."""

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
    register_retry_s: float = 2.0
    resend_after_s: float = 3.0  # an unacknowledged report is repeated
    tombstone_s: float = 600.0  # how long an ended container is remembered
    remote_resource: str = "network_mbps"
    remote_amount: float = 0.0  # what a task whose input is remote uses of it on top, and ...
    remote_of: str = "disk_mbps"  # ... as much as it uses of this: what it reads comes from afar
    speed: float = 1.0  # emulated tasks last their duration over it; planners are told of it
    start_up_s: float = 0.0  # mean time of a new container before its first task, emulated ...
    start_up_cov: float = 0.0  # ... and its coefficient of variation, log-normal
    straggler_share: float = 0.0  # of the emulated tasks last ...
    straggler_factor: float = 3.0  # ... so many times as long
    failure_share: float = 0.0  # of the tries of emulated tasks fail, anywhere in their run
    buggify: Callable[[str], bool] | None = None  # rare paths on purpose (`weft.protocol.buggify`)
    lossless: bool = False  # links lose and delay nothing, so nothing is acknowledged
    lease: bool = True  # start nothing when no report was answered for the manager's expiry
    report_use: bool = True  # heartbeats carry the node's measured use when it changed
