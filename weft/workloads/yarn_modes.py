"""What queues of capacity-scheduler.xml have, by label: percentages, weights or amounts.

YARN takes one of the three among the queues below one (its legacy queue mode, which is on unless a
file says otherwise), and amounts only below root or below amounts.
"""

import ctypes
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from weft.model.errors import InputError
from weft.workloads.yarn_words import FLOAT, read_number

# AbstractParentQueue and CapacitySchedulerConfiguration go by these.
SUM_TOLERANCE = 5e-4
WEIGHT_MAX = 10_000.0
PERCENT, WEIGHT, AMOUNTS = "a percentage", "a weight", "amounts"

_WEIGHT = re.compile(r"(-?\d+(?:\.\d+)?)\s*w")
_PERCENT = re.compile(rf"({FLOAT})\s*%?")
_AMOUNTS = re.compile(r"\[([\w.,\-=\s/]+)\]")
_AMOUNT = re.compile(r"([\w./-]+)\s*=\s*(\d+)([A-Za-z]*)")
_NAMES = {"memory": "memory_mb", "vcores": "vcores"}
# One unit in those that YARN counts memory with, MB.
_UNITS = {"": 1.0, "Ki": 2**-10, "Mi": 1.0, "Gi": 2**10, "Ti": 2**20, "Pi": 2**30}
_UNITS |= {"k": 1e3 / 2**20, "M": 1e6 / 2**20, "G": 1e9 / 2**20, "T": 1e12 / 2**20}

Amounts = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Said:
    """A capacity as a file says it: a fraction, a weight, or amounts by type."""

    kind: str
    number: float = 0.0
    amounts: Amounts = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Part:
    """What a queue has of the nodes of one label.

    `capacity` and `max_capacity` are fractions of the queue above, `absolute` is one of all nodes.
    `least` and `most` are amounts, by type. `said` is what the file says, `said_most` the maximum
    where it is in amounts.
    """

    capacity: float
    max_capacity: float
    absolute: float
    least: Amounts
    most: Amounts
    said: Said
    said_most: Amounts = field(default_factory=dict)


def whole(total: Amounts) -> Part:
    """Return root's part of nodes that have so much."""
    return Part(1.0, 1.0, 1.0, total, total, Said(PERCENT, 1.0))


def read_capacity(text: str, place: str, known: Amounts) -> Said:
    """Read a capacity, in types that are `known`; raises InputError for what YARN refuses, too."""
    if weight := _WEIGHT.fullmatch(text.strip()):
        number = float(weight[1])
        if number < 0 or number > WEIGHT_MAX:
            raise InputError(place, f"a weight is from 0 to {WEIGHT_MAX:g}, got {text!r}")
        return Said(WEIGHT, number)
    if (amounts := read_amounts(text, place, known)) is not None:
        return Said(AMOUNTS, amounts=amounts)
    if percent := _PERCENT.fullmatch(text.strip()):
        number = read_number(percent[1], place)
        if not 0 <= number <= 100:
            raise InputError(place, f"expected a percentage from 0 to 100, got {text!r}")
        return Said(PERCENT, number / 100)
    raise InputError(place, f"expected a percentage, a weight or amounts, got {text!r}")


def read_amounts(text: str, place: str, known: Amounts) -> dict[str, float] | None:
    """Read `[memory=1024,vcores=2]`; None: these are no amounts. Without memory there are none."""
    inside = _AMOUNTS.fullmatch(text.strip())
    if inside is None:
        return None
    found: dict[str, float] = {}
    for word in inside[1].split(","):
        amount = _AMOUNT.fullmatch(word.strip())
        if amount is None or amount[3] not in _UNITS:
            raise InputError(place, f"expected amounts as [memory=1024,vcores=2], got {text!r}")
        unit = _UNITS[amount[3]] if amount[1] == "memory" else 1.0
        name = _NAMES.get(amount[1], amount[1])
        if name not in known:
            raise InputError(place, f"{text!r} is an amount of {name}, and no node offers any")
        found[name] = float(int(float(amount[2]) * unit))
    return found if found.get("memory_mb") else {}


def read_maximum(text: str, place: str) -> float:
    """Read a maximum in percent as a fraction; raises InputError."""
    percent = _PERCENT.fullmatch(text.strip())
    if percent is None:
        raise InputError(place, f"expected a percentage or amounts, got {text!r}")
    number = read_number(percent[1], place)
    return 1.0 if number < 0 else min(number / 100, 1.0)


class Modes:
    """Works out the parts of queues below one, and what YARN refuses of them."""

    def __init__(
        self, known: Amounts, *, dominant: bool, mixed: bool, zero_sums: Iterable[str]
    ) -> None:
        """Compare by all types or memory alone; `mixed`: not in legacy queue mode.

        `known` has all types that nodes offer.

        `zero_sums` are the queues below which nothing may be guaranteed.
        """
        self._known = known
        self._dominant = dominant
        self._mixed = mixed
        self._zero_sums = frozenset(zero_sums)

    def parts(
        self, total: Amounts, above: Part, said: Mapping[str, tuple[Said, str]], places: str
    ) -> dict[str, Part]:
        """Return the parts of queues, by name, of nodes that have `total` in all.

        `said` has their capacities, and their maxima as texts; `places` says where a maximum is.
        """
        kinds: dict[str, list[Said]] = {}
        for capacity, _ in said.values():
            kinds.setdefault(capacity.kind, []).append(capacity)
        percents = sum(one.number for one in kinds.get(PERCENT, ()))
        left = max(0.0, 1.0 - percents)
        # Where all weights are 0, each queue's part is, too.
        weights = sum(one.number for one in kinds.get(WEIGHT, ())) or 1.0
        asked: dict[str, float] = {}
        for one in kinds.get(AMOUNTS, ()):
            for name, amount in one.amounts.items():
                asked[name] = asked.get(name, 0.0) + amount
        scale: dict[str, float] = {}
        if self._less(total, above.least, asked):
            scale = {
                name: _single(_single(above.least.get(name, 0.0)) / _single(one))
                for name, one in asked.items()
                if one
            }
        found = {}
        for name, (capacity, most) in said.items():
            if capacity.kind == AMOUNTS:
                # Amounts are whole, so of one core that is scaled down nothing stays.
                least = dict(capacity.amounts)
                for type_ in least.keys() & scale.keys():
                    least[type_] = float(int(_single(_single(least[type_]) * scale[type_])))
                part = self._share(total, least, above.least)
            else:
                part = capacity.number
                if capacity.kind == WEIGHT:
                    part = left * capacity.number / weights
                least = {one: amount * part for one, amount in above.least.items()}
            place = places.format(name)
            found[name] = self._part(total, above, capacity, part, least, most, place)
        # Dominant parts of unlike amounts sum to more than the queue above has.
        sum_ = sum(part.capacity for part in found.values())
        if kinds.keys() == {AMOUNTS} and sum_ > 1:
            found = {k: replace(part, capacity=part.capacity / sum_) for k, part in found.items()}
        return found

    def _part(
        self,
        total: Amounts,
        above: Part,
        capacity: Said,
        part: float,
        least: Amounts,
        most: str,
        place: str,
    ) -> Part:
        said_most = read_amounts(most, place, self._known)
        limit: Amounts = {}
        if capacity.kind == AMOUNTS:
            # A maximum in percent is not looked at beside amounts, nor amounts beside percentages.
            limit = said_most or (above.said_most if capacity.amounts else {})
            bound = limit and (not above.most or self._less(total, limit, above.most))
            highest = limit if bound else above.most
            fraction = self._share(total, highest, above.most)
        else:
            fraction = 1.0
            if said_most is None:
                fraction = read_maximum(most, place)
            highest = {one: amount * fraction for one, amount in above.most.items()}
        return Part(
            min(part, 1.0),
            min(fraction, 1.0),
            above.absolute * min(part, 1.0),
            least,
            highest,
            capacity,
            limit,
        )

    def check(
        self,
        path: str,
        above: Mapping[str, Part],
        below: Mapping[str, Mapping[str, Said]],
        place: str,
    ) -> None:
        """Raise where YARN would not take the queues below one: kinds that mix, and sums.

        `above` and `below` are by label.
        """
        if self._mixed or not below:
            return
        kind = self._kind(path, [below[label] for label in below], place)
        if path != "root":
            own = next(iter(above.values())).said.kind
            if own != kind and AMOUNTS in (own, kind):
                raise InputError(place, f"{path} has {own}, and queues below it {kind}")
        for label, said in below.items():
            if label in above and kind == PERCENT:
                self._check_sum(path, label, above[label], list(said.values()), place)
            elif label in above and kind == AMOUNTS:
                self._check_amounts(path, above[label], list(said.values()), place)

    def _kind(self, path: str, labels: Sequence[Mapping[str, Said]], place: str) -> str:
        percent = weight = amounts = False
        names = list(dict.fromkeys(name for said in labels for name in said))
        for name in names:
            for said in labels:
                one = said.get(name, Said(PERCENT))
                percent |= one.kind == PERCENT and one.number > 0
                weight |= one.kind == WEIGHT
                if one.kind == AMOUNTS:
                    # As there: what came before it in percent is forgotten.
                    amounts, percent = True, False
        if percent + weight + amounts > 1:
            raise InputError(
                place, f"queues below {path} mix percentages, weights and amounts, as YARN refuses"
            )
        return WEIGHT if weight else AMOUNTS if amounts else PERCENT

    def _check_sum(
        self, path: str, label: str, above: Part, said: Sequence[Said], place: str
    ) -> None:
        total = sum(one.number for one in said)
        of = f" of nodes with {label!r}" if label else ""
        has = above.said.kind == PERCENT and above.said.number
        if abs(1 - total) > SUM_TOLERANCE:
            if total > SUM_TOLERANCE:
                text = f"the capacities{of} below {path} sum to {total * 100:g} %, not to 0 or 100"
                raise InputError(place, text)
            if has > SUM_TOLERANCE and path not in self._zero_sums:
                raise InputError(place, f"{path} has a capacity{of}, and no queue below it has")
        elif above.said.kind == PERCENT and not has and path not in self._zero_sums:
            raise InputError(place, f"{path} has no capacity{of}, and queues below it have")

    def _check_amounts(self, path: str, above: Part, said: Sequence[Said], place: str) -> None:
        asked: dict[str, float] = {}
        for one in said:
            for name, amount in one.amounts.items():
                asked[name] = asked.get(name, 0.0) + amount
        # YARN checks it before it knows any node.
        if above.said.amounts and self._less({}, above.said.amounts, asked):
            text = f"{path} has {_told(above.said.amounts)}, queues below it {_told(asked)}"
            raise InputError(place, text)

    def _less(self, total: Amounts, a: Amounts, b: Amounts) -> bool:
        """Return whether one amount is less than another, by the calculator."""
        if not self._dominant:
            return a.get("memory_mb", 0.0) < b.get("memory_mb", 0.0)
        if total:
            return self._dominance(total, a) < self._dominance(total, b)
        names = {*a, *b}
        lower = any(a.get(name, 0.0) < b.get(name, 0.0) for name in names)
        return lower and not any(a.get(name, 0.0) > b.get(name, 0.0) for name in names)

    def _share(self, total: Amounts, a: Amounts, b: Amounts) -> float:
        if self._dominant:
            over, under = self._dominance(total, a), self._dominance(total, b)
        else:
            over, under = a.get("memory_mb", 0.0), b.get("memory_mb", 0.0)
        return over / under if under else 0.0

    def _dominance(self, total: Amounts, a: Amounts) -> float:
        parts = [amount / total[name] for name, amount in a.items() if total.get(name)]
        return max(parts, default=0.0)


def _single(number: float) -> float:
    """Return a number in single precision, as YARN has ratios."""
    return ctypes.c_float(number).value


def _told(amounts: Amounts) -> str:
    return ", ".join(f"{amount:g} {name}" for name, amount in amounts.items())
