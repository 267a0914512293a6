"""The tape of a process: a file with every event that its cores handled, to be replayed.

A line of JSON says who wrote it; then comes one zlib stream of blocks of rows (`weft.tape.rows`).
The stream is brought to a boundary now and then, so that what is lost when the process is killed
are the last moments only.
"""

import hashlib
import json
import os
import platform
import re
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import weft
from weft.effects import Effect
from weft.errors import WeftError
from weft.messages import Address
from weft.tape.made import to_data
from weft.tape.rows import TapeWriter, schema

MAGIC = "weft tape 1"
BLOCK_BYTES = 1 << 16  # rows that are compressed together at the latest
LEVEL = 6
_UNSAFE = re.compile(r"[^\w.-]")
CORES = ("weft", "rm", "am", "nm")  # folders whose code decides


@cache
def code_digest() -> str:
    """A digest of the code that decides, as it lies beside this file."""
    root = Path(weft.__file__).parent.parent
    mixed = hashlib.sha256()
    for folder in CORES:
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
        """`says`: more of the first line, as plain data. Raises WeftError for a folder that takes
        no file.
        """
        stem = f"{_UNSAFE.sub('_', name)}-{int(time.time() * 1000)}-{os.getpid()}"
        self.path = folder / f"{stem}.tape"
        self._warn = warn
        self._bytes_max, self._bytes = bytes_max, 0
        self._rows = TapeWriter()
        self._zlib = zlib.compressobj(LEVEL)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            self._file = os.open(self.path, flags, 0o600)  # jobs' commands and environments
        except OSError as error:
            raise WeftError(f"cannot write a tape in {folder}: {error.strerror}") from None
        header = {
            "tape": MAGIC, "name": name, "version": metadata.version("weft-rm"),
            "code": code_digest(), "schema": schema(), "python": platform.python_version(),
            "began": time.time(), **says,
        }  # fmt: skip
        self._write(json.dumps(header).encode() + b"\n")

    @property
    def events(self) -> int:
        """Events on the tape."""
        return self._rows.events

    def add(self, address: Address, made: Any) -> None:
        """A core begins; `made` is the dataclass that it was made of."""
        if self._file >= 0:
            self._rows.add(address, {"kind": type(made).__name__, **to_data(made)})

    def remove(self, address: Address) -> None:
        """A core is driven no longer."""
        if self._file >= 0:
            self._rows.remove(address)

    def given(self, address: Address, key: str, value: Any) -> None:
        """A core looked something up."""
        if self._file >= 0:
            self._rows.given(address, key, value)

    def handled(self, address: Address, event: Any, now: float, orders: Sequence[Effect]) -> None:
        """A core handled an event."""
        if self._file < 0:
            return
        rows = self._rows
        rows.handled(address, event, now, orders)
        if rows.waiting >= BLOCK_BYTES:
            self.flush()

    def failed(self, address: Address, event: Any, now: float, error: Exception) -> None:
        """A core raised, which is a bug: the tape is the way to find it."""
        if self._file >= 0:
            self._rows.failed(address, event, now, f"{type(error).__name__}: {error}")
            self.flush()

    def flush(self) -> None:
        """Hand all rows to the operating system."""
        if self._file < 0:
            return
        block = self._rows.take()
        if block:
            self._write(self._zlib.compress(block) + self._zlib.flush(zlib.Z_SYNC_FLUSH))
            if self._bytes >= self._bytes_max and self._file >= 0:
                reason = f"it has {self._bytes_max / 1e6:g} MB"
                self._warn(f"the tape {self.path} ends: {reason}")
                self._end(reason)

    def close(self) -> None:
        """The process ends in order."""
        if self._file >= 0:
            self.flush()
        if self._file >= 0:
            self._end("the process ended")

    def _end(self, reason: str) -> None:
        self._rows.end(reason)
        self._write(self._zlib.compress(self._rows.take()) + self._zlib.flush())
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._file, view) :]
        except OSError as error:
            self._warn(f"the tape {self.path} ends: {error.strerror}")
            os.close(self._file)
            self._file = -1
            return
        self._bytes += len(data)
