"""Reads tapes: the first line of each, and its rows as they are asked for."""

import json
import lzma
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from weft.errors import InputError
from weft.live.tape import FILTERS, FRAME, MAGIC, PACKED, TAIL, tail_sum
from weft.tape.rows import Row, TapeReader, schema

_LINE_MAX = 1 << 20
_BLOCK_BYTES_MAX = 1 << 30  # unpacked; of 4,096 rows, so a hundredth of it is a lot


@dataclass(frozen=True, slots=True)
class TapeFile:
    """A tape on disk; `says` is its first line."""

    path: Path
    says: dict[str, Any]

    @property
    def role(self) -> str:
        """rm, am or nm."""
        return str(self.says.get("role", ""))

    def rows(self) -> Iterator[Row]:
        """All whole rows, in order; raises WeftError for damage."""
        if self.says.get("schema") != schema():
            raise InputError(
                str(self.path),
                f"written by version {self.says.get('version')}, whose messages were others: "
                "replay it with that version",
            )
        reader = TapeReader()
        with self.path.open("rb") as file:
            file.readline(_LINE_MAX)
            for kind, data in self._frames(file):
                plain = self._inflated(data) if kind == TAIL else self._unpacked(data)
                yield from reader.rows(plain)
        yield from reader.finish()

    def _unpacked(self, data: bytes) -> bytes:
        """A block's rows; raises InputError for damage, or more bytes than a block may have."""
        codec = lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=FILTERS)
        try:
            plain = codec.decompress(data, _BLOCK_BYTES_MAX)
        except lzma.LZMAError as error:
            raise InputError(str(self.path), f"is damaged: {error}") from None
        if not codec.eof:
            more = f"unpacks to more than {_BLOCK_BYTES_MAX >> 20} MB"
            problem = more if len(plain) >= _BLOCK_BYTES_MAX else "ends too early"
            raise InputError(str(self.path), f"is damaged: a block {problem}")
        return plain

    def _inflated(self, data: bytes) -> bytes:
        """The rows of the open block; raises InputError for damage, or too many bytes."""
        codec = zlib.decompressobj()
        try:
            plain = codec.decompress(data, _BLOCK_BYTES_MAX)
        except zlib.error as error:
            raise InputError(str(self.path), f"is damaged: {error}") from None
        if not codec.eof:
            raise InputError(str(self.path), "is damaged: its end unpacks without end, or is none")
        return plain

    def _frames(self, file: BinaryIO) -> Iterator[tuple[int, bytes]]:
        """Whole frames, up to one that a killed process did not finish; raises InputError."""
        first, whole, open_at = True, True, file.tell()
        while (frame := _frame(file, open_at)) is not None:
            kind, data, right = frame
            if (not right and first) or (right and not whole):
                raise InputError(str(self.path), "is damaged: a frame's sum is another one")
            if right:
                yield kind, data
            if kind == PACKED:
                open_at = file.tell()
            first, whole = False, right


def _frame(file: BinaryIO, open_at: int) -> tuple[int, bytes, bool] | None:
    """The next frame and whether its sum is right; None where the file ends before a head or, as
    where the disk is full, within a part of the tail. The block that is open begins at `open_at`.

    Behind a block that took its tail's place what was there may still follow, where the process was
    killed in between: that is no frame, and nothing right comes after it.
    """
    head = file.read(FRAME.size)
    if len(head) < FRAME.size:
        return None
    kind, size, check = FRAME.unpack(head)
    # what is no frame may announce gigabytes
    data = file.read(min(size, os.fstat(file.fileno()).st_size))
    if kind == TAIL and len(data) < size:
        return None
    sums = {PACKED: zlib.crc32(data), TAIL: tail_sum(data, open_at)}
    return kind, data, len(data) == size and sums.get(kind) == check


def open_tape(path: Path) -> TapeFile:
    """Read a tape's first line; raises InputError for what is no tape."""
    try:
        with path.open("rb") as file:
            line = file.readline(_LINE_MAX)
    except OSError as error:
        raise InputError(str(path), error.strerror or "cannot be read") from None
    try:
        says = json.loads(line)
    except (ValueError, RecursionError):
        says = None
    whole = isinstance(says, dict) and isinstance(says.get("began", 0.0), int | float)
    if not whole or says.get("tape") != MAGIC:
        raise InputError(str(path), "is no tape of this version of Weft")
    return TapeFile(path, says)


def find_tapes(path: Path) -> list[TapeFile]:
    """A tape, or all of a folder: of each role in the order in which its processes began."""
    if not path.is_dir():
        return [open_tape(path)]
    found = [open_tape(one) for one in sorted(path.glob("*.tape"))]
    if not found:
        raise InputError(str(path), "holds no tape")
    order = {"rm": 0, "am": 1, "nm": 2}
    return sorted(found, key=lambda t: (order.get(t.role, 9), t.says.get("began", 0.0)))
