"""How often something may happen: a bucket of tokens that fills at a steady rate."""

from collections.abc import Callable


class Rate:
    """At most `per_s` a second over time, and `burst` at once; 0 a second: no bound."""

    def __init__(self, per_s: float, burst: float, clock: Callable[[], float]) -> None:
        """`clock` is in s of wall clock."""
        self._per_s = per_s
        self._burst = burst
        self._clock = clock
        self._tokens = burst
        self._at_s = clock()

    def wait_s(self) -> float:
        """Take a token and return 0; without one, return the time until there is one, s."""
        if self._per_s <= 0:
            return 0.0
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._at_s) * self._per_s)
        self._at_s = now
        if self._tokens >= 1:
            self._tokens -= 1
            return 0.0
        return (1 - self._tokens) / self._per_s
