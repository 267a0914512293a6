"""What keeps the rules of the wire but not those of the job or the node: the core refuses it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rm.ledger.ledger import Ledger
from rm.settings import ManagerSettings
from testkit.builders import (
    TWO_TYPES,
    FakeMaster,
    FakeNode,
    ask,
    job,
    node_registered,
    sent,
    stage,
)
from testkit.manager import Rig, granted
from weft.model.errors import InvariantError
from weft.model.ids import EPOCH_BITS, container_id
from weft.protocol.effects import Effect, Note, TimerFired
from weft.protocol.facts import Remark
from weft.protocol.messages import (
    AttemptRegistered,
    ContainerEnd,
    ContainersGranted,
    NodeAccepted,
    NodeAnswered,
    NodeHeartbeated,
    NodeUnregistered,
    Outcome,
    RunningContainer,
    TaskEnd,
)
from weft.protocol.requests import (
    DecommissionNode,
    Explain,
    GetApplication,
    ListApplications,
    ListNodes,
    Refused,
    SubmitApplication,
)

FREE = ManagerSettings(prompt=True, master_demand={})


def remarks(rig: Rig) -> list[str]:
    return [e.fact.text for e in rig.effects if isinstance(e, Note) and isinstance(e.fact, Remark)]


@pytest.fixture(params=["fifo", "capacity", "fair", "drf", "tetris", "graphene", "carbyne"])
def rig(request: pytest.FixtureRequest) -> Rig:
    made = Rig(request.param, settings=FREE)
    made.add_node("n1", vcores=4.0)
    return made


def test_asks_that_do_not_suit_the_job_are_refused_and_the_others_go_on(rig: Rig) -> None:
    master = rig.start(job("j", stage("work", tasks=4)))
    bad = [
        ask(ask_id=1, stage=9),  # A5
        ask(ask_id=2, total=2**53),  # A6, B5: far more than the job has tasks
        ask(ask_id=3, demand=(1.0,)),
        ask(ask_id=4, total=6_000, gang=True),
    ]
    for one in bad:
        rig.allocate(master, one)
        assert any(f"refused ask {one.ask_id}" in text for text in remarks(rig)), one
    assert rig.ask_manager(GetApplication(1)).pending_containers == 0
    rig.allocate(master, ask(ask_id=5, total=9))
    granted = rig.ask_manager(GetApplication(1))
    assert granted.running_containers == 1 + 4
    assert granted.pending_containers == 5
    for demand in [(), (1.0,), (1.0,) * 5, (1.0,) * 8]:  # A7: a known ask, said again
        rig.allocate(master, ask(ask_id=5, total=9, demand=demand))
        assert any("refused ask 5" in text for text in remarks(rig))
    rig.ask_manager(Explain(1))  # A8
    assert rig.ask_manager(GetApplication(1)).pending_containers == 5


def test_asks_for_a_label_that_no_node_has_wait_and_can_be_withdrawn(rig: Rig) -> None:
    master = rig.start(job("j", stage("work", tasks=4)))
    for n in range(200):  # B5, B8: more labels than there are bits
        rig.allocate(master, ask(ask_id=n + 1, total=1, label=f"l{n}"))
    assert rig.ask_manager(GetApplication(1)).pending_containers == 200
    for n in range(1, 200):
        rig.allocate(master, ask(ask_id=n + 1, total=0, label=f"l{n}"))
    assert rig.ask_manager(GetApplication(1)).pending_containers == 1
    rig.add_node("n2", labels=("l0",))
    rig.beat()
    assert rig.ask_manager(GetApplication(1)).pending_containers == 0, "its label came"


def test_labels_of_nodes_that_are_gone_make_room(rig: Rig) -> None:
    for n in range(62):
        rig.tell(node_registered(f"old{n}", 1.0, 1.0, labels=(f"l{n}",)))
    effects = rig.tell(node_registered("new", 1.0, 1.0, labels=("fresh",)))
    (answer,) = sent(effects, NodeAnswered)
    assert "at most 62 labels" in answer.shutdown
    rig.now += 10_000.0
    rig.tell(NodeHeartbeated("n1", 1))
    rig.tell(TimerFired("liveness"))
    effects = rig.tell(node_registered("new", 1.0, 1.0, labels=("fresh",)))
    assert sent(effects, NodeAccepted)


def test_a_demand_of_nothing_takes_the_least_and_a_round_ends(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rm.placing.allocation.ROUND_GRANTS_MAX", 50)
    settings = replace(FREE, node_containers_max=120)
    rig = Rig(rig.manager.books.matcher.name, settings=settings)
    rig.add_node("n1")
    rig.add_node("n2")
    master = rig.start(job("j", stage("work", tasks=1_000_000)))
    rig.allocate(master, ask(total=1_000_000, demand=(0.0, 0.0)))  # A4
    for _ in range(10):  # the shell's part: a round that was cut is followed by another
        before = len(rig.manager.books.holdings)
        rig.tell(TimerFired("match"))
        assert len(rig.manager.books.holdings) - before <= 2 * 50, "this round and the next"
    held = rig.manager.books.ledger.nodes.containers[:2].tolist()
    assert held == [120, 120]
    assert rig.manager.books.ledger.nodes.held[:2].min() > 0


def test_a_gang_larger_than_a_round_is_refused_when_it_is_submitted(rig: Rig) -> None:
    base = job("j", stage("work", tasks=6_000))
    gang = replace(base, stages=(replace(base.stages[0], gang=True),))
    answer = rig.ask_manager(SubmitApplication(gang, ""))
    assert isinstance(answer, Refused)
    assert answer.place == "stages[0].tasks"


def test_ends_of_tasks_that_the_job_has_not_are_not_counted(rig: Rig) -> None:
    master = rig.start(job("j", stage("work", tasks=3)))
    rig.allocate(master, ask(total=1))
    number = next(h for h in rig.manager.books.holdings.values() if h.stage == 0).container_id
    ends = tuple(
        TaskEnd(number, at, task, 0, Outcome.SUCCEEDED, 0, 1.0)
        for at in (0, 1, 7)
        for task in range(3, 5_000, 50)
    )  # B9
    rig.tell(NodeHeartbeated("n1", 77, tasks_ended=ends))
    end = ContainerEnd(number, Outcome.SUCCEEDED, 0, 5, 5_000, 0, 1.0)
    rig.tell(NodeHeartbeated("n1", 78, ended=(end,)))
    report = rig.ask_manager(GetApplication(1))
    assert report.finished_tasks == 0
    assert report.running_containers == 1


def test_a_container_of_a_stage_that_the_job_has_not_is_adopted_without_it() -> None:
    rig = Rig(settings=FREE)
    rig.add_node("n1")
    master = rig.start(job("j", stage("work", tasks=3)))
    rig.allocate(master, ask(total=1))
    held = [h.container_id for h in rig.manager.books.holdings.values()]
    again = Rig(settings=FREE, records=rig.records)
    carried = tuple(RunningContainer(number, (0.0, 1.0), ((99, 0, 0),)) for number in held)
    again.tell(node_registered("n1", running=carried))
    assert again.ask_manager(GetApplication(1)).stages[0].running == 0


def test_a_node_that_never_served_cannot_be_decommissioned() -> None:
    rig = Rig(settings=FREE)
    rig.add_node("n1")
    rig.manager.books.nodes["n1"].state = type(rig.manager.books.nodes["n1"].state).NEW
    books = rig.manager.books
    from rm.clients import answer
    from weft.protocol.effects import ClientRequested

    answer(books, ClientRequested("t", DecommissionNode("n1", 1.0)))  # A11
    refused = books.out[-1].message  # type: ignore[union-attr]
    assert isinstance(refused, Refused)
    assert refused.code == "failed_precondition"


def test_a_read_that_raises_answers_internal_and_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig(settings=FREE)
    rig.add_node("n1")

    def broken(*_: Any, **__: Any) -> Any:
        raise ValueError("a bug")

    monkeypatch.setattr("rm.report.reports.page", broken)
    for request in (ListNodes(), ListApplications()):
        answer = rig.ask_manager(request)
        assert isinstance(answer, Refused)
        assert answer.code == "internal"
        assert "a bug" in remarks(rig)[0]
    assert rig.submit(job()) == 1


def test_no_kernel_is_entered_with_amounts_of_another_length() -> None:
    """A1: they would write beyond the columns, onto other nodes."""
    from rm.ledger.queues import QueueTree
    from weft.model.queues import DEFAULT_QUEUES

    ledger = Ledger(TWO_TYPES, QueueTree(DEFAULT_QUEUES))
    slots = [ledger.add_node() for _ in range(2)]
    for slot in slots:
        ledger.set_node(slot, (4.0, 8.0), up=True)
    before = ledger.nodes.held.copy()
    for amounts in (np.full(8, 7e6), np.full(1_000, 7e6), np.zeros(0)):
        with pytest.raises(InvariantError, match="out of bounds"):
            ledger.book(0, -1, amounts, 1, np.full(len(amounts), np.inf))
        with pytest.raises(InvariantError, match="out of bounds"):
            ledger.free(0, -1, amounts)
    for node, app in ((2, -1), (-1, -1), (0, 3)):
        with pytest.raises(InvariantError, match="out of bounds"):
            ledger.book(node, app, np.ones(2), 1)
    assert (ledger.nodes.held == before).all()


def test_a_node_that_claims_ids_not_granted_yet_takes_none_of_them_over() -> None:
    rig = Rig(settings=FREE)
    rig.add_node("n1")
    master = rig.start(job("j", stage("work", tasks=3)))
    (own,) = rig.manager.books.holdings
    claimed = [RunningContainer(own + n, (1.0, 1.0), ()) for n in (1, 2, 3)]
    rig.tell(node_registered("evil", running=claimed))
    rig.allocate(master, ask(total=3))
    books = rig.manager.books
    assert {h.container_id for h in books.nodes["n1"].holdings.values() if h.stage == 0}.isdisjoint(
        {one.container_id for one in claimed}
    )
    rig.tell(NodeUnregistered("evil"))
    assert rig.ask_manager(GetApplication(1)).running_containers == 1 + 3


def test_a_master_cannot_have_containers_stopped_that_are_not_its_applications() -> None:
    """What it says it held before a restart, and no node brings, is stopped on that node."""
    settings = ManagerSettings(master_demand={}, node_expiry_s=10.0)
    before = Rig(settings=settings)
    before.add_node("n1")
    two = [before.start(job(name, stage(tasks=4))) for name in ("hostile", "other")]
    rig = Rig(settings=settings, records=before.records)
    masters = [RunningContainer(container_id(m.attempt_id, 1), (0.0, 0.0), ()) for m in two]
    rig.add_node("n1", running=masters)
    other = rig.register(two[1].attempt_id)
    next_one = container_id(other.attempt_id, (1 << EPOCH_BITS) + 1)
    held = tuple((number, "n1") for number in range(next_one, next_one + 5))
    rig.tell(AttemptRegistered(two[0].attempt_id, held=held))
    for _ in range(20):
        rig.beat(later_s=1.0)
        rig.tell(TimerFired("liveness"))
    rig.allocate(other, ask(total=2))
    rig.beat()
    rig.allocate(other)
    assert {number for number, _ in held} & other.containers.keys(), "the ids were guessed well"
    assert not {number for number, _ in held} & set(rig.nodes["n1"].stops)


def test_a_node_cannot_end_tasks_in_containers_of_another_node() -> None:
    rig, master = granted(FREE)
    (number,) = master.containers
    done = TaskEnd(number, 0, 2, 0, Outcome.SUCCEEDED, 0, 1.0)
    rig.add_node("n2")
    for node, finished in (("n2", {}), ("n1", {2: 1.0})):
        rig.tell(replace(rig.nodes[node].heartbeat(), tasks_ended=(done,)))
        assert rig.manager.books.apps[1].finished[0] == finished, node


# -- ends of containers that never were ------------------------------------------------------------

LIES = ("ended", "in a reusable one", "brought along")


def lie(rig: Rig, node: str, number: int, way: str, task: int = 2) -> list[Effect]:
    """A node tells that a task succeeded in a container; what followed."""
    beat = rig.nodes[node].heartbeat()
    if way == "brought along":
        running = [RunningContainer(number, (1.0, 1024.0), ((0, task, 0),))]
        rig.tell(node_registered(node, boot=9, running=running))
    if way == "in a reusable one":
        done = TaskEnd(number, 0, task, 0, Outcome.SUCCEEDED, 0, 1.0)
        return rig.tell(replace(beat, tasks_ended=(done,)))
    end = ContainerEnd(number, Outcome.SUCCEEDED, 0, 0, task, 0, 1.0)
    return rig.tell(replace(beat, ended=(end,)))


def refusals(effects: list[Effect]) -> list[str]:
    facts = [e.fact for e in effects if isinstance(e, Note) and isinstance(e.fact, Remark)]
    return [dict(f.fields)["node"] for f in facts if f.text.startswith("refused the end")]


def nothing_changed(rig: Rig, master: FakeMaster) -> None:
    """No task is finished for the manager, its journal, or the master."""
    assert rig.manager.books.apps[1].finished[0] == {}
    assert not [r for r in rig.records if r["kind"] == "tasks"]
    told = [end for m in sent(rig.allocate(master), ContainersGranted) for end in m.ended]
    assert not [end for end in told if end.outcome is Outcome.SUCCEEDED]


@pytest.mark.parametrize("way", LIES)
@pytest.mark.parametrize("restarts", [0, 1])
def test_a_node_cannot_finish_a_task_in_a_container_that_was_not_granted(
    way: str, restarts: int
) -> None:
    rig = Rig(settings=FREE)
    rig.add_node("n1", boot=1)
    master = rig.start(job("j", stage(tasks=4)))
    if restarts:
        own = RunningContainer(container_id(master.attempt_id, 1), (0.0, 0.0), ())
        rig = Rig(settings=FREE, records=rig.records)
        rig.add_node("n1", boot=1, running=[own])
        master = rig.register(master.attempt_id)
    rig.nodes["evil"] = FakeNode("evil")
    if way != "brought along":
        rig.add_node("evil", boot=9)
    for life in (restarts, restarts + 1, 200):  # today's, and such as never were
        number = container_id(master.attempt_id, life << EPOCH_BITS | 77)
        rig.now += 11.0
        assert refusals(lie(rig, "evil", number, way)) == ["evil"], life
        assert refusals(lie(rig, "evil", number, way)) == [], "told now and then"
        nothing_changed(rig, master)
    assert rig.manager.books.refused_ends >= 3
    rig.beat()
    rig.tell(TimerFired("liveness"))
    assert not rig.manager.books.nodes["evil"].holdings


@pytest.mark.parametrize("way", LIES)
def test_a_node_cannot_finish_a_task_in_a_container_of_another_node(way: str) -> None:
    rig, master = granted(FREE)
    (number,) = master.containers
    rig.nodes["evil"] = FakeNode("evil")
    if way != "brought along":
        rig.add_node("evil", boot=9)
    assert refusals(lie(rig, "evil", number, way)) == ["evil"]
    nothing_changed(rig, master)
    assert number in rig.manager.books.nodes["n1"].holdings


@pytest.mark.parametrize("way", LIES)
def test_after_a_restart_a_container_is_where_its_master_says(way: str) -> None:
    before = Rig(settings=FREE)
    before.add_node("n1", boot=1)
    master = before.start(job("j", stage(tasks=4)))
    before.allocate(master, ask(total=1))
    before.beat()
    before.allocate(master)
    (number,) = master.containers
    rig = Rig(settings=FREE, records=before.records)
    rig.masters[master.attempt_id] = master = FakeMaster(master.attempt_id)
    rig.tell(AttemptRegistered(master.attempt_id, held=((number, "n1"),)))
    rig.nodes["evil"] = FakeNode("evil")
    if way != "brought along":
        rig.add_node("evil", boot=9)
        assert refusals(lie(rig, "evil", number, way)) == ["evil"]
    else:  # and the other node comes before the lie is told to the end
        running = [RunningContainer(number, (1.0, 1024.0), ((0, 2, 0),))]
        rig.tell(node_registered("evil", boot=9, running=running))
    own = RunningContainer(container_id(master.attempt_id, 1), (0.0, 0.0), ())
    runs = RunningContainer(number, (1.0, 1024.0), ((0, 3, 0),))
    rig.add_node("n1", boot=1, running=[own, runs])
    assert rig.manager.books.holdings[number].node.node_id == "n1"
    if way == "brought along":
        assert refusals(lie(rig, "evil", number, "ended")) == ["evil"]
    rig.register(master.attempt_id)
    nothing_changed(rig, master)
    rig.tell(
        replace(
            rig.nodes["n1"].heartbeat(),
            ended=(ContainerEnd(number, Outcome.SUCCEEDED, 0, 0, 3, 0, 1.0),),
        )
    )
    assert rig.manager.books.apps[1].finished[0] == {3: 1.0}


def test_what_succeeded_in_a_reusable_container_counts_after_that_ended() -> None:
    """The report that came before was lost, and is told again."""
    rig, master = granted(FREE)
    (number,) = master.containers
    rig.beat("n1", ContainerEnd(number, Outcome.RELEASED))
    assert number not in rig.manager.books.holdings
    assert refusals(lie(rig, "n1", number, "in a reusable one")) == []
    assert rig.manager.books.apps[1].finished[0] == {2: 1.0}


def test_an_end_that_is_told_twice_is_no_lie() -> None:
    rig, master = granted(FREE)
    (number,) = master.containers
    for _ in range(2):
        assert refusals(lie(rig, "n1", number, "ended")) == []
    assert rig.manager.books.refused_ends == 0


class Walked(dict):  # type: ignore[type-arg]
    """Counts how often all of it is looked at."""

    walks = 0

    def items(self) -> Any:
        self.walks += 1
        return super().items()

    def values(self) -> Any:
        self.walks += 1
        return super().values()


def test_after_a_restart_a_container_is_not_sought_on_all_nodes() -> None:
    """Many masters may be back before many nodes: what these bring is looked up, not searched."""
    before = Rig(settings=FREE)
    before.add_node("n1", boot=1)
    master = before.start(job("j", stage(tasks=9)))
    rig = Rig(settings=FREE, records=before.records)
    numbers = [container_id(master.attempt_id, 10 + at) for at in range(9)]
    said = tuple((number, f"n{1 + at % 3}") for at, number in enumerate(numbers[:6]))
    rig.tell(AttemptRegistered(master.attempt_id, held=said))
    books = rig.manager.books
    books.unseen_containers = missing = Walked(books.unseen_containers)
    own = RunningContainer(container_id(master.attempt_id, 1), (0.0, 0.0), ())
    for at in range(3):
        running = [RunningContainer(one, (1.0, 1.0), ((0, 0, 0),)) for one in numbers[at::3]]
        rig.add_node(f"n{1 + at}", boot=1, running=running if at else [*running, own])
    assert books.holdings.keys() >= set(numbers)
    assert missing.walks == 0


def test_a_master_s_end_is_not_remembered_for_tasks_that_ended_in_it() -> None:
    rig = Rig(settings=FREE)
    node = rig.add_node("n1")
    master = rig.start(job("j", stage(tasks=4)))
    number = container_id(master.attempt_id, 1)
    rig.tell(node.heartbeat(ContainerEnd(number, Outcome.FAILED)))
    assert number not in rig.manager.books.holdings
    assert not rig.manager.books.nodes["n1"].emptied
