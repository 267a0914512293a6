"""Columns of tuples and of values of several types, made of columns of one type."""

# ruff: noqa: D102 (`put` and `get` of every column are those of Codec)

from collections.abc import Callable
from typing import Any

from weft.tape.columns import TABLE_MAX, Codec
from weft.tape.streams import Source, put_int, put_uint


class ManyColumn:
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


class RepeatColumn:
    """A tuple of records of which many were said before: what is owed is told until it is heard.

    Records are numbered as they come. A tuple without known ones is told as it is; else its known
    ones are told as runs of numbers.
    """

    zero: tuple[Any, ...] = ()

    def __init__(self, item: Codec, same: Callable[[Any, Any], bool]) -> None:
        """`same`: whether two records that compare as equal are so bit by bit."""
        self._item, self._same = item, same
        self._numbers: dict[Any, int] = {}
        self._values: list[Any] = []
        self._next = 0  # after the last run

    def put(self, out: bytearray, value: tuple[Any, ...]) -> None:
        size = len(value)
        if not size:
            out.append(0)
            return
        if len(self._values) >= TABLE_MAX:
            self._numbers.clear()
            self._values.clear()
            self._next = 0
        find, values, same = self._numbers.get, self._values, self._same
        known = [find(one, -1) for one in value]
        if max(known) < 0:
            put_uint(out, size << 1)
            for one in value:
                self._new(out, one)
            return
        put_uint(out, size << 1 | 1)
        at = 0
        while at < size:
            first, end = known[at], at + 1
            if first < 0 or not same(values[first], value[at]):
                while end < size and known[end] < 0:
                    end += 1
                put_uint(out, end - at << 1)
                for one in value[at:end]:
                    self._new(out, one)
            else:
                while (
                    end < size
                    and known[end] == first + end - at
                    and same(values[known[end]], value[end])
                ):
                    end += 1
                put_uint(out, end - at << 1 | 1)
                put_int(out, first - self._next)
                self._next = first + end - at
            at = end

    def _new(self, out: bytearray, one: Any) -> None:
        self._numbers[one] = len(self._values)
        self._values.append(one)
        self._item.put(out, one)

    def get(self, source: Source) -> tuple[Any, ...]:
        head = source.uint()
        if not head:
            return ()
        values, get = self._values, self._item.get
        if len(values) >= TABLE_MAX:
            values.clear()
            self._next = 0
        size = head >> 1
        if not head & 1:
            fresh = [get(source) for _ in range(size)]
            values += fresh
            return tuple(fresh)
        found: list[Any] = []
        while len(found) < size:
            tag = source.uint()
            count = tag >> 1
            if tag & 1:
                first = self._next + source.signed()
                self._next = first + count
                found += values[first : self._next]
            else:
                fresh = [get(source) for _ in range(count)]
                values += fresh
                found += fresh
            if not count or len(found) > size:
                raise ValueError("the tape repeats what was not said")
        return tuple(found)


class PairColumn:
    """A tuple of fixed length."""

    def __init__(self, items: list[Codec]) -> None:
        self._items = items
        self.zero = tuple(item.zero for item in items)

    def put(self, out: bytearray, value: tuple[Any, ...]) -> None:
        for item, one in zip(self._items, value, strict=True):
            item.put(out, one)

    def get(self, source: Source) -> tuple[Any, ...]:
        return tuple([item.get(source) for item in self._items])


class ChoiceColumn:
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


class NothingColumn:
    """None, which takes no byte."""

    zero: Any = None

    def put(self, out: bytearray, value: None) -> None:
        pass

    def get(self, source: Source) -> None:
        return None
