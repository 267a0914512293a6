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

from weft.errors import InputError

ERROR = "ERROR"
REPORT_MAX = 1_000  # characters
OUTPUT_MAX = 64 * 1024  # bytes that are looked at


def check_script(script: Path) -> None:
    """Raise InputError where a script could not be run at all."""
    if not script.is_file() or not os.access(script, os.X_OK):
        raise InputError("health_script", f"{script} is no file that may be executed")


async def examine(
    script: Path, arguments: Sequence[str], timeout_s: float, environment: Mapping[str, str]
) -> str:
    """Run a script once, for at most `timeout_s` of wall-clock time; why the node is unhealthy, or
    nothing where it is healthy.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            str(script.absolute()), *arguments, env=environment, start_new_session=True,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
    except OSError as error:
        return f"the health script cannot be run: {error.strerror or error}"
    try:
        output = await asyncio.wait_for(_output(process), timeout_s)
    except TimeoutError:
        return f"the health script was not done after {timeout_s:g} s"
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # also what it started
        await process.wait()
    return report_of(output.decode(errors="replace"))


def report_of(output: str) -> str:
    """What a script's output says against the node: its lines that begin with ERROR, as one."""
    errors = [line.strip() for line in output.splitlines() if line.startswith(ERROR)]
    text = "".join(c if c.isprintable() else " " for c in "; ".join(errors))
    return text[:REPORT_MAX]


async def _output(process: asyncio.subprocess.Process) -> bytes:
    """What it prints until it ends; what goes beyond the bound is read and dropped."""
    assert process.stdout is not None
    kept = b""
    while data := await process.stdout.read(OUTPUT_MAX):
        kept += data[: max(0, OUTPUT_MAX - len(kept))]
    return kept
