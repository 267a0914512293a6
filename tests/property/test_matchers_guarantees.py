"""What an owner configures holds under every matcher: limits, guarantees, bounded waits."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rm.match.registry import MATCHERS
from sim.cluster import Simulation
from sim.recorder import Recorder
from sim.settings import SimSettings
from testkit.matching import VIEWING, MatcherHarness
from weft.model.cluster import ClusterSpec, NodeSpec
from weft.model.job import Job, Stage
from weft.model.queues import QueueSpec
from weft.model.resources import DEFAULT_RESOURCE_TYPES
from weft.policies.presets import preset, with_options
from weft.protocol.messages import Ask, AskType

every_matcher = pytest.mark.parametrize("name", VIEWING)
QUICK = settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
HALVES = (QueueSpec("a", 0.5), QueueSpec("b", 0.5))
CAPACITY = (8.0, 8192.0, 1000.0)
SMALL = (1.0, 512.0, 0.0)


def wants(number: int, total: int, demand: tuple[float, ...] = SMALL, pri: float = 1.0) -> Ask:
    return Ask(number, total, demand, 10.0, pri, AskType.DEFAULT, 0)


def churn(
    harness: MatcherHarness, steps: int, seed: int, look: Callable[[], None], nodes: int, size: int
) -> None:
    """Containers end at random, one a step once `size` run; every node beats."""
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        harness.now += 1.0
        if len(harness.held) >= size:
            harness.end(int(rng.choice(list(harness.held))))
        for node in range(nodes):
            harness.beat(node)
        look()


# -- guarantees ------------------------------------------------------------------------------------


@every_matcher
def test_a_queue_does_not_lose_its_share_to_its_own_idle_applications(name: str) -> None:
    """One application against ten, nine of which ask for nothing: both queues hold a half."""
    harness = MatcherHarness(name, {}, QueueSpec("root", children=HALVES))
    for _ in range(5):
        harness.add_node(CAPACITY)
    alone = harness.add_app("a", work=1e5)
    crowd = [harness.add_app("b", work=1e5) for _ in range(10)]
    harness.ask(alone, wants(1, 100_000))
    harness.ask(crowd[0], wants(2, 100_000))
    held: list[tuple[int, int]] = []

    def look() -> None:
        of = [app for _, app, _ in harness.held.values()]
        held.append((of.count(alone), of.count(crowd[0])))

    churn(harness, 800, 1, look, 5, 40)
    a, b = np.mean(held[200:], axis=0)
    assert a + b == pytest.approx(40, abs=1.5)
    assert a == pytest.approx(b, rel=0.10)


@pytest.mark.parametrize("name", ["capacity", "fair", "drf", "carbyne", "fifo", "sjf", "tetris"])
def test_queues_hold_what_they_are_guaranteed_at_every_level(name: str) -> None:
    """0.6 x (0.75, 0.25) and 0.4: containers go 18 : 6 : 16; a sibling gets what one leaves."""
    above = QueueSpec("ab", 0.6, children=(QueueSpec("a", 0.75), QueueSpec("b", 0.25)))
    for busy, wanted in (("abc", (18, 6, 16)), ("ac", (24, 0, 16)), ("bc", (0, 24, 16))):
        harness = MatcherHarness(name, {}, QueueSpec("root", children=(above, QueueSpec("c", 0.4))))
        for _ in range(5):
            harness.add_node(CAPACITY)
        apps = {queue: harness.add_app(queue, work=10.0 + ord(queue)) for queue in "abc"}
        for number, queue in enumerate(busy, 1):
            harness.ask(apps[queue], wants(number, 10_000))
        for node in range(5):
            harness.beat(node)
        of = [app for _, app, _ in harness.held.values()]
        found = [of.count(apps[queue]) for queue in "abc"]
        assert np.abs(np.subtract(found, wanted)).max() <= 1, (busy, found)


# -- limits ----------------------------------------------------------------------------------------


@st.composite
def trees(draw: st.DrawFn) -> QueueSpec:
    """Two levels with random guarantees, maxima and limits of users."""

    def queue(name: str, share: float, *below: QueueSpec) -> QueueSpec:
        most = draw(st.sampled_from([share, min(1.0, share + 0.2), 1.0]))
        part = draw(st.sampled_from([1.0, 0.5, 0.25]))
        factor = draw(st.sampled_from([np.inf, 0.5, 1.0, 2.0]))
        return QueueSpec(name, share, most, part, float(factor), children=below)

    cut, inner = draw(st.sampled_from([0.3, 0.5])), draw(st.sampled_from([0.25, 0.5]))
    below = queue("a", inner), queue("b", 1 - inner)
    return QueueSpec("root", children=(queue("ab", cut, *below), queue("c", 1 - cut)))


def over_a_limit(harness: MatcherHarness) -> str:
    """The first limit that holdings pass, counted anew from the containers; "" where none does.

    A user passes his by one container at most, and a queue with one container may pass its own.
    """
    tree, total = harness.tree, harness.view.total
    held = np.zeros((len(tree), len(total)))
    by_user: dict[int, Any] = {}
    largest: dict[int, Any] = {}
    for _, app, demand in harness.held.values():
        user = int(harness.ledger.apps.user[app])
        by_user[user] = by_user.get(user, 0.0) + demand / total
        largest[user] = np.maximum(largest.get(user, 0.0), demand / total)
        for queue in tree.chains[int(harness.ledger.apps.queue[app])]:
            held[queue] += demand / total
    for queue, path in enumerate(tree.paths):
        alone = harness.ledger.by_queue.containers[queue] <= 1
        if (
            tree.max_capacity[queue] < 1
            and not alone
            and held[queue].max() > tree.max_capacity[queue] + 1e-6
        ):
            return f"{path} holds {held[queue].max():.3f} of {tree.max_capacity[queue]:.3f}"
    for user, share in by_user.items():
        queue = int(harness.ledger.users.queue[user])
        most = tree.capacity[queue] * tree.user_limit_factor[queue]
        if (share - largest[user]).max() > most + 1e-6:
            return f"a user of {tree.paths[queue]} holds {share.max():.3f}, more than {most:.3f}"
    return ""


@pytest.mark.slow
@every_matcher
@QUICK
@given(tree=trees(), seed=st.integers(0, 99))
def test_no_queue_and_no_user_passes_a_limit(name: str, tree: QueueSpec, seed: int) -> None:
    """Whatever the policy prefers, and with several placements in one decision."""
    rng = np.random.default_rng(seed)
    harness = MatcherHarness(name, {}, tree)
    for _ in range(3):
        harness.add_node(CAPACITY)
    apps = [harness.add_app("abc"[i % 3], f"u{i % 2}", float(rng.uniform(1, 50))) for i in range(6)]
    for number, app in enumerate(apps, 1):
        demand = (float(rng.choice([0.5, 1.0, 3.0])), float(rng.choice([256.0, 2048.0])), 10.0)
        harness.ask(
            app, wants(number, int(rng.integers(1, 40)), demand, float(rng.uniform(0.1, 1)))
        )

    def look() -> None:
        assert not over_a_limit(harness)

    churn(harness, 40, seed, look, 3, 12)
    assert harness.held


@every_matcher
def test_a_queue_at_its_maximum_leaves_the_rest_to_others(name: str) -> None:
    """The limit holds back its own asks only, whoever comes first."""
    capped = QueueSpec("a", 0.5, max_capacity=0.5), QueueSpec("b", 0.5)
    harness = MatcherHarness(name, {}, QueueSpec("root", children=capped))
    harness.add_node(CAPACITY)
    first, other = harness.add_app("a", work=1.0), harness.add_app("b", work=9.0)
    harness.ask(first, wants(1, 100))
    assert len(harness.beat(0)) == 4
    harness.ask(other, wants(2, 100, pri=0.01))
    assert len(harness.beat(0)) == 4
    assert [app for _, app, _ in harness.held.values()].count(first) == 4


# -- bounded waits ---------------------------------------------------------------------------------

TASK_S = 10.0
NODE = (8.0, 8192.0, 100.0, 100.0)


def crowded(preset_name: str, queue: str, arrivals: str) -> float:
    """How long a task of 7/8 of a node waits that comes at 30 s beside a stream of small tasks."""
    rng = np.random.default_rng(0)
    need = {"vcores": 1.0, "memory_mb": 1024.0}

    def small(name: str, count: int, at_s: float) -> Job:
        lasts = tuple(float(x) for x in rng.uniform(7, 13, count))
        stage = Stage("s", count, TASK_S, need, actual_duration_s=lasts)
        return Job(name, (stage,), queue=queue, arrival_s=at_s)

    if arrivals == "one job before":
        jobs = [small("stream", 400, 0.0)]
    elif arrivals == "two jobs before":
        jobs = [small("stream", 400, 0.0), small("second", 400, 1.0)]
    else:
        jobs = [small(f"s{i}", 32, i * TASK_S) for i in range(10)]
    stage = Stage("w", 1, TASK_S, {"vcores": 7.0, "memory_mb": 7168.0})
    big = Job("big", (stage,), queue="a", arrival_s=30.0)
    nodes = tuple(NodeSpec(f"n{i}", NODE) for i in range(4))
    cluster = ClusterSpec(DEFAULT_RESOURCE_TYPES, nodes, QueueSpec("root", children=HALVES))
    recorder = Recorder()
    Simulation(cluster, [*jobs, big], SimSettings(preset(preset_name), seed=1), recorder).run()
    row = next(r for r in recorder.jobs if r.job.name == "big")
    assert row.finish_s is not None
    return row.finish_s - 30.0 - TASK_S


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fifo", "capacity", "fair", "drf", "sjf", "tetris", "graphene"])
@pytest.mark.parametrize(
    ("queue", "arrivals"),
    [("b", "one job before"), ("a", "one job before"), ("a", "two jobs before"), ("a", "a stream")],
)
def test_a_large_task_waits_three_mean_task_times_at_most(
    name: str, queue: str, arrivals: str
) -> None:
    """Beside another queue and in its own; only a strict line makes it wait for those before it."""
    if name == "fifo" and arrivals != "a stream" and queue == "a":
        pytest.skip("a strict line serves the job before it first")
    assert crowded(name, queue, arrivals) <= 3 * TASK_S


@pytest.mark.slow
def test_a_large_task_waits_three_mean_task_times_at_most_under_carbyne() -> None:
    """The same with masters that yield."""
    assert max(crowded("carbyne", queue, "a stream") for queue in "ab") <= 3 * TASK_S


# -- settings --------------------------------------------------------------------------------------


def extremes(name: str) -> list[dict[str, Any]]:
    """Every parameter at each end of what it allows, and every choice, one at a time."""
    found: list[dict[str, Any]] = []
    for key, known in MATCHERS[name].parameters.items():
        if isinstance(known.default, bool):
            found += [{key: True}, {key: False}]
        elif isinstance(known.default, str):
            texts = known.choices or ("", "network_mbps", "vcores,memory_mb,disk_mbps,network_mbps")
            found += [{key: text} for text in texts]
        else:
            most = 2**31 - 1 if isinstance(known.default, int) else 1e300
            found += [{key: max(known.low, -1e300)}, {key: min(known.high, most)}]
    return found


@pytest.mark.slow
@every_matcher
def test_whatever_a_setting_allows_fails_no_core(name: str) -> None:
    """With every checker on, on nodes where a container is most of a divisible resource."""
    cluster = ClusterSpec(
        DEFAULT_RESOURCE_TYPES,
        tuple(NodeSpec(f"n{i}", (16.0, 65536.0, 800.0, 1000.0)) for i in range(2)),
    )
    stage = Stage("a", 12, 20.0, {"vcores": 1, "memory_mb": 256, "network_mbps": 700})
    for chosen in ({}, *extremes(name), {"overbook_limit": 1.5} if name == "graphene" else {}):
        options = {f"matcher.{key}": value for key, value in chosen.items()}
        job = Job("j", (stage,))
        simulation = Simulation(
            cluster, [job], SimSettings(with_options(preset(name), options), checks=True)
        )
        simulation.run()
        assert simulation.recorder.jobs[0].state == "FINISHED", chosen
