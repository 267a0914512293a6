"""What the sources are rewritten to before they are compiled means the same."""

from pathlib import Path
from typing import Any

from tools.native_sources import enums_of, fix_constants, write_out_records

COLOURS = """
from enum import Enum

class Colour(Enum):
    RED = 1
    BLUE = 2
"""
USER = '''"""A module."""

from colours import Colour
from enum import IntEnum
from heapq import heappop
from math import inf

from weft.policies.compiled import steady
from weft.protocol.record import record, slotted

EARLY, LATE = NAMES = (
    "early", "late",
)
FIRST, SECOND = range(2)
LIMIT = 3
_half, _twice = steady(lambda x: x / 2), steady(lambda x: x * 2)


class Size(IntEnum):
    """A size."""

    SMALL = 1
    LARGE = 2

    def other(self) -> "Size":
        """Return the other one."""
        return Size.SMALL if self is Size.LARGE else Size.LARGE


@record
class Point:
    """A record."""

    x: int
    y: int = 2


@slotted
class Counter:
    """One that changes."""

    name: str
    count: int = LIMIT


def told(heap: list[float], colour: Colour) -> object:
    """Use all of it."""
    match colour:
        case Colour.RED:
            found = "red"
        case _:
            found = "blue" if colour is Colour.BLUE else ""
    if heappop(heap) == inf:
        return None
    return found, EARLY, LATE, NAMES, FIRST, SECOND, LIMIT, Size.SMALL.other(), _twice.code(4)
'''


def _told(path: Path) -> object:
    names: dict[str, Any] = {}
    source = path.read_text()
    exec(compile(source, str(path), "exec", dont_inherit=True), names)
    point = names["Point"]
    assert point(1) == point(1, 2)
    one = names["Counter"]("a")
    one.count += 1
    assert (one.name, one.count, one == names["Counter"]("a", 4)) == ("a", 4, False)
    colour = names["Colour"]
    return [names["told"]([1.0], one) for one in colour], names["told"]([float("inf")], colour.RED)


def test_names_that_never_change_are_told_to_the_compiler(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "colours.py").write_text(COLOURS)
    path = tmp_path / "user.py"
    path.write_text(USER)
    before = _told(path)
    enums = enums_of(tmp_path)
    assert enums == {"Colour", "Size"}
    fix_constants(path, enums)
    write_out_records(path)
    text = path.read_text()
    for line in (
        "EARLY: Final_ = 'early'",
        "NAMES: Final_ = ('early', 'late')",
        "SECOND: Final_ = 1",
        "_twice: Final_ = steady(",
        "_Colour_BLUE_: Final_ = Colour.BLUE",
        "_inf_: Final_ = inf",
        "colour is _Colour_BLUE_",
        "_heappop_(heap)",
        "case Colour.RED",
        "self is _Size_LARGE_",
    ):
        assert line in text, line
    assert _told(path) == before
