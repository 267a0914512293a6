"""The calendar delivers what one heap of everything would, in the same order."""

import random
from collections import deque
from heapq import heappop, heappush
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim import engine as engine_module
from sim.engine import Actor, Engine


class Silent:
    """A core that answers nothing."""

    def handle(self, event: Any, now: float) -> list[Any]:
        return []


class Heap:
    """The same by one heap of all that is to come, and a queue of what is ready."""

    def __init__(self) -> None:
        self.now, self._serial = 0.0, 0
        self._heap: list[tuple[float, int, object]] = []
        self._ready: deque[object] = deque()

    def soon(self, actor: object, event: object) -> None:
        self._ready.append(event)

    def at(self, time_s: float, actor: object, event: object) -> None:
        self._serial += 1
        heappush(self._heap, (time_s, self._serial, event))

    def run(self, deliver: Any) -> None:
        while self._ready or self._heap:
            if self._ready and (not self._heap or self._heap[0][0] > self.now):
                event = self._ready.popleft()
            else:
                self.now, _, event = heappop(self._heap)
            deliver(None, event, self.now)


def story(engine: Any, seed: int, first: int) -> list[tuple[float, int]]:
    """Have each event put others, at once, soon after or late; return what was heard when."""
    chance, actor, heard, made = random.Random(seed), Actor("one", Silent()), [], 0

    def put(now: float) -> None:
        nonlocal made
        made += 1
        delay_s = chance.choice([0.0, 0.001, 0.0625, 0.125, chance.random() / 8, 3.0])
        if delay_s or chance.random() < 0.5:
            engine.at(now + delay_s, actor, made)
        else:
            engine.soon(actor, made)

    def deliver(actor: object, event: int, now: float) -> None:
        heard.append((now, event))
        for _ in range(chance.choice([0, 0, 1, 1, 2, 5]) if made < 300 else 0):
            put(now)

    for _ in range(first):
        put(0.0)
    engine.run(deliver)
    return heard


@pytest.mark.slow
@pytest.mark.parametrize("heap_from", [0, 3, 4096])
@given(seed=st.integers(0, 2**32), first=st.integers(0, 40))
def test_the_calendar_delivers_in_the_order_of_one_heap(
    heap_from: int, seed: int, first: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_module, "HEAP_ENTRIES_MIN", heap_from)
        heard = story(Engine(), seed, first)
    assert heard == story(Heap(), seed, first)


def test_a_timer_that_is_set_for_a_slice_under_way_keeps_its_rank_in_a_heap(monkeypatch) -> None:
    monkeypatch.setattr(engine_module, "HEAP_ENTRIES_MIN", 3)
    engine, actors = Engine(), [Actor(str(n), Silent()) for n in range(12)]
    heard: list[str] = []

    def deliver(actor: Actor, event: object, now: float) -> None:
        heard.append(actor.name)
        if actor.name == "0":  # the last two at one time with others, the one of a rank before them
            engine.set_timer_at(actors[10], "k", 1.02)
            engine.set_timer_at(actors[11], "k", 1.02, rank=-1)

    for number, actor in enumerate(actors[:10]):
        engine.set_timer_at(actor, "k", 1.0 if number < 3 else 1.02)
    engine.run(deliver)
    assert heard == ["0", "1", "2", "11", *map(str, range(3, 10)), "10"]
