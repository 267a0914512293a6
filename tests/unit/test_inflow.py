"""What a flood left in the allocator is given back, also where no message was on its way."""

import mmap

import pytest

from testkit.live import until
from weft.wire import inflow
from weft.wire.inflow import GROWTH_BYTES, Inflow


def test_after_a_growth_memory_is_given_back_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    given_back: list[int] = []
    monkeypatch.setattr(inflow, "_trim", lambda: given_back.append(1))
    watched, held = Inflow(0, lambda peer, size: None), list[mmap.mmap]()

    def grows() -> list[int]:
        # It may not have looked yet at what is usual.
        if len(held) < 20:
            held.append(mmap.mmap(-1, 2 * GROWTH_BYTES))
            held[-1].write(bytes(len(held[-1])))
        return given_back

    watched.begin()
    until(grows, "it is given back")
    until(lambda: len(given_back) > 1, "and again, as more may be freed later")
    watched.close()
    for one in held:
        one.close()
