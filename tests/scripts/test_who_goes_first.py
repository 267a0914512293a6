"""Who goes first is the matcher's own order, with terms that can be added up by hand."""

from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from rm.match.protocol import BaseMatcher, Match, Matcher, Placement, Scores
from rm.match.registry import MATCHERS, make_matcher
from rm.match.yarn.books import Request
from rm.report.turns import RANKED_MAX
from rm.settings import ManagerSettings
from testkit.builders import FakeMaster, ask, job, noted, stage, succeeded
from testkit.manager import Rig
from testkit.matching import VIEWING
from weft.client.terms import orders_of
from weft.model.ids import attempt_id
from weft.model.queues import DEFAULT_QUEUES, QueueSpec
from weft.protocol.access import TRUSTED, Caller
from weft.protocol.facts import Placed
from weft.protocol.requests import Explain, Explanation, Refused, SetPriority, Turn

FREE = ManagerSettings(master_demand={"vcores": 0.0})
TWO = QueueSpec("root", children=(QueueSpec("a", 0.75), QueueSpec("b", 0.25)))


def turn(rig: Rig, app: int, caller: Caller = TRUSTED) -> Turn:
    answer = rig.ask_manager(Explain(app), caller)
    assert isinstance(answer, Explanation), answer
    (found,) = answer.stages
    (told,) = found.turns
    return told


def full(
    matcher: str | Matcher,
    queues: QueueSpec = DEFAULT_QUEUES,
    where: tuple[str, ...] = ("default",) * 3,
    users: tuple[str, ...] = ("ann",) * 3,
    tasks: int = 2,
) -> Rig:
    """Return a node of 2 vcores and 8 GiB that application 1 fills for 10 s; 2 and 3 wait.

    A container is 1 vcore and 1 GiB for 10 s: 2 wants 3 (priScore 0.7), 3 wants 4 (0.5).
    """
    rig = Rig(matcher, FREE, queues)
    rig.add_node("n1", vcores=2.0 if tasks == 2 else tasks + 3.0, memory_mb=8192.0)
    masters = []
    for name, queue, user in zip("xyz", where, users, strict=True):
        # YARN's Fair Scheduler works out its shares twice a second.
        rig.now += 1.0
        masters.append(rig.start(job(name, stage(tasks=9), queue=queue, user=user)))
    first, second, third = masters
    rig.allocate(first, ask(1, tasks))
    rig.now += 1.0
    # YARN grants one at a heartbeat.
    for _ in range(tasks):
        rig.beat()
    rig.allocate(first)
    rig.allocate(second, ask(1, 3, pri_score=0.7))
    rig.allocate(third, ask(1, 4, pri_score=0.5))
    rig.beat()
    return rig


@pytest.mark.parametrize("matcher", VIEWING)
def test_on_a_full_cluster_all_matchers_say_who_is_ahead_and_until_when(matcher: str) -> None:
    """Two end at 10 s, and two of `y` take their room. Its third and one of `z` follow at 20 s.

    Where applications take turns, one of `z` goes second.
    """
    rig = full(matcher)
    mine = turn(rig, 3)
    assert (mine.node_id, mine.asks, mine.containers) == ("n1", 1, 3)
    assert mine.work == {"vcores": 3 * 1.0 * 10, "memory_mb": 3 * 1024.0 * 10}
    assert [(one.app_id, one.name, one.pending) for one in mine.first] == [(2, "y", 3)]
    assert not mine.beyond
    assert mine.start_s - rig.now == pytest.approx(10.0 if matcher in {"drf", "fair"} else 20.0)
    # By a line, or by turns that the estimate takes as well.
    foreseen = {"fifo", "capacity", "yarn", "drf", "fair", "yarn_fair"}
    assert mine.if_it_lasts is (matcher not in foreseen)
    ahead = turn(rig, 2)
    assert (ahead.asks, ahead.first, ahead.start_s) == (0, (), pytest.approx(rig.now + 10.0))
    # It was only asked: nothing is hidden or held afterwards.
    rig.manager.check()
    assert turn(rig, 3) == mine


def test_the_start_that_is_expected_has_queues_take_turns() -> None:
    """Queue b holds nothing and goes first; with one core of two it holds twice its quarter."""
    rig = full("capacity", TWO, ("a", "b", "a"))
    mine = turn(rig, 3)
    assert [(one.app_id, one.pending) for one in mine.first] == [(2, 3)]
    assert mine.start_s - rig.now == pytest.approx(10.0)


def test_graphenes_score_can_be_added_up() -> None:
    """The node is empty: packing is 1/2 x 1 + 1/8 x 1, and perf is pri x packing - work."""
    scores = turn(full("graphene"), 3).scores
    assert scores["pri"] == 0.5
    assert scores["pack"] == pytest.approx(1 / 2 + 1 / 8)
    assert scores["perf"] == pytest.approx(0.5 * (1 / 2 + 1 / 8) - scores["work"])
    ahead = dict(turn(full("graphene"), 3).first[0].scores)
    assert ahead["perf"] == pytest.approx(0.7 * (1 / 2 + 1 / 8) - ahead["work"])


def test_graphenes_order_says_from_which_deficit_a_queue_goes_before_a_larger_perf() -> None:
    """The queue of application 2 is owed more than the bound, and it has more work left."""
    matcher = make_matcher("graphene")
    rig = full(matcher, TWO, ("a", "b", "a"))
    matcher.deficits(rig.manager.books.view)[:] = (0.0, -0.5, 0.5)
    mine = turn(rig, 3)
    ahead = next(one for one in mine.first if one.app_id == 2)
    assert ahead.scores["deficit"] >= ahead.scores["bound"]
    assert ahead.scores["bound"] == mine.scores["bound"] > mine.scores["deficit"]
    # With more work left its perf is the smaller one.
    more = replace(ahead, scores=ahead.scores | {"perf": mine.scores["perf"] - 1.0})
    (line,) = orders_of(3, replace(mine, first=(more,), asks=1))
    assert line.startswith("1 goes before 2 by deficit: its group is owed ")


def test_each_decision_keeps_the_preferred_order_that_it_went_by() -> None:
    rig = Rig("graphene", FREE)
    rig.add_node("n1", vcores=2.0, memory_mb=8192.0)
    master = rig.start(job("j", stage(tasks=9)))
    rig.allocate(master, ask(1, 1, pri_score=0.25))
    (placed,) = noted(rig.tell(rig.nodes["n1"].heartbeat()), Placed)
    scores = dict(placed.scores)
    wanted = scores["pri"] * max(scores["pack"], scores["overbook"]) - scores["work"]
    assert scores["pri"] == 0.25
    assert scores["perf"] == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("matcher", "wanted"),
    [
        # Queue a holds 2 of 2 vcores and has three quarters of them: 4/3.
        ("capacity", {"used of root.a": 4 / 3}),
        ("drf", {"used of root.a": 4 / 3, "dominant_share": 1.0}),
        # Two containers over three quarters.
        ("fair", {"used of root.a": 8 / 3, "containers": 2.0}),
    ],
)
def test_queues_are_named_with_what_they_use_of_their_guarantees(
    matcher: str, wanted: dict[str, float]
) -> None:
    """Of queue a application 1 wants more, of b both others: b holds nothing, and goes first."""
    rig = full(matcher, TWO, ("a", "b", "b"))
    rig.allocate(master_of(rig, 1), ask(2, 9))
    mine = turn(rig, 1)
    assert {name: mine.scores.get(name) for name in wanted} == pytest.approx(wanted)
    assert {one.app_id for one in mine.first} == {2, 3}
    assert mine.first[0].scores["used of root.b"] == 0.0
    assert mine.containers == 7


def test_yarns_queues_are_compared_by_memory_with_their_masters() -> None:
    """Three of a's 6 GiB are used and three of b's 2, as a master has 1 GiB at least."""
    rig = full("yarn", TWO, ("a", "b", "b"))
    rig.allocate(master_of(rig, 1), ask(2, 9))
    assert turn(rig, 1).scores["used of root.a"] == pytest.approx(1 / 2)
    mine = turn(rig, 2)
    assert mine.scores["used of root.b"] == pytest.approx(3 / 2)
    assert [(one.app_id, one.pending) for one in mine.first] == [(1, 9)]


def test_yarns_fair_scheduler_names_what_applications_use_by_their_weights() -> None:
    """Application 1 holds six containers of 1 GiB, 2 its master alone."""
    mine = turn(full("yarn_fair", tasks=5), 2)
    assert mine.scores["used by weight of its application"] == 1024.0


def test_a_larger_priority_is_ahead_of_an_earlier_application() -> None:
    rig = full("fifo")
    assert [one.app_id for one in turn(rig, 3).first] == [2]
    rig.ask_manager(SetPriority(3, 5))
    assert turn(rig, 3).scores == {"priority": 5.0, "submission": 3.0, "pri": 0.5}
    assert [one.app_id for one in turn(rig, 2).first] == [3]


def test_nothing_overtakes_the_head_of_a_strict_line() -> None:
    """It needs both vcores, so it waits for the longer task, and who is behind it does, too."""
    for matcher, starts in (("fifo", (30.0, 40.0)), ("drf", (30.0, 10.0))):
        rig = Rig(matcher, FREE)
        rig.add_node("n1", vcores=2.0, memory_mb=8192.0)
        busy, wide, small = [rig.start(job(name, stage(tasks=9))) for name in "xyz"]
        rig.allocate(busy, ask(1, 1, duration_s=10.0), ask(2, 1, duration_s=30.0))
        rig.beat()
        rig.allocate(wide, ask(1, 1, (2.0, 1024.0), duration_s=10.0))
        rig.allocate(small, ask(1, 1, duration_s=10.0))
        assert (turn(rig, 2).start_s, turn(rig, 3).start_s) == pytest.approx(starts), matcher


def test_the_order_is_followed_so_far_and_said_to_go_on() -> None:
    rig = Rig("fifo", FREE)
    rig.add_node("n1", vcores=1.0)
    for number in range(RANKED_MAX + 2):
        rig.allocate(rig.start(job(f"j{number}", stage(tasks=1))), ask(1, 1))
        rig.beat()
    mine = turn(rig, RANKED_MAX + 2)
    assert mine.beyond
    assert (mine.asks, mine.scores) == (RANKED_MAX, {})
    assert not turn(rig, RANKED_MAX).beyond


def test_who_is_ahead_is_not_named_to_those_who_may_not_know() -> None:
    rig = full("fifo", users=("ann", "ann", "zoe"))
    (ahead,) = turn(rig, 3, Caller("zoe")).first
    assert (ahead.app_id, ahead.name, ahead.stage, ahead.pending) == (0, "", "", 3)
    (ahead,) = turn(rig, 3).first
    assert (ahead.app_id, ahead.name) == (2, "y")


def test_the_winner_is_not_named_to_those_who_may_not_know() -> None:
    rig = full("fifo", users=("ann", "ann", "zoe"))
    rig.add_node("n2", vcores=1.0)
    rig.nodes.pop("n2")
    for caller, wanted in (
        (TRUSTED, "stage work of y"),
        (Caller("zoe"), "another user's application"),
    ):
        answer = rig.ask_manager(Explain(3), caller)
        assert any(wanted in why for why in answer.stages[0].reasons), answer


class Backwards(BaseMatcher):
    """A policy as another package has it: the last application first, by a number of its own."""

    name = "backwards"

    def match(self, view: Any, node: int, now: float) -> Match:
        rows = [row for row in range(view.rows.count) if view.rows.pending[row] > 0]
        free = view.nodes.available[node]
        rows = [row for row in rows if (view.rows.demand[row] <= free).all()]
        if not rows:
            return Match([])
        row = max(rows, key=lambda one: int(view.apps.order[view.rows.app[one]]))
        most = int((free / view.rows.demand[row]).min())
        copies = min(most, int(view.rows.pending[row]))
        return Match([Placement(row, copies, (("lateness", float(view.rows.app[row])),))])

    def terms(self, view: Any, row: int) -> Scores:
        return (("whim", 7.0),)


def test_a_matcher_of_another_package_names_its_own_terms() -> None:
    rig = full(Backwards())
    mine = turn(rig, 2)
    assert [(one.app_id, one.scores) for one in mine.first] == [(3, {"lateness": 2.0, "whim": 7.0})]
    assert mine.scores == {"lateness": 1.0, "whim": 7.0}
    assert mine.start_s - rig.now == pytest.approx(30.0)


@pytest.mark.parametrize("name", sorted(MATCHERS))
def test_every_registered_matcher_tells_its_order_and_changes_nothing(name: str) -> None:
    """Whoever it named first is served first, as if nobody had asked."""
    # YARN's Fair Scheduler counts the masters' cores, too, and lets them hold half.
    asked, unasked = [full(name, tasks=5 if name == "yarn_fair" else 2) for _ in range(2)]
    (first,) = turn(asked, 3).first
    for rig in (asked, unasked):
        done = [succeeded(number) for number in master_of(rig, 1).containers]
        rig.beat("n1", *done)
        for _ in done:
            rig.beat("n1", later_s=1.0)
        for app in (2, 3):
            rig.allocate(master_of(rig, app))
    held = [[len(master_of(rig, app).containers) for app in (2, 3)] for rig in (asked, unasked)]
    assert held[0] == held[1]
    assert first.app_id == 2
    assert held[0][0] >= held[0][1] >= 0
    assert sum(held[0]) >= 2


def master_of(rig: Rig, app: int) -> FakeMaster:
    return rig.masters[attempt_id(app, 1)]


def test_whose_master_goes_first_is_named_to_those_who_may_know() -> None:
    rig = Rig("yarn", ManagerSettings(master_demand={"vcores": 1.0, "memory_mb": 256.0}))
    rig.add_node("n1", vcores=3.0)
    mine = rig.start(job("mine", stage(tasks=9), user="ann"))
    for name in ("other", "first"):
        app = rig.submit(job(name, stage(tasks=1), user="bob"))
    rig.ask_manager(SetPriority(app, 9))
    rig.now += 1.0
    rig.allocate(mine, ask(1, 1))
    told = {
        caller.user: [*rig.ask_manager(Explain(1), caller).stages[0].reasons]
        for caller in (TRUSTED, Caller("ann"))
    }
    assert told[""][0].endswith("outscored by the master of first"), told
    assert told["ann"] == ["would fit: outscored by another user's application"]


def test_each_ask_is_put_in_its_place_among_those_of_its_application(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A master may ask for thousands of stages, and none of them is a reason to sort the others."""
    slot: Any = vars(Request)["key"]
    reads = [0]

    def read(one: Request) -> Any:
        reads[0] += 1
        return slot.__get__(one)

    counted = property(read, slot.__set__)
    monkeypatch.setattr(Request, "key", counted)
    rig = Rig("yarn", ManagerSettings(master_demand={}))
    rig.add_node("n1", vcores=1.0)
    master = rig.start(job("wide", stage(tasks=300)))
    rig.allocate(master, *(ask(number, 1) for number in range(300, 0, -1)))
    (app,) = rig.manager.books.matcher._state.apps.values()
    assert [request.key[1] for request in app.requests] == list(range(1, 301))
    assert reads[0] < 300 * 20
    rig.allocate(master, ask(7, 1, pri_score=2.0), ask(8, 0))
    rig.allocate(master, ask(301, 1))
    keys = [request.key for request in app.requests]
    assert keys == sorted(keys)
    assert keys[0] == (-2.0, 7)


def test_asks_of_one_stage_are_one_row() -> None:
    """Of `y` three asks of its stage wait, with 1, 2 and 3 containers."""
    rig = full("fifo")
    rig.allocate(master_of(rig, 2), ask(1, 1), ask(2, 2), ask(3, 3))
    mine = turn(rig, 3)
    assert (mine.asks, mine.containers) == (1, 6)
    assert [(one.app_id, one.pending) for one in mine.first] == [(2, 6)]


WRONG_TERMS = """
from rm.match.fifo import FifoMatcher

class Table(FifoMatcher):
    def terms(self, view, row):
        return {"age_s": 12.5, "level": 2.0, "width": 3.0}

class Raises(FifoMatcher):
    def terms(self, view, row):
        return 1 / 0
"""


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("Table", "terms returns {'age_s': 12.5*expected pairs of a name and a number (*s.py:5)"),
        ("Raises", "ZeroDivisionError: division by zero (*wrong_terms.py:10)"),
    ],
)
def test_terms_that_are_none_are_told_as_the_fault_of_their_matcher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, says: str
) -> None:
    """The manager goes on, and says where to look."""
    (tmp_path / "wrong_terms.py").write_text(WRONG_TERMS)
    monkeypatch.syspath_prepend(tmp_path)
    rig = full(make_matcher(f"wrong_terms:{kind}"))
    answer = rig.ask_manager(Explain(2), TRUSTED)
    assert isinstance(answer, Refused)
    assert fnmatch(answer.problem, f"matcher 'wrong_terms:{kind}': {says.replace('[', '[[]')}")


@pytest.mark.parametrize("ended", [1, 2])
@pytest.mark.parametrize("matcher", ["capacity", "fifo", "drf"])
def test_a_master_above_its_guarantee_gives_way_to_an_ask_below(matcher: str, ended: int) -> None:
    """A master is a way to get room, no turn of its own; what is left of a node is for it."""
    queues = QueueSpec("root", children=(QueueSpec("a", 0.25), QueueSpec("b", 0.75)))
    own = {"vcores": 1.0, "memory_mb": 1024.0}
    rig = Rig(matcher, ManagerSettings(master_demand=own, master_share_max=1.0), queues)
    rig.add_node("n1", vcores=5.0, memory_mb=5120.0)
    above = rig.start(job("x", stage(tasks=9), queue="a"))
    rig.allocate(above, ask(1, 3))
    rig.beat()
    rig.allocate(above)
    below = rig.start(job("y", stage(tasks=9), queue="b"))
    waits = rig.submit(job("z", queue="a"))
    rig.allocate(below, ask(1, 1))
    rig.beat("n1", *(succeeded(container) for container in list(above.containers)[:ended]))
    rig.allocate(below)
    assert len(below.containers) == 1
    master = rig.manager.books.apps[waits].attempt.master
    assert (master is not None) == (ended == 2)
    if ended == 1:
        rig.beat("n1", succeeded(list(above.containers)[1]))
        assert rig.manager.books.apps[waits].attempt.master is not None
