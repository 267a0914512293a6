"""The cluster's clock: seconds since an epoch that all processes share, faster by `time_scale`."""

import math
import time

TICKS_PER_S = 1 << 14


class Clock:
    """`now()` is `(unix time - epoch_s) * time_scale`, and never goes back.

    It goes in steps of 1/2^14 s, 61 microseconds: times and their differences are exact and short,
    on tapes too.

    `epoch_s` is unix time in s; a delay on the cluster's clock lasts `delay_s / time_scale` here.
    """

    __slots__ = ("_base_s", "time_scale")

    def __init__(self, epoch_s: float = 0.0, time_scale: float = 1.0) -> None:
        self.time_scale = time_scale
        # The monotonic clock is the same in all processes of a host and is never set back.
        self._base_s = time.time() - time.monotonic() - epoch_s

    def now(self) -> float:
        """Return the time on the cluster's clock, s."""
        now_s = (time.monotonic() + self._base_s) * self.time_scale
        return math.floor(now_s * TICKS_PER_S) / TICKS_PER_S

    def wall_s(self, delay_s: float) -> float:
        """Return how long a delay on the cluster's clock lasts on the wall clock, s."""
        return delay_s / self.time_scale
