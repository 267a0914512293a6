"""What a study changes about its input: estimates, load, arrivals. The truth is never touched."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from weft.model.cluster import ClusterSpec
from weft.model.errors import InputError
from weft.model.job import Job, Stage, TaskOverride


def parse_error(text: str) -> tuple[float, float]:
    """Read `LO:HI`, relative errors such as `-0.5:0.5`; raises InputError."""
    low, colon, high = text.partition(":")
    try:
        found = (float(low), float(high))
    except ValueError:
        found = (1.0, 0.0)
    if not colon or not -1 < found[0] <= found[1] < 1e6:
        raise InputError("--estimate-error", f"{text!r} is not LO:HI with -1 < LO <= HI")
    return found


def misestimate(jobs: Iterable[Job], low: float, high: float, seed: int) -> list[Job]:
    """Return jobs whose estimates are scaled by 1 + e, e uniform in [low, high] by stage."""
    rng = np.random.default_rng([seed, 21])
    return [
        replace(job, stages=tuple(_misjudged(s, rng, low, high) for s in job.stages))
        for job in jobs
    ]


def _misjudged(stage: Stage, rng: np.random.Generator, low: float, high: float) -> Stage:
    longer, larger = 1.0 + rng.uniform(low, high, 2)

    def scaled(demand: Mapping[str, float]) -> dict[str, float]:
        return {name: float(amount * larger) for name, amount in demand.items()}

    def override(own: TaskOverride) -> TaskOverride:
        return replace(
            own,
            duration_s=None if own.duration_s is None else float(own.duration_s * longer),
            demand=None if own.demand is None else scaled(own.demand),
            actual_duration_s=(
                own.duration_s if own.actual_duration_s is None else own.actual_duration_s
            ),
            actual_demand=own.demand if own.actual_demand is None else own.actual_demand,
        )

    truth = stage.actual_duration_s
    return replace(
        stage,
        duration_s=float(stage.duration_s * longer),
        demand=scaled(stage.demand),
        actual_duration_s=stage.duration_s if truth is None else truth,
        actual_demand=stage.demand if stage.actual_demand is None else stage.actual_demand,
        overrides=tuple(override(own) for own in stage.overrides),
    )


def fit(jobs: Iterable[Job], cluster: ClusterSpec) -> list[Job]:
    """Cut demands down to the largest node: an estimate must not say that nothing can run."""
    tops = {
        name: max(node.capacity[r] for node in cluster.nodes)
        for r, name in enumerate(cluster.types.names)
    }

    def cut(demand: Mapping[str, float]) -> dict[str, float]:
        return {name: min(amount, tops.get(name, amount)) for name, amount in demand.items()}

    def stage(own: Stage) -> Stage:
        overrides = tuple(
            o if o.demand is None else replace(o, demand=cut(o.demand)) for o in own.overrides
        )
        return replace(own, demand=cut(own.demand), overrides=overrides)

    return [replace(job, stages=tuple(stage(own) for own in job.stages)) for job in jobs]


def with_load(cluster: ClusterSpec, load: float) -> ClusterSpec:
    """Return the same cluster with 1 / load of the nodes, spread evenly over those there are."""
    if not 0 < load < math.inf:
        raise InputError("--load", f"expected a positive number, got {load:g}")
    count = max(1, round(len(cluster.nodes) / load))
    if count > len(cluster.nodes):
        raise InputError("--load", "below 1 needs more nodes than the cluster has: enlarge it")
    picked = [cluster.nodes[i * len(cluster.nodes) // count] for i in range(count)]
    return replace(cluster, nodes=tuple(picked))


def with_arrivals(jobs: Sequence[Job], text: str, seed: int) -> list[Job]:
    """Return jobs with arrivals `file` (their own), `once` (at 0) or `poisson:RATE` (per s)."""
    kind, _, value = text.partition(":")
    if kind == "file" and not value:
        return sorted(jobs, key=lambda job: job.arrival_s)
    if kind == "once" and not value:
        return [replace(job, arrival_s=0.0) for job in jobs]
    try:
        rate = float(value) if kind == "poisson" else 0.0
    except ValueError:
        rate = 0.0
    if not 0 < rate < float("inf"):
        raise InputError("--arrivals", f"{text!r} is none of file, once, poisson:RATE (jobs per s)")
    gaps = np.random.default_rng([seed, 22]).exponential(1.0 / rate, len(jobs))
    times = np.cumsum(gaps) - gaps[0] if len(jobs) else gaps
    return [replace(job, arrival_s=float(time)) for job, time in zip(jobs, times, strict=True)]
