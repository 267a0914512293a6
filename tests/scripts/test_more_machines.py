"""A master that came while nodes were still to return takes the machines of a later answer."""

from collections.abc import Sequence

import pytest

from am.ask.registry import Asker, HoldAsker, asker
from am.core import MasterSettings
from am.process.planning import make_plan
from rm.settings import ManagerSettings
from testkit.builders import job as small_job
from testkit.builders import node_registered, sent
from testkit.builders import stage as small_stage
from testkit.manager import Rig
from testkit.master import ATTEMPT, SLOT, PretendedCluster, accepted, stage, work_of
from weft.model.ids import attempt_id
from weft.model.job import Job
from weft.model.plan import Plan
from weft.protocol.effects import MakePlan
from weft.protocol.facts import MasterPlanned
from weft.protocol.messages import (
    AttemptAccepted,
    AttemptRegistered,
    ContainersAsked,
    ContainersGranted,
    RunningContainer,
)

FREE = ManagerSettings(master_demand={})
NODE = (4.0, 8192.0)


def told(answers: Sequence[ContainersGranted]) -> list[tuple]:
    """The machines that answers tell, where they do."""
    return [answer.machines for answer in answers if answer.machines]


def early_master(settings: ManagerSettings = FREE) -> tuple[Rig, int]:
    """A manager of a second life with one of three nodes back, and the master that came then."""
    rig = Rig(settings=settings)
    for name in ("n1", "n2", "n3"):
        rig.add_node(name, boot=1)
    app = rig.submit(small_job("j", small_stage("w", 30)))
    rig.beat()
    (home,) = [node for node in rig.nodes.values() if node.masters]
    (own,) = home.masters
    again = Rig(settings=settings, records=rig.records)
    attempt = attempt_id(app, 1)
    carried = [RunningContainer(own, (0.0, 0.0), ())]
    again.tell(node_registered(home.node_id, boot=1, running=carried))
    (answer,) = sent(again.tell(AttemptRegistered(attempt)), AttemptAccepted)
    assert answer.machines == ((NODE, 1),)
    return again, attempt


def ask(rig: Rig, attempt: int, request: int, *acks: int, later_s: float = 1.0) -> list[tuple]:
    """Let a master report; the machines that it is told."""
    asked = ContainersAsked(attempt, request, acks, epoch=rig.manager.books.epoch)
    return told(sent(rig.tell(asked, later_s), ContainersGranted))


def others(rig: Rig) -> list[str]:
    """The nodes that are still away."""
    return [name for name in ("n1", "n2", "n3") if name not in rig.manager.books.nodes]


def test_the_manager_tells_an_early_master_of_nodes_that_came_back_until_it_heard() -> None:
    rig, attempt = early_master()
    assert not ask(rig, attempt, 1)
    for name in others(rig):  # no answer is made for each of a thousand nodes
        assert not told(sent(rig.tell(node_registered(name, boot=1)), ContainersGranted))
    asked = ContainersAsked(attempt, 2, (), epoch=1)
    (answer,) = sent(rig.tell(asked, 1.0), ContainersGranted)
    assert answer.machines == ((NODE, 3),)
    assert ask(rig, attempt, 3, later_s=30.0) == [((NODE, 3),)]  # the first may have been lost
    (last,) = [m for m in rig.heard if isinstance(m, ContainersGranted)][-1:]
    assert not ask(rig, attempt, 4, last.response_id, later_s=30.0)


def test_nodes_that_come_when_none_of_before_is_awaited_are_no_news_to_masters() -> None:
    rig, attempt = early_master(ManagerSettings(master_demand={}, node_expiry_s=10.0))
    assert not ask(rig, attempt, 1)
    rig.now += 11.0
    rig.tell(node_registered("n9", boot=1))
    assert not ask(rig, attempt, 2)


def test_a_manager_of_a_first_life_tells_machines_once() -> None:
    rig = Rig(settings=FREE)
    rig.add_node("n1", boot=1)
    master = rig.start(small_job("j", small_stage("w", 3)))
    rig.tell(node_registered("n2", boot=1))
    assert not ask(rig, master.attempt_id, 1)


def wide() -> Job:
    """A job of 40 tasks."""
    return Job("wide", (stage("w", 40, demand={"vcores": 4.0, "memory_mb": 16384.0}),))


def _all_ready() -> Asker:
    chosen = asker("all_ready")
    assert not isinstance(chosen, HoldAsker)
    return chosen


def test_a_master_measures_its_work_by_the_machines_of_a_later_answer() -> None:
    few = work_of(accepted(wide(), machines=((SLOT, 1),)), _all_ready())
    many = work_of(accepted(wide()), _all_ready())
    assert few.progress.remaining_work > 9.0 * many.progress.remaining_work
    few.see_machines(accepted(wide(), machines=((SLOT, 10),)))
    assert few.progress.remaining_work == many.progress.remaining_work
    assert few.state.capacity == many.state.capacity
    few.check()
    few.see_machines(accepted(wide(), machines=((SLOT, 9),)))  # fewer are no news
    assert few.state.machines == ((SLOT, 10),)


MORE = ContainersGranted(ATTEMPT, 1_000_000, machines=((SLOT, 10),))


def test_cobra_holds_containers_on_machines_that_came_later() -> None:
    """It went by the one that it was told of first for all its life."""
    ends = []
    for later in (False, True):
        cluster = PretendedCluster(wide(), asker_name="cobra", machines=((SLOT, 1),))
        cluster.run(until_s=5.0)
        if later:
            cluster.tell(MORE)
        cluster.run()
        assert cluster.verdict is not None
        assert cluster.verdict.succeeded
        ends.append(cluster.now)
    assert ends[1] < 0.5 * ends[0], ends


@pytest.mark.parametrize("plan_after_s", [0.0, 4.0], ids=["after the plan", "while it is made"])
def test_a_plan_is_made_anew_for_machines_that_came_later(plan_after_s: float) -> None:
    orders: list[MakePlan] = []

    def plan(order: MakePlan) -> Plan | None:
        orders.append(order)
        return make_plan(order).plan

    settings = MasterSettings(planner="critical_path")
    cluster = PretendedCluster(
        wide(), settings=settings, machines=((SLOT, 1),), plan=plan, plan_after_s=plan_after_s
    )
    cluster.run(until_s=1.0)
    cluster.tell(MORE)
    cluster.tell(MORE)  # doubled: no news
    cluster.run()
    assert [order.machines for order in orders] == [((SLOT, 1),), ((SLOT, 10),)]
    first, second = [note.makespan_s for note in cluster.notes if isinstance(note, MasterPlanned)]
    assert first > 5.0 * second > 0.0
    assert cluster.verdict is not None
    assert cluster.verdict.succeeded


def test_a_part_of_the_smallest_machine_is_asked_of_all_that_came() -> None:
    """Containers of Default are sized by the smallest machine."""
    job = Job("few", (stage("w", 8),))
    cluster = PretendedCluster(
        job,
        asker_name="disposable",
        machines=((SLOT, 1),),
        slots=2,
        settings=MasterSettings(planner=""),
    )
    cluster.run(until_s=2.0)
    small = (8.0, 32768.0, 400.0, 500.0)
    more = ContainersGranted(ATTEMPT, 1_000_000, machines=((small, 3), (SLOT, 1)))
    asked = max(row.ask.demand[0] for row in cluster.rows.values())
    cluster.tell(more)
    cluster.run()
    last = max(cluster.rows.values(), key=lambda row: row.ask.ask_id).ask.demand[0]
    assert last == asked / 2
    assert cluster.verdict is not None
    assert cluster.verdict.succeeded
