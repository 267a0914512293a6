"""Amounts as YARN's resource calculators compare, round and divide them.

Whole numbers, and ratios in single precision as there: two queues that are equal but for the
seventh digit go in the order that YARN gives them. `memory` is DefaultResourceCalculator, where one
number counts; `dominant` is DominantResourceCalculator.
"""

import math
import operator
from array import array
from typing import Any, Protocol

# An amount is an int with `memory`, a tuple of ints with `dominant`.
Amount = Any
# Smaller whole numbers are the same in single precision.
_EXACT_BELOW = 1 << 24
_cell = array("f", (0.0,))


def single(value: float) -> float:
    """Return a number rounded to single precision."""
    _cell[0] = value
    return _cell[0]


def _up(value: int, step: int) -> int:
    return -(-value // step) * step if step else value


def _down(value: int, step: int) -> int:
    """Return a number rounded toward zero, as division does in Java."""
    if not step:
        return value
    return value // step * step if value >= 0 else -(-value // step * step)


class Calculator(Protocol):
    """Compares amounts, with `total` the cluster's as YARN passes it."""

    none: Amount

    def of(self, vector: tuple[float, ...]) -> Amount:
        """Return the amounts of a vector in the cluster's order of types."""

    def memory_of(self, a: Amount) -> int:
        """Return the memory of an amount."""

    def add(self, a: Amount, b: Amount) -> Amount:
        """Return a sum."""

    def sub(self, a: Amount, b: Amount) -> Amount:
        """Return a difference, below 0 where it is."""

    def times(self, a: Amount, count: int) -> Amount:
        """Return so many times an amount."""

    def compare(self, total: Amount, a: Amount, b: Amount) -> int:
        """Return -1, 0 or 1: which is more of the cluster."""

    def fits(self, a: Amount, b: Amount) -> bool:
        """Return whether `a` has room in `b`."""

    def at_once(self, room: Amount, need: Amount) -> int:
        """Return how many containers of a need have room."""

    def positive(self, a: Amount) -> bool:
        """Return whether anything of it is above 0."""

    def ratio(self, a: Amount, b: Amount) -> float:
        """Return a over b, the dominant one, in single precision."""

    def divide(self, total: Amount, a: Amount, b: Amount) -> float:
        """Return the share of a over the share of b."""

    def share(self, a: Amount, by: float) -> Amount:
        """Return a part of an amount, rounded down."""

    def part_up(self, a: Amount, by: float, step: Amount) -> Amount:
        """Return a part of an amount, rounded up to whole steps (multiplyAndNormalizeUp)."""

    def part_down(self, a: Amount, by: float, step: Amount) -> Amount:
        """Return a part of an amount, rounded down to whole steps."""

    def split(self, a: Amount, among: float) -> Amount:
        """Return an amount over a number, rounded up (divideAndCeil)."""

    def up(self, a: Amount, step: Amount) -> Amount:
        """Return an amount rounded up to whole steps."""

    def down(self, a: Amount, step: Amount) -> Amount:
        """Return an amount rounded down to whole steps."""

    def least(self, a: Amount, b: Amount) -> Amount:
        """Return the smaller of each."""

    def floored(self, a: Amount) -> Amount:
        """Return an amount with what is below 0 set to 0."""

    def some_spent(self, a: Amount) -> bool:
        """Return whether anything of it is 0 or less."""

    def parts(self, a: Amount) -> tuple[int, ...]:
        """Return its numbers, one for each type that counts."""

    def parts_up(self, a: Amount, by: tuple[float, ...]) -> Amount:
        """Return a part of each type, rounded up to whole units."""

    def whole(self) -> Amount:
        """Return one of each type."""

    def owed(self, a: Amount) -> Amount:
        """Return an amount with -1 for what is 0, so that it counts as more than given."""


class _Memory:
    """One type counts: the first."""

    none: Amount = 0
    add = staticmethod(operator.add)
    sub = staticmethod(operator.sub)
    times = staticmethod(operator.mul)
    fits = staticmethod(operator.le)
    up = staticmethod(_up)
    down = staticmethod(_down)
    least = staticmethod(min)

    def of(self, vector: tuple[float, ...]) -> Amount:
        return round(vector[0])

    def memory_of(self, a: Amount) -> int:
        return int(a)

    def compare(self, total: Amount, a: Amount, b: Amount) -> int:
        return int(a > b) - int(a < b)

    def at_once(self, room: Amount, need: Amount) -> int:
        return int(room // need) if room >= 0 else 0

    def positive(self, a: Amount) -> bool:
        return bool(a > 0)

    def ratio(self, a: Amount, b: Amount) -> float:
        if not b:
            return 0.0 if not a else math.inf
        if a < _EXACT_BELOW and b < _EXACT_BELOW:
            return single(a / b)
        return single(single(a) / single(b))

    def divide(self, total: Amount, a: Amount, b: Amount) -> float:
        return self.ratio(a, b)

    def share(self, a: Amount, by: float) -> Amount:
        return int(a * by)

    def part_up(self, a: Amount, by: float, step: Amount) -> Amount:
        return _up(int(a * by + 0.5), step)

    def part_down(self, a: Amount, by: float, step: Amount) -> Amount:
        return _down(int(a * by), step)

    def split(self, a: Amount, among: float) -> Amount:
        if isinstance(among, int):
            return -(-a // among) if among else 0
        return math.ceil(single(single(a) / among)) if among else 0

    def floored(self, a: Amount) -> Amount:
        return max(0, a)

    def some_spent(self, a: Amount) -> bool:
        return bool(a <= 0)

    def parts(self, a: Amount) -> tuple[int, ...]:
        return (a,)

    def parts_up(self, a: Amount, by: tuple[float, ...]) -> Amount:
        return int(a * by[0] + 0.5)

    def whole(self) -> Amount:
        return 1

    def owed(self, a: Amount) -> Amount:
        return a or -1


class _Dominant:
    """All types count; of two amounts, the one with the larger dominant share is more."""

    def __init__(self, d: int, memory_at: int) -> None:
        self.none: Amount = (0,) * d
        self._memory_at = memory_at

    def of(self, vector: tuple[float, ...]) -> Amount:
        return tuple([round(one) for one in vector])

    def memory_of(self, a: Amount) -> int:
        return int(a[self._memory_at])

    def add(self, a: Amount, b: Amount) -> Amount:
        return tuple([x + y for x, y in zip(a, b, strict=True)])

    def sub(self, a: Amount, b: Amount) -> Amount:
        return tuple([x - y for x, y in zip(a, b, strict=True)])

    def times(self, a: Amount, count: int) -> Amount:
        return tuple([x * count for x in a])

    def compare(self, total: Amount, a: Amount, b: Amount) -> int:
        if a == b:
            return 0
        if not any(total):
            more = any(x > y for x, y in zip(a, b, strict=True))
            less = any(x < y for x, y in zip(a, b, strict=True))
            return more - less
        mine = sorted([x / c if c else math.inf for x, c in zip(a, total, strict=True)])
        others = sorted([x / c if c else math.inf for x, c in zip(b, total, strict=True)])
        for x, y in zip(reversed(mine), reversed(others), strict=True):
            if x != y and math.inf not in (x, y):
                return 1 if x > y else -1
        return 0

    def fits(self, a: Amount, b: Amount) -> bool:
        return all(x <= y for x, y in zip(a, b, strict=True))

    def at_once(self, room: Amount, need: Amount) -> int:
        counts = [int(x / y) for x, y in zip(room, need, strict=True) if y]
        return min(counts, default=2**31 - 1)

    def positive(self, a: Amount) -> bool:
        return any(x > 0 for x in a)

    def ratio(self, a: Amount, b: Amount) -> float:
        best = 0.0
        for x, y in zip(a, b, strict=True):
            if y:
                best = max(best, single(single(x) / single(y)))
            elif x:
                best = math.inf
        return best

    def divide(self, total: Amount, a: Amount, b: Amount) -> float:
        over = max([0.0] + [x / c for x, c in zip(a, total, strict=True) if c])
        under = max([0.0] + [x / c for x, c in zip(b, total, strict=True) if c])
        if not under:
            return math.inf if over else math.nan
        return single(over / under)

    def share(self, a: Amount, by: float) -> Amount:
        return tuple([int(x * by) for x in a])

    def part_up(self, a: Amount, by: float, step: Amount) -> Amount:
        return tuple([_up(math.ceil(single(x * by)), s) for x, s in zip(a, step, strict=True)])

    def part_down(self, a: Amount, by: float, step: Amount) -> Amount:
        return tuple([_down(int(x * by), s) for x, s in zip(a, step, strict=True)])

    def split(self, a: Amount, among: float) -> Amount:
        if isinstance(among, int):
            return tuple([-(-x // among) if among else 0 for x in a])
        return tuple([math.ceil(single(single(x) / among)) if among else 0 for x in a])

    def up(self, a: Amount, step: Amount) -> Amount:
        return tuple([_up(x, s) for x, s in zip(a, step, strict=True)])

    def down(self, a: Amount, step: Amount) -> Amount:
        return tuple([_down(x, s) for x, s in zip(a, step, strict=True)])

    def least(self, a: Amount, b: Amount) -> Amount:
        return tuple([min(x, y) for x, y in zip(a, b, strict=True)])

    def floored(self, a: Amount) -> Amount:
        return tuple([max(0, x) for x in a])

    def some_spent(self, a: Amount) -> bool:
        return any(x <= 0 for x in a)

    def parts(self, a: Amount) -> tuple[int, ...]:
        return tuple(a)

    def parts_up(self, a: Amount, by: tuple[float, ...]) -> Amount:
        return tuple([math.ceil(x * part) for x, part in zip(a, by, strict=True)])

    def whole(self) -> Amount:
        return (1,) * len(self.none)

    def owed(self, a: Amount) -> Amount:
        return tuple([x or -1 for x in a])


def memory() -> Calculator:
    """Return the calculator that looks at memory alone."""
    return _Memory()


def dominant(d: int, memory_at: int) -> Calculator:
    """Return the calculator that looks at all of `d` types, memory at its place among them."""
    return _Dominant(d, memory_at)
