"""What tasks leave running: found by its environment, or handed over by the system.

A process that leaves its group and loses its parent (`setsid`, a double fork) becomes a child of
the node manager, which `adopt` made its subreaper. Where neither a control group nor a sandbox ends
it with its container, `Strays` does.
"""

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Collection
from pathlib import Path

# Every process that a node manager started has it.
ROOT_VARIABLE = "WEFT_WORK_ROOT"
CONTAINER_VARIABLE = "WEFT_CONTAINER"
FOLDER_VARIABLE = "WEFT_WORK_DIR"
# An option of prctl(2).
_SET_CHILD_SUBREAPER = 36


def kill_orphans(
    root: Path, spare: Collection[int] = (), only: int = 0, folders: Collection[str] = ()
) -> list[int]:
    """Kill what an earlier node manager of this root left running; return the process ids.

    Only processes that carry the root in their environment and belong to this user are looked at:
    none of the process groups `spare`, with `only` those of this group, and with `folders` what
    was started in one of them.
    """
    begun = {os.fsencode(f"{FOLDER_VARIABLE}={folder}") for folder in folders}
    mark = f"{ROOT_VARIABLE}={root.resolve()}".encode()
    killed = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "environ").read_bytes().split(b"\0")
            if mark not in words or (begun and begun.isdisjoint(words)):
                continue
            pid = int(entry.name)
            group = os.getpgid(pid)
            if group in spare or (only and group != only):
                continue
            if pid != os.getpid():
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
        # The process is gone meanwhile, or another user's.
        except (OSError, ValueError):
            continue
    return killed


def adopt() -> bool:
    """Adopt every descendant whose parent ends from now on; return False where that cannot be."""
    if not sys.platform.startswith("linux"):
        return False
    with contextlib.suppress(OSError, AttributeError):
        return bool(ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    return False


class Strays:
    """Processes that were handed to this one; those of ended containers are killed.

    `own` names the children that this process started itself, which are not looked at.
    """

    def __init__(self, own: Callable[[], Collection[int]]) -> None:
        self._own = own
        # A child that was just made may turn out to be the node manager's own, so only those that
        # the last sweep saw, too, are killed.
        self._seen_last_sweep: set[int] = set()

    def sweep(self, alive: Callable[[str], bool]) -> list[int]:
        """Kill those whose container is not `alive` by its name, or who hide it; returns them.

        Those that ended are collected. Call it every now and then.
        """
        strays = {pid for pid in _children() if pid not in self._own()}
        killed = []
        for pid in strays & self._seen_last_sweep:
            with contextlib.suppress(OSError):
                if os.waitpid(pid, os.WNOHANG)[0] == 0 and not alive(_container(pid)):
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)
        self._seen_last_sweep = strays
        return killed


def _children() -> list[int]:
    found: list[int] = []
    for path in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, path.read_text().split())
    return found


def _container(pid: int) -> str:
    """Return the container that a process says it belongs to, as `weft` prints it."""
    try:
        data = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return ""
    mark = CONTAINER_VARIABLE.encode() + b"="
    for word in data.split(b"\0"):
        if word.startswith(mark):
            return word[len(mark) :].decode(errors="replace")
    return ""
