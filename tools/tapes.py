"""Record live runs with faults and replay them: is every decision the same, and what is the size?

`make tapes`, or `python -m tools.tapes --only 3` for one run. Emulated runs are the demo's jobs on
a clock four times as fast, real ones are commands; the table says what the tapes hold.
"""

import argparse
import contextlib
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

from lab.studies.fidelity import demo_jobs
from sim.replay.verify import Replay
from testkit.live import Cluster, Part, chain, until, wait_for_nodes
from testkit.relay import Relay, cutting
from weft.client.api import Client
from weft.client.tables import table
from weft.model.job import Job
from weft.runtime.tapefile import find_tapes

SCALE = 4.0
NODE = "1x16vcores,65536memory_mb,800disk_mbps,1000network_mbps"
PACES = ("prompt", "yarn")
CUT_EVERY_WALL_S = 0.7
PRESETS = ("capacity", "graphene", "tetris", "carbyne", "drf")


@dataclass(frozen=True, slots=True)
class Case:
    """One run; `fault` is the role of the process that is killed, and started again but for nm.

    Of "net" no process is killed, but the nodes' connections to the manager break time and again.
    """

    mode: str
    pace: str
    preset: str
    fault: str = ""


CASES = [
    *(Case("emulated", pace, preset) for preset in PRESETS for pace in ("prompt", "yarn")),
    *(
        Case("emulated", pace, PRESETS[i], fault)
        for i, fault in enumerate(("nm", "am", "rm"))
        for pace in ("prompt", "yarn")
    ),
    *(
        Case("process", pace, "capacity", fault)
        for pace in ("prompt", "yarn")
        for fault in ("", "nm")
    ),
    *(Case("emulated", pace, preset, "net") for pace, preset in zip(PACES, PRESETS, strict=False)),
]


def record(case: Case, folder: Path) -> list[Job]:
    """Run a case to its end; the tapes are in `folder/tapes`. Returns the jobs that ran."""
    cluster = Cluster(folder)
    try:
        jobs = _record(cluster, case)
        for part in cluster.parts:
            if part.process.poll() is None:
                part.stop()
    finally:
        cluster.close()
    return jobs


def _record(cluster: Cluster, case: Case) -> list[Job]:
    real = case.mode == "process"
    scale = 1.0 if real else SCALE
    shared = (
        f"--tape={cluster.folder / 'tapes'}",
        f"--time-scale={scale}",
        f"--epoch-s={time.time()}",
        # Checks take time, with which fewer messages would share a batch.
        "--no-check",
    )
    keeps = (
        *shared,
        f"--pace={case.pace}",
        f"--scheduler={case.preset}",
        f"--node-expiry-s={5 * scale}",
        f"--state-dir={cluster.folder / 'state'}",
        "--max-attempts=9",
    )
    masters = (*shared, f"--scheduler={case.preset}")
    manager = cluster.manager(*keeps)
    host = cluster.host(manager, *masters)
    if real:
        more = ["--mode=process", "--cgroups=off", f"--work-dir={cluster.folder / 'work'}"]
    else:
        more = ["--nodes=4"]
    hosted = (f"--am-host={host.address}", f"--cluster={NODE}", *more, *shared)
    relay = Relay(manager.address)
    reached = replace(manager, ready={**manager.ready, "address": relay.address})
    behind = reached if case.fault == "net" else manager
    nodes = [cluster.nodes(behind, *hosted, f"--node-name={name}") for name in "ab"]
    command = ("sh", "-c", "sleep 0.2; echo done")
    jobs = [chain(f"r{i}", 4, 20, 1.0, command=command) for i in range(3)] if real else demo_jobs()
    with Client(manager.address) as client:
        wait_for_nodes(client, 2 if real else 8)
        apps = [client.submit(job) for job in jobs]

        def done() -> int:
            return sum(client.application(app).finished_tasks for app in apps)

        until(lambda: done() >= sum(job.task_count for job in jobs) // 3, "a third has ended")
        if case.fault == "nm":
            nodes[1].kill()
        elif case.fault == "am":
            host.kill()
            cluster.host(manager, *masters, _again(host))
        elif case.fault == "rm":
            manager.kill()
            cluster.manager(*keeps, _again(manager))
        with cutting(relay, CUT_EVERY_WALL_S) if case.fault == "net" else contextlib.nullcontext():
            client.wait(apps)
    relay.close()
    if case.fault == "net":
        assert relay.cuts, "nothing was cut"
    return jobs


def _again(part: Part) -> str:
    return f"--port={part.address.rpartition(':')[2]}"


def main() -> None:
    """Record and replay; exit code 1 where a core decided otherwise."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", type=int, nargs="*", help="numbers of the runs, from 1")
    chosen = parser.parse_args().only or range(1, len(CASES) + 1)
    rows, bad = [], 0
    for number in chosen:
        case = CASES[number - 1]
        with tempfile.TemporaryDirectory(prefix="weft-tapes-") as folder:
            tasks = sum(job.task_count for job in record(case, Path(folder)))
            runs, size = [], 0
            for tape in find_tapes(Path(folder) / "tapes"):
                run = Replay().run(tape.rows())
                if run.difference is not None:
                    bad += 1
                    print(tape.path.name, run.difference)
                runs.append(run)
                size += tape.path.stat().st_size
        rows.append(
            (
                number,
                case.mode,
                case.pace,
                case.preset,
                case.fault or "-",
                len(runs),
                tasks,
                sum(run.events for run in runs),
                sum(run.placements for run in runs),
                sum(run.sums for run in runs),
                round(size / tasks, 1),
                sum(run.difference is not None for run in runs),
            )
        )
        print(rows[-1], file=sys.stderr, flush=True)
    table(
        (
            "run",
            "mode",
            "pace",
            "preset",
            "killed",
            "tapes",
            "tasks",
            "events",
            "placements",
            "sums",
            "B/task",
            "differ",
        ),
        rows,
    )
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
