"""A life cycle refuses what its table does not name, and its drawing shows every step."""

from enum import Enum

import pytest

from weft.model.errors import InvariantError
from weft.protocol.lifecycle import Lifecycle, drawn


class Door(Enum):
    OPEN = 1
    SHUT = 2
    GONE = 3


class Deed(Enum):
    PUSH = 1
    PULL = 2
    BURN = 3


class Noise(Enum):
    SLAM = 1


CYCLE: Lifecycle[Door, Deed, Noise] = Lifecycle(
    "Door",
    Door.OPEN,
    {
        (Door.OPEN, Deed.PUSH): (Door.SHUT, Noise.SLAM),
        (Door.SHUT, Deed.PULL): Door.OPEN,
        (Door.SHUT, Deed.BURN): Door.GONE,
    },
)


def test_an_unknown_pair_raises_with_both_names() -> None:
    assert CYCLE.next(Door.OPEN, Deed.PUSH) is Door.SHUT
    assert not CYCLE.allows(Door.GONE, Deed.PUSH)
    with pytest.raises(InvariantError, match=r"Door: BURN cannot happen in OPEN"):
        CYCLE.next(Door.OPEN, Deed.BURN)


def test_a_step_says_what_is_done_with_it() -> None:
    assert CYCLE.step(Door.OPEN, Deed.PUSH) == (Door.SHUT, Noise.SLAM)
    assert CYCLE.step(Door.SHUT, Deed.PULL) == (Door.OPEN, None)
    with pytest.raises(InvariantError, match="PULL cannot happen in OPEN"):
        CYCLE.step(Door.OPEN, Deed.PULL)


def test_the_drawing_shows_every_step_and_the_ends() -> None:
    assert CYCLE.final == (Door.GONE,)
    assert drawn(CYCLE).splitlines() == [
        "Begins OPEN; ends GONE.",
        "",
        "| from | event | to |",
        "|---|---|---|",
        "| OPEN | `push`, with slam | SHUT |",
        "| SHUT | `pull` | OPEN |",
        "| SHUT | `burn` | GONE |",
    ]
