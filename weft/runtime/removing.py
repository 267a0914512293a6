"""Removing what tasks left, however they built it: without recursion, links or mounts followed.

A task may leave folders in each other by the thousand, a folder of a million names, folders that
nobody may write to, links to anywhere, and other file systems mounted inside. Every folder is
therefore opened by its name in one that is open already, and folders that are inside of others are
moved up before they are looked at, so two are open at a time however deep the tree is.
"""

import contextlib
import ctypes
import errno
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A folder that was moved up has this name, with a number behind.
MOVED_UP_PREFIX = ".weft-gone-"
_NUMBERS = count(time.time_ns())
FOLDER_PASSES_MAX = 10
# When so many names of one folder cannot be removed, the others are left, too.
FOLDER_FAILURES_MAX = 1_000
EMPTYING_MODE = 0o700
OPEN_PATH = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC if hasattr(os, "O_PATH") else FOLDER


@dataclass(slots=True)
class Left:
    """What could not be removed: how many, and the first of them with the reason.

    Whoever asks for it says with `goes_on` whether it still wants anything to be removed.
    """

    count: int = 0
    first: str = ""
    goes_on: Callable[[], bool] = lambda: True

    def add(self, name: str, error: OSError) -> None:
        """Count one."""
        self.count += 1
        self.first = self.first or f"{name!r}: {error.strerror or error}"


@contextlib.contextmanager
def acting_as(owner: tuple[int, int] | None) -> Iterator[None]:
    """Act on files with the rights of a user and its group on this thread only; None: as it is.

    For root, as the kernel takes rights over others' files from a thread by this (setfsuid(2)).
    """
    if owner is None or os.geteuid() != 0:
        yield
        return
    system = ctypes.CDLL(None)
    system.setfsgid(owner[1])
    system.setfsuid(owner[0])
    try:
        yield
    finally:
        system.setfsuid(0)
        system.setfsgid(os.getegid())


def empty(folder: int, left: Left) -> None:
    """Remove everything in an open folder; what cannot be is counted in `left`."""
    _each(folder, left, lambda entry: remove(folder, entry.name, left))


def remove(folder: int, name: str, left: Left) -> None:
    """Remove one name of an open folder, whatever it is."""
    try:
        os.unlink(name, dir_fd=folder)
        return
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno not in (errno.EISDIR, errno.EPERM, errno.EACCES):
            left.add(name, error)
            return
    waiting = [name]
    while waiting:
        name = waiting.pop()
        try:
            inner = _open(folder, name)
            try:
                _each(inner, left, partial(_remove_or_move, inner, folder, waiting))
            finally:
                os.close(inner)
            os.rmdir(name, dir_fd=folder)
        except OSError as error:
            left.add(name, error)


def _each(folder: int, left: Left, act: Callable[[os.DirEntry[str]], None]) -> None:
    """Do something with each name of an open folder until none is left but those that fail.

    It is read again, as names may be missed while others go, but not for ever: somebody may make
    new ones all the time.
    """
    failed: set[str] = set()
    for _ in range(FOLDER_PASSES_MAX):
        found = False
        with os.scandir(folder) as entries:
            for entry in entries:
                if not left.goes_on():
                    return
                if entry.name in failed:
                    continue
                found, before = True, left.count
                try:
                    act(entry)
                except OSError as error:
                    left.add(entry.name, error)
                if left.count > before:
                    failed.add(entry.name)
                    if len(failed) >= FOLDER_FAILURES_MAX:
                        return
        if not found:
            return


def _remove_or_move(folder: int, above: int, moved: list[str], entry: os.DirEntry[str]) -> None:
    """Remove a file or an empty folder; move another folder up, and add its name to `moved`."""
    try:
        if entry.is_dir(follow_symlinks=False):
            os.rmdir(entry.name, dir_fd=folder)
        else:
            os.unlink(entry.name, dir_fd=folder)
    except FileNotFoundError:
        pass
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        name = f"{MOVED_UP_PREFIX}{next(_NUMBERS):x}"
        os.rename(entry.name, name, src_dir_fd=folder, dst_dir_fd=above)
        moved.append(name)


def _open(folder: int, name: str) -> int:
    """Open a folder of an open one, on the same mount, so that all in it may go; raises OSError."""
    try:
        inner = os.open(name, FOLDER, dir_fd=folder)
    except PermissionError:
        path = os.open(name, OPEN_PATH, dir_fd=folder)
        try:
            os.chmod(f"/proc/self/fd/{path}", EMPTYING_MODE)
        finally:
            os.close(path)
        inner = os.open(name, FOLDER, dir_fd=folder)
    try:
        if _mount(inner) != _mount(folder):
            raise OSError(errno.EBUSY, "another file system is mounted there")
        if os.fstat(inner).st_mode & EMPTYING_MODE != EMPTYING_MODE:
            os.fchmod(inner, EMPTYING_MODE)
    except OSError:
        os.close(inner)
        raise
    return inner


def _mount(folder: int) -> str:
    """Return the mount that an open folder is on: of one file system there may be several."""
    try:
        file = os.open(f"/proc/self/fdinfo/{folder}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return str(os.fstat(folder).st_dev)
    try:
        _, _, rest = os.read(file, 512).decode(errors="replace").partition("mnt_id:")
    finally:
        os.close(file)
    return rest.split(maxsplit=1)[0] if rest.strip() else ""
