"""Contention follows the fluid model exactly, whatever starts, stops and slows down."""

import math
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nm.emulation import Emulation, RunningTask
from weft.protocol.messages import TaskLaunch

CAPACITY = (4.0, 10.0, 100.0)
RIGID = (False, True, False)


@dataclass
class Slow:
    """The reference's task: work left, nothing remembered but that."""

    demand: tuple[float, ...]
    left_s: float


class Reference:
    """Steps from change to change and works every rate out anew."""

    def __init__(self) -> None:
        self.now = 0.0
        self.speed = 1.0
        self.tasks: dict[int, Slow] = {}
        self.ends: dict[int, float] = {}

    def rate(self, task: Slow) -> float:
        rate = 1.0
        for r, capacity in enumerate(CAPACITY):
            total = sum(other.demand[r] for other in self.tasks.values())
            if not RIGID[r] and task.demand[r] > 0 and total > capacity:
                rate = min(rate, capacity / total)
        return rate * self.speed

    def advance(self, until: float) -> None:
        while self.tasks:
            rates = {n: self.rate(task) for n, task in self.tasks.items()}
            step = min(task.left_s / rates[n] for n, task in self.tasks.items())
            if self.now + step > until + 1e-9:
                break
            self._run(step, rates)
            for number in [n for n, task in self.tasks.items() if task.left_s <= 1e-9]:
                del self.tasks[number]
                self.ends[number] = self.now
        if self.tasks:
            self._run(until - self.now, {n: self.rate(t) for n, t in self.tasks.items()})
        self.now = until

    def _run(self, step: float, rates: dict[int, float]) -> None:
        self.now += step
        for number, task in self.tasks.items():
            task.left_s -= step * rates[number]

    def start(self, number: int, demand: tuple[float, ...], work_s: float) -> bool:
        memory = sum(task.demand[1] for task in self.tasks.values()) + demand[1]
        if memory > CAPACITY[1] * (1 + 1e-9):
            return False
        self.tasks[number] = Slow(demand, work_s)
        return True


AMOUNTS = st.tuples(
    st.sampled_from([0.0, 0.5, 1.0, 3.0]),
    st.sampled_from([0.0, 1.0, 4.0]),
    st.sampled_from([0.0, 30.0, 70.0]),
)
STEP = st.tuples(
    st.floats(0.0, 3.0),
    st.one_of(
        st.tuples(st.just("start"), AMOUNTS, st.floats(0.125, 8.0)),
        st.tuples(st.just("stop"), st.integers(0, 20)),
        st.tuples(st.just("slow"), st.sampled_from([0.25, 0.5, 1.0])),
    ),
)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.lists(STEP, max_size=25))
def test_every_task_ends_when_the_reference_says(steps) -> None:
    real, naive = Emulation(CAPACITY, RIGID), Reference()
    works: dict[int, RunningTask] = {}
    ends: dict[int, float] = {}
    now = 0.0

    def drain(until: float) -> None:
        for work, end_s in real.due(until):
            ends[work.item.task] = end_s

    for number, (delay, (what, *rest)) in enumerate(steps):
        now += delay
        drain(now)
        naive.advance(now)
        if what == "start":
            demand, work_s = rest
            item = TaskLaunch(number, 0, number, 0, work_s, demand)
            work = real.start(item, demand, work_s, now)
            assert (work is not None) == naive.start(number, demand, work_s)
            if work is not None:
                works[number] = work
        elif what == "stop" and rest[0] in naive.tasks and works[rest[0]].serial >= 0:
            del naive.tasks[rest[0]]
            real.stop(works.pop(rest[0]), now)
        elif what == "slow":
            naive.speed = rest[0]
            real.slow(rest[0], now)
        real.check()
    naive.advance(now + 10_000)
    drain(now + 10_000)
    real.check()
    assert ends.keys() == naive.ends.keys()
    for number, end_s in ends.items():
        assert math.isclose(end_s, naive.ends[number], rel_tol=1e-6, abs_tol=1e-6)


def test_without_contention_ends_are_exact() -> None:
    """No rounding on the fast path: the end is start + duration to the last bit."""
    host = Emulation(CAPACITY, RIGID)
    item = TaskLaunch(1, 0, 0, 0, 0.1, (1.0, 1.0, 0.0))
    host.start(item, item.demand, 0.1, 0.2)
    assert host.next_end_s == 0.1 + 0.2
    assert [end for _, end in host.due(0.1 + 0.2)] == [0.1 + 0.2]


def test_three_users_of_a_link_for_two_take_half_longer() -> None:
    """Demand 1.5 times the capacity: everybody runs at two thirds."""
    host = Emulation((100.0,), (False,))
    for task in range(3):
        item = TaskLaunch(task, 0, task, 0, 10.0, (50.0,))
        host.start(item, item.demand, 10.0, 0.0)
    assert math.isclose(host.use[0], 100.0)
    assert [round(end, 9) for _, end in host.due(15.0)] == [15.0] * 3
