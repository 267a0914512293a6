"""Edges of decisions that ordinary runs hardly meet, each through what the services call."""

from typing import Any, NamedTuple

import numpy as np
import pytest

from am.ask.carbyne import Carbyne
from am.ask.dynamic import Dynamic
from am.ask.remaining import Remaining, declared_s, shape_of
from am.ask.view import HoldView, JobView, RunningTask, WaitingTasks
from am.pool import Pooled
from rm.match.protocol import BaseMatcher, Match, Placement
from rm.match.registry import make_matcher
from rm.settings import ManagerSettings
from testkit.builders import job
from testkit.builders import stage as build_stage
from testkit.manager import Rig
from testkit.master import accepted, stage, work_of
from testkit.matching import MatcherHarness
from weft.model.errors import InvariantError
from weft.model.job import Job
from weft.protocol.messages import Ask, AskType

SIZE = (2.0, 4096.0)
ONE = (1.0, 512.0, 0.0)


def ask(
    number: int,
    total: int,
    demand: tuple[float, ...] = ONE,
    kind: AskType = AskType.DEFAULT,
    duration_s: float = 10.0,
) -> Ask:
    return Ask(number, total, demand, duration_s, 1.0, kind, 0)


# -- reusable containers ---------------------------------------------------------------------------


class Few(NamedTuple):
    """A group with two ready tasks that would rather run on n9."""

    number: int = 0
    stage: int = 0
    demand: tuple[float, ...] = SIZE
    nodes: tuple[str, ...] = ("n9",)
    racks: tuple[str, ...] = ()
    pri_score: float = 1.0
    ready: tuple[int, ...] = (0, 1)
    tasks: tuple[int, ...] = (0, 1)
    unstarted: int = 2

    def declared_of(self, task: int) -> float:
        return 10.0


@pytest.mark.parametrize("waiting", [True, False])
def test_a_container_that_idled_for_long_is_kept_while_a_task_waits_that_fits_it(
    waiting: bool,
) -> None:
    """The tasks wait for a nearer node, so the container stays empty, and may be needed soon."""
    pool = [Pooled(7, "n1", SIZE, 0.0), Pooled(8, "n1", SIZE, 0.0)]
    tasks = [WaitingTasks(Few(), 99.0, 10.0, SIZE)] if waiting else []
    asker = Dynamic(idle_s=60.0, wait_s=3.0)
    wish = asker.hold(HoldView(tasks, pool, SIZE, 10, 0, {}), 100.0, np.random.default_rng(0))
    assert not wish.start
    assert list(wish.give_back) == ([] if waiting else [7, 8])


# -- what running tasks hold, as Carbyne packs around it -------------------------------------------


def running(ends_s: list[float]) -> Remaining:
    """A job of as many running tasks, with those ends."""
    made = Job("j", (stage("s", len(ends_s), duration_s=100.0, demand={"vcores": 1.0}),))
    slots = ((1000.0, 65536000.0, 800.0, 1000.0), 1)
    answer = accepted(made, machines=(slots,))
    work = work_of(answer, Carbyne())
    view: JobView = work._view()
    view.states = (bytes([2] * len(ends_s)),)
    view.running = tuple(RunningTask(0, i, end_s - 100.0) for i, end_s in enumerate(ends_s))
    return Remaining(shape_of(view), declared_s(view), view, 0.0)


@pytest.mark.parametrize("count", [3, 64, 65, 200])
def test_many_ends_are_rounded_up_to_64_and_few_are_exact(count: int) -> None:
    ends = [20.0 + 0.25 * i for i in range(count)]
    held = running(ends).held(100.0)
    assert len(held[0]) == min(count, 64)
    assert held[1][:, 0].sum() == pytest.approx(count)
    for at in np.linspace(19.6, ends[-1] + 0.6, 40):  # at no time is more free than there is
        still = held[1][held[0] <= 100.0 - at, 0].sum()
        wanted = sum(end >= at for end in ends)
        assert still >= wanted
        if count <= 64:
            assert still == wanted


# -- the manager's side of a policy ----------------------------------------------------------------


class Counted(BaseMatcher):
    """A policy that is asked, and how often."""

    name = "counted"

    def __init__(self) -> None:
        self.inner = make_matcher("tetris")
        self.asked = 0

    def match(self, view: Any, node: int, now: float) -> Match:
        self.asked += 1
        return self.inner.match(view, node, now)


class Careless(BaseMatcher):
    """A policy from outside that could overbook, and places what does not fit without saying so."""

    name = "careless"

    def match(self, view: Any, node: int, now: float) -> Match:
        return Match([Placement(row, 1) for row in range(view.rows.count)])

    def slack(self, view: Any) -> Any:
        return np.ones(len(view.types))


@pytest.mark.parametrize("prompt", [True, False])
def test_a_policy_is_not_asked_again_while_nothing_changed(prompt: bool) -> None:
    policy = Counted()
    rig = Rig(policy, ManagerSettings(prompt=prompt))
    rig.add_node(vcores=4.0)
    master = rig.start(job("j", build_stage("s", 9)))
    rig.allocate(master, ask(1, 9, (2.0, 64.0)))
    rig.beat()
    before = policy.asked
    assert before > 0
    assert rig.manager.books.rows.live, "something still waits"
    for _ in range(5):
        rig.beat(later_s=1.0)
    assert policy.asked == before


def test_a_placement_does_not_overbook_unless_it_says_so() -> None:
    rig = Rig(Careless())
    rig.add_node(vcores=4.0)
    master = rig.start(job("j", build_stage("s", 9)))
    rig.tell(master.asks(ask(1, 1, (0.5, 64.0)), ask(2, 1, (3.9, 64.0))))
    with pytest.raises(InvariantError, match="does not fit"):
        rig.beat()


# -- Graphene's eta, and who goes before whom ------------------------------------------------------


def test_decisions_without_declared_work_leave_eta_as_it_was() -> None:
    harness = MatcherHarness("graphene", {"overbook": "", "kappa": -1, "eta_m": 1.0})
    for _ in range(12):
        harness.add_node((4.0, 1024.0, 1.0))
    app = harness.add_app(work=8.0)
    harness.ask(app, ask(1, 1000, (3.0, 256.0, 0.0)))
    for node in range(4):
        harness.beat(node)
    known = dict(harness.match(4).placements[0].scores)["eta"]
    for node in range(4, 11):
        harness.ledger.apps.w["remaining"][app] = 0.0
        assert harness.beat(node)
    harness.ledger.apps.w["remaining"][app] = 8.0
    assert dict(harness.match(11).placements[0].scores)["eta"] == pytest.approx(known)
    assert known > 0


@pytest.mark.parametrize("name", ["drf", "fair", "carbyne"])
def test_a_queue_without_pending_asks_is_before_nobody(name: str) -> None:
    """b holds less of its guarantee than a: it is named as being before a's ask while it asks."""
    harness = MatcherHarness(name)
    node = harness.add_node((8.0, 8192.0, 0.0))
    mine, other = harness.add_app("a"), harness.add_app("b")
    harness.ask(mine, ask(1, 4))
    for _ in range(4):
        harness.place(node, Match([Placement(0, 1)]))
    late = harness.ask(mine, ask(2, 1))
    assert "queue" not in harness.matcher.why_not(harness.view, node, late.row)
    harness.ask(other, ask(3, 1))
    said = harness.matcher.why_not(harness.view, node, late.row)
    assert said == "held by fairness: queue root.b holds less of its guarantee"
