"""Spark event logs as lines: rolling folders put in order, and every codec that Spark writes.

A codec is told by its first bytes, as Spark's own names vary by version. What a crash cut off is
lost, what stands before it is read.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from weft.model.errors import InputError
from weft.model.extras import require
from weft.workloads.documents import LINE_BYTES_MAX, open_bytes, open_counted
from weft.workloads.imported import Imported
from weft.workloads.reading import expand
from weft.workloads.unpacking import as_file

CODEC_SUFFIX = r"(?:\.(?:gz|zst|zstd|lz4|snappy))?"
_ROLLING = re.compile(rf"events_(\d+)_(.+?){CODEC_SUFFIX}(\.compact)?(?:\.inprogress)?$")
# LZ4BlockOutputStream of lz4-java begins so.
_LZ4_BLOCK_MAGIC = b"LZ4Block"
_LZ4_FRAME_MAGIC = b"\x04\x22\x4d\x18"
# SnappyOutputStream of snappy-java begins so.
_SNAPPY_MAGIC = b"\x82SNAPPY\x00"
_SNAPPY_FRAME_MAGIC = b"\xff\x06\x00\x00sNaPpY"
_LZF_MAGIC = b"ZV"
_BLOCK_BYTES_MAX = 64 * 2**20
# A file that only unpacks whole must fit.
IN_MEMORY_BYTES_MAX = 256 * 2**20


@dataclass(slots=True)
class Log:
    """The files of one application's event log, in the order of their events."""

    name: Path
    files: list[Path] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def find_logs(sources: Sequence[Path], result: Imported) -> list[Log]:
    """Return one log per file, except that the parts of a rolling log belong together.

    The status markers beside a rolling log hold nothing; they are counted as dropped.
    """
    logs: dict[tuple[Path, str], Log] = {}
    numbered: dict[tuple[Path, str], list[tuple[int, bool, Path]]] = {}
    for path in expand(sources):
        match = _ROLLING.fullmatch(path.name)
        if match is not None:
            key = (path.parent, match[2])
            numbered.setdefault(key, []).append((int(match[1]), match[3] is not None, path))
            logs.setdefault(key, Log(path.parent))
        elif path.name.startswith("appstatus_"):
            result.dropped["status marker of a rolling log"] += 1
        else:
            logs[path, ""] = Log(path, [path])
    for key, parts in numbered.items():
        _order(logs[key], sorted(parts))
    if not logs:
        raise InputError(str(sources[0]), "holds no event log, only the status marker of one")
    return list(logs.values())


def _order(log: Log, parts: list[tuple[int, bool, Path]]) -> None:
    """Order parts by number; a compacted part stands for its number and all before it."""
    start = max((number for number, compacted, _ in parts if compacted), default=None)
    if start is not None:
        parts = [p for p in parts if p[0] > start or (p[0] == start and p[1])]
        log.warnings.append(f"{log.name}: Spark has compacted this log; finished jobs are gone")
    log.files = [path for _, _, path in parts]
    if len(parts) == 1:
        log.name = log.files[0]
    numbers = [number for number, _, _ in parts]
    if numbers[0] > 1 and start is None:
        log.warnings.append(
            f"{log.files[0]}: part {numbers[0]} of a rolling log without the parts before it; "
            "give the whole folder"
        )
    missing = set(range(numbers[0], numbers[-1])) - set(numbers)
    if missing:
        listed = ", ".join(map(str, sorted(missing)[:5]))
        log.warnings.append(f"{log.name}: part {listed} of the rolling log is missing")


def read_events(log: Log, result: Imported) -> Iterator[tuple[str, bytes]]:
    """Yield every line that is not empty, with its place; one line in memory at a time.

    Raises InputError where not one line can be read; damage after that is a warning.
    """
    found = False
    for path in log.files:
        try:
            with _open(path) as stream:
                for line in _lines(stream, path, result):
                    found = True
                    yield line
        except InputError as error:
            if not found:
                raise
            result.dropped["damaged end of a file"] += 1
            result.warnings.append(f"{error}; what stands before it is used")


def _lines(stream: BinaryIO, path: Path, result: Imported) -> Iterator[tuple[str, bytes]]:
    number = 0
    while line := stream.readline(LINE_BYTES_MAX):
        number += 1
        if len(line) == LINE_BYTES_MAX and not line.endswith(b"\n"):
            while (rest := stream.readline(LINE_BYTES_MAX)) and not rest.endswith(b"\n"):
                pass
            result.dropped["line too long"] += 1
            limit = LINE_BYTES_MAX // 2**20
            result.warnings.append(f"{path} line {number}: longer than {limit} MB, skipped")
        elif line.strip():
            yield f"{path} line {number}", line


@contextmanager
def _open(path: Path) -> Iterator[BinaryIO]:
    try:
        with open_counted(path) as raw:
            magic = raw.read(16)
            raw.seek(0)
            if magic[:2] == _LZF_MAGIC:
                raise InputError(str(path), "compressed with LZF, which is not read: unpack it")
            blocks = _blocks(raw, magic)
            if blocks is not None:
                yield as_file(blocks, str(path))
                return
        with open_bytes(path) as stream:
            yield stream
    except OSError as error:
        raise InputError(str(path), error.strerror or "cannot be read") from None


def packed_head(path: Path, size: int = 65536) -> str:
    """Return the first bytes of a log packed as only Spark packs (lz4, snappy), as text; or ""."""
    with suppress(OSError), path.open("rb") as raw:
        if _blocks(raw, raw.read(16)) is not None:
            return _head(path, size)
    # The reader of the file reports what is wrong with it.
    return ""


def _head(path: Path, size: int) -> str:
    with _open(path) as stream:
        return stream.read(size).decode("utf-8", errors="replace")


_PACKED = (_LZ4_BLOCK_MAGIC, _SNAPPY_MAGIC, _LZ4_FRAME_MAGIC, _SNAPPY_FRAME_MAGIC)


def _blocks(raw: BinaryIO, magic: bytes) -> Iterator[bytes] | None:
    if not magic.startswith(_PACKED):
        return None
    codecs = require("cramjam", "traces", "a log packed with lz4 or snappy")
    return _undamaged(codecs, _packed_blocks(codecs, raw, magic))


def _undamaged(codecs: Any, blocks: Iterator[bytes]) -> Iterator[bytes]:
    try:
        yield from blocks
    except codecs.DecompressionError as error:
        raise ValueError(str(error)) from None


def _packed_blocks(codecs: Any, raw: BinaryIO, magic: bytes) -> Iterator[bytes]:
    if magic.startswith(_LZ4_BLOCK_MAGIC):
        return _lz4_blocks(codecs.lz4, raw)
    if magic.startswith(_SNAPPY_MAGIC):
        return _snappy_blocks(codecs.snappy, raw)
    codec = codecs.lz4 if magic.startswith(_LZ4_FRAME_MAGIC) else codecs.snappy
    return _whole(raw, codec.decompress)


def _lz4_blocks(codec: Any, raw: BinaryIO) -> Iterator[bytes]:
    """Yield blocks of magic, method, packed size, size and checksum; an empty one ends a stream."""
    while head := raw.read(21):
        if len(head) < 21 or not head.startswith(_LZ4_BLOCK_MAGIC):
            raise EOFError("a block header is expected")
        packed, size = (int.from_bytes(head[at : at + 4], "little") for at in (9, 13))
        if max(packed, size) > _BLOCK_BYTES_MAX:
            raise ValueError(f"a block of {max(packed, size)} bytes")
        data = _take(raw, packed)
        if size == 0:
            continue
        stored = head[8] & 0xF0 == 0x10
        yield data if stored else bytes(codec.decompress_block(data, output_len=size))


def _snappy_blocks(codec: Any, raw: BinaryIO) -> Iterator[bytes]:
    """Yield blocks: a header of 16 bytes, then big-endian sizes and raw snappy."""
    while head := raw.read(4):
        if head == _SNAPPY_MAGIC[:4]:
            # Streams may follow one another.
            _take(raw, 12)
            continue
        size = int.from_bytes(head, "big")
        if size > _BLOCK_BYTES_MAX:
            raise ValueError(f"a block of {size} bytes")
        data = _take(raw, size)
        if codec.decompress_raw_len(data) > _BLOCK_BYTES_MAX:
            raise ValueError("a block that unpacks to more than the limit")
        yield bytes(codec.decompress_raw(data))


def _whole(raw: BinaryIO, unpack: Callable[[bytes], Any]) -> Iterator[bytes]:
    data = raw.read(IN_MEMORY_BYTES_MAX + 1)
    if len(data) > IN_MEMORY_BYTES_MAX:
        raise ValueError("too large for this form of compression: unpack it")
    yield bytes(unpack(data))


def _take(raw: BinaryIO, size: int) -> bytes:
    data = raw.read(size)
    if len(data) < size:
        raise EOFError("it ends too early")
    return data
