"""Records: immutable, and dataclasses to whoever looks into them."""

import copy
import pickle
from collections.abc import Callable
from dataclasses import field, fields, is_dataclass
from typing import Any

import pytest

from weft.protocol.record import as_dict, changed, record, slotted


@record
class Point:
    """A record with a default and a property."""

    x: int
    y: int = 0

    @property
    def sum(self) -> int:
        return self.x + self.y


@slotted
class Counter:
    """Slots with a default, and a property."""

    name: str
    count: int = 0
    before: "Counter | None" = None
    of: "Held | None" = None

    @property
    def twice(self) -> int:
        return 2 * self.count


class Held:
    """What holds one that names it."""

    counter: Counter


def test_what_is_slotted_changes_and_is_nothing_but_itself() -> None:
    one = Counter("a", 1)
    one.count += 2
    one.before = Counter("b")
    assert (one.name, one.twice, one.before.count) == ("a", 6, 0)
    assert one != Counter("a", 3, one.before)
    assert {one: 1}[one] == 1
    with pytest.raises(AttributeError, match="further"):
        one.further = 1  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="Later: a record has no base"):

        @slotted
        class Later(Counter):
            at: int = 0


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_copy_of_what_leads_back_to_itself_does_so_as_well(copied: Callable[[Any], Any]) -> None:
    one, held = Counter("a", 3), Held()
    one.before = one
    held.counter = Counter("b", 4)
    held.counter.of = held
    other = copied(one)
    assert other is not one
    assert other.before is other
    assert (other.name, other.count) == ("a", 3)
    both = copied([held, held.counter])
    assert both[0].counter is both[1]
    assert both[1].of is both[0]
    assert both[1] is not held.counter


def test_a_record_is_an_immutable_dataclass() -> None:
    one = Point(1)
    assert is_dataclass(one)
    assert [each.name for each in fields(one)] == ["x", "y"]
    assert (one, hash(one), repr(one)) == (Point(1, 0), hash(Point(1, 0)), "Point(x=1, y=0)")
    assert (changed(one, y=2).sum, one.sum) == (3, 1)
    assert as_dict(one) == {"x": 1, "y": 0}
    assert pickle.loads(pickle.dumps(one)) == one
    with pytest.raises(AttributeError, match="immutable"):
        one.x = 2  # type: ignore[misc]


def test_what_a_record_would_lose_is_refused() -> None:
    with pytest.raises(TypeError, match="Lists: a record has no base, and plain defaults only"):

        @record
        class Lists:
            of: list[int] = field(default_factory=list)

    with pytest.raises(TypeError, match="Further: a record has no base"):

        @record
        class Further(Point):
            z: int = 0
