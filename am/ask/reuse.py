"""`reuse`: Tez's reuse of containers: a container runs one task of its job after another."""

from collections.abc import Sequence

import numpy as np

from am.ask.holding import Filling, idle_containers, useless
from am.ask.view import HoldView, HoldWish
from am.sizes import UNIFORM
from weft.model.errors import InputError


class Reuse:
    """Asks for a container for every waiting task and runs the next one in what is
    free.

    `container`: one size for all of the job's tasks, p75, p90 or the largest, as Hive on Tez has
    it. A container holds one task at a time and is given back after `idle_s` without one (Tez:
    `tez.am.container.idle.release-timeout-min.millis`). `wait_s` as in `dynamic`.
    """

    def __init__(self, container: str = "p90", idle_s: float = 5.0, wait_s: float = 3.0) -> None:
        if UNIFORM.get(str(container), 0.0) <= 0.0:
            known = ", ".join(name for name, part in UNIFORM.items() if part > 0.0)
            raise InputError("asker.container", f"unknown size {container!r}; known: {known}")
        self.container = container
        self.over_estimate = 0.0
        self._idle_s = float(idle_s)
        self._wait_s = float(wait_s)

    def hold(self, view: HoldView, now: float, rng: np.random.Generator) -> HoldWish:
        """Fill what is idle with a task each; ask for as many more as tasks are left."""
        filling = Filling(now, 0.0, 1.0, self._wait_s, fixed=True, single=True)
        filling.fill(view, view.containers)
        idle = idle_containers(view, filling.used)
        back: list[int] = useless(view, idle)
        waits: list[float | None] = [filling.wakes_in_s()]
        for container in idle:
            left_s = container.idle_since_s + self._idle_s - now
            if container.container_id in back:
                continue
            if left_s > 1e-9:
                waits.append(left_s)
            else:
                back.append(container.container_id)
        kept = len(view.containers) - len(back)
        target = kept + sum(task.tasks for task in filling.left)
        return HoldWish(target, filling.start, back, _first(waits))


def _first(waits: Sequence[float | None]) -> float | None:
    return min((each for each in waits if each is not None), default=None)
