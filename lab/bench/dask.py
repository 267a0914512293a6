"""How many no-op tasks a second does Dask run, as a peer of `weft bench live`?

    python -m lab.bench.dask STAGES TASKS

One scheduler and one worker process of 16 threads on this machine, the whole DAG submitted
before its first stage ends, a barrier between any two stages; `worker-saturation` is infinite,
Dask's fastest setting for tasks this small. Prints one line of JSON: rates of three runs after one
that warms up.
"""

import json
import os
import subprocess
import sys
import time
from typing import Any

from lab.bench.peers import in_loops, loop_us
from lab.native import ROOT
from weft.model.extras import require

Row = dict[str, object]
# One worker with 16 threads was the fastest of one or two workers with 1 to 16 threads.
WORKERS, THREADS, TURNS = 1, 16, 3


def measure(name: str, stages: int, tasks: int) -> Row:
    """Return Dask's row, measured in processes of its own; `skipped` says that it is not there."""
    for module in ("dask", "distributed"):
        require(module, "dask", name)
    command = [sys.executable, "-P", "-m", "lab.bench.dask", str(stages), str(tasks)]
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": paths},
    )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no output"]
        return {"case": name, "skipped": last[0]}
    rates = sorted(json.loads(done.stdout.splitlines()[-1]))
    return {
        "case": name,
        "tasks": stages * tasks,
        "tasks_per_s": round(rates[len(rates) // 2]),
        "worst": round(rates[0]),
        "best": round(rates[-1]),
        **in_loops(1e6 / rates[len(rates) // 2], loop_us()),
    }


def nothing(*_: Any) -> None:
    """Do what a task of the bench does."""


def rates(stages: int, tasks: int) -> list[float]:
    """Return tasks a second of each run."""
    import dask
    from distributed import Client, LocalCluster

    dask.config.set({"distributed.scheduler.worker-saturation": "inf"})
    with (
        LocalCluster(
            n_workers=WORKERS, threads_per_worker=THREADS, host="127.0.0.1", dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        _run(client, 2, 200)
        return [stages * tasks / _run(client, stages, tasks) for _ in range(TURNS)]


def _run(client: Any, stages: int, tasks: int) -> float:
    """Return how long stages of tasks took, s, from the first submission to the last end."""
    began_s = time.perf_counter()
    barrier: Any = None
    # Dask does not run a future that nobody holds.
    kept = []
    for _ in range(stages):
        stage = client.map(nothing, range(tasks), [barrier] * tasks, pure=False)
        barrier = client.submit(nothing, stage, pure=False)
        kept.append(stage)
    barrier.result()
    return time.perf_counter() - began_s


if __name__ == "__main__":
    print(json.dumps(rates(*map(int, sys.argv[1:]))))
