"""`all_ready`: every task that may start is asked for, as Tez does on YARN."""

import numpy as np

from am.ask.view import JobView, Wanted, Wish
from am.sizes import UNIFORM
from weft.model.errors import InputError


class AllReady:
    """Asks DEFAULT containers for every ready task of the groups that changed.

    `container`: `task`, each task's own demand, or one size for all tasks of the job, as Hive on
    Tez has it (`am.sizes.uniform_size`): `p75`, `p90` or `largest`. `sees`: the resources that are
    asked for, as `cpu,memory`; empty: all. Rigid resources are always asked for.
    """

    follows_share = False

    def __init__(self, container: str = "task", sees: str = "") -> None:
        if container not in UNIFORM:
            known = ", ".join(UNIFORM)
            raise InputError("asker.container", f"unknown size {container!r}; known: {known}")
        self.container = container
        self.sees = tuple(name.strip() for name in sees.split(",") if name.strip())

    def ask(self, view: JobView, now: float, rng: np.random.Generator) -> Wish:
        """Return one row per changed group."""
        return Wish([Wanted(group.number, len(group.ready)) for group in view.changed.values()])
