"""The frames of a tape: the bytes of each, and sums that say where in which tape it stands.

A frame begins with its kind, its length, the number of its block and of its part of it, and two
sums: one over the frame itself, and one that runs through all frames from the first line on, which
has an identity of its own on every tape. A frame that is left out, told twice, moved or taken from
another tape breaks the second one; a closing frame says that nothing is missing at the end.
"""

import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

# A frame has a whole block, or a part of the open one; nothing follows one that is CLOSED.
PACKED, TAIL, CLOSED = 1, 2, 3
# The head is (kind, bytes that follow the sums, block, part); the sums are the CRC-32 of head and
# data, and the running one.
HEAD = struct.Struct("<BIII")
CHECKSUMS = struct.Struct("<II")
HEAD_SIZE = HEAD.size + CHECKSUMS.size
REASON_BYTES_MAX = 200


class Chain:
    """Where a tape's next frame belongs: behind which block and part, and behind which sum.

    Parts of the tail are chained to each other and to the last block; the next block takes their
    place, so it is chained to the last block as well.
    """

    def __init__(self, line: bytes) -> None:
        """`line` is the tape's first."""
        # `block` is the open one and `part` the last one of its tail.
        self.block = 1
        self.part = 0
        self._block_sum = self._sum = zlib.crc32(line)

    def frame(self, kind: int, data: bytes) -> bytes:
        """Return the next frame."""
        part = self.part + 1 if kind == TAIL else 0
        head = HEAD.pack(kind, len(data), self.block, part)
        own = zlib.crc32(data, zlib.crc32(head))
        return head + CHECKSUMS.pack(own, self._follow(kind, own)) + data

    def follow(self, frame: "Frame") -> str:
        """Take the next frame in; returns what is wrong with its place, or nothing."""
        here = (frame.block, frame.part)
        there = (self.block, self.part + 1 if frame.kind == TAIL or self.part else 0)
        if here != there:
            why = "what was before it is missing" if here > there else "it is there twice"
            found, wanted = (f"block {block}, part {part}" for block, part in (here, there))
            return f"{found} stands where {wanted} belongs: {why}, or was moved"
        if self._follow(frame.kind, frame.own) != frame.running:
            return "it was written behind other frames: it is of another tape"
        return ""

    def _follow(self, kind: int, own: int) -> int:
        before = self._sum if kind == TAIL else self._block_sum
        self._sum = zlib.crc32(own.to_bytes(4, "little"), before)
        if kind == TAIL:
            self.part += 1
        else:
            self._block_sum = self._sum
            self.block, self.part = self.block + 1, 0
        return self._sum


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame as it was found; `intact`: its own sum is right."""

    kind: int
    block: int
    part: int
    own: int
    running: int
    data: bytes
    intact: bool


class DamageError(ValueError):
    """What is wrong with which frame of a tape, and at which byte."""


def read_frames(file: BinaryIO, line: bytes) -> Iterator[Frame]:
    """Yield the frames behind the first line, up to the closing one.

    Where a process was killed, they end where it stopped writing. So the last frame is of kind
    CLOSED or was cut off behind. Raises DamageError for frames that no process left like that.
    """
    chain, number, size = Chain(line), 0, os.fstat(file.fileno()).st_size
    while True:
        number, at = number + 1, file.tell()
        where = f"frame {number} at byte {at:,}"
        frame = _read(file, size)
        if frame is None or not frame.intact or _stale(frame, chain):
            if problem := _not_cut_off(file, at, size, chain):
                raise DamageError(f"{where}: {problem}")
            return
        if problem := chain.follow(frame):
            raise DamageError(f"{where}: {problem}")
        if frame.kind == CLOSED and file.tell() < size:
            raise DamageError(f"{where} closes the tape, but {size - file.tell():,} bytes follow")
        yield frame
        if frame.kind == CLOSED:
            return


def _read(file: BinaryIO, size: int) -> Frame | None:
    """Return the next frame; None where the file ends before its data begins."""
    head = file.read(HEAD_SIZE)
    if len(head) < HEAD_SIZE:
        return None
    kind, length, block, part = HEAD.unpack_from(head)
    own, running = CHECKSUMS.unpack_from(head, HEAD.size)
    # Bytes that are no frame may announce gigabytes.
    data = file.read(min(length, size))
    whole = len(data) == length and PACKED <= kind <= CLOSED
    intact = whole and zlib.crc32(data, zlib.crc32(head[: HEAD.size])) == own
    return Frame(kind, block, part, own, running, data, intact)


def _stale(frame: Frame, chain: Chain) -> bool:
    """Return whether a frame is of the tail whose place the last block took.

    The process was killed before it cut that off.
    """
    return frame.kind == TAIL and frame.block == chain.block - 1 and not chain.part


def _not_cut_off(file: BinaryIO, at: int, size: int, chain: Chain) -> str:
    """Return why no process that was killed left the file like that from a byte on; "": one did.

    It leaves a frame that is not whole, and behind a block parts of the tail whose place that took.
    """
    garbled = "its bytes are not those that were written"
    if _closes(file, at, size):
        return garbled
    file.seek(at)
    frame = _read(file, size)
    half = frame is not None and frame.kind == PACKED and not frame.intact
    # This is the newest block whose tail may lie behind.
    old = chain.block if half else chain.block - 1
    # What a process that still writes put behind the size of before is not looked at.
    while frame is not None and at < size:
        if frame.intact and (frame.kind != TAIL or frame.block > old or chain.part):
            return garbled
        at = file.tell()
        frame = _read(file, size)
    return ""


def _closes(file: BinaryIO, at: int, size: int) -> bool:
    """Return whether the file ends with a closing frame."""
    begin = max(at, size - HEAD_SIZE - REASON_BYTES_MAX)
    if begin > size:
        # The process still writes: what lies behind its size of before is not looked at.
        return False
    file.seek(begin)
    last = file.read(size - begin)
    for place in range(len(last) - HEAD_SIZE + 1):
        kind, length, *_ = HEAD.unpack_from(last, place)
        if kind == CLOSED and place + HEAD_SIZE + length == len(last):
            own, _ = CHECKSUMS.unpack_from(last, place + HEAD.size)
            head, data = last[place : place + HEAD.size], last[place + HEAD_SIZE :]
            if zlib.crc32(data, zlib.crc32(head)) == own:
                return True
    return False
