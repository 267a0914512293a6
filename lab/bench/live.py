"""How many no-op tasks a second run end to end through gRPC, on emulated and on real hosts?

A DAG of barrier-separated stages of no-op tasks, in prompt pace, on a local cluster;
the time runs from the first submission to the job's end, and a first small job warms everything up.
The floor for real processes, spawning `/bin/true` and reaping it from a small process, is measured
beside. `cpu_us` is what a task costs all processes of the cluster, and itself: it says more than a
rate does where the machine is not quiet. Dask does the same no-op tasks in the same run (of the one
stage a tenth of them), if it is installed; what others did elsewhere follows, from
`docs/peers.jsonl` (`loops`: `lab.bench.peers`).
"""

import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
from prometheus_client.parser import text_string_to_metric_families

from lab.bench import dask as bench_dask
from lab.bench import remote as bench_remote
from lab.bench.peers import in_loops, loop_us, rows_of
from weft.client.api import Client
from weft.client.local import LocalCluster, LocalSettings
from weft.model.errors import InputError, WeftError
from weft.model.extras import MissingExtraError, require
from weft.model.job import Edge, Job, Stage
from weft.wire import tls

Row = dict[str, object]
STAGES, TASKS = 10, 1000
FLAT_JOB_TASKS = 100_000
# The time between two questions whether a job has ended.
POLL_S = 0.2
# So many turns on each of two clusters that are compared.
TURNS_PER_CLUSTER = 7
CLUSTER = "8x64vcores,262144memory_mb"
MEMORY = Path("/dev/shm")
REAL_CLUSTER = "2x16vcores,65536memory_mb"


def run(quick: bool = False, only: str = "") -> list[Row]:
    """Return the cases whose names hold `only`; `quick` takes a tenth of the tasks."""
    tasks = TASKS // 10 if quick else TASKS
    emulated = LocalSettings(cluster=CLUSTER)
    real = LocalSettings(cluster=REAL_CLUSTER, mode="process", flags={"nm": ["cgroups=off"]})
    true = ("/bin/true",)
    flat = FLAT_JOB_TASKS // 10 if quick else FLAT_JOB_TASKS
    limited = replace(real, flags={})
    in_groups = "/bin/true processes, a control group each, work folders in memory"
    one_host = "/bin/true processes on one host, no cgroups, work folders in memory"
    alone = replace(real, cluster="1x32vcores,131072memory_mb")
    in_memory = "/bin/true processes, no cgroups, work folders in memory"
    on_disk = "/bin/true processes, no cgroups, work folders on disk"
    cases: dict[str, Callable[[str], Row]] = {
        "emulated hosts": lambda name: _case(name, emulated, tasks, ()),
        "emulated hosts, one stage": lambda name: _case(name, emulated, flat, (), stages=1),
        "Dask, the same stages": lambda name: bench_dask.measure(name, STAGES, tasks),
        "Dask, one stage": lambda name: bench_dask.measure(name, 1, flat // 10),
        "emulated hosts, mutual TLS beside none": lambda name: _over_tls(name, emulated, tasks),
        "emulated hosts, tokens and mutual TLS beside none of both": lambda name: _over_tls(
            name, emulated, tasks, tokens=True
        ),
        "emulated hosts, validation beside none": lambda name: _checked(name, emulated, tasks),
        "emulated hosts, a state folder beside none": lambda name: _kept(name, emulated, tasks),
        "emulated hosts, a tape beside none": lambda name: _taped(name, emulated, tasks),
        in_memory: lambda name: _case(name, real, tasks // 2, true, str(MEMORY)),
        in_groups: lambda name: _case(name, limited, tasks // 2, true, str(MEMORY)),
        one_host: lambda name: _case(name, alone, tasks // 2, true, str(MEMORY)),
        on_disk: lambda name: _case(name, real, tasks // 2, true),
        "a matcher of another process": lambda name: bench_remote.measure(
            name, 500 if quick else 5000
        ),
        "spawn floor, posix_spawn, two at a time": lambda name: _spawn_floor(
            name, 500 if quick else 3000
        ),
        "200 nodes x 1 heartbeat/s, 50 hosted jobs": lambda name: _heartbeats(
            name, 20.0 if quick else 60.0
        ),
    }
    if not MEMORY.is_dir():
        # On a disk, a folder and two files a task can cost more than the task.
        del cases[in_memory], cases[in_groups], cases[one_host]
    chosen = {name: case for name, case in cases.items() if only in name}
    if not chosen:
        raise InputError("--case", f"no name holds {only!r}; there are: {'; '.join(cases)}")
    return [_tried(name, case) for name, case in chosen.items()] + rows_of(chosen)


def _tried(name: str, case: Callable[[str], Row]) -> Row:
    """Return a case's row; one that needs an extra says which, and the others are measured."""
    try:
        return case(name)
    except MissingExtraError as error:
        return {"case": name, "skipped": str(error)}


def many_nodes(nodes: int, quick: bool = False) -> list[Row]:
    """Measure emulated nodes that report every second, idle first, then with tasks of 5 s.

    Twenty tasks a node in all. `manager_core` and `nodes_core` are CPU s a second of the processes,
    `idle` the part of the heartbeats that said nothing; the quantiles are of the others.
    """
    settings = LocalSettings(cluster=f"{nodes}x4vcores,16384memory_mb", pace="yarn")
    with LocalCluster(settings) as cluster, Client(cluster.address) as client:
        _run(client, barrier_job("warm-up", 2, 200, (), run_s=1.0))
        rows = []
        for what, tasks in (("idle", 0), ("tasks of 5 s", (2 if quick else 20) * nodes)):
            before, began_s = _spent(cluster), time.perf_counter()
            metrics = str(cluster.ready["rm"]["metrics"])
            seen, idle = _histogram(metrics, "NodeHeartbeated"), _idle_beats(metrics)
            if tasks:
                each = max(1, tasks // 10)
                jobs = [barrier_job(f"load-{i}", 1, each, (), run_s=5.0) for i in range(10)]
                ended = client.wait([client.submit(job) for job in jobs])
                if any(report.final_status != "SUCCEEDED" for report in ended.values()):
                    raise WeftError("a job of the case of many nodes did not succeed")
            else:
                time.sleep(5.0 if quick else 20.0)
            took_s, after = time.perf_counter() - began_s, _spent(cluster)
            beats = _since(seen, _histogram(metrics, "NodeHeartbeated"))
            idle = _idle_beats(metrics) - idle
            whole = beats[-1][1] if beats else 0.0
            rows.append(
                {
                    "case": f"{nodes:,} nodes at 1 Hz, {what}",
                    "tasks": tasks,
                    "tasks_per_s": round(tasks / took_s),
                    "manager_core": round((after["rm"] - before["rm"]) / took_s, 2),
                    "nodes_core": round((after["nm0"] - before["nm0"]) / took_s, 2),
                    "heartbeats_per_s": round((whole + idle) / took_s),
                    "idle": round(idle / max(1.0, whole + idle), 3),
                    "p50_ms": round(_quantile(beats, 0.5) * 1e3, 3) if whole else 0.0,
                    "p99_ms": round(_quantile(beats, 0.99) * 1e3, 3) if whole else 0.0,
                    "lost": client.metrics().nodes.get("LOST", 0),
                }
            )
        return rows


def _spent(cluster: LocalCluster) -> dict[str, float]:
    """Return CPU s of each process so far."""
    found = {}
    for name, process in cluster.processes.items():
        times = psutil.Process(process.pid).cpu_times()
        found[name] = times.user + times.system
    return found


def _spent_with_children(cluster: LocalCluster) -> dict[str, float]:
    """Return CPU s of each process with its spawners and of the tasks that ended."""
    found = _spent(cluster)
    for name, process in cluster.processes.items():
        for child in psutil.Process(process.pid).children():
            with contextlib.suppress(psutil.NoSuchProcess):
                times = child.cpu_times()
                found[name] += sum((times.user, times.system, times.children_user))
                found[name] += times.children_system
    return found


def _since(
    before: list[tuple[float, float]], now: list[tuple[float, float]]
) -> list[tuple[float, float]]:
    known = dict(before)
    return [(bound, count - known.get(bound, 0.0)) for bound, count in now]


def barrier_job(
    name: str, stages: int, tasks: int, command: tuple[str, ...], run_s: float = 0.0
) -> Job:
    """Return `stages` x `tasks` tasks that do nothing, a barrier between any two stages."""
    demand = {"vcores": 1.0, "memory_mb": 64.0}
    return Job(
        name,
        tuple(
            Stage(f"s{i}", tasks, run_s, demand, (Edge(f"s{i - 1}"),) if i else (), command=command)
            for i in range(stages)
        ),
    )


def _case(
    name: str,
    settings: LocalSettings,
    tasks: int,
    command: tuple[str, ...],
    place: str | None = None,
    *,
    stages: int = STAGES,
) -> Row:
    rates = []
    with (
        tempfile.TemporaryDirectory(prefix="weft-", dir=place) as folder,
        LocalCluster(settings, Path(folder)) as cluster,
        Client(cluster.address) as client,
    ):
        _run(client, barrier_job("warm-up", 2, 200, command))
        before = sum(_spent_with_children(cluster).values())
        for turn in range(3):
            took = _run(client, barrier_job(f"run-{turn}", stages, tasks, command))
            rates.append(stages * tasks / took)
        spent_s = sum(_spent_with_children(cluster).values()) - before
    rate = statistics.median(rates)
    return {
        "case": name,
        "tasks": stages * tasks,
        "tasks_per_s": round(rate),
        "worst": round(min(rates)),
        "best": round(max(rates)),
        "cpu_us": round(spent_s / (3 * stages * tasks) * 1e6),
        **in_loops(1e6 / rate, loop_us()),
    }


def _heartbeats(name: str, watch_s: float) -> Row:
    """Measure 200 nodes that report every second while 50 hosted jobs run, by the RM's /metrics."""
    settings = LocalSettings(nodes=200, pace="yarn")
    with LocalCluster(settings) as cluster, Client(cluster.address) as client:
        apps = [client.submit(_steady_job(f"job-{i}", watch_s)) for i in range(50)]
        time.sleep(watch_s)
        running = client.metrics().apps.get("RUNNING", 0)
        histogram = _histogram(str(cluster.ready["rm"]["metrics"]), "NodeHeartbeated")
        idle = _idle_beats(str(cluster.ready["rm"]["metrics"]))
        ended = client.wait(apps)
    if any(report.final_status != "SUCCEEDED" for report in ended.values()):
        raise WeftError("a job of the heartbeat case did not succeed")
    count = histogram[-1][1]
    return {
        "case": name,
        "running_jobs": running,
        "heartbeats": round(count),
        "idle": round(idle),
        "p50_ms": round(_quantile(histogram, 0.5) * 1e3, 3),
        "p99_ms": round(_quantile(histogram, 0.99) * 1e3, 3),
    }


def _steady_job(name: str, run_s: float) -> Job:
    """Return ten stages of twenty tasks that keep a job busy for a little longer than `run_s`."""
    demand = {"vcores": 1.0, "memory_mb": 1024.0, "disk_mbps": 10.0, "network_mbps": 10.0}
    return Job(
        name,
        tuple(
            Stage(f"s{i}", 20, run_s / 9, demand, (Edge(f"s{i - 1}"),) if i else ())
            for i in range(10)
        ),
    )


def _idle_beats(address: str) -> float:
    """Return how many heartbeats said nothing, so far."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as page:
        text = page.read().decode()
    families = text_string_to_metric_families(text)
    samples = [sample for family in families for sample in family.samples]
    return sum(s.value for s in samples if s.name == "weft_idle_heartbeats_total")


def _histogram(address: str, event: str) -> list[tuple[float, float]]:
    """Return (upper bound in s, cumulative count) of the time that a core took for an event."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as page:
        text = page.read().decode()
    rows = []
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == "weft_handle_seconds_bucket" and sample.labels["event"] == event:
                rows.append((float(sample.labels["le"]), sample.value))
    return sorted(rows)


def _quantile(histogram: list[tuple[float, float]], q: float) -> float:
    """Return the upper bound of the bucket that holds the quantile, s."""
    wanted = q * histogram[-1][1]
    return next(bound for bound, count in histogram if count >= wanted)


class _UntokenedCluster(LocalCluster):
    """Its containers start without tokens."""

    runner = (sys.executable, "-m", "lab.bench.unchecked", "tokens")


def _over_tls(name: str, settings: LocalSettings, tasks: int, *, tokens: bool = False) -> Row:
    """Measure with and without mutual TLS; `tokens`: nor with containers' tokens."""
    beside = _UntokenedCluster if tokens else LocalCluster
    with tempfile.TemporaryDirectory(prefix="weft-") as folder:
        made = Path(folder) / "tls"
        require("cryptography", "tls", "the case under TLS")
        from weft.client.certificates import make

        make(made, [], others={"emulator": ["n1"], "manager": ["n1"]})
        files = [made / name for name in ("ca.pem", "n1.pem", "n1-key.pem")]
        named = zip(("ca", "cert", "key"), files, strict=True)
        shown = [f"tls_{what}={file}" for what, file in named]
        sealing = replace(settings, flags=dict.fromkeys(("rm", "am", "nm"), shown))
        with contextlib.ExitStack() as stack:
            plain = _entered(stack, beside(settings))
            stack.enter_context(tls.using(tls.read(*files)))
            sealed = _entered(stack, LocalCluster(sealing))
            return _in_turns(name, plain, sealed, tasks, most=1.20)


class _UncheckedCluster(LocalCluster):
    """Its services check no message."""

    runner = (sys.executable, "-m", "lab.bench.unchecked", "gates")


def _checked(name: str, settings: LocalSettings, tasks: int) -> Row:
    """Measure with the table of rules held at every face of every service, and without."""
    with contextlib.ExitStack() as stack:
        without = _entered(stack, _UncheckedCluster(settings))
        return _in_turns(name, without, _entered(stack, LocalCluster(settings)), tasks, most=1.05)


def _kept(name: str, settings: LocalSettings, tasks: int) -> Row:
    """Measure with and without a manager that syncs each batch of a journal to the disk."""
    with contextlib.ExitStack() as stack:
        without = _entered(stack, LocalCluster(settings))
        keeping = _entered(stack, LocalCluster(replace(settings, state=True)))
        return _in_turns(name, without, keeping, tasks, most=1.20)


def _taped(name: str, settings: LocalSettings, tasks: int) -> Row:
    """Measure with every process keeping a tape, and without."""
    with tempfile.TemporaryDirectory(prefix="weft-") as folder, contextlib.ExitStack() as stack:
        without = _entered(stack, LocalCluster(settings))
        taping = _entered(stack, LocalCluster(replace(settings, tape=Path(folder))))
        return _in_turns(name, without, taping, tasks, most=1.05)


_Pair = tuple[LocalCluster, Client]


def _entered(stack: contextlib.ExitStack, cluster: LocalCluster) -> _Pair:
    stack.enter_context(cluster)
    return cluster, stack.enter_context(Client(cluster.address))


def _in_turns(
    name: str,
    without: _Pair,
    having: _Pair,
    tasks: int,
    turns: int = TURNS_PER_CLUSTER,
    most: float = 0.0,
) -> Row:
    """Measure the same jobs in turns on two clusters: ratios of time and CPU s, medians.

    Whoever is first in one turn is second in the next. `most` is what either ratio may be.
    """
    took: tuple[list[float], list[float]] = ([], [])
    spent: tuple[list[float], list[float]] = ([], [])
    for turn in range(turns + 1):
        pairs = [(0, without), (1, having)]
        for place, (cluster, client) in pairs if turn % 2 else reversed(pairs):
            before = sum(_spent(cluster).values())
            took_s = _run(client, barrier_job(f"run-{turn}", STAGES, tasks, ()))
            if turn:
                # The first turn warms everything up.
                took[place].append(took_s)
                spent[place].append(sum(_spent(cluster).values()) - before)
    rates = [STAGES * tasks / statistics.median(times) for times in took]
    row: Row = {
        "case": name,
        "tasks": STAGES * tasks,
        "tasks_per_s": round(rates[1]),
        "without": round(rates[0]),
        "time_ratio": round(_median_ratio(took), 3),
        "cpu_ratio": round(_median_ratio(spent), 3),
    }
    return row | ({"target": most} if most else {})


def _median_ratio(both: tuple[list[float], list[float]]) -> float:
    """Return the median over the turns of what the second took over the first."""
    return statistics.median(b / a for a, b in zip(*both, strict=True))


def _run(client: Client, job: Job) -> float:
    """Return how long a job took, s, by the manager's clock: to ask for it often costs as well."""
    app = client.submit(job)
    report = client.wait([app], poll_s=POLL_S)[app]
    if report.final_status != "SUCCEEDED":
        raise WeftError(f"{job.name} ended {report.final_status}: {report.diagnostics}")
    return report.finished_s - report.submitted_s


# What a process costs to start grows with the memory of who starts it, so nothing is loaded here.
_FLOOR = """
import os, sys, time
count, living = int(sys.argv[1]), []
start = time.perf_counter()
for _ in range(count):
    living.append(os.posix_spawn("/bin/true", ["/bin/true"], {}))
    if len(living) == 2:
        os.waitpid(living.pop(0), 0)
for pid in living:
    os.waitpid(pid, 0)
rate, spent = count / (time.perf_counter() - start), os.times()
print(rate, (spent.children_user + spent.children_system + spent.user + spent.system) / count)
"""


def _spawn_floor(name: str, count: int) -> Row:
    command = [sys.executable, "-I", "-S", "-c", _FLOOR, str(count)]
    said = [subprocess.check_output(command).split() for _ in range(3)]
    rates, spent_s = [float(rate) for rate, _ in said], [float(cpu_s) for _, cpu_s in said]
    return {
        "case": name,
        "tasks": count,
        "tasks_per_s": round(statistics.median(rates)),
        "worst": round(min(rates)),
        "best": round(max(rates)),
        "cpu_us": round(statistics.median(spent_s) * 1e6),
    }
