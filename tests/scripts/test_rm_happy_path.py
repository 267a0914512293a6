"""A job runs from submission to its end, message by message, in both paces."""

import numpy as np
import pytest

from rm.core import ResourceManager
from rm.match.registry import make_matcher
from rm.settings import ManagerSettings
from testkit.builders import (
    TWO_TYPES,
    FakeMaster,
    FakeNode,
    ask,
    job,
    node_registered,
    noted,
    persisted,
    sent,
    stage,
    succeeded,
    timers,
)
from weft.model.ids import attempt_id, number_of_container
from weft.model.queues import DEFAULT_QUEUES
from weft.protocol.effects import ClientRequested, Effect, Recovered, TimerFired
from weft.protocol.facts import AppChanged, Placed
from weft.protocol.messages import (
    AttemptAccepted,
    AttemptFinished,
    AttemptRegistered,
    AttemptUnregistered,
    NodeAccepted,
    NodeAnswered,
)
from weft.protocol.requests import ApplicationAccepted, GetApplication, SubmitApplication


def deliver(
    manager: ResourceManager, event: object, now: float, *ears: FakeNode | FakeMaster
) -> list[Effect]:
    """Hand an event in, and what zero-delay timers add; listeners hear the answers."""
    effects = manager.handle(event, now)
    manager.check()
    for timer in timers(effects):
        if timer.delay_s == 0:
            effects = effects + manager.handle(TimerFired(timer.key), now)
            manager.check()
    for ear in ears:
        for message in sent(effects, object):
            ear.hears(message)
    return effects


@pytest.mark.parametrize("prompt", [False, True])
@pytest.mark.parametrize("matcher", ["fifo", "capacity"])
def test_a_job_runs_from_submission_to_its_end(prompt: bool, matcher: str) -> None:
    manager = ResourceManager(
        7,
        TWO_TYPES,
        DEFAULT_QUEUES,
        make_matcher(matcher),
        ManagerSettings(prompt=prompt),
        np.random.default_rng(1),
    )
    node, master = FakeNode("n1"), FakeMaster(attempt_id(1, 1))

    deliver(manager, Recovered(), 0.0)
    effects = deliver(manager, node_registered(), 0.0, node)
    assert sent(effects, NodeAccepted)[0].prompt is prompt

    request = SubmitApplication(job("j", stage(tasks=5)), "s1")
    effects = deliver(manager, ClientRequested("t1", request), 1.0, node)
    assert sent(effects, ApplicationAccepted) == [ApplicationAccepted(1, 7)]
    assert persisted(effects)[0]["kind"] == "app"

    effects = deliver(manager, node.heartbeat(), 2.0, node)
    ((container, attempt),) = node.masters.items()
    assert (number_of_container(container), attempt) == (1, attempt_id(1, 1))

    effects = deliver(manager, AttemptRegistered(attempt), 3.0, master)
    (accepted,) = sent(effects, AttemptAccepted)
    assert accepted.machines == (((4.0, 8192.0), 1),)
    assert accepted.finished == ()
    assert accepted.share == (4.0, 8192.0)

    deliver(manager, master.asks(ask(total=5)), 4.0, master)
    effects = deliver(manager, node.heartbeat(), 5.0, node, master)
    deliver(manager, master.asks(), 5.5, master)
    assert len(master.containers) == 3, "3.9 cores are left beside the master"

    ends = [succeeded(c, 0, i) for i, c in enumerate(sorted(master.containers))]
    effects = deliver(manager, node.heartbeat(*ends), 6.0, node, master)
    assert any(r["kind"] == "tasks" for r in persisted(effects))
    deliver(manager, master.asks(), 6.5, master)
    assert sorted(master.ended) == [end.container_id for end in ends]
    assert len(master.containers) == 5

    rest = [c for c in sorted(master.containers) if c not in master.ended]
    ends = [succeeded(c, 0, 3 + i) for i, c in enumerate(rest)]
    deliver(manager, node.heartbeat(*ends), 7.0, node, master)

    effects = deliver(manager, AttemptFinished(attempt, True), 8.0, master)
    assert sent(effects, AttemptUnregistered)
    effects = deliver(manager, AttemptFinished(attempt, True), 8.1, master)
    assert sent(effects, AttemptUnregistered), "told again, answered again"
    effects = deliver(manager, node.heartbeat(succeeded(container, -1, -1)), 9.0, node)
    assert [f.state for f in noted(effects, AppChanged)] == ["FINISHED"]

    effects = deliver(manager, ClientRequested("t2", GetApplication(1)), 9.0)
    report = sent(effects, object)[0]
    assert (report.state, report.final_status) == ("FINISHED", "SUCCEEDED")
    assert (report.finished_tasks, report.running_containers) == (5, 0)
    assert report.stages[0].finished == 5


def test_every_placement_is_in_the_decision_log() -> None:
    manager = ResourceManager(
        7,
        TWO_TYPES,
        DEFAULT_QUEUES,
        make_matcher("fifo"),
        ManagerSettings(),
        np.random.default_rng(1),
    )
    node, master = FakeNode("n1"), FakeMaster(attempt_id(1, 1))
    deliver(manager, node_registered(), 0.0, node)
    deliver(manager, ClientRequested("t", SubmitApplication(job("j"), "s")), 0.0)
    deliver(manager, node.heartbeat(), 1.0, node)
    deliver(manager, AttemptRegistered(master.attempt_id), 1.0, master)
    deliver(manager, master.asks(ask()), 1.0, master)
    effects = deliver(manager, node.heartbeat(), 2.0, node)
    (placed,) = noted(effects, Placed)
    assert (placed.node, placed.ask, placed.queue) == ("n1", 1, "root.default")
    assert sent(effects, NodeAnswered)[0].acks == (2,)
