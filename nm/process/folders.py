"""The folders of containers on a host: made, read and cleaned without following a task's links.

What an application that brought its master along leaves beside its containers' logs: its launcher
keeps files for all of its containers (`KEPT`), and each container has tokens and whatever it wrote.
All of that goes when the application is over; logs stay, as Weft's own do.
"""

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

from nm.process.places import FOLDER

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
KEPT = ("filecache", "local")  # folders of an application, for all of its containers
SHARED = "filecache"  # below the node's root: what launchers bring once for all applications
LOGS = (".log", ".out", ".err")
PRELAUNCH = "prelaunch.out"  # written by a launcher: its container's other logs lie beside it


def logs(folder: Path) -> list[str]:
    """Return names of the log files below a container's folder, relative to it, without links."""
    found = [*folder.rglob("stdout"), *folder.rglob("stderr")]
    if (folder / PRELAUNCH).is_file():
        found += [path for path in folder.iterdir() if path.suffix in LOGS and path.is_file()]
    return sorted(str(path.relative_to(folder)) for path in found if not path.is_symlink())


def log_size(folder: Path, name: str) -> int:
    """Return bytes of a log file so far."""
    with open(_opened(folder, name), "rb") as file:
        return os.fstat(file.fileno()).st_size


def read_log(folder: Path, name: str, offset: int, size: int) -> bytes:
    """Return a piece of a log file; raises FileNotFoundError for a name not in `logs`."""
    if name not in logs(folder):
        raise FileNotFoundError(name)
    with open(_opened(folder, name), "rb") as file:
        file.seek(offset)
        return file.read(size)


def _opened(folder: Path, name: str) -> int:
    """Open a log file without following a link, which a task may put in its place at any time."""
    try:
        place = os.open(folder, FOLDER)
        try:
            *above, last = name.split("/")
            for part in above:
                inner = os.open(part, FOLDER, dir_fd=place)
                os.close(place)
                place = inner
            file = os.open(last, _READ, dir_fd=place)
        finally:
            os.close(place)
    except OSError:
        raise FileNotFoundError(name) from None
    if not stat.S_ISREG(os.fstat(file).st_mode):
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


def clean(application: Path) -> None:
    """Remove an application's files but for logs; what is not there is no matter.

    An application without folders of its own (Weft's own tasks) is left alone.
    """
    if not any((application / name).is_dir() for name in KEPT):
        return
    for path in application.iterdir():
        if path.name in KEPT:
            shutil.rmtree(path, ignore_errors=True)
        elif path.is_dir() and not path.is_symlink():
            _clean_container(path)


def clean_all(root: Path) -> None:
    """Remove what the applications of an earlier process of this node left."""
    for path in root.glob("application_*"):
        clean(path)


def _clean_container(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        elif path.is_symlink() or not _is_log(path):
            path.unlink(missing_ok=True)


def _is_log(path: Path) -> bool:
    return path.name in ("stdout", "stderr") or path.suffix in LOGS


def find_disk(
    folder: Path, proc: Path = Path("/proc"), sys: Path = Path("/sys")
) -> tuple[str, str]:
    """Return the whole disk under a folder as `major:minor`, as limits take it; or "" and why."""
    place = folder.resolve()
    while not place.exists():
        place = place.parent
    number = place.stat().st_dev
    if os.major(number) == 0:  # of no single disk: its mount may name one
        number = _mounted_disk(place, proc)
    if number == 0:
        return "", f"{folder} is on no disk of its own"
    device = sys / "dev" / "block" / f"{os.major(number)}:{os.minor(number)}"
    if (device / "partition").exists():  # limits hold for whole disks
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
