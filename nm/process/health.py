"""Whether a host is fit for work, as a script of its owner says: YARN's health checker.

A line of the script's output that begins with ERROR makes the node unhealthy, and so does a script
that takes longer than its time or cannot be run. An exit code alone does not, as it may be the
script's own mistake (YARN's NodeHealthScriptRunner).
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from weft.model.errors import InputError
from weft.runtime.commands import run_command

ERROR = b"ERROR"
REPORT_CHARACTERS_MAX = 1_000
# So many characters take no more bytes than this.
LINE_BYTES_MAX = 4 * REPORT_CHARACTERS_MAX


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
    findings = Findings()
    command = [str(script.absolute()), *arguments]
    try:
        await run_command(command, findings.feed, timeout_s, environment=environment)
    except TimeoutError:
        return f"the health script was not done after {timeout_s:g} s"
    except OSError as error:
        return f"the health script cannot be run: {error.strerror or error}"
    return findings.report()


class Findings:
    """What a script's output says against the node: its lines that begin with ERROR, as one.

    However long the output is, only as much is kept as is reported.
    """

    def __init__(self) -> None:
        self._unfinished_line = b""
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
        return text[:REPORT_CHARACTERS_MAX]

    def _keep(self, data: bytes) -> None:
        self._unfinished_line += data[: max(0, LINE_BYTES_MAX - len(self._unfinished_line))]

    def _close(self) -> None:
        line, self._unfinished_line = self._unfinished_line, b""
        if line.startswith(ERROR) and self._size < REPORT_CHARACTERS_MAX:
            text = line.decode(errors="replace").strip()
            self._errors.append(text)
            self._size += len(text) + 2
