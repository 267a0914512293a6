"""The Resource Manager and gangs: one unit, all or none, refused where it can never fit."""

from typing import Any

import pytest

from rm.placing import gangs
from rm.settings import ManagerSettings
from testkit.builders import FakeMaster, ask, job, noted, stage, succeeded
from testkit.manager import Rig
from weft.model.job import TaskOverride
from weft.model.queues import QueueSpec
from weft.protocol.facts import Placed
from weft.protocol.requests import Explain, Refused, SubmitApplication

NO_MASTER = {"vcores": 0.0}
LABELLED = {"labels": ("gpu",)}


def rig_of(nodes: int, vcores: float = 4.0, **settings: Any) -> Rig:
    rig = Rig("capacity", ManagerSettings(master_demand=NO_MASTER, **settings))
    for number in range(1, nodes + 1):
        rig.add_node(f"n{number}", vcores)
    return rig


def fill(rig: Rig, tasks: int) -> tuple[FakeMaster, list[int]]:
    """A job whose small tasks take up the cluster; its containers."""
    small = rig.start(job("small", stage(tasks=10_000)))
    rig.allocate(small, ask(1, 10_000))
    rig.beat()
    rig.allocate(small)
    assert len(small.containers) == tasks
    return small, list(small.containers)


def refusal(rig: Rig, *stages: Any, **more: Any) -> str:
    answer = rig.ask_manager(SubmitApplication(job("gang", *stages, **more), ""))
    assert isinstance(answer, Refused), answer
    return f"{answer.place}: {answer.problem}"


@pytest.mark.parametrize("prompt", [False, True])
def test_asks_of_one_gang_stage_are_one_unit_whatever_they_ask(prompt: bool) -> None:
    rig = rig_of(2, prompt=prompt)
    other = rig.start()
    rig.allocate(other, ask(1, 1))
    rig.beat()
    rig.allocate(other)
    (busy,) = other.containers.values()
    own = (
        TaskOverride(),
        TaskOverride(),
        TaskOverride(demand={"vcores": 3.0}),
        TaskOverride(demand={"vcores": 3.0}),
    )
    master = rig.start(job("gang", stage(tasks=4, gang=True, overrides=own)))
    small = ask(1, 2, gang=True, pri_score=1.0)
    large = ask(2, 2, (3.0, 1024.0), gang=True, pri_score=0.5, nodes=("n2",))
    rig.allocate(master, small, large)
    rig.beat(later_s=1.0)
    rig.allocate(master)
    assert not master.containers, "the small ones would fit, the large ones do not"
    assert rig.manager.books.ledger.nodes.available[:2, 0].sum() == 7

    rig.beat(busy.node_id, succeeded(busy.container_id), later_s=1.0)
    if not prompt:
        assert len(noted(rig.effects, Placed)) == 4, "all with one decision"
    rig.allocate(master)
    assert sorted(c.ask_id for c in master.containers.values()) == [1, 1, 2, 2]


def test_gangs_of_two_stages_are_two_units() -> None:
    rig = rig_of(1)
    master = rig.start(job("g", stage("a", 3, gang=True), stage("b", 3, gang=True)))
    rig.allocate(master, ask(1, 3, gang=True), ask(2, 3, gang=True, stage=1))
    rig.beat()
    rig.allocate(master)
    assert [c.ask_id for c in master.containers.values()] == [1, 1, 1]


def test_small_containers_go_where_they_leave_room_for_the_large_ones() -> None:
    """Placed in the order of asking, the small ones would take the only node for the large one."""
    rig = rig_of(0)
    rig.add_node("n1", 2.0)
    rig.add_node("n2", 4.0)
    own = (*[TaskOverride()] * 2, TaskOverride(demand={"vcores": 4.0}))
    master = rig.start(job("g", stage(tasks=3, gang=True, overrides=own)))
    rig.allocate(master, ask(1, 2, gang=True), ask(2, 1, (4.0, 1024.0), gang=True))
    rig.beat()
    rig.allocate(master)
    assert sorted((c.ask_id, c.node_id) for c in master.containers.values()) == [
        (1, "n1"),
        (1, "n1"),
        (2, "n2"),
    ]


def test_a_gang_starts_on_the_nodes_that_it_prefers_where_it_can() -> None:
    rig = rig_of(3)
    master = rig.start(job("g", stage(tasks=5, gang=True)))
    rig.allocate(master, ask(1, 5, gang=True, nodes=("n3",)))
    rig.beat()
    rig.allocate(master)
    where = [c.node_id for c in master.containers.values()]
    assert where.count("n3") == 4
    assert len(where) == 5


@pytest.mark.parametrize(
    ("tasks", "more", "problem"),
    [
        (9, {}, "it has room for 8"),
        (
            2,
            {
                "overrides": (
                    TaskOverride(demand={"vcores": 4.0}),
                    TaskOverride(demand={"vcores": 4.0}),
                )
            },
            "",
        ),
        (3, {"demand": {"vcores": 3.0}}, "it has room for 2"),
        (5, {"label": "gpu"}, "it has room for 4"),
    ],
)
def test_a_gang_that_can_never_fit_is_refused(
    tasks: int, more: dict[str, Any], problem: str
) -> None:
    rig = rig_of(2)
    rig.add_node("fast", **LABELLED)
    if not problem:
        rig.submit(job("gang", stage(tasks=tasks, gang=True, **more)))
        return
    told = refusal(rig, stage("first"), stage(tasks=tasks, gang=True, **more))
    assert told.startswith(f"stages[1].gang: the {tasks} tasks of stage 'work' start together")
    assert problem in told


def test_a_gang_must_fit_beside_its_master_and_its_master_leaves_it_room() -> None:
    rig = Rig("capacity", ManagerSettings(master_demand={"vcores": 0.5}))
    rig.add_node("large", 4.0)
    rig.add_node("small", 1.5)
    assert "room for them or the master" in refusal(
        rig,
        stage(
            tasks=2,
            gang=True,
            overrides=(
                TaskOverride(demand={"vcores": 4.0}),
                TaskOverride(demand={"vcores": 1.5}),
            ),
        ),
    )
    own = (TaskOverride(demand={"vcores": 4.0}), TaskOverride())
    master = rig.start(job("tight", stage(tasks=2, gang=True, overrides=own)))
    assert rig.manager.books.ledger.nodes.available[0, 0] == 4.0, "the master went elsewhere"
    rig.allocate(master, ask(1, 1, (4.0, 1024.0), gang=True), ask(2, 1, gang=True))
    rig.beat()
    rig.allocate(master)
    assert len(master.containers) == 2


def test_a_gang_beyond_its_queues_maximum_or_its_users_is_refused() -> None:
    queues = QueueSpec(
        "root",
        children=(
            QueueSpec("capped", 0.5, max_capacity=0.5),
            QueueSpec("shared", 0.5, user_limit_factor=1.0),
        ),
    )
    rig = Rig("capacity", ManagerSettings(master_demand=NO_MASTER), queues)
    rig.add_node(vcores=8.0)
    for queue in ("capped", "shared"):
        told = refusal(rig, stage(tasks=5, gang=True), queue=queue)
        assert f"queue root.{queue} and its users may hold 4" in told
        rig.submit(job("fits", stage(tasks=4, gang=True), queue=queue))


def drain(rig: Rig, running: list[int], until: Any, steps: int = 200) -> int:
    """Small tasks end one at a time, others take their place; the most nodes kept for a gang."""
    most = 0
    for tick in range(steps):
        holding = rig.manager.books.holdings[running.pop(0)]
        end = succeeded(holding.container_id, 0, tick)
        rig.beat(holding.node.node_id, end, later_s=1.0)
        placed = [p for p in noted(rig.effects, Placed) if p.ask == 1]
        running.extend(p.container for p in placed)
        books = rig.manager.books
        kept = books.matching.reserved.items()
        most = max(most, *(len(at) for one, (_, at) in kept if books.rows.gang_of(one)), 0)
        if until() or not running:
            break
    return most


def test_a_gang_that_starves_gets_its_nodes_kept_within_the_bound() -> None:
    rig = rig_of(10, reserve_after_s=5.0, gang_nodes_max=0.3)
    gang = rig.start(job("gang", stage(tasks=10, gang=True)))
    huge = rig.start(job("huge", stage(tasks=40, gang=True)))
    _, running = fill(rig, 40)
    rig.allocate(gang, ask(7, 10, gang=True))
    rig.allocate(huge, ask(7, 40, gang=True))

    def started() -> bool:
        rig.allocate(gang)
        return bool(gang.containers)

    most = drain(rig, running, started)
    assert len(gang.containers) == 10, "three nodes were kept until they were empty"
    assert most == 3
    assert not gangs.reservations(rig.manager.books), "what has started keeps no node"
    assert drain(rig, running, lambda: False, steps=15) == 0, "for the larger one ten are too many"
    told = rig.ask_manager(Explain(huge.attempt_id >> 8))
    (reason,) = told.stages[0].reasons
    assert "it needs more nodes than may be kept for gangs (3)" in reason
    assert told.stages[0].reasons[reason] == 10, "nodes are counted once"


def test_gangs_that_need_the_same_nodes_start_one_after_the_other() -> None:
    rig = rig_of(4, reserve_after_s=5.0, gang_nodes_max=1.0)
    masters = [rig.start(job(f"g{i}", stage(tasks=12, gang=True))) for i in range(3)]
    _, running = fill(rig, 16)
    for master in masters:
        rig.allocate(master, ask(7, 12, gang=True))
    ended: set[int] = set()

    def all_started() -> bool:
        for number, master in enumerate(masters):
            rig.allocate(master)
            assert len(master.containers) in (0, 12)
            if master.containers and number not in ended:
                ended.add(number)
                for c in list(master.containers.values()):
                    rig.beat(c.node_id, succeeded(c.container_id))
                running.extend(p.container for p in noted(rig.effects, Placed) if p.ask == 1)
        return len(ended) == 3

    for _ in range(20):
        drain(rig, running, all_started, steps=20)
        running[:] = [
            h.container_id
            for h in rig.manager.books.holdings.values()
            if h.entry is not None and h.entry.ask.ask_id == 1
        ]
        if len(ended) == 3:
            break
    assert len(ended) == 3


def test_one_gang_at_a_time_has_nodes_kept() -> None:
    rig = rig_of(10, reserve_after_s=5.0, gang_nodes_max=1.0)
    masters = [rig.start(job(f"g{i}", stage(tasks=8, gang=True))) for i in range(3)]
    small, _ = fill(rig, 40)
    for master in masters:
        rig.allocate(master, ask(7, 8, gang=True))
    (first, *_) = small.containers.values()
    rig.beat(first.node_id, succeeded(first.container_id), later_s=1.0)  # another is served instead
    for _ in range(20):
        rig.beat(later_s=1.0)
    assert len(rig.manager.books.matching.reserved) == 1
    assert gangs.reservations(rig.manager.books) == 1


def test_a_gang_whose_earlier_ask_waits_again_keeps_its_nodes() -> None:
    """A task failed: its ask is older than the one by which the nodes are kept."""
    rig = rig_of(4, reserve_after_s=5.0, gang_nodes_max=1.0)
    gang = rig.start(job("gang", stage(tasks=8, gang=True)))
    small, _ = fill(rig, 16)
    rig.allocate(gang, ask(7, 1, gang=True), ask(8, 7, gang=True))
    rig.allocate(gang, ask(7, 0, gang=True))
    (first, *_) = small.containers.values()
    rig.beat(first.node_id, succeeded(first.container_id), later_s=1.0)
    for _ in range(20):
        rig.beat(later_s=1.0)
    before = dict(rig.manager.books.matching.reserved)
    assert len(before) == 1

    rig.allocate(gang, ask(7, 1, gang=True))
    for _ in range(4):
        rig.beat(later_s=1.0)
    assert rig.manager.books.matching.reserved.keys() == before.keys()
