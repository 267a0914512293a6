"""How many files a process has open, of how many it may have: nobody gets in without a free one."""

import os
import resource

NEAR = 0.9  # of the limit: from there on it is told
LOOK_S = 2.0  # wall clock, between two looks


def in_use() -> tuple[int, int]:
    """Return how many descriptors are open, and how many may be."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    try:
        return len(os.listdir("/proc/self/fd")) - 1, most  # without the one that looks
    except FileNotFoundError:
        return 0, most
    except OSError:  # not even one is left to look with
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
