"""Columns of tuples and of values of several types, made of columns of one type."""

# ruff: noqa: D102 (`put` and `get` of every column are those of Codec)

from collections.abc import Callable, Sequence
from typing import Any

from weft.protocol.record import changed
from weft.tape.columns import Codec
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


# So many records are known by number, as they may come again.
NUMBERED_RECORDS_MAX = 1 << 12
# A list's head has this bit where some of its records were written before.
_HAS_REPEATS_BIT = 1
# A list's records are written one by one, as runs, or some of them by number.
_SINGLE_RECORDS, _RUNS, _MIXED = 0, 1, 2
# A record of a run counts as so many values.
_RECORD_VALUES = 4


class IntsColumn:
    """Numbers, most of which count on: the first one then, and how many there are."""

    zero: tuple[int, ...] = ()

    def __init__(self) -> None:
        self._last = 0

    def put(self, out: bytearray, value: tuple[int, ...]) -> None:
        size = len(value)
        first = value[0] if size else 0
        counts = size > 1 and value == tuple(range(first, first + size))
        put_uint(out, size << 1 | counts)
        for one in value[:1] if counts else value:
            put_int(out, one - self._last)
            self._last = one
        if counts:
            self._last = value[-1]

    def get(self, source: Source) -> tuple[int, ...]:
        head = source.uint()
        size, found = head >> 1, list[int]()
        source.allowance.take(size)
        for _ in range(1 if head & 1 else size):
            self._last += source.signed()
            found.append(self._last)
        if head & 1:
            found.extend(range(found[0] + 1, found[0] + size))
            self._last = found[-1]
        return tuple(found)


class RepeatColumn:
    """A tuple of records of which many were said before: what is owed is told until it is heard.

    Records are numbered as they come; known ones are told as stretches of numbers.
    """

    zero: tuple[Any, ...] = ()

    def __init__(self, item: Codec, same: Callable[[Any, Any], bool]) -> None:
        """Take `same`, which says whether two records are equal, bit by bit."""
        self._item, self._same = item, same
        self._numbers: dict[Any, int] = {}
        self._values: list[Any] = []
        # A stretch is written relative to the number behind the last one.
        self._next = 0

    def put(self, out: bytearray, value: tuple[Any, ...]) -> None:
        size = len(value)
        if not size:
            out.append(0)
            return
        if len(self._values) >= NUMBERED_RECORDS_MAX:
            self._numbers.clear()
            self._values.clear()
            self._next = 0
        known = self._known(value)
        if max(known) < 0:
            put_uint(out, size << 1)
            for one in value:
                self._new(out, one)
            return
        put_uint(out, size << 1 | _HAS_REPEATS_BIT)
        at = 0
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

    def _known(self, value: tuple[Any, ...]) -> list[int]:
        find, values, same = self._numbers.get, self._values, self._same
        known = [find(one, -1) for one in value]
        if max(known) >= 0:
            for place, number in enumerate(known):
                if number >= 0 and not same(values[number], value[place]):
                    known[place] = -1
        return known

    def _new(self, out: bytearray, one: Any) -> None:
        self._numbers[one] = len(self._values)
        self._values.append(one)
        self._item.put(out, one)

    def get(self, source: Source) -> tuple[Any, ...]:
        head = source.uint()
        if not head:
            return ()
        values, get = self._values, self._item.get
        if len(values) >= NUMBERED_RECORDS_MAX:
            values.clear()
            self._next = 0
        size = head >> 1
        source.allowance.take(size)
        found: list[Any] = []
        if not head & _HAS_REPEATS_BIT:
            found = [get(source) for _ in range(size)]
            values += found
            return tuple(found)
        while len(found) < size:
            tag = source.uint()
            count = tag >> 1
            if tag & 1:
                first = self._next + source.signed()
                self._next = first + count
                more = values[first : self._next]
            else:
                more = [get(source) for _ in range(count)]
                values += more
            if not more or len(found) + len(more) > size:
                raise ValueError("the tape repeats what was not said")
            found += more
        return tuple(found)


class RunsColumn:
    """A tuple of records of containers: those of consecutive ones that are alike are told as one.

    Records are numbered as they come. A run that was said before is told by its first number, so
    what is owed costs little until it is heard; the writer remembers runs, not what they hold.
    """

    zero: tuple[Any, ...] = ()

    def __init__(
        self,
        item: Codec,
        same: Callable[[Any, Any], bool],
        run_of: Callable[[Sequence[Any], int, int], tuple[int, int]],
    ) -> None:
        """Take `same`, which says whether two records are equal, bit by bit.

        `run_of(records, first, most)`: where the records end that are of the next container each
        and else like the first, and whether they are of the next task each (1) or the same (0).
        """
        self._item, self._same, self._run_of = item, same, run_of
        # Runs are found by their first container.
        self._runs: dict[int, tuple[int, Any, int, int]] = {}
        self._count = 0
        # The reader's list has the records by number.
        self._values: list[Any] = []
        # A run is written relative to the number behind the last one.
        self._next = 0

    def put(self, out: bytearray, value: tuple[Any, ...]) -> None:
        size = len(value)
        if not size:
            out.append(0)
            return
        if self._count >= NUMBERED_RECORDS_MAX:
            self._runs.clear()
            self._count = self._next = 0
        parts, how = self._parts(value, size)
        put_uint(out, size << 2 | how)
        put, at = self._item.put, 0
        for number, count, step in parts:
            if how == _MIXED:
                put_uint(out, 0 if number < 0 else count)
            if number < 0:
                put(out, value[at])
                if how != _SINGLE_RECORDS:
                    put_uint(out, count - 1 << 1 | step)
            else:
                put_int(out, number - self._next)
                self._next = number + count
            at += count

    def _parts(self, value: tuple[Any, ...], size: int) -> tuple[list[tuple[int, int, int]], int]:
        """Return the runs of a list: each known one's number (-1: new), how many, which step."""
        runs, run_of, same = self._runs, self._run_of, self._same
        parts = list[tuple[int, int, int]]()
        at, how = 0, _SINGLE_RECORDS
        while at < size:
            one = value[at]
            run = runs.get(one.container_id)
            if run is not None and same(run[1], one):
                number, _, most, step = run
                end, found = run_of(value, at, min(size, at + most))
                if found != step:
                    end = at + 1
                parts.append((number, end - at, step))
                how = _MIXED
            else:
                end, step = run_of(value, at, size)
                parts.append((-1, end - at, step))
                runs[one.container_id] = (self._count, one, end - at, step)
                self._count += end - at
                if end - at > 1 and not how:
                    how = _RUNS
            at = end
        return parts, how

    def get(self, source: Source) -> tuple[Any, ...]:
        head = source.uint()
        if not head:
            return ()
        values = self._values
        if len(values) >= NUMBERED_RECORDS_MAX:
            values.clear()
            self._next = 0
        size, how = head >> 2, head & 3
        source.allowance.take(size)
        found: list[Any] = []
        while len(found) < size:
            known = source.uint() if how == _MIXED else 0
            if known:
                first = self._next + source.signed()
                self._next = first + known
                more = values[first : self._next]
            else:
                one = self._item.get(source)
                more = [one] if how == _SINGLE_RECORDS else self._run(source, one)
                values += more
            if not more or len(found) + len(more) > size:
                raise ValueError("the tape repeats what was not said")
            found += more
        return tuple(found)

    def _run(self, source: Source, first: Any) -> list[Any]:
        tag = source.uint()
        source.allowance.take((tag >> 1) * _RECORD_VALUES)
        step, number, task = tag & 1, first.container_id, first.task if tag > 1 else 0
        more = [
            changed(first, container_id=number + place, task=task + step * place)
            for place in range(1, (tag >> 1) + 1)
        ]
        return [first, *more]


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
