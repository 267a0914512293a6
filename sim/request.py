"""What is asked of `weft simulate`."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Request:
    """The command line of one run."""

    workload: tuple[str, ...]
    cluster: str
    scheduler: str = "capacity"
    matcher: str = ""
    planner: str = ""
    asker: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0
    out: str = ""
    format: str = "auto"
    jobs_max: int = 0
    estimate_error: str = ""
    load: float = 1.0
    arrivals: str = "file"
    checks: bool = False
    decisions: bool = False
    report: bool = False
    faults: str = ""
    pace: str = "yarn"
    until_s: float = float("inf")
    parquet: bool = False
    trace: str = ""
    members: int = 1
