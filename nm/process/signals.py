"""Signals to processes, and how they end by them."""

import contextlib
import os
import signal


def send(group: int, number: signal.Signals) -> None:
    """Send a signal to a process group, if it is there."""
    # A process without a number has not begun.
    if group <= 0:
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def is_there(pid: int) -> bool:
    """Return whether there is a process of a number, be it another one."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def how(code: int) -> str:
    """Return how a process ended, in words; below 0 by a signal."""
    if code == 0:
        return ""
    return f"exit code {code}" if code > 0 else f"ended by {_signal_name(-code)}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
