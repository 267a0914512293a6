"""Hadoop's own simulator beside Weft's: `python -m lab.yarn.sls`, the same jobs, nodes and queues.

The Scheduler Load Simulator (SLS) runs the Resource Manager of Hadoop 3.3.1, the latest release
whose SLS is published, in real time: its masters and nodes are threads that send heartbeats once a
second. Weft runs the same traces in virtual time under `yarn` or `yarn_fair`, made from the same
properties. Compared are the makespan, the jobs' completion times, and what each queue holds while
all of them want more.
"""

import argparse
import csv
import json
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import weft
from lab.yarn.cases import case_of
from lab.yarn.compare import jars

BUILD = Path("build/yarn/sls")
# SLS's libraries reach into the JDK in ways that Java 17 no longer allows by itself.
OPEN = ("java.base/java.lang=ALL-UNNAMED", "java.base/java.util=ALL-UNNAMED")
PATIENCE_S = 1200.0
# Queues' shares are means over this time from the first job's start, in which the cluster is full.
WINDOW_S = 90.0
QUEUES = {"sls_queue_1": 25, "sls_queue_2": 25, "sls_queue_3": 50}
RACKS, NODES_A_RACK = 2, 5
NODE = {"mem": 10240, "vcores": 10}
MASTER = {"vcores": 1, "memory_mb": 1024}
YARN = "org.apache.hadoop.yarn.server.resourcemanager.scheduler."
SCHEDULERS = {"yarn": YARN + "capacity.CapacityScheduler", "yarn_fair": YARN + "fair.FairScheduler"}
LOCAL = ("address", "scheduler.address", "resource-tracker.address", "admin.address")
Table = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to; `shares` are parts of the cluster's memory by queue."""

    makespan_s: float
    completion_s: Mapping[str, float]
    shares: Mapping[str, float]


def trace(seed: int) -> list[Table]:
    """Draw 24 MapReduce jobs of three queues, which arrive within a minute, in SLS's format."""
    rng = np.random.default_rng([seed, 3])
    hosts = [f"/{node['rack']}/{node['name']}" for node in nodes()]
    jobs = []
    for number in range(24):
        start = int(rng.integers(0, 60_000))
        tasks = []
        for kind, priority, most, shortest, longest in (
            ("map", 20, 40, 5_000, 20_000),
            ("reduce", 10, 8, 10_000, 20_000),
        ):
            for _ in range(int(rng.integers(2, most + 1))):
                took = int(rng.integers(shortest, longest))
                tasks.append(
                    {
                        "container.host": hosts[int(rng.integers(len(hosts)))],
                        "container.start.ms": start,
                        "container.end.ms": start + took,
                        "container.priority": priority,
                        "container.type": kind,
                    }
                )
        jobs.append(
            {
                "am.type": "mapreduce",
                "job.start.ms": start,
                "job.end.ms": start + 60_000,
                "job.queue.name": [*QUEUES][int(rng.integers(len(QUEUES)))],
                "job.id": f"job_{number}",
                "job.user": "default",
                "job.tasks": tasks,
            }
        )
    # SLS starts jobs in the file's order, at their times.
    return sorted(jobs, key=lambda job: int(job["job.start.ms"]))


def nodes() -> list[Table]:
    """Return the nodes of both: name, rack, memory (MB) and vcores."""
    return [
        {"name": f"node{rack * NODES_A_RACK + n + 1}", "rack": f"rack{rack + 1}", **NODE}
        for rack in range(RACKS)
        for n in range(NODES_A_RACK)
    ]


def properties(scheduler: str) -> dict[str, str]:
    """Return the properties that decide, for both."""
    given = {
        "yarn.resourcemanager.scheduler.class": SCHEDULERS[scheduler],
        "yarn.scheduler.capacity.root.queues": ",".join(QUEUES),
        "yarn.scheduler.capacity.maximum-am-resource-percent": "1.0",
        "yarn.scheduler.fair.assignmultiple": "true",
        "yarn.scheduler.minimum-allocation-mb": "1024",
    }
    for name, part in QUEUES.items():
        prefix = f"yarn.scheduler.capacity.root.{name}."
        given |= {
            prefix + "capacity": str(part),
            prefix + "maximum-capacity": "100",
            prefix + "user-limit-factor": "10",
        }
    return given


def allocations() -> str:
    """Return the Fair Scheduler's allocation file."""
    rows = [
        f"<queue name='{name}'><weight>{part}</weight></queue>" for name, part in QUEUES.items()
    ]
    return f"<allocations>{''.join(rows)}</allocations>"


# -- SLS -------------------------------------------------------------------------------------------


def _xml(path: Path, given: Mapping[str, object]) -> None:
    rows = [
        f"<property><name>{key}</name><value>{value}</value></property>"
        for key, value in given.items()
    ]
    path.write_text(f"<configuration>{''.join(rows)}</configuration>\n", encoding="utf-8")


def _configure(folder: Path, scheduler: str) -> None:
    decides = properties(scheduler)
    local = {f"yarn.resourcemanager.{one}": "127.0.0.1:0" for one in (*LOCAL, "webapp.address")}
    _xml(folder / "capacity-scheduler.xml", {k: v for k, v in decides.items() if "capacity." in k})
    (folder / "fair-scheduler.xml").write_text(allocations(), encoding="utf-8")
    # The nodes have no addresses.
    local["hadoop.security.token.service.use_ip"] = "false"
    files = {"yarn.scheduler.fair.allocation.file": str((folder / "fair-scheduler.xml").resolve())}
    _xml(folder / "yarn-site.xml", decides | local | files)
    sls = "yarn.sls."
    watched = "org.apache.hadoop.yarn.sls.scheduler."
    _xml(
        folder / "sls-runner.xml",
        {
            sls + "runner.pool.size": 40,
            sls + "nm.memory.mb": NODE["mem"],
            sls + "nm.vcores": NODE["vcores"],
            sls + "nm.heartbeat.interval.ms": 1000,
            sls + "am.heartbeat.interval.ms": 1000,
            sls + "am.type.mapreduce": "org.apache.hadoop.yarn.sls.appmaster.MRAMSimulator",
            sls + "container.memory.mb": 1024,
            sls + "container.vcores": 1,
            sls + "metrics.switch": "ON",
            sls + "metrics.web.address.port": 0,
            SCHEDULERS["yarn"]: watched + "CapacitySchedulerMetrics",
            SCHEDULERS["yarn_fair"]: watched + "FairSchedulerMetrics",
        },
    )
    racks = defaultdict(list)
    for node in nodes():
        racks[node["rack"]].append({"node": node["name"]})
    rows = [json.dumps({"rack": rack, "nodes": held}) for rack, held in racks.items()]
    (folder / "nodes.json").write_text("\n".join(rows), encoding="utf-8")


def by_sls(folder: Path, jobs: list[Table], scheduler: str) -> Outcome:
    """Run a trace through SLS, in real time; raises RuntimeError where it fails."""
    folder.mkdir(parents=True, exist_ok=True)
    _configure(folder, scheduler)
    written = folder / "trace.json"
    written.write_text("\n".join(json.dumps(job) for job in jobs), encoding="utf-8")
    out, log = folder / "out", folder / "sls.log"
    command = [
        "java",
        *[f"--add-opens={one}" for one in OPEN],
        "-cp",
        f"{folder}:{jars('sls-pom.xml', BUILD)}",
    ]
    command += ["org.apache.hadoop.yarn.sls.SLSRunner", "--tracetype=SLS", f"--output={out}"]
    command += [f"--tracelocation={written}", f"--nodes={folder / 'nodes.json'}"]
    with log.open("w", encoding="utf-8") as told:
        process = subprocess.Popen(command, stdout=told, stderr=subprocess.STDOUT)
    give_up = time.monotonic() + PATIENCE_S
    try:
        # Threads of its own keep a simulator running whose main thread has failed.
        while process.poll() is None:
            failed = 'Exception in thread "main"' in log.read_text(encoding="utf-8")
            if failed or time.monotonic() > give_up:
                raise RuntimeError(f"SLS did not end: {log}")
            time.sleep(1)
    finally:
        process.kill()
        process.wait()
    return _read(out, jobs)


def _read(out: Path, jobs: list[Table]) -> Outcome:
    ends: dict[str, float] = {}
    starts: dict[str, float] = {}
    with (out / "jobruntime.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            name = jobs[int(row["JobID"].rsplit("_", 1)[1]) - 1]["job.id"]
            starts[name] = float(row["simulate_start_time"]) / 1000
            ends[name] = max(ends.get(name, 0.0), float(row["simulate_end_time"]) / 1000)
    # It may end before the last line is written.
    if len(ends) < len(jobs) - 1:
        raise RuntimeError(f"SLS ended {len(ends)} of {len(jobs)} jobs: {out}")
    first = min(starts.values())
    total = float(len(nodes()) * NODE["mem"])
    held = {}
    for name in QUEUES:
        # One scheduler names queues by their paths, the other by their last names; both files
        # are there, and the other one has zeros.
        pattern = f"counter.queue.*{name}.allocated.memory.csv"
        by_time: defaultdict[int, float] = defaultdict(float)
        for path in (out / "metrics").glob(pattern):
            with path.open(encoding="utf-8", newline="") as file:
                for row in csv.DictReader(file):
                    by_time[int(row["t"])] += float(row["count"])
        within = [mb for at, mb in by_time.items() if 0 <= at - first < WINDOW_S]
        held[name] = float(np.mean(within)) / total
    return Outcome(
        max(ends.values()) - first,
        {name: ends[name] - starts[name] for name in ends},
        held,
    )


# -- Weft ------------------------------------------------------------------------------------------


def by_weft(folder: Path, jobs: list[Table], scheduler: str, seed: int) -> Outcome:
    """Run a trace through Weft's simulator; `seed` draws the phases of heartbeats."""
    folder.mkdir(parents=True, exist_ok=True)
    case = case_of(
        scheduler,
        {
            "configuration": properties(scheduler),
            "allocations": allocations(),
            "nodes": nodes(),
            "rounds": 0,
        },
    )
    file = folder / "trace.json"
    file.write_text("\n".join(json.dumps(job) for job in jobs), encoding="utf-8")
    options = {f"matcher.{key}": value for key, value in case.matcher.items()}
    options |= {f"manager.{key}": value for key, value in case.manager.items()}
    options |= {"manager.master_vcores": 1, "manager.master_memory_mb": 1024}
    options["manager.master_share_max"] = 1.0
    run = weft.simulate(
        str(file), case.cluster, scheduler, options=options, seed=seed, format="sls"
    )
    rows = run.jobs.to_pylist()
    first = min(row["arrival_s"] for row in rows)
    queue_of = {row["job"]: row["queue"] for row in rows}
    used = dict.fromkeys(QUEUES, 0.0)
    until = first + WINDOW_S
    for task in run.tasks.to_pylist():
        lasted = min(task["end_s"], until) - max(task["start_s"], first)
        used[queue_of[task["job"]].rpartition(".")[2]] += max(lasted, 0.0) * 1024
    for row in rows:
        lasted = min(row["finish_s"], until) - row["arrival_s"]
        used[row["queue"].rpartition(".")[2]] += max(lasted, 0.0) * MASTER["memory_mb"]
    total = len(nodes()) * NODE["mem"] * WINDOW_S
    return Outcome(
        max(row["finish_s"] for row in rows) - first,
        {row["name"]: row["finish_s"] - row["arrival_s"] for row in rows},
        {name: amount / total for name, amount in used.items()},
    )


def later(jobs: list[Table]) -> list[Table]:
    """Return a trace whose containers are held a heartbeat longer.

    SLS's masters look at an answer of the manager one heartbeat after it came
    (AMSimulator.middleStep), so what they were granted starts a second later.
    """
    made: list[Table] = json.loads(json.dumps(jobs))
    for job in made:
        for task in job["job.tasks"]:
            task["container.end.ms"] += 1000
    return made


def gaps(ours: list[Outcome], theirs: Outcome) -> str:
    """Return how much each job's completion time differs: median and quartiles over jobs."""
    found = [
        float(np.mean([one.completion_s[name] for one in ours])) / there - 1
        for name, there in theirs.completion_s.items()
    ]
    low, middle, high = np.quantile(found, [0.25, 0.5, 0.75])
    return f"jobs {middle:+.1%} ({low:+.1%} to {high:+.1%})"


def _line(who: str, outcomes: Iterable[Outcome]) -> str:
    found = list(outcomes)
    mean = [float(np.mean([*one.completion_s.values()])) for one in found]
    shares = [np.mean([one.shares[name] for one in found]) for name in QUEUES]
    held = ", ".join(f"{share:5.1%}" for share in shares)
    makespan = np.mean([one.makespan_s for one in found])
    times = f"makespan {makespan:6.1f} s  mean completion {np.mean(mean):5.1f} s"
    return f"  {who:24s} {times}  held {held}"


def main() -> int:
    """Run traces through both; return 0."""
    parser = argparse.ArgumentParser(description="Compare Weft's simulator with Hadoop's SLS.")
    parser.add_argument("--seeds", type=int, default=3, help="so many traces")
    parser.add_argument("--phases", type=int, default=10, help="runs of Weft a trace")
    chosen = parser.parse_args()
    for scheduler in SCHEDULERS:
        for seed in range(chosen.seeds):
            jobs = trace(seed)
            folder = BUILD / f"{scheduler}-{seed}"
            theirs = by_sls(folder, jobs, scheduler)
            print(f"{scheduler}, trace {seed}")
            print(_line("SLS", [theirs]))
            for who, told in (("Weft", jobs), ("Weft, a heartbeat later", later(jobs))):
                ours = [by_weft(folder, told, scheduler, one) for one in range(chosen.phases)]
                print(_line(who, ours), gaps(ours, theirs), sep="  ", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
