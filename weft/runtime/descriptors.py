"""How many files a process has open, of how many it may have: nobody gets in without a free one."""

import os
import resource

# From this fraction of the limit on, a process warns.
NEAR = 0.9
LOOK_S = 2.0


def in_use() -> tuple[int, int]:
    """Return how many descriptors are open, and how many may be."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    try:
        # The descriptor with which the folder is read does not count.
        return len(os.listdir("/proc/self/fd")) - 1, most
    except FileNotFoundError:
        return 0, most
    except OSError:
        # No descriptor is left to read the folder with.
        return most, most


class Descriptors:
    """Says when they run out, and when there are enough again: once each."""

    def __init__(self) -> None:
        self._short = False

    def judge(self, used: int, most: int) -> str:
        """Return what is to be said of so many in use: `short`, `enough`, or nothing."""
        short = most > 0 and used > NEAR * most
        if short is self._short:
            return ""
        self._short = short
        return "short" if short else "enough"
