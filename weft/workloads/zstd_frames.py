"""How large a zstd file unpacks, told from its frame and block headers before unpacking it.

The format is RFC 8878, section 3.1. The codec at hand unpacks a file in one go, so that a small
hostile file could fill the memory; the block headers give an upper bound beforehand.
"""

from typing import BinaryIO

from weft.errors import InputError

_MAGIC = 0xFD2FB528
_BLOCK_BYTES_MAX = 128 * 1024
_RAW, _RLE, _COMPRESSED = 0, 1, 2


def size_bound(stream: BinaryIO, name: str) -> int:
    """An upper bound of the unpacked size in bytes; raises InputError for damaged frames."""
    bound = 0
    while head := stream.read(4):
        magic = int.from_bytes(head, "little")
        if magic & 0xFFFFFFF0 == 0x184D2A50:  # a skippable frame
            stream.seek(int.from_bytes(_take(stream, 4, name), "little"), 1)
        elif magic == _MAGIC:
            bound += _frame_bound(stream, name)
        else:
            raise InputError(name, "the compressed data is damaged: a zstd frame is expected")
    return bound


def _frame_bound(stream: BinaryIO, name: str) -> int:
    descriptor = _take(stream, 1, name)[0]
    single_segment = bool(descriptor & 0x20)
    dictionary = (0, 1, 2, 4)[descriptor & 3]
    content = (1 if single_segment else 0, 2, 4, 8)[descriptor >> 6]
    _take(stream, (0 if single_segment else 1) + dictionary + content, name)
    bound = 0
    last = False
    while not last:
        header = int.from_bytes(_take(stream, 3, name), "little")
        last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
        if kind == _RAW:
            bound += size
            stream.seek(size, 1)
        elif kind == _RLE:
            bound += size
            stream.seek(1, 1)
        elif kind == _COMPRESSED:
            bound += _BLOCK_BYTES_MAX
            stream.seek(size, 1)
        else:
            raise InputError(name, "the compressed data is damaged: unknown block type")
    if descriptor & 4:
        stream.seek(4, 1)
    return bound


def _take(stream: BinaryIO, size: int, name: str) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise InputError(name, "the compressed data is damaged: it ends too early")
    return data
