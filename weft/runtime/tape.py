"""The tape of a process: a file with every event that its cores handled, to be replayed.

A line of JSON says who wrote it; then come frames (`weft.runtime.frames`): large blocks of rows
(`weft.tape.rows`), each compressed by itself, and at the end of the file the rows of the block that
is not full yet, compressed in haste. That tail grows every moment, and gives way to its block; so
blocks are large enough to become small, and a process that is killed loses its last moment only. A
closing frame says why nothing follows.

Events are put into rows some at a time: code that runs once a millisecond, between a core and a
socket, has left the processor's caches each time, and takes twice as long as code that goes on.
"""

import hashlib
import json
import lzma
import os
import platform
import re
import secrets
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import weft
from weft.model.errors import WeftError
from weft.protocol.effects import Effect
from weft.protocol.messages import Address
from weft.runtime.frames import CLOSED, PACKED, REASON_BYTES_MAX, TAIL, Chain
from weft.tape.made import to_data
from weft.tape.rows import TapeWriter, is_read, schema

MAGIC = "weft tape 7"
# A block is closed, and its rows compressed together, at the first of these: so many rows, so long
# on the wall clock, or so many bytes in its tail, which are not compressed.
BLOCK_ROWS_MAX = 1 << 12
BLOCK_S_MAX = 60.0
TAIL_BYTES_MAX = 1 << 24
BLOCK_BYTES_MAX = 1 << 28
# Events may wait to be put into rows, as a crash loses what was not flushed anyway.
GATHERED_EVENTS_MAX = 256
# Columns of small numbers have few long matches, so the short ones must be chosen well: that takes
# 12 % fewer bytes than zlib's level 6, in 1.5 microseconds an event more. A block is 100 kB or so.
FILTERS: list[dict[str, int]] = [
    {
        "id": lzma.FILTER_LZMA2,
        "mode": lzma.MODE_NORMAL,
        "mf": lzma.MF_HC4,
        "depth": 16,
        "nice_len": 32,
        "dict_size": 1 << 20,
        "lc": 1,
        "lp": 0,
        "pb": 0,
    }
]
TAIL_ZLIB_LEVEL = 1
_UNSAFE = re.compile(r"[^\w.-]")
# The code of these folders decides.
CORE_FOLDERS = ("weft", "rm", "am", "nm")


@cache
def code_digest() -> str:
    """Return a digest of the code that decides, as it lies beside this file."""
    root = Path(weft.__file__).parent.parent
    mixed = hashlib.sha256()
    for folder in CORE_FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            mixed.update(f"{path.relative_to(root)}\0".encode())
            mixed.update(path.read_bytes())
    return mixed.hexdigest()[:16]


class Tape:
    """Written by the shell; what cannot be written ends the tape, never the process."""

    def __init__(
        self,
        folder: Path,
        name: str,
        says: Mapping[str, Any],
        bytes_max: int,
        warn: Callable[[str], None],
    ) -> None:
        """Begin a tape in a folder; `says` is more of the first line, as plain data.

        Raises WeftError for a folder that takes no file.
        """
        stem = f"{_UNSAFE.sub('_', name)}-{int(time.time() * 1000)}-{os.getpid()}"
        self.path = folder / f"{stem}.tape"
        self._warn = warn
        self._bytes_max = bytes_max
        # The file has `_kept_bytes` that stay as they are, and then the tail.
        self._kept_bytes = 0
        self._file_bytes = 0
        self._rows = TapeWriter()
        self._gathered: list[tuple[Address, Any, float, Sequence[Effect]]] = []
        self._failed = False
        # These are the rows of the tail in the file, and its bytes before they were compressed.
        self._tail_rows = 0
        self._tail_bytes = 0
        self._block_began_s = time.monotonic()
        header = {
            "tape": MAGIC,
            "id": secrets.token_hex(8),
            "name": name,
            "version": metadata.version("weft-rm"),
            "code": code_digest(),
            "schema": schema(),
            "python": platform.python_version(),
            "began": time.time(),
            **says,
        }
        line = json.dumps(header).encode() + b"\n"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            # Only the owner may read it: it has jobs' commands and environments.
            self._file = os.open(self.path, flags, 0o600)
        except OSError as error:
            raise WeftError(f"cannot write a tape in {folder}: {error.strerror}") from None
        self._chain = Chain(line)
        self._write(line, 0)
        self._kept_bytes = self._file_bytes

    @property
    def events(self) -> int:
        """Events on the tape."""
        return self._rows.events + len(self._gathered)

    def add(self, address: Address, made: Any) -> None:
        """Record that a core begins; `made` is the dataclass that it was made of."""
        if self._file >= 0:
            self._settle()
            self._rows.add(address, {"kind": type(made).__name__, **to_data(made)})

    def remove(self, address: Address) -> None:
        """Record that a core is driven no longer."""
        if self._file >= 0:
            self._settle()
            self._rows.remove(address)

    def given(self, address: Address, key: str, value: Any) -> None:
        """Record what a core looked up."""
        if self._file >= 0:
            self._settle()
            self._rows.given(address, key, value)

    def handled(self, address: Address, event: Any, now: float, orders: Sequence[Effect]) -> None:
        """Record an event that a core handled; neither it nor its orders may change any more."""
        if self._file < 0 or is_read(event):
            return
        self._gathered.append((address, event, now, orders))
        if len(self._gathered) >= GATHERED_EVENTS_MAX:
            self._settle()
            if self._rows.waiting >= BLOCK_ROWS_MAX:
                self.flush()

    def failed(self, address: Address, event: Any, now: float, error: Exception) -> None:
        """Record that a core raised, which is a bug: the tape is the way to find it."""
        if self._file >= 0:
            self._settle()
            self._rows.failed(address, event, now, f"{type(error).__name__}: {error}")
            self.flush()

    def _settle(self) -> None:
        """Put the events that wait into rows."""
        gathered, self._gathered = self._gathered, []
        put = self._rows.handled
        for one in gathered:
            put(*one)

    def flush(self) -> None:
        """Hand all rows to the operating system."""
        if self._file < 0:
            return
        self._settle()
        rows = self._rows
        if rows.waiting == self._tail_rows:
            return
        late = time.monotonic() - self._block_began_s > BLOCK_S_MAX
        full = rows.waiting >= BLOCK_ROWS_MAX or self._tail_bytes >= TAIL_BYTES_MAX
        if late or full or self._file_bytes >= self._bytes_max:
            self._pack()
        else:
            self._tail_rows = rows.waiting
            data = rows.more()
            self._tail_bytes += len(data)
            frame = self._chain.frame(TAIL, zlib.compress(data, TAIL_ZLIB_LEVEL))
            self._write(frame, self._file_bytes)
        if self._kept_bytes >= self._bytes_max and self._file >= 0:
            reason = f"it has {self._bytes_max / 1e6:g} MB"
            self._warn(f"the tape {self.path} ends: {reason}")
            self._end(reason)

    def _pack(self) -> None:
        """Close the block, in the place of its tail."""
        self._settle()
        block = self._rows.take()
        if len(block) > BLOCK_BYTES_MAX:
            # Thousands of the largest jobs came at once.
            self._warn(f"the tape {self.path} ends: a block has {len(block) / 1e6:.0f} MB")
            os.close(self._file)
            self._file = -1
            return
        self._tail_rows, self._tail_bytes, self._block_began_s = 0, 0, time.monotonic()
        data = lzma.compress(block, lzma.FORMAT_RAW, filters=FILTERS)
        self._write(self._chain.frame(PACKED, data), self._kept_bytes)
        self._kept_bytes = self._file_bytes

    def close(self) -> None:
        """End the tape: the process ends in order."""
        if self._file >= 0:
            self.flush()
        if self._file >= 0:
            self._end("the process ended")

    def _end(self, reason: str) -> None:
        self._settle()
        if self._rows.waiting:
            self._pack()
        if self._file >= 0:
            said = reason.encode()[:REASON_BYTES_MAX].decode(errors="ignore").encode()
            self._write(self._chain.frame(CLOSED, said), self._file_bytes)
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _write(self, data: bytes, at: int) -> None:
        """Put data at a place of the file, which ends behind it.

        What makes the file longer comes first: where the disk is full, the tail stays as it was.
        """
        view, end = memoryview(data), at + len(data)
        over = self._file_bytes - at
        try:
            for part, place in ((view[over:], self._file_bytes), (view[:over], at)):
                done = 0
                while done < len(part):
                    done += os.pwrite(self._file, part[done:], place + done)
            if end < self._file_bytes:
                os.ftruncate(self._file, end)
        except OSError as error:
            self._fail(error, tail=at == self._file_bytes)
            return
        self._file_bytes = end

    def _fail(self, error: OSError, tail: bool) -> None:
        """End the tape where nothing more can be written but perhaps the block.

        The block takes the place of its longer `tail`; where it was the block that could not be
        written, its tail stands for it.
        """
        if not self._failed:
            self._failed = True
            self._warn(f"the tape {self.path} ends: {error.strerror}")
            if tail and self._rows.waiting:
                self._end(error.strerror or "it cannot be written")
        if self._file >= 0:
            with suppress(OSError):
                os.ftruncate(self._file, self._file_bytes)
            os.close(self._file)
            self._file = -1
