"""COBRA's evaluation: `python -m lab.studies.cobra compare|sensitivity|response`.

Source: COBRA section VII and tables I and IV. `compare` and `sensitivity` simulate the whole stack
in YARN's pace on 100 machines of 8 cores and 16 GB; `response` starts a live cluster. Each takes
minutes on one core (`compare` six), so the workloads are subsets (docs/cobra.md says which).
"""

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from lab.inputs import public_files
from lab.studies.runs import Outcome, run_named, simulate, spread
from weft.client.api import Client
from weft.client.local import LocalCluster, LocalSettings
from weft.model.cluster import ClusterSpec, cluster_from_text
from weft.model.ids import app_of_attempt, app_of_container
from weft.model.job import Edge, Job, Preference, Stage
from weft.workloads.imported import Imported
from weft.workloads.registry import import_jobs

# A container is the fraction PART of a machine.
MACHINES, CORES, MEMORY_MB, PART = 100, 8.0, 16384.0, 0.25
# The traces have stages of thousands of tasks.
TASKS_MAX = 60
# Demand over supply of containers, if every task had one for itself, so that jobs compete.
LOAD = 4.0
SEEDS = (0, 1)
PEERS: Sequence[tuple[str, str, Mapping[str, float]]] = (
    ("default_container", "default_container", {}),
    ("srs", "srs", {}),
    ("drs", "drs", {}),
    ("tetris", "tetris", {}),
    ("cobra", "cobra", {}),
    ("cobra, tau 0.1", "cobra", {"asker.tau": 0.1}),
    ("cobra, exact", "cobra", {"asker.over_estimate": 0.0}),
)
AXES: Mapping[str, Sequence[float]] = {
    "rho": (1.2, 1.5, 2.0, 3.0),
    "delta": (0.5, 0.6, 0.7, 0.8, 0.9),
    "period_s": (1.0, 5.0, 10.0, 20.0),
    "tau": (0.0, 0.25, 0.5, 1.0),
}


def cluster() -> ClusterSpec:
    """Return the paper's simulated cluster."""
    return cluster_from_text(f"{MACHINES}x{CORES:g}vcores,{MEMORY_MB:g}memory_mb")


def alibaba() -> list[Job]:
    """Return jobs of 5 to 7 stages with the use that was measured, per task."""
    files = public_files("alibaba-v2018/task_usage.csv.gz")
    return prepared(import_jobs("alibaba2018", files, {}, Imported()), 120)


def wfinstances() -> list[Job]:
    """Return the scientific workflows of less than 400 tasks, each three times."""
    files = public_files("wfinstances/*/*.json*")
    small = [j for j in import_jobs("wfformat", files, {}, Imported()) if j.task_count < 400]
    copies = [replace(job, name=f"{job.name}-{copy}") for job in small for copy in range(3)]
    return prepared(copies, len(copies))


def tpch() -> list[Job]:
    """Return the 22 queries at 2 GB and 5 GB; without demands: half a core and 1 GB a task."""
    given = {"vcores": "0.5", "memory_mb": "1024"}
    files = [*public_files("tpch/2g/*.json.gz"), *public_files("tpch/5g/*.json.gz")]
    return prepared(import_jobs("tpch", files, given, Imported()), 44)


WORKLOADS: Mapping[str, Callable[[], list[Job]]] = {
    "alibaba-v2018": alibaba,
    "wfinstances": wfinstances,
    "tpch": tpch,
}


def prepared(jobs: Iterable[Job], count: int) -> list[Job]:
    """Return the first jobs, demands as used but at most a container, inputs on three nodes."""
    rng = np.random.default_rng(7)
    nodes = [spec.node_id for spec in cluster().nodes]
    limit = {"vcores": PART * CORES, "memory_mb": PART * MEMORY_MB}
    chosen = []
    for job in islice(jobs, count):
        stages = []
        for stage in job.stages:
            used = stage.actual_demand or stage.demand
            need = {name: min(used.get(name, 0.0), most) for name, most in limit.items()}
            homes = tuple(nodes[i] for i in rng.choice(len(nodes), 3, replace=False).tolist())
            stages.append(
                Stage(
                    stage.name,
                    min(stage.tasks, TASKS_MAX),
                    stage.duration_s,
                    need,
                    stage.parents,
                    prefer=Preference() if stage.parents else Preference(homes),
                )
            )
        chosen.append(replace(job, stages=tuple(stages)))
    return chosen


def arriving(jobs: Sequence[Job], seed: int) -> list[Job]:
    """Return jobs with Poisson arrivals at `LOAD`."""
    seconds = sum(s.tasks * s.duration_s for job in jobs for s in job.stages)
    containers = MACHINES / PART
    return spread(jobs, seconds / (len(jobs) * containers * LOAD), seed)


def run(jobs: Sequence[Job], scheduler: str, options: Mapping[str, Any] | None = None) -> Outcome:
    """Run all seeds: completion times one after the other, the mean makespan."""
    found = [simulate(arriving(jobs, s), cluster(), scheduler, options, s) for s in SEEDS]
    times = np.concatenate([one.jct_s for one in found])
    span_s = float(np.mean([one.makespan_s for one in found]))
    return Outcome(times, span_s, found[0].jain, float(np.mean([one.utilisation for one in found])))


def header(title: str, names: Sequence[str]) -> None:
    """Print the head of a Markdown table."""
    print(f"\n{title}\n\n| {' | '.join(names)} |\n|---|{'---:|' * (len(names) - 1)}", flush=True)


def compare(chosen: Sequence[str] = tuple(WORKLOADS)) -> None:
    """Print mean response and makespan beside the paper's claims, relative to Default."""
    names = (
        "scheduler",
        "mean response s",
        "p50",
        "p95",
        "makespan s",
        "response saved",
        "makespan saved",
        "use",
    )
    for workload in chosen:
        jobs = WORKLOADS[workload]()
        tasks = sum(job.task_count for job in jobs)
        header(f"{workload}: {len(jobs)} jobs, {tasks} tasks, seeds {SEEDS}", names)
        base: Outcome | None = None
        for name, scheduler, options in PEERS:
            own = run(jobs, scheduler, options)
            base = base or own
            cells = [f"{v:.1f}" for v in (own.jct_s.mean(), *np.percentile(own.jct_s, (50, 95)))]
            saved = 1 - own.jct_s.mean() / base.jct_s.mean(), 1 - own.makespan_s / base.makespan_s
            cells += [f"{own.makespan_s:.0f}", *(f"{part:.0%}" for part in saved)]
            print(f"| {name} | {' | '.join(cells)} | {own.utilisation:.2f} |", flush=True)


def sensitivity() -> None:
    """Print what rho, delta, L and tau do, one at a time, on Alibaba's jobs."""
    jobs = alibaba()[:60]
    base = run(jobs, "default_container")
    header(
        f"alibaba-v2018, {len(jobs)} jobs: saved of Default's mean response and makespan",
        ("parameter", "value", "response", "makespan"),
    )
    for name, values in AXES.items():
        for value in values:
            own = run(jobs, "cobra", {f"asker.{name}": value})
            times, span = own.jct_s.mean() / base.jct_s.mean(), own.makespan_s / base.makespan_s
            print(f"| {name} | {value:g} | {1 - times:.1%} | {1 - span:.1%} |", flush=True)


# -- live ------------------------------------------------------------------------------------------


def response() -> None:
    """Print table I: from a request to the word of its grant, 1 s heartbeats, three loads."""
    header(
        "Container response time, ms",
        ("load", "requests", "mean", "median", "p95"),
    )
    levels = {"light": (0, 0.0), "medium": (16, 600.0), "nearly full": (400, 4.0)}
    for level, (tasks, duration_s) in levels.items():
        found = 1000.0 * np.array(measured(tasks, duration_s))
        middle, high = np.percentile(found, (50, 95))
        print(
            f"| {level} | {len(found)} | {found.mean():.0f} | {middle:.0f} | {high:.0f} |",
            flush=True,
        )
    print("| paper | | 996 | 1286 | 2711 |")


def measured(tasks: int, duration_s: float) -> list[float]:
    """Return response times of chains of single tasks beside a job of so many tasks, s."""
    settings = LocalSettings(
        cluster="8x8vcores,16384memory_mb", scheduler="default_container", pace="yarn", events=True
    )
    demand = {"vcores": 2.0, "memory_mb": 3072.0}
    with LocalCluster(settings) as live, Client(live.address) as client:
        if tasks:
            client.submit(Job("background", (Stage("s", tasks, duration_s, demand),)))
        stages = tuple(
            Stage(f"s{i}", 1, 0.1, demand, (Edge(f"s{i - 1}"),) if i else ()) for i in range(8)
        )
        apps = [client.submit(Job(f"chain{i}", stages)) for i in range(6)]
        client.wait(apps)
        return waits(live.folder, set(apps))


def waits(folder: Path, apps: set[int]) -> list[float]:
    """Return the times from the heartbeat that carried a request to its task's start, s.

    A master notes its progress in the very heartbeat that asks for what became ready, and orders
    the start (milliseconds) when it hears of the grant.
    """
    asked: dict[tuple[int, int], float] = {}
    started: dict[tuple[int, int], float] = {}
    for path in folder.glob("*.events"):
        for line in path.read_text().splitlines():
            event = json.loads(line)
            if event["fact"] == "JobProgressed":
                key = (app_of_attempt(event["attempt"]), event["finished"])
                if not event["running"]:
                    asked.setdefault(key, event["now_s"])
            elif event["fact"] == "TaskStarted" and event["stage"] >= 0:
                started[app_of_container(event["container"]), event["stage"]] = event["now_s"]
    return [started[key] - at for key, at in asked.items() if key[0] in apps and key in started]


STUDIES = {"compare": compare, "sensitivity": sensitivity, "response": response}


if __name__ == "__main__":
    sys.exit(run_named("lab.studies.cobra", STUDIES, sys.argv[1:]))
