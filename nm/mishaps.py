"""What emulated tasks suffer beyond their own duration: start-up, straggling, failures.

Drawn by job, task and attempt, never by node or time, so that the same task suffers the same under
every scheduler and a comparison stays paired.
"""

from math import exp, log, sqrt

import numpy as np

from nm.settings import NodeSettings
from weft.model.ids import attempt_of_container, number_of_container
from weft.protocol.messages import TaskLaunch

FAILED_BY_CHANCE = "failed by chance (node.failure_share)"


class Mishaps:
    """The distributions of `NodeSettings`."""

    __slots__ = ("_factor", "_failure", "_mean_s", "_sigma", "_speed", "_straggler")

    def __init__(self, settings: NodeSettings) -> None:
        self._mean_s = settings.start_up_s
        self._sigma = sqrt(log(1.0 + settings.start_up_cov**2))
        self._straggler = settings.straggler_share
        self._factor = settings.straggler_factor
        self._failure = settings.failure_share
        self._speed = settings.speed

    @property
    def any(self) -> bool:
        """Whether anything can happen."""
        return self._mean_s > 0 or self._straggler > 0 or self._failure > 0

    def of(self, item: TaskLaunch, fresh: bool) -> tuple[float, bool]:
        """Return how long a task lasts, s, and whether it fails then.

        `fresh`: it is the first in its container, which has to start up before (log-normal).
        """
        owner, task = attempt_of_container(item.container_id), item.task
        # A task of a foreign master has no number, so its container's takes the place.
        if task < 0:
            task = number_of_container(item.container_id)
        rng = np.random.default_rng((owner, max(item.stage, 0), task, item.attempt))
        slow, fail, part = rng.random(3).tolist()
        lasts_s = item.duration_s * (self._factor if slow < self._straggler else 1.0) / self._speed
        fails = fail < self._failure
        if fails:
            lasts_s *= part
        if fresh and self._mean_s > 0:
            sigma = self._sigma
            lasts_s += self._mean_s * exp(sigma * float(rng.standard_normal()) - sigma**2 / 2)
        return lasts_s, fails
