"""Whether a host is fit for work, as a script of its owner says: YARN's health checker.

A line of the script's output that begins with ERROR makes the node unhealthy, and so does a script
that takes longer than its time or cannot be run. An exit code alone does not, as it may be the
script's own mistake (YARN's NodeHealthScriptRunner).
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from weft.model.errors import InputError

ERROR = b"ERROR"
REPORT_MAX = 1_000  # characters
CHUNK = 64 * 1024  # bytes that are read at a time
RUNNING: set[int] = set()  # processes of scripts
LINE_MAX = 4 * REPORT_MAX  # bytes that are kept of a line: the most that so many characters take


def check_script(script: Path) -> None:
    """Raise InputError where a script could not be run at all."""
    if not script.is_file() or not os.access(script, os.X_OK):
        raise InputError("health_script", f"{script} is no file that may be executed")


async def examine(
    script: Path, arguments: Sequence[str], timeout_s: float, environment: Mapping[str, str]
) -> str:
    """Run a script once, for at most `timeout_s` of wall-clock time.

    Return why the node is unhealthy, or nothing where it is healthy.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            str(script.absolute()),
            *arguments,
            env=environment,
            start_new_session=True,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError as error:
        return f"the health script cannot be run: {error.strerror or error}"
    RUNNING.add(process.pid)
    try:
        return await asyncio.wait_for(_said(process), timeout_s)
    except TimeoutError:
        return f"the health script was not done after {timeout_s:g} s"
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # also what it started
        await process.wait()
        RUNNING.discard(process.pid)


class Findings:
    """What a script's output says against the node: its lines that begin with ERROR, as one.

    However long the output is, only as much is kept as is reported.
    """

    def __init__(self) -> None:
        self._line = b""  # as far as it came
        self._errors: list[str] = []
        self._size = 0

    def feed(self, data: bytes) -> None:
        """Look at more output."""
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._keep(line)
            self._close()
        self._keep(rest)

    def report(self) -> str:
        """Return the lines found; the output is over."""
        self._close()
        text = "".join(c if c.isprintable() else " " for c in "; ".join(self._errors))
        return text[:REPORT_MAX]

    def _keep(self, data: bytes) -> None:
        self._line += data[: max(0, LINE_MAX - len(self._line))]

    def _close(self) -> None:
        line, self._line = self._line, b""
        if line.startswith(ERROR) and self._size < REPORT_MAX:
            text = line.decode(errors="replace").strip()
            self._errors.append(text)
            self._size += len(text) + 2


async def _said(process: asyncio.subprocess.Process) -> str:
    """Return why the node is unhealthy, from what the script prints until it ends."""
    assert process.stdout is not None
    findings = Findings()
    while data := await process.stdout.read(CHUNK):
        findings.feed(data)
    return findings.report()
