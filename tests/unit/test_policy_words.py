"""What matchers say of an ask that waits, and smaller decisions that few runs meet."""

from typing import Any

import numpy as np
import pytest

from am.plan.bounds.bounds import bounds_of
from am.plan.options import read_options
from am.plan.registry import PlanRequest, planner_parameters
from am.plan.search import prepared_parts, search
from rm.ledger.queues import QueueTree
from testkit.builders import ask
from testkit.matching import MatcherHarness
from weft.model.dag import Dag, Link, Machines, StageEdge
from weft.model.errors import InputError, InvariantError
from weft.model.queues import QueueSpec
from weft.protocol.messages import AskType

ONE = (1.0, 512.0, 0.0)
SIZE = (8.0, 8192.0, 0.0)


# -- why an ask waits ------------------------------------------------------------------------------


def test_tetris_says_how_many_have_a_smaller_share_where_its_knob_is_on() -> None:
    """Of three that each want one more container the two with the least compete."""
    for fairness, said in ((0.5, "held by fairness: 2 applications have a smaller share"), (0, "")):
        harness = MatcherHarness("tetris", {"fairness": fairness})
        node = harness.add_node(SIZE)
        apps = [harness.add_app() for _ in range(3)]
        for app, held in zip(apps, (2, 1), strict=False):
            harness.ask(app, ask(1, held, ONE))
        harness.beat(node)
        rows = [harness.ask(app, ask(2, 1, ONE)).row for app in apps]
        words = [harness.matcher.why_not(harness.view, node, row) for row in rows]
        assert words == [said, "", ""]


def test_drf_without_lending_names_the_application_s_own_share() -> None:
    harness = MatcherHarness("drf", {"lend": False, "share": "equal"})
    node = harness.add_node(SIZE)
    apps = [harness.add_app("a"), harness.add_app("b"), harness.add_app("b")]
    rows = [harness.ask(app, ask(1, 99, ONE)).row for app in apps]
    said = [harness.matcher.why_not(harness.view, node, row) for row in rows]
    shares = harness.matcher.shares(harness.view, 0.0)[:, 0] / 8
    assert said == [f"held by its strict share, {share:.3f} of the cluster" for share in shares]
    assert shares[1] < 1


def test_carbyne_s_leftover_waits_for_what_must_run() -> None:
    harness = MatcherHarness("carbyne")
    node = harness.add_node(SIZE)
    app = harness.add_app()
    must = harness.ask(app, ask(1, 1, ONE)).row
    may = harness.ask(app, ask(2, 1, ONE, kind=AskType.ALTRUISTIC)).row
    assert harness.matcher.why_not(harness.view, node, must) == ""
    assert "leave over" in harness.matcher.why_not(harness.view, node, may)


@pytest.mark.parametrize(("unit", "bound"), [("slots", 4.0), ("drf", 0.5), ("time", 0.5)])
def test_graphene_names_who_is_owed_more_than_the_bound(unit: str, bound: float) -> None:
    """kappa is 0.5: of 8 slots (cores), or of the cluster."""
    harness = MatcherHarness("graphene", {"overbook": "", "kappa": 0.5, "deficit_unit": unit})
    node = harness.add_node(SIZE)
    rows = {name: harness.ask(harness.add_app(name), ask(1, 9, ONE)).row for name in ("a", "b")}
    for owed, other in (("a", "b"), ("b", "a")):
        for factor, said in ((0.9, ""), (1.1, f"queue root.{owed} is owed more than the bound")):
            harness.owe({owed: factor * bound, other: -factor * bound})
            assert harness.matcher.why_not(harness.view, node, rows[owed]) == ""
            words = harness.matcher.why_not(harness.view, node, rows[other])
            assert words == (said and f"held by fairness: {said}")


def test_an_application_that_leaves_takes_nothing_of_its_queue_s_credit() -> None:
    """Counters are by queue: the application's slot has the number of a queue by chance only."""
    harness = MatcherHarness("graphene", {"overbook": ""})
    harness.add_node(SIZE)
    apps = [harness.add_app("a"), harness.add_app("b"), harness.add_app("b")]
    for app in apps:
        harness.ask(app, ask(1, 9, ONE))
    harness.owe({"a": 0.25, "b": -0.25})
    for app in apps:
        harness.matcher.app_left(harness.view, app, 0.0)
    assert harness.owed() == {"root": 0.0, "a": 0.25, "b": -0.25}


# -- fifo ------------------------------------------------------------------------------------------


def test_a_head_that_a_node_can_never_hold_leaves_it_to_the_next() -> None:
    harness = MatcherHarness("fifo")
    small, large = harness.add_node(SIZE), harness.add_node((16.0, 16384.0, 0.0))
    first, second = harness.add_app(), harness.add_app()
    harness.ask(first, ask(1, 1, (9.0, 512.0, 0.0)))
    harness.ask(second, ask(1, 1, ONE))
    assert [placement.row for placement in harness.match(small).placements] == [1]
    assert [placement.row for placement in harness.match(large).placements] == [0, 1]


def test_whole_jobs_in_line_wait_for_tasks_of_no_declared_work_as_well() -> None:
    harness = MatcherHarness("fifo", {"whole": True})
    node = harness.add_node(SIZE)
    first, second = harness.add_app(work=0.0), harness.add_app()
    harness.ask(second, ask(1, 1, ONE))
    assert [placement.row for placement in harness.match(node).placements] == [0]
    harness.ask(first, ask(1, 1, (9.0, 512.0, 0.0)))
    assert not harness.match(node).placements


# -- what policies see, and what is checked --------------------------------------------------------


def test_a_policy_cannot_write_on_what_it_is_shown() -> None:
    harness = MatcherHarness("fifo")
    harness.add_node(SIZE)
    harness.ask(harness.add_app(), ask(1, 1, ONE))
    shown: list[Any] = [
        harness.view.nodes.available,
        harness.view.apps.held,
        harness.view.rows.pending,
        harness.view.users.held,
        harness.view.by_queue.held,
        harness.view.banned(0),
        harness.view.levels(0),
    ]
    for array in shown:
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_a_node_stays_closed_to_those_that_still_avoid_it() -> None:
    harness = MatcherHarness("fifo")
    node = harness.add_node(SIZE)
    apps = [harness.add_app() for _ in range(3)]
    for app in apps[:2]:
        harness.view.ban(node, app, True)
    harness.view.ban(node, apps[0], False)
    assert harness.view.banned(node)[:3].tolist() == [False, True, False]
    harness.view.ban(node, apps[1], False)
    assert not harness.view.banned(node).any()


@pytest.mark.parametrize("most", [1.0, 1.25])
def test_a_node_that_is_over_its_capacity_by_little_is_found(most: float) -> None:
    harness = MatcherHarness("fifo")
    node, app = harness.add_node(SIZE), harness.add_app()
    limit = np.full(3, most)
    demand = (8.0 * most, 512.0, 0.0)
    harness.ledger.book(node, app, np.array(demand), 1, np.full(3, 2.0))
    harness.ledger.check([(node, app, demand)], limit, set())
    more = (0.01, 0.0, 0.0)
    harness.ledger.book(node, app, np.array(more), 1, np.full(3, 2.0))
    with pytest.raises(InvariantError, match="over its capacity in vcores"):
        harness.ledger.check([(node, app, demand), (node, app, more)], limit, set())


def test_queues_have_no_lifetimes_unless_one_is_set_and_never_more_than_those_above() -> None:
    children = (
        QueueSpec("free", 0.25),
        QueueSpec("short", 0.25, max_lifetime_s=5.0),
        QueueSpec("long", 0.25, max_lifetime_s=500.0, default_lifetime_s=7.0),
        QueueSpec("usual", 0.25, default_lifetime_s=3.0),
    )
    plain = QueueTree(QueueSpec("root", children=children))
    assert plain.lifetime_s == [(0, 0), (0, 0), (0, 5.0), (7.0, 500.0), (3.0, 0)]
    above = QueueSpec("root", children=children, max_lifetime_s=60.0, default_lifetime_s=9.0)
    assert QueueTree(above).lifetime_s == [
        (9.0, 60.0),
        (9.0, 60.0),
        (9.0, 5.0),
        (7.0, 60.0),
        (3.0, 60.0),
    ]


# -- planners --------------------------------------------------------------------------------------


def test_options_after_a_planner_s_own_are_read_as_well() -> None:
    read = planner_parameters("graphene_plus", {"iterations": 3, "rule": "cp", "thresholds": 2})
    assert (read["iterations"], read["rule"], read["thresholds"]) == (3, "cp", 2)
    with pytest.raises(InputError, match="unknown parameter of bfs; known: none"):
        planner_parameters("bfs", {"rule": "cp"})


def test_a_dag_without_tasks_takes_no_time() -> None:
    empty = Dag(("r",), (), np.array([0]), np.zeros(0), np.zeros((0, 1)), ())
    bounds = bounds_of(empty, Machines.alike(2, [1.0]))
    assert set(bounds.as_dict().values()) == {0.0}


def test_a_search_keeps_those_that_were_the_best_so_far_beside_its_answer() -> None:
    """The population of graphene_plus begins with them."""
    kept = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        edges = (StageEdge(0, 1, Link.ALL), StageEdge(2, 3, Link.ONE))
        dag = Dag(
            ("r", "s"),
            tuple("abcde"),
            np.arange(0, 21, 4),
            rng.uniform(1.0, 9.0, 20),
            rng.choice([0.1, 0.2, 0.5, 0.7], (20, 2)),
            edges,
        )
        request = PlanRequest(dag, Machines.alike(2, [1.0, 1.0]), rng, {})
        (field,) = prepared_parts(request)[2]
        options = read_options({"early_stop": False, "candidates": "paper"})
        found = [search(field, request, options, also) for also in (0, 1, 9)]
        assert len({schedule.span for schedule in found}) == 1
        none, one, all_ = (schedule.also for schedule in found)
        assert none == ()
        assert [schedule.span for schedule in one] == [schedule.span for schedule in all_[-1:]]
        spans = [schedule.span for schedule in all_]
        assert spans == sorted(spans, reverse=True)
        assert all(span > found[0].span for span in spans)
        kept += len(spans)
    assert kept > 6
