"""Graphene's own state: eta follows what is decided, deficits follow who could have been served."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rm.match.deficit_kernels import TIME_UNIT_S
from testkit.matching import Yard
from weft.cluster import QueueSpec
from weft.messages import Ask, AskType

PLAIN = {"overbook": "", "kappa": -1}
ONE = (1.0, 512.0, 0.0)
THREE_QUEUES = QueueSpec(
    "root", children=(QueueSpec("a", 0.34), QueueSpec("b", 0.33), QueueSpec("c", 0.33))
)


def ask(
    number: int, total: int, demand: tuple[float, ...] = ONE, pri: float = 1.0, **more: Any
) -> Ask:
    return Ask(number, total, demand, 10.0, pri, AskType.DEFAULT, 0, **more)


def eta_of(yard: Yard, node: int = 0) -> float:
    """The eta that the next decision on a node would use."""
    return dict(yard.match(node).placements[0].scores)["eta"]


def set_work(yard: Yard, work: float) -> None:
    yard.ledger.apps.w["remaining"][: yard.ledger.app_slots] = work


# -- eta -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weight", [0.1, 0.5, 1.0])
def test_eta_is_the_ratio_of_the_means_over_the_decisions_so_far(weight: float) -> None:
    """Mean score over mean work, each a running mean: plain at first, then by `eta_weight`."""
    yard = Yard("graphene", PLAIN | {"eta_m": 2.0, "eta_weight": weight})
    for _ in range(16):
        yard.add_node((4.0, 1024.0, 1.0))
    yard.ask(yard.add_app(), ask(1, 1000, (3.0, 256.0, 0.0)))
    score_of_one = 0.75 + 0.25  # demand x what is free, both over capacity
    scores = works = 0.0
    for node in range(16):
        works_now = float(1 + node % 5)
        set_work(yard, works_now)
        share = max(weight, 1 / (node + 1))
        scores += share * (score_of_one - scores)
        works += share * (works_now - works)
        assert eta_of(yard, node) == pytest.approx(2.0 * scores / works)
        assert eta_of(yard, node) == pytest.approx(2.0 * scores / works), "asking changes nothing"
        yard.beat(node)


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
        yard = Yard("graphene", PLAIN | {"eta_m": 1.0})
        for _ in range(4):
            yard.add_node((8.0, 8192.0, 100.0))
        if before:
            app = yard.add_app("a", work=work)
            yard.ask(app, ask(1, before, demand))
            while yard.ledger.apps.pending[app]:
                for container in [made for node in range(4) for made in yard.beat(node)]:
                    yard.end(container)
        other = yard.add_app("b", work=50.0)
        yard.ask(other, ask(2, 10_000))
        rng = np.random.default_rng(1)
        seen = set()
        for step in range(300):
            yard.now += 1.0
            yard.ledger.apps.w["remaining"][other] = 50.0 + step % 7
            if len(yard.held) >= 16:
                yard.end(int(rng.choice(list(yard.held))))
            for node in range(4):
                if yard.match(node).placements:
                    seen.add(eta_of(yard, node))
                yard.beat(node)
        assert len(seen) > 200, "it moves with every decision"
        assert min(seen) > 0.0, "remaining work always counts"
        last = yard.matcher._eta(1.0)  # type: ignore[attr-defined]
        etas.append(last.score / last.work)
    assert etas[1] == pytest.approx(etas[0], rel=1e-3)


# -- deficits --------------------------------------------------------------------------------------


def crowd(stuck: str, steps: int = 1500) -> tuple[Yard, dict[str, float], dict[str, float]]:
    """Queues b and c fill four nodes (c has much work left); a asks for what cannot be placed.

    Returns the yard, the mean containers held by queue, and the largest deficit by queue.
    """
    yard = Yard("graphene", {"overbook": "", "kappa": 0.1}, THREE_QUEUES)
    for _ in range(4):
        yard.add_node((8.0, 8192.0, 1000.0))
    if stuck == "full label":
        yard.add_node((2.0, 2048.0, 1000.0), label="gpu")
    apps = {name: yard.add_app(name, work=1e6 if name == "c" else 1.0) for name in "abc"}
    if stuck == "too large":
        yard.ask(apps["a"], ask(1, 5, (9.0, 512.0, 0.0)))
    elif stuck == "black list":
        yard.ask(apps["a"], ask(1, 5))
        for node in range(4):
            yard.view.ban(node, apps["a"], True)
    elif stuck:
        yard.ask(apps["a"], ask(1, 5, label="gpu"))
    yard.ask(apps["b"], ask(2, 100_000))
    yard.ask(apps["c"], ask(3, 100_000))
    held = dict.fromkeys("abc", 0.0)
    worst = dict.fromkeys("abc", 0.0)
    rng = np.random.default_rng(1)
    for _ in range(steps):
        churn(yard, rng)
        for name, app in apps.items():
            held[name] += sum(of == app for _, of, _ in yard.held.values()) / steps
            deficit = yard.matcher.deficits(yard.view)[yard.tree.leaf(name)]
            worst[name] = max(worst[name], float(deficit))
    return yard, held, worst


def churn(yard: Yard, rng: np.random.Generator) -> None:
    """One container of b or c ends, every node beats."""
    yard.now += 1.0
    mine = [n for n, (node, _, _) in yard.held.items() if node < 4]
    if len(mine) >= 32:
        yard.end(int(rng.choice(mine)))
    for node in range(yard.ledger.node_count):
        yard.beat(node)


@pytest.mark.parametrize("stuck", ["label", "full label", "too large", "black list"])
def test_a_queue_whose_asks_can_be_placed_nowhere_changes_nothing(stuck: str) -> None:
    """Nobody else's containers change, and it has earned no credit when it can be placed again."""
    _, alone, bound = crowd("")
    yard, held, worst = crowd(stuck)
    for name in "bc":
        assert held[name] == pytest.approx(alone[name], rel=0.05)
        assert worst[name] <= bound[name] + 0.05, "the bound holds for the others"
    assert worst["a"] <= 0.1
    app = 0
    for node in range(4):
        yard.view.ban(node, app, False)
    yard.ask(app, ask(4, 100_000))
    rng, got = np.random.default_rng(2), []
    for _ in range(300):
        churn(yard, rng)
        got.append(sum(of == app and node < 4 for node, of, _ in yard.held.values()))
    assert max(got) <= 0.34 * 32 + 6, "no more than its share and the bound"
    assert np.mean(got[200:]) >= 0.34 * 32 - 6


def test_nobody_is_owed_for_a_node_that_it_could_not_have_used() -> None:
    """Only a may use the labelled node; what it gets there is not taken from the others."""
    yard = Yard("graphene", {"overbook": ""}, THREE_QUEUES)
    yard.add_node((8.0, 8192.0, 1000.0), label="gpu")
    yard.add_node((8.0, 8192.0, 1000.0))
    for number, (name, label) in enumerate((("a", "gpu"), ("b", ""), ("c", "")), 1):
        yard.ask(yard.add_app(name), ask(number, 100, label=label))
    assert len(yard.beat(0)) == 8
    assert not yard.matcher.deficits(yard.view).any()
    yard.beat(1)
    deficits = yard.matcher.deficits(yard.view)
    assert deficits[yard.tree.leaf("a")] == 0.0
    assert deficits.any()


def test_a_queue_that_idles_hands_its_credit_on() -> None:
    """What b was owed goes to who waits still, by share, once nothing of b is pending."""
    yard = Yard("graphene", PLAIN, THREE_QUEUES)
    for _ in range(2):
        yard.add_node((8.0, 8192.0, 1000.0))
    a, b, c = (yard.add_app(name, work=float(i)) for i, name in enumerate("abc"))
    yard.ask(a, ask(1, 100))
    entry = yard.ask(b, ask(2, 1, (8.0, 512.0, 0.0), pri=1e-6))
    yard.ask(c, ask(3, 100))
    yard.end(yard.beat(0)[0])  # 8 for a: b and c are owed
    slots = [yard.tree.leaf(name) for name in "abc"]
    before = yard.matcher.deficits(yard.view)[slots].copy()
    assert before[1] > 0
    yard.rows.close(entry)
    yard.ledger.add_pending(b, -1)
    yard.beat(0)
    after = yard.matcher.deficits(yard.view)[slots]
    assert after[1] == 0.0
    assert after.sum() == pytest.approx(0.0, abs=1e-12)
    one = 1.0 / 16.0
    share = 0.33 / 0.67
    assert after[2] == pytest.approx(before[2] + one * share + before[1] * share)


def test_a_slot_that_is_used_again_does_not_inherit_its_counter() -> None:
    """By application: who leaves hands its counter on, and the next in its slot starts at 0."""
    yard = Yard("graphene", PLAIN | {"group": "app"})
    yard.add_node((8.0, 8192.0, 1000.0))
    counters = lambda: yard.matcher._counters  # type: ignore[attr-defined]  # noqa: E731
    first, second, third = (yard.add_app("a", work=float(n)) for n in range(3))
    for app in (first, second, third):
        yard.ask(app, ask(app + 1, 20))
    made = yard.beat(0)
    owed = counters().copy()
    assert owed[second] == pytest.approx(owed[third])
    assert owed[first] == pytest.approx(-owed[second] - owed[third])
    leave(yard, second)
    assert counters()[second] == 0.0
    assert counters()[first] == pytest.approx(owed[first] + owed[second] / 2)
    assert counters()[third] == pytest.approx(owed[third] + owed[second] / 2)
    for container in made:
        yard.end(container)
    leave(yard, third)
    leave(yard, first)
    assert not counters().any(), "nobody is there that is owed anything"
    assert yard.add_app("b") in (first, second, third)
    assert not counters().any()


def leave(yard: Yard, app: int) -> None:
    for entry in list(yard.rows.entries):
        if entry is not None and entry.app == app:
            yard.ledger.add_pending(app, -entry.pending)
            yard.rows.close(entry)
    for number in [n for n, (_, of, _) in yard.held.items() if of == app]:
        yard.end(number)
    yard.matcher.app_left(yard.view, app, yard.now)
    yard.ledger.close_app(app)


@pytest.mark.parametrize(
    ("unit", "factor"), [("slots", 1.0), ("drf", 1 / 8), ("time", 1 / 8 * 10.0 / TIME_UNIT_S)]
)
def test_a_container_counts_in_the_unit_of_the_deficits(unit: str, factor: float) -> None:
    """1, its dominant demand over C, or that x its duration: half of it is owed to the other."""
    yard = Yard("graphene", PLAIN | {"deficit_unit": unit})
    yard.add_node((8.0, 8192.0, 1000.0))
    a, b = yard.add_app("a", work=1.0), yard.add_app("b", work=9.0)
    yard.ask(a, ask(1, 1))
    yard.ask(b, ask(2, 1, (8.0, 1.0, 0.0), pri=1e-6))
    assert len(yard.beat(0)) == 1
    deficits = yard.matcher.deficits(yard.view)
    assert deficits[yard.tree.leaf("b")] == pytest.approx(factor / 2)
    assert deficits[yard.tree.leaf("a")] == pytest.approx(-factor / 2)


# -- overbooking and bundles -----------------------------------------------------------------------

NETWORK = (1.0, 256.0, 600.0)  # two of these are more than a node's network, within 1.25 of it


def busy_network(**options: object) -> Yard:
    """Two nodes whose network a long task each takes the better part of."""
    chosen: dict[str, Any] = {"overbook": "network_mbps", "kappa": -1, "eta_m": 0} | options
    yard = Yard("graphene", chosen)
    app = yard.add_app()
    for number in (1, 2):
        yard.add_node((8.0, 8192.0, 1000.0))
        yard.ask(app, replace(ask(number, 1, NETWORK), duration_s=1000.0))
        yard.beat(number - 1)
    assert len(yard.held) == 2
    return yard


def test_one_container_a_decision_is_overbooked_where_waiting_would_cost_more() -> None:
    """A short task beside a long one: two want in, one is let in and says so."""
    yard = busy_network()
    yard.ask(yard.add_app(), ask(3, 2, NETWORK))
    answer = yard.match(0)
    assert [(p.copies, p.overbooked) for p in answer.placements] == [(1, True)]
    assert dict(answer.placements[0].scores)["overbook"] > 0
    assert not answer.settled, "what it was worth changes with time"


def test_overbooking_looks_at_the_most_preferred_asks() -> None:
    """With room for one what-if, the ask with the largest priScore is the one."""
    for order in ((0.2, 0.9, 0.5), (0.9, 0.5, 0.2), (0.2, 0.5, 0.9)):
        yard = busy_network(overbook_rows=1)
        app = yard.add_app()
        rows = {
            pri: yard.ask(app, ask(number, 1, NETWORK, pri=pri)).row
            for number, pri in enumerate(order, 3)
        }
        assert [p.row for p in yard.match(0).placements] == [rows[0.9]], order


def test_equally_preferred_asks_are_looked_at_in_the_order_of_asking() -> None:
    yard = busy_network(overbook_rows=2)
    app = yard.add_app()
    rows = [yard.ask(app, ask(number, 1, NETWORK)).row for number in (3, 4, 5)]
    assert [p.row for p in yard.match(0).placements] == rows[:1]


def test_a_bundle_of_one_pick_is_asked_again_until_the_node_is_full() -> None:
    """`bundle_pick=one` grants one a decision, and the node is not settled with that."""
    yard = Yard("graphene", PLAIN | {"bundle_pick": "one"})
    yard.add_node((4.0, 8192.0, 100.0))
    yard.ask(yard.add_app(), ask(1, 9))
    for _ in range(4):
        answer = yard.match(0)
        assert not answer.settled
        assert len(yard.place(0, answer)) == 1
    assert not yard.match(0).placements


# -- Carbyne's leftover and shares -----------------------------------------------------------------


@pytest.mark.parametrize(("leftover", "first"), [("srtf", "small"), ("packing", "aligned")])
def test_the_leftover_goes_by_the_chosen_order(leftover: str, first: str) -> None:
    """ALTRUISTIC asks after the others: shortest remaining work, or the best aligned task."""
    yard = Yard("carbyne", {"leftover": leftover})
    yard.add_node((8.0, 8192.0, 1000.0))
    apps = {"must": yard.add_app(work=9.0), "small": yard.add_app(work=1.0)}
    apps["aligned"] = yard.add_app(work=5.0)
    spare = {"kind": AskType.ALTRUISTIC}
    yard.ask(apps["must"], ask(1, 4))
    yard.ask(apps["small"], replace(ask(2, 1, (3.0, 1.0, 0.0)), **spare))
    yard.ask(apps["aligned"], replace(ask(3, 1, (4.0, 4096.0, 100.0)), **spare))
    rows = [(p.row, p.copies) for p in yard.match(0).placements]
    where = {"small": 1, "aligned": 2}[first]
    assert rows == [(0, 4), (where, 1)]


def test_shares_go_by_declared_work_however_little_it_is() -> None:
    """Half a unit of work in one direction is not the same as none declared."""
    from rm.match.dominant import entitlements_of

    yard = Yard("carbyne", {}, QueueSpec("root", children=(QueueSpec("a"),)))
    yard.add_node((8.0, 8000.0, 1000.0))
    for work in ((0.5, 0.0, 0.0), (0.0, 0.5, 0.0)):
        app = yard.add_app()
        yard.ledger.apps.w["work"][app] = work
    shares = entitlements_of(yard.view)
    assert shares[0] == pytest.approx([8.0, 0.0, 0.0])
    assert shares[1] == pytest.approx([0.0, 8000.0, 0.0])
