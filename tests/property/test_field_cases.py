"""What users of other resource managers reported: each case in small, which must go well here.

After Kueue (queues of weight zero), Volcano (gangs of gangs, stranded gangs), kube-batch (useless
preemption), Spark and Ray (fractions that just fit), YARN (reservations, strict places, black
lists).
"""

from typing import Any

import pytest

import weft
from rm.settings import ManagerSettings
from testkit.builders import ask, job, noted, stage, succeeded
from testkit.manager import Rig
from testkit.matching import VIEWING
from weft.model.ids import app_of_attempt
from weft.model.queues import QueueSpec
from weft.protocol.effects import TimerFired
from weft.protocol.facts import PreemptionChosen
from weft.protocol.requests import Explain

pytestmark = pytest.mark.slow

SMALL = {"vcores": 1, "memory_mb": 512}
TYPES = [{"name": "vcores", "kind": "divisible"}, {"name": "memory_mb", "kind": "rigid"}]


def cluster(count: int, vcores: float = 8, **queues: Any) -> dict[str, Any]:
    """Like nodes, and queues below the root."""
    node = {"count": count, "capacity": {"vcores": vcores, "memory_mb": 65536}}
    tree = {"queues": {"root": queues}} if queues else {}
    return {"resources": TYPES, "nodes": [node], **tree}


def one_stage(name: str, queue: str, tasks: int, **more: Any) -> dict[str, Any]:
    """A job of one stage of small tasks."""
    only = {"name": "s", "tasks": tasks, "demand": SMALL, "duration_s": 6, **more}
    return {"name": name, "queue": queue, "stages": [only]}


def starts_of(result: Any, name: str) -> list[float]:
    """When the tasks of a job started, in order, s."""
    number = next(row["job"] for row in result.jobs.to_pylist() if row["name"] == name)
    rows = [row for row in result.tasks.to_pylist() if row["job"] == number]
    return sorted(row["start_s"] for row in rows if row["start_s"] is not None)


@pytest.mark.parametrize("matcher", sorted(set(VIEWING) - {"graphene", "carbyne"}))
def test_a_queue_of_weight_zero_is_served_last(matcher: str) -> None:
    """Its job is as old as the other queue's, and starts when that one has all that it asked for.

    Graphene lends as its deficit counters let it, Carbyne hands on what a job can do without.
    """
    spec = cluster(2, none={"capacity": 0.0}, all={"capacity": 1.0})
    lasts = [3.0 + (5 * i) % 7 for i in range(100)]
    jobs = [
        one_stage("paid", "all", 100, actual_duration_s=lasts),
        one_stage("free", "none", 10),
    ]
    result = weft.simulate(jobs, spec, matcher, seed=1, checks=True)
    assert starts_of(result, "free")[0] >= starts_of(result, "paid")[-1] - 1.0
    assert [row["state"] for row in result.jobs.to_pylist()] == ["SUCCEEDED"] * 2


@pytest.mark.parametrize("matcher", ["capacity", "drf", "fifo", "graphene"])
def test_jobs_of_several_gangs_start_each_gang_whole_and_wait_for_no_other(matcher: str) -> None:
    """Each job has two gangs; any two of the six would be more than the cluster has."""
    gang = {"tasks": 9, "duration_s": 5, "demand": SMALL, "gang": True}
    jobs = [
        {"name": name, "stages": [{"name": "a", **gang}, {"name": "b", **gang}]} for name in "xyz"
    ]
    result = weft.simulate(jobs, cluster(2), matcher, seed=1, checks=True, until_s=200.0)
    assert [row["state"] for row in result.jobs.to_pylist()] == ["SUCCEEDED"] * 3
    times: dict[tuple[int, str], set[float]] = {}
    for row in result.tasks.to_pylist():
        times.setdefault((row["job"], row["stage"]), set()).add(row["start_s"])
    assert len(times) == 6
    assert all(len(each) == 1 for each in times.values())


PREEMPTING = ManagerSettings(
    master_demand={"vcores": 0.0},
    preemption=True,
    preemption_grace_s=10.0,
    preemption_round_max=1.0,
    gang_nodes_max=1.0,
)
HALVES = QueueSpec("root", children=(QueueSpec("a", 0.5), QueueSpec("b", 0.5)))


@pytest.mark.parametrize(("tasks", "chosen"), [(8, 8), (12, 0)])
def test_nothing_is_preempted_for_a_gang_that_could_not_start_then(tasks: int, chosen: int) -> None:
    """Twelve are more than its queue is guaranteed: what it may claim does not start it."""
    rig = Rig("capacity", PREEMPTING, HALVES)
    for name in ("n1", "n2"):
        rig.add_node(name, vcores=8.0)
    small = rig.start(job("small", stage(tasks=100), queue="a"))
    rig.allocate(small, ask(1, 100, duration_s=1000.0))
    rig.beat()
    gang = rig.start(job("gang", stage(tasks=tasks, gang=True), queue="b"))
    rig.allocate(gang, ask(1, tasks, gang=True, duration_s=10.0))
    rig.tell(TimerFired("preempt"))
    assert len(noted(rig.effects, PreemptionChosen)) == chosen


@pytest.mark.parametrize(("count", "amount"), [(10, 0.1), (9, 0.111111), (3, 1 / 3), (7, 1 / 7)])
def test_fractions_that_just_fit_run_side_by_side(count: int, amount: float) -> None:
    rig = Rig("capacity", ManagerSettings(master_demand={"vcores": 0.0}))
    rig.add_node("n1", vcores=1.0)
    master = rig.start(job("parts", stage(tasks=4 * count, demand={"vcores": amount})))
    for turn in range(1, 4):
        rig.allocate(master, ask(1, count * turn, (amount, 10.0)))
        rig.beat(later_s=1.0)
        rig.allocate(master)
        assert len(master.containers) == count
        rig.beat("n1", *map(succeeded, master.containers))
        rig.allocate(master)
        master.containers.clear()


def test_a_reservation_goes_with_its_node_and_another_is_kept() -> None:
    """The kept node is lost; the large task is not forgotten, nor are nodes kept for nobody."""
    settings = ManagerSettings(
        master_demand={"vcores": 0.0}, reserve_after_s=4.0, node_expiry_s=5.0
    )
    rig = Rig("capacity", settings)
    for name in ("n1", "n2"):
        rig.add_node(name)
    small = rig.start(job("small", stage(tasks=1000)))
    rig.allocate(small, ask(1, 1000))
    rig.beat()
    rig.allocate(small)
    large = rig.start(job("large", stage(demand={"vcores": 4.0})))
    rig.allocate(large, ask(1, 1, (4.0, 1024.0)))
    books = rig.manager.books
    lost, tick = "", 0
    while not large.containers and tick < 80:
        tick += 1
        for name in [name for name in rig.nodes if name != lost]:
            here = [n for n, c in small.containers.items() if c.node_id == name]
            ends = [succeeded(here[0], 0, tick)] if here else []
            for end in ends:
                del small.containers[end.container_id]
            rig.beat(name, *ends, later_s=0.5)
        rig.allocate(small)
        rig.allocate(large)
        if books.matching.reserved and not lost:
            ((_, slots),) = books.matching.reserved.values()
            lost = books.node_at[slots[0]].node_id
        rig.tell(TimerFired("liveness"))
    assert lost
    (container,) = large.containers.values()
    assert container.node_id != lost
    assert not books.ledger.nodes.reserved[books.nodes[lost].slot]


@pytest.mark.parametrize("matcher", VIEWING)
def test_a_strict_place_on_the_black_list_is_waited_for_with_the_reason(matcher: str) -> None:
    """relaxLocality=false on the one node that the application keeps off: nowhere else will do."""
    rig = Rig(matcher, ManagerSettings(master_demand={"vcores": 0.0}))
    for name in ("n1", "n2"):
        rig.add_node(name)
    master = rig.start(job("picky", stage(tasks=1)))
    rig.allocate(master, ask(1, 1, nodes=("n2",), strict=True), blacklist=("n2",))
    for _ in range(5):
        rig.beat(later_s=1.0)
        rig.allocate(master)
    assert not master.containers
    told = rig.ask_manager(Explain(app_of_attempt(master.attempt_id))).stages[0].reasons
    assert told == {
        "node is on the application's black list": 1,
        "node is none that the ask names": 1,
    }
    rig.allocate(master, blacklist=())
    rig.beat(later_s=1.0)
    rig.allocate(master)
    assert [c.node_id for c in master.containers.values()] == ["n2"]


def test_a_strict_place_that_is_lost_is_waited_for_until_it_is_back() -> None:
    settings = ManagerSettings(master_demand={"vcores": 0.0}, node_expiry_s=5.0)
    rig = Rig("capacity", settings)
    for name in ("n1", "n2"):
        rig.add_node(name)
    master = rig.start(job("picky", stage(tasks=1)))
    rig.beat("n1", later_s=10.0)
    rig.tell(TimerFired("liveness"))
    rig.allocate(master, ask(1, 1, nodes=("n2",), strict=True))
    rig.beat("n1", later_s=1.0)
    rig.allocate(master)
    assert not master.containers
    told = rig.ask_manager(Explain(app_of_attempt(master.attempt_id))).stages[0].reasons
    assert told == {"node is none that the ask names": 1}
    rig.restart_node("n2", boot=2)
    rig.beat("n2", later_s=1.0)
    rig.allocate(master)
    assert [c.node_id for c in master.containers.values()] == ["n2"]
