"""Whether the disk of the tasks' folders has room: what YARN's disk checker looks at.

YARN's LocalDirsHandlerService tests its folders every two minutes, and a node without a good one is
UNHEALTHY. Here it is looked at every second, as short tasks fill a disk quickly.
"""

import contextlib
import errno
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from nm.process.health import REPORT_CHARACTERS_MAX

# A file that each check writes and removes.
PROBE_FILE = ".probe"
MB = 1 << 20
# With less room nothing that a task writes can be relied on.
FREE_BYTES_MIN = MB
INODES_SHARE_MIN = 0.01
# So long a host is unhealthy after a start that failed for the host's own reasons.
UNHEALTHY_HOLD_S = 10.0
# Why a start fails that is no fault of what is started.
EXHAUSTED = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EROFS,
        errno.EMFILE,
        errno.ENFILE,
        errno.EAGAIN,
        errno.ENOMEM,
    }
)
# The same of the folders of the node itself, in which no task has a say.
OWN_FOLDERS = EXHAUSTED | {errno.EACCES, errno.EPERM, errno.ENOENT, errno.EIO, errno.ENOTDIR}


class Disk:
    """The disk under a folder. What is asked of it may take long: ask on a thread.

    `full_percent`: more than that in use is full; 100 switches this off. `free_mb_min`: less than
    that is full, too.
    """

    def __init__(self, folder: Path, full_percent: float = 100.0, free_mb_min: float = 0.0) -> None:
        self._folder = folder
        self._full_percent = full_percent
        self._free_mb_min = free_mb_min

    def look(self) -> str:
        """Return why nothing should be started on this disk, or nothing where all is well."""
        try:
            found = os.statvfs(self._folder)
            if report := self._short_of(found):
                return report
            self._try()
        except OSError as error:
            return f"{self._folder} cannot be written to: {error.strerror or error}"
        return ""

    @property
    def full(self) -> bool:
        """Whether there is no room left at all."""
        try:
            found = os.statvfs(self._folder)
        except OSError:
            return True
        no_inodes = found.f_files > 0 and found.f_favail == 0
        return no_inodes or found.f_bavail * found.f_frsize < FREE_BYTES_MIN

    def _short_of(self, found: os.statvfs_result) -> str:
        """Return what there is too little of."""
        free_mb = found.f_bavail * found.f_frsize / MB
        # what only root may use is counted as used, as YARN does
        used = 100.0 * (1.0 - found.f_bavail / found.f_blocks) if found.f_blocks else 0.0
        disk = f"the disk of {self._folder}"
        if used > self._full_percent:
            return f"{disk} is {used:.0f} % full (at most {self._full_percent:g} %)"
        if free_mb < self._free_mb_min:
            return f"{disk} has {free_mb:.0f} MB left (at least {self._free_mb_min:g} MB)"
        if found.f_files and found.f_favail < INODES_SHARE_MIN * found.f_files:
            return f"{disk} has room for {found.f_favail} more files only"
        return ""

    def _try(self) -> None:
        """Write a file and remove it; raises OSError."""
        path = self._folder / PROBE_FILE
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(path, flags, 0o600)
        try:
            os.write(file, b"x" * 4096)
        finally:
            os.close(file)
            with contextlib.suppress(OSError):
                path.unlink()


class Health:
    """What several who look at a host say of it, as one report for each of its nodes.

    `tell` is called with a node and why it is not fit for work (nothing: it is), at each change.
    """

    def __init__(self, nodes: Iterable[str], tell: Callable[[str, str], None]) -> None:
        self._tell = tell
        self._said: Mapping[str, dict[str, str]] = {node: {} for node in nodes}

    def say(self, who: str, report: str, node: str = "") -> None:
        """Have somebody say how the host is, or one node of it, instead of what they said last."""
        for name, said in self._said.items():
            if node in ("", name) and said.get(who, "") != report:
                said[who] = report
                self._tell(name, "; ".join(filter(None, said.values()))[:REPORT_CHARACTERS_MAX])
