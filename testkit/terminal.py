"""For tests only: a command in a terminal of its own (a pty), as a person runs it."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

PATIENCE_S = 120.0


def in_terminal(
    arguments: Sequence[str],
    folder: Path,
    *,
    columns: int = 80,
    environment: Mapping[str, str] | None = None,
    interrupt_at: str = "",
    times: int = 1,
) -> tuple[int, str]:
    """Run `weft` with a terminal; returns its exit code and all that the terminal was sent.

    `interrupt_at`: press Ctrl-C when this text has come, so many `times`.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "weft", *arguments],
        cwd=folder,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        # Only this makes the pty the terminal that Ctrl-C is typed into.
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509
        env={**os.environ, "TERM": "xterm-256color", **(environment or {})},
    )
    os.close(theirs)
    sent, until = b"", time.monotonic() + PATIENCE_S
    try:
        while time.monotonic() < until:
            if not select.select([ours], [], [], 1.0)[0]:
                continue
            try:
                data = os.read(ours, 65536)
            except OSError:
                # The terminal's other end is closed, so the command has ended.
                break
            if not data:
                break
            sent += data
            if interrupt_at and interrupt_at.encode() in sent:
                interrupt_at = ""
                os.write(ours, b"\x03" * times)
        return process.wait(timeout=PATIENCE_S), sent.decode("utf-8", "replace")
    finally:
        process.kill()
        process.wait()
        os.close(ours)
