"""Reads tapes: the first line of each, and its rows as they are asked for."""

import json
import lzma
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.model.errors import InputError, WeftError
from weft.runtime.frames import CLOSED, TAIL, DamageError, read_frames
from weft.runtime.tape import BLOCK_BYTES_MAX, FILTERS, MAGIC
from weft.tape.rows import Ended, Row, TapeReader, schema

_LINE_MAX = 1 << 20
_FORMAT = re.compile(r"weft tape \d{1,9}")


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
        """Yield all whole rows, in order, the last one Ended where the tape was closed.

        Raises InputError for damage, once the rows before it are told.
        """
        if self.says.get("schema") != schema():
            raise InputError(
                str(self.path),
                f"written by version {self.says.get('version')}, whose messages were others: "
                "replay it with that version",
            )
        try:
            yield from self._rows()
        except WeftError as error:
            problem = error.problem if isinstance(error, InputError) else str(error)
            raise InputError(str(self.path), problem) from None

    def _rows(self) -> Iterator[Row]:
        reader, closed = TapeReader(), None
        with self.path.open("rb") as file:
            line = file.readline(_LINE_MAX)
            try:
                for frame in read_frames(file, line):
                    if frame.kind == CLOSED:
                        closed = frame.data.decode(errors="replace")
                    else:
                        unpack = _inflated if frame.kind == TAIL else _unpacked
                        yield from reader.rows(unpack(frame.data), len(frame.data))
            except DamageError as error:
                yield from reader.finish()
                raise WeftError(f"is damaged: {error}") from None
        yield from reader.finish()
        if closed is not None:
            yield Ended(closed)


def _unpacked(data: bytes) -> bytes:
    """Return a block's rows; raises DamageError for damage, or more bytes than a block may have."""
    codec = lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=FILTERS)
    try:
        plain = codec.decompress(data, BLOCK_BYTES_MAX)
    except lzma.LZMAError as error:
        raise DamageError(str(error)) from None
    if not codec.eof:
        more = f"unpacks to more than {BLOCK_BYTES_MAX >> 20} MB"
        problem = more if len(plain) >= BLOCK_BYTES_MAX else "ends too early"
        raise DamageError(f"a block {problem}")
    return plain


def _inflated(data: bytes) -> bytes:
    """Return the rows of the open block; raises DamageError for damage, or too many bytes."""
    codec = zlib.decompressobj()
    try:
        plain = codec.decompress(data, BLOCK_BYTES_MAX)
    except zlib.error as error:
        raise DamageError(str(error)) from None
    if not codec.eof:
        raise DamageError("its end unpacks without end, or is none")
    return plain


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
    told = says.get("tape") if isinstance(says, dict) else None
    if not isinstance(told, str) or not _FORMAT.fullmatch(told):
        raise InputError(str(path), "is no tape")
    if told != MAGIC:
        writer = f"version {says.get('version')}, format {told.rpartition(' ')[2]}"
        reader = f"this version reads format {MAGIC.rpartition(' ')[2]}"
        raise InputError(str(path), f"a tape of {writer}; {reader}: replay it with that version")
    if not isinstance(says.get("began", 0.0), int | float):
        raise InputError(str(path), "is damaged: its first line does not say when it began")
    return TapeFile(path, says)


def find_tapes(path: Path) -> list[TapeFile]:
    """Return a tape, or all of a folder: of each role in the order in which its processes began.

    An empty file in a folder is of a process that was killed before it wrote anything: no tape.
    """
    if not path.is_dir():
        return [open_tape(path)]
    found = [open_tape(one) for one in sorted(path.glob("*.tape")) if one.stat().st_size]
    if not found:
        raise InputError(str(path), "holds no tape")
    order = {"rm": 0, "am": 1, "nm": 2}
    return sorted(found, key=lambda t: (order.get(t.role, 9), t.says.get("began", 0.0)))
