"""An operator says what a node has: what runs there goes on, and the rest follows from then on."""

import pytest

from rm.match.registry import MATCHERS
from rm.settings import ManagerSettings
from testkit.builders import FakeMaster, ask, job, node_registered, stage, succeeded
from testkit.manager import Rig
from weft.protocol.requests import Done, ListNodes, Refused, UpdateNode

FREE = ManagerSettings(master_demand={})


def one_node(matcher: str = "capacity", tasks: int = 8) -> tuple[Rig, FakeMaster]:
    """A node of 4 cores on which 4 of a master's tasks of a core run."""
    rig = Rig(matcher, FREE)
    rig.add_node("n1", memory_mb=16384.0)
    master = rig.start(job("j", stage(tasks=tasks)))
    rig.allocate(master, ask(total=tasks))
    for _ in range(4):
        rig.beat()
    assert tasks_of(rig) == 4
    return rig, master


def tasks_of(rig: Rig, node: str = "n1") -> int:
    held = rig.manager.books.nodes[node].holdings
    return sum(one.entry is not None for one in held.values())


def end_one(rig: Rig) -> None:
    held = rig.manager.books.nodes["n1"].holdings
    number = min(n for n, one in held.items() if one.entry is not None)
    rig.beat("n1", succeeded(number))
    rig.beat("n1")


@pytest.mark.parametrize("matcher", ["fifo", "capacity", "drf", "graphene", "carbyne", "fair"])
def test_a_smaller_node_keeps_what_runs_and_gets_nothing_until_it_fits(matcher: str) -> None:
    rig, _ = one_node(matcher)
    assert rig.ask_manager(UpdateNode("n1", {"vcores": 2.0})) == Done("RUNNING")
    (report,) = rig.ask_manager(ListNodes()).items
    assert report.capacity == {"vcores": 2.0, "memory_mb": 16384.0}
    assert tasks_of(rig) == 4, "nothing is stopped"
    for left in (3, 2, 2, 2):
        end_one(rig)
        assert tasks_of(rig) == left
    assert rig.ask_manager(UpdateNode("n1", own=True)) == Done("RUNNING")
    rig.beat("n1")
    assert tasks_of(rig) == 4 - max(0, 4 + 2 + 2 - 8)


def test_what_was_said_outlives_the_node_and_the_manager_until_it_is_taken_back() -> None:
    rig, _ = one_node()
    rig.ask_manager(UpdateNode("n1", {"vcores": 1.0}))
    rig.ask_manager(UpdateNode("n1", {"memory_mb": 8192.0}, ("gpu",), relabel=True))
    wanted = ({"vcores": 1.0, "memory_mb": 8192.0}, ("gpu",))

    def seen(rig: Rig) -> tuple:
        (report,) = rig.ask_manager(ListNodes()).items
        return report.capacity, report.labels

    assert seen(rig) == wanted
    rig.restart_node("n1", boot=2)
    assert seen(rig) == wanted
    again = Rig("capacity", FREE, records=rig.records)
    again.tell(node_registered("n1", labels=("disk",)))
    assert seen(again) == wanted
    again.ask_manager(UpdateNode("n1", own=True))
    assert seen(again) == ({"vcores": 4.0, "memory_mb": 8192.0}, ("disk",))
    third = Rig("capacity", FREE, records=again.records)
    third.tell(node_registered("n1", labels=("disk",)))
    assert seen(third) == seen(again)


@pytest.mark.parametrize("matcher", [name for name in MATCHERS if name != "yarn_fair"])
def test_a_new_label_lets_asks_for_it_in(matcher: str) -> None:
    rig = Rig(matcher, FREE)
    for name in ("n1", "n2", "n3"):
        rig.add_node(name, memory_mb=16384.0, labels=("gpu",) if name == "n3" else ())
    rig.ask_manager(UpdateNode("n3", relabel=True))
    master = rig.start(job("j", stage(tasks=2)))
    rig.allocate(master, ask(total=2, label="gpu"))
    for _ in range(3):
        rig.beat()
    assert not any(tasks_of(rig, name) for name in rig.nodes)
    busy = [name for name, node in rig.manager.books.nodes.items() if node.holdings]
    free = next(name for name in rig.nodes if name not in busy)
    assert rig.ask_manager(UpdateNode(free, labels=("gpu",), relabel=True)) == Done("RUNNING")
    for _ in range(3):
        rig.beat()
    assert tasks_of(rig, free) == 2


def test_what_cannot_be_is_refused_and_changes_nothing() -> None:
    rig, _ = one_node()
    said = {
        "capacity.vcores": UpdateNode("n1", {"vcores": 5.0}),
        "capacity.gpus": UpdateNode("n1", {"gpus": 1.0}),
        "labels": UpdateNode("n1", labels=tuple(map(str, range(63))), relabel=True),
        "node_id": UpdateNode("n9", {"vcores": 1.0}),
    }
    records = len(rig.records)
    for place, request in said.items():
        refused = rig.ask_manager(request)
        assert isinstance(refused, Refused), request
        assert refused.place == place
    assert (
        "offers 4; start its node manager with more"
        in rig.ask_manager(said["capacity.vcores"]).problem
    )
    assert len(rig.records) == records
    yarn, _ = one_node("yarn")
    refused = yarn.ask_manager(UpdateNode("n1", labels=("gpu",), relabel=True))
    assert "drain the node first" in refused.problem
