"""What the studies of papers share: benchmark workloads, equal machines, one run, factors of JCTs.

The workloads are the stage DAGs of `$WEFT_DATA/carbyne-workloads`: six demands a task, each as a
part of one machine.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lab.inputs import public_files
from sim.cluster import Simulation
from sim.process.command import quiet_collector
from sim.recorder import Recorder
from sim.results import Run, dominant_shares, jain_index, jct_s, makespan_s, utilisation
from sim.settings import SimSettings
from weft.model.cluster import ClusterSpec, cluster_from_dict
from weft.model.dag import Floats
from weft.model.errors import InputError
from weft.model.job import Job
from weft.policies.presets import Preset, preset, with_options
from weft.workloads.carbyne import RESOURCES, read

FILES: Mapping[str, str] = {
    "TPC-DS": "queries_tpcds_new.txt",
    "TPC-H": "queries_tpch.txt",
    "BigBench": "queries_bb.txt",
    "MapReduce": "400Jobs_first250.txt",
}
# Carbyne, section 5.1, takes Jain's index over such windows.
WINDOW_S = 60.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run: completion times in the order of the jobs, s; the rest over the whole run.

    `jain` is taken over windows of WINDOW_S, `utilisation` is that of the resource used most.
    """

    jct_s: Floats
    makespan_s: float
    jain: float
    utilisation: float


def picked_jobs(workload: str, count: int, seed: int) -> list[Job]:
    """Return `count` jobs picked at random from a benchmark's queries, at 0 s (Graphene 8.1)."""
    queries = read(public_files(f"carbyne-workloads/{FILES[workload]}")).jobs
    rng = np.random.default_rng([seed, 31])
    picks = rng.integers(0, len(queries), count)
    return [
        replace(queries[pick], name=f"{queries[pick].name}-{number}", arrival_s=0.0)
        for number, pick in enumerate(picks.tolist())
    ]


def spread(jobs: Sequence[Job], mean_s: float, seed: int) -> list[Job]:
    """Return the jobs as a Poisson process with a mean time between arrivals."""
    rng = np.random.default_rng([seed, 32])
    times = np.cumsum(rng.exponential(mean_s, len(jobs)))
    return [replace(job, arrival_s=float(at)) for job, at in zip(jobs, times.tolist(), strict=True)]


def machines(count: int, rigid: str = "memory") -> ClusterSpec:
    """Return identical machines with 1.0 of each resource; `rigid` ("": none) is never shared."""
    kinds = [
        {"name": name, "kind": "rigid" if name == rigid else "divisible"} for name in RESOURCES
    ]
    nodes = [{"count": count, "capacity": dict.fromkeys(RESOURCES, 1.0)}]
    return cluster_from_dict({"resources": kinds, "nodes": nodes})


def work_s(jobs: Sequence[Job]) -> float:
    """Return machine seconds that the jobs need at least: of the resource needed most."""
    total = dict.fromkeys(RESOURCES, 0.0)
    for job in jobs:
        for stage in job.stages:
            for name, amount in stage.demand.items():
                total[name] += amount * stage.tasks * stage.duration_s
    return max(total.values())


def simulate(
    jobs: Sequence[Job],
    cluster: ClusterSpec,
    scheduler: str | Preset,
    options: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> Outcome:
    """Run once in YARN's pace; raises InputError when a job cannot run."""
    run, _ = finished(jobs, cluster, scheduler, options, seed)
    return Outcome(
        np.array([jct_s(row) for row in run.jobs]),
        makespan_s(run),
        jain_index(run, WINDOW_S, dominant_shares(run)),
        max(utilisation(run).values()),
    )


def finished(
    jobs: Sequence[Job],
    cluster: ClusterSpec,
    scheduler: str | Preset,
    options: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> tuple[Run, Recorder]:
    """Run once in YARN's pace, recorded; raises InputError when a job cannot run."""
    chosen = preset(scheduler) if isinstance(scheduler, str) else scheduler
    recorder = Recorder()
    settings = SimSettings(with_options(chosen, options or {}), seed)
    with quiet_collector():
        Simulation(cluster, jobs, settings, recorder).run()
    bad = [row for row in recorder.jobs if row.end != "SUCCEEDED"]
    if bad:
        raise InputError(f"job {bad[0].job.name!r}", bad[0].diagnostics or bad[0].end)
    return Run(cluster, recorder.jobs, recorder.columns()), recorder


def gains(base: Outcome, other: Outcome) -> Floats:
    """Return by how much each job is faster than under `base`, in percent of its time there."""
    return np.asarray(100.0 * (base.jct_s - other.jct_s) / base.jct_s)


def factors(base: Outcome, other: Outcome) -> Floats:
    """Return Carbyne's factor of improvement by job: above 1 means that `other` is faster."""
    return np.asarray(base.jct_s / other.jct_s)


def run_named(
    module: str, studies: Mapping[str, Callable[[], None]], arguments: Sequence[str]
) -> int:
    """Run the studies named on the command line; return the exit code."""
    if not arguments or any(name not in studies for name in arguments):
        print(f"usage: python -m {module} {'|'.join(studies)}", file=sys.stderr)
        return 2
    for name in arguments:
        studies[name]()
    return 0
