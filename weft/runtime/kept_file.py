"""Files that a process keeps for its next start, and the small ones that are written whole."""

import contextlib
import errno
import os
import stat
from pathlib import Path

from weft.model.errors import InputError, WeftError


def open_kept(path: Path, flags: int) -> int:
    """Open a file, made for its owner alone; raises OSError, also for all that is no file.

    A pipe in the place of a file would be waited for without an end.
    """
    file = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "it is not a file")
    return file


def read_whole(path: Path) -> bytes:
    """Return all that is in a file; raises OSError as `open_kept` does."""
    with os.fdopen(open_kept(path, os.O_RDONLY), "rb") as file:
        return file.read()


def read_kept(path: Path) -> bytes | None:
    """Return what was kept; None: nothing was. Raises InputError where nobody can tell."""
    try:
        return read_whole(path)
    except FileNotFoundError:
        if not path.is_symlink():
            return None
        reason = "it is a link that leads nowhere"
    except OSError as error:
        reason = str(error.strerror)
    raise InputError(str(path), f"cannot be read: {reason}")


def write_kept(path: Path, data: bytes) -> None:
    """Put data in a file's place, durably; raises WeftError, and the file is as it was.

    The folder is not synced: a crash of the machine may bring the former file back.
    """
    fresh = path.with_suffix(".new")
    try:
        # What an earlier try left may have other rights.
        fresh.unlink(missing_ok=True)
        with os.fdopen(open_kept(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise WeftError(f"cannot write {path}: {error.strerror}") from None
