"""The Application Master and gangs: asked for together, in one message, started together."""

import numpy as np
import pytest

from am.ask.registry import asker
from am.core import ApplicationMaster
from am.settings import MasterSettings
from testkit.master import ATTEMPT, SLOT, PretendedCluster, accepted, chain, messages_of, stage
from weft.model.ids import container_id
from weft.model.job import Job, TaskOverride
from weft.protocol.effects import Started, TimerFired
from weft.protocol.messages import (
    Container,
    ContainerEnd,
    ContainersAsked,
    ContainersGranted,
    Outcome,
    StartContainers,
)

ASKERS = ["all_ready", "carbyne", "disposable", "cobra", "static", "dynamic"]
MIXED = (TaskOverride(), TaskOverride(demand={"vcores": 2.0}), TaskOverride())


def begun(job: Job, name: str = "all_ready") -> ApplicationMaster:
    master = ApplicationMaster(
        ATTEMPT, MasterSettings(planner=""), asker(name), np.random.default_rng(0)
    )
    master.handle(Started(), 0.0)
    master.handle(accepted(job), 0.0)
    return master


def asked(master: ApplicationMaster, now: float = 0.0) -> ContainersAsked:
    (message,) = messages_of(master.handle(TimerFired("ask"), now), ContainersAsked)
    assert isinstance(message, ContainersAsked)
    return message


def answer(*numbers: tuple[int, int, str], response: int = 1, lost: int = 0) -> ContainersGranted:
    """Grants as (number, ask, node); the container of number `lost` ended before it was told."""
    containers = tuple(Container(container_id(ATTEMPT, n), at, ask) for n, ask, at in numbers)
    gone = (ContainerEnd(container_id(ATTEMPT, lost), Outcome.LOST),) if lost else ()
    return ContainersGranted(ATTEMPT, response, (), containers, gone)


@pytest.mark.parametrize("name", ASKERS)
def test_a_gang_is_asked_for_when_all_of_it_may_start(name: str) -> None:
    """Of two one_to_one parents one has ended: a plain stage would begin, a gang does not."""
    job = Job("j", (stage("a", 3), stage("g", 3, chain("a"), gang=True, overrides=MIXED)))
    cluster = PretendedCluster(job, asker_name=name, luck={(0, 1, 0): 30.0})
    cluster.run(25.0)
    assert all(not row.ask.total for row in cluster.rows.values() if row.ask.gang)
    cluster.run()
    assert cluster.verdict is not None
    assert cluster.verdict.succeeded
    begins = [now for now, launch, _ in cluster.starts if launch.stage == 1]
    assert begins == [30.0] * 3
    assert all(not launch.reusable for _, launch, _ in cluster.starts if launch.stage == 1)
    sizes = sorted(launch.granted[0] for _, launch, _ in cluster.starts if launch.stage == 1)
    assert sizes == [1.0, 1.0, 2.0], "as large as the tasks need, under every asker"


def test_all_asks_of_a_gang_are_told_in_one_message() -> None:
    """When one task failed, what is asked again names every ask of the gang."""
    master = begun(Job("j", (stage("g", 3, gang=True, overrides=MIXED),), max_task_attempts=9))
    assert sorted((a.ask_id, a.total, a.gang) for a in asked(master).asks) == [
        (1, 2, True),
        (2, 1, True),
    ]
    master.handle(answer((2, 1, "n1"), (3, 1, "n1"), (4, 2, "n1")), 1.0)
    failed = ContainerEnd(container_id(ATTEMPT, 4), Outcome.FAILED, 1, 0, 1, 0, 1.0)
    master.handle(ContainersGranted(ATTEMPT, 2, ended=(failed,)), 2.0)
    assert sorted((a.ask_id, a.total) for a in asked(master, 2.0).asks) == [(1, 2), (2, 2)]


def test_where_one_container_of_a_gang_is_gone_none_is_used() -> None:
    master = begun(Job("j", (stage("g", 3, gang=True, overrides=MIXED),)))
    asked(master)
    grants = (2, 1, "n1"), (3, 1, "n2"), (4, 2, "n1")
    effects = master.handle(answer(*grants, lost=3), 1.0)
    assert not messages_of(effects, StartContainers)
    again = asked(master, 1.0)
    assert set(again.releases) == {container_id(ATTEMPT, 2), container_id(ATTEMPT, 4)}
    assert sorted((a.ask_id, a.total) for a in again.asks) == [(1, 4), (2, 2)]
    effects = master.handle(answer((5, 1, "n2"), (6, 1, "n2"), (7, 2, "n2"), response=2), 2.0)
    (start,) = messages_of(effects, StartContainers)
    assert sorted(item.task for item in start.items) == [0, 1, 2]


@pytest.mark.parametrize("name", ["cobra", "static", "dynamic"])
def test_idle_containers_make_way_for_a_gang(name: str) -> None:
    """The job's own pool would else hold the room that its gang waits for."""
    job = Job("j", (stage("a", 12), stage("g", 4, "a", gang=True)))
    cluster = PretendedCluster(job, asker_name=name, machines=((SLOT, 1),))

    def pooled() -> int:
        return len(cluster.granted) - sum(r.granted for r in cluster.rows.values() if r.ask.gang)

    grant = cluster._grant  # the gang is not granted for a while
    cluster._grant = lambda: None if _gang_waits(cluster) else grant()
    cluster.run(300.0)
    assert _gang_waits(cluster)
    assert pooled() == 0
    cluster._grant = grant
    grant()
    cluster.run()
    assert cluster.verdict is not None
    assert cluster.verdict.succeeded


def _gang_waits(cluster: PretendedCluster) -> bool:
    return any(row.ask.gang and row.pending for row in cluster.rows.values())


def test_what_waits_for_a_gang_that_ends_as_one_is_ready_from_then_on() -> None:
    """Tasks beside their input wait by how long they were ready."""
    master = begun(Job("j", (stage("g", 3, gang=True), stage("b", 2, "g"))), "cobra")
    (ask,) = asked(master).asks
    run = Container(container_id(ATTEMPT, 2), "n1", ask.ask_id, count=3)
    (start,) = messages_of(
        master.handle(ContainersGranted(ATTEMPT, 1, (), (run,)), 1.0), StartContainers
    )
    assert [item.tasks for item in start.items] == [(0, 1, 2)]
    first = start.items[0].container_id
    end = ContainerEnd(first, Outcome.SUCCEEDED, 0, 0, 0, 0, 40.0, "", (0, 1, 2))
    master.handle(ContainersGranted(ATTEMPT, 2, ended=(end,)), 41.0)
    master.check()
    work = master._work
    assert work is not None
    assert work.progress.stages[0].complete
    assert work.progress.stages[1].ready_at == [41.0, 41.0]
