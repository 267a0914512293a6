"""`disposable`: one task a container of fixed capacity, given back (YARN's and COBRA's Default)."""

from collections.abc import Mapping

import numpy as np

from am.ask.view import JobView, Wanted, Wish


class Disposable:
    """Asks a container of the fixed capacity for every ready task of the groups that changed.

    `container`: its capacity, named amounts or a part of the smallest machine; a task that needs
    more gets what it needs.
    """

    follows_share = False

    def __init__(self, container: Mapping[str, float] | float = 0.25) -> None:
        self.container = container

    def ask(self, view: JobView, now: float, rng: np.random.Generator) -> Wish:
        """Return one row per changed group."""
        return Wish([Wanted(group.number, len(group.ready)) for group in view.changed.values()])
