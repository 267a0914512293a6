"""What a master is configured with."""

from collections.abc import Callable
from dataclasses import dataclass, field

from am.estimates import EstimateSettings, History
from am.task_groups import GroupLimits
from weft.model.json_types import Options


@dataclass(frozen=True, slots=True)
class MasterSettings:
    """Times in s on the cluster's clock.

    `planner` may be empty: breadth first order without a placement. After `plan_wait_s` without a
    plan the master asks breadth first and adopts the plan when it comes. `resend_s` is the time
    after which something unanswered is sent again. A node is avoided after `node_failures_max`
    failed tasks, unless more than `avoided_share_max` of the nodes would be. What an earlier
    attempt left running is waited for for `takeover_wait_s`, then given back. A job of which nodes
    start nothing for `refused_wait_s`, for want of tokens, has failed. With `speculate`, a
    task that runs `straggler_factor` times longer than expected gets a second copy once nothing
    else of its stage waits and `straggler_finished_min` of the stage is done.

    `buggify` takes rare paths on purpose (`weft.protocol.buggify`). `lossless` links lose and delay
    nothing, so nothing is acknowledged.
    """

    planner: str = "bfs"
    planner_options: Options = field(default_factory=dict)
    plan_wait_s: float = 120.0
    address: str = ""
    resend_s: float = 3.0
    groups: GroupLimits = field(default_factory=GroupLimits)
    estimates: EstimateSettings = field(default_factory=EstimateSettings)
    history: History = field(default_factory=dict)
    node_failures_max: int = 3
    avoided_share_max: float = 0.33
    takeover_wait_s: float = 10.0
    refused_wait_s: float = 600.0
    # A task may end with its node so many times; 0 means any number.
    node_ends_max: int = 4
    # A node that ends later after the task's start ended by itself.
    node_ends_within_s: float = 3600.0
    speculate: bool = False
    buggify: Callable[[str], bool] | None = None
    lossless: bool = False
    straggler_factor: float = 1.5
    straggler_finished_min: float = 0.75
