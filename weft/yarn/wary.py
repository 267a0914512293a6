"""Files in folders that belong to tasks: opened without following any link that they put there.

Whoever opens them may have more rights than the task, so a link, a pipe or another name of
somebody else's file must not be read in its stead.
"""

import os
import stat
from collections.abc import Sequence
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def open_folder(root: Path, parts: Sequence[str]) -> int:
    """Return a folder below a root, open; raises OSError. Whoever calls says what parts may be."""
    place = os.open(root, _FOLDER)
    for part in parts:
        try:
            inner = os.open(part, _FOLDER, dir_fd=place)
        finally:
            os.close(place)
        place = inner
    return place


def open_file(place: int, name: str) -> tuple[int, os.stat_result]:
    """Return a file of an open folder, open, and what it is; raises OSError.

    It has no other name and belongs to whom the folder does.
    """
    file = os.open(name, _FILE, dir_fd=place)
    found = os.fstat(file)
    own = found.st_uid == os.fstat(place).st_uid and found.st_nlink == 1
    if stat.S_ISREG(found.st_mode) and own:
        return file, found
    os.close(file)
    raise PermissionError(1, "it is no file of this folder's own", name)
