"""What a master is configured with."""

from collections.abc import Callable
from dataclasses import dataclass, field

from am.estimates import History
from weft.model.json_types import Options


@dataclass(frozen=True, slots=True)
class MasterSettings:
    """Times in s on the cluster's clock.

    `planner` may be empty: breadth first order without a placement. After `plan_wait_s` without a
    plan the master asks breadth first and adopts the plan when it comes. `resend_s` is the time
    after which something unanswered is sent again. A node is avoided after `node_failures_max`
    failed tasks, unless most of the nodes would be (`am.failures`). With `speculate`, a task that
    runs much longer than expected gets a second copy (`am.work`).

    `buggify` takes rare paths on purpose (`weft.protocol.buggify`). `lossless` links lose and delay
    nothing, so nothing is acknowledged.
    """

    planner: str = "bfs"
    planner_options: Options = field(default_factory=dict)
    plan_wait_s: float = 120.0
    address: str = ""
    resend_s: float = 3.0
    history: History = field(default_factory=dict)
    node_failures_max: int = 3
    # A task may end with its node so many times; 0 means any number.
    node_ends_max: int = 4
    speculate: bool = False
    buggify: Callable[[str], bool] | None = None
    lossless: bool = False
