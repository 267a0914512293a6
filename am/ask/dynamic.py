"""`dynamic`: Spark's dynamic allocation (DRS): by waiting tasks alone, never by utilisation."""

import math
from collections.abc import Mapping

import numpy as np

from am.ask.holding import Filling, idle_containers, parts, useless
from am.ask.view import HoldView, HoldWish


class Dynamic:
    """Adds 1, 2, 4, ... containers while tasks have waited for `backlog_s`, up to what they need.

    Containers idle for `idle_s` are given back. Defaults are Spark's.
    """

    def __init__(
        self,
        container: Mapping[str, float] | float = 0.25,
        initial: int = 1,
        backlog_s: float = 1.0,
        idle_s: float = 60.0,
        wait_s: float = 3.0,
    ) -> None:
        self.container = container
        self.over_estimate = 0.0
        self._target = int(initial)
        self._backlog_s = float(backlog_s)
        self._idle_s = float(idle_s)
        self._wait_s = float(wait_s)
        self._add = 1
        self._next_addition_s: float | None = None

    def hold(self, view: HoldView, now: float, rng: np.random.Generator) -> HoldWish:
        """Fill containers, follow the backlog, give back what idled long enough."""
        filling = Filling(now, 0.0, 1.0, self._wait_s, fixed=True)
        filling.fill(view, view.containers)
        waits = [filling.wakes_in_s(), self._follow_backlog(view, filling, now)]
        idle = idle_containers(view, filling.used)
        back = useless(view, idle)
        for container in idle:
            left_s = container.idle_since_s + self._idle_s - now
            if left_s > 1e-9:
                waits.append(left_s)
            elif container.container_id not in back and not filling.left:
                back.append(container.container_id)
                self._target = max(1, min(self._target, len(view.containers) - len(back)))
        wake = min((w for w in waits if w is not None), default=None)
        return HoldWish(self._target, filling.start, back, wake)

    def _follow_backlog(self, view: HoldView, filling: Filling, now: float) -> float | None:
        """Raise the target when tasks waited long enough; return when to look again."""
        if not filling.left:
            self._add, self._next_addition_s = 1, None
            return None
        if self._next_addition_s is None:
            self._next_addition_s = now + self._backlog_s
        elif now >= self._next_addition_s - 1e-9:
            needed = sum(1 for c in view.containers if c.busy or c.container_id in filling.used)
            needed += self._needed(view, filling)
            self._target = max(1, min(max(self._target, len(view.containers)) + self._add, needed))
            self._add *= 2
            self._next_addition_s = now + self._backlog_s
        return self._next_addition_s - now

    def _needed(self, view: HoldView, filling: Filling) -> int:
        """Return containers that the tasks left would fill."""
        totals = [0.0] * len(view.size)
        counts = {task.key: task.tasks for task in filling.left}
        for task in view.waiting:
            need = parts(task.group.demand, view.size)
            count = counts.get(task.group.number, 0)
            totals = [t + n * count for t, n in zip(totals, need, strict=True)]
        return math.ceil(max(totals, default=0.0) - 1e-9)
