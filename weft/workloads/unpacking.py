"""Compressed data as a stream in bounded memory: blocks that a codec yields, read as one file."""

import io
from collections.abc import Iterator
from typing import Any, BinaryIO

import zstandard

from weft.model.errors import InputError

DAMAGES = (zstandard.ZstdError, ValueError, EOFError)
# This is zstd's own limit without `--long`.
_WINDOW_BYTES_MAX = 128 * 2**20
# A block of 4 bytes may unpack to 128 kB, so that this gives at most 32 MB at once.
_PACKED_BYTES = 1024


def is_zstd(magic: bytes) -> bool:
    """Return whether a file with these first four bytes is zstd: a frame, or one to skip."""
    return magic == b"\x28\xb5\x2f\xfd" or (magic[1:] == b"\x2a\x4d\x18" and magic[0] >> 4 == 5)


def zstd_blocks(raw: BinaryIO) -> Iterator[bytes]:
    """Yield what the frames of a zstd file hold, block by block, up to where it is damaged.

    Raises ZstdError for damage and EOFError for a frame that was broken off: the codec itself takes
    a file that ends too early for one that ends.
    """
    codec = zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES_MAX)
    frame = None
    while data := raw.read(_PACKED_BYTES):
        while data:
            frame = frame or codec.decompressobj()
            if unpacked := frame.decompress(data):
                yield unpacked
            data = b""
            if frame.eof:
                data, frame = frame.unused_data, None
    if frame is not None:
        raise EOFError("it ends too early")


def as_file(blocks: Iterator[bytes], name: str) -> BinaryIO:
    """Return the blocks as one file; reading raises InputError for `name` if they are damaged."""
    return io.BufferedReader(_Joined(blocks, name), 2**18)


class _Joined(io.RawIOBase):
    """Blocks read as one file; raises InputError where the data is damaged."""

    def __init__(self, blocks: Iterator[bytes], name: str) -> None:
        self._blocks = blocks
        self._name = name
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        """Return True: this is what a buffered reader asks."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer as far as the present block goes; 0 at the end."""
        target = memoryview(buffer).cast("B")
        while not self._rest:
            try:
                self._rest = memoryview(next(self._blocks))
            except StopIteration:
                return 0
            except DAMAGES as error:
                raise InputError(self._name, f"the compressed data is damaged: {error}") from None
        size = min(len(target), len(self._rest))
        target[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size
