"""A process that is to end with another one learns of that one's end, however early it was."""

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testkit import forked
from testkit.live import PATIENCE_S, until
from weft.runtime.other_process import OtherProcess

# What each role has to be told to get so far.
MANAGER = "--manager=127.0.0.1:1"
OTHERS = {
    "rm": [],
    "am": ["--hosting", MANAGER],
    "nm": [MANAGER],
    "weft.web": [MANAGER],
    "weft.yarn": [MANAGER],
    "weft.router": ["--member=127.0.0.1:1"],
}


@pytest.mark.parametrize("files", [True, False])
def test_an_end_is_seen_before_and_after_the_first_look(
    files: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the kernel has no files of processes, once somebody asked how it ended."""
    if not files:
        monkeypatch.delattr(os, "pidfd_open")
    command = [sys.executable, "-S", "-c", "input()"]
    started = subprocess.Popen(command, stdin=subprocess.PIPE)
    seen, nobody, other = OtherProcess(started.pid), OtherProcess(0), OtherProcess(1)
    assert not seen.ended
    started.kill()
    if files:
        os.waitid(os.P_PID, started.pid, os.WEXITED | os.WNOWAIT)
        assert seen.ended, "though nobody has asked how"
    started.communicate()
    assert seen.ended
    assert OtherProcess(started.pid).ended, "it was gone before"
    assert not nobody.ended
    assert not other.ended
    for one in (seen, nobody, other):
        one.close()


@pytest.fixture
def starter() -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-S", "-c", "input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as running:
        yield running
        running.kill()


def _ends_with(
    starter: subprocess.Popen[bytes],
    role: str,
    flags: list[str],
    waits: Callable[[], object],
    folder: Path,
) -> None:
    """Start a role; once it waits for what never comes, its starter is killed."""
    log = folder / "log"
    flags = [*flags, f"--die-with={starter.pid}", "--metrics-port=-1"]
    with log.open("w") as stderr:
        started = forked.start(role, flags, stdout=subprocess.PIPE, stderr=stderr, folder=folder)
    assert started.stdout is not None
    try:
        until(waits, f"{role} waits")
        starter.kill()
        starter.wait()
        started.wait(PATIENCE_S)
        assert not started.stdout.read(), "it served"
    finally:
        if started.poll() is None:
            started.kill()
            started.wait(PATIENCE_S)
        started.stdout.close()
    assert "the process that this is to end with is gone" in log.read_text()


@pytest.mark.parametrize("role", forked.ROLES)
def test_a_role_that_cannot_start_ends_with_its_starter(
    role: str, starter: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    """A pipe that nobody writes to is in the place of its certificate: all of it waits."""
    pipe, kept = tmp_path / "pipe", []
    os.mkfifo(pipe)

    def waits() -> list[int]:
        with contextlib.suppress(OSError):
            kept.append(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
        return kept

    files = [f"--tls-{part}={pipe}" for part in ("ca", "cert", "key")]
    _ends_with(starter, role, [*OTHERS[role], *files], waits, tmp_path)
    os.close(kept[0])


def test_a_gateway_whose_manager_says_nothing_ends_with_its_starter(
    starter: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    """A gateway stayed for an hour: it looked for its starter once it served."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.setblocking(False)
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        kept: list[socket.socket] = []

        def waits() -> list[socket.socket]:
            with contextlib.suppress(BlockingIOError):
                kept.append(silent.accept()[0])
            return kept

        flags = [f"--manager={address}", f"--dir={tmp_path}"]
        _ends_with(starter, "weft.yarn", flags, waits, tmp_path)
        kept[0].close()
