"""COBRA's promises on random job sets in simulation: Theorems 5 and 6, desires, capacities.

Units: a container is 1, so work, allocation and waste are in container-seconds. With a job's tasks
t of need r_k (parts of a container, by resource k) and duration p: work T1 = max_k sum r_k p, span
Tinf = the critical path, theta = min_t max_k r_k. L, rho, delta, tau are the asker's.

Theorem 5: what a job holds over its life, less T1, is at most
((1 + rho - delta) / delta + 2 tau / theta) T1.

Theorem 6 in the stronger form that its proof ends with (the optimum is replaced by its two lower
bounds): the last job ends by 2 / (1 - delta) max_i (Tinf_i + r_i) + ((1 + rho) / delta +
2 tau / theta) sum_i T1_i / |P| + L log_rho |P| + 2 L.

The paper's model knows no delay between a word and its effect, which is prompt pace on a perfect
network. In yarn pace a container is told of, given back and freed at heartbeats of 1 s each.
"""

import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from am.ask.cobra import Cobra
from am.ask.view import HoldView, HoldWish
from sim.cluster import Simulation
from sim.settings import SimSettings
from weft.model.cluster import ClusterSpec, cluster_from_text
from weft.model.ids import app_of_container
from weft.model.job import Edge, Job, Preference, Stage
from weft.policies.presets import preset
from weft.protocol.facts import AppChanged, Closed, Placed, TaskStarted, TaskStopped

MACHINE = {"vcores": 8.0, "memory_mb": 16384.0}
PART = 0.25  # of a machine: the asker's default container
PERIOD_S, RHO, DELTA, TAU = 5.0, 1.5, 0.7, 0.5


def cluster_of(machines: int) -> ClusterSpec:
    return cluster_from_text(f"{machines}x8vcores,16384memory_mb")


def random_jobs(seed: int) -> tuple[list[Job], ClusterSpec]:
    """Jobs of the paper's model: theta <= max_k r_k, r_k <= 1 - delta, preferences, chains."""
    rng = np.random.default_rng([seed, 91])
    machines = int(rng.integers(1, 7))
    theta = float(rng.choice([0.05, 0.1, 0.2]))
    jobs = []
    for number in range(int(rng.integers(1, 9))):
        stages: list[Stage] = []
        for place in range(int(rng.integers(1, 6))):
            main, other = rng.uniform(theta, 1 - DELTA), rng.uniform(0.0, 1 - DELTA)
            need = (main, min(main, other)) if rng.random() < 0.5 else (min(main, other), main)
            parents = tuple(Edge(f"s{p}") for p in range(place) if rng.random() < 0.5)
            near = Preference((f"n{rng.integers(1, machines + 1)}",))
            amounts = zip(MACHINE.items(), need, strict=True)
            demand = {name: PART * amount * r for (name, amount), r in amounts}
            tasks, lasts_s = int(rng.choice([1, 3, 10, 60])), float(rng.choice([0.3, 2, 9, 70]))
            prefer = near if rng.random() < 0.3 else Preference()
            stages.append(Stage(f"s{place}", tasks, lasts_s, demand, parents, prefer=prefer))
        jobs.append(Job(f"j{number}", tuple(stages), arrival_s=float(rng.uniform(0, 60))))
    return sorted(jobs, key=lambda job: job.arrival_s), cluster_of(machines)


def needs(stage: Stage) -> tuple[float, ...]:
    """A task's demand in parts of a container."""
    return tuple(stage.demand[name] / (PART * amount) for name, amount in MACHINE.items())


def work_of(job: Job) -> float:
    """T1, container-seconds."""
    rows = [np.multiply(needs(s), s.tasks * s.duration_s) for s in job.stages]
    return float(np.sum(rows, axis=0).max())


def span_of(job: Job) -> float:
    """Tinf, s."""
    ends: dict[str, float] = {}
    for stage in job.stages:
        start = max((ends[edge.stage] for edge in stage.parents), default=0.0)
        ends[stage.name] = start + stage.duration_s
    return max(ends.values())


def theta_of(jobs: list[Job]) -> float:
    return min(max(needs(stage)) for job in jobs for stage in job.stages)


def waste_factor(theta: float) -> float:
    """Theorem 5's factor on T1."""
    return (1 + RHO - DELTA) / DELTA + 2 * TAU / theta


def latest_end_s(jobs: list[Job], containers: int) -> float:
    """Theorem 6: when the last job must have ended."""
    longest_s = max(span_of(job) + job.arrival_s for job in jobs)
    work = sum(map(work_of, jobs)) / containers
    factor = (1 + RHO) / DELTA + 2 * TAU / theta_of(jobs)
    ramp_s = PERIOD_S * math.log(containers, RHO) + 2 * PERIOD_S
    return 2 / (1 - DELTA) * longest_s + factor * work + ramp_s


@dataclass
class Seen:
    """What the facts of a run say."""

    granted: dict[int, tuple[float, tuple[float, ...]]] = field(default_factory=dict)
    closed: dict[int, float] = field(default_factory=dict)
    used: dict[int, np.ndarray] = field(default_factory=dict)
    demands: dict[tuple[int, int, int, int], tuple[float, ...]] = field(default_factory=dict)
    started: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    together: dict[int, int] = field(default_factory=dict)
    ended_s: dict[int, float] = field(default_factory=dict)

    def note(self, now: float, fact: Any) -> None:
        if isinstance(fact, Placed) and fact.stage >= 0:
            self.granted[fact.container] = (now, fact.demand)
        elif isinstance(fact, Closed):
            self.closed[fact.container] = now
        elif isinstance(fact, AppChanged) and fact.state == "FINISHED":
            self.ended_s[fact.app] = now
        elif isinstance(fact, TaskStarted | TaskStopped) and fact.stage >= 0:
            self._task(fact)

    def _task(self, fact: TaskStarted | TaskStopped) -> None:
        """A container never runs more than it was granted."""
        key = (fact.container, fact.stage, fact.task, fact.attempt)
        _, size = self.granted[fact.container]
        used = self.used.setdefault(fact.container, np.zeros(len(size)))
        if isinstance(fact, TaskStarted):
            self.started[fact.container] += 1
            self.demands[key] = fact.demand
            inside = sum(other[0] == fact.container for other in self.demands)
            self.together[fact.container] = max(inside, self.together.get(fact.container, 0))
            used += fact.demand
            assert (used <= np.multiply(size, 1 + 1e-6) + 1e-9).all(), (fact, used, size)
        else:
            used -= self.demands.pop(key)

    def granted_to(self, app: int) -> int:
        """Containers that an application ever held."""
        return sum(app_of_container(container) == app for container in self.granted)

    def held_s(self, app: int) -> float:
        """Container-seconds that an application held."""
        return sum(
            self.closed[container] - since
            for container, (since, _) in self.granted.items()
            if app_of_container(container) == app
        )


def simulate(seed: int, prompt: bool) -> tuple[list[Job], Simulation, Seen]:
    jobs, cluster = random_jobs(seed)
    settings = SimSettings(
        preset("cobra"),
        seed,
        prompt=prompt,
        checks=True,
        until_s=20_000.0,
        manager={"master_demand": {}},
    )
    simulation, seen = Simulation(cluster, jobs, settings), Seen()
    simulation.watchers.append(seen.note)
    simulation.run()
    assert {row.state for row in simulation.recorder.jobs} == {"FINISHED"}, f"seed {seed}"
    return jobs, simulation, seen


@pytest.fixture(autouse=True)
def desires(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Every desire of every job, each seen to stay in [1, |P|] when it is decided."""
    seen: list[float] = []
    hold = Cobra.hold

    def watched(self: Cobra, view: HoldView, now: float, rng: np.random.Generator) -> HoldWish:
        wish = hold(self, view, now, rng)
        seen.append(self.desire)
        assert 1.0 <= self.desire <= view.pool_max
        assert wish.target <= view.pool_max
        return wish

    monkeypatch.setattr(Cobra, "hold", watched)
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("prompt", [True, False], ids=["prompt", "yarn"])
@pytest.mark.parametrize("seed", range(8))
def test_waste_and_makespan_stay_below_the_bounds(
    seed: int, prompt: bool, desires: list[float]
) -> None:
    jobs, simulation, seen = simulate(seed, prompt)
    assert desires
    for row in simulation.recorder.jobs:
        work = work_of(row.job)
        heartbeats_s = 0.0 if prompt else 3.0 * seen.granted_to(row.app)
        allowed = waste_factor(theta_of([row.job])) * work + heartbeats_s
        assert seen.held_s(row.app) - work <= allowed, f"seed {seed}, {row.job.name}"
    containers = len(simulation.cluster.nodes) * round(1 / PART)
    assert max(seen.ended_s.values()) <= latest_end_s(jobs, containers), f"seed {seed}"


def test_containers_run_many_tasks_and_some_at_the_same_time() -> None:
    """The capacity check has something to check: containers are shared."""
    jobs, _, seen = simulate(2, True)
    assert len(seen.started) < sum(job.task_count for job in jobs)
    assert max(seen.together.values()) > 1


def test_idle_containers_count_as_held_and_are_given_back() -> None:
    """One task lasts on while all other containers of its stage idle: Af lets them go.

    An idle container that is left out of the utilisation makes the job look efficient for ever.
    """
    stages = (
        Stage("wide", 60, 6.0, {"vcores": 2.0, "memory_mb": 1024.0}),
        Stage("thin", 1, 200.0, {"vcores": 1.9, "memory_mb": 1024.0}, (Edge("wide"),)),
    )
    cluster = cluster_of(5)
    settings = SimSettings(preset("cobra"), prompt=True, manager={"master_demand": {}})
    simulation, seen = Simulation(cluster, [Job("j", stages)], settings), Seen()
    simulation.watchers.append(seen.note)
    simulation.run()
    end_s = seen.ended_s[1]
    late = [container for container in seen.granted if seen.closed[container] > end_s - 100.0]
    assert len(seen.granted) > 4
    assert len(late) == 1
    assert seen.held_s(1) < 2 * (60 * 6.0 + 200.0)


def test_no_more_containers_are_asked_for_than_tasks_wait() -> None:
    """Tasks that wait for their node keep one container each idle (Lemma 4), not all that are."""
    stages = (Stage("near", 2, 60.0, {"vcores": 1.8}, prefer=Preference(("elsewhere",))),)
    settings = SimSettings(preset("cobra"), prompt=True, manager={"master_demand": {}})
    simulation, seen = Simulation(cluster_of(6), [Job("j", stages)], settings), Seen()
    simulation.watchers.append(seen.note)
    simulation.run()
    assert len(seen.granted) == 2
