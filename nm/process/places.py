"""Folders and log files of containers, made without following a link that a task put there.

Imports next to nothing: the process that starts tasks (`nm.process.spawner`) is to stay small.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Bytes read at a time: a larger buffer costs more than the read.
READ_BYTES = 4096
READ_BYTES_MAX = 1 << 20
T = TypeVar("T")
APP_FOLDER_MODE = 0o755
PLAIN = os.O_RDONLY | os.O_CLOEXEC
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
    for depth, part in enumerate(parts):
        try:
            inner, _ = step(place, part, own if depth else None, mode if depth else APP_FOLDER_MODE)
        finally:
            os.close(place)
        place = inner
    return place


def step(place: int, part: str, own: Callable[[int], None] | None, mode: int) -> tuple[int, bool]:
    """Return a folder of an open one, open, and whether it was made now. Raises OSError."""
    made = True
    try:
        os.mkdir(part, mode, dir_fd=place)
    except FileExistsError:
        made = False
    inner = os.open(part, FOLDER, dir_fd=place)
    try:
        if made and own is not None:
            own(inner)
    except OSError:
        os.close(inner)
        raise
    return inner, made


def open_log(
    place: int, name: str, own: Callable[[int], None] | None, *, first: bool = False
) -> int:
    """Open a log file of a folder for writing at its end, never through a link; raises OSError.

    `first`: it is not there yet, unless somebody was quick.
    """
    if first:
        try:
            file = os.open(name, _APPEND | os.O_EXCL, 0o644, dir_fd=place)
        except FileExistsError:
            return open_log(place, name, own)
    else:
        # a task may have put a pipe there, to which nobody would ever listen
        file = os.open(name, _APPEND | os.O_NONBLOCK, 0o644, dir_fd=place)
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise OSError(f"{name} is no file")
        os.set_blocking(file, True)
    if own is not None:
        own(file)
    return file


def enter(groups: str) -> None:
    """Move this process, and so what it starts next, into control groups; raises OSError."""
    for file in opened(groups):
        try:
            os.write(file, b"0")
        finally:
            os.close(file)


def opened(groups: str) -> list[int]:
    """Return the files by which control groups are entered, open; raises OSError."""
    files: list[int] = []
    try:
        for path in groups.split(":"):
            files.append(os.open(path, os.O_WRONLY | os.O_CLOEXEC))
    except OSError:
        for file in files:
            os.close(file)
        raise
    return files


def opening(name: str, number: int) -> tuple[int, int, str, int, int]:
    """Return how a process that is started opens a new log file of the folder that it begins in."""
    return (os.POSIX_SPAWN_OPEN, number, name, _APPEND & ~os.O_CLOEXEC | os.O_EXCL, 0o644)


def found(program: str, environment: Mapping[bytes, bytes]) -> str:
    """Return a program's file by the task's own PATH; raises OSError where there is none."""
    if "/" in program:
        return program
    problem = errno.ENOENT
    for folder in os.get_exec_path(environment):  # type: ignore[arg-type]
        path = os.path.join(folder, program)
        if os.path.isfile(path):
            if os.access(path, os.X_OK):
                return path
            problem = errno.EACCES
    raise OSError(problem, os.strerror(problem), program)


class OpenFiles:
    """Files that stay open between their uses: of all, those that were used last."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open_by_path_and_mode: dict[tuple[str, int], int] = {}

    def use(self, path: str, mode: int, act: Callable[[int], T]) -> T:
        """Return what is done with an open file; raises OSError.

        Where it cannot be done (any more), the file is opened anew: another may have its name.
        """
        file = self._open_by_path_and_mode.pop((path, mode), -1)
        if file >= 0:
            try:
                done = act(file)
            except OSError:
                os.close(file)
            else:
                # The one of the latest use is the last.
                self._open_by_path_and_mode[path, mode] = file
                return done
        file = self._open_by_path_and_mode[path, mode] = os.open(path, mode | os.O_CLOEXEC)
        if len(self._open_by_path_and_mode) > self._most:
            os.close(self._open_by_path_and_mode.pop(next(iter(self._open_by_path_and_mode))))
        return act(file)

    def close_in(self, folders: Iterable[str]) -> None:
        """Close the files that are right in one of some folders."""
        above = {f"{folder}/" for folder in folders}
        for path, mode in list(self._open_by_path_and_mode):
            if path[: path.rfind("/") + 1] in above:
                os.close(self._open_by_path_and_mode.pop((path, mode)))


class GroupFiles:
    """Files of a control group that serves one container after another; limits as `wanted`."""

    __slots__ = ("folders", "kills", "limit_files", "usage", "wanted")

    def __init__(self, wanted: tuple[float, float, float]) -> None:
        self.wanted = wanted
        self.folders: list[int] = []
        self.usage = self.kills = -1
        # Open files of limits, each with what is written to it.
        self.limit_files: list[tuple[int, bytes]] = []

    def close(self) -> None:
        """Close all of them."""
        files = [*self.folders, self.usage, self.kills, *(file for file, _ in self.limit_files)]
        for file in files:
            if file >= 0:
                os.close(file)


def read(file: int) -> bytes:
    """Return what an open file holds, at most `READ_BYTES_MAX` bytes of it."""
    data = os.pread(file, READ_BYTES, 0)
    while data and len(data) % READ_BYTES == 0 and len(data) < READ_BYTES_MAX:
        more = os.pread(file, READ_BYTES, len(data))
        if not more:
            break
        data += more
    return data
