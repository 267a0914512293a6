"""Who gets Carbyne's leftover: by remaining work, by share, by a mix of both, by fit."""

import pytest

from rm.match.registry import make_matcher
from testkit.matching import MatcherHarness
from weft.model.errors import InputError
from weft.model.queues import QueueSpec
from weft.protocol.messages import Ask, AskType


def wants(total: int, demand: tuple[float, float, float], kind: AskType) -> Ask:
    return Ask(1, total, demand, 10.0, 1.0, kind, 0)


def granted(**options: object) -> list[int]:
    """By job: containers in leftover. The short job holds 6 of 16 vcores, the long one nothing."""
    harness = MatcherHarness("carbyne", options, QueueSpec("root"))
    node = harness.add_node((16.0, 65536.0, 1000.0))
    short, long = harness.add_app("root", work=1.0), harness.add_app("root", work=9.0)
    one = (1.0, 1.0, 1.0)
    harness.ask(short, wants(6, one, AskType.DEFAULT))
    assert len(harness.beat(node)) == 6
    for app in (short, long):
        harness.ask(app, wants(10, one, AskType.ALTRUISTIC))
    harness.beat(node)
    apps = [app for _, app, _ in harness.held.values()]
    return [apps.count(short) - 6, apps.count(long)]


def test_the_paper_s_order_is_shortest_remaining_work() -> None:
    assert granted() == [10, 0]
    assert granted(leftover="srtf") == [10, 0]


def test_by_least_share_what_is_held_becomes_equal() -> None:
    """8 and 8 of 16."""
    assert granted(leftover="least_share") == [2, 8]


def test_the_mix_goes_from_one_to_the_other() -> None:
    found = [granted(leftover="mix", leftover_mix=w / 10) for w in range(11)]
    assert found[0] == [10, 0]
    assert found[-1] == [2, 8]
    assert [row[0] for row in found] == sorted((row[0] for row in found), reverse=True)
    assert len({row[0] for row in found}) > 3


def test_by_packing_the_best_aligned_task_goes_first() -> None:
    """Of nobody in particular: the one whose demand is most like what is free."""
    harness = MatcherHarness("carbyne", {"leftover": "packing"}, QueueSpec("root"))
    node = harness.add_node((4.0, 4.0, 4.0))
    short, long = harness.add_app("root", work=1.0), harness.add_app("root", work=9.0)
    harness.ask(short, wants(1, (1.0, 0.0, 0.0), AskType.ALTRUISTIC))
    aligned = harness.ask(long, wants(1, (3.0, 3.0, 3.0), AskType.ALTRUISTIC))
    first = harness.match(node).placements[0]
    assert first.row == aligned.row
    assert dict(first.scores)["alignment"] == pytest.approx(9 / 4)


def test_every_order_conserves_work_and_serves_what_must_run_first() -> None:
    for options in ({"leftover": n} for n in ("srtf", "least_share", "mix", "packing")):
        harness = MatcherHarness("carbyne", options, QueueSpec("root"))
        node = harness.add_node((4.0, 4.0, 4.0))
        for number in range(3):
            app = harness.add_app("root", work=1.0 + number)
            harness.ask(app, wants(1, (1.0, 1.0, 1.0), AskType.ALTRUISTIC))
        must = harness.ask(app, wants(2, (1.0, 1.0, 1.0), AskType.DEFAULT))
        answer = harness.match(node).placements
        assert answer[0].row == must.row
        assert sum(p.copies for p in answer) == 4


def test_a_mix_outside_0_to_1_is_refused() -> None:
    with pytest.raises(InputError, match="leftover_mix"):
        make_matcher("carbyne", {"leftover_mix": 1.5})


def test_jobs_may_count_on_shares_by_the_capacity_of_their_queues() -> None:
    """Three quarters and one, the first divided by its two applications."""
    leaves = (QueueSpec("a", 0.75), QueueSpec("b", 0.25))
    harness = MatcherHarness("carbyne", {}, QueueSpec("root", children=leaves))
    harness.add_node((8.0, 8.0, 8.0))
    slots = [harness.add_app(queue) for queue in ("a", "a", "b")]
    harness.ledger.apps.w["work"][slots] = 1.0
    assert harness.matcher.shares(harness.view, 0.0)[slots, 0] == pytest.approx([3.0, 3.0, 2.0])
