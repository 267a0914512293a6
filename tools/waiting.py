"""Waiting for a condition, for programs that measure how long it takes."""

import time
from collections.abc import Callable

PATIENCE_S = 300.0


def wait(what: str, done: Callable[[], bool]) -> float:
    """Wait for a condition; returns the s that it took, and ends the program if it never holds."""
    began_s = time.monotonic()
    while not done():
        if time.monotonic() - began_s > PATIENCE_S:
            raise SystemExit(f"never: {what}")
        time.sleep(0.05)
    return time.monotonic() - began_s
