"""Names of nodes and racks that are gone are given up when nobody needs them."""

import pytest

from rm.forgetting import RACKS_BEFORE_REUSE
from rm.settings import ManagerSettings
from testkit.builders import ask, job, stage, succeeded
from testkit.manager import Rig
from weft.protocol.effects import TimerFired
from weft.protocol.requests import ListNodes

SETTINGS = ManagerSettings(node_expiry_s=10.0, master_demand={})


@pytest.fixture(autouse=True)
def few_gone_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep three nodes that are gone, not a thousand."""
    monkeypatch.setattr("rm.forgetting.GONE_NODES_MAX", 3)


def lose(rig: Rig, *stay: str) -> None:
    """Time passes in which only these nodes are heard."""
    for _ in range(3):
        rig.now += 6.0
        for name in stay:
            rig.beat(name)
        rig.tell(TimerFired("liveness"))


def names(rig: Rig) -> list[str]:
    return [report.node_id for report in rig.ask_manager(ListNodes()).items]


def test_a_new_node_takes_the_place_of_the_one_that_is_gone_for_longest() -> None:
    rig = Rig(settings=SETTINGS)
    rig.add_node("n1")
    for number in range(20):
        rig.add_node(f"stranger{number}")
        lose(rig, "n1")
    assert names(rig)[0] == "n1"
    assert sorted(names(rig)[1:]) == [f"stranger{n}" for n in (16, 17, 18, 19)]
    books = rig.manager.books
    assert set(books.nodes) == set(names(rig))
    assert books.ledger.node_count == len(books.node_at) == len(books.view.node_names) == 5
    assert [node.slot for node in books.node_at] == list(range(5))
    rig.add_node("stranger0", vcores=2.0)  # it comes back as a new one, and works
    master = rig.start(job("j", stage("w", 6)))
    rig.allocate(master, ask(total=6))
    for name in ("n1", "stranger0"):
        rig.beat(name)
    rig.allocate(master)
    assert {held.node_id for held in master.containers.values()} == {"n1", "stranger0"}


def test_a_node_with_containers_of_a_job_that_lives_is_not_forgotten() -> None:
    rig = Rig(settings=SETTINGS)
    rig.add_node("n1")
    rig.add_node("n2")
    master = rig.start(job("j", stage("w", 8)))
    rig.allocate(master, ask(total=8))
    for name in list(rig.nodes):
        rig.beat(name)
    rig.allocate(master)
    away = next(name for name in ("n1", "n2") if not rig.nodes[name].masters)
    (home,) = {"n1", "n2"} - {away}
    first = min(c for c, held in master.containers.items() if held.node_id == away)
    lose(rig, home)
    for number in range(10):
        rig.add_node(f"stranger{number}")
        lose(rig, home)
        rig.allocate(master)
    assert away in names(rig), "should it come back, its containers must be known as lost"
    rig.add_node(away)
    rig.beat(away, succeeded(first, 0, 0))
    assert rig.manager.books.apps[1].finished_by_stage == [1]


def test_places_of_racks_without_nodes_are_used_again() -> None:
    rig = Rig(settings=SETTINGS)
    rig.add_node("n1", rack="mine")
    for number in range(RACKS_BEFORE_REUSE + 30):
        rig.add_node("wanderer", rack=f"r{number}", boot=number + 1)
        lose(rig, "n1")
    racks = rig.manager.books.view.rack_names
    assert len(racks) == RACKS_BEFORE_REUSE
    assert "mine" in racks
    node = rig.manager.books.nodes["wanderer"]
    assert racks[int(rig.manager.books.ledger.nodes.rack[node.slot])] == node.rack
