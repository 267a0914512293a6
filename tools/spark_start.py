"""Where the time from `spark-submit` to the first task goes, beside Spark's own `local-cluster`.

    python -m tools.spark_start --times 3

Everything is read from time stamps of one run: Spark's logs, and `prelaunch.out` of each container,
in which Weft's launcher tells when it began and when it became the command. What lies between a
client's or a master's call and the Java machine that it was for is Weft's (grant, start, files);
the rest is Spark's (Java machines, one after the other, and its own polling).
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from tools.spark_kit import VERSION, Failure, Spark, install, say
from tools.spark_runs import NODES
from weft.client.local import LocalCluster, LocalSettings

LOG4J = """rootLogger.level = info
rootLogger.appenderRef.stdout.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yyyy-MM-dd HH:mm:ss.SSS} %p %c{1}: %m%n%ex
"""
ONE = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
spark.sparkContext.parallelize([1], 1).map(lambda x: x).collect()
spark.stop()
"""
# Spark's own waiting on YARN, which `local-cluster` does not do: a second between two looks at the
# application's state, and no task before four fifths of the executors are there
PROMPT = [
    "--conf",
    "spark.yarn.clientLaunchMonitorInterval=50ms",
    "--conf",
    "spark.yarn.scheduler.initial-allocation.interval=50ms",
    "--conf",
    "spark.scheduler.minRegisteredResourcesRatio=0",
]
MODES = {
    "local-cluster": ["--master", "local-cluster[2,1,512]"],
    "client": ["--master", "yarn", "--deploy-mode", "client"],
    "client, unmanaged": [
        "--master",
        "yarn",
        "--deploy-mode",
        "client",
        "--conf",
        "spark.yarn.unmanagedAM.enabled=true",
    ],
    "client, unmanaged, prompt": [
        "--master",
        "yarn",
        "--deploy-mode",
        "client",
        "--conf",
        "spark.yarn.unmanagedAM.enabled=true",
        *PROMPT,
    ],
    "cluster": ["--master", "yarn", "--deploy-mode", "cluster"],
}
CASE_S = 280.0


class Start(NamedTuple):
    """One run's start, s.

    `total` lasts from spark-submit to the first task; `weft` is what grants, starts and files took
    of it.
    """

    total: float
    weft: float
    steps: dict[str, float]


def stamps(path: Path, words: str) -> list[float]:
    """Return the times, Unix s, of a log's lines with these words."""
    found = []
    for line in path.read_text(errors="replace").splitlines():
        if words in line and line[:2] == "20":
            stamp = line.split(" ", 1)[0] if "T" in line[:11] else line[:23]
            found.append(datetime.fromisoformat(stamp).timestamp())
    return found


def first(paths: Iterable[Path], words: str) -> float:
    """Return the first time of these words in any of the logs."""
    found = [at for path in paths for at in stamps(path, words)]
    if not found:
        raise Failure(f"no log says {words!r}")
    return min(found)


def run(spark: Spark, mode: str, number: int) -> Start:
    """Run the job once and read how it started."""
    environment = spark.environment() | {"SPARK_CONF_DIR": str(spark.work / "spark-conf")}
    pairs = (
        "spark.driver.memory=512m",
        "spark.yarn.am.memory=512m",
        "spark.executor.memory=512m",
        "spark.executor.instances=2",
        "spark.ui.showConsoleProgress=false",
        f"spark.yarn.jars=local:{spark.jars}/*",
    )
    command = [str(spark.venv / "bin/spark-submit"), *MODES[mode]]
    for pair in pairs:
        command += ["--conf", pair]
    log = spark.work / f"{mode.replace(', ', '-')}{number}.log"
    began = time.time()
    with log.open("wb") as output:
        done = subprocess.run(
            [*command, str(spark.work / "one.py")],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=spark.work,
            timeout=CASE_S,
            check=False,
        )
    if done.returncode:
        raise Failure(f"{mode} ended with {done.returncode}\n{log.read_text()[-2000:]}")
    if mode == "local-cluster":
        total = first([log], "Starting task 0.0") - began
        return Start(total, 0.0, {"the driver's Java": first([log], "Running Spark") - began})
    return read(spark.cluster.folder / "work", log, began)


def read(work: Path, log: Path, began: float) -> Start:
    """Account for a start on YARN's wire."""
    folders = sorted(
        path.parent for path in work.glob("*/*/*/prelaunch.out") if path.stat().st_mtime > began
    )
    errors = [folder / "stderr" for folder in folders]
    logs = [log, *errors]
    ready = {folder: stamps(folder / "prelaunch.out", "Launching")[0] for folder in folders}
    submitted = first([log], "Submitted application application_")
    asked, granted = first(logs, "Will request"), first(logs, "Launching container")
    executors = [at for at in ready.values() if at > granted]
    masters = [at for at in ready.values() if at <= granted]
    first_task = first(logs, "Starting task 0.0")
    steps = {
        "to the submission (Java, upload)": submitted - began,
        "WEFT: to the master's Java": min(masters, default=submitted) - submitted,
        "the master's Java, to its request": asked - min(masters, default=submitted),
        "WEFT: to the first grant": granted - asked,
        "WEFT: to the executors' Java": max(executors) - granted,
        "the executors' Java, to the first task": first_task - max(executors),
    }
    weft = sum(seconds for name, seconds in steps.items() if name.startswith("WEFT"))
    return Start(first_task - began, weft, steps)


def report(found: dict[str, list[Start]]) -> None:
    """Print the medians, side by side."""
    base = statistics.median(start.total for start in found["local-cluster"])
    load = os.getloadavg()[0]
    say(f"load {load:.1f}; medians of {len(found['local-cluster'])}; local-cluster {base:.1f} s")
    for mode, starts in found.items():
        if mode == "local-cluster":
            continue
        total = statistics.median(start.total for start in starts)
        weft = statistics.median(start.weft for start in starts)
        say(
            f"{mode}: {total:.1f} s, {total / base:.2f} x; Weft's own {weft:.2f} s"
            f" ({weft / total:.0%}); without it {(total - weft) / base:.2f} x"
        )
        for name in starts[0].steps:
            seconds = statistics.median(start.steps[name] for start in starts)
            say(f"    {seconds:6.2f} s  {name}")


def main() -> int:
    """Run every mode in turn, `--times` times, and print the account."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spark-version", default=VERSION)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--modes", nargs="*", default=list(MODES), choices=list(MODES))
    chosen = parser.parse_args()
    venv = install(chosen.spark_version) if shutil.which("java") else ""
    if not venv:
        say("not measured: there is no Java, or no PySpark")
        return 0
    modes = ["local-cluster", *(mode for mode in chosen.modes if mode != "local-cluster")]
    found: dict[str, list[Start]] = {mode: [] for mode in modes}
    settings = LocalSettings(cluster=NODES, mode="process", hadoop=True, web=True, state=True)
    with tempfile.TemporaryDirectory(prefix="weft-spark-") as folder:
        work = Path(folder) / "clients"
        (work / "spark-conf").mkdir(parents=True)
        (work / "spark-conf/log4j2.properties").write_text(LOG4J)
        (work / "one.py").write_text(ONE)
        with LocalCluster(settings, Path(folder) / "cluster") as cluster:
            spark = Spark(cluster, Path(venv), work)
            for number in range(chosen.times):
                # The modes take turns, so that all see the same machine.
                for mode in modes:
                    start = run(spark, mode, number)
                    found[mode].append(start)
                    say(f"{mode}: {start.total:.1f} s, Weft's own {start.weft:.2f} s")
    report(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
