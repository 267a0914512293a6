"""A master runs a job from registration to its acknowledged end."""

from testkit.master import PretendedCluster, assert_ran_in_order, chain, finished, stage
from weft.model.job import Job


def job() -> Job:
    return Job(
        "j",
        (
            stage("a", 4),
            stage("b", 6, chain("a")),
            stage("c", 3, "b"),
            stage("d", 7, chain("c"), "a"),
        ),
    )


def test_every_task_runs_once_in_order() -> None:
    cluster = PretendedCluster(job()).run(1000)
    assert cluster.stopped
    assert cluster.verdict is not None
    assert cluster.verdict.succeeded
    assert_ran_in_order(cluster)
    assert len(cluster.starts) == 20


def test_the_pace_of_yarn_asks_on_heartbeats_only() -> None:
    cluster = PretendedCluster(job(), prompt=False).run(1000)
    assert cluster.stopped
    assert_ran_in_order(cluster)


def test_few_slots() -> None:
    cluster = PretendedCluster(job(), slots=1).run(5000)
    assert cluster.stopped
    assert_ran_in_order(cluster)


def test_finished_tasks_of_an_earlier_attempt_are_not_run_again() -> None:
    done = finished((0, 0), (0, 1), (0, 2), (0, 3), (1, 2))
    cluster = PretendedCluster(job(), finished=done).run(1000)
    assert cluster.stopped
    assert len(cluster.starts) == 15
