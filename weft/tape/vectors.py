"""Columns of tuples of floats: demands, which come again, and sums of them."""

# ruff: noqa: D102 (`put` and `get` of every column are those of Codec)

import struct
from typing import Any

from weft.tape.columns import (
    GRID_FLOAT_MAX,
    OFF_ULPS_MAX,
    SENDERS_MAX,
    Context,
    FloatColumn,
    Table,
    bits_of,
    of_bits,
)
from weft.tape.streams import Source, fold, put_int, put_uint, unfold


class VectorColumn:
    """A tuple of floats: a known one by its number, else place by place against the one before.

    With a context that is the one before of the same sender.
    """

    zero: tuple[float, ...] = ()

    def __init__(self, context: Context | None = None) -> None:
        self._context = context
        self._table, self._rare = Table(), Table()
        self._before: dict[Any, list[FloatColumn]] = {}

    def _places(self, size: int) -> list[FloatColumn]:
        sender = None if self._context is None else self._context.sender
        if len(self._before) > SENDERS_MAX:
            self._before.clear()
        places = self._before.setdefault(sender, [])
        while len(places) < size:
            places.append(FloatColumn(table=self._rare))
        return places

    def put(self, out: bytearray, value: tuple[float, ...]) -> None:
        number = self._table.number(struct.pack(f"<{len(value)}d", *value))
        put_uint(out, number)
        if not number:
            self._put_places(out, value)

    def get(self, source: Source) -> Any:
        number = source.uint()
        return self._table.find(number) if number else self._table.learn(self._get_places(source))

    def _put_places(self, out: bytearray, value: tuple[float, ...]) -> None:
        put_uint(out, len(value))
        for place, amount in zip(self._places(len(value)), value, strict=False):
            place.put(out, amount)

    def _get_places(self, source: Source) -> tuple[float, ...]:
        size = source.uint()
        if size > len(source.data) - source.at:
            # An amount takes at least one byte.
            raise ValueError("the tape has a vector without end")
        places = self._places(size)
        return tuple([places[i].get(source) for i in range(size)])


# A vector is known, or follows as a step that is exact to the last bit or nearly.
_AGO, _EXACT, _OFF = 0, 1, 2


class SumColumn(VectorColumn):
    """A tuple of floats that are sums: a task that starts adds its demand, one that ends takes it.

    So most are the one before and a step of thousandths, but for what adding rounds; and steps come
    again. Known vectors are told by how long ago they came: masters are told one after the other
    what is free.
    """

    def __init__(self, context: Context | None = None) -> None:
        super().__init__(context)
        self._steps = Table()
        self._last: dict[Any, tuple[float, ...]] = {}

    def _whose(self) -> Any:
        if len(self._last) > SENDERS_MAX:
            self._last.clear()
        return None if self._context is None else self._context.sender

    def put(self, out: bytearray, value: tuple[float, ...]) -> None:
        sender = self._whose()
        last = self._last.get(sender, ())
        self._last[sender] = value
        ago = self._table.ago(struct.pack(f"<{len(value)}d", *value))
        if ago:
            put_uint(out, ago << 2 | _AGO)
            return
        found = _step(last, value)
        if found is None:
            out.append(0)
            self._put_places(out, value)
            return
        step, offs = found
        number = self._steps.number(step)
        put_uint(out, number << 2 | (_OFF if offs else _EXACT))
        if not number:
            for amount in step:
                whole, rest = divmod(amount, 1000)
                put_uint(out, fold(amount) << 1 | 1 if rest else fold(whole) << 1)
        for off in offs:
            put_int(out, off)

    def get(self, source: Source) -> Any:
        sender, head = self._whose(), source.uint()
        last = self._last.get(sender, ())
        number, kind = head >> 2, head & 3
        if not head:
            value = self._table.learn(self._get_places(source))
        elif kind == _AGO:
            value = self._table.find_ago(number)
        else:
            if number:
                step = self._steps.find(number)
            else:
                step = self._steps.learn(tuple([self._amount(source) for _ in last]))
            sums = [a + b / 1000.0 for a, b in zip(last, step, strict=True)]
            if kind == _OFF:
                sums = [of_bits(bits_of(one) + source.signed()) for one in sums]
            value = self._table.learn(tuple(sums))
        self._last[sender] = value
        return value

    @staticmethod
    def _amount(source: Source) -> int:
        number = source.uint()
        return unfold(number >> 1) * (1 if number & 1 else 1000)


def _step(
    last: tuple[float, ...], value: tuple[float, ...]
) -> tuple[tuple[int, ...], list[int]] | None:
    """Return the thousandths that make one vector of another, and what is missing then.

    What is missing is in units of the last place (none: []). None where there is no short way to
    say it.
    """
    if len(last) != len(value):
        return None
    step, offs = [], []
    for before, after in zip(last, value, strict=True):
        change = (after - before) * 1000.0
        if not -GRID_FLOAT_MAX < change < GRID_FLOAT_MAX:
            return None
        amount = round(change)
        near = before + amount / 1000.0
        exact = near == after and (after or str(after) == str(near))
        off = 0 if exact else bits_of(after) - bits_of(near)
        if not -OFF_ULPS_MAX < off < OFF_ULPS_MAX:
            return None
        step.append(amount)
        offs.append(off)
    return tuple(step), offs if any(offs) else []
