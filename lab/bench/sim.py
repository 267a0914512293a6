"""How many task completions a second does the simulator do on one core, with every message sent?

Each case is one run, in a process of its own: the time of the run without reading the workload, and
the process's peak memory. `ratio` sets the time per task of the largest run against the smallest.
After `make native` every case runs twice: as plain Python, and with the cores compiled. What others
do of the same work follows, from `docs/peers.jsonl`; `loops` compares figures of two machines
(`lab.bench.peers`).
"""

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import rm.core
from lab.bench.peers import in_loops, loop_us, rows_of
from lab.inputs import public_files
from lab.native import ROOT, native_build
from rm.match.registry import make_matcher
from rm.process.warm import warm
from sim.cluster import Simulation
from sim.process.command import quiet_collector
from sim.recorder import Recorder
from sim.settings import SimSettings
from weft.model.cluster import ClusterSpec, cluster_from_text
from weft.model.errors import WeftError
from weft.model.job import Edge, Job, Stage
from weft.policies.presets import preset

Row = dict[str, object]
# s between jobs of a stream that 1,000 nodes keep up with (load 0.88), so that growth with the
# tasks is not growth of a backlog; with 0.5 s they have twice as much to do as they can.
KEPT_UP_S = 1.2
NODE = "16vcores,65536memory_mb,800disk_mbps,1000network_mbps"


def stream(tasks: int, stages: int, per_stage: int, gap_s: float, seed: int = 1) -> list[Job]:
    """Return jobs of chained stages that arrive every `gap_s`, `tasks` tasks in all."""
    rng = np.random.default_rng(seed)
    jobs = []
    for number in range(max(1, tasks // (stages * per_stage))):
        made = []
        for i in range(stages):
            demand = {
                "vcores": float(rng.choice([1, 2])),
                "memory_mb": float(rng.integers(512, 4096)),
                "disk_mbps": float(rng.integers(0, 40)),
                "network_mbps": float(rng.integers(0, 40)),
            }
            parents = (Edge(f"s{i - 1}"),) if i else ()
            made.append(Stage(f"s{i}", per_stage, float(rng.uniform(5, 40)), demand, parents))
        jobs.append(Job(f"j{number}", tuple(made), arrival_s=number * gap_s))
    return jobs


def queries(count: int) -> list[Job]:
    """Return decima-sim's case: TPC-H queries in a stream, one slot a task."""
    from weft.workloads import tpch

    jobs = tpch.read(public_files("tpch/2g/*.json.gz")).jobs
    rng = np.random.default_rng(1)
    times = np.cumsum(rng.exponential(25.0, count))
    picked = [jobs[int(i)] for i in rng.integers(len(jobs), size=count)]
    return [
        Job(f"{job.name}-{n}", job.stages, arrival_s=float(at), resources=job.resources)
        for n, (job, at) in enumerate(zip(picked, times, strict=True))
    ]


def hour_slice() -> list[Job]:
    """Return half an hour of a production cluster: every batch job with its true arrival."""
    from weft.workloads import alibaba2018

    return alibaba2018.read(public_files("alibaba-v2018/hour_slice.csv.gz")).jobs


def fifty_slots() -> ClusterSpec:
    """Return a cluster of executors of one slot each."""
    return cluster_from_text("50x1vcores,4096memory_mb")


def thousand() -> ClusterSpec:
    """Return a thousand equal nodes."""
    return cluster_from_text(f"1000x{NODE}")


CASES: dict[str, tuple[Callable[[], list[Job]], Callable[[], ClusterSpec], str]] = {
    "capacity, 1,000 nodes, 100,000 tasks": (
        lambda: stream(100_000, 5, 100, 0.5),
        thousand,
        "capacity",
    ),
    "graphene, 1,000 nodes, 100,000 tasks": (
        lambda: stream(100_000, 5, 100, 0.5),
        thousand,
        "graphene",
    ),
    "TPC-H, 50 one-slot executors, 200 jobs, fifo": (lambda: queries(200), fifty_slots, "fifo"),
    "capacity, 10,000 tasks": (lambda: stream(10_000, 5, 100, KEPT_UP_S), thousand, "capacity"),
    "capacity, 1,000,000 tasks": (
        lambda: stream(1_000_000, 5, 100, KEPT_UP_S),
        thousand,
        "capacity",
    ),
    "alibaba hour slice, 4,000 nodes": (
        hour_slice,
        lambda: cluster_from_text("4000x96vcores,393216memory_mb"),
        "capacity",
    ),
}
# How many cases a quick look takes, how many are short, and how often those repeat.
QUICK, SHORT, REPEATS = 3, 4, 3
# These jobs run before, so that no kernel is loaded while the clock runs.
WARM_UP_JOBS = 20


def run(quick: bool = False) -> list[Row]:
    """Return all cases, each in its own process; with a native build of this code, with both.

    The short ones run three times in turn, and the fastest counts: a busy machine only slows down.
    """
    # A wheel of the native build is compiled itself.
    own = "native" if Path(rm.core.__file__).suffix != ".py" else "python"
    builds = {own: ROOT, "native": ROOT if own == "native" else native_build()}
    roots = {build: root for build, root in builds.items() if root is not None}
    by = {}
    for place, name in enumerate(list(CASES)[: QUICK if quick else None]):
        times = REPEATS if place < SHORT and not quick else 1
        tried = [{b: _in_process(name, root) for b, root in roots.items()} for _ in range(times)]
        for build in roots:
            found = [row[build] for row in tried]
            spent = [us for row in found if isinstance(us := row.get("us_per_task"), float)]
            best = min(found, key=lambda row: float(str(row.get("us_per_task", 0.0))))
            by[build, name] = {"build": build} | best
            if len(spent) > 1:
                by[build, name]["slowest_us"] = max(spent)
    for build in roots:
        small = by.get((build, "capacity, 10,000 tasks"), {}).get("us_per_task")
        large = by.get((build, "capacity, 1,000,000 tasks"), {}).get("us_per_task")
        if isinstance(small, float) and isinstance(large, float):
            by[build, "capacity, 1,000,000 tasks"]["ratio"] = round(large / small, 2)
    return [*by.values(), *rows_of({name for _, name in by})]


def case(name: str) -> Row:
    """Run one case here."""
    make_jobs, make_cluster, scheduler = CASES[name]
    try:
        jobs = make_jobs()
    except (OSError, ValueError, WeftError) as error:
        return {"case": name, "skipped": f"{error}"}
    cluster = make_cluster()
    chosen = preset(scheduler)
    warm(make_matcher(chosen.matcher, chosen.matcher_options), cluster.types)
    Simulation(cluster, jobs[:WARM_UP_JOBS], SimSettings(scheduler=chosen)).run()
    recorder = Recorder()
    simulation = Simulation(cluster, jobs, SimSettings(scheduler=chosen), recorder)
    event_us = loop_us()
    with quiet_collector():
        start, cpu = time.perf_counter(), time.process_time()
        simulation.run()
        wall_s, cpu_s = time.perf_counter() - start, time.process_time() - cpu
    event_us = min(event_us, loop_us())
    tasks = recorder.finished_tasks
    return {
        "case": name,
        "tasks": tasks,
        "tasks_per_s": round(tasks / wall_s),
        "per_cpu_s": round(tasks / cpu_s),
        "us_per_task": round(cpu_s / tasks * 1e6, 1),
        **in_loops(cpu_s / tasks * 1e6, event_us),
        "wall_s": round(wall_s, 1),
        "events": simulation.engine.events,
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def _in_process(name: str, root: Path = ROOT) -> Row:
    code = f"import json; from lab.bench.sim import case; print(json.dumps(case({name!r})))"
    paths = os.pathsep.join(filter(None, (str(root), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": paths},
    )
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or ["no output"]
        return {"case": name, "failed": last[0]}
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row
