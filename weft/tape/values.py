"""Values of known types in few bytes: what is like the value before costs little or nothing.

A codec is made from a type hint. Whoever writes and whoever reads make the same codecs and use them
in the same order, so both know what came before: whole numbers travel as differences, names and
vectors once, fields of a record only where they changed. Decoding gives what was encoded, bit by
bit; whole numbers in a field of floats come back as floats.
"""

import json
import struct
import types
from collections.abc import Callable, Hashable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from operator import attrgetter, eq
from typing import Any, Protocol, Union, get_args, get_origin, get_type_hints

import numpy as np

from weft.effects import ClientRequested
from weft.job import Job
from weft.jobfile import job_from_dict, job_to_dict
from weft.plan import Plan
from weft.requests import ClientRequest
from weft.resources import Kind, ResourceType, ResourceTypes

TICKS = float(1 << 20)  # of a second: times on this grid, and differences of them, are exact
TABLE_MAX = 1 << 14  # values that are known by number; then the table begins anew
SENDERS_MAX = 1 << 16  # whose last message is kept to compare with
_LARGE = float(1 << 40)  # beyond it floats are told as they are
_OFF_MAX = 1 << 20  # units in the last place
_LOW = 32  # bits of a container's number in its attempt
_IDS = frozenset({"container_id", "containers", "releases", "stop", "spare", "container"})
_NAMES = frozenset({"attempt_id", "app_id", "boot", "token", "cluster_ts", "seed", "life", "over"})
_NUMBERS = frozenset({"request_id", "response_id", "acks"})  # counted by each sender
_KEYS = ("node_id", "attempt_id")  # fields that say whose message it is
_DOUBLE, _LONG = struct.Struct("<d"), struct.Struct("<q")


class Source:
    """Bytes that are read from the front; raises IndexError or struct.error at their end."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def uint(self) -> int:
        """A whole number, 7 bits a byte, the lowest first."""
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

    def signed(self) -> int:
        """A whole number that may be negative."""
        return _unfold(self.uint())

    def take(self, size: int) -> bytes:
        """So many bytes."""
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
    put_uint(out, _fold(number))


def _fold(number: int) -> int:
    return number << 1 if number >= 0 else (-number << 1) - 1


def _unfold(number: int) -> int:
    return number >> 1 if not number & 1 else -(number >> 1) - 1


class Codec(Protocol):
    """One column of values; `zero` is what the first one is compared with."""

    zero: Any

    def put(self, out: bytearray, value: Any) -> None:
        """Append a value."""
        ...

    def get(self, source: Source) -> Any:
        """Read the value that was appended."""
        ...


class _Table:
    """Values known by number: 0 announces a new one."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._values: list[Any] = []

    def number(self, key: Any) -> int:
        """Whose number it is; 0: it is new, and its content must follow."""
        number = self._numbers.get(key)
        if number is not None:
            return number
        if len(self._numbers) >= TABLE_MAX:
            self._numbers.clear()
        self._numbers[key] = len(self._numbers) + 1
        return 0

    def find(self, number: int) -> Any:
        """The value of a number."""
        return self._values[number - 1]

    def learn(self, value: Any) -> Any:
        """Give a value the next number."""
        if len(self._values) >= TABLE_MAX:
            self._values.clear()
        self._values.append(value)
        return value


class _Int:
    """The difference to the number before."""

    zero = 0

    def __init__(self) -> None:
        self._last = 0

    def put(self, out: bytearray, value: int) -> None:
        put_int(out, value - self._last)
        self._last = value

    def get(self, source: Source) -> int:
        self._last += source.signed()
        return self._last


class _SenderInt:
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


class _Name:
    """A number without order: known ones by their place in a table."""

    zero = 0

    def __init__(self) -> None:
        self._table = _Table()

    def put(self, out: bytearray, value: int) -> None:
        number = self._table.number(value)
        put_uint(out, number)
        if not number:
            put_int(out, value)

    def get(self, source: Source) -> int:
        number = source.uint()
        found = self._table.find(number) if number else self._table.learn(source.signed())
        return int(found)


class _Id:
    """A container: its attempt as a known number, and the difference to its last container."""

    zero = 0

    def __init__(self) -> None:
        self._high = _Name()
        self._last: dict[int, int] = {}

    def _before(self, high: int) -> int:
        if len(self._last) > SENDERS_MAX:
            self._last.clear()
        return self._last.get(high, 0)

    def put(self, out: bytearray, value: int) -> None:
        high, low = value >> _LOW, value & (1 << _LOW) - 1
        self._high.put(out, high)
        put_int(out, low - self._before(high))
        self._last[high] = low

    def get(self, source: Source) -> int:
        high = self._high.get(source)
        low = self._before(high) + source.signed()
        self._last[high] = low
        return high << _LOW | low


class _Float:
    """As short as it goes: a difference of ticks or of thousandths, or 8 bytes once.

    Sums of short decimal numbers are a few units in the last place off one; that is told as well.
    """

    zero = 0.0

    def __init__(self, ticks: bool = False, table: _Table | None = None) -> None:
        """`ticks`: most values are times. `table` may be shared with other columns."""
        self._ticks, self._thousandths = 0, 0
        self._times = ticks
        self._table = table or _Table()

    def put(self, out: bytearray, value: float) -> None:
        if -_LARGE < value < _LARGE and (value or str(value)[0] != "-"):
            scaled = value * TICKS
            whole = int(scaled)
            on_grid = whole == scaled
            if not (on_grid and self._times):
                near = round(value * 1000.0)
                off = 0 if near / 1000.0 == value else _bits(value) - _bits(near / 1000.0)
                if -_OFF_MAX < off < _OFF_MAX and not (off and on_grid):
                    put_uint(out, _fold(near - self._thousandths) << 2 | (3 if off else 2))
                    self._thousandths = near
                    if off:
                        put_int(out, off)
                    return
            if on_grid:
                put_uint(out, _fold(whole - self._ticks) << 2 | 1)
                self._ticks = whole
                return
        data = _DOUBLE.pack(value)
        number = self._table.number(data)
        put_uint(out, number << 2)
        if not number:
            out += data

    def get(self, source: Source) -> float:
        tag = source.uint()
        kind, number = tag & 3, tag >> 2
        if kind == 0:
            data = self._table.find(number) if number else self._table.learn(source.take(8))
            return float(_DOUBLE.unpack(data)[0])
        if kind == 1:
            self._ticks += _unfold(number)
            return self._ticks / TICKS
        self._thousandths += _unfold(number)
        near = self._thousandths / 1000.0
        return near if kind == 2 else _of_bits(_bits(near) + source.signed())


def _bits(value: float) -> int:
    return int(_LONG.unpack(_DOUBLE.pack(value))[0])


def _of_bits(bits: int) -> float:
    return float(_DOUBLE.unpack(_LONG.pack(bits))[0])


class _Bool:
    zero = False

    def put(self, out: bytearray, value: bool) -> None:
        out.append(1 if value else 0)

    def get(self, source: Source) -> bool:
        return source.take(1) != b"\0"


class _Text:
    """A known text by its number."""

    zero = ""

    def __init__(self) -> None:
        self._table = _Table()

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


def _as_is(value: Any) -> Any:
    return value


class _Plain:
    """What JSON can say, a known value by its number; `read` makes the value of the data."""

    zero: Any = None

    def __init__(self, say: Callable[[Any], Any], read: Callable[[Any], Any]) -> None:
        self._say, self._read = say, read
        self._table = _Table()

    def put(self, out: bytearray, value: Any) -> None:
        text = json.dumps(self._say(value), separators=(",", ":"))
        number = self._table.number(text)
        put_uint(out, number)
        if not number:
            put_uint(out, len(text))  # ASCII: JSON escapes the rest
            out += text.encode()

    def get(self, source: Source) -> Any:
        number = source.uint()
        if number:
            return self._table.find(number)
        return self._table.learn(self._read(json.loads(source.take(source.uint()))))


class _Blob:
    """What JSON can say and what will hardly come again: journal records, jobs."""

    zero: Any = None

    def __init__(self, say: Callable[[Any], Any] = _as_is, read: Callable[[Any], Any] = _as_is):
        self._say, self._read = say, read

    def put(self, out: bytearray, value: Any) -> None:
        data = json.dumps(self._say(value), separators=(",", ":")).encode()
        put_uint(out, len(data))
        out += data

    def get(self, source: Source) -> Any:
        return self._read(json.loads(source.take(source.uint())))


class _Vector:
    """A tuple of floats: a known one by its number, else place by place against the one before.

    With a context that is the one before of the same sender.
    """

    zero: tuple[float, ...] = ()

    def __init__(self, context: "Context | None" = None) -> None:
        self._context = context
        self._table, self._rare = _Table(), _Table()
        self._before: dict[Any, list[_Float]] = {}

    def _places(self, size: int) -> list[_Float]:
        sender = None if self._context is None else self._context.sender
        if len(self._before) > SENDERS_MAX:
            self._before.clear()
        places = self._before.setdefault(sender, [])
        while len(places) < size:
            places.append(_Float(table=self._rare))
        return places

    def put(self, out: bytearray, value: tuple[float, ...]) -> None:
        number = self._table.number(struct.pack(f"<{len(value)}d", *value))
        put_uint(out, number)
        if not number:
            put_uint(out, len(value))
            for place, amount in zip(self._places(len(value)), value, strict=False):
                place.put(out, amount)

    def get(self, source: Source) -> Any:
        number = source.uint()
        if number:
            return self._table.find(number)
        size = source.uint()
        places = self._places(size)
        return self._table.learn(tuple([places[i].get(source) for i in range(size)]))


class _Enum:
    def __init__(self, kind: type[Enum]) -> None:
        self._members = tuple(kind)
        self._places = {member: place for place, member in enumerate(self._members)}
        self.zero = self._members[0]

    def put(self, out: bytearray, value: Any) -> None:
        put_uint(out, self._places[value])

    def get(self, source: Source) -> Any:
        return self._members[source.uint()]


class _Many:
    """A tuple of any length."""

    zero: tuple[Any, ...] = ()

    def __init__(self, item: Codec) -> None:
        self._item = item

    def put(self, out: bytearray, value: tuple[Any, ...]) -> None:
        put_uint(out, len(value))
        put = self._item.put
        for one in value:
            put(out, one)

    def get(self, source: Source) -> tuple[Any, ...]:
        get = self._item.get
        return tuple([get(source) for _ in range(source.uint())])


class _Pair:
    """A tuple of fixed length."""

    def __init__(self, items: list[Codec]) -> None:
        self._items = items
        self.zero = tuple(item.zero for item in items)

    def put(self, out: bytearray, value: tuple[Any, ...]) -> None:
        for item, one in zip(self._items, value, strict=True):
            item.put(out, one)

    def get(self, source: Source) -> tuple[Any, ...]:
        return tuple([item.get(source) for item in self._items])


class _Choice:
    """One of several types; None may be one of them."""

    def __init__(self, kinds: tuple[type, ...], codecs: list[Codec]) -> None:
        self._places = {kind: place for place, kind in enumerate(kinds)}
        self._codecs = codecs
        self.zero = codecs[0].zero

    def put(self, out: bytearray, value: Any) -> None:
        place = self._places[type(value)]
        put_uint(out, place)
        self._codecs[place].put(out, value)

    def get(self, source: Source) -> Any:
        return self._codecs[source.uint()].get(source)


class _Nothing:
    zero: Any = None

    def put(self, out: bytearray, value: None) -> None:
        pass

    def get(self, source: Source) -> None:
        return None


class Context:
    """Whose message is being said."""

    sender: Hashable = None


class _Record:
    """A record: a bit for each field that is not as before, then those fields.

    "Before" is the sender's last record of the type; without senders, the last of the column.
    """

    def __init__(self, kind: type, fields_: Mapping[str, Any], context: Context | None) -> None:
        names = list(fields_)
        self._of = None if issubclass(kind, tuple) else _getter(names)
        self._make: Callable[[Any], Any] = (
            kind._make if issubclass(kind, tuple) else lambda values: kind(*values)  # type: ignore[attr-defined]
        )
        self._codecs: list[Codec] = list(fields_.values())
        self._same = [_sameness(codec) for codec in self._codecs]
        self._zeros = tuple(codec.zero for codec in self._codecs)
        self.zero: Any = None
        key = next((name for name in _KEYS if name in names), None) if context else None
        self._key = -1 if key is None else names.index(key)
        self._context = context
        self._last: dict[Any, tuple[Any, ...]] = {}

    def _before(self, sender: Any) -> tuple[Any, ...]:
        if self._context is not None:
            self._context.sender = sender
            if len(self._last) > SENDERS_MAX:
                self._last.clear()
        return self._last.get(sender, self._zeros)

    def put(self, out: bytearray, value: Any) -> None:
        values = value if self._of is None else self._of(value)
        key, sender = self._key, None
        if key >= 0:
            sender = values[key]
            self._codecs[key].put(out, sender)
        changed: list[int] = []
        mask = 0
        before = self._before(sender)
        for place, one in enumerate(values):
            old = before[place]
            if one is not old and place != key and not self._same[place](one, old):
                changed.append(place)
                mask |= 1 << place
        put_uint(out, mask)
        for place in changed:
            self._codecs[place].put(out, values[place])
        self._last[sender] = values

    def get(self, source: Source) -> Any:
        key, sender = self._key, None
        if key >= 0:
            sender = self._codecs[key].get(source)
        values = list(self._before(sender))
        if key >= 0:
            values[key] = sender
        mask, place = source.uint(), 0
        while mask:
            if mask & 1:
                values[place] = self._codecs[place].get(source)
            mask >>= 1
            place += 1
        self._last[sender] = tuple(values)
        return self._make(values)


def _getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    if not names:
        return lambda value: ()
    if len(names) == 1:
        (name,) = names
        return lambda value: (getattr(value, name),)
    return attrgetter(*names)


def _sameness(codec: Codec) -> Callable[[Any, Any], bool]:
    """Whether a field need not be said again. Of tuples only empty ones are compared."""
    if isinstance(codec, _Float):
        return lambda one, old: one == old and (one != 0 or str(one) == str(old))
    if isinstance(codec, _Int | _SenderInt | _Name | _Id | _Bool | _Text | _Enum):
        return eq
    return lambda one, old: one == () == old


# -- the codecs of types ---------------------------------------------------------------------------


def codec_of(kind: Any, name: str = "", context: Context | None = None) -> Codec:
    """The codec of a type hint, for a field of a name; raises TypeError for one without."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (types.UnionType, Union):
        kinds = tuple(get_origin(one) or one for one in arguments)
        return _Choice(kinds, [codec_of(one, name, context) for one in arguments])
    if origin is tuple:
        if arguments[-1] is not ...:
            return _Pair([codec_of(one, name, context) for one in arguments])
        if arguments[0] is float:
            return _Vector(context if name == "use" else None)
        return _Many(codec_of(arguments[0], name, context))
    if origin in (dict, Mapping) or kind is Any:
        return _Plain(dict, dict) if arguments[1:] == (float,) else _Blob()
    if kind is int:
        return _int_codec(name, context)
    if kind is float:
        return _Float(ticks=name == "now")
    if kind is Hashable:
        return _Plain(_as_is, _hashable)
    special = _SPECIAL.get(kind)
    if special is not None:
        return special()
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _Enum(kind)
    if isinstance(kind, type):
        return record_of(kind, None, context)
    raise TypeError(f"no codec for {kind!r}")


def record_of(kind: type, outer: Context | None, inner: Context | None) -> Codec:
    """The codec of a record; with `outer` it is compared with the last one of its sender."""
    hints = dict(_hints(kind))
    names = [field.name for field in fields(kind)] if is_dataclass(kind) else _named(kind)
    if kind is ClientRequested:
        hints["request"] = ClientRequest
    made = {name: codec_of(hints[name], name, inner) for name in names}
    return _Record(kind, made, outer)


@cache
def _hints(kind: type) -> Mapping[str, Any]:
    return get_type_hints(kind)


def _named(kind: type) -> list[str]:
    names = getattr(kind, "_fields", None)
    if names is None:
        raise TypeError(f"no codec for {kind!r}")
    return list(names)


def _int_codec(name: str, context: Context | None) -> Codec:
    if name in _IDS:
        return _Id()
    if name in _NAMES:
        return _Name()
    if name in _NUMBERS and context is not None:
        return _SenderInt(context)
    return _Int()


def _hashable(data: Any) -> Any:
    return tuple(_hashable(one) for one in data) if isinstance(data, list) else data


class _Plan:
    """What a master takes from a plan: its planner, makespan, order and scores."""

    zero: Any = None

    def put(self, out: bytearray, plan: Plan) -> None:
        head = {"planner": plan.planner, "makespan_s": plan.makespan_s, "made": plan.candidates}
        data = json.dumps(head).encode()
        put_uint(out, len(data))
        out += data
        put_uint(out, len(plan.order))
        last = 0
        for task in plan.order.tolist():
            put_int(out, task - last - 1)
            last = task
        score = _Float()
        for one in plan.pri_score[plan.order].tolist():
            score.put(out, one)

    def get(self, source: Source) -> Plan:
        head = json.loads(source.take(source.uint()))
        tasks = source.uint()
        order, last = np.zeros(tasks, dtype=np.int64), 0
        for place in range(tasks):
            last += source.signed() + 1
            order[place] = last
        score, scores = _Float(), np.zeros(tasks)
        for task in order.tolist():
            scores[task] = score.get(source)
        start_s = np.zeros(tasks)
        end_s = np.full(tasks, head["makespan_s"], dtype=np.float64)
        machine = np.zeros(tasks, dtype=np.int64)
        return Plan(head["planner"], machine, start_s, end_s, order, scores, head["made"])


def _types_to_data(resources: ResourceTypes) -> list[tuple[str, str]]:
    return [(one.name, one.kind.value) for one in resources]


def types_from_data(data: list[tuple[str, str]]) -> ResourceTypes:
    """Resource types as (name, kind) pairs say them."""
    return ResourceTypes(tuple(ResourceType(name, Kind(kind)) for name, kind in data))


_SPECIAL: dict[Any, Callable[[], Codec]] = {
    bool: _Bool,
    str: _Text,
    type(None): _Nothing,
    Plan: _Plan,
    Job: lambda: _Blob(job_to_dict, job_from_dict),
    ResourceTypes: lambda: _Plain(_types_to_data, types_from_data),
}
