"""Tests that every policy must pass, for policies of other packages.

    pytest -p lab.policy_options --pyargs lab.policy_tests --weft-matcher my_package:Mine

runs Weft's own checks over a policy in the simulator: capacity, precedence, limits of queues,
gangs, faults, the same answer to the same question. `--weft-planner`, `--weft-asker` and
`--weft-importer` (with `--weft-source FILE`) choose the others; each may be repeated.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from am.plan.bounds.bounds import bounds_of
from am.plan.registry import PlanRequest, planner
from am.plan.validate import violations
from rm.ledger.view import View
from rm.match.protocol import Match, Matcher, every_term
from sim.cluster import Simulation
from sim.process.gang_walk import gang_walk
from sim.process.walk import jobs_of, walk
from sim.recorder import Recorder
from sim.settings import SimSettings
from weft.model.cluster import cluster_from_dict
from weft.model.dag import Machines, dag_of_job
from weft.model.job import Job, Stage
from weft.model.jobfile import job_from_dict, job_to_dict
from weft.policies.presets import Preset, choose
from weft.workloads.imported import Imported
from weft.workloads.registry import import_jobs
from weft.workloads.synth import generate

TYPES = [{"name": "vcores", "kind": "divisible"}, {"name": "memory_mb", "kind": "rigid"}]
LIMITED = {
    "resources": [*TYPES, {"name": "network_mbps", "kind": "divisible"}],
    "nodes": [{"count": 4, "capacity": {"vcores": 8, "memory_mb": 8192, "network_mbps": 800}}],
    "queues": {"root": {"a": {"capacity": 0.5, "max_capacity": 0.5}, "b": {"capacity": 0.5}}},
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test once for each policy that was named, and each seed; skip those without one."""
    seeds = metafunc.config.getoption("--weft-seeds")
    for kind in ("matcher", "planner", "asker", "importer"):
        if kind in metafunc.fixturenames:
            named = metafunc.config.getoption(f"--weft-{kind}") or []
            reason = f"no {kind} is named (--weft-{kind} NAME)"
            none = [pytest.param("", marks=pytest.mark.skip(reason=reason))]
            metafunc.parametrize(kind, named or none)
            seeds = seeds if named else 1
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", range(seeds))


# -- matchers and askers: whole clusters in virtual time -------------------------------------------


def test_a_matcher_keeps_every_rule_under_faults(matcher: str, seed: int) -> None:
    """Every job ends whatever fails, and nothing is granted that is not there; both paces."""
    walk(seed * 9, choose(matcher=matcher))


def test_a_matcher_starts_gangs_whole(matcher: str, seed: int) -> None:
    """All tasks of a gang start at one instant, or none."""
    gang_walk(seed * 20, choose(matcher=matcher))


def test_a_matcher_keeps_the_limits_of_queues(matcher: str, seed: int) -> None:
    """A queue with max_capacity 0.5 never holds more, beside an idle one."""
    wide = Stage("wide", 40 + seed, 5.0, {"vcores": 1.0, "memory_mb": 600.0})
    jobs = [*_jobs(seed, "a"), Job("wide", (wide,), queue="a")]
    _ran(choose(matcher=matcher), jobs, LIMITED, seed)


def test_a_matcher_gives_the_same_answer_twice(matcher: str, seed: int) -> None:
    """`match` changes nothing: asked again, it answers the same."""
    simulation = _simulation(choose(matcher=matcher), _jobs(seed), LIMITED, seed)
    layers: list[_AskedTwice] = []

    def layer(policy: Matcher) -> Matcher:
        layers.append(_AskedTwice(policy))
        return cast(Matcher, layers[-1])

    simulation.manager.wrap_matcher(layer)
    simulation.run()
    assert any(twice.asked for twice in layers), "the matcher was never asked"


def test_a_matcher_names_in_pairs_what_its_order_goes_by(matcher: str, seed: int) -> None:
    """`terms` returns (name, number) pairs: what `weft explain` and decisions show."""
    simulation = _simulation(choose(matcher=matcher), _jobs(seed), LIMITED, seed)
    layers: list[_Explained] = []

    def layer(policy: Matcher) -> Matcher:
        layers.append(_Explained(policy))
        return cast(Matcher, layers[-1])

    simulation.manager.wrap_matcher(layer)
    simulation.run()
    assert any(one.asked for one in layers), "the matcher placed nothing"


def test_a_matcher_decides_the_same_in_every_run(matcher: str, seed: int) -> None:
    """No clock and no chance of its own: the same seed gives the same run."""
    assert _answer(choose(matcher=matcher), seed) == _answer(choose(matcher=matcher), seed)


def test_an_asker_keeps_every_rule_under_faults(asker: str, seed: int) -> None:
    """Every job ends whatever fails; both paces."""
    walk(seed * 9, choose(asker=asker))


def test_an_asker_decides_the_same_in_every_run(asker: str, seed: int) -> None:
    """Chance comes from the generator that it is given."""
    assert _answer(choose(asker=asker), seed) == _answer(choose(asker=asker), seed)


def _jobs(seed: int, queues: str = "ab") -> list[Job]:
    """Return a few small jobs, in turn over the queues."""
    return [replace(job, queue=queues[i % len(queues)]) for i, job in enumerate(jobs_of(seed))]


class _AskedTwice:
    """A matcher that is asked each question twice."""

    def __init__(self, inner: Matcher) -> None:
        self._inner = inner
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def match(self, view: View, node: int, now: float) -> Match:
        """Compare the two answers."""
        self.asked += 1
        first, second = self._inner.match(view, node, now), self._inner.match(view, node, now)
        assert first == second, f"node {node} at {now:g} s: first {first}, then {second}"
        return first


class _Explained:
    """A matcher whose terms are asked for with everything that it places."""

    def __init__(self, inner: Matcher) -> None:
        self._inner = inner
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def match(self, view: View, node: int, now: float) -> Match:
        """Return the answer, after a look at the terms."""
        answer = self._inner.match(view, node, now)
        for placement in answer.placements:
            self.asked += 1
            for name, value in every_term(self._inner, view, placement):
                assert isinstance(name, str), f"terms: the name {name!r} is no text"
                assert np.isfinite(value), f"terms: {name} is {value}"
        return answer


def _simulation(
    scheduler: Preset, jobs: list[Job], cluster: dict[str, Any], seed: int
) -> Simulation:
    settings = SimSettings(
        scheduler, seed=seed, prompt=bool(seed % 2), checks=True, check_every=7, until_s=2_000.0
    )
    return Simulation(cluster_from_dict(cluster), jobs, settings, Recorder())


def _ran(scheduler: Preset, jobs: list[Job], cluster: dict[str, Any], seed: int) -> Simulation:
    simulation = _simulation(scheduler, jobs, cluster, seed)
    simulation.run()
    simulation.check()
    states = {row.job.name: row.state for row in simulation.recorder.jobs}
    assert set(states.values()) == {"FINISHED"}, f"jobs that did not end: {states}"
    return simulation


def _answer(scheduler: Preset, seed: int) -> list[list[float]]:
    columns = _ran(scheduler, _jobs(seed), LIMITED, seed).recorder.columns()
    return [np.asarray(each).tolist() for each in (columns.start_s, columns.end_s, columns.node)]


# -- planners --------------------------------------------------------------------------------------


def test_a_planner_makes_valid_plans(planner: str, seed: int) -> None:
    """Judged by the independent validator; never shorter than what is proven to be needed."""
    for dag, machines in _dags(seed):
        made = _plan(planner, dag, machines, seed)
        found = violations(dag, machines, made.machine, made.start_s, made.end_s)
        assert not found, found[0]
        bound_s = bounds_of(dag, machines).strong_lb_s
        assert made.makespan_s >= bound_s * (1 - 1e-9), f"{made.makespan_s} s below {bound_s} s"


def test_a_planner_answers_the_same_to_the_same_seed(planner: str, seed: int) -> None:
    """Same request and seed, same plan."""
    for dag, machines in _dags(seed):
        first, second = (_plan(planner, dag, machines, seed) for _ in range(2))
        assert first.start_s.tolist() == second.start_s.tolist()
        assert first.machine.tolist() == second.machine.tolist()


def test_a_planner_drives_a_cluster(planner: str, seed: int) -> None:
    """Its order is followed by a matcher that asks for it, and every job ends."""
    _ran(choose("graphene", planner=planner), _jobs(seed), LIMITED, seed)


def _plan(name: str, dag: Any, machines: Machines, seed: int) -> Any:
    return planner(name)(PlanRequest(dag, machines, np.random.default_rng(seed), {}))


def _dags(seed: int) -> list[tuple[Any, Machines]]:
    spec = cluster_from_dict(LIMITED)
    drawn = list(generate("production", 3, np.random.default_rng(seed)))
    jobs = [*jobs_of(seed), *(job for job in drawn if job.task_count <= 200)]
    big = cluster_from_dict(
        {
            "resources": [
                *TYPES,
                {"name": "disk_mbps", "kind": "divisible"},
                {"name": "network_mbps", "kind": "divisible"},
            ],
            "nodes": [
                {
                    "count": 6,
                    "capacity": {
                        "vcores": 64,
                        "memory_mb": 262144,
                        "disk_mbps": 10000,
                        "network_mbps": 10000,
                    },
                }
            ],
        }
    )
    small = [(dag_of_job(job, spec.types), spec.machines()) for job in jobs[:3]]
    return small + [(dag_of_job(job, big.types), big.machines()) for job in jobs[3:]]


# -- importers -------------------------------------------------------------------------------------


def test_an_importer_reads_jobs_that_a_job_file_can_hold(
    importer: str, pytestconfig: pytest.Config
) -> None:
    """What it reads is the same each time, and comes back from Weft's own format."""
    sources = [Path(each) for each in pytestconfig.getoption("--weft-source") or []]
    assert sources, "name a file that it reads with --weft-source"
    first, second = (list(import_jobs(importer, sources, {}, Imported())) for _ in range(2))
    assert first, "no job was read"
    assert first == second
    for job in first:
        assert job_from_dict(job_to_dict(job)) == job
