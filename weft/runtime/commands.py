"""Commands that a service runs beside its work: what they print, within a time, and nothing left.

They are started as `subprocess` does, by vfork. An event loop starts them by fork, and the handlers
of gRPC for a fork may crash the child before it is the command.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence

READ_BYTES_MAX = 64 * 1024
POLL_S = 0.02
# The processes of commands that run now.
RUNNING: set[int] = set()


async def run_command(
    arguments: Sequence[str],
    hear: Callable[[bytes], None],
    timeout_s: float,
    *,
    environment: Mapping[str, str] | None = None,
    errors: bool = False,
) -> int:
    """Run a command in a session of its own; `hear` is given its output, or its `errors` instead.

    Return its exit code, or minus the signal that ended it. When it ends, or after `timeout_s` of
    wall-clock time, all processes of its session's first group are killed. Raises OSError where it
    cannot be started, TimeoutError where it was not done.
    """
    process = subprocess.Popen(
        arguments,
        env=environment,
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL if errors else subprocess.PIPE,
        stderr=subprocess.PIPE if errors else subprocess.DEVNULL,
    )
    RUNNING.add(process.pid)
    pipe = process.stderr if errors else process.stdout
    assert pipe is not None
    try:
        async with asyncio.timeout(timeout_s):
            await _read(pipe.fileno(), hear)
            await _end(process.pid)
    finally:
        pipe.close()
        # As nobody has collected the command yet, its number is still its own.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await _end(process.pid)
        process.wait()
        RUNNING.discard(process.pid)
    return process.returncode


async def _read(file: int, hear: Callable[[bytes], None]) -> None:
    """Hand on what comes from a pipe until its other end is closed."""
    loop = asyncio.get_running_loop()
    over = loop.create_future()
    os.set_blocking(file, False)

    def ready() -> None:
        with contextlib.suppress(BlockingIOError):
            data = os.read(file, READ_BYTES_MAX)
            if data:
                hear(data)
            elif not over.done():
                over.set_result(None)

    loop.add_reader(file, ready)
    try:
        await over
    finally:
        loop.remove_reader(file)


async def _end(pid: int) -> None:
    """Wait until a process has ended; it is left to be collected."""
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
        await asyncio.sleep(POLL_S)
