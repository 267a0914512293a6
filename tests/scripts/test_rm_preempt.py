"""Preemption, as the manager decides it: who gives up what, when it is told, how it ends."""

from functools import partial
from typing import Any

import pytest

from rm.settings import ManagerSettings
from testkit import builders
from testkit.builders import FakeMaster, job, noted, sent, stage, timers
from testkit.manager import Rig
from weft.model.ids import app_of_attempt
from weft.model.queues import QueueSpec
from weft.protocol.effects import TimerFired
from weft.protocol.facts import Placed, PreemptionChosen
from weft.protocol.messages import (
    AttemptRegistered,
    ContainerEnd,
    ContainersAsked,
    ContainersGranted,
    Outcome,
)
from weft.protocol.requests import Explain, GetApplication

QUEUES = QueueSpec("root", children=(QueueSpec("a", 0.5), QueueSpec("b", 0.5)))
GRACE_S = 10.0
ask = partial(builders.ask, duration_s=1000.0)  # nothing ends by itself
ON: dict[str, Any] = {
    "preemption": True,
    "preemption_grace_s": GRACE_S,
    "preemption_round_max": 1.0,
}


def rig_of(nodes: int = 2, vcores: float = 8.0, queues: QueueSpec = QUEUES, **more: Any) -> Rig:
    settings = ManagerSettings(**{"master_demand": {"vcores": 0.0}, **ON, **more})
    rig = Rig("capacity", settings, queues)
    for number in range(1, nodes + 1):
        rig.add_node(f"n{number}", vcores, memory_mb=1e6)
    return rig


def fill(rig: Rig, tasks: int = 1000, **more: Any) -> FakeMaster:
    """A job of queue a that takes whatever there is."""
    master = rig.start(job("small", stage(tasks=tasks), queue="a", **more))
    rig.allocate(master, ask(1, tasks))
    rig.beat()
    rig.allocate(master)
    return master


def round_(rig: Rig, later_s: float = 0.0) -> list[int]:
    """One round; the containers that it newly chose."""
    rig.tell(TimerFired("preempt"), later_s)
    return [fact.container for fact in noted(rig.effects, PreemptionChosen)]


def stop_and_end(rig: Rig) -> list[int]:
    """Nodes are told to stop containers, and say that these were killed; what was stopped."""
    rig.beat()
    stopped = []
    for name, node in rig.nodes.items():
        ends = [ContainerEnd(n, Outcome.KILLED, 1, 0, 0, 0, 3.0) for n in node.stops]
        stopped += node.stops
        node.stops = []
        if ends:
            rig.beat(name, *ends)
    return stopped


def test_a_large_task_gets_a_node_after_the_grace_period() -> None:
    rig = rig_of()
    small = fill(rig)
    big = rig.start(job("big", stage(demand={"vcores": 7.0}), queue="b"))
    rig.allocate(big, ask(1, 1, (7.0, 1024.0)))
    chosen = round_(rig)
    assert len(chosen) == 7
    assert len({small.containers[number].node_id for number in chosen}) == 1
    assert set(chosen) <= set(sorted(small.containers)[1:]), "the newest ones"

    rig.allocate(small)
    (told,) = sent(rig.effects, ContainersGranted)
    assert {notice.container_id for notice in told.preempt} == set(chosen)
    assert {notice.by_s for notice in told.preempt} == {rig.now + GRACE_S}
    reasons = rig.ask_manager(Explain(app_of_attempt(big.attempt_id))).stages[0].reasons
    assert reasons["others are preempted here to make room for it"] == 1

    assert round_(rig, GRACE_S - 1.0) == []
    assert not stop_and_end(rig), "not before their time"
    round_(rig, 1.0)
    assert set(stop_and_end(rig)) == set(chosen)
    placed = [p for p in noted(rig.effects, Placed) if p.demand[0] == 7.0]
    rig.allocate(big)
    assert placed or big.containers
    rig.allocate(small)
    ends = [small.ended[number] for number in chosen]
    assert {end.outcome for end in ends} == {Outcome.PREEMPTED}
    report = rig.ask_manager(GetApplication(app_of_attempt(small.attempt_id)))
    assert report.preempted_containers == 7
    assert report.preempted["vcores"] == 7.0
    assert report.stages[0].failed_attempts == 0


def test_a_new_ask_is_looked_at_soon_and_what_is_chosen_goes_in_time() -> None:
    """Between the rounds of the interval: one a tenth of it later, one when the grace is over."""
    rig = rig_of()
    fill(rig)
    rig.tell(TimerFired("claim"), 0.1)
    other = rig.start(job("other", stage(), queue="b"))
    rig.allocate(other, ask(1, 1))
    assert ("claim", 0.1) in [(timer.key, timer.delay_s) for timer in timers(rig.effects)]
    rig.tell(TimerFired("claim"), 0.1)
    (chosen,) = noted(rig.effects, PreemptionChosen)
    assert ("due", GRACE_S) in [(timer.key, timer.delay_s) for timer in timers(rig.effects)]
    assert round_(rig, GRACE_S / 2) == []
    assert "due" not in [timer.key for timer in timers(rig.effects)], "it is set already"
    rig.tell(TimerFired("due"), GRACE_S / 2)
    assert stop_and_end(rig) == [chosen.container]


def test_off_unless_switched_on() -> None:
    for switched, rig in (
        (False, Rig("capacity", ManagerSettings(), QUEUES)),
        (True, Rig("capacity", ManagerSettings(**ON), QUEUES)),
        (True, Rig("capacity", ManagerSettings(preemption_intra_queue=True), QUEUES)),
    ):
        assert ("preempt" in [timer.key for timer in timers(rig.effects)]) is switched


def test_a_queue_keeps_its_guarantee_and_the_zone_above_it() -> None:
    """Guaranteed 8 of 16 cores, of 10 it gives up 2; 9 are within a zone of a fifth."""
    rig = rig_of(preemption_natural=1.0, preemption_dead_zone=0.2)
    fill(rig, 10)
    other = rig.start(job("other", stage(tasks=6), queue="b"))
    rig.allocate(other, ask(1, 6))
    rig.beat()
    rig.allocate(other)
    assert len(other.containers) == 6
    rig.allocate(other, ask(1, 16))
    assert len(round_(rig)) == 2, "b may have 8: a, over by 2 and beyond its zone, gives up 2"
    rig = rig_of(preemption_natural=1.0, preemption_dead_zone=0.2)
    fill(rig, 9)
    other = rig.start(job("other", stage(tasks=7), queue="b"))
    rig.allocate(other, ask(1, 7))
    rig.beat()
    rig.allocate(other, ask(1, 16))
    assert round_(rig) == [], "9 of 8 are within the zone"


def test_a_round_goes_for_a_part_of_what_is_missing() -> None:
    rig = rig_of(preemption_natural=0.25)
    fill(rig)
    other = rig.start(job("other", stage(tasks=99), queue="b"))
    rig.allocate(other, ask(1, 99))
    chosen = [len(round_(rig, 1.0)) for _ in range(6)]
    assert chosen[0] == 2, "a quarter of the eight that queue b is guaranteed"
    assert sum(chosen) == 8
    rig = rig_of(preemption_natural=1.0, preemption_round_max=0.25)
    fill(rig)
    other = rig.start(job("other", stage(tasks=99), queue="b"))
    rig.allocate(other, ask(1, 99))
    assert len(round_(rig)) == 4, "a quarter of the cluster"


def test_what_is_not_needed_any_more_is_spared() -> None:
    rig = rig_of()
    fill(rig)
    big = rig.start(job("big", stage(demand={"vcores": 7.0}), queue="b"))
    rig.allocate(big, ask(1, 1, (7.0, 1024.0)))
    assert len(round_(rig)) == 7
    assert rig.manager.books.ledger.nodes.reserved[:2].any()
    rig.allocate(big, ask(1, 0, (7.0, 1024.0)))
    round_(rig, GRACE_S)
    assert not stop_and_end(rig)
    assert not rig.manager.books.marks
    assert not rig.manager.books.ledger.nodes.reserved[:2].any()


def test_the_lowest_priority_then_the_latest_then_the_newest_goes_first() -> None:
    rig = rig_of(1, 16.0, preemption_natural=1.0)
    made = [("old", 1), ("late", 0), ("later", 0)]
    masters = {}
    for name, priority in made:
        masters[name] = rig.start(job(name, stage(tasks=5), queue="a", priority=priority))
        rig.allocate(masters[name], ask(1, 5))
        rig.beat(later_s=1.0)
        rig.allocate(masters[name])
    other = rig.start(job("other", stage(tasks=9), queue="b"))
    rig.allocate(other, ask(1, 8))
    rig.beat()  # one core was free
    chosen = set(round_(rig))
    assert len(chosen) == 7
    assert set(masters["later"].containers) <= chosen
    assert len(chosen & set(masters["late"].containers)) == 2
    assert not chosen & set(masters["old"].containers)


def test_masters_are_never_taken() -> None:
    settings = ManagerSettings(master_demand={"vcores": 4.0}, master_share_max=1.0, **ON)
    rig = Rig("capacity", settings, QUEUES)
    rig.add_node("n1", 8.0)
    rig.submit(job("one", queue="a"))
    rig.submit(job("two", queue="a"))
    rig.beat()
    rig.add_node("n2", 4.0, memory_mb=10.0)
    other = rig.start(job("other", stage(demand={"vcores": 4.0, "memory_mb": 512.0}), queue="b"))
    rig.allocate(other, ask(1, 1, (4.0, 512.0)))
    assert round_(rig) == []


@pytest.mark.parametrize("on", [False, True])
def test_inside_a_queue_the_higher_priority_takes_from_the_lower(on: bool) -> None:
    rig = rig_of(preemption=False, preemption_intra_queue=on, preemption_natural=1.0)
    low = fill(rig)
    high = rig.start(job("high", stage(tasks=3), queue="a", priority=5))
    same = rig.start(job("same", stage(tasks=3), queue="a", priority=0))
    rig.allocate(high, ask(1, 3))
    rig.allocate(same, ask(1, 3))
    chosen = round_(rig)
    assert len(chosen) == (3 if on else 0)
    if on:
        assert set(chosen) <= set(low.containers)
        round_(rig, GRACE_S)
        assert set(stop_and_end(rig)) == set(chosen)
        rig.beat()
        rig.allocate(high)
        assert len(high.containers) == 3
        assert not same.containers


def test_no_container_is_taken_whose_loss_would_leave_less_than_the_guarantee() -> None:
    """Queue a holds 9 of its 8 cores in containers of 3: without one it would have 6."""
    rig = rig_of(preemption_natural=1.0, preemption_dead_zone=0.0)
    large = rig.start(job("large", stage(tasks=3, demand={"vcores": 3.0}), queue="a"))
    rig.allocate(large, ask(1, 3, (3.0, 1024.0)))
    rig.beat()
    rig.allocate(large)
    other = rig.start(job("other", stage(tasks=8), queue="b"))
    rig.allocate(other, ask(1, 8))
    rig.beat()
    rig.allocate(other)
    assert (len(large.containers), len(other.containers)) == (3, 7)
    assert round_(rig) == [], "though b has only 7 of its 8"


def test_an_equal_priority_is_not_taken_from() -> None:
    """The lower one has too little, and the equal one may keep what it has."""
    rig = rig_of(nodes=1, preemption=False, preemption_intra_queue=True, preemption_natural=1.0)
    low = fill(rig, 1)
    equal = fill(rig, 7, priority=5)
    high = rig.start(job("high", stage(demand={"vcores": 4.0}), queue="a", priority=5))
    rig.allocate(high, ask(1, 1, (4.0, 1024.0)))
    assert (len(low.containers), len(equal.containers)) == (1, 7)
    assert round_(rig) == []


def test_priority_takes_from_its_own_queue_alone() -> None:
    """A queue that has its guarantee takes nothing from another, whatever that holds beyond its."""
    leaves = (QueueSpec("a", 0.25), QueueSpec("b", 0.25), QueueSpec("c", 0.5))
    rig = rig_of(
        queues=QueueSpec("root", children=leaves),
        preemption_intra_queue=True,
        preemption_natural=1.0,
    )
    low = rig.start(job("low", stage(tasks=4), queue="b", priority=1))
    rig.allocate(low, ask(1, 4))
    rig.beat()
    rig.allocate(low)
    beyond = fill(rig)
    high = rig.start(job("high", stage(tasks=2), queue="b", priority=5))
    rig.allocate(high, ask(1, 2))
    assert (len(low.containers), len(beyond.containers)) == (4, 12)
    chosen = round_(rig)
    assert len(chosen) == 2
    assert set(chosen) <= set(low.containers)


def test_a_gang_gets_room_for_all_of_it() -> None:
    rig = rig_of(gang_nodes_max=1.0)
    small = fill(rig)
    gang = rig.start(job("gang", stage(tasks=6, gang=True), queue="b"))
    rig.allocate(gang, ask(1, 6, gang=True))
    chosen = round_(rig)
    assert len(chosen) == 6, "nothing goes that the gang can do without"
    round_(rig, GRACE_S)
    assert set(stop_and_end(rig)) == set(chosen)
    rig.beat()
    rig.allocate(gang)
    assert len(gang.containers) == 6
    assert small.containers


def test_a_gang_that_asks_before_any_node_is_back_is_no_error() -> None:
    """A manager that was started anew ended of it, at each start again."""
    rig = rig_of()
    gang = rig.start(job("gang", stage("s", tasks=9), stage("g", 6, gang=True), queue="b"))
    rig.allocate(gang, ask(1, 9))
    rig.beat()
    rig.allocate(gang)
    held = tuple((c.container_id, c.node_id) for c in gang.containers.values())
    assert held
    again = Rig("capacity", rig.manager.books.settings, QUEUES, records=rig.records)
    again.tell(AttemptRegistered(gang.attempt_id, held=held))
    asked = ask(2, 6, gang=True, stage=1)
    again.tell(ContainersAsked(gang.attempt_id, 1, (), (asked,), epoch=1))
    assert again.manager.books.rows.gangs
    assert not round_(again)
    report = again.ask_manager(Explain(app_of_attempt(gang.attempt_id)))
    assert [found.pending for found in report.stages][-1] == 6


def test_tasks_that_ended_in_their_time_have_succeeded() -> None:
    rig = rig_of()
    small = fill(rig)
    big = rig.start(job("big", stage(demand={"vcores": 7.0}), queue="b"))
    rig.allocate(big, ask(1, 1, (7.0, 1024.0)))
    chosen = round_(rig)
    where = small.containers[chosen[0]].node_id
    rig.beat(where, *[ContainerEnd(n, Outcome.SUCCEEDED, 0, 0, i) for i, n in enumerate(chosen)])
    rig.allocate(big)
    assert big.containers, "the node was kept for it"
    rig.allocate(small)
    assert {small.ended[number].outcome for number in chosen} == {Outcome.SUCCEEDED}
    round_(rig, 1.0)
    assert not rig.manager.books.marks


def test_a_queue_whose_masters_find_no_room_gets_its_guarantee() -> None:
    """Until a master runs, its application asks for nothing: room is made for the master first."""
    small = {"vcores": 1.0, "memory_mb": 1024.0}
    rig = rig_of(nodes=1, master_demand=small)
    full = fill(rig)
    assert len(full.containers) == 7, "and the master's"
    late = rig.submit(job("late", stage(tasks=9), queue="b"))
    rig.submit(job("more", stage(tasks=9), queue="a"))
    chosen = round_(rig)
    assert len(chosen) == 1, "for the one below its guarantee, and for no other"
    assert round_(rig, GRACE_S - 1.0) == []
    round_(rig, 1.0)
    assert stop_and_end(rig) == chosen
    rig.beat()
    (node,) = rig.nodes.values()
    assert [app_of_attempt(attempt) for attempt in node.masters.values()] == [
        app_of_attempt(full.attempt_id),
        late,
    ]


def test_a_node_is_kept_for_a_master_that_needs_the_room_of_several() -> None:
    """What one of them leaves early is not filled again, or all that is stopped is for nothing."""
    rig = rig_of(nodes=1, vcores=16.0, master_demand={"vcores": 4.0}, master_share_max=1.0)
    full = fill(rig)
    assert len(full.containers) == 12
    late = rig.submit(job("late", stage(tasks=9), queue="b"))
    chosen = round_(rig)
    assert len(chosen) == 4
    (node,) = rig.nodes.values()
    rig.beat("n1", ContainerEnd(chosen[0], Outcome.SUCCEEDED, 0, 0, 0, 0, 3.0))
    rig.beat()
    assert round_(rig, GRACE_S / 2) == [], "the others go when they were told to"
    round_(rig, GRACE_S / 2)
    assert set(stop_and_end(rig)) == set(chosen[1:])
    rig.beat()
    assert late in [app_of_attempt(attempt) for attempt in node.masters.values()]
    assert not rig.manager.books.claimed
    assert not rig.manager.books.ledger.nodes.reserved.any()


def test_masters_that_a_limit_holds_back_hide_nobody_whom_room_is_made_for() -> None:
    tree = (QueueSpec("a", 0.5), QueueSpec("b", 0.25, max_am_share=0.01), QueueSpec("c", 0.25))
    one = {"vcores": 1.0}
    rig = rig_of(1, 16.0, QueueSpec("root", children=tree), master_demand=one, master_share_max=1.0)
    first = rig.start(job("first", stage(tasks=1), queue="c"))
    rig.allocate(first, ask(1, 1))
    for number in range(50):
        rig.submit(job(f"held back {number}", stage(tasks=1), queue="b"))
    rig.beat()
    fill(rig)
    assert round_(rig) == []
    rig.submit(job("late", stage(tasks=1), queue="c"))
    assert len(round_(rig)) == 1


def test_room_is_made_for_as_many_masters_as_may_start() -> None:
    small = {"vcores": 1.0, "memory_mb": 1024.0}
    rig = rig_of(nodes=1, master_demand=small, master_share_max=0.25, preemption_natural=1.0)
    fill(rig)
    for name in ("one", "two", "three"):
        rig.submit(job(name, stage(tasks=9), queue="b"))
    assert len(round_(rig)) == 1, "a quarter of 8: the one that runs, and one more"
