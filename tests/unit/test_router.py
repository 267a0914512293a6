"""What a router decides and adds up, without a network."""

from dataclasses import replace

import pytest

from testkit.builders import job, stage
from weft.policies.members import Standing, least_outstanding, work_s
from weft.protocol.requests import ClusterMetrics, QueueReport
from weft.router import merging

ONE = {"vcores": 10.0, "memory_mb": 1000.0}
WORK = job("w", stage("a", 4, 10.0, {"vcores": 2.0, "memory_mb": 100.0}))


def test_work_is_what_the_job_keeps_of_a_member() -> None:
    assert work_s(WORK, Standing(True, 0.0, ONE)) == pytest.approx(4 * 10 * (0.2 + 0.1))
    assert work_s(WORK, Standing(True, 0.0, {"vcores": 0.0})) == float("inf")


def test_the_member_that_is_done_first_comes_first_and_the_gone_never() -> None:
    small, large = {"vcores": 5.0, "memory_mb": 500.0}, {"vcores": 50.0, "memory_mb": 5000.0}
    standings = [
        Standing(True, 3.0, small),
        Standing(True, 10.0, large),
        Standing(False, 0.0, large),
        Standing(True, 10.0, large),
    ]
    assert least_outstanding(standings, WORK) == [1, 3, 0]


def test_a_label_is_wanted_before_little_work() -> None:
    standings = [Standing(True, 0.0, ONE), Standing(True, 99.0, ONE, ("gpu",))]
    (plain,) = WORK.stages
    labelled = replace(WORK, stages=(replace(plain, label="gpu"),))
    assert least_outstanding(standings, labelled) == [1, 0]


def metrics(vcores: float, outstanding_s: float) -> ClusterMetrics:
    return ClusterMetrics(
        "capacity",
        0.0,
        5.0,
        {"RUNNING": 2},
        {"FINISHED": 1},
        {"vcores": vcores},
        {"vcores": 1.0},
        3,
        4,
        outstanding_s=outstanding_s,
    )


def test_outstanding_work_of_all_is_that_of_the_whole_cluster() -> None:
    both = merging.metrics([metrics(30.0, 4.0), metrics(10.0, 8.0)])
    assert (both.nodes, both.containers_running) == ({"RUNNING": 4}, 6)
    # 30 x 4 + 10 x 8 vcore seconds over 40 vcores.
    assert both.outstanding_s == pytest.approx(5.0)


def queue(name: str, capacity: float, held: float, *below: QueueReport) -> QueueReport:
    return QueueReport(name, capacity, 1.0, 0.0, "RUNNING", 1, 2, {"vcores": held}, 3, 0.0, below)


def test_shares_of_queues_are_of_the_whole_cluster() -> None:
    trees = [
        queue("root", 1.0, 15.0, queue("root.a", 0.5, 15.0), queue("root.b", 0.5, 0.0)),
        queue("root", 1.0, 5.0, queue("root.a", 0.1, 1.0), queue("root.c", 0.9, 4.0)),
    ]
    root = merging.queues(trees, [0.75, 0.25], {"vcores": 40.0}, [1, 2])
    assert (root.capacity, root.used, root.running_apps) == (1.0, 0.5, 2)
    a, b, c = root.children
    assert (a.capacity, a.used) == (pytest.approx(0.4), pytest.approx(0.4))
    assert (b.capacity, c.capacity) == (pytest.approx(0.375), pytest.approx(0.225))
    assert c.used == pytest.approx(0.1)
    assert (a.members, c.members) == (((1, 0.5), (2, 0.1)), ((2, 0.9),))
