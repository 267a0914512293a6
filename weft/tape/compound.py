"""Columns of tuples and of values of several types, made of columns of one type."""

# ruff: noqa: D102 (`put` and `get` of every column are those of Codec)

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from weft.record import changed
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


RUN_MAX = 1 << 24  # records in a row, a limit for tapes that are damaged
_KNOWN, _RUNS = 1, 2  # bits of a list's head: some were said before; like ones follow each other


class RepeatColumn:
    """A tuple of records of which many were said before: what is owed is told until it is heard.

    Records are numbered as they come. A tuple without known ones is told as it is, those of a run
    of containers (`follows`) as the first and how many there are; else its known ones are told as
    runs of numbers.
    """

    zero: tuple[Any, ...] = ()

    def __init__(
        self,
        item: Codec,
        same: Callable[[Any, Any], bool],
        follows: Callable[[Any, Any], int] | None = None,
    ) -> None:
        """`same`: whether two records are equal, bit by bit. `follows`: whether the second is of
        the next container and else like the first (1), or of its next task (2); 0: neither.
        """
        self._item, self._same, self._follows = item, same, follows
        self._numbers: dict[Any, int] = {}
        self._values: list[Any] = []
        self._next = 0  # after the last run
        self._key: Callable[[Any], Any] = attrgetter("container_id") if follows else _itself

    def put(self, out: bytearray, value: tuple[Any, ...]) -> None:
        size = len(value)
        if not size:
            out.append(0)
            return
        if len(self._values) >= TABLE_MAX:
            self._numbers.clear()
            self._values.clear()
            self._next = 0
        known = self._known(value)
        if max(known) >= 0:
            self._mixed(out, value, known)
        elif size > 1 and self._follows is not None:
            self._in_runs(out, value)
        else:
            put_uint(out, size << 2)
            for one in value:
                self._new(out, one)

    def _known(self, value: tuple[Any, ...]) -> list[int]:
        find, values, same = self._numbers.get, self._values, self._same
        known = [find(key, -1) for key in map(self._key, value)]
        if max(known) >= 0:
            for place, number in enumerate(known):
                if number >= 0 and not same(values[number], value[place]):
                    known[place] = -1
        return known

    def _in_runs(self, out: bytearray, value: tuple[Any, ...]) -> None:
        follows = self._follows
        assert follows is not None
        size, at = len(value), 0
        put_uint(out, size << 2 | _RUNS)
        while at < size:
            first, end, step = at, at + 1, 0
            if end < size and (step := follows(value[at], value[end])):
                end += 1
                while end < size and follows(value[end - 1], value[end]) == step:
                    end += 1
            self._new(out, value[first])
            put_uint(out, end - first - 1 << 1 | (step == 2))
            if end - first > 1:
                self._learn(value[first + 1 : end])
            at = end

    def _mixed(self, out: bytearray, value: tuple[Any, ...], known: list[int]) -> None:
        size, at = len(value), 0
        put_uint(out, size << 2 | _KNOWN)
        while at < size:
            first, end = known[at], at + 1
            if first < 0:
                while end < size and known[end] < 0:
                    end += 1
                put_uint(out, end - at << 1)
                for one in value[at:end]:
                    self._new(out, one)
            else:
                while end < size and known[end] == first + end - at:
                    end += 1
                put_uint(out, end - at << 1 | 1)
                put_int(out, first - self._next)
                self._next = first + end - at
            at = end

    def _new(self, out: bytearray, one: Any) -> None:
        self._numbers[self._key(one)] = len(self._values)
        self._values.append(one)
        self._item.put(out, one)

    def _learn(self, more: tuple[Any, ...]) -> None:
        at = len(self._values)
        self._numbers.update(zip(map(self._key, more), range(at, at + len(more)), strict=True))
        self._values += more

    def get(self, source: Source) -> tuple[Any, ...]:
        head = source.uint()
        if not head:
            return ()
        values, get = self._values, self._item.get
        if len(values) >= TABLE_MAX:
            values.clear()
            self._next = 0
        size = head >> 2
        found: list[Any] = []
        if not head & (_KNOWN | _RUNS):
            found = [get(source) for _ in range(size)]
            values += found
            return tuple(found)
        read = self._read_known if head & _KNOWN else self._read_run
        while len(found) < size:
            more = read(source)
            if not more or len(found) + len(more) > size:
                raise ValueError("the tape repeats what was not said")
            found += more
        return tuple(found)

    def _read_known(self, source: Source) -> list[Any]:
        tag, values = source.uint(), self._values
        count = tag >> 1
        if tag & 1:
            first = self._next + source.signed()
            self._next = first + count
            return values[first : self._next]
        fresh = [self._item.get(source) for _ in range(count)]
        values += fresh
        return fresh

    def _read_run(self, source: Source) -> list[Any]:
        first, tag = self._item.get(source), source.uint()
        if tag >> 1 > RUN_MAX:
            raise ValueError("the tape has a run without end")
        step, number, task = tag & 1, first.container_id, first.task if tag > 1 else 0
        more = [
            changed(first, container_id=number + place, task=task + step * place)
            for place in range(1, (tag >> 1) + 1)
        ]
        self._values += [first, *more]
        return [first, *more]


def _itself(one: Any) -> Any:
    return one


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
