"""A large ask is not passed over for ever."""

from rm.settings import ManagerSettings
from testkit.builders import ask, job, noted, stage, succeeded
from testkit.manager import Rig
from weft.model.job import Job, MasterSpec
from weft.model.queues import QueueSpec
from weft.protocol.facts import Placed

NO_MASTER = {"vcores": 0.0}
LITTLE = {"vcores": 0.1}


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
        if rig.manager.books.matching.reserved:
            break
    assert rig.manager.books.matching.reserved
    rig.allocate(big, ask(1, 0, (4.0, 1024.0)))
    rig.beat("n1", later_s=2.0)
    assert not rig.manager.books.matching.reserved
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


def test_the_node_is_kept_where_room_comes_soonest_whatever_runs_on_there() -> None:
    """Half of n1 is free in 12 s and half in 500 s; all of n2 in 60 s: two come first on n1."""
    rig = Rig("sjf", ManagerSettings(master_demand=NO_MASTER, reserve_after_s=4.0))
    rig.add_node("masters", vcores=0.5)
    other = rig.start(job("other", *(stage(f"s{i}", tasks=9, demand=LITTLE) for i in range(4))))
    rig.add_node("n1")
    rig.allocate(other, ask(1, 2, duration_s=12.0), ask(2, 2, duration_s=500.0, stage=1))
    rig.beat()
    rig.add_node("n2")
    rig.allocate(other, ask(3, 4, duration_s=60.0, stage=2))
    rig.beat()
    big = rig.start(job("big", stage(tasks=1, demand=LITTLE)))
    rig.allocate(big, ask(1, 1, (2.0, 1024.0)), remaining_path_s=1.0)
    rig.allocate(other, ask(4, 9, duration_s=60.0, stage=3), remaining_path_s=99.0)
    ended = next(n for n, c in other.containers.items() if c.ask_id == 3)
    rig.beat("n2", succeeded(ended, 2), later_s=1.0)  # somebody else is served
    for _ in range(20):
        rig.beat("n1", later_s=1.0)
        rig.allocate(other, remaining_path_s=99.0)
        rig.allocate(big, remaining_path_s=1.0)
        if rig.manager.books.matching.reserved:
            break
    ((_, slots),) = rig.manager.books.matching.reserved.values()
    assert [rig.manager.books.node_at[slot].node_id for slot in slots] == ["n1"]


def test_what_a_reservation_keeps_off_goes_where_it_did_not_help() -> None:
    """One task holds three cores and goes on and on: who waits for them keeps one core for that."""
    rig = Rig("capacity", ManagerSettings(master_demand=NO_MASTER, reserve_after_s=4.0))
    rig.add_node("n1")
    long = rig.start(job("long", stage(tasks=1, demand={"vcores": 3})))
    rig.allocate(long, ask(1, 1, (3.0, 1024.0)))
    rig.beat()
    big = rig.start(job("big", stage(tasks=1, demand={"vcores": 2})))
    rig.allocate(big, ask(1, 1, (2.0, 1024.0)))
    other = rig.start(job("other", stage(tasks=1)))
    rig.add_node("n2", vcores=1)
    rig.allocate(other, ask(1, 1))
    rig.beat("n2", later_s=1.0)
    for _ in range(10):
        rig.beat("n1", later_s=1.0)
    assert rig.manager.books.matching.reserved
    _gives_way_for_one_look(rig)


def test_a_node_that_is_kept_for_a_master_in_vain_gives_way_too() -> None:
    """One task holds three cores and goes on and on: a master of two keeps the fourth for that."""
    settings = ManagerSettings(master_demand=NO_MASTER, master_share_max=1.0, reserve_after_s=4.0)
    rig = Rig("capacity", settings)
    rig.add_node("n1")
    long = rig.start(job("long", stage(tasks=2, demand={"vcores": 3})))
    rig.allocate(long, ask(1, 2, (3.0, 1024.0)))
    rig.beat()
    rig.submit(Job("large", (), master=MasterSpec({"vcores": 2.0}, ("run",))))
    other = rig.start(job("other", stage(tasks=1)))
    rig.add_node("n2", vcores=1)
    rig.allocate(other, ask(1, 1))
    rig.beat("n2", later_s=1.0)
    for _ in range(10):
        rig.beat("n1", later_s=1.0)
    assert rig.manager.books.matching.reserved
    _gives_way_for_one_look(rig)


def test_masters_that_a_limit_holds_back_hide_nobody_who_starves() -> None:
    tree = QueueSpec("root", children=(QueueSpec("a", 0.5, max_am_share=0.01), QueueSpec("b", 0.5)))
    settings = ManagerSettings(master_demand=LITTLE, master_share_max=1.0, reserve_after_s=4.0)
    rig = Rig("capacity", settings, tree)
    rig.add_node("n1")
    long = rig.start(job("long", stage(tasks=1, demand={"vcores": 3}), queue="a"))
    rig.allocate(long, ask(1, 1, (3.0, 1024.0)))
    for number in range(50):
        rig.submit(job(f"held back {number}", stage(tasks=1), queue="a"))
    rig.beat()
    rig.submit(Job("large", (), master=MasterSpec({"vcores": 2.0}, ("run",)), queue="b"))
    other = rig.start(job("other", stage(tasks=1), queue="b"))
    rig.allocate(other, ask(1, 1))
    for _ in range(10):
        rig.beat("n1", later_s=1.0)
    assert rig.manager.books.matching.reserved


def _own(name: str, vcores: float, queue: str = "default") -> Job:
    return Job(name, (), master=MasterSpec({"vcores": vcores}, ("run",)), queue=queue)


def test_a_master_above_the_share_of_all_masters_holds_up_no_smaller_one() -> None:
    rig = Rig("capacity", ManagerSettings(master_demand=NO_MASTER, master_share_max=0.25))
    rig.add_node("n1")
    rig.add_node("n2")
    for name, vcores in (("first", 1.5), ("too much by now", 1.0), ("small", 0.4)):
        rig.submit(_own(name, vcores))
    rig.beat()
    assert [one.app.job.name for one in rig.manager.books.waiting] == ["too much by now"]


def test_a_large_master_has_a_node_kept_where_only_masters_come() -> None:
    settings = ManagerSettings(master_demand=NO_MASTER, master_share_max=1.0, reserve_after_s=4.0)
    rig = Rig("capacity", settings)
    rig.add_node("n1")
    long = rig.start(job("long", stage(tasks=1, demand={"vcores": 2})))
    rig.allocate(long, ask(1, 1, (2.0, 1024.0)))
    rig.beat()
    rig.submit(_own("small", 0.1))
    rig.submit(_own("large", 3.0))
    rig.beat()
    for number in range(10):
        rig.submit(_own(f"small {number}", 0.05))
        rig.beat("n1", later_s=1.0)
    (serial,) = rig.manager.books.matching.reserved
    assert serial < 0


def test_no_node_is_kept_for_a_master_that_a_limit_holds_back_by_now() -> None:
    tree = QueueSpec("root", children=(QueueSpec("a", 0.5, max_am_share=0.5), QueueSpec("b", 0.5)))
    settings = ManagerSettings(master_demand=NO_MASTER, master_share_max=1.0, reserve_after_s=4.0)
    rig = Rig("capacity", settings, tree)
    rig.add_node("n1")
    rig.add_node("n2")
    long = rig.start(job("long", stage(tasks=2, demand={"vcores": 3}), queue="b"))
    rig.allocate(long, ask(1, 2, (3.0, 1024.0)))
    rig.beat()
    rig.submit(_own("large", 2.0, "a"))
    books = rig.manager.books
    for number in range(20):
        rig.submit(_own(f"{number}", 0.01, "b"))
        rig.beat(later_s=1.0)
        if books.matching.reserved:
            break
    assert books.matching.reserved
    rig.submit(_own("small", 0.5, "a"))
    for _ in range(3):
        rig.beat(later_s=1.0)
    assert not books.matching.reserved


def _gives_way_for_one_look(rig: Rig) -> None:
    """Have a small task wait for what is left of n1, and see the node kept again behind it."""
    small = rig.start(job("small", stage(tasks=1)))
    rig.allocate(small, ask(1, 1))
    waited = 0
    while not small.containers and waited < 100:
        rig.beat("n1", later_s=1.0)
        rig.allocate(small)
        waited += 1
    assert 4 < waited < 50
    for _ in range(5):
        rig.beat("n1", later_s=1.0)
    assert rig.manager.books.matching.reserved, "the node is kept again"
