"""Carbyne's T_k is a promise: what a job may count on does not wander, and neither does its end."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from am.ask.carbyne import Carbyne, pool_level
from am.ask.view import JobView, Wish
from rm.settings import ManagerSettings
from testkit.builders import ask
from testkit.builders import job as one_job
from testkit.builders import stage as one_stage
from testkit.manager import Rig
from testkit.master import accepted, stage, work_of
from weft.model.errors import InputError
from weft.model.job import Job
from weft.protocol.messages import AskType

SLOTS = ((160.0, 655360.0, 8000.0, 10000.0), 1)
LEVEL = 16.0  # a tenth of the cluster, in vcores
READY, RUNNING = 1, 2


class Asked:
    """An asker and what it sees of a job of which nothing is ever granted."""

    def __init__(self, job: Job, **options: float) -> None:
        self.asker = Carbyne(**options)  # type: ignore[arg-type]
        self.rng = np.random.default_rng(0)
        answer = accepted(job, machines=(SLOTS,))
        work = work_of(answer, self.asker, self.rng)
        self.view: JobView = work._view()

    def at(self, now: float, vcores: float = LEVEL, **changed: object) -> Wish:
        """Something changed: the asker must look again; `vcores` is the share's largest part."""
        share = tuple(vcores / 160.0 * amount for amount in SLOTS[0])
        version = self.view.version + 1
        self.view = replace(self.view, share=share, version=version, **changed)  # type: ignore[arg-type]
        return self.asker.ask(self.view, now, self.rng)


def due(wish: Wish) -> int:
    return sum(row.containers for row in wish.rows if row.kind is AskType.DEFAULT)


def two_lengths() -> Job:
    return Job("j", (stage("long", 1, duration_s=30.0), stage("short", 2, duration_s=10.0)))


def test_a_job_that_gets_nothing_does_not_put_its_end_off() -> None:
    """The short tasks are due 10 s before the end that was promised at 0 s: at 20 s."""
    asked = Asked(two_lengths())
    assert [asked.at(now).wake_after_s for now in (0.0, 5.0, 15.0)] == [20.0, 15.0, 5.0]
    assert due(asked.at(20.0)) == 3


def test_counted_anew_at_every_event_the_end_runs_away() -> None:
    """What `promise=inf` chooses, and why it is not the default."""
    asked = Asked(two_lengths(), promise=np.inf)
    assert [asked.at(now).wake_after_s for now in (0.0, 5.0, 20.0)] == [20.0, 20.0, 20.0]


def test_a_smaller_promise_yields_less() -> None:
    """Within 0.8 x 30 s: the short tasks are due at 14 s; within 0: everything is due now."""
    assert Asked(two_lengths(), promise=0.8).at(0.0).wake_after_s == pytest.approx(14.0)
    assert due(Asked(two_lengths(), promise=0.0).at(0.0)) == 3


@pytest.mark.parametrize("promise", [-0.1, float("nan")])
def test_a_promise_is_a_part_of_t_k(promise: float) -> None:
    with pytest.raises(InputError, match="promise"):
        Carbyne(promise=promise)


def test_a_share_that_fell_makes_the_promise_longer_and_no_more() -> None:
    """40 tasks of 10 s, 16 at once: 30 s. At half the share 50 s are needed from 5 s on.

    25 s were left, so 50 s are promised anew: all 8 places are due and nothing is late.
    """
    asked = Asked(Job("j", (stage("s", 40),)))
    assert due(asked.at(0.0)) == 8  # in 30 s: 8, then 16, then 16
    fallen = asked.at(5.0, LEVEL / 2)
    assert due(fallen) == 8
    assert fallen.wake_after_s == pytest.approx(10.0)


def test_a_share_that_grew_brings_the_promise_forward() -> None:
    """16 places more: two rounds are enough, so the end is at 25 s, and not at 30 s as promised."""
    asked = Asked(Job("j", (stage("s", 40),)))
    asked.at(0.0)
    assert asked.at(5.0, 2 * LEVEL).wake_after_s == pytest.approx(10.0)
    assert asked.at(10.0, 2 * LEVEL).wake_after_s == pytest.approx(5.0)


def test_a_failed_task_makes_the_job_promise_anew() -> None:
    """At 25 s the long task must begin again: the short ones are due 20 s later, not now."""
    asked = Asked(two_lengths())
    asked.at(0.0)
    running = [bytes((RUNNING,)), bytes((READY, READY))]
    asked.at(1.0, states=running)
    assert asked.at(25.0, states=[bytes((READY,)), bytes((READY, READY))]).wake_after_s == 20.0


def test_the_pool_is_the_dominant_share_of_every_resource() -> None:
    assert pool_level((1.0, 40.0, 0.0), (10.0, 100.0, 0.0)) == (0.4, (4.0, 40.0, 0.0))
    assert pool_level((), (10.0, 100.0)) == (1.0, (10.0, 100.0))


# -- what the Resource Manager tells ---------------------------------------------------------------


def told(rig: Rig) -> Sequence[Sequence[float]]:
    """The shares of all applications, vcores and memory."""
    books = rig.manager.books
    return np.round(books.matcher.shares(books.view, 0.0)[:, :2], 6).tolist()


def test_what_a_job_may_count_on_does_not_follow_what_it_asks() -> None:
    """Two alike: half each, whether one has a single task to run now or many."""
    rig = Rig("carbyne", ManagerSettings(master_demand={"vcores": 0.0}))
    rig.add_node("n1", vcores=8.0, memory_mb=8192.0)
    masters = [rig.start(one_job(name, one_stage(tasks=9))) for name in ("a", "b")]
    before = told(rig)
    assert before[0] == before[1] != [0.0, 0.0]
    rig.allocate(masters[0], ask(1, 1))
    rig.beat()
    rig.allocate(masters[1], ask(1, 9))
    assert told(rig) == before
    rig.start(one_job("c", one_stage(tasks=2)))
    assert told(rig)[0] == pytest.approx([2 / 3 * amount for amount in before[0]])


def test_a_job_s_share_follows_its_work_resource_by_resource() -> None:
    """DRF's own example (Ghodsi et al., section 4.1): 9 CPUs, 18 GB, <1, 4> and <3, 1> a task."""
    rig = Rig("carbyne", ManagerSettings(master_demand={"vcores": 0.0}))
    rig.add_node("n1", vcores=9.0, memory_mb=18.0)
    for name, vcores, memory_mb in (("a", 1.0, 4.0), ("b", 3.0, 1.0)):
        rig.start(
            one_job(name, one_stage(tasks=9, demand={"vcores": vcores, "memory_mb": memory_mb}))
        )
    assert told(rig) == [[3.0, 12.0], [6.0, 2.0]]
