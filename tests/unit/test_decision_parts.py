"""What single parts of a decision answer, at the values where they could answer otherwise."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from am.ask.cobra import Cobra
from am.ask.view import HoldView
from am.pool import Pooled
from rm.ledger.asks import NODE_LOCAL, REMOTE
from rm.ledger.ledger_kernels import add_held
from rm.match.candidate_kernels import over
from rm.match.candidates import candidates, limit_of, limits_of, limits_of_masters, shares_of
from rm.match.carbon import _within
from rm.match.choice_kernels import FEATURES
from rm.match.choices import Choices
from rm.match.deficit_kernels import neediest
from rm.match.dominant import drf_shares_of
from rm.match.filter_kernels import fits
from rm.match.limit_kernels import ADMITTED, USER, held_back, keep_guarantees
from rm.match.protocol import Match, Placement
from rm.match.registry import make_matcher, matcher_parameters
from testkit.matching import MatcherHarness
from weft.model.errors import InputError
from weft.model.queues import QueueSpec
from weft.model.resources import TOLERANCE
from weft.protocol.messages import Ask, AskType

NODE = (8.0, 8192.0, 0.0)
ONE = (1.0, 512.0, 0.0)
ALONE = QueueSpec("root", children=(QueueSpec("a", 1.0),))


def ask(number: int, total: int, demand: tuple[float, ...] = ONE, **more: Any) -> Ask:
    return Ask(number, total, demand, 10.0, 1.0, AskType.DEFAULT, 0, **more)


# -- what matchers are shown -----------------------------------------------------------------------


@pytest.mark.parametrize("apps", [1, 2, 5])
def test_nobody_can_write_on_what_a_view_shows(apps: int) -> None:
    harness = MatcherHarness()
    node = harness.add_node(NODE)
    for _ in range(apps):
        harness.add_app()
    assert not harness.view.banned(node).flags.writeable
    assert not harness.view.banned(node).any()
    harness.view.ban(node, 0, on=True)
    banned = harness.view.banned(node)
    assert not banned.flags.writeable
    assert np.flatnonzero(banned).tolist() == [0]


@pytest.mark.parametrize("name", ["fifo", "capacity", "tetris", "graphene", "drf", "fair"])
def test_a_node_is_seen_as_it_is_after_its_tables_moved_and_bans_changed(name: str) -> None:
    """Matchers are shown a node by a record that is kept between decisions."""
    harness = MatcherHarness(name, queues=ALONE)
    first = harness.add_node(NODE)
    app, other = harness.add_app(), harness.add_app()
    mine = harness.ask(app, ask(1, 1))
    harness.ask(other, ask(2, 1))
    assert {p.row for p in harness.match(first).placements} == {0, 1}
    harness.view.ban(first, app, on=True)
    assert [p.row for p in harness.match(first).placements] == [1]
    for _ in range(40):  # more than there is room for at first
        last = harness.add_node(NODE)
    harness.ledger.set_node(first, (0.5, 8192.0, 0.0), up=True)
    assert not harness.match(first).placements
    harness.ledger.set_node(first, NODE, up=True)
    assert [p.row for p in harness.match(first).placements] == [1]
    harness.view.ban(first, app, on=False)
    assert {p.row for p in harness.match(first).placements} == {0, 1}
    harness.ledger.reserve([last], mine.serial)
    assert [p.row for p in harness.match(last).placements] == [0]


def test_candidates_outgrow_their_first_arrays() -> None:
    harness = MatcherHarness("tetris")
    node = harness.add_node((1000.0, 900000.0, 0.0))
    app = harness.add_app()
    harness.ask(app, ask(1, 1))
    assert len(candidates(harness.view, node).rows) == 1
    for number in range(2, 301):
        harness.ask(app, ask(number, 1))
    assert candidates(harness.view, node).rows.tolist() == list(range(300))


def test_sizes_are_compared_to_a_part_of_the_capacity() -> None:
    """Sums of decimals miss by a little; the larger the node, the more."""
    for capacity in (0.5, 1.0, 16.0, 65536.0):
        room = 0.25 * capacity
        within, beyond = 0.5 * TOLERANCE * capacity, 2 * TOLERANCE * capacity
        held = np.array([room]), np.array([capacity])
        assert fits(np.array([room + within]), *held)
        assert not fits(np.array([room + beyond]), *held)


@pytest.mark.slow
def test_amounts_are_divided_by_capacities_of_one_and_less() -> None:
    """A cluster may have one device, or half of one."""
    shares = over(np.array([[0.5, 0.25, 3.0]]), np.array([1.0, 0.5, 0.0]))
    assert shares.tolist() == [[0.5, 0.5, 0.0]]


# -- the ledger ------------------------------------------------------------------------------------


def test_a_row_without_anything_pending_has_zero_pending() -> None:
    harness = MatcherHarness()
    app = harness.add_app()
    entry = harness.ask(app, ask(1, 2))
    entry.granted = 5  # its master asks for fewer than were granted by now
    assert entry.pending == 0
    entry.granted = 1
    row = entry.row
    harness.rows.take(entry, 1, 0.0)
    assert harness.rows.pending[row] == 0


def test_a_user_is_active_while_he_waits_for_a_container() -> None:
    harness = MatcherHarness()
    leaf = harness.tree.leaf("a")
    apps = [harness.add_app("a", user) for user in ("u", "u", "v")]
    ledger, by_queue = harness.ledger, harness.view.by_queue

    def counts() -> tuple[int, int, int]:
        return int(by_queue.users[leaf]), int(by_queue.apps[leaf]), int(by_queue.apps[0])

    assert counts() == (0, 3, 3)
    for app in apps:
        ledger.add_pending(app, 2)
    assert counts() == (2, 3, 3)
    ledger.add_pending(apps[0], -2)
    # The user's other application waits.
    assert counts() == (2, 3, 3)
    node = harness.add_node((8.0, 8.0, 0.0))
    ledger.grant(node, apps[1], np.array((1.0, 1.0, 0.0)), 2, None, 1.0)
    assert counts() == (1, 3, 3)
    other = harness.tree.leaf("b")
    ledger.move_app(apps[2], other, "v")
    assert counts() == (0, 2, 3)
    assert by_queue.users[other] == 1
    ledger.close_app(apps[0])
    assert counts() == (0, 1, 2)


def test_who_runs_only_a_master_may_start_a_task_above_the_limit() -> None:
    limited = QueueSpec("a", 0.5, user_limit=0.01, user_limit_factor=0.01)
    queues = QueueSpec("root", children=(limited, QueueSpec("b", 0.5)))
    harness = MatcherHarness(queues=queues)
    node = harness.add_node((8.0, 8.0, 0.0))
    app, demand = harness.add_app("a", "u"), np.array((1.0, 1.0, 0.0))
    harness.ledger.book(node, app, demand, 1)
    harness.ledger.count_masters(app, 1)
    assert limit_of(harness.view, app, demand) == ADMITTED
    # Another master is beside the one that runs.
    part = shares_of(demand, harness.view.total)
    assert held_back(limits_of_masters(harness.view), app, part) == USER
    harness.ledger.book(node, app, demand, 1)
    assert limit_of(harness.view, app, demand) == USER


def test_books_may_be_off_by_rounding_and_no_more() -> None:
    harness = MatcherHarness()
    node = harness.add_node((1000.0, 1000.0, 0.0))
    for _ in range(9):
        harness.add_node((1000.0, 1000.0, 0.0))
    app = harness.add_app()
    demand = (10.0, 10.0, 0.0)
    harness.ledger.book(node, app, np.array(demand), 1)
    most = np.ones(3)
    harness.ledger.check([(node, app, (10.005, 10.0, 0.0))], most, set())
    with pytest.raises(Exception, match="the books of nodes say 10 in slot 0"):
        harness.ledger.check([(node, app, (10.05, 10.0, 0.0))], most, set())


def test_queues_that_say_nothing_bound_no_lifetime() -> None:
    below = (QueueSpec("a", 0.5), QueueSpec("b", 0.5, max_lifetime_s=9.0))
    harness = MatcherHarness(queues=QueueSpec("root", children=below))
    tree = harness.tree
    assert tree.lifetime_s[tree.leaf("a")] == (0.0, 0.0)
    assert tree.lifetime_s[tree.leaf("b")][1] == 9.0


# -- guarantees and turns --------------------------------------------------------------------------


def test_a_row_of_no_value_competes_for_its_queue() -> None:
    """What demands nothing that is free scores 0; its queue is below its guarantee all the same."""
    harness = MatcherHarness("tetris")
    node = harness.add_node(NODE)
    poor, rich = harness.add_app("a"), harness.add_app("b")
    harness.ask(rich, ask(1, 9))
    harness.place(node, Match([Placement(0, 5)]))
    limits = limits_of(harness.view, keeps=True)
    value = np.array([0.0, 1.0])
    keep_guarantees(limits, np.array([poor, rich]), value)
    assert value.tolist() == [0.0, -1.0]
    value = np.array([-1.0, 1.0])
    keep_guarantees(limits, np.array([poor, rich]), value)
    assert value.tolist() == [-1.0, 1.0]


def test_the_first_group_may_be_the_neediest() -> None:
    share, here = np.array([0.5, 0.5]), np.ones(2, np.bool_)
    for deficit in ([2.0, 1.0], [1.0, 2.0], [1.0, 1.0]):
        assert neediest(np.array(deficit), share, here) == int(np.argmax(deficit))


@pytest.mark.parametrize("name", ["fair", "drf"])
def test_those_that_are_said_to_go_before_hold_less_and_wait(name: str) -> None:
    harness = MatcherHarness(name, queues=ALONE)
    node = harness.add_node(NODE)
    mine, waiting = harness.add_app(), harness.add_app()
    for _ in range(2):
        harness.add_app()  # hold nothing, and want nothing
    harness.ask(mine, ask(1, 4))
    harness.place(node, Match([Placement(0, 3)]))
    harness.ask(waiting, ask(2, 1))
    said = harness.matcher.why_not(harness.view, node, 0)
    assert said.startswith("held by fairness: 1 applications ")


def test_fair_counts_all_but_the_master() -> None:
    harness = MatcherHarness("fair", queues=ALONE)
    node = harness.add_node(NODE)
    app = harness.add_app()
    harness.ask(app, ask(1, 4))
    harness.place(node, Match([Placement(0, 2)]))  # a master, and one in which a task runs
    assert harness.match(node).placements[0].scores == (("containers", 1.0),)


@pytest.mark.parametrize("fairness", [0.5, 1.0])
def test_at_full_fairness_one_application_competes(fairness: float) -> None:
    harness = MatcherHarness("tetris", {"fairness": fairness}, queues=ALONE)
    node = harness.add_node(NODE)
    apps = [harness.add_app(), harness.add_app()]
    for number, app in enumerate(apps):
        harness.ask(app, ask(number + 1, 1))
    assert harness.match(node).placements


# -- Graphene --------------------------------------------------------------------------------------


def graphene(**more: Any) -> tuple[MatcherHarness, int]:
    harness = MatcherHarness("graphene", {"overbook": "", **more}, queues=ALONE)
    return harness, harness.add_node(NODE)


def eta_of(harness: MatcherHarness, node: int) -> float:
    return dict(harness.match(node).placements[0].scores)["eta"]


def test_without_its_weight_remaining_work_does_not_count() -> None:
    harness, node = graphene(eta_m=0.0)
    harness.ask(harness.add_app(work=5.0), ask(1, 1))
    assert eta_of(harness, node) == 0.0


def test_one_pending_container_is_enough_to_be_averaged() -> None:
    harness, node = graphene(eta_m=1.0)
    harness.ask(harness.add_app(work=5.0), ask(1, 1))
    score, work = harness.match(node).observed
    assert score > 0.0
    assert work == 5.0
    assert eta_of(harness, node) == pytest.approx(score / work)


def test_a_decision_that_places_nothing_moves_no_mean() -> None:
    harness, node = graphene(eta_m=1.0)
    harness.ask(harness.add_app(work=5.0), ask(1, 9))
    harness.beat(node)
    app = harness.add_app(work=7.0)
    node = harness.add_node(NODE)
    harness.ask(app, ask(2, 1))
    before = eta_of(harness, node)
    harness.matcher.matched(harness.view, node, Match([], observed=(1000.0, 1.0)), 0.0)
    harness.matcher.matched(harness.view, node, Match([Placement(0, 1)]), 0.0)
    assert eta_of(harness, node) == before


def test_a_policy_may_take_over_applications_that_it_did_not_see_join() -> None:
    """A fork of a run goes on with another matcher, told of those that leave from then on."""
    harness = MatcherHarness("graphene", {"group": "app"}, queues=ALONE)
    harness.add_node(NODE)
    app = harness.add_app()
    fresh = make_matcher("graphene", {"group": "app"})
    fresh.app_left(harness.view, app, 0.0)
    assert not fresh.deficits(harness.view).any()


@pytest.mark.parametrize("group", ["queue", "app"])
@pytest.mark.parametrize("unit", ["slots", "drf", "time"])
def test_where_one_queue_has_all_its_counter_stays_at_nothing(group: str, unit: str) -> None:
    """The short way for a lone queue decides as the long one: kappa 0 binds nobody."""
    placed = []
    for kappa in (-1.0, 0.0):
        harness, node = graphene(kappa=kappa, group=group, deficit_unit=unit)
        apps = [harness.add_app(work=float(n)) for n in (3, 1)]
        for number, app in enumerate(apps):
            harness.ask(app, ask(number + 1, 5, (1.0 + number, 256.0, 0.0)))
        answer = harness.match(node)
        placed.append([(p.row, p.copies) for p in answer.placements])
        if group == "queue":
            assert all(dict(p.scores)["deficit"] == 0.0 for p in answer.placements)
        harness.place(node, answer)
        assert not any(harness.owed().values())
    if group == "queue":
        assert placed[0] == placed[1]


@pytest.mark.parametrize("text", ["true", "yes", "1", "True", "false", "no", "0"])
def test_a_switch_takes_the_usual_words(text: str) -> None:
    value = matcher_parameters("graphene", {"use_priority": text})["use_priority"]
    assert value is (text.lower() in ("true", "yes", "1"))


# -- policies that pick for themselves -------------------------------------------------------------


@pytest.mark.slow
def test_what_a_policy_sees_of_a_candidate() -> None:
    """Feature by feature, where two queues share a cluster of two nodes in two racks."""
    harness = MatcherHarness("capacity")
    near, far = harness.add_node(NODE, "r1"), harness.add_node(NODE, "r2")
    app, other = harness.add_app("a"), harness.add_app("b")
    harness.ask(other, ask(1, 4))
    harness.ask(app, ask(2, 3, (2.0, 512.0, 0.0)))
    harness.place(near, Match([Placement(0, 2), Placement(1, 1)]))
    harness.ask(app, ask(3, 1, (0.5, 256.0, 0.0), nodes=("n0",)), ("r1",))
    choices = Choices(harness.view, far, 0.0)
    seen = {
        int(row): dict(zip(FEATURES, values, strict=True))
        for row, values in zip(choices.rows, choices.features().tolist(), strict=True)
    }
    assert choices.open.all()
    assert set(seen) == {1, 2} or set(seen) == {0, 1, 2}
    assert seen[1]["share"] == pytest.approx(2.0 / 16.0)
    assert seen[1]["queue"] == pytest.approx(2.0 / 16.0 / 0.5)
    assert seen[1]["remote"] == NODE_LOCAL
    assert seen[2]["remote"] == pytest.approx(REMOTE / 2)
    assert seen[2]["packing"] == pytest.approx(0.5 / 8.0)
    alone = MatcherHarness("capacity", queues=ALONE)
    node = alone.add_node(NODE)
    alone.ask(alone.add_app(), ask(1, 1))
    assert Choices(alone.view, node, 0.0).features()[0, FEATURES.index("queue")] == 0.0


# -- carbon ----------------------------------------------------------------------------------------


def test_all_placements_that_stay_within_the_cap_are_kept() -> None:
    harness = MatcherHarness("capacity", queues=ALONE)
    app = harness.add_app()
    for number in (1, 2, 3):
        harness.ask(app, ask(number, 2))
    wanted = [Placement(row, 2) for row in range(3)]
    kept = _within(wanted, harness.view, np.array([5.0, 8192.0, 8.0]))
    assert [(p.row, p.copies) for p in kept] == [(0, 2), (1, 2), (2, 1)]


def test_a_cap_is_known_by_its_word_wherever_that_was_read() -> None:
    word = "".join(["c", "ap"])  # another object than the literal
    options = {"carbon": "3600;1,1000", "carbon_policy": word, "carbon_least": 0.2}
    harness = MatcherHarness("capacity", options, queues=ALONE)
    nodes = [harness.add_node(NODE) for _ in range(10)]
    harness.ask(harness.add_app(), ask(1, 80))
    harness.now = 3700.0  # dirty
    for node in nodes:
        harness.beat(node)
    assert len(harness.held) == 16, "two of ten nodes are used"


# -- COBRA -----------------------------------------------------------------------------------------


def test_what_cobra_refuses() -> None:
    for wrong in (-0.5, -1.0, float("nan")):
        with pytest.raises(InputError, match="expected 0 or more"):
            Cobra(over_estimate=wrong)
    assert Cobra(over_estimate=0.0).over_estimate == 0.0


def seen_by(cobra: Cobra, now: float, pool: list[Pooled]) -> None:
    view = HoldView([], pool, (2.0, 4096.0), 10, 0, {})
    cobra.hold(view, now, np.random.default_rng(0))


def test_a_period_ends_when_it_is_over_and_not_before() -> None:
    cobra = Cobra(period_s=5.0, initial_desire=4.0)
    seen_by(cobra, 0.0, [])
    for now in (1.0, 4.5, 4.99):
        seen_by(cobra, now, [])
        assert cobra.case == ""
    seen_by(cobra, 5.0, [])
    assert cobra.case != ""


def test_containers_of_which_nothing_is_known_are_not_taken_to_be_used() -> None:
    cobra = Cobra(period_s=5.0, initial_desire=4.0)
    seen_by(cobra, 0.0, [])
    assert cobra._utilisation(cast(Any, SimpleNamespace(size=(2.0,), containers=[]))) == 0.0


def test_a_container_that_began_to_idle_in_the_period_was_not_idle_all_through() -> None:
    cobra = Cobra(period_s=5.0, initial_desire=4.0)
    seen_by(cobra, 0.0, [])

    def one(number: int, samples: int, idle_since_s: float) -> SimpleNamespace:
        used = [2.0 * samples]
        return SimpleNamespace(
            container_id=number,
            size=(2.0,),
            busy=0,
            use_count=samples,
            use_sum=used,
            idle_since_s=idle_since_s,
        )

    for since_s, wanted in ((0.0, 0.5), (-3.0, 0.5), (2.0, 1.0)):
        view: Any = SimpleNamespace(size=(2.0,), containers=[one(1, 5, 9.0), one(2, 0, since_s)])
        assert cobra._utilisation(view) == wanted


# -- who is owed -----------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["nowhere", "elsewhere", "down", "other label", "nothing"])
def test_credit_is_kept_by_who_could_be_served_elsewhere(where: str) -> None:
    """b is owed, and has no part in what is placed on the first node."""
    harness = MatcherHarness("graphene", {"overbook": "", "kappa": -1, "deficit_unit": "slots"})
    here = harness.add_node(NODE)
    there = harness.add_node((16.0, 16384.0, 0.0), label="gpu" if where == "other label" else "")
    app, other = harness.add_app("a"), harness.add_app("b")
    harness.ask(app, ask(1, 4))
    size = {"nowhere": 99.0, "nothing": 1.0}.get(where, 12.0)
    entry = harness.ask(other, ask(2, 1, (size, 512.0, 0.0)))
    if where == "nothing":
        harness.ledger.add_pending(other, -1)
        harness.rows.take(entry, 1, 0.0)
    harness.ledger.set_node(there, (16.0, 16384.0, 0.0), up=where != "down")
    harness.owe({"a": -2.0, "b": 2.0})
    harness.place(here, Match([Placement(0, 1)]))
    assert harness.owed()["b"] == (2.0 if where == "elsewhere" else 0.0)
    assert sum(harness.owed().values()) == pytest.approx(0.0)


def test_counters_of_applications_follow_those_that_come() -> None:
    harness = MatcherHarness(
        "graphene", {"group": "app", "overbook": "", "kappa": 0.1}, queues=ALONE
    )
    node = harness.add_node((1000.0, 900000.0, 0.0))
    for number in range(1, 40):
        harness.ask(harness.add_app(), ask(number, 2))
        assert len(harness.beat(node)) == 2


@pytest.mark.parametrize("owed", [0, 1])
def test_whichever_application_is_owed_more_than_the_bound_goes_first(owed: int) -> None:
    harness = MatcherHarness(
        "graphene", {"group": "app", "overbook": "", "kappa": 0.1}, queues=ALONE
    )
    node = harness.add_node(NODE)
    for number in (1, 2):
        demand = (5.0, 512.0, 0.0) if number - 1 == owed else (6.0, 4096.0, 0.0)
        harness.ask(harness.add_app(), ask(number, 1, demand))
    state: Any = harness.matcher
    state._counters = np.array([9.0, -9.0]) if owed == 0 else np.array([-9.0, 9.0])
    assert [p.row for p in harness.match(node).placements] == [owed]


def test_what_an_application_cannot_use_goes_to_those_that_can() -> None:
    """Half of the cluster each by the closed form; the first wants one container of sixteen."""
    harness = MatcherHarness("drf", queues=ALONE)
    harness.add_node((16.0, 16.0, 16.0))
    small, large = harness.add_app(), harness.add_app()
    harness.ask(small, ask(1, 1, (1.0, 1.0, 1.0)))
    harness.ask(large, ask(2, 99, (1.0, 1.0, 1.0)))
    shares = drf_shares_of(harness.view)
    assert shares[small] == pytest.approx([1.0] * 3)
    assert shares[large] == pytest.approx([15.0] * 3)


def test_what_was_held_is_counted_for_every_container() -> None:
    held_s = np.array([1.0, 2.0])
    add_held(held_s, np.array([2.0, 0.5]), 10.0, 3)
    assert held_s.tolist() == [61.0, 17.0]


# -- carbon's parameters and words ----------------------------------------------------------------


@pytest.mark.parametrize(("key", "low"), [("carbon_least", 0), ("carbon_step_s", 0)])
def test_a_carbon_number_may_be_at_its_bound_and_not_below(key: str, low: int) -> None:
    given = {"carbon": "3600;1,2"}
    assert matcher_parameters("capacity", {**given, key: low})[key] == low
    with pytest.raises(InputError, match="expected a number from"):
        matcher_parameters("capacity", {**given, key: low - 1})


def test_a_carbon_policy_says_why_it_holds_back() -> None:
    said = {}
    for policy in ("cap", "pcaps"):
        options = {"carbon": "3600;1,1000", "carbon_policy": policy, "carbon_least": 0.2}
        harness = MatcherHarness("capacity", options, queues=ALONE)
        nodes = [harness.add_node(NODE) for _ in range(10)]
        harness.ask(harness.add_app(), ask(1, 80))
        harness.now = 3700.0
        for node in nodes:
            harness.beat(node)
        said[policy] = harness.matcher.why_not(harness.view, nodes[-1], 0)
    assert said["cap"] == "held by the carbon cap: 20 % of the cluster"
    assert "carbon cap" not in said["pcaps"]


def test_leftover_is_packed_into_what_is_left_after_what_must_run() -> None:
    """Of one application's asks that may wait, the better aligned one to a node short of cores."""
    harness = MatcherHarness("carbyne", {"packing": True, "leftover": "srtf"}, queues=ALONE)
    node = harness.add_node(NODE)
    must, may = harness.add_app(), harness.add_app()
    harness.ask(must, ask(1, 1, (6.0, 512.0, 0.0)))
    spare = AskType.ALTRUISTIC
    for number, demand in ((2, (2.0, 256.0, 0.0)), (3, (0.5, 1024.0, 0.0))):
        harness.ask(may, Ask(number, 1, demand, 10.0, 1.0, spare, 0))
    assert [p.row for p in harness.match(node).placements] == [0, 2]
