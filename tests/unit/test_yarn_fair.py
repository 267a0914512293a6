"""The Fair Scheduler's books where no recorded scenario reaches: ends, moves, other queues."""

from typing import Any

import pytest

from lab.yarn.cases import case_of
from lab.yarn.weft_side import Loop
from rm.match.yarn.fair_matcher import YarnFairMatcher
from weft.model.queues import FairTerms, QueueSpec
from weft.protocol.effects import ClientRequested
from weft.protocol.requests import KillApplication, MoveApplication, SetQueues

FAIR = "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fair.FairScheduler"


def loop_of(allocations: str, *apps: dict[str, Any]) -> Loop:
    """Return a cluster of two nodes on which applications ask, round 0 under way."""
    asks = {"asks": [{"pri": 1, "mem": 1024, "vcores": 1, "count": 50, "dur": 99}]}
    data = {
        "configuration": {
            "yarn.resourcemanager.scheduler.class": FAIR,
            "yarn.scheduler.fair.assignmultiple": "true",
            "yarn.scheduler.fair.dynamic.max.assign": "false",
        },
        "allocations": f"<allocations>{allocations}</allocations>",
        "rounds": 9,
        "nodes": [{"name": f"n{i}", "mem": 8192, "vcores": 8} for i in range(2)],
        "applications": [{"id": i, "at": 0} | asks | app for i, app in enumerate(apps, 1)],
    }
    loop = Loop(case_of("fair", data))
    loop.begin()
    loop.open_round(0)
    return loop


def beat(loop: Loop, number: int) -> None:
    """Let a round pass."""
    if number:
        loop.open_round(number)
    for node in loop.case.cluster.nodes:
        loop.heartbeat(number, node.node_id)
    loop.close_round(number)


def request(loop: Loop, what: Any) -> None:
    """Let a client ask for something."""
    loop._hear(loop._tell(ClientRequested(f"c{id(what)}", what)))


def held(loop: Loop) -> dict[str, int]:
    """Return how many containers of 1 GB each queue holds by the policy's books."""
    matcher = loop.matcher
    assert isinstance(matcher, YarnFairMatcher)
    state = matcher._fair
    return {one.name: one.used[state.memory] // 1024 for one in state.shares}


def test_an_application_runs_when_one_before_it_has_ended() -> None:
    queue = "<queue name='a'><maxRunningApps>1</maxRunningApps></queue>"
    loop = loop_of(queue, {"queue": "root.a"}, {"queue": "root.a"})
    beat(loop, 0)
    assert {row[2] for row in loop.answer.grants} == {1}
    request(loop, KillApplication(loop.manager.books.app_at[0].app_id))
    for number in range(1, 5):
        beat(loop, number)
    assert {row[2] for row in loop.answer.grants} == {1, 2}


def test_a_user_has_so_many_that_run() -> None:
    text = "<userMaxAppsDefault>1</userMaxAppsDefault><queue name='a'/><queue name='b'/>"
    loop = loop_of(text, {"queue": "root.a"}, {"queue": "root.b"}, {"queue": "root.b", "user": "v"})
    beat(loop, 0)
    assert {row[2] for row in loop.answer.grants} == {1, 3}


def test_what_an_application_holds_moves_with_it() -> None:
    loop = loop_of("<queue name='a'/><queue name='b'/>", {"queue": "root.a"})
    beat(loop, 0)
    assert held(loop) == {"root": 16, "root.a": 16, "root.b": 0}
    request(loop, MoveApplication(loop.manager.books.app_at[0].app_id, "b"))
    beat(loop, 1)
    assert held(loop) == {"root": 16, "root.a": 0, "root.b": 16}


@pytest.mark.parametrize("most", [4, 12])
def test_queues_change_under_it(most: int) -> None:
    """Containers stay, the new terms hold, and one that waited runs where it may now."""
    queue = "<queue name='a'><maxResources>2048 mb, 2 vcores</maxResources></queue>"
    queue = queue.replace("<max", "<maxRunningApps>1</maxRunningApps><max", 1)
    loop = loop_of(queue, {"queue": "root.a"}, {"queue": "root.a"})
    beat(loop, 0)
    assert held(loop)["root.a"] == 2
    terms = FairTerms(max_resources={"memory_mb": most * 1024.0})
    request(loop, SetQueues(QueueSpec("root", children=(QueueSpec("a", fair=terms),))))
    for number in range(1, 9):
        beat(loop, number)
    assert held(loop) == {"root": most, "root.a": most}
    assert {row[2] for row in loop.answer.grants} == {1, 2}


def test_what_a_killed_application_asked_for_is_withdrawn() -> None:
    """Its containers still end on their nodes; the Capacity Scheduler's books see it, too."""
    capacity = "yarn.scheduler.capacity.root."
    asks = [{"pri": 1, "mem": 1024, "vcores": 1, "count": 50, "dur": 99}]
    data = {
        "configuration": {capacity + "queues": "a", capacity + "a.capacity": 100},
        "rounds": 9,
        "nodes": [{"name": "n0", "mem": 8192, "vcores": 8}],
        "applications": [{"id": i, "at": 0, "queue": "a", "asks": asks} for i in (1, 2)],
    }
    loop = Loop(case_of("capacity", data))
    loop.begin()
    loop.open_round(0)
    beat(loop, 0)
    request(loop, KillApplication(loop.manager.books.app_at[0].app_id))
    for number in range(1, 9):
        beat(loop, number)
    first, *others = [row[2] for row in loop.answer.grants]
    assert first == 1
    assert set(others) == {2}


def test_an_application_beyond_max_parallel_apps_runs_later() -> None:
    capacity = "yarn.scheduler.capacity.root."
    asks = [{"pri": 1, "mem": 1024, "vcores": 1, "count": 3, "dur": 99}]
    limits = {capacity + "a.max-parallel-apps": 1, capacity + "a.user-limit-factor": 9}
    data = {
        "configuration": {capacity + "queues": "a", capacity + "a.capacity": 100} | limits,
        "rounds": 9,
        "nodes": [{"name": "n0", "mem": 8192, "vcores": 8}],
        "applications": [{"id": i, "at": 0, "queue": "a", "asks": asks} for i in (1, 2)],
    }
    loop = Loop(case_of("capacity", data))
    loop.begin()
    loop.open_round(0)
    for number in range(4):
        beat(loop, number)
    assert [row[2] for row in loop.answer.grants] == [1, 1, 1]
    request(loop, KillApplication(loop.manager.books.app_at[0].app_id))
    for number in range(4, 9):
        beat(loop, number)
    assert [row[2] for row in loop.answer.grants] == [1, 1, 1, 2, 2, 2]
