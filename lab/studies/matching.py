"""What the parts of Graphene's matcher are worth: `python -m lab.studies.matching NAME...`.

NAME is eta, kappa, terms or overbook. Every run is the whole stack in virtual time on a public
workload (eta, kappa, terms) or on made-up jobs of one kind (overbook); cases are compared on the
same jobs, seed by seed. docs/results/matching.md holds the tables and says how to read them.

Each seed draws its own jobs and arrivals. `--scale N` divides the tasks of every stage and the
machines by N, which keeps what a task is to a machine and a job to the cluster; 1 takes N times as
long.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from lab.inputs import public_files
from lab.studies.runs import work_s
from lab.studies.trials import Trial, print_table, reader, run_trials
from sim.cluster import Simulation
from sim.recorder import Recorder
from sim.results import Run, dominant_shares, jain, jain_index, jct_s, makespan_s
from sim.settings import SimSettings
from weft.model.cluster import ClusterSpec, NodeSpec
from weft.model.dag import Floats
from weft.model.job import Edge, Job, Stage
from weft.model.queues import DEFAULT_QUEUES, QueueSpec
from weft.model.resources import DEFAULT_RESOURCE_TYPES, Kind, ResourceType, ResourceTypes
from weft.policies.presets import choose, with_options
from weft.protocol.facts import Placed
from weft.workloads.imported import Imported
from weft.workloads.registry import import_jobs

WINDOW_S = 240.0
QUEUES = QueueSpec("root", children=(QueueSpec("a", 0.5), QueueSpec("b", 0.5)))
WORKLOAD = "carbyne-workloads/queries_tpcds_FB_distr_new.txt.gz"
SIX = ("cpu", "memory", "r3", "r4", "r5", "r6")
MACHINES, LOAD = 40, 0.9
JOBS = {"poisson": 60, "once": 40}
M_WEIGHTS = (0.0, 0.2, 1.0, 2.0, 4.0)
KAPPAS = (0.02, 0.1, 0.3)
UNITS = ("drf", "slots", "time")
KINDS = ("network_mbps", "disk_mbps", "memory_mb", "vcores")


class Watch:
    """Overbooked placements, and the highest deficit counter, as they happen."""

    def __init__(self) -> None:
        self.overbooked = 0
        self.deficit = 0.0
        self.simulation: Simulation | None = None

    def note(self, now: float, fact: Any) -> None:
        """Take a fact of the run."""
        if type(fact) is not Placed or self.simulation is None:
            return
        self.overbooked += any(name == "overbook" and value > 0 for name, value in fact.scores)
        books = self.simulation.manager.books
        self.deficit = max(self.deficit, float(books.matcher.deficits(books.view).max()))


def measure(
    jobs: Sequence[Job], cluster: ClusterSpec, preset: str, options: Mapping[str, Any], seed: int
) -> dict[str, float]:
    """Return one run's numbers; raises RuntimeError where a job did not end."""
    scheduler = with_options(choose(preset), options)
    watch, recorder = Watch(), Recorder()
    simulation = Simulation(cluster, jobs, SimSettings(scheduler=scheduler, seed=seed), recorder)
    watch.simulation = simulation
    simulation.watchers.append(watch.note)
    simulation.run()
    run = Run(cluster, recorder.jobs, recorder.columns())
    times = np.array([jct_s(row) for row in run.jobs])
    if (times < 0).any():
        raise RuntimeError(f"{preset} {options}: {int((times < 0).sum())} jobs did not end")
    shares = dominant_shares(run)
    return {
        "mean JCT s": float(times.mean()),
        "p50": float(np.median(times)),
        "p95": float(np.percentile(times, 95)),
        "makespan s": makespan_s(run),
        "Jain queues": jain_of_queues(run, shares),
        "Jain jobs": jain_index(run, WINDOW_S, shares),
        "worst deficit": watch.deficit,
        "overbooked": float(watch.overbooked),
    }


def jain_of_queues(run: Run, shares: Floats, window_s: float = WINDOW_S) -> float:
    """Return the mean over windows of Jain's index over queues that all have jobs all the time.

    A queue's value is the mean sum of the dominant shares that its tasks hold in the window.
    """
    names = sorted({row.job.queue for row in run.jobs})
    last = min(max(r.finish_s for r in run.jobs if r.job.queue == name) for name in names)
    place = {row.app: names.index(row.job.queue) for row in run.jobs}
    group = np.array([place[app] for app in run.tasks.app.tolist()])
    found = []
    for window in range(int(last // window_s)):
        low, high = window * window_s, (window + 1) * window_s
        span = np.minimum(run.tasks.end_s, high) - np.maximum(run.tasks.start_s, low)
        held = np.bincount(group, np.maximum(span, 0.0) * shares, len(names)).astype(np.float64)
        found.append(jain(held))
    return float(np.mean(found)) if found else 1.0


def thinned(job: Job, scale: int) -> Job:
    """Return a job with a part of the tasks of every stage, at least one each."""
    stages = tuple(replace(s, tasks=max(1, round(s.tasks / scale))) for s in job.stages)
    return replace(job, stages=stages)


def shared_jobs(arrivals: str, seed: int, scale: int) -> list[Job]:
    """Return random jobs of the TPC-DS-like workload, in turns to two queues.

    `once`: 40 jobs, all there at time 0. `poisson`: 60 jobs over time, so far apart that they are
    0.9 of what the machines can do.
    """
    count = JOBS[arrivals]
    every = list(import_jobs("carbyne", public_files(WORKLOAD), {}, Imported()))
    rng = np.random.default_rng([seed, 41])
    picks = rng.choice(len(every), count, replace=False)
    jobs = [thinned(every[pick], scale) for pick in picks.tolist()]
    mean_s = work_s(jobs) / (LOAD * machine_count(scale) * count)
    gaps = rng.exponential(mean_s, count)
    times = np.zeros(count) if arrivals == "once" else np.cumsum(gaps)
    return [
        replace(job, name=f"{job.name}-{i}", queue="ab"[i % 2], arrival_s=float(times[i]))
        for i, job in enumerate(jobs)
    ]


def machine_count(scale: int) -> int:
    """Return how many machines go with workloads thinned by `scale`."""
    return max(2, round(MACHINES / scale))


def six_resources(nodes: int) -> ClusterSpec:
    """Return machines of the workload's unit: 1.0 of each; memory is rigid."""
    types = ResourceTypes(
        tuple(ResourceType(n, Kind.RIGID if n == "memory" else Kind.DIVISIBLE) for n in SIX)
    )
    specs = tuple(NodeSpec(f"n{i}", (1.0,) * len(SIX), f"r{i % 2}") for i in range(nodes))
    return ClusterSpec(types, specs, QUEUES)


def on_shared(
    arrivals: str, scale: int, preset: str, options: Mapping[str, Any], seed: int
) -> dict[str, float]:
    """Run one scheduler on one seed's jobs."""
    cluster = six_resources(machine_count(scale))
    return measure(shared_jobs(arrivals, seed, scale), cluster, preset, options, seed)


def trial(arrivals: str, scale: int, preset: str = "graphene", **options: Any) -> Trial:
    """Return a case: matcher options by their own names."""
    own = {f"matcher.{name}": value for name, value in options.items()}
    return partial(on_shared, arrivals, scale, preset, own)


def eta_cases(arrivals: str, scale: int) -> dict[str, Trial]:
    """Return cases of how much remaining work should weigh against order and packing."""
    cases = {"drf": trial(arrivals, scale, "drf")}
    return cases | {f"m = {m:g}": trial(arrivals, scale, eta_m=m) for m in M_WEIGHTS}


def kappa_cases(arrivals: str, scale: int) -> dict[str, Trial]:
    """Return cases of the bound: does it hold the queues together, in which unit, at what cost?"""
    cases = {name: trial(arrivals, scale, name) for name in ("drf", "capacity", "tetris")}
    cases["no bound"] = trial(arrivals, scale, kappa=-1.0)
    for unit in UNITS:
        for bound in KAPPAS:
            name = f"{unit}, kappa {bound:g}"
            cases[name] = trial(arrivals, scale, kappa=bound, deficit_unit=unit)
    return cases


def terms_cases(arrivals: str, scale: int) -> dict[str, Trial]:
    """Return Graphene whole, and with one term off at a time."""
    # The workload names only CPU and memory.
    rest = "r3,r4,r5,r6"
    off = {
        "overbook": "",
        "use_packing": False,
        "eta_m": 0.0,
        "use_priority": False,
        "kappa": -1.0,
    }
    cases: dict[str, dict[str, Any]] = {
        "whole": {},
        "no preferred order": {"use_priority": False},
        "no packing": {"use_packing": False},
        "no srpt": {"eta_m": 0.0},
        "no overbooking": {"overbook": ""},
        "no unfairness bound": {"kappa": -1.0},
        "all off": off,
    }
    return {
        name: trial(arrivals, scale, **({"overbook": rest} | own)) for name, own in cases.items()
    }


def on_bound(kind: str, options: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Run jobs bound by one resource on ten machines."""
    nodes = tuple(NodeSpec(f"n{i}", (16.0, 65536.0, 800.0, 1000.0)) for i in range(10))
    cluster = ClusterSpec(DEFAULT_RESOURCE_TYPES, nodes, DEFAULT_QUEUES)
    return measure(bound_by(kind, cluster, seed), cluster, "graphene", options, seed)


def overbook_cases(kind: str) -> dict[str, Trial]:
    """Return overbooking on and off, on jobs bound by one resource each."""
    cases: dict[str, dict[str, Any]] = {
        "off": {"overbook": ""},
        "disk, network": {},
    }
    return {
        name: partial(on_bound, kind, {f"matcher.{k}": v for k, v in own.items()})
        for name, own in cases.items()
    }


def bound_by(kind: str, cluster: ClusterSpec, seed: int, count: int = 30) -> list[Job]:
    """Return two-stage jobs whose tasks need 0.35 to 0.6 of a machine's `kind`, little else."""
    rng = np.random.default_rng([seed, 5])
    capacity = dict(zip(cluster.types.names, cluster.nodes[0].capacity, strict=True))
    jobs = []
    for number in range(count):
        stages = []
        for at in range(2):
            demand = {name: 0.03 * amount for name, amount in capacity.items()}
            demand[kind] = float(rng.uniform(0.35, 0.6)) * capacity[kind]
            parents = (Edge(f"s{at - 1}"),) if at else ()
            tasks, duration = int(rng.integers(2, 12)), float(rng.uniform(5, 60))
            stages.append(Stage(f"s{at}", tasks, duration, demand, parents=parents))
        jobs.append(Job(f"j{number}", tuple(stages), arrival_s=float(rng.uniform(0, 600))))
    return jobs


STUDIES = {
    "eta": (eta_cases, "drf", "Graphene's m"),
    "kappa": (kappa_cases, "drf", "The unfairness bound, two equal queues"),
    "terms": (terms_cases, "whole", "Graphene without one term"),
}
NAMES = {"mean JCT s": 0, "p95": 0, "makespan s": 0, "Jain queues": 3, "Jain jobs": 3}
EXTRA = {"kappa": {"worst deficit": 2}, "terms": {"overbooked": 0}}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run studies and print their tables."""
    parser = reader("lab.studies.matching", [*STUDIES, "overbook"], "matching.jsonl")
    parser.add_argument("--scale", type=int, default=8)
    parser.add_argument("--arrivals", choices=list(JOBS), action="append")
    parser.add_argument("--kind", choices=KINDS, action="append")
    args = parser.parse_args(arguments)
    seeds = range(args.seeds)
    for study in args.study:
        if study == "overbook":
            for kind in args.kind or KINDS:
                cases, key = overbook_cases(kind), f"overbook/{kind}"
                rows = run_trials(cases, seeds, args.rows, key)
                names = {"mean JCT s": 1, "p95": 0, "makespan s": 0, "overbooked": 0}
                against = {"mean JCT s": True, "makespan s": True}
                print_table(f"Jobs bound by {kind}, 10 machines", rows, names, "off", against)
            continue
        make, base, title = STUDIES[study]
        for arrivals in args.arrivals or JOBS:
            key = f"{study}/{arrivals}/{args.scale}"
            rows = run_trials(make(arrivals, args.scale), seeds, args.rows, key)
            where = f"{JOBS[arrivals]} jobs ({arrivals}), {machine_count(args.scale)} machines"
            against = {"mean JCT s": True, "Jain queues": False}
            names = NAMES | EXTRA.get(study, {})
            print_table(f"{title}, {where}", rows, names, base, against)


if __name__ == "__main__":
    main()
