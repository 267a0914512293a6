"""Folders and log files of containers, made without following a link that a task put there.

Imports next to nothing: the process that starts tasks (`nm.process.spawner`) is to stay small.
"""

import os
import stat
from collections.abc import Callable, Sequence

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC


def make(
    root: "str | os.PathLike[str]",
    parts: Sequence[str],
    own: Callable[[int], None] | None,
    mode: int,
) -> int:
    """Make the folders `parts` below a root; returns the last one, open. Raises OSError.

    No link is followed: a task may have put one there. `own` is called with each one that is made
    from the second on, open (the first is an application's, which the tasks' user must not own).
    """
    place = os.open(root, FOLDER)
    try:
        for depth, part in enumerate(parts):
            made = True
            try:
                os.mkdir(part, mode if depth else 0o755, dir_fd=place)
            except FileExistsError:
                made = False
            inner = os.open(part, FOLDER, dir_fd=place)
            os.close(place)
            place = inner
            if made and depth and own is not None:
                own(place)
    except OSError:
        os.close(place)
        raise
    return place


def open_log(place: int, name: str, own: Callable[[int], None] | None) -> int:
    """Open a log file of a folder for writing at its end, never through a link; raises OSError."""
    file = os.open(name, _APPEND, 0o644, dir_fd=place)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(f"{name} is no file")
    if own is not None:
        own(file)
    return file
