"""Jobs that bring a master of their own: what the Resource Manager owes their nodes."""

from collections import Counter
from dataclasses import replace

import pytest

from rm.match.registry import make_matcher
from rm.settings import ManagerSettings
from testkit.builders import FakeMaster, ask, job, noted, sent, stage, succeeded
from testkit.manager import Rig
from testkit.matching import VIEWING
from weft.model.ids import app_of_attempt
from weft.model.job import Job, MasterSpec
from weft.model.queues import QueueSpec, queues_from_dict
from weft.protocol.facts import Remark
from weft.protocol.messages import Ask, AttemptFinished, ContainersGranted, NodeAnswered
from weft.protocol.requests import (
    Explain,
    GetApplication,
    KillApplication,
    MoveApplication,
    QueuesSet,
    SetQueues,
)

OPEN = Job("spark", (), kind="SPARK", master=MasterSpec({"vcores": 1.0}, ("run",), max_attempts=1))


def over(effects: list) -> dict[str, tuple[int, ...]]:
    """Which applications nodes are told to be over."""
    return {m.node_id: m.over for m in sent(effects, NodeAnswered) if m.over}


def test_nodes_where_it_ran_are_told_once_all_of_it_is_gone() -> None:
    rig = Rig()
    for name in ("n1", "n2", "n3"):
        rig.add_node(name, vcores=2.0)
    master = rig.start(OPEN)
    app = app_of_attempt(master.attempt_id)
    rig.allocate(master, ask(1, 1, (2.0, 1024.0)))
    rig.beat()
    (granted,) = [c for a in sent(rig.allocate(master), ContainersGranted) for c in a.containers]
    (home,) = [name for name, node in rig.nodes.items() if node.masters]
    (own,) = rig.nodes[home].masters
    assert granted.node_id != home
    rig.tell(AttemptFinished(master.attempt_id, True))
    assert not over(rig.tell(rig.nodes[home].heartbeat(succeeded(own))))
    effects = rig.tell(rig.nodes[granted.node_id].heartbeat(succeeded(granted.container_id)))
    assert over(effects)[granted.node_id] == (app,)
    assert over(rig.tell(rig.nodes[home].heartbeat())) == {home: (app,)}
    (elsewhere,) = rig.nodes.keys() - {home, granted.node_id}
    assert not over(rig.tell(rig.nodes[elsewhere].heartbeat()))


def test_a_word_that_got_lost_is_said_again() -> None:
    rig = Rig(settings=ManagerSettings(resend_after_s=3.0))
    node = rig.add_node("n1")
    master = rig.start(OPEN)
    (own,) = node.masters
    rig.ask_manager(KillApplication(app_of_attempt(master.attempt_id)))
    effects = rig.tell(node.heartbeat(succeeded(own)))
    app = app_of_attempt(master.attempt_id)
    assert over(effects) == {"n1": (app,)}
    unheard = node.acks
    node.acks = []
    assert not over(rig.tell(node.heartbeat(), 1.0))
    node.acks = [number for number in node.acks if number not in unheard]
    assert over(rig.tell(node.heartbeat(), 3.0)) == {"n1": (app,)}
    assert not over(rig.tell(node.heartbeat(), 4.0))


def test_what_was_there_before_a_restart_may_have_been_anywhere() -> None:
    rig = Rig()
    rig.add_node("n1")
    master = rig.start(OPEN)
    app = app_of_attempt(master.attempt_id)
    again = Rig(settings=rig.manager.books.settings, records=rig.records)
    for name in ("n1", "n2"):
        again.add_node(name)
    again.ask_manager(KillApplication(app))
    told: dict[str, tuple[int, ...]] = {}
    for node in again.nodes.values():
        told |= over(again.tell(node.heartbeat(), 1.0))
    assert told == {"n1": (app,), "n2": (app,)}


@pytest.mark.parametrize("restarts", [False, True])
def test_nodes_that_keep_files_are_told_of_every_application_and_others_of_none(
    restarts: bool,
) -> None:
    rig = Rig()
    rig.add_node("n1", vcores=8.0, files=True)
    master = rig.start(job("j", stage(tasks=2)))
    rig.add_node("n2", vcores=8.0)
    app = app_of_attempt(master.attempt_id)
    rig.allocate(master, ask(total=2))
    rig.beat()
    if restarts:
        rig = Rig(settings=rig.manager.books.settings, records=rig.records)
        rig.add_node("n1", files=True)
        rig.add_node("n2")
    rig.ask_manager(KillApplication(app))
    told: dict[str, tuple[int, ...]] = {}
    for _ in range(2):
        for node in rig.nodes.values():
            held = [succeeded(number) for number in (*node.masters, *node.stops)]
            node.masters.clear()
            told |= over(rig.tell(node.heartbeat(*held), 1.0))
    assert told == {"n1": (app,)}


def test_an_application_of_long_ago_keeps_its_type() -> None:
    rig = Rig()
    rig.add_node("n1")
    first = rig.submit(OPEN)
    for _ in range(201):
        rig.ask_manager(KillApplication(rig.submit(OPEN)))
    rig.ask_manager(KillApplication(first))
    kinds = {rig.ask_manager(GetApplication(n)).kind for n in range(1, 203)}
    assert kinds == {"SPARK"}


def spread(rig: Rig, master: FakeMaster, *asks: Ask) -> Counter[str]:
    """Where containers went after some rounds."""
    rig.allocate(master, *asks)
    for _ in range(15):
        rig.now += 1.0
        rig.beat()
        rig.allocate(master)
    return Counter(item.node_id for item in master.containers.values())


@pytest.mark.parametrize("matcher", VIEWING)
def test_a_strict_ask_goes_to_the_places_that_it_names_only(matcher: str) -> None:
    """relaxLocality=false: it waits rather than go elsewhere, and others are not held up."""
    rig = Rig(matcher, settings=ManagerSettings(master_demand={}))
    for name, rack in (("n1", "a"), ("n2", "a"), ("n3", "b"), ("n4", "c")):
        rig.add_node(name, vcores=2.0, rack=rack)
    master = rig.start(OPEN)
    (home,) = [name for name, node in rig.nodes.items() if node.masters]
    wanted = "n2" if home != "n2" else "n1"
    here = ask(1, 5, (1.0, 512.0), nodes=(wanted,), strict=True)
    assert spread(rig, master, here) == {wanted: 2}
    text = rig.ask_manager(Explain(app_of_attempt(master.attempt_id)))
    assert "node is none that the ask names" in str(text)
    rack = "b" if home != "n3" else "c"
    there = ask(2, 5, (1.0, 512.0), racks=(rack,), strict=True)
    (beside,) = [name for name in rig.nodes if rig.manager.books.nodes[name].rack == rack]
    assert spread(rig, master, there) == {wanted: 2, beside: 2}
    nowhere = ask(3, 1, (1.0, 512.0), nodes=("n9",), strict=True)
    assert spread(rig, master, nowhere) == {wanted: 2, beside: 2}
    # a plain one beside them gets what is left, and one that is strict no longer goes anywhere
    assert sum(spread(rig, master, ask(4, 1, (1.0, 512.0))).values()) == 5
    assert sum(spread(rig, master, replace(here, strict=False)).values()) == 7
    assert rig.manager.books.rows.strict
    spread(rig, master, replace(there, total=2), replace(nowhere, total=0))
    assert not rig.manager.books.rows.strict


def queues(memory_mb: float) -> QueueSpec:
    """Two queues; the first one's containers have so much, and it may not use gpu nodes."""
    small = {
        "max_allocation": {"memory_mb": memory_mb},
        "labels": {"gpu": {"capacity": 0, "max_capacity": 0}},
    }
    return queues_from_dict({"root": {"a": small, "b": {}}})


def refusals(rig: Rig, master: FakeMaster, *asks: Ask) -> list[tuple[tuple[int, ...], str]]:
    """What a call's answer says was refused."""
    heard = sent(rig.allocate(master, *asks), ContainersGranted)
    return [(one.asks, one.reason) for answer in heard for one in answer.refused]


@pytest.mark.parametrize(
    ("never", "why"),
    [
        (ask(2, 1, (1.0, 4096.0)), "more memory_mb than the 2048 of a container in root.a"),
        (ask(2, 1, label="gpu"), "root.a has no access to nodes of the label 'gpu'"),
        (ask(2, 1, (5.0, 1024.0)), "more vcores than the 4 that the largest node has"),
        (ask(2, 1, (1.0,)), "1 resources, not 2"),
    ],
)
def test_a_call_fails_as_a_whole_where_a_request_can_never_be_granted(never: Ask, why: str) -> None:
    rig = Rig("yarn", queues=queues(2048.0))
    rig.add_node("n1")
    master = rig.start(replace(OPEN, queue="a"))
    effects = rig.allocate(master, ask(1, 3), never)
    (answer,) = sent(effects, ContainersGranted)
    assert [(one.asks, one.reason) for one in answer.refused] == [((1, 2), why)]
    assert [one.text for one in noted(effects, Remark)] == [f"refused all 2 asks of a call: {why}"]
    assert not rig.manager.books.rows.live, "none of the call's requests is taken"
    assert refusals(rig, master) == [], "said once, as the call's answer came"
    assert refusals(rig, master, ask(1, 3)) == []
    assert rig.manager.books.rows.live == 1


def test_what_is_wanted_no_more_may_be_too_large_by_now() -> None:
    rig = Rig("yarn", queues=queues(4096.0))
    rig.add_node("n1")
    master = rig.start(replace(OPEN, queue="a"))
    large = ask(1, 3, (1.0, 4096.0))
    assert refusals(rig, master, large) == []
    assert isinstance(rig.ask_manager(SetQueues(queues(2048.0))), QueuesSet)
    assert refusals(rig, master, replace(large, total=0)) == []
    assert not rig.manager.books.rows.live
    rig.ask_manager(MoveApplication(app_of_attempt(master.attempt_id), "b"))
    assert refusals(rig, master, large) == [], "the other queue's containers may be as large"


def test_rounding_makes_no_request_larger_than_a_container_may_be() -> None:
    """Nodes whose memory is no multiple of the least container; queues bound what is asked for."""

    def asked(memory_mb: float, queue: str) -> tuple[float, ...]:
        rig = Rig(make_matcher("yarn", {"minimum_allocation_mb": 512}), queues=queues(2000.0))
        for name in ("n1", "n2", "n3"):
            rig.add_node(name, memory_mb=3000.0)
        demand = {"vcores": 1.0, "memory_mb": memory_mb}
        spec = MasterSpec(demand, ("run",), max_attempts=1)
        master = rig.start(replace(OPEN, master=spec, queue=queue))
        assert refusals(rig, master, ask(1, 1, (1.0, memory_mb))) == []
        for name in ("n1", "n2", "n3"):
            rig.beat(name)
        heard = sent(rig.allocate(master), ContainersGranted)
        (container,) = [one for answer in heard for one in answer.containers]
        held = rig.manager.books.holdings[container.container_id].vector
        assert held == rig.manager.books.apps[1].attempt.vector, "the master has as much"
        return held

    assert asked(2900.0, "b") == (1.0, 3000.0)
    assert asked(1900.0, "a") == (1.0, 2048.0)
    assert asked(1900.0, "b") == (1.0, 2048.0)
