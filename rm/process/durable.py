"""How much of the journal is durable for certain, in a small file beside it.

The mark is written after each sync of the journal, so what lies before it was durable: where that
does not read as it should, the file was damaged, whatever a crash may do to its end. The mark is
itself synced every few seconds only: it costs next to nothing, and may be behind after the machine
(not the process) went down.
"""

import contextlib
import os
import time
import zlib
from pathlib import Path

from weft.model.errors import WeftError
from weft.runtime.kept_file import open_kept, read_whole

# This is on the wall clock.
SYNC_INTERVAL_S = 5.0


class Durable:
    """The mark: which file (the identity in the journal's header), and how many bytes of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = open_kept(path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise WeftError(f"cannot open {path}: {error.strerror}") from None
        self._synced_s = 0.0

    def read(self) -> tuple[str, int]:
        """Return the journal's identity and its durable bytes; ("", 0) where there is no mark.

        Raises WeftError where the mark itself is damaged.
        """
        return _mark(self.path, os.pread(self._file, 1_000, 0))

    def write(self, identity: str, size: int) -> None:
        """Write how much of a journal is durable; disk errors are ignored (no mark, no claim)."""
        rest = f"{identity} {size:016d}\n".encode("ascii")
        now_s = time.monotonic()
        with contextlib.suppress(OSError):
            os.pwrite(self._file, b"%08x %b" % (zlib.crc32(rest), rest), 0)
            if now_s - self._synced_s >= SYNC_INTERVAL_S:
                os.fdatasync(self._file)
                self._synced_s = now_s

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def mark_of(path: Path) -> tuple[str, int]:
    """Return what `Durable.read` does, of a file that another process may write."""
    try:
        return _mark(path, read_whole(path))
    except FileNotFoundError:
        return "", 0
    except OSError as error:
        raise WeftError(f"cannot read {path}: {error.strerror}") from None


def _mark(path: Path, data: bytes) -> tuple[str, int]:
    # It was made, and never written or not written yet.
    if not data.strip(b"\0"):
        return "", 0
    with contextlib.suppress(ValueError):
        crc, _, rest = data.partition(b" ")
        if crc == b"%08x" % zlib.crc32(rest):
            identity, size = rest.decode("ascii").split()
            return identity, int(size)
    raise WeftError(
        f"{path} is damaged: it says how much of the journal was durable. "
        "Remove it, and the journal is read as far as it goes"
    )
