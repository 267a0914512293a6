"""Is Weft as fast as it was? `make bench-check`: short cases against docs/bench.jsonl.

Each case runs in a process of its own, in turn with a calibration loop (`lab.bench.calibration`);
what counts is the CPU time of a task over that of an event of the loop, the least of all rounds
each, so that figures of two machines, or of a busy one, compare. A case that takes more than
`WORSE` times what the newest line of its interpreter and build says fails. `--write` appends a line
for the commit that is checked out.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lab.bench.calibration import event_us
from lab.bench.sim import stream
from lab.native import ROOT, native_build
from sim.cluster import Simulation
from sim.process.command import quiet_collector
from sim.recorder import Recorder
from sim.settings import SimSettings
from weft.model.cluster import cluster_from_text
from weft.model.job import Edge, Job, Stage
from weft.policies.presets import preset

HISTORY = ROOT / "docs/bench.jsonl"
WORSE = 1.15
# A case that fails is measured once more, as a neighbour may have been loud.
ROUNDS, TRIES = 6, 2
NODES = "60x16vcores,65536memory_mb,800disk_mbps,1000network_mbps"
CODE = (
    "import json, sys; from lab.bench.check import measure; print(json.dumps(measure(sys.argv[1])))"
)
SLOTS = "50x1vcores,4096memory_mb"

Case = tuple[str, str, Callable[[], list[Job]]]
CASES: dict[str, Case] = {
    "capacity": ("capacity", NODES, lambda: stream(6_000, 5, 100, 8.0)),
    "graphene": ("graphene", NODES, lambda: stream(6_000, 5, 100, 8.0)),
    "one-slot fifo": ("fifo", SLOTS, lambda: _one_by_one(30)),
}


def _one_by_one(count: int) -> list[Job]:
    """Return jobs of a hundred tasks, each of which takes a slot by itself."""
    demand = {"vcores": 1.0, "memory_mb": 1024.0}
    return [
        Job(
            f"j{number}",
            tuple(
                Stage(f"s{i}", 20, 3.0 + 0.1 * i, demand, (Edge(f"s{i - 1}"),) if i else ())
                for i in range(5)
            ),
            arrival_s=10.0 * number,
        )
        for number in range(count)
    ]


def measure(name: str) -> dict[str, Any]:
    """Run one case here, in turn with the loop: CPU us of a task, and of an event of the loop."""
    scheduler, nodes, make_jobs = CASES[name]
    jobs, cluster = make_jobs(), cluster_from_text(nodes)
    settings = SimSettings(scheduler=preset(scheduler))
    Simulation(cluster, jobs[:3], settings).run()
    task_us = loop_us = float("inf")
    digest = ""
    for _ in range(ROUNDS):
        recorder = Recorder()
        simulation = Simulation(cluster, jobs, settings, recorder)
        with quiet_collector():
            loop_us = min(loop_us, event_us())
            began_s = time.process_time()
            simulation.run()
            spent_s = time.process_time() - began_s
        task_us = min(task_us, spent_s / recorder.finished_tasks * 1e6)
        digest = recorder.digest()[:12]
    return {
        "task_us": round(task_us, 2),
        "loop_us": round(loop_us, 4),
        "ratio": round(task_us / loop_us, 1),
        "digest": digest,
    }


def figures(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Measure cases by build and name, each in a process of its own."""
    builds = {"python": ROOT, "native": native_build()}
    found = {}
    for build, root in builds.items():
        for name in names if root is not None else ():
            done = subprocess.run(
                [sys.executable, "-P", "-c", CODE, name],
                check=True,
                capture_output=True,
                text=True,
                env=os.environ | {"PYTHONPATH": str(root)},
            )
            found[f"{name}, {build}"] = json.loads(done.stdout.splitlines()[-1])
    return found


def history(path: Path = HISTORY) -> list[dict[str, Any]]:
    """Return the lines that are kept, the oldest first."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line]


def interpreter() -> str:
    """Return what a line is of: ratios of two interpreters do not compare."""
    return f"{platform.python_implementation()} {platform.python_version()} {platform.machine()}"


def fallen(
    now: Mapping[str, Mapping[str, Any]], kept: Sequence[Mapping[str, Any]], by: str
) -> dict[str, float]:
    """Return cases that take more than `WORSE` times what the interpreter's newest line says."""
    known: dict[str, float] = {}
    for line in kept:
        if line["interpreter"] == by:
            known |= {name: row["ratio"] for name, row in line["cases"].items()}
    return {
        name: row["ratio"] / known[name]
        for name, row in now.items()
        if name in known and row["ratio"] > WORSE * known[name]
    }


def line_of(cases: Mapping[str, Any]) -> dict[str, Any]:
    """Return the line of this commit."""
    ask = ["git", "-C", str(ROOT), "log", "-1", "--format=%h %cs"]
    said = subprocess.run(ask, check=True, capture_output=True, text=True).stdout.split()
    processor = (
        next(
            (
                line.partition(":")[2].strip()
                for line in Path("/proc/cpuinfo").read_text().splitlines()
                if line.startswith("model name")
            ),
            platform.processor(),
        )
        if Path("/proc/cpuinfo").exists()
        else platform.processor()
    )
    return {
        "commit": said[0],
        "date": said[1],
        "interpreter": interpreter(),
        "machine": f"{os.cpu_count()} x {processor}",
        "cases": dict(cases),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, compare; 1 where a case fell."""
    parser = argparse.ArgumentParser(prog="bench-check", description=__doc__)
    parser.add_argument("--write", action="store_true", help="append a line for this commit")
    write = parser.parse_args(arguments).write
    kept, by = history(), interpreter()
    found = figures(list(CASES))
    worse = fallen(found, kept, by)
    for _ in range(TRIES - 1):
        if worse and not write:
            names = [name for name in CASES if any(one.startswith(f"{name}, ") for one in worse)]
            again = figures(names)
            found |= {n: min(row, found[n], key=lambda r: r["ratio"]) for n, row in again.items()}
            worse = fallen(found, kept, by)
    for name, row in found.items():
        fell = f"  {worse[name]:.2f} times what it took" if name in worse else ""
        print(f"{name:24} {1e6 / row['task_us']:8,.0f} tasks/s  {row['ratio']:7.1f} loops{fell}")
    if not any(line["interpreter"] == by for line in kept):
        print(f"nothing is kept of {by}: --write begins")
    if write:
        with HISTORY.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line_of(found)) + "\n")
        return 0
    return 1 if worse else 0


if __name__ == "__main__":
    raise SystemExit(main())
