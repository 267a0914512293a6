"""Graphene's own state: eta follows what is decided, deficits follow who could have been served."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rm.match.deficit_kernels import TIME_UNIT_S
from testkit.matching import MatcherHarness
from weft.model.queues import QueueSpec
from weft.protocol.messages import Ask, AskType

PLAIN = {"overbook": "", "kappa": -1}
ONE = (1.0, 512.0, 0.0)
THREE_QUEUES = QueueSpec(
    "root", children=(QueueSpec("a", 0.34), QueueSpec("b", 0.33), QueueSpec("c", 0.33))
)


def ask(
    number: int, total: int, demand: tuple[float, ...] = ONE, pri: float = 1.0, **more: Any
) -> Ask:
    return Ask(number, total, demand, 10.0, pri, AskType.DEFAULT, 0, **more)


def eta_of(harness: MatcherHarness, node: int = 0) -> float:
    """The eta that the next decision on a node would use."""
    return dict(harness.match(node).placements[0].scores)["eta"]


def set_work(harness: MatcherHarness, work: float) -> None:
    harness.ledger.apps.w["remaining"][: harness.ledger.app_slots] = work


# -- eta -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weight", [0.1, 0.5, 1.0])
def test_eta_is_the_ratio_of_the_means_over_the_decisions_so_far(
    weight: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mean score over mean work, each a running mean: plain at first, then by `ETA_WEIGHT`."""
    monkeypatch.setattr("rm.match.graphene.ETA_WEIGHT", weight)
    harness = MatcherHarness("graphene", PLAIN | {"eta_m": 2.0})
    for _ in range(16):
        harness.add_node((4.0, 1024.0, 1.0))
    harness.ask(harness.add_app(), ask(1, 1000, (3.0, 256.0, 0.0)))
    score_of_one = 0.75 + 0.25  # demand x what is free, both over capacity
    scores = works = 0.0
    for node in range(16):
        works_now = float(1 + node % 5)
        set_work(harness, works_now)
        share = max(weight, 1 / (node + 1))
        scores += share * (score_of_one - scores)
        works += share * (works_now - works)
        assert eta_of(harness, node) == pytest.approx(2.0 * scores / works)
        assert eta_of(harness, node) == pytest.approx(2.0 * scores / works), (
            "asking changes nothing"
        )
        harness.beat(node)


FIRST_JOBS = {
    "nothing": (0, ONE, 1.0),
    "tiny": (1, ONE, 1e-3),
    "huge": (64, ONE, 1e6),
    "without demand": (1, (0.0, 0.0, 0.0), 0.0),
    "without declared work": (5, ONE, 0.0),
}


@pytest.mark.parametrize("first", list(FIRST_JOBS))
def test_the_first_job_leaves_no_trace_in_eta(first: str) -> None:
    """Whatever came first, the same jobs after it are scored with the same eta in the end."""
    tasks, demand, work = FIRST_JOBS[first]
    etas = []
    for before in (0, tasks):
        harness = MatcherHarness("graphene", PLAIN | {"eta_m": 1.0})
        for _ in range(4):
            harness.add_node((8.0, 8192.0, 100.0))
        if before:
            app = harness.add_app("a", work=work)
            harness.ask(app, ask(1, before, demand))
            while harness.ledger.apps.pending[app]:
                for container in [made for node in range(4) for made in harness.beat(node)]:
                    harness.end(container)
        other = harness.add_app("b", work=50.0)
        harness.ask(other, ask(2, 10_000))
        rng = np.random.default_rng(1)
        seen = set()
        for step in range(300):
            harness.now += 1.0
            harness.ledger.apps.w["remaining"][other] = 50.0 + step % 7
            if len(harness.held) >= 16:
                harness.end(int(rng.choice(list(harness.held))))
            for node in range(4):
                if harness.match(node).placements:
                    seen.add(eta_of(harness, node))
                harness.beat(node)
        assert len(seen) > 200, "it moves with every decision"
        assert min(seen) > 0.0, "remaining work always counts"
        score, work, _ = harness.matcher._means  # type: ignore[attr-defined]
        etas.append(score / work)
    assert etas[1] == pytest.approx(etas[0], rel=1e-3)


# -- deficits --------------------------------------------------------------------------------------


def crowd(
    stuck: str, steps: int = 1500
) -> tuple[MatcherHarness, dict[str, float], dict[str, float]]:
    """Queues b and c fill four nodes (c has much work left); a asks for what cannot be placed.

    Returns the harness, the mean containers held by queue, and the largest deficit by queue.
    """
    harness = MatcherHarness("graphene", {"overbook": "", "kappa": 0.1}, THREE_QUEUES)
    for _ in range(4):
        harness.add_node((8.0, 8192.0, 1000.0))
    if stuck == "full label":
        harness.add_node((2.0, 2048.0, 1000.0), label="gpu")
    apps = {name: harness.add_app(name, work=1e6 if name == "c" else 1.0) for name in "abc"}
    if stuck == "too large":
        harness.ask(apps["a"], ask(1, 5, (9.0, 512.0, 0.0)))
    elif stuck == "black list":
        harness.ask(apps["a"], ask(1, 5))
        for node in range(4):
            harness.view.ban(node, apps["a"], True)
    elif stuck:
        harness.ask(apps["a"], ask(1, 5, label="gpu"))
    harness.ask(apps["b"], ask(2, 100_000))
    harness.ask(apps["c"], ask(3, 100_000))
    held = dict.fromkeys("abc", 0.0)
    worst = dict.fromkeys("abc", 0.0)
    rng = np.random.default_rng(1)
    for _ in range(steps):
        churn(harness, rng)
        for name, app in apps.items():
            held[name] += sum(of == app for _, of, _ in harness.held.values()) / steps
            deficit = harness.matcher.deficits(harness.view)[harness.tree.leaf(name)]
            worst[name] = max(worst[name], float(deficit))
    return harness, held, worst


def churn(harness: MatcherHarness, rng: np.random.Generator) -> None:
    """One container of b or c ends, every node beats."""
    harness.now += 1.0
    mine = [n for n, (node, _, _) in harness.held.items() if node < 4]
    if len(mine) >= 32:
        harness.end(int(rng.choice(mine)))
    for node in range(harness.ledger.node_count):
        harness.beat(node)


@pytest.mark.parametrize("stuck", ["label", "full label", "too large", "black list"])
def test_a_queue_whose_asks_can_be_placed_nowhere_changes_nothing(stuck: str) -> None:
    """Nobody else's containers change, and it has earned no credit when it can be placed again."""
    _, alone, bound = crowd("")
    harness, held, worst = crowd(stuck)
    for name in "bc":
        assert held[name] == pytest.approx(alone[name], rel=0.05)
        assert worst[name] <= bound[name] + 0.05, "the bound holds for the others"
    assert worst["a"] <= 0.1
    app = 0
    for node in range(4):
        harness.view.ban(node, app, False)
    harness.ask(app, ask(4, 100_000))
    rng, got = np.random.default_rng(2), []
    for _ in range(300):
        churn(harness, rng)
        got.append(sum(of == app and node < 4 for node, of, _ in harness.held.values()))
    assert max(got) <= 0.34 * 32 + 6, "no more than its share and the bound"
    assert np.mean(got[200:]) >= 0.34 * 32 - 6


def test_nobody_is_owed_for_a_node_that_it_could_not_have_used() -> None:
    """Only a may use the labelled node; what it gets there is not taken from the others."""
    harness = MatcherHarness("graphene", {"overbook": ""}, THREE_QUEUES)
    harness.add_node((8.0, 8192.0, 1000.0), label="gpu")
    harness.add_node((8.0, 8192.0, 1000.0))
    for number, (name, label) in enumerate((("a", "gpu"), ("b", ""), ("c", "")), 1):
        harness.ask(harness.add_app(name), ask(number, 100, label=label))
    assert len(harness.beat(0)) == 8
    assert not harness.matcher.deficits(harness.view).any()
    harness.beat(1)
    deficits = harness.matcher.deficits(harness.view)
    assert deficits[harness.tree.leaf("a")] == 0.0
    assert deficits.any()


def test_a_queue_that_idles_hands_its_credit_on() -> None:
    """What b was owed goes to who waits still, by share, once nothing of b is pending."""
    harness = MatcherHarness("graphene", PLAIN, THREE_QUEUES)
    for _ in range(2):
        harness.add_node((8.0, 8192.0, 1000.0))
    a, b, c = (harness.add_app(name, work=float(i)) for i, name in enumerate("abc"))
    harness.ask(a, ask(1, 100))
    entry = harness.ask(b, ask(2, 1, (8.0, 512.0, 0.0), pri=1e-6))
    harness.ask(c, ask(3, 100))
    harness.end(harness.beat(0)[0])  # 8 for a: b and c are owed
    slots = [harness.tree.leaf(name) for name in "abc"]
    before = harness.matcher.deficits(harness.view)[slots].copy()
    assert before[1] > 0
    harness.rows.close(entry)
    harness.ledger.add_pending(b, -1)
    harness.beat(0)
    after = harness.matcher.deficits(harness.view)[slots]
    assert after[1] == 0.0
    assert after.sum() == pytest.approx(0.0, abs=1e-12)
    one = 1.0 / 16.0
    share = 0.33 / 0.67
    assert after[2] == pytest.approx(before[2] + one * share + before[1] * share)


def test_a_slot_that_is_used_again_does_not_inherit_its_counter() -> None:
    """By application: who leaves hands its counter on, and the next in its slot starts at 0."""
    harness = MatcherHarness("graphene", PLAIN | {"group": "app"})
    harness.add_node((8.0, 8192.0, 1000.0))
    counters = lambda: harness.matcher._counters  # type: ignore[attr-defined]  # noqa: E731
    first, second, third = (harness.add_app("a", work=float(n)) for n in range(3))
    for app in (first, second, third):
        harness.ask(app, ask(app + 1, 20))
    made = harness.beat(0)
    owed = counters().copy()
    assert owed[second] == pytest.approx(owed[third])
    assert owed[first] == pytest.approx(-owed[second] - owed[third])
    leave(harness, second)
    assert counters()[second] == 0.0
    assert counters()[first] == pytest.approx(owed[first] + owed[second] / 2)
    assert counters()[third] == pytest.approx(owed[third] + owed[second] / 2)
    for container in made:
        harness.end(container)
    leave(harness, third)
    leave(harness, first)
    assert not counters().any(), "nobody is there that is owed anything"
    assert harness.add_app("b") in (first, second, third)
    assert not counters().any()


def leave(harness: MatcherHarness, app: int) -> None:
    for entry in list(harness.rows.entries):
        if entry is not None and entry.app == app:
            harness.ledger.add_pending(app, -entry.pending)
            harness.rows.close(entry)
    for number in [n for n, (_, of, _) in harness.held.items() if of == app]:
        harness.end(number)
    harness.matcher.app_left(harness.view, app, harness.now)
    harness.ledger.close_app(app)


@pytest.mark.parametrize(
    ("unit", "factor"), [("slots", 1.0), ("drf", 1 / 8), ("time", 1 / 8 * 10.0 / TIME_UNIT_S)]
)
def test_a_container_counts_in_the_unit_of_the_deficits(unit: str, factor: float) -> None:
    """1, its dominant demand over C, or that x its duration: half of it is owed to the other."""
    harness = MatcherHarness("graphene", PLAIN | {"deficit_unit": unit})
    harness.add_node((8.0, 8192.0, 1000.0))
    a, b = harness.add_app("a", work=1.0), harness.add_app("b", work=9.0)
    harness.ask(a, ask(1, 1))
    harness.ask(b, ask(2, 1, (8.0, 1.0, 0.0), pri=1e-6))
    assert len(harness.beat(0)) == 1
    deficits = harness.matcher.deficits(harness.view)
    assert deficits[harness.tree.leaf("b")] == pytest.approx(factor / 2)
    assert deficits[harness.tree.leaf("a")] == pytest.approx(-factor / 2)


# -- overbooking and bundles -----------------------------------------------------------------------

NETWORK = (1.0, 256.0, 600.0)  # two of these are more than a node's network, within 1.25 of it


def busy_network(**options: object) -> MatcherHarness:
    """Two nodes whose network a long task each takes the better part of."""
    chosen: dict[str, Any] = {"overbook": "network_mbps", "kappa": -1, "eta_m": 0} | options
    harness = MatcherHarness("graphene", chosen)
    app = harness.add_app()
    for number in (1, 2):
        harness.add_node((8.0, 8192.0, 1000.0))
        harness.ask(app, replace(ask(number, 1, NETWORK), duration_s=1000.0))
        harness.beat(number - 1)
    assert len(harness.held) == 2
    return harness


def test_one_container_a_decision_is_overbooked_where_waiting_would_cost_more() -> None:
    """A short task beside a long one: two want in, one is let in and says so."""
    harness = busy_network()
    harness.ask(harness.add_app(), ask(3, 2, NETWORK))
    answer = harness.match(0)
    assert [(p.copies, p.overbooked) for p in answer.placements] == [(1, True)]
    assert dict(answer.placements[0].scores)["overbook"] > 0
    assert not answer.settled, "what it was worth changes with time"


def test_overbooking_looks_at_the_most_preferred_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for one what-if, the ask with the largest priScore is the one."""
    monkeypatch.setattr("rm.match.graphene.OVERBOOK_ROWS", 1)
    for order in ((0.2, 0.9, 0.5), (0.9, 0.5, 0.2), (0.2, 0.5, 0.9)):
        harness = busy_network()
        app = harness.add_app()
        rows = {
            pri: harness.ask(app, ask(number, 1, NETWORK, pri=pri)).row
            for number, pri in enumerate(order, 3)
        }
        assert [p.row for p in harness.match(0).placements] == [rows[0.9]], order


def test_equally_preferred_asks_are_looked_at_in_the_order_of_asking(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rm.match.graphene.OVERBOOK_ROWS", 2)
    harness = busy_network()
    app = harness.add_app()
    rows = [harness.ask(app, ask(number, 1, NETWORK)).row for number in (3, 4, 5)]
    assert [p.row for p in harness.match(0).placements] == rows[:1]


# -- Carbyne's leftover and shares -----------------------------------------------------------------


@pytest.mark.parametrize(("leftover", "first"), [("srtf", "small"), ("packing", "aligned")])
def test_the_leftover_goes_by_the_chosen_order(leftover: str, first: str) -> None:
    """ALTRUISTIC asks after the others: shortest remaining work, or the best aligned task."""
    harness = MatcherHarness("carbyne", {"leftover": leftover})
    harness.add_node((8.0, 8192.0, 1000.0))
    apps = {"must": harness.add_app(work=9.0), "small": harness.add_app(work=1.0)}
    apps["aligned"] = harness.add_app(work=5.0)
    spare = {"kind": AskType.ALTRUISTIC}
    harness.ask(apps["must"], ask(1, 4))
    harness.ask(apps["small"], replace(ask(2, 1, (3.0, 1.0, 0.0)), **spare))
    harness.ask(apps["aligned"], replace(ask(3, 1, (4.0, 4096.0, 100.0)), **spare))
    rows = [(p.row, p.copies) for p in harness.match(0).placements]
    where = {"small": 1, "aligned": 2}[first]
    assert rows == [(0, 4), (where, 1)]


def test_shares_go_by_declared_work_however_little_it_is() -> None:
    """Half a unit of work in one direction is not the same as none declared."""
    from rm.match.dominant import entitlements_of

    harness = MatcherHarness("carbyne", {}, QueueSpec("root", children=(QueueSpec("a"),)))
    harness.add_node((8.0, 8000.0, 1000.0))
    for work in ((0.5, 0.0, 0.0), (0.0, 0.5, 0.0)):
        app = harness.add_app()
        harness.ledger.apps.w["work"][app] = work
    shares = entitlements_of(harness.view)
    assert shares[0] == pytest.approx([8.0, 0.0, 0.0])
    assert shares[1] == pytest.approx([0.0, 8000.0, 0.0])
