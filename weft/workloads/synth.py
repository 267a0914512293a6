"""Synthetic workloads calibrated to published marginals; the same seed gives the same jobs.

Shapes: Carbyne (OSDI 2016), tables 1 and 2, for `production` (its Microsoft row), `tpcds_like`,
`tpch_like` and `bigbench_like`; Graphene (OSDI 2016), figure 5 and section 2.3, for `graphene`.
Demands: Graphene, table 1 (its private stack for the production kinds, its Hive row elsewhere).
`builds` and `requests` are of section 9 (`synth_domains`).
What the papers do not publish (tasks of a stage, durations) is chosen here, and said so.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import exp, log, sqrt
from typing import NamedTuple

import numpy as np

from weft.model.errors import InputError
from weft.model.job import Edge, EdgeKind, Job, Stage
from weft.workloads.synth_domains import DOMAINS
from weft.workloads.synth_shapes import Marginal, Shape, ShapeLaw, draw_shape

Draw = np.random.Generator
MACHINE = {"vcores": 16.0, "memory_mb": 65536.0, "disk_mbps": 800.0, "network_mbps": 1250.0}
MEANS = {"vcores": 1.0, "memory_mb": 2048.0, "disk_mbps": 25.0, "network_mbps": 20.0}
# Coefficients of variation across tasks; disk and network are those of reading.
PRIVATE_STACK = {"vcores": 0.76, "memory_mb": 1.01, "disk_mbps": 1.39, "network_mbps": 1.69}
HIVE = {"vcores": 0.89, "memory_mb": 0.42, "disk_mbps": 1.59, "network_mbps": 0.77}
STAGE_TASKS_MAX = 5000
_Z75 = 0.6744897501960817


class Spread(NamedTuple):
    """A log-normal by its median and the standard deviation of its logarithm."""

    median: float
    sigma: float

    def draw(self, rng: Draw) -> float:
        """Draw one value."""
        return self.median * exp(self.sigma * float(rng.standard_normal()))


@dataclass(frozen=True, slots=True)
class Kind:
    """What a kind of workload draws from; `law` is None for map-reduce jobs."""

    law: ShapeLaw | None
    cov: dict[str, float]
    # Sources are stages without parents; the shares are of the edges from sources and from others.
    source_tasks: Spread
    inner_tasks: Spread
    durations_s: Spread
    one_to_one_shares: tuple[float, float]


KINDS: dict[str, Kind] = {
    "production": Kind(
        ShapeLaw(
            Marginal(13, 121), Marginal(7, 17), Marginal(4, 13), Marginal(6, 34), tree_share=0.4
        ),
        PRIVATE_STACK,
        Spread(150, 1.2),
        Spread(15, 2.3),
        Spread(10, 1.2),
        (0.3, 0.65),
    ),
    "graphene": Kind(
        ShapeLaw(
            Marginal(20, 120),
            Marginal(6, 11.5, _Z75),
            Marginal(5, 20),
            Marginal(6, 34),
            tree_share=0.4,
        ),
        PRIVATE_STACK,
        Spread(150, 1.2),
        Spread(15, 2.3),
        Spread(10, 1.2),
        (0.3, 0.65),
    ),
    "tpcds_like": Kind(
        ShapeLaw(Marginal(8, 23), Marginal(5, 8), Marginal(1, 4), Marginal(4, 15)),
        HIVE,
        Spread(30, 1.2),
        Spread(5, 1.2),
        Spread(8, 1.1),
        (0.0, 0.0),
    ),
    "tpch_like": Kind(
        ShapeLaw(Marginal(8, 12), Marginal(5, 7), Marginal(2, 4), Marginal(3, 7)),
        HIVE,
        Spread(40, 1.0),
        Spread(10, 1.2),
        Spread(13, 1.1),
        (0.0, 0.0),
    ),
    "bigbench_like": Kind(
        ShapeLaw(Marginal(7, 19), Marginal(5, 8), Marginal(2, 6), Marginal(2, 10)),
        HIVE,
        Spread(80, 1.4),
        Spread(10, 1.4),
        Spread(6, 1.1),
        (0.0, 0.0),
    ),
    "mapreduce": Kind(None, HIVE, Spread(40, 1.8), Spread(10, 1.2), Spread(30, 1.0), (0.0, 0.0)),
}


NAMES = (*KINDS, *DOMAINS)


def generate(
    kind: str,
    jobs: int,
    rng: Draw,
    *,
    arrivals: str = "poisson",
    interarrival_s: float = 20.0,
    spread: float = 0.0,
) -> Iterator[Job]:
    """Yield jobs by arrival; raises InputError for an unknown kind or a value out of range.

    `arrivals` is `poisson`, `swim` (bursts, as in the Facebook traces that SWIM replays) or
    `together` (all at 0 s); `interarrival_s` is the mean time between arrivals, s (20: Carbyne,
    section 5.1). With `spread` > 0 each task has a true duration of its own around its stage's
    estimate: log-normal, with this coefficient of variation.
    """
    if kind not in NAMES:
        raise InputError("kind", f"unknown: {kind!r}; known: {', '.join(NAMES)}")
    if arrivals not in ARRIVALS:
        raise InputError("arrivals", f"unknown: {arrivals!r}; known: {', '.join(ARRIVALS)}")
    if jobs < 1 or not 0 <= interarrival_s < 1e9 or not 0 <= spread <= 10:
        raise InputError(
            "options", "expected jobs >= 1, interarrival_s >= 0, and spread from 0 to 10"
        )
    times = ARRIVALS[arrivals](interarrival_s, rng)
    if kind in DOMAINS:
        return (
            _spread(DOMAINS[kind](f"{kind}-{number:05d}", rng, next(times)), spread, rng)
            for number in range(jobs)
        )
    return (
        _job(f"{kind}-{number:05d}", KINDS[kind], rng, next(times), spread)
        for number in range(jobs)
    )


def _poisson(interarrival_s: float, rng: Draw) -> Iterator[float]:
    now_s = 0.0
    while True:
        yield round(now_s, 3)
        now_s += float(rng.exponential(interarrival_s)) if interarrival_s else 0.0


def _together(interarrival_s: float, rng: Draw) -> Iterator[float]:
    while True:
        yield 0.0


def _swim(interarrival_s: float, rng: Draw) -> Iterator[float]:
    """Yield Poisson intervals in windows of some twelve jobs with log-normal rates: bursts, lulls.

    The coefficient of variation of the times between arrivals is 1.75, which is that of the
    Facebook arrival pattern in the Carbyne simulator's workloads (1.73 to 1.90 by our count).
    """
    window_s, sigma = 12 * interarrival_s, 1.0
    now_s, end_s, rate = 0.0, 0.0, 1.0
    while True:
        yield round(now_s, 3)
        work = float(rng.exponential(1.0)) if interarrival_s else 0.0
        # The exponential is spent over windows of different rates.
        while work > 0:
            if now_s >= end_s:
                end_s = now_s + window_s
                rate = exp(sigma * float(rng.standard_normal()) - sigma**2 / 2)
            step = min(work, (end_s - now_s) * rate / interarrival_s)
            work -= step
            now_s = end_s if work > 0 else now_s + step * interarrival_s / rate


ARRIVALS: dict[str, Callable[[float, Draw], Iterator[float]]] = {
    "poisson": _poisson,
    "swim": _swim,
    "together": _together,
}


def _job(name: str, kind: Kind, rng: Draw, arrival_s: float, spread: float) -> Job:
    shape = draw_shape(kind.law, rng) if kind.law else _map_reduce(rng)
    tasks = [
        min(
            STAGE_TASKS_MAX,
            max(1, round((kind.inner_tasks if above else kind.source_tasks).draw(rng))),
        )
        for above in shape.parents
    ]
    names = [f"S{number}" for number in range(len(tasks))]
    stages = []
    for number, above in enumerate(shape.parents):
        duration_s = max(0.1, round(kind.durations_s.draw(rng), 1))
        edges = tuple(
            Edge(names[parent], _edge_kind(kind, not shape.parents[parent], rng))
            for parent in above
        )
        stages.append(
            Stage(
                names[number],
                tasks[number],
                duration_s,
                _demand(kind.cov, rng),
                edges,
                actual_duration_s=_truth(duration_s, tasks[number], spread, rng),
            )
        )
    return Job(name, tuple(stages), arrival_s=arrival_s)


def _spread(job: Job, spread: float, rng: Draw) -> Job:
    """Return the job with a true duration for each task."""
    if not spread:
        return job
    return replace(
        job,
        stages=tuple(
            replace(s, actual_duration_s=_truth(s.duration_s, s.tasks, spread, rng))
            for s in job.stages
        ),
    )


def _map_reduce(rng: Draw) -> Shape:
    """Return maps alone or maps and reduces, by the shares of 248 jobs of Carbyne's file."""
    return Shape(((), (0,)) if rng.random() < 67 / 248 else ((),), 1)


def _edge_kind(kind: Kind, source: bool, rng: Draw) -> EdgeKind:
    if rng.random() < kind.one_to_one_shares[0 if source else 1]:
        return EdgeKind.ONE_TO_ONE
    return EdgeKind.ALL_TO_ALL


def _demand(cov: dict[str, float], rng: Draw) -> dict[str, float]:
    """Draw log-normal demands by mean and coefficient of variation, none over one machine."""
    demand = {}
    for name, mean in MEANS.items():
        sigma = sqrt(log(1 + cov[name] ** 2))
        amount = mean * exp(sigma * float(rng.standard_normal()) - sigma**2 / 2)
        digits = 0 if name == "memory_mb" else 2
        demand[name] = round(min(MACHINE[name], max(0.01, amount)), digits)
    return demand


def _truth(duration_s: float, tasks: int, spread: float, rng: Draw) -> tuple[float, ...] | None:
    if not spread:
        return None
    sigma = sqrt(log(1 + spread**2))
    factors = np.exp(sigma * rng.standard_normal(tasks) - sigma**2 / 2)
    return tuple(round(float(factor) * duration_s, 3) for factor in factors)
