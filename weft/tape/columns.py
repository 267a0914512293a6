"""Columns of values in few bytes: what is like the value before costs little or nothing.

Whoever writes and whoever reads have the same columns and use them in the same order, so both know
what came before: numbers travel as differences, names and vectors once.
"""

# ruff: noqa: D102 (`put` and `get` of every column are those of Codec)

import json
import struct
from collections.abc import Callable, Hashable
from enum import Enum
from fractions import Fraction
from math import lcm
from typing import Any, Protocol

from weft.tape.streams import Source, Streams, fold, put_int, put_uint, unfold

# Times on this grid, and differences of them, are exact.
TICKS_PER_S = float(1 << 20)
CLOCK_STEPS_PER_S = float(1 << 14)
# When so many values are known by number, the table begins anew.
TABLE_VALUES_MAX = 1 << 14
# The last message of so many senders is kept to compare with.
SENDERS_MAX = 1 << 16
# Larger floats are written as they are.
GRID_FLOAT_MAX = float(1 << 40)
OFF_ULPS_MAX = 1 << 20
_DENOMINATOR_MAX = 1 << 20
# A mean is of whole multiples of 1 / _MEAN_UNITS_PER_1, and at most _MEAN_MAX.
_MEAN_UNITS_PER_1, _MEAN_MAX = 10_000, float(1 << 30)
_MEAN_COUNT_MAX, _MEAN_OFF_ULPS_MAX = 32, 4
_CONTAINER_BITS = 32
_CONTAINER_MASK = (1 << _CONTAINER_BITS) - 1
_DOUBLE, _LONG = struct.Struct("<d"), struct.Struct("<q")


class Codec(Protocol):
    """One column of values; `zero` is what the first one is compared with."""

    zero: Any

    def put(self, out: bytearray, value: Any) -> None:
        """Append a value."""
        ...

    def get(self, source: Source) -> Any:
        """Read the value that was appended."""
        ...


class Table:
    """Values known by number: 0 announces a new one."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._values: list[Any] = []

    def number(self, key: Any) -> int:
        """Return the number of a key; 0: it is new, and its content must follow."""
        number = self._numbers.get(key)
        if number is not None:
            return number
        if len(self._numbers) >= TABLE_VALUES_MAX:
            self._numbers.clear()
        self._numbers[key] = len(self._numbers) + 1
        return 0

    def ago(self, key: Any) -> int:
        """Return how long ago a key became known: 1: last; 0: it is new, and known from now on."""
        count = len(self._numbers)
        number = self.number(key)
        return count - number + 1 if number else 0

    def find(self, number: int) -> Any:
        """Return the value of a number."""
        return self._values[number - 1]

    def find_ago(self, ago: int) -> Any:
        """Return the value of what `ago` returned; raises IndexError where nothing did."""
        if not 0 < ago <= len(self._values):
            raise IndexError("the tape repeats what was not said")
        return self._values[-ago]

    def learn(self, value: Any) -> Any:
        """Give a value the next number."""
        if len(self._values) >= TABLE_VALUES_MAX:
            self._values.clear()
        self._values.append(value)
        return value


class IntColumn:
    """The difference to the number before."""

    zero = 0

    def __init__(self) -> None:
        self._last = 0

    def put(self, out: bytearray, value: int) -> None:
        step = value - self._last
        self._last = value
        if -64 <= step < 64:
            out.append(step << 1 if step >= 0 else (-step << 1) - 1)
        else:
            put_int(out, step)

    def get(self, source: Source) -> int:
        self._last += source.signed()
        return self._last


class SenderIntColumn:
    """The difference to the number before of the same sender."""

    zero = 0

    def __init__(self, context: "Context") -> None:
        self._context = context
        self._last: dict[Any, int] = {}

    def _before(self) -> int:
        if len(self._last) > SENDERS_MAX:
            self._last.clear()
        return self._last.get(self._context.sender, 0)

    def put(self, out: bytearray, value: int) -> None:
        put_int(out, value - self._before())
        self._last[self._context.sender] = value

    def get(self, source: Source) -> int:
        value = self._before() + source.signed()
        self._last[self._context.sender] = value
        return value


class NameColumn:
    """A number without order: known ones by their place in a table."""

    zero = 0

    def __init__(self) -> None:
        self._table = Table()

    def put(self, out: bytearray, value: int) -> None:
        number = self._table.number(value)
        put_uint(out, number)
        if not number:
            put_int(out, value)

    def get(self, source: Source) -> int:
        number = source.uint()
        found = self._table.find(number) if number else self._table.learn(source.signed())
        return int(found)


class IdColumn:
    """A container: the difference to the last one of its attempt.

    The lowest bit says that its attempt is another one than before; then that is named first.
    """

    zero = 0

    def __init__(self) -> None:
        self._names = NameColumn()
        self._high, self._low = 0, 0
        self._last: dict[int, int] = {}

    def _turn(self, high: int) -> None:
        self._last[self._high] = self._low
        if len(self._last) > SENDERS_MAX:
            self._last.clear()
        self._high, self._low = high, self._last.get(high, 0)

    def put(self, out: bytearray, value: int) -> None:
        high, low = value >> _CONTAINER_BITS, value & _CONTAINER_MASK
        if high != self._high:
            out.append(1)
            self._names.put(out, high)
            self._turn(high)
        step = low - self._low
        self._low = low
        if -32 <= step < 32:
            out.append((step << 2) if step >= 0 else (-step << 2) - 2)
        else:
            put_uint(out, fold(step) << 1)

    def get(self, source: Source) -> int:
        step = source.uint()
        if step & 1:
            self._turn(self._names.get(source))
            step = source.uint()
        self._low += unfold(step >> 1)
        return self._high << _CONTAINER_BITS | self._low


class FloatColumn:
    """As short as it goes: a difference of ticks or of thousandths, a mean, or 8 bytes once.

    Sums of short decimal numbers are a few units in the last place off one; that is told as well.
    """

    zero = 0.0

    def __init__(self, ticks: bool = False, table: Table | None = None) -> None:
        """`ticks`: most values are times. `table` may be shared with other columns."""
        self._ticks, self._thousandths, self._off = 0, 0, 0
        self._mean = 0.0
        self._times = ticks
        self._table = table or Table()

    def put(self, out: bytearray, value: float) -> None:
        if -GRID_FLOAT_MAX < value < GRID_FLOAT_MAX and (value or str(value)[0] != "-"):
            scaled = value * TICKS_PER_S
            whole = int(scaled)
            on_grid = whole == scaled
            if not (on_grid and self._times):
                near = round(value * 1000.0)
                off = 0 if near / 1000.0 == value else bits_of(value) - bits_of(near / 1000.0)
                if -OFF_ULPS_MAX < off < OFF_ULPS_MAX and not (off and on_grid):
                    put_uint(out, fold(near - self._thousandths) << 2 | (3 if off else 2))
                    self._thousandths = near
                    if off:
                        put_int(out, off - self._off)
                        self._off = off
                    return
            if on_grid:
                put_uint(out, fold(whole - self._ticks) << 2 | 1)
                self._ticks = whole
                return
        data = _DOUBLE.pack(value)
        number = self._table.number(data)
        if number:
            put_uint(out, number + 1 << 2)
        elif not self._put_mean(out, value):
            out.append(0)
            out += data

    def _put_mean(self, out: bytearray, value: float) -> bool:
        """Tell a mean of a few short decimal numbers; if it is none, tell nothing and return False.

        The number of them, and the sum's difference to what it would be if the mean were the last.
        """
        if not -_MEAN_MAX < value < _MEAN_MAX or value == 0.0:
            return False
        for parts in range(1, _MEAN_COUNT_MAX + 1):
            units = _MEAN_UNITS_PER_1 * parts
            whole = round(value * units)
            off = bits_of(value) - bits_of(whole / units)
            if -_MEAN_OFF_ULPS_MAX <= off <= _MEAN_OFF_ULPS_MAX:
                put_uint(out, 1 << 2)
                put_uint(out, parts)
                put_int(out, whole - round(self._mean * units))
                put_int(out, off)
                self._mean = value
                return True
        return False

    def _get_mean(self, source: Source) -> float:
        units = _MEAN_UNITS_PER_1 * source.uint()
        whole = round(self._mean * units) + source.signed()
        self._mean = of_bits(bits_of(whole / units) + source.signed())
        return self._mean

    def get(self, source: Source) -> float:
        tag = source.uint()
        kind, number = tag & 3, tag >> 2
        if kind == 0:
            if number == 1:
                value = self._get_mean(source)
                self._table.learn(_DOUBLE.pack(value))
                return value
            data = self._table.find(number - 1) if number else self._table.learn(source.take(8))
            return float(_DOUBLE.unpack(data)[0])
        if kind == 1:
            self._ticks += unfold(number)
            return self._ticks / TICKS_PER_S
        self._thousandths += unfold(number)
        near = self._thousandths / 1000.0
        if kind == 2:
            return near
        self._off += source.signed()
        return of_bits(bits_of(near) + self._off)


class FractionColumn:
    """Parts of a whole, as how much of a job is done: the step in as many parts as its sender has.

    Whoever writes finds the number of parts once; what is no fraction is told as it is.
    """

    zero = 0.0

    def __init__(self, context: "Context") -> None:
        self._context = context
        # The last value of each sender is (denominator, numerator).
        self._last: dict[Any, tuple[int, int]] = {}

    def _before(self) -> tuple[int, int]:
        if len(self._last) > SENDERS_MAX:
            self._last.clear()
        return self._last.get(self._context.sender, (1, 0))

    def put(self, out: bytearray, value: float) -> None:
        parts, last = self._before()
        if not (0.0 <= value <= 1.0 and (value or str(value)[0] != "-")):
            out += b"\0\0"
            out += _DOUBLE.pack(value)
            return
        number = round(value * parts)
        if number / parts != value:
            found = Fraction(value).limit_denominator(_DENOMINATOR_MAX)
            if found.numerator / found.denominator != value:
                out += b"\0\0"
                out += _DOUBLE.pack(value)
                return
            parts, last = lcm(parts, found.denominator), 0
            if parts > _DENOMINATOR_MAX:
                parts = found.denominator
            number = round(value * parts)
            out.append(0)
            put_uint(out, parts)
        put_uint(out, fold(number - last) + 1)
        self._last[self._context.sender] = parts, number

    def get(self, source: Source) -> float:
        parts, last = self._before()
        step = source.uint()
        if not step:
            parts, last = source.uint(), 0
            if not parts:
                return float(_DOUBLE.unpack(source.take(8))[0])
            step = source.uint()
        number = last + unfold(step - 1)
        self._last[self._context.sender] = parts, number
        return number / parts


def bits_of(value: float) -> int:
    """Return the bits of a float as a whole number: neighbours differ by one."""
    return int(_LONG.unpack(_DOUBLE.pack(value))[0])


def of_bits(bits: int) -> float:
    """Return the float of such a number."""
    return float(_DOUBLE.unpack(_LONG.pack(bits))[0])


class BoolColumn:
    """One byte."""

    zero = False

    def put(self, out: bytearray, value: bool) -> None:
        out.append(1 if value else 0)

    def get(self, source: Source) -> bool:
        return source.take(1) != b"\0"


class TextColumn:
    """A known text by its number."""

    zero = ""

    def __init__(self) -> None:
        self._table = Table()

    def put(self, out: bytearray, value: str) -> None:
        number = self._table.number(value)
        put_uint(out, number)
        if not number:
            data = value.encode("utf-8", "surrogatepass")
            put_uint(out, len(data))
            out += data

    def get(self, source: Source) -> str:
        number = source.uint()
        if number:
            return str(self._table.find(number))
        data = source.take(source.uint())
        return str(self._table.learn(data.decode("utf-8", "surrogatepass")))


def as_is(value: Any) -> Any:
    """Return a value that JSON can say as it is."""
    return value


class PlainColumn:
    """What JSON can say, a known value by its number; `read` makes the value of the data."""

    zero: Any = None

    def __init__(self, say: Callable[[Any], Any], read: Callable[[Any], Any]) -> None:
        self._say, self._read = say, read
        self._table = Table()

    def put(self, out: bytearray, value: Any) -> None:
        text = json.dumps(self._say(value), separators=(",", ":"))
        number = self._table.number(text)
        put_uint(out, number)
        if not number:
            # The text is ASCII, as JSON escapes the rest.
            put_uint(out, len(text))
            out += text.encode()

    def get(self, source: Source) -> Any:
        number = source.uint()
        if number:
            return self._table.find(number)
        return self._table.learn(self._read(json.loads(source.take(source.uint()))))


class BlobColumn:
    """What JSON can say and what will hardly come again: journal records, jobs."""

    zero: Any = None

    def __init__(self, say: Callable[[Any], Any] = as_is, read: Callable[[Any], Any] = as_is):
        self._say, self._read = say, read

    def put(self, out: bytearray, value: Any) -> None:
        data = json.dumps(self._say(value), separators=(",", ":")).encode()
        put_uint(out, len(data))
        out += data

    def get(self, source: Source) -> Any:
        return self._read(json.loads(source.take(source.uint())))


class EnumColumn:
    """The place of the member."""

    def __init__(self, kind: type[Enum]) -> None:
        self._members = tuple(kind)
        self._places = {member: place for place, member in enumerate(self._members)}
        self.zero = self._members[0]

    def put(self, out: bytearray, value: Any) -> None:
        put_uint(out, self._places[value])

    def get(self, source: Source) -> Any:
        return self._members[source.uint()]


class TimeColumn:
    """Times that seldom go back, as steps of the clock; those off its grid follow as 8 bytes."""

    zero = 0.0

    def __init__(self) -> None:
        self._last = 0

    def put(self, out: bytearray, value: float) -> None:
        scaled = value * CLOCK_STEPS_PER_S
        whole = int(scaled) if -GRID_FLOAT_MAX < scaled < GRID_FLOAT_MAX else 0
        step = whole - self._last
        if step >= 0 and whole == scaled and (whole or str(value)[0] != "-"):
            self._last = whole
            put_uint(out, step + 1)
        else:
            out.append(0)
            out += _DOUBLE.pack(value)

    def get(self, source: Source) -> float:
        step = source.uint()
        if not step:
            return float(_DOUBLE.unpack(source.take(8))[0])
        self._last += step - 1
        return self._last / CLOCK_STEPS_PER_S


class Context:
    """Whose message is being said, and where columns are written."""

    sender: Hashable = None

    def __init__(self, streams: Streams | None = None) -> None:
        self.streams = streams or Streams()
