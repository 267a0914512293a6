"""Masters that wait are placed in their order, and a limit is asked once for all whom it holds."""

import random
from collections.abc import Callable

import pytest

from rm.placing import allocation
from rm.placing.hosting import full_of_masters
from rm.settings import ManagerSettings
from rm.state.books import Books
from rm.state.records import Attempt
from testkit.builders import job, stage
from testkit.manager import Rig
from weft.model.queues import QueueSpec

QUEUES = QueueSpec(
    "root", children=tuple(QueueSpec(name, 0.25, max_am_share=0.01) for name in "abcd")
)


def _rig(waiting: int, user: Callable[[int], str] = str) -> Rig:
    settings = ManagerSettings(master_demand={"vcores": 1.0}, master_share_max=1.0)
    rig = Rig("capacity", settings, QUEUES)
    rig.add_node(vcores=100.0)
    for number in range(waiting):
        rig.submit(job(f"{number}", stage(tasks=1), queue="abcd"[number % 4], user=user(number)))
    return rig


def test_those_that_are_not_left_out_come_in_their_order() -> None:
    waiting = _rig(60, lambda number: f"u{number % 3}").manager.books.waiting
    attempts, draw = list(waiting), random.Random(1)
    group_of = {one: group for group, one in waiting.in_turn(())}
    assert list(group_of) == attempts
    for _ in range(20):
        groups = sorted({group_of[one] for one in attempts})
        without = set(draw.sample(groups, len(groups) // 2))
        left = [one for group, one in waiting.in_turn(without)]
        assert left == [one for one in attempts if group_of[one] not in without]
        gone = draw.choice(attempts)
        attempts.remove(gone)
        waiting.remove(gone)
        assert list(waiting) == attempts
        waiting.check()


def test_a_group_that_is_left_out_meanwhile_is_not_looked_at_further() -> None:
    waiting = _rig(40, lambda number: "u").manager.books.waiting
    passed: set[tuple[object, ...]] = set()
    seen = []
    for group, _ in waiting.in_turn(passed):
        seen.append(group[0])
        passed.add(group)
    assert len(seen) == len(set(seen)) == 4


@pytest.mark.parametrize("waiting", [40, 400])
def test_limits_are_asked_as_often_for_many_as_for_few(
    waiting: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = _rig(waiting, lambda number: "u")
    for _ in range(5):
        rig.beat()
    asked = []

    def counted(books: Books, attempt: Attempt) -> int:
        asked.append(attempt)
        return full_of_masters(books, attempt)

    monkeypatch.setattr(allocation, "full_of_masters", counted)
    rig.beat()
    assert 0 < len(asked) <= 8
