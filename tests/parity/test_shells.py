"""The simulator and the live shells, driven by the same inputs, decide the same, fact by fact."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rm.match.registry import MATCHERS
from sim.cluster import Simulation
from sim.faults import Fault, FaultKind, Faults
from sim.network import LinkSettings
from sim.settings import SimSettings
from weft.model.cluster import ClusterSpec, cluster_from_dict
from weft.model.job import Edge, EdgeKind, Job, Preference, Stage
from weft.model.queues import queues_from_dict
from weft.policies.presets import Preset, preset, with_options
from weft.protocol.facts import AppChanged, Closed, Fact, MasterPlanned, Placed, QueueChanged

Facts = list[tuple[float, Fact]]
LiveRun = Callable[[ClusterSpec, Sequence[Job], SimSettings], Facts]
SAME_S = 1e-6  # heartbeats are phase + n x interval in the simulator, a sum of intervals live
SCHEDULERS: dict[str, Preset] = {name: Preset(name, "bfs", "all_ready") for name in MATCHERS} | {
    name: preset(name) for name in ("graphene", "carbyne", "carbyne_graphene", "tez_g_tetris")
}
# Askers that decide by the clock: never at the instant of a heartbeat, where order is anybody's.
SCHEDULERS["cap"] = with_options(preset("capacity"), {"matcher.carbon": "diurnal:100:400:96"})
SCHEDULERS["pcaps"] = with_options(
    preset("graphene"), {"matcher.carbon": "diurnal:100:400:96", "matcher.carbon_policy": "pcaps"}
)
SCHEDULERS["heft"] = Preset("capacity", "heft", "all_ready")
SCHEDULERS["cobra"] = with_options(preset("cobra"), {"asker.period_s": 4.831})
SCHEDULERS["drs"] = with_options(
    preset("drs"), {"asker.backlog_s": 0.937, "asker.idle_s": 7.713, "asker.wait_s": 2.871}
)
CLUSTER = cluster_from_dict(
    {
        "nodes": [
            {"count": 4, "capacity": {"vcores": 8, "memory_mb": 16384, "disk_mbps": 400}},
            {"count": 2, "capacity": {"vcores": 16, "memory_mb": 32768, "disk_mbps": 400}},
        ],
        "queues": {"root": {"prod": {"capacity": 0.6}, "dev": {"capacity": 0.4}}},
    }
)
# An operator changes the queues while jobs wait and run; never at the instant of a heartbeat.
CHANGES = tuple(
    Fault(at_s, FaultKind.QUEUES, queues=queues_from_dict({"root": below}))
    for at_s, below in (
        (11.313, {"dev": {"capacity": 0.7, "max_capacity": 0.8}, "prod": {"capacity": 0.3}}),
        (33.717, {"prod": {"capacity": 0.5, "user_limit": 0.5}, "dev": {"capacity": 0.5}}),
    )
)
UNLIKE = replace(
    CLUSTER,
    nodes=tuple(
        replace(node, speed=(1.0, 2.3, 0.7)[i % 3]) for i, node in enumerate(CLUSTER.nodes)
    ),
)


def jobs_of(seed: int) -> list[Job]:
    """Jobs of a few stages that queue: random DAGs, wrong estimates, both queues."""
    rng = np.random.default_rng(seed)
    jobs = []
    for number in range(8):
        stages: list[Stage] = []
        for place in range(int(rng.integers(2, 6))):
            duration_s = float(rng.uniform(2, 30))
            parents = tuple(
                Edge(f"s{p}", EdgeKind.ALL_TO_ALL if rng.random() < 0.7 else EdgeKind.ONE_TO_ONE)
                for p in range(place)
                if rng.random() < 0.5
            )
            prefer = Preference(("n1", "n2")) if rng.random() < 0.2 else Preference()
            demand = {
                "vcores": float(rng.integers(1, 5)),
                "memory_mb": float(rng.integers(1, 9) * 512),
                "disk_mbps": float(rng.integers(0, 200)),
            }
            truth_s = duration_s * float(rng.uniform(0.7, 1.3))
            tasks = int(rng.integers(1, 14))
            stages.append(
                Stage(f"s{place}", tasks, duration_s, demand, parents, truth_s, prefer=prefer)
            )
        queue = ("prod", "dev")[number % 2]
        arrival_s = float(rng.uniform(0.5, 40))
        jobs.append(Job(f"job{number}", tuple(stages), queue=queue, arrival_s=arrival_s))
    return sorted(jobs, key=lambda job: job.arrival_s)


def simulated(cluster: ClusterSpec, jobs: Sequence[Job], settings: SimSettings) -> Facts:
    facts: Facts = []
    simulation = Simulation(cluster, jobs, settings)
    simulation.watchers.append(lambda now, fact: facts.append((now, fact)))
    simulation.run()
    return facts


def settings_of(scheduler: Preset, prompt: bool, seed: int) -> SimSettings:
    jitter = Faults(CHANGES, LinkSettings(0.001, 0.02))
    return SimSettings(scheduler, seed, prompt=prompt, faults=jitter)


def decisions(facts: Facts, *kinds: type[Any]) -> list[tuple[float, Any]]:
    return [(now, fact) for now, fact in facts if isinstance(fact, kinds)]


def bare(fact: Any) -> Any:
    """A fact without its scores or measured time, which differ by rounding: they depend on time."""
    if isinstance(fact, Closed):
        return replace(fact, run_s=0.0)
    return replace(fact, scores=()) if isinstance(fact, Placed) else fact


def assert_same(one: list[tuple[float, Any]], other: list[tuple[float, Any]]) -> None:
    for place, ((then, left), (now, right)) in enumerate(zip(one, other, strict=False)):
        assert bare(left) == bare(right), f"decision {place} at {then:g} s"
        assert then == pytest.approx(now, abs=SAME_S), f"decision {place}: {left}"
        if isinstance(left, Closed):
            assert left.run_s == pytest.approx(right.run_s, abs=SAME_S), f"decision {place}: {left}"
        if isinstance(left, Placed):
            ours, theirs = dict(left.scores), dict(right.scores)
            assert ours == pytest.approx(theirs, rel=1e-6, abs=1e-9), f"decision {place}: {left}"
    assert len(one) == len(other)


# In both paces: one of each kind of asker, planner and carbon policy. The others differ in their
# matcher alone, which shells hand nothing but what the simulator does, and take turns.
BOTH = ("capacity", "yarn", "graphene", "carbyne", "cobra", "drs", "heft", "pcaps")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "prompt"),
    [
        pytest.param(name, prompt, id=f"{name}-{pace}")
        for at, name in enumerate(SCHEDULERS)
        for prompt, pace in ((False, "yarn"), (True, "prompt"))
        if name in BOTH or prompt == bool(at % 2)
    ],
)
def test_the_simulator_and_the_live_shells_give_the_same_decision_log(
    name: str, prompt: bool, live_run: LiveRun
) -> None:
    settings, jobs = settings_of(SCHEDULERS[name], prompt, seed=5), jobs_of(5)
    cluster = UNLIKE if name == "heft" else CLUSTER
    one = simulated(cluster, jobs, settings)
    other = live_run(cluster, jobs, settings)
    placed = decisions(one, Placed)
    assert len({fact.node for _, fact in placed}) == len(CLUSTER.nodes)
    assert {fact.state for _, fact in decisions(one, AppChanged)} >= {"FINISHED"}
    assert_same(placed, decisions(other, Placed))
    assert_same(decisions(one, Closed), decisions(other, Closed))
    changed = decisions(one, QueueChanged)
    assert len(changed) == 2 * len(CHANGES)
    assert_same(changed, decisions(other, QueueChanged))
    plans = [
        sorted((fact.attempt, fact.planner, fact.makespan_s) for _, fact in found)
        for found in (decisions(one, MasterPlanned), decisions(other, MasterPlanned))
    ]
    assert plans[0] == plans[1]  # both were told the same machines
