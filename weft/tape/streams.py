"""The bytes of columns: numbers of any size, and the columns of a block beside each other."""

from collections.abc import Sequence

# Reading a number takes time like the square of its length.
_NUMBER_BITS_MAX = 4096
# A few bytes may announce long lists, so a tape unpacks to at most so many values and so many more
# for each of its bytes (one of very short tasks has 10 a byte).
UNPACKED_VALUES_MAX = 1 << 24
VALUES_PER_BYTE_MAX = 64
BYTES_PER_VALUE = 4


class Allowance:
    """What may be made of a tape, so that a few bytes of it cannot take all memory."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = UNPACKED_VALUES_MAX

    def take(self, values: int) -> None:
        """Use it up; raises ValueError where too little is left."""
        self.left -= values
        if self.left < 0 or values < 0:
            raise ValueError("the tape has a run without end")


class Source:
    """Bytes that are read from the front; raises IndexError or struct.error at their end."""

    __slots__ = ("allowance", "at", "data")

    def __init__(self, data: bytes, allowance: Allowance | None = None) -> None:
        self.data = data
        self.at = 0
        self.allowance = allowance or Allowance()

    def uint(self) -> int:
        """Return a whole number, 7 bits a byte, the lowest first."""
        data, at = self.data, self.at
        byte = data[at]
        at += 1
        if byte < 0x80:
            self.at = at
            return byte
        number, shift = byte & 0x7F, 7
        while True:
            byte = data[at]
            at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                self.at = at
                return number
            shift += 7
            if shift > _NUMBER_BITS_MAX:
                raise ValueError("the tape has a number without end")

    def signed(self) -> int:
        """Return a whole number that may be negative."""
        return unfold(self.uint())

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes."""
        found = self.data[self.at : self.at + size]
        if len(found) < size:
            raise IndexError("the tape ends here")
        self.at += size
        return found


def put_uint(out: bytearray, number: int) -> None:
    """Append a whole number as `Source.uint` reads it."""
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def put_int(out: bytearray, number: int) -> None:
    """Append a whole number that may be negative."""
    put_uint(out, fold(number))


def fold(number: int) -> int:
    """Return a number that may be negative as one that is not: small ones stay small."""
    return number << 1 if number >= 0 else (-number << 1) - 1


def unfold(number: int) -> int:
    """Return the number that `fold` was given."""
    return number >> 1 if not number & 1 else -(number >> 1) - 1


class Stream:
    """The bytes of one column: `out` while a block is written, `source` while it is read."""

    __slots__ = ("out", "source", "told")

    def __init__(self, allowance: Allowance) -> None:
        self.out = bytearray()
        # So many bytes of `out` were handed out before the block was closed.
        self.told = 0
        self.source = Source(b"", allowance)


class Streams:
    """The columns of a block beside each other: what is alike lies together, as compression likes.

    Whoever writes and whoever reads make them in the same order.
    """

    def __init__(self) -> None:
        self._all: list[Stream] = []
        # The reader uses this up.
        self.allowance = Allowance()

    def new(self) -> Stream:
        """Return one more column."""
        self._all.append(Stream(self.allowance))
        return self._all[-1]

    def take(self) -> bytes:
        """Return the block and close it.

        It has each column that holds something, with its place and length.
        """
        block = self._said([(place, bytes(one.out)) for place, one in self._held()])
        for one in self._all:
            one.out.clear()
            one.told = 0
        return block

    def more(self) -> bytes:
        """Return what the open block got since the last call, as a block of its own."""
        fresh = [(place, bytes(one.out[one.told :])) for place, one in self._held()]
        for one in self._all:
            one.told = len(one.out)
        return self._said([(place, data) for place, data in fresh if data])

    def _held(self) -> list[tuple[int, Stream]]:
        return [(place, one) for place, one in enumerate(self._all) if one.out]

    def _said(self, bodies: Sequence[tuple[int, bytes]]) -> bytes:
        if not bodies:
            return b""
        heads, last = bytearray(), -1
        for place, data in bodies:
            put_uint(heads, place - last)
            put_uint(heads, len(data))
            last = place
        heads.append(0)
        return bytes(heads) + b"".join([data for _, data in bodies])

    def read(self, block: bytes) -> None:
        """Have every column read its part of a block."""
        for one in self._all:
            one.source.data, one.source.at = b"", 0
        head, sizes, place = Source(block), [], -1
        while step := head.uint():
            place += step
            sizes.append((place, head.uint()))
        for place, size in sizes:
            self._all[place].source.data = head.take(size)
