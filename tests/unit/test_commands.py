"""Commands that a service runs beside its work."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from weft.runtime.commands import RUNNING, run_command

# A handler for forks that crashes the child, as those of gRPC may.
FORKED = """
import os, sys, uvloop
from weft.runtime.commands import run_command

os.register_at_fork(after_in_child=os.abort)
heard = bytearray()
code = uvloop.run(run_command(["/bin/sh", "-c", "echo here"], heard.extend, 60.0))
sys.stdout.write(f"{code} {heard.decode()}")
"""


def run(text: str, timeout_s: float = 60.0, *, errors: bool = False) -> tuple[int, str]:
    heard = bytearray()
    command = ["/bin/sh", "-c", text]
    code = asyncio.run(run_command(command, heard.extend, timeout_s, errors=errors))
    assert not RUNNING
    return code, heard.decode()


@pytest.mark.slow
def test_handlers_of_a_fork_do_not_reach_a_command() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKED], check=False, capture_output=True, text=True
    )
    assert done.stdout == "0 here\n", done.stderr


def test_its_exit_code_and_what_it_prints_are_returned() -> None:
    assert run("echo out; echo err >&2; exit 3") == (3, "out\n")
    assert run("echo out; echo err >&2; exit 3", errors=True) == (3, "err\n")
    assert run("kill -9 $$") == (-9, "")
    assert run("echo out; exec >&-; sleep 0.1; exit 4") == (4, "out\n"), "it closed its output"
    with pytest.raises(FileNotFoundError):
        asyncio.run(run_command(["/no/such"], print, 60.0))


@pytest.mark.parametrize("text", ["sleep 60 & echo $!; exec >&-; sleep 60", "sleep 60 & echo $!"])
def test_what_takes_too_long_ends_with_all_that_it_started(text: str) -> None:
    heard = bytearray()

    async def attempt() -> None:
        with pytest.raises(TimeoutError):
            await run_command(["/bin/sh", "-c", text], heard.extend, 0.5)

    asyncio.run(attempt())
    pid = int(heard)
    while is_alive(pid):
        pass


def is_alive(pid: int) -> bool:
    """Whether a process lives; a zombie, which nobody has collected yet, does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
