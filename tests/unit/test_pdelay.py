"""Pdelay (COBRA, algorithm 2): who may go into a container, and how long one waits for a nearer."""

import pytest

from am.ask.pdelay import ANY, NODE, RACK, Spot, Waiting, assign, next_threshold_s

HALF = (0.5, 0.25)
EMPTY = Spot("n1", "r1", (1.0, 1.0))


def waiting(wait_s: float, nodes: tuple[str, ...] = (), racks: tuple[str, ...] = ()) -> Waiting:
    return Waiting(7, HALF, 4.0, wait_s, nodes, racks)


@pytest.mark.parametrize(
    ("task", "level"),
    [
        (waiting(0.0), NODE),  # no preference: local everywhere
        (waiting(0.0, ("n1",), ("r1",)), NODE),
        (waiting(3.9, (), ("r1",)), None),  # on its rack, but it has not waited for long enough
        (waiting(4.0, (), ("r1",)), RACK),
        (waiting(4.0, ("n2",), ("r1",)), RACK),
        (waiting(7.9, (), ("r2",)), None),
        (waiting(8.0, (), ("r2",)), ANY),
        (waiting(8.0, ("n2",), ()), ANY),
    ],
)
def test_a_task_goes_further_away_the_longer_it_waits(task: Waiting, level: str | None) -> None:
    chosen, free = assign(EMPTY, [task], {task.key: task.tasks}, 0.1)
    assert chosen == ([] if level is None else [(7, level)])
    assert free == ((1.0, 1.0) if level is None else (0.5, 0.75))


def test_nobody_is_sent_far_away_into_a_container_that_others_use() -> None:
    """Line 8: all of the container but delta has to be free."""
    task = waiting(8.0, ("n2",))
    assert assign(EMPTY._replace(free=(0.9, 0.95)), [task], {task.key: task.tasks}, 0.1)[0] == [
        (7, ANY)
    ]
    assert assign(EMPTY._replace(free=(0.85, 0.95)), [task], {task.key: task.tasks}, 0.1)[0] == []


def test_who_prefers_nothing_waits_for_nothing() -> None:
    assert next_threshold_s([waiting(1.0)]) is None
    assert next_threshold_s([waiting(1.0, ("n2",)), waiting(6.5, (), ("r2",))]) == 1.5
    assert next_threshold_s([waiting(8.0, ("n2",))]) is None
