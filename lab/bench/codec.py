"""What does the wire cost for one task, from its grant to its end?

A task in prompt pace crosses the wire as a grant, a launch with its answer, and two reports of its
end; each is encoded and decoded once. Batches of different sizes show what sharing a batch saves.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from weft.protocol.messages import (
    Container,
    ContainerEnd,
    ContainersGranted,
    ItemAnswer,
    NodeHeartbeated,
    Outcome,
    StartAnswered,
    StartContainers,
    TaskLaunch,
)
from weft.wire import codec, rules

Row = dict[str, object]
BATCHES = (1, 10, 100, 1000)
TASKS_PER_MEASUREMENT = 10_000
# The best one counts, as others share the machine.
REPEATS = 3


def _ends(count: int) -> tuple[ContainerEnd, ...]:
    return tuple(
        ContainerEnd(1 << 40 | 1 << 32 | n, Outcome.SUCCEEDED, 0, 3, n, 0, 1.25)
        for n in range(count)
    )


def _cases(count: int) -> dict[str, tuple[Any, Callable[[Any], Any], Callable[[Any], Any]]]:
    """Return by name the messages for so many tasks, and both directions."""
    demand = (1.0, 2048.0, 40.0, 0.0)
    containers = tuple(Container(1 << 40 | n, f"n{n % 16}", 3) for n in range(count))
    launches = tuple(
        TaskLaunch(1 << 40 | n, 3, n, 0, 1.25, demand, granted=demand) for n in range(count)
    )
    answers = tuple(ItemAnswer(1 << 40 | n, 3, n) for n in range(count))
    orders = (codec.encode_master_orders, codec.decode_master_orders)
    starts = (partial(codec.encode_starts, "bench"), codec.decode_starts)
    answered = (codec.encode_answers, codec.decode_answers)
    reports = (codec.encode_node_reports, codec.decode_node_reports)
    return {
        "grant": ([ContainersGranted(257, 9, containers=containers)], *orders),
        "launch": ([StartContainers(257, "n1", launches)], *starts),
        "launch answer": ([StartAnswered("n1", 257, answers)], *answered),
        "end to the manager": ([NodeHeartbeated("n1", 9, ended=_ends(count))], *reports),
        "end to the master": ([ContainersGranted(257, 9, ended=_ends(count))], *orders),
    }


def _there_and_back(case: tuple[Any, ...], batch: int, tasks: int) -> tuple[float, float]:
    """Return microseconds for one task, and bytes on the wire for one task."""
    messages, encode, decode = case
    rounds = max(1, tasks // batch)
    best_s, size = float("inf"), 0
    for _ in range(REPEATS):
        began_s = time.perf_counter()
        for _ in range(rounds):
            message = encode(messages)
            data = message.SerializeToString()
            decode(type(message).FromString(data))
        best_s = min(best_s, time.perf_counter() - began_s)
        size = len(data)
    return best_s / (rounds * batch) * 1e6, size / batch


def _checked(case: tuple[Any, ...], batch: int, tasks: int) -> float:
    """Return microseconds for one task that the rules of `weft.wire.rules` take."""
    rounds = max(1, tasks // batch)
    best_s = float("inf")
    for _ in range(REPEATS):
        began_s = time.perf_counter()
        for _ in range(rounds):
            for message in case[0]:
                rules.check(message, 4)
        best_s = min(best_s, time.perf_counter() - began_s)
    return best_s / (rounds * batch) * 1e6


def run(quick: bool = False) -> list[Row]:
    """Return one row a message, and their sum, in microseconds for one task by tasks in a batch.

    `rules_us_of_10`: what checking them costs on top, in batches of ten.
    """
    rows: dict[str, Row] = {name: {"message": name} for name in [*_cases(1), "all"]}
    for batch in BATCHES:
        column, total_us = f"us_in_batch_of_{batch}", 0.0
        for name, case in _cases(batch).items():
            took_us, size = _there_and_back(
                case, batch, TASKS_PER_MEASUREMENT // 10 if quick else TASKS_PER_MEASUREMENT
            )
            total_us += took_us
            rows[name][column] = round(took_us, 2)
            rows[name]["bytes"] = round(size)
        rows["all"][column] = round(total_us, 1)
    checked_us = 0.0
    for name, case in _cases(10).items():
        took_us = _checked(
            case, 10, TASKS_PER_MEASUREMENT // 10 if quick else TASKS_PER_MEASUREMENT
        )
        rows[name]["rules_us_of_10"] = round(took_us, 2)
        checked_us += took_us
    rows["all"]["rules_us_of_10"] = round(checked_us, 1)
    return list(rows.values())
