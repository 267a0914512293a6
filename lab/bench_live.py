"""How many no-op tasks a second run end to end through gRPC, on emulated and on real hosts?

A DAG of barrier-separated stages of no-op tasks, in prompt pace, on a local cluster;
the time runs from the first submission to the job's end, and a first small job warms everything up.
The floor for real processes, spawning `/bin/true` and reaping it, is measured beside.
"""

import os
import statistics
import time

from lab import bench_heartbeats as heartbeats
from weft.client.api import Client
from weft.client.local import LocalCluster, LocalSettings
from weft.errors import WeftError
from weft.job import Edge, Job, Stage

Row = dict[str, object]
STAGES, TASKS = 10, 1000
CLUSTER = "8x64vcores,262144memory_mb"
REAL_CLUSTER = "2x16vcores,65536memory_mb"


def run(quick: bool = False) -> list[Row]:
    """All cases; `quick` takes a tenth of the tasks."""
    tasks = TASKS // 10 if quick else TASKS
    emulated = LocalSettings(cluster=CLUSTER)
    real = LocalSettings(cluster=REAL_CLUSTER, mode="process")
    return [
        _case("emulated hosts", emulated, tasks, ()),
        _case("/bin/true processes", real, tasks // 2, ("/bin/true",)),
        _spawn_floor(500 if quick else 3000),
        *heartbeats.run(quick),
    ]


def barrier_job(name: str, stages: int, tasks: int, command: tuple[str, ...]) -> Job:
    """`stages` x `tasks` tasks that do nothing, a barrier between any two stages."""
    demand = {"vcores": 1.0, "memory_mb": 64.0}
    return Job(
        name,
        tuple(
            Stage(f"s{i}", tasks, 0.0, demand, (Edge(f"s{i - 1}"),) if i else (), command=command)
            for i in range(stages)
        ),
    )


def _case(name: str, settings: LocalSettings, tasks: int, command: tuple[str, ...]) -> Row:
    rates = []
    with LocalCluster(settings) as cluster, Client(cluster.address) as client:
        _run(client, barrier_job("warm-up", 2, 200, command))
        for turn in range(3):
            took = _run(client, barrier_job(f"run-{turn}", STAGES, tasks, command))
            rates.append(STAGES * tasks / took)
    return {
        "case": name,
        "tasks": STAGES * tasks,
        "tasks_per_s": round(statistics.median(rates)),
        "worst": round(min(rates)),
        "best": round(max(rates)),
    }


def _run(client: Client, job: Job) -> float:
    start = time.perf_counter()
    app = client.submit(job)
    report = client.wait([app], poll_s=0.02)[app]
    took = time.perf_counter() - start
    if report.final_status != "SUCCEEDED":
        raise WeftError(f"{job.name} ended {report.final_status}: {report.diagnostics}")
    return took


def _spawn_floor(count: int) -> Row:
    rates = []
    for _ in range(3):
        start = time.perf_counter()
        living: list[int] = []
        for _ in range(count):
            living.append(os.posix_spawn("/bin/true", ["/bin/true"], {}))
            if len(living) == 2:
                os.waitpid(living.pop(0), 0)
        for pid in living:
            os.waitpid(pid, 0)
        rates.append(count / (time.perf_counter() - start))
    return {
        "case": "spawn floor, posix_spawn, two at a time",
        "tasks": count,
        "tasks_per_s": round(statistics.median(rates)),
        "worst": round(min(rates)),
        "best": round(max(rates)),
    }
