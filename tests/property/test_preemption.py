"""Preemption in whole simulated clusters: bounded waits, no job worse off than late."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from sim.cluster import Simulation
from sim.recorder import Recorder
from sim.results import Run, node_rows, task_rows
from sim.settings import SimSettings
from weft.cluster import QueueSpec, cluster_from_text
from weft.facts import AttemptChanged, Closed, Placed, TaskStopped
from weft.ids import attempt_id, container_id
from weft.job import Job, Stage
from weft.live.factlines import fact_line
from weft.messages import Outcome
from weft.presets import PRESETS, preset
from weft.results.recorded import tasks_of

QUEUES = QueueSpec("root", children=(QueueSpec("a", 0.5), QueueSpec("b", 0.5)))
GRACE_S, HEARTBEAT_S = 5.0, 1.0


def waited(scheduler: str, prompt: bool) -> tuple[float, int]:
    """How long a task of 7/8 of a node in queue b waits beside endless small tasks of queue a, s,
    and how many containers were preempted; every checker is on.
    """
    cluster = replace(cluster_from_text("4x8vcores,65536memory_mb"), queues=QUEUES)
    small = Stage("s", 400, 30.0, {"vcores": 1.0, "memory_mb": 1024.0},
                  actual_duration_s=tuple(40.0 + i * 7919 % 41 for i in range(400)))  # fmt: skip
    large = Stage("b", 1, 10.0, {"vcores": 7.0, "memory_mb": 1024.0})
    jobs = [
        Job("small", (small,), queue="a", max_task_attempts=1),
        Job("large", (large,), queue="b", arrival_s=50.3),
    ]
    recorder = Recorder()
    settings = SimSettings(
        preset(scheduler), seed=1, prompt=prompt, checks=True, check_every=9,
        manager={"preemption": True, "preemption_grace_s": GRACE_S},
    )  # fmt: skip
    simulation = Simulation(cluster, jobs, settings, recorder)
    at: dict[str, float] = {}
    taken = []

    def note(now: float, fact: object) -> None:
        if isinstance(fact, AttemptChanged) and fact.attempt >> 8 == 2 and fact.state == "RUNNING":
            at.setdefault("asked", now)
        if isinstance(fact, Placed) and fact.container >> 40 == 2 and fact.stage == 0:
            at.setdefault("placed", now)
        if isinstance(fact, Closed) and fact.outcome is Outcome.PREEMPTED:
            taken.append(fact.container)

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


@pytest.mark.parametrize("scheduler", ["capacity", "fifo", "drf", "tetris", "graphene", "carbyne"])
def test_a_large_task_waits_for_the_grace_period_and_a_heartbeat(scheduler: str) -> None:
    """In prompt pace; by the next round, what it needs is chosen."""
    wait_s, taken = waited(scheduler, prompt=True)
    assert wait_s <= GRACE_S + HEARTBEAT_S + 1e-6
    assert taken


def test_in_yarns_pace_orders_and_ends_take_their_heartbeats() -> None:
    """The ask, the order to stop and the end are each told with a heartbeat."""
    wait_s, taken = waited("capacity", prompt=False)
    assert wait_s <= GRACE_S + 4 * HEARTBEAT_S
    assert taken


def test_containers_that_several_tasks_share_are_given_up_as_well() -> None:
    """A job that holds its containers (COBRA) starts nothing more in those that it loses."""
    wait_s, _ = waited("cobra", prompt=True)
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
