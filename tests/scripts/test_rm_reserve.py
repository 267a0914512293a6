"""A large ask is not passed over for ever."""

from rm.settings import ManagerSettings
from testkit.builders import ask, job, noted, stage, succeeded
from testkit.manager import Rig
from weft.facts import Placed

NO_MASTER = {"vcores": 0.0}


def test_a_large_ask_gets_a_node_kept_when_small_ones_pass_it() -> None:
    rig = Rig("capacity", ManagerSettings(master_demand=NO_MASTER, reserve_after_s=10.0))
    rig.add_node("n1")
    big = rig.start(job("big", stage(tasks=1, demand={"vcores": 4})))
    small = rig.start(job("small", stage(tasks=1000)))
    rig.allocate(small, ask(1, 1000))
    rig.beat()
    rig.allocate(big, ask(1, 1, (4.0, 1024.0)))
    rig.allocate(small)
    running = list(small.containers)
    for tick in range(60):  # one small task ends at a time, so that four cores are never free
        rig.beat("n1", succeeded(running.pop(0), 0, tick), later_s=1.0)
        placed = [p for p in noted(rig.effects, Placed) if p.demand == (1.0, 1024.0)]
        running.extend(p.container for p in placed)
        rig.allocate(big)
        if big.containers or not running:
            break
    assert big.containers, "the node was kept until four cores were free"


def test_a_reservation_goes_with_its_application() -> None:
    rig = Rig("capacity", ManagerSettings(master_demand=NO_MASTER, reserve_after_s=4.0))
    rig.add_node("n1")
    big = rig.start(job("big", stage(tasks=1, demand={"vcores": 4})))
    small = rig.start(job("small", stage(tasks=1000)))
    rig.allocate(small, ask(1, 1000))
    rig.beat()
    rig.allocate(small)
    rig.allocate(big, ask(1, 1, (4.0, 1024.0)))
    running = list(small.containers)
    for tick in range(6):
        rig.beat("n1", succeeded(running.pop(0), 0, tick), later_s=2.0)
        running.extend(p.container for p in noted(rig.effects, Placed))
        if rig.manager.books.reserved:
            break
    assert rig.manager.books.reserved
    rig.allocate(big, ask(1, 0, (4.0, 1024.0)))
    rig.beat("n1", later_s=2.0)
    assert not rig.manager.books.reserved
    before = len(rig.manager.books.holdings)
    rig.beat("n1", succeeded(running.pop(0), 0, 99), later_s=2.0)
    assert len(rig.manager.books.holdings) >= before


def test_a_large_task_gets_a_node_kept_though_its_turn_never_comes() -> None:
    """Under sjf the long job is never the first in turn; its queue's guarantee could hold it."""
    rig = Rig("sjf", ManagerSettings(master_demand=NO_MASTER, reserve_after_s=10.0))
    rig.add_node("n1")
    big = rig.start(job("big", stage(tasks=1, demand={"vcores": 4})))
    small = rig.start(job("small", stage(tasks=1000)))
    rig.allocate(small, ask(1, 1000), remaining_path_s=10.0)
    rig.beat()
    rig.allocate(big, ask(1, 1, (4.0, 1024.0)), remaining_path_s=1000.0)
    rig.allocate(small)
    running = list(small.containers)
    for tick in range(60):
        rig.beat("n1", succeeded(running.pop(0), 0, tick), later_s=1.0)
        placed = [p for p in noted(rig.effects, Placed) if p.demand == (1.0, 1024.0)]
        running.extend(p.container for p in placed)
        rig.allocate(small, remaining_path_s=10.0)
        rig.allocate(big, remaining_path_s=1000.0)
        if big.containers or not running:
            break
    assert big.containers
