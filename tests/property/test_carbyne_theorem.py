"""Carbyne between jobs: altruism makes no job late (theorem 3.1), and without it, it is DRF."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sim.cluster import Simulation
from sim.settings import SimSettings
from weft.model.cluster import ClusterSpec, cluster_from_dict
from weft.model.job import Edge, EdgeKind, Job, Stage
from weft.policies.presets import Preset, preset
from weft.protocol.facts import Fact, Placed

FEW = settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
DRF_LIKE = Preset(
    "carbyne",
    "bfs",
    "carbyne",
    matcher_options={"packing": False},
    asker_options={"altruism": 0.0},
)


def one_node(slots: float) -> ClusterSpec:
    return cluster_from_dict({"nodes": [{"count": 1, "capacity": {"slots": slots}}]})


def random_jobs(rng: np.random.Generator, count: int, longest_s: float) -> list[Job]:
    jobs = []
    for number in range(count):
        stages = []
        for place in range(int(rng.integers(1, 6))):
            parents = tuple(
                Edge(f"s{p}", EdgeKind.ALL_TO_ALL if rng.random() < 0.6 else EdgeKind.ONE_TO_ONE)
                for p in range(place)
                if rng.random() < 0.5
            )
            demand = {"slots": float(rng.integers(1, 4))}
            lasts_s = float(rng.uniform(0.2, 1.0) * longest_s)
            stages.append(Stage(f"s{place}", int(rng.integers(1, 9)), lasts_s, demand, parents))
        jobs.append(Job(f"job{number}", tuple(stages)))
    return jobs


def jcts(cluster: ClusterSpec, jobs: list[Job], scheduler: Preset) -> list[float]:
    done = Simulation(cluster, jobs, SimSettings(scheduler, prompt=True)).run()
    assert all(row.state == "FINISHED" for row in done.jobs)
    return [row.finish_s for row in done.jobs]


def depth_of(job: Job) -> int:
    depths: list[int] = []
    for stage in job.stages:
        depths.append(
            1 + max((depths[job.index_of(edge.stage)] for edge in stage.parents), default=0)
        )
    return max(depths)


@pytest.mark.slow
@FEW
@given(st.integers(0, 2**32), st.integers(2, 5))
def test_offline_no_job_ends_later_than_alone_in_its_share(seed: int, count: int) -> None:
    """T_k is what the job takes alone with 1/n of the slots, packed by the same rules.

    The theorem's share is fluid. Here tasks are never interrupted: what was lent comes back when
    the borrower's task ends, so each of the job's levels may wait once for one longest task.
    """
    longest_s = 2.0
    jobs = random_jobs(np.random.default_rng(seed), count, longest_s)
    share = 6.0
    found = jcts(one_node(share * count), jobs, preset("carbyne"))
    for job, jct_s in zip(jobs, found, strict=True):
        [alone_s] = jcts(one_node(share), [job], preset("carbyne"))
        assert jct_s <= alone_s + longest_s * depth_of(job) + 1e-6


def test_a_job_without_slack_is_not_put_behind_smaller_ones() -> None:
    """Its six slots are just enough for its 20 s: all its tasks must start as soon as they can.

    The four others have less work, so leftover goes to them first; served before it, as under
    shortest remaining work, it would end after 33 s. Twice it may wait for a task of theirs (1 s).
    """
    one = {"slots": 1.0}
    small = [Job(f"small{i}", (Stage("s", 100, 1.0, one),)) for i in range(4)]
    stages = Stage("a", 6, 10.0, one), Stage("b", 6, 10.0, one, (Edge("a"),))
    found = jcts(one_node(30.0), [*small, Job("tight", stages)], preset("carbyne"))
    assert found[-1] <= 20.0 + 2 * 1.0 + 0.1


@pytest.mark.slow
@pytest.mark.parametrize("prompt", [False, True])
@FEW
@given(st.integers(0, 2**32))
@example(156)  # a master's beat decides when a task starts: left out, it started 0.7 s later
def test_without_altruism_the_decisions_are_those_of_drf(prompt: bool, seed: int) -> None:
    """In prompt pace on one node: which node is looked at first follows the number of messages."""
    rng = np.random.default_rng(seed)
    nodes, scale = (1, 3) if prompt else (3, 1)
    capacity = {"vcores": 8 * scale, "memory_mb": 16384 * scale}
    cluster = cluster_from_dict({"nodes": [{"count": nodes, "capacity": capacity}]})
    jobs = [
        replace(
            job,
            arrival_s=float(rng.uniform(0, 20)),
            stages=tuple(
                replace(
                    stage,
                    demand={
                        "vcores": float(rng.integers(1, 5)),
                        "memory_mb": 512.0 * float(rng.integers(1, 9)),
                    },
                )
                for stage in job.stages
            ),
        )
        for job in random_jobs(rng, 5, 20.0)
    ]
    assert decisions(cluster, jobs, DRF_LIKE, prompt) == decisions(
        cluster, jobs, preset("drf"), prompt
    )


def decisions(
    cluster: ClusterSpec, jobs: list[Job], scheduler: Preset, prompt: bool
) -> list[tuple[float, Fact]]:
    """The decision log without the scores, which each matcher names in its own way."""
    log: list[tuple[float, Fact]] = []

    def note(now: float, fact: Fact) -> None:
        if isinstance(fact, Placed):
            log.append((now, replace(fact, scores=())))

    simulation = Simulation(cluster, jobs, SimSettings(scheduler, prompt=prompt))
    simulation.watchers.append(note)
    simulation.run()
    assert log
    return log
