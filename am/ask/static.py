"""`static`: Spark's static allocation (SRS): so many containers, held for the job's life."""

from collections.abc import Mapping

import numpy as np

from am.ask.holding import Filling, idle_containers, useless
from am.ask.view import HoldView, HoldWish


class Static:
    """Holds `containers` containers from the first task to the last.

    `wait_s` is the delay scheduling wait per locality level, whatever a task lasts.
    """

    def __init__(
        self,
        containers: int = 2,
        container: Mapping[str, float] | float = 0.25,
        wait_s: float = 3.0,
    ) -> None:
        self.container = container
        self.over_estimate = 0.0
        self._containers = int(containers)
        self._wait_s = float(wait_s)

    def hold(self, view: HoldView, now: float, rng: np.random.Generator) -> HoldWish:
        """Fill containers; only those too small for what waits are exchanged."""
        filling = Filling(now, 0.0, 1.0, self._wait_s, fixed=True)
        filling.fill(view, view.containers)
        back = useless(view, idle_containers(view, filling.used))
        return HoldWish(self._containers, filling.start, back, filling.wakes_in_s())
