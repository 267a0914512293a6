"""The folders of containers on a host: read and cleaned without following a task's links.

When an application is over, all goes that its containers and its launcher (`KEPT`) left here, but
for the logs: `stdout` and `stderr` of a container, in a reusable one of each task's folder, and
where a launcher wrote `PRELAUNCH` also the logs beside that.
"""

import contextlib
import ctypes
import errno
import os
import re
import stat
from collections.abc import Callable
from itertools import islice
from pathlib import Path

from nm.process.places import FOLDER
from weft.runtime.removing import Left, acting_as, remove

_WARY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# Folders of an application that serve all of its containers.
KEPT = ("filecache", "local", "services")
# The folder below the node's root with what launchers fetch once for all applications.
SHARED = "filecache"
LOGS = (".log", ".out", ".err")
# MapReduce and Tez name theirs so, and what follows is an attempt or a part.
SYSLOG = "syslog"
STREAMS = ("stderr", "stdout")
# The folder of a task in a reusable container.
TASK_FOLDER = re.compile(r"[0-9]+-[0-9]+-[0-9]+")
SCANNED_NAMES_MAX = 100_000
CUT = "\n[weft: {} bytes are left out here, as this log is longer than {}]\n"
LEFT_OUT = "\n[weft: {} bytes are left out here, as this log is too long]\n"
# FALLOC_FL_KEEP_SIZE and FALLOC_FL_PUNCH_HOLE of linux/falloc.h; holes are whole pages.
PUNCH_HOLE, PAGE = 1 | 2, 4096
# Of `st_blocks`.
BLOCK_BYTES = 512
# Each half of a log gives up so many bytes for that line.
CUT_ROOM = 64
PIECE = 1 << 20
# A launcher writes this file: its container's other logs lie beside it.
PRELAUNCH = "prelaunch.out"


def logs(folder: Path) -> list[str]:
    """Return names of a container's log files, relative to its folder, without links.

    Nothing below is looked for, as a task may have put any number of folders there.
    """
    try:
        place = os.open(folder, FOLDER)
    except OSError:
        return []
    try:
        found = [name for name in STREAMS if _is_file(name, place)]
        if found and not _is_file(PRELAUNCH, place):
            return sorted(found)
        foreign = _is_file(PRELAUNCH, place)
        with os.scandir(place) as entries:
            for entry in islice(entries, SCANNED_NAMES_MAX):
                name = entry.name
                if foreign and _is_log_name(name) and entry.is_file(follow_symlinks=False):
                    found.append(name)
                elif TASK_FOLDER.fullmatch(name) and entry.is_dir(follow_symlinks=False):
                    inner = [f"{name}/{stream}" for stream in STREAMS]
                    found += [each for each in inner if _is_file(each, place)]
    finally:
        os.close(place)
    return sorted(found)


def _is_log_name(name: str) -> bool:
    """Return whether a file beside `PRELAUNCH` is a log by its name."""
    return name.endswith(LOGS) or name.startswith(SYSLOG)


def _is_file(name: str, place: int) -> bool:
    try:
        return _is_log(os.stat(name, dir_fd=place, follow_symlinks=False))
    except OSError:
        return False


def _is_log(found: os.stat_result) -> bool:
    """Return whether it is a file of one name: with another it may be anybody's on this disk."""
    return stat.S_ISREG(found.st_mode) and found.st_nlink == 1


def log_size(folder: Path, name: str) -> int:
    """Return bytes of a log file so far."""
    with open(_opened(folder, name), "rb") as file:
        return os.fstat(file.fileno()).st_size


def read_log(folder: Path, name: str, offset: int, size: int) -> tuple[bytes, int]:
    """Return a piece of a log file and where the next begins, which is after what was left out.

    Raises FileNotFoundError for what is no log by its name.
    """
    above, _, last = name.rpartition("/")
    known = last in STREAMS or (not above and _is_log_name(last))
    if not known or (above and not TASK_FOLDER.fullmatch(above)):
        raise FileNotFoundError(name)
    with open(_opened(folder, name), "rb") as file:
        try:
            begin = os.lseek(file.fileno(), offset, os.SEEK_DATA)
        except OSError as error:
            # There is nothing from there on, or this file system knows no holes.
            begin = os.fstat(file.fileno()).st_size if error.errno == errno.ENXIO else offset
        if begin > offset:
            return LEFT_OUT.format(begin - offset).encode(), begin
        if size := min(size, _until_hole(file.fileno(), offset) - offset):
            file.seek(offset)
            data = file.read(size)
            return data, offset + len(data)
    return b"", offset


def _until_hole(file: int, offset: int) -> int:
    """Return where what lies in a file at a place ends; holes begin and end at blocks."""
    try:
        return os.lseek(file, offset, os.SEEK_HOLE)
    except OSError:
        return os.fstat(file).st_size


def bound_logs(folder: Path, log_bytes: int) -> None:
    """Take the middle out of the logs of a container that are longer, while it writes them.

    What goes becomes a hole, so that all else stays where it is, for who writes and who reads.
    """
    for name in logs(folder):
        with contextlib.suppress(OSError):
            file = _opened(folder, name, os.O_RDWR)
            try:
                _hollow(file, log_bytes)
            finally:
                os.close(file)


def _hollow(file: int, log_bytes: int) -> None:
    found = os.fstat(file)
    if found.st_blocks * BLOCK_BYTES <= log_bytes:
        return
    half = max(1, log_bytes // 2)
    begin, end = -(-half // PAGE) * PAGE, (found.st_size - half) // PAGE * PAGE
    if end > begin:
        # Python has no name for it before 3.14.
        _fallocate(file, PUNCH_HOLE, begin, end - begin)


def _fallocate(file: int, mode: int, begin: int, size: int) -> None:
    """Do as fallocate(2); raises OSError."""
    done = ctypes.CDLL(None, use_errno=True).fallocate64
    done.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    if done(file, mode, begin, size):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _opened(folder: Path, name: str, how: int = os.O_RDONLY) -> int:
    """Open a log file without following a link, which a task may put in its place at any time."""
    try:
        place = os.open(folder, FOLDER)
        try:
            *above, last = name.split("/")
            for part in above:
                inner = os.open(part, FOLDER, dir_fd=place)
                os.close(place)
                place = inner
            file = os.open(last, how | _WARY, dir_fd=place)
        finally:
            os.close(place)
    except OSError:
        raise FileNotFoundError(name) from None
    if not _is_log(os.fstat(file)):
        os.close(file)
        raise FileNotFoundError(name)
    return file


def share(root: Path, own: Callable[[int], None] | None) -> None:
    """Make the folder that launchers share; `own` gives it, open, to the user of tasks."""
    folder = root / SHARED
    folder.mkdir(mode=0o700, exist_ok=True)
    if own is not None:
        place = os.open(folder, FOLDER)
        try:
            own(place)
        finally:
            os.close(place)


def clean(
    application: int, container: str, owner: tuple[int, int] | None, log_bytes: int, left: Left
) -> None:
    """Remove what a container left in the open folder of its application, but for its logs.

    Those that are longer than `log_bytes` (0: none is) lose their middle. It is done with the
    rights of `owner`, the tasks' user, where there is one.
    """
    try:
        place = os.open(container, FOLDER, dir_fd=application)
    except OSError:
        return
    try:
        with acting_as(owner):
            _clean(place, log_bytes, left, LOGS if _is_file(PRELAUNCH, place) else STREAMS)
    finally:
        os.close(place)


def _clean(
    place: int, log_bytes: int, left: Left, logs: tuple[str, ...], *, inside: bool = False
) -> None:
    """Remove all but files of such names, and the folders of tasks with such files."""
    kept: set[str] = set()
    # A scan may miss names while others are removed.
    for _ in range(2):
        with os.scandir(place) as entries:
            for entry in entries:
                name = entry.name
                if name in kept:
                    continue
                kept.add(name)
                is_log = name in STREAMS or (logs is LOGS and _is_log_name(name))
                if is_log and entry.is_file(follow_symlinks=False):
                    _shorten(place, name, log_bytes, left)
                elif (
                    not inside
                    and TASK_FOLDER.fullmatch(name)
                    and entry.is_dir(follow_symlinks=False)
                ):
                    _clean_task(place, name, log_bytes, left)
                else:
                    remove(place, name, left)


def _clean_task(place: int, name: str, log_bytes: int, left: Left) -> None:
    try:
        inner = os.open(name, FOLDER, dir_fd=place)
    except OSError as error:
        left.add(name, error)
        return
    try:
        _clean(inner, log_bytes, left, STREAMS, inside=True)
    finally:
        os.close(inner)
    # The folder stays where logs are in it.
    with contextlib.suppress(OSError):
        os.rmdir(name, dir_fd=place)


def _shorten(place: int, name: str, log_bytes: int, left: Left) -> None:
    if not log_bytes:
        return
    try:
        file = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=place)
    except OSError as error:
        left.add(name, error)
        return
    try:
        shorten(file, log_bytes)
    except OSError as error:
        left.add(name, error)
    finally:
        os.close(file)


def shorten(file: int, log_bytes: int) -> None:
    """Take the middle out of an open log that is longer than that, and say so there.

    A file that has another name, too, is left alone: it may be somebody's else. Raises OSError.
    """
    found = os.fstat(file)
    if found.st_size <= log_bytes or found.st_nlink != 1 or not stat.S_ISREG(found.st_mode):
        return
    half = max(1, log_bytes // 2 - CUT_ROOM)
    place, at = found.st_size - half, half
    text = CUT.format(found.st_size - 2 * half, log_bytes)
    at += os.pwrite(file, text.encode(), at)
    while piece := os.pread(file, PIECE, place):
        place += len(piece)
        at += os.pwrite(file, piece, at)
    os.ftruncate(file, at)


def find_disk(
    folder: Path, proc: Path = Path("/proc"), sys: Path = Path("/sys")
) -> tuple[str, str]:
    """Return the whole disk under a folder as `major:minor`, as limits take it; or "" and why."""
    place = folder.resolve()
    while not place.exists():
        place = place.parent
    number = place.stat().st_dev
    # A file system of no single disk has major number 0, but its mount may name a disk.
    if os.major(number) == 0:
        number = _mounted_disk(place, proc)
    if number == 0:
        return "", f"{folder} is on no disk of its own"
    device = sys / "dev" / "block" / f"{os.major(number)}:{os.minor(number)}"
    # Limits hold for whole disks.
    if (device / "partition").exists():
        device = device.resolve().parent
    found = text_of(device / "dev").strip()
    return (found, "") if found else ("", f"the disk under {folder} is not known")


def _mounted_disk(place: Path, proc: Path) -> int:
    """Return the device of the mount that a folder is on; 0: it has none."""
    best, source = "", ""
    for line in lines_of(proc / "self" / "mountinfo"):
        left, _, right = line.partition(" - ")
        mount = left.split()[4]
        if place.is_relative_to(mount) and len(mount) >= len(best):
            best, source = mount, right.split()[1]
    try:
        status = os.stat(source)
    except OSError:
        return 0
    return status.st_rdev if stat.S_ISBLK(status.st_mode) else 0


def text_of(path: Path) -> str:
    """Return what a file of the system holds, or nothing."""
    try:
        return path.read_text()
    except OSError:
        return ""


def lines_of(path: Path) -> list[str]:
    """Return the lines of `text_of`."""
    return text_of(path).splitlines()
