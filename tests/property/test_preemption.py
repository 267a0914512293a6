"""Preemption in whole simulated clusters: bounded waits, no job worse off than late."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from rm.masters import asking
from rm.state.books import Books
from sim.cluster import Simulation
from sim.recorder import Recorder
from sim.results import Run, node_rows, task_rows
from sim.settings import SimSettings
from testkit.matching import VIEWING
from weft.model.cluster import cluster_from_text
from weft.model.ids import attempt_id, container_id
from weft.model.job import Job, Stage
from weft.model.queues import QueueSpec
from weft.policies.presets import PRESETS, Preset, choose, preset
from weft.protocol.facts import Closed, Placed, TaskStopped
from weft.protocol.messages import ContainersAsked, Outcome
from weft.results.recorded import tasks_of
from weft.runtime.factlines import fact_line

QUEUES = QueueSpec("root", children=(QueueSpec("a", 0.5), QueueSpec("b", 0.5)))
GRACE_S, HEARTBEAT_S = 5.0, 1.0
SOON_S, LINKS_S = 0.1, 0.1  # until asks that came together are looked at; messages on their way


def waited(scheduler: Preset, prompt: bool) -> tuple[float, int]:
    """How long a task of 7/8 of a node in queue b waits beside endless small tasks of queue a, s.

    It counts from when the manager hears of it. Also how many containers were preempted. Every
    checker is on.
    """
    cluster = replace(cluster_from_text("4x8vcores,65536memory_mb"), queues=QUEUES)
    small = Stage(
        "s",
        400,
        30.0,
        {"vcores": 1.0, "memory_mb": 1024.0},
        actual_duration_s=tuple(40.0 + i * 7919 % 41 for i in range(400)),
    )
    large = Stage("b", 1, 10.0, {"vcores": 7.0, "memory_mb": 1024.0})
    jobs = [
        Job("small", (small,), queue="a", max_task_attempts=1),
        Job("large", (large,), queue="b", arrival_s=50.7),
    ]
    recorder = Recorder()
    settings = SimSettings(
        scheduler,
        seed=1,
        prompt=prompt,
        checks=True,
        check_every=9,
        manager={"preemption": True, "preemption_grace_s": GRACE_S},
    )
    simulation = Simulation(cluster, jobs, settings, recorder)
    at: dict[str, float] = {}
    taken = []

    def note(now: float, fact: object) -> None:
        if isinstance(fact, Placed) and fact.container >> 40 == 2 and fact.stage == 0:
            at.setdefault("placed", now)
        if isinstance(fact, Closed) and fact.outcome is Outcome.PREEMPTED:
            taken.append(fact.container)

    def asked(books: Books, event: ContainersAsked) -> None:
        if event.asks and event.attempt_id >> 8 == 2:
            at.setdefault("asked", books.now)
        asking.asked(books, event)

    simulation.manager._handlers[ContainersAsked] = asked
    simulation.watchers.append(note)
    simulation.run()
    assert [row.state for row in recorder.jobs] == ["FINISHED"] * 2, "preempted tasks are run again"
    assert all(container >> 40 == 1 for container in taken), "only queue a was over its guarantee"
    _check_tables(Run(cluster, recorder.jobs, recorder.columns()), len(taken))
    return at["placed"] - at["asked"], len(taken)


def _check_tables(run: Run, taken: int) -> None:
    """tasks.csv names what was preempted, and no node is blamed for it."""
    ends = Counter(row[-1] for row in task_rows(run))
    assert ends["PREEMPTED"] == taken or taken > ends["PREEMPTED"] > 0, "some never started"
    assert not ends["KILLED"]
    assert sum(row[-1] for row in node_rows(run)) == ends["FAILED"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("matcher", VIEWING)
def test_a_large_task_waits_for_the_grace_period_and_a_moment(matcher: str) -> None:
    """In prompt pace what it needs is chosen as soon as it asks."""
    wait_s, taken = waited(choose(matcher=matcher), prompt=True)
    assert GRACE_S < wait_s <= GRACE_S + SOON_S + LINKS_S
    assert taken


@pytest.mark.slow
@pytest.mark.parametrize("matcher", VIEWING)
def test_in_yarns_pace_the_order_and_the_end_take_a_heartbeat_each(matcher: str) -> None:
    """A node hears of the order with one heartbeat and tells of the end with the next."""
    wait_s, taken = waited(choose(matcher=matcher), prompt=False)
    assert GRACE_S < wait_s <= GRACE_S + 2 * HEARTBEAT_S + SOON_S + LINKS_S
    assert taken


@pytest.mark.slow
def test_containers_that_several_tasks_share_are_given_up_as_well() -> None:
    """A job that holds its containers (COBRA) starts nothing more in those that it loses."""
    wait_s, _ = waited(preset("cobra"), prompt=True)
    assert wait_s <= GRACE_S + HEARTBEAT_S + 1e-6
    assert "cobra" in PRESETS


def test_the_tables_of_a_live_run_ask_the_manager_why_a_task_was_killed(tmp_path: Path) -> None:
    """A node manager only knows that it was told to stop a container."""
    taken, killed = container_id(attempt_id(1, 1), 2), container_id(attempt_id(1, 1), 3)
    node, manager = tmp_path / "nm1.events", tmp_path / "rm.events"
    stops = [TaskStopped(number, "n1", 0, 0, 0, Outcome.KILLED, 2.0) for number in (taken, killed)]
    node.write_text("".join(fact_line(fact, 3.0) + "\n" for fact in stops))
    closed = Closed(taken, "n1", Outcome.PREEMPTED, 0, 0, 0)
    manager.write_text(fact_line(closed, 3.0) + "\n")
    assert [row[-1] for row in tasks_of([node], {}, 0, manager)] == ["PREEMPTED", "KILLED"]
    assert [row[-1] for row in tasks_of([node], {})] == ["KILLED", "KILLED"]
