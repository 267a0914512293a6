"""A Ctrl-C is never lost, wherever it falls."""

import subprocess
import sys

CALLBACK = """
import ctypes, signal, time
from weft.client.interrupts import renew_lost_interrupts

signal.signal(signal.SIGINT, signal.default_int_handler)
RENEW
lost = ctypes.CFUNCTYPE(None)(lambda: signal.raise_signal(signal.SIGINT))
try:
    lost()
    time.sleep(5)
except KeyboardInterrupt:
    print("heard")
"""


def test_an_interrupt_that_falls_into_a_native_callback_is_raised_after_it() -> None:
    def printed(renew: str) -> tuple[str, bool]:
        code = CALLBACK.replace("RENEW", renew)
        done = subprocess.run(
            [sys.executable, "-c", code.replace("sleep(5)", "sleep(0.5)") if not renew else code],
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip(), bool(done.stderr)

    assert printed("") == ("", True)
    assert printed("renew_lost_interrupts()") == ("heard", False)
