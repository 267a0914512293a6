"""Longer runs of unmodified clients: many in a row, many at once, dask, and where the start goes.

python -m tools.spark_runs hundred --runs 100     one small Spark job after the other
python -m tools.spark_runs queues                 six applications, two users, two queues
python -m tools.spark_runs dask                   dask-yarn sums on two workers
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tools.spark_kit import LIGHT, ROOT, VERSION, Failure, Running, Spark, install, say
from weft.client.api import Client
from weft.client.local import LocalCluster, LocalSettings

# This is a limit for a condition, never a measure: a busy machine starts Java slowly.
PATIENCE_S = 1_200.0
# How many containers' logs are shown of a run that failed, and how much of each.
LOGS_MAX, LOG_MAX = 12, 2_000
NODES = "2x4vcores,6144memory_mb"
# A Spark container of 512 MB, with its overhead.
CONTAINER_MB = 896
QUICK = {f"spark.{who}.extraJavaOptions": LIGHT for who in ("driver", "executor", "yarn.am")}
QUEUES = """
resources: [{name: vcores, kind: divisible}, {name: memory_mb, kind: rigid}]
nodes: [{count: 2, capacity: {vcores: 12, memory_mb: 7168}}]
queues: {root: {etl: {capacity: 0.75}, adhoc: {capacity: 0.25}}}
"""
DASK = (
    "dask-yarn==0.9",
    "skein==0.8.2",
    "dask==2022.2.0",
    "distributed==2022.2.0",
    "click<8.1",
    "protobuf<3.21",
    "setuptools<80",
    "numpy<2",
    "cloudpickle<3",
)
SUM = """
import sys
from dask.distributed import Client
from dask_yarn import YarnCluster
import dask.bag
cluster = YarnCluster(
    environment="python://" + sys.executable, n_workers=2, worker_vcores=1,
    worker_memory="512 MiB", deploy_mode="local", name="dask-sum")
with cluster, Client(cluster) as client:
    client.wait_for_workers(2)
    total = dask.bag.from_sequence(range(1, 1001), npartitions=8).map(lambda x: x * x).sum()
    found = total.compute()
    workers = len(client.scheduler_info()["workers"])
    open(sys.argv[1], "w").write("%s sum=%d workers=%d" % (
        "OK" if found == 333833500 and workers == 2 else "WRONG", found, workers))
"""


def until(what: str, done: Callable[[], bool], runs: list[Running] = []) -> None:  # noqa: B006
    """Wait for a condition; raises Failure where it never holds, or where a client ended badly."""
    give_up = time.monotonic() + PATIENCE_S
    while not done():
        for one in runs:
            if one.process.poll():
                raise Failure(f"{what}: {one.log.stem} ended\n{one.text()[-3000:]}")
        if time.monotonic() > give_up:
            raise Failure(f"never: {what}")
        time.sleep(0.5)


# -- one after the other ---------------------------------------------------------------------------


def hundred(cluster: LocalCluster, spark: Spark, runs: int) -> None:
    """Run small jobs in client and cluster mode by turns: every one must succeed."""
    settings = {"spark.executor.instances": "1", "spark.ui.enabled": "false"} | QUICK
    failed: list[str] = []
    began = time.monotonic()
    for number in range(1, runs + 1):
        mode = "client" if number % 2 else "cluster"
        running = spark.submit(f"run{number}", mode, "probe", settings=settings)
        running.ends_s = time.monotonic() + PATIENCE_S
        try:
            running.succeeded("OK")
        except Failure as error:
            failed.append(f"run {number}, {mode} mode: {error}")
            say(failed[-1])
        if number % 10 == 0:
            spent = (time.monotonic() - began) / number
            say(f"{number - len(failed)} of {number} succeeded, {spent:.0f} s each")
    with Client(cluster.address) as client:
        ended = Counter(app.final_status for app in client.applications())
    if failed or ended != {"SUCCEEDED": runs}:
        raise Failure(f"{len(failed)} of {runs} failed; the manager says {dict(ended)}")
    until("nothing is left of them", lambda: not _left(cluster))
    say(f"ok   {runs} runs in a row: {runs} SUCCEEDED")


def _left(cluster: LocalCluster) -> list[Path]:
    """Return what the gateway still keeps of applications."""
    return list((cluster.folder / "hadoop" / "apps").iterdir())


# -- six at once -----------------------------------------------------------------------------------


class Share(NamedTuple):
    """What a queue holds now.

    It asks for `wanted` containers.
    """

    held_mb: float
    wanted: int


def queues(cluster: LocalCluster, spark: Spark) -> None:
    """Fill the cluster with alice's applications; bob's get their queue's guarantee back.

    Spark aborts at the first executor and at the first task that failed: that all six end well
    shows that it counted no preempted executor as a failure.
    """
    stop = spark.work / "stop"
    stop.unlink(missing_ok=True)
    total_mb = 2 * 7168.0
    with Client(cluster.address) as client:

        def shares() -> dict[str, Share]:
            found = client.queues().children
            return {
                queue.name.rpartition(".")[2]: Share(
                    queue.allocated.get("memory_mb", 0.0), queue.pending_containers
                )
                for queue in found
            }

        def full(name: str) -> bool:
            held = shares()
            free_mb = total_mb - sum(share.held_mb for share in held.values())
            return held[name].wanted > 0 and free_mb < 2 * CONTAINER_MB

        first = [_submit(spark, "alice", "etl", number, stop) for number in range(3)]
        until("alice's applications fill the cluster", lambda: full("etl"), first)
        before = shares()
        say(f"alice alone: etl holds {before['etl'].held_mb:.0f} of {total_mb:.0f} MB")
        second = [_submit(spark, "bob", "adhoc", number, stop) for number in range(3)]
        guaranteed_mb = 0.25 * total_mb

        def fair() -> bool:
            held = shares()
            right = abs(held["adhoc"].held_mb - guaranteed_mb) < CONTAINER_MB
            return right and held["adhoc"].wanted > 0 and held["etl"].wanted > 0

        try:
            until("bob's queue has its guarantee", fair, first + second)
        except Failure as error:
            raise Failure(f"{error}; the queues hold {shares()}") from None
        now = shares()
        say(
            f"both: etl {now['etl'].held_mb / total_mb:.1%} (guaranteed 75 %), "
            f"adhoc {now['adhoc'].held_mb / total_mb:.1%} (25 %)"
        )
        drivers = [one for one in first if "preempted" in one.text()]
        stop.touch()
        for one in first + second:
            one.ends_s = time.monotonic() + PATIENCE_S
            one.succeeded("OK")
        apps = client.applications()
        users = Counter((app.user, app.queue.rpartition(".")[2]) for app in apps)
        if users != {("alice", "etl"): 3, ("bob", "adhoc"): 3}:
            raise Failure(f"users and queues: {users}")
        taken = sum(app.preempted_containers for app in apps)
        if not taken or not drivers:
            raise Failure(f"{taken} containers taken back, told by {len(drivers)} drivers")
        if any(app.final_status != "SUCCEEDED" for app in apps):
            raise Failure(f"{[app.final_status for app in apps]}")
    told = sum(_preempted(one) for one in first)
    say(f"ok   six applications: {taken} executors preempted, Spark says so of {told}, none failed")


def _preempted(running: Running) -> int:
    """Return how many executors a driver said were preempted."""
    return len(set(re.findall(r"(container_\w+) on host: \S+ was preempted", running.text())))


def _submit(spark: Spark, user: str, queue: str, number: int, stop: Path) -> Running:
    """Start one of six: more executors than a queue has, on Java machines that start fast."""
    settings = {
        "spark.yarn.queue": queue,
        "spark.executor.instances": "8",
        "spark.executor.maxNumFailures": "1",
        "spark.yarn.maxAppAttempts": "1",
        "spark.task.maxFailures": "1",
        "spark.ui.enabled": "false",
        "spark.scheduler.minRegisteredResourcesRatio": "0",
    } | QUICK
    running = spark.submit(
        f"{user}{number}", "client", "told", str(stop), "8", user=user, settings=settings
    )
    running.ends_s = time.monotonic() + 3 * PATIENCE_S
    return running


# -- dask ------------------------------------------------------------------------------------------


def dask(cluster: LocalCluster, spark: Spark) -> None:
    """Start two workers of dask-yarn through Skein and sum on them."""
    venv = ROOT / "build" / "dask-yarn"
    python = venv / "bin/python"
    if not (venv / "installed").exists():
        say(f"installing dask-yarn into {venv.relative_to(ROOT)}")
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        subprocess.run([str(python), "-m", "pip", "-q", "install", *DASK], check=True)
        (venv / "installed").touch()
    # Skein needs a file system with a host in its address.
    conf = spark.write(files=True)
    names = (
        "hadoop-client-api",
        "hadoop-client-runtime",
        "hadoop-shaded-guava",
        "log4j-",
        "hadoop-yarn-server-web-proxy",
        "jakarta.servlet-api",
        "commons-logging",
        "slf4j-api",
        "jcl-over-slf4j",
    )
    jars = [str(jar) for jar in sorted(spark.jars.glob("*.jar")) if jar.name.startswith(names)]
    classpath = [str(conf), *jars]
    text = (conf / "yarn-site.xml").read_text()
    row = f"<property><name>yarn.application.classpath</name><value>{','.join(classpath)}</value>"
    (conf / "yarn-site.xml").write_text(
        text.replace("</configuration>", f"{row}</property></configuration>")
    )
    programs = spark.work / "bin"
    programs.mkdir(exist_ok=True)
    # Skein asks this program of an installed Hadoop for the class path.
    (programs / "yarn").write_text(
        f'#!/bin/sh\n[ "$1" = classpath ] && echo "{":".join(classpath)}"\n'
    )
    (programs / "yarn").chmod(0o755)
    (spark.work / "sum.py").write_text(SUM)
    environment = spark.environment() | {
        "HADOOP_CONF_DIR": str(conf),
        "YARN_CONF_DIR": str(conf),
        "SKEIN_CONFIG": str(spark.work / "skein"),
        "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python",
    }
    environment["PATH"] = f"{programs}:{environment['PATH']}"
    result = spark.work / "dask.result"
    running = Running(
        [str(python), str(spark.work / "sum.py"), str(result)],
        spark.work / "dask.log",
        result,
        environment,
    )
    running.succeeded("OK sum=333833500 workers=2")
    say("ok   dask-yarn: sum=333833500 on two workers")


def main() -> int:
    """Run what was asked for; 0: all is well, or nothing could be checked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("hundred", "queues", "dask"))
    parser.add_argument("--spark-version", default=VERSION)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--work", default="", help="folder of the clients' logs, kept")
    chosen = parser.parse_args()
    venv = install(chosen.spark_version) if shutil.which("java") else ""
    if not venv:
        say("not checked: there is no Java, or no PySpark")
        return 0
    with tempfile.TemporaryDirectory(prefix="weft-spark-") as folder:
        work = Path(chosen.work or Path(folder) / "work").resolve()
        work.mkdir(parents=True, exist_ok=True)
        settings = LocalSettings(cluster=NODES, mode="process", hadoop=True, web=True, state=True)
        if chosen.what == "queues":
            (work / "cluster.yaml").write_text(QUEUES)
            settings = LocalSettings(
                cluster=str(work / "cluster.yaml"),
                mode="process",
                hadoop=True,
                web=True,
                state=True,
                flags={"rm": ("preemption=true", "preemption_grace_s=2", "preemption_dead_zone=0")},
            )
        with LocalCluster(settings, Path(folder) / "cluster") as cluster:
            spark = Spark(cluster, Path(venv), work)
            try:
                if chosen.what == "hundred":
                    hundred(cluster, spark, chosen.runs)
                else:
                    {"queues": queues, "dask": dask}[chosen.what](cluster, spark)
                if problem := cluster.failed():
                    raise Failure(problem)
            except Failure as error:
                say(f"FAIL {chosen.what}: {error}")
                for path in sorted((Path(folder) / "cluster").rglob("std*"))[-LOGS_MAX:]:
                    say(f"{path.parent.name}/{path.name}: {path.read_text()[-LOG_MAX:]}")
                return 1
            finally:
                spark.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
