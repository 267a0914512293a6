"""A process that is to end with another one learns of that one's end, however early it was."""

import os
import subprocess
import sys

import pytest

from weft.runtime.other_process import OtherProcess


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
