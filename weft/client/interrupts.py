"""A command says what a Ctrl-C leaves behind: jobs go on without the command that waited."""

import signal
import sys
import threading
from collections.abc import Sequence

from weft.model.errors import WeftError

SHOWN = 5
# Native code is out of its callback after this time, mostly; else the interrupt comes once more.
RENEWED_AFTER_S = 0.05


class Interrupted(WeftError):
    """A Ctrl-C, and what is left of the work; exit code 130."""

    def __init__(self, left: str) -> None:
        super().__init__(f"interrupted: {left}")


class InterruptedWait(Interrupted):
    """Somebody stopped waiting for these applications."""

    def __init__(self, ids: Sequence[str]) -> None:
        self.ids = tuple(ids)
        some = " ".join(ids[:SHOWN]) + (f" ... {ids[-1]}" if len(ids) > SHOWN else "")
        goes = "goes on; it ends" if len(ids) == 1 else "go on; they end"
        super().__init__(f"{some} {goes} with: weft kill {some.split(' ... ')[0]}")


def renew_lost_interrupts() -> None:
    """Have a Ctrl-C that falls into a callback of native code raise KeyboardInterrupt after it.

    `ctypes` prints an exception of a callback and drops it, as when LLVM tells of a compiled
    kernel; the command would go on.
    """
    report = sys.unraisablehook

    def unraisable(lost: "sys.UnraisableHookArgs") -> None:
        if not issubclass(lost.exc_type, KeyboardInterrupt):
            report(lost)
            return
        main = threading.main_thread().ident
        later = threading.Timer(RENEWED_AFTER_S, signal.pthread_kill, (main, signal.SIGINT))
        later.daemon = True
        later.start()

    sys.unraisablehook = unraisable
