"""`all_ready`: every task that may start is asked for, as Tez does on YARN."""

import numpy as np

from am.ask.view import JobView, Wanted, Wish


class AllReady:
    """Asks DEFAULT containers for every ready task of the lots that changed."""

    follows_share = False

    def ask(self, view: JobView, now: float, rng: np.random.Generator) -> Wish:
        """One row per changed lot."""
        return Wish([Wanted(lot.number, len(lot.ready)) for lot in view.changed.values()])
