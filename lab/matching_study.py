"""What the parts of Graphene's matcher are worth: `python -m lab.matching_study NAME`.

NAME is kappa, eta, overbook or terms.

Every run is the whole stack in virtual time on a public workload (kappa, eta, terms) or on made-up
jobs of one kind (overbook); docs/matching.md holds the tables and says how to read them.
"""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from lab.study_runs import run_named
from sim.cluster import Simulation
from sim.recorder import Recorder
from sim.results import Run, dominant_shares, jain, jain_index, jct_s, makespan_s
from sim.settings import SimSettings
from weft.cluster import DEFAULT_QUEUES, ClusterSpec, NodeSpec, QueueSpec
from weft.dag import Floats
from weft.facts import Placed
from weft.job import Edge, Job, Stage
from weft.presets import choose, with_options
from weft.resources import DEFAULT_RESOURCE_TYPES, Kind, ResourceType, ResourceTypes
from weft.workloads.imported import Imported
from weft.workloads.registry import import_jobs

WINDOW_S = 240.0
QUEUES = QueueSpec("root", children=(QueueSpec("a", 0.5), QueueSpec("b", 0.5)))
DATA = Path(os.environ.get("WEFT_DATA", Path(__file__).resolve().parents[1].parent / "shared/data"))
WORKLOAD = "carbyne-workloads/queries_tpcds_FB_distr_new.txt.gz"
SIX = ("cpu", "memory", "r3", "r4", "r5", "r6")
SEEDS = (0, 1)
KAPPAS = (0.0, 0.02, 0.1, 0.3, -1.0)


@dataclass(slots=True)
class Row:
    """Means over the seeds of one scheduler."""

    name: str
    values: dict[str, list[float]] = field(default_factory=dict)

    def add(self, found: Mapping[str, float]) -> None:
        """One more run."""
        for key, value in found.items():
            self.values.setdefault(key, []).append(value)

    def text(self, names: Sequence[str]) -> str:
        """A line of a Markdown table."""
        cells = [f"{np.mean(self.values[n]):.3f}" if n in _FINE else
                 f"{np.mean(self.values[n]):.0f}" for n in names]  # fmt: skip
        return " | ".join(("", self.name, *cells, "")).strip()


_FINE = {"Jain queues", "Jain jobs", "worst deficit"}


class Watch:
    """Overbooked placements, and the highest deficit counter, as they happen."""

    def __init__(self) -> None:
        self.overbooked = 0
        self.deficit = 0.0
        self.simulation: Simulation | None = None

    def note(self, now: float, fact: Any) -> None:
        """A fact of the run."""
        if type(fact) is not Placed or self.simulation is None:
            return
        self.overbooked += any(name == "overbook" and value > 0 for name, value in fact.scores)
        books = self.simulation.manager.books
        self.deficit = max(self.deficit, float(books.matcher.deficits(books.view).max()))


def measure(
    jobs: Sequence[Job], cluster: ClusterSpec, preset: str, options: Mapping[str, Any], seed: int,
    **parts: str,
) -> dict[str, float]:  # fmt: skip
    """One run's numbers."""
    scheduler = with_options(choose(preset, **parts), options)
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
    """Mean over windows of Jain's index over queues, while every queue has jobs all the time.

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


def shared_jobs(arrivals: str = "poisson") -> list[Job]:
    """The first jobs of the TPC-DS-like workload, in turns to two queues.

    `once`: 40 jobs, all there at time 0. `poisson`: 60 jobs, 36 s apart on average, which is about
    0.9 of what 40 machines can do.
    """
    count = 40 if arrivals == "once" else 60
    jobs = import_jobs("carbyne", [DATA / WORKLOAD], {}, Imported())
    gaps = np.random.default_rng(3).exponential(36.0, count)
    times = np.zeros(count) if arrivals == "once" else np.cumsum(gaps)
    return [
        replace(job, queue="ab"[i % 2], arrival_s=float(times[i]))
        for i, job in zip(range(count), jobs, strict=False)
    ]


def six_resources(nodes: int) -> ClusterSpec:
    """Machines of the workload's unit: 1.0 of each; memory is rigid."""
    types = ResourceTypes(
        tuple(ResourceType(n, Kind.RIGID if n == "memory" else Kind.DIVISIBLE) for n in SIX)
    )
    specs = tuple(NodeSpec(f"n{i}", (1.0,) * len(SIX), f"r{i % 2}") for i in range(nodes))
    return ClusterSpec(types, specs, QUEUES)


def table(title: str, names: Sequence[str], rows: Iterable[Row]) -> None:
    """Print a Markdown table, a line as soon as it is known."""
    print(f"\n{title}\n\n| | {' | '.join(names)} |\n|---|{'---:|' * len(names)}")
    for row in rows:
        print(row.text(names), flush=True)


def averaged(
    name: str, jobs: Sequence[Job], cluster: ClusterSpec, preset: str,
    options: Mapping[str, Any] | None = None, **parts: str,
) -> Row:  # fmt: skip
    """One scheduler over all seeds."""
    row = Row(name)
    for seed in SEEDS:
        row.add(measure(jobs, cluster, preset, options or {}, seed, **parts))
    return row


def kappa() -> None:
    """Two equal queues: does the bound bind, and what does fairness cost?"""
    names = ("mean JCT s", "p50", "p95", "makespan s", "Jain queues", "Jain jobs", "worst deficit")
    cluster = six_resources(40)
    for arrivals in ("poisson", "once"):
        jobs = shared_jobs(arrivals)

        def rows(jobs: Sequence[Job] = jobs) -> Iterable[Row]:
            for name in ("drf", "capacity", "tetris"):
                yield averaged(name, jobs, cluster, name)
            for bound in KAPPAS:
                label = f"graphene, kappa {bound:g}" if bound >= 0 else "graphene, no bound"
                yield averaged(label, jobs, cluster, "graphene", {"matcher.kappa": bound})

        table(f"Two equal queues, {len(jobs)} jobs ({arrivals}), 40 machines", names, rows())


def eta() -> None:
    """How much remaining work should weigh against order and packing."""
    names = ("mean JCT s", "p50", "p95", "makespan s", "Jain queues", "Jain jobs")
    cluster = six_resources(40)
    for arrivals in ("poisson", "once"):
        jobs = shared_jobs(arrivals)
        rows = (
            averaged(f"m = {m:g}", jobs, cluster, "graphene", {"matcher.eta_m": m})
            for m in (0.0, 0.2, 0.5, 1.0, 2.0, 4.0)
        )
        table(f"Graphene's m, {len(jobs)} jobs ({arrivals}), 40 machines", names, rows)


def terms() -> None:
    """Graphene whole, and with one term off at a time."""
    jobs, cluster = shared_jobs(), six_resources(40)
    rest = "r3,r4,r5,r6"  # the workload does not name them; all but cpu and memory
    cases: dict[str, dict[str, Any]] = {
        "whole": {"overbook": rest},
        "no preferred order": {"overbook": rest, "use_priority": False},
        "no packing": {"overbook": rest, "use_packing": False},
        "no srpt": {"overbook": rest, "eta_m": 0},
        "no overbooking": {"overbook": ""},
        "no unfairness bound": {"overbook": rest, "kappa": -1},
        "all off": {
            "overbook": "", "use_packing": False, "eta_m": 0, "use_priority": False, "kappa": -1,
        },
    }  # fmt: skip
    names = ("mean JCT s", "p50", "p95", "makespan s", "Jain queues", "overbooked")
    rows = (
        averaged(name, jobs, cluster, "graphene", {f"matcher.{k}": v for k, v in own.items()})
        for name, own in cases.items()
    )
    table(f"Graphene without one term, {len(jobs)} jobs, 40 machines", names, rows)


def overbook() -> None:
    """Overbooking on and off, on jobs bound by one resource each."""
    nodes = tuple(NodeSpec(f"n{i}", (16.0, 65536.0, 800.0, 1000.0)) for i in range(10))
    cluster = ClusterSpec(DEFAULT_RESOURCE_TYPES, nodes, DEFAULT_QUEUES)
    names = ("mean JCT s", "p95", "makespan s", "overbooked")

    def rows() -> Iterable[Row]:
        for kind in ("network_mbps", "disk_mbps", "memory_mb", "vcores"):
            jobs = bound_by(kind, cluster)
            for label, own in (
                ("off", {"matcher.overbook": ""}),
                ("disk, network", {}),
                ("disk, network, relative oScore", {"matcher.overbook_score": "relative"}),
            ):
                yield averaged(f"{kind}: {label}", jobs, cluster, "graphene", own)

    table("Jobs bound by one resource, 10 machines", names, rows())


def bound_by(kind: str, cluster: ClusterSpec, count: int = 30) -> list[Job]:
    """Two-stage jobs whose tasks need 0.35 to 0.6 of a machine's `kind` and little else."""
    rng = np.random.default_rng(5)
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


STUDIES = {"kappa": kappa, "eta": eta, "overbook": overbook, "terms": terms}


if __name__ == "__main__":
    sys.exit(run_named("lab.matching_study", STUDIES, sys.argv[1:]))
