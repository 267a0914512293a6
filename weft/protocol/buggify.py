"""Rare but legal paths, taken on purpose: a late answer, a refused start, an early expiry.

A core asks its `buggify` setting by the name of a point; only the fault search sets it, so in
service every point is one comparison with None (the idea is FoundationDB's).
"""

from collections import Counter

import numpy as np

# Drawing random numbers in blocks costs far less than one by one.
_BLOCK = 256


class Buggify:
    """Says at each point whether to take the rare path, with probability `chance`."""

    __slots__ = ("_chance", "_draws", "_rng", "taken")

    def __init__(self, rng: np.random.Generator, chance: float) -> None:
        self._rng = rng
        self._chance = chance
        self._draws: list[float] = []
        self.taken: Counter[str] = Counter()

    def stop(self) -> None:
        """Take no rare path from now on."""
        self._chance = 0.0

    def __call__(self, point: str) -> bool:
        """Return whether to take the rare path here, now."""
        if not self._draws:
            self._draws = self._rng.random(_BLOCK).tolist()
        if self._draws.pop() >= self._chance:
            return False
        self.taken[point] += 1
        return True
