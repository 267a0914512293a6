"""A soak: one day of a busy cluster on loopback, on a clock that runs fast; is every process flat?

`make soak`, or `python -m tools.soak --applications 20000 --day-s 86400 --wall-s 600`. Small
applications of 50 users arrive evenly over the day; every 200th is killed.
Memory, open files and threads of each process are sampled; after a warm-up of a quarter they may
not grow by more than a tenth (and a little that samples differ by). With journal and pages.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path

import psutil

from weft.client.api import Client
from weft.client.local import LocalCluster, LocalSettings
from weft.model.job import Edge, Job, Stage

SAMPLES_PER_RUN = 40
# So many applications may run or wait at a time; more wait with the client.
LIVE_MAX = 400
GROWTH = 1.10
# By so much samples differ without a leak.
SAMPLE_NOISE = {"memory MB": 12.0, "files": 8.0, "threads": 4.0}


def job(number: int) -> Job:
    """Return a job of two stages and three short tasks."""
    demand = {"vcores": 1.0, "memory_mb": 256.0}
    first = Stage("a", 2, 2.0, demand)
    second = Stage("b", 1, 1.0, demand, (Edge("a"),))
    return Job(f"soak-{number}", (first, second), user=f"u{number % 50}", max_task_attempts=1)


def sample(cluster: LocalCluster) -> dict[str, dict[str, float]]:
    """Return memory, files and threads of every process."""
    found = {}
    for name, process in cluster.processes.items():
        seen = psutil.Process(process.pid)
        with seen.oneshot():
            found[name] = {
                "memory MB": seen.memory_full_info().uss / 2**20,
                "files": float(seen.num_fds()),
                "threads": float(seen.num_threads()),
            }
    return found


def drive(
    cluster: LocalCluster, applications: int, wall_s: float
) -> list[dict[str, dict[str, float]]]:
    """Submit everything, evenly, and take samples on the way."""
    samples, apps = [], list[int]()
    began = time.monotonic()
    with Client(cluster.address) as client:
        for number in range(applications):
            due = began + wall_s * number / applications
            time.sleep(max(0.0, due - time.monotonic()))
            apps.append(client.submit(job(number)))
            if number % 200 == 199:
                client.kill(apps[-1], "soak")
            if number % 50 == 0:
                while _live(client) > LIVE_MAX:
                    time.sleep(0.2)
            if number % max(1, applications // SAMPLES_PER_RUN) == 0:
                samples.append(sample(cluster))
                late_s = time.monotonic() - due
                print(
                    f"{number:,} applications, {late_s:.0f} s late: {_line(samples[-1])}",
                    flush=True,
                )
        while _live(client):
            time.sleep(0.5)
        samples.append(sample(cluster))
        listed = Counter(report.final_status for report in client.applications())
    took_s = time.monotonic() - began
    print(f"{len(apps):,} applications in {took_s:.0f} s; those still listed: {dict(listed)}")
    return samples


def _live(client: Client) -> int:
    ended = ("FINISHED", "FAILED", "KILLED")
    return sum(n for state, n in client.metrics().apps.items() if state not in ended)


def _line(found: dict[str, dict[str, float]]) -> str:
    return ", ".join(
        f"{name} {seen['memory MB']:.0f} MB {seen['files']:.0f} files {seen['threads']:.0f} threads"
        for name, seen in found.items()
    )


def grown(samples: list[dict[str, dict[str, float]]]) -> list[str]:
    """Return what is larger in the last quarter than in the second, by more than it may be."""
    problems = []
    quarter = max(1, len(samples) // 4)
    early, late = samples[quarter : 2 * quarter], samples[-quarter:]
    by: dict[tuple[str, str], list[float]] = defaultdict(list)
    for part in (early, late):
        for name in part[0]:
            for what in SAMPLE_NOISE:
                by[name, what].append(sum(each[name][what] for each in part) / len(part))
    for (name, what), (before, after) in by.items():
        if after > before * GROWTH + SAMPLE_NOISE[what]:
            problems.append(f"{name}: {what} grew from {before:.0f} to {after:.0f}")
    return problems


def main() -> int:
    """Run it; 0: flat."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--applications", type=int, default=20_000)
    parser.add_argument("--day-s", type=float, default=86_400.0, help="on the cluster's clock")
    parser.add_argument("--wall-s", type=float, default=900.0)
    parser.add_argument("--scheduler", default="graphene")
    chosen = parser.parse_args()
    settings = LocalSettings(
        cluster="20x8vcores,16384memory_mb",
        scheduler=chosen.scheduler,
        state=True,
        web=True,
        time_scale=chosen.day_s / chosen.wall_s,
    )
    with (
        tempfile.TemporaryDirectory(prefix="weft-soak-") as folder,
        LocalCluster(settings, Path(folder)) as cluster,
    ):
        samples = drive(cluster, chosen.applications, chosen.wall_s)
        problems = grown(samples) + ([cluster.failed()] if cluster.failed() else [])
        journal = sum(p.stat().st_size for p in Path(folder).rglob("state/*") if p.is_file())
        print(f"journal {journal / 2**20:.1f} MB")
    for problem in problems:
        print(f"soak: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
