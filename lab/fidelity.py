"""Does the simulator tell the truth? A live emulated run against its simulation, JCT by JCT.

`python -m lab.fidelity`. The demo's sample jobs run on a cluster of real processes in wall-clock
time, and the same jobs, nodes, scheduler and pace run in virtual time. The paper's simulator is
within 5 % of its cluster on average. The machine should be quiet: what it cannot do in time shows.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

import numpy as np

from sim.cluster import Simulation
from sim.settings import SimSettings
from weft.client.api import Client
from weft.client.local import DEFAULT_NODE, LocalCluster, LocalSettings
from weft.client.show import table
from weft.client.submitting import read_jobs
from weft.errors import WeftError
from weft.ids import AppId
from weft.job import Job
from weft.presets import preset
from weft.requests import ApplicationReport
from weft.workloads.cluster_file import load_cluster

MASTER = {"vcores": 0.1, "memory_mb": 256.0}


@dataclass(frozen=True, slots=True)
class Pair:
    """One job's completion times, s on the cluster's clock."""

    name: str
    live_s: float
    simulated_s: float

    @property
    def error(self) -> float:
        """How far the simulation is off, over the live time; positive: it is too slow."""
        return (self.simulated_s - self.live_s) / self.live_s


def demo_jobs() -> list[Job]:
    """The jobs that `weft demo` runs."""
    with resources.as_file(resources.files("weft.client") / "samples" / "tpch") as folder:
        return read_jobs(sorted(Path(folder).glob("*.json")))


def live(jobs: Sequence[Job], settings: LocalSettings) -> tuple[list[Job], list[float]]:
    """The jobs with the arrivals that the live cluster saw (from its first one), and their JCTs.

    The smallest job runs once before: the first one pays for loading code in every process.
    """
    with LocalCluster(settings) as cluster, Client(cluster.address) as client:
        _wait(client, [client.submit(min(jobs, key=lambda job: job.task_count))])
        apps = [client.submit(job) for job in jobs]
        reports = _wait(client, apps)
    bad = [report.name for report in reports if report.final_status != "SUCCEEDED"]
    if bad:
        raise WeftError(f"not succeeded: {', '.join(bad)}")
    first_s = min(report.submitted_s for report in reports)
    arrived = [
        replace(job, arrival_s=report.submitted_s - first_s)
        for job, report in zip(jobs, reports, strict=True)
    ]
    return arrived, [report.finished_s - report.submitted_s for report in reports]


def _wait(client: Client, apps: Sequence[AppId]) -> list[ApplicationReport]:
    while True:
        reports = [client.application(app) for app in apps]
        if all(report.finished_s > 0 for report in reports):
            return reports
        time.sleep(0.2)


def simulated(jobs: Sequence[Job], settings: LocalSettings, warm_s: float = 5.0) -> list[float]:
    """The same in virtual time; jobs arrive when the nodes have been up for a while."""
    cluster = load_cluster(settings.cluster or f"{settings.nodes}x{DEFAULT_NODE}")
    later = [replace(job, arrival_s=job.arrival_s + warm_s) for job in jobs]
    own = SimSettings(
        preset(settings.scheduler),
        prompt=settings.pace == "prompt",
        manager={"master_demand": MASTER},
    )
    rows = Simulation(cluster, later, own).run().jobs
    return [row.finish_s - row.job.arrival_s for row in rows]


def compare(jobs: Sequence[Job], settings: LocalSettings) -> list[Pair]:
    """Run both and pair the jobs."""
    arrived, times = live(jobs, settings)
    return [
        Pair(job.name, one, other)
        for job, one, other in zip(arrived, times, simulated(arrived, settings), strict=True)
    ]


def main() -> None:
    """Run the comparison and print it job by job."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--nodes", type=int, default=4, help="few, so that jobs queue")
    parser.add_argument("--scheduler", default="capacity")
    parser.add_argument("--time-scale", type=float, default=1.0)
    parser.add_argument("--pace", choices=["prompt", "yarn"], default="prompt")
    args = parser.parse_args()
    settings = LocalSettings(
        nodes=args.nodes, scheduler=args.scheduler, time_scale=args.time_scale, pace=args.pace
    )
    pairs = compare(demo_jobs(), settings)
    table(
        ("job", "live s", "simulated s", "error %"),
        [
            (p.name, round(p.live_s, 2), round(p.simulated_s, 2), round(100 * p.error, 1))
            for p in pairs
        ],
    )
    errors = np.array([p.error for p in pairs])
    print(
        f"{args.scheduler}, {args.nodes} nodes: mean error {100 * np.abs(errors).mean():.1f} % "
        f"(bias {100 * errors.mean():+.1f} %, worst {100 * np.abs(errors).max():.1f} %; "
        f"the paper: within 5 % on average)"
    )


if __name__ == "__main__":
    main()
