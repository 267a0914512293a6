"""Unmodified Spark against a cluster of processes: installing it, submitting, following its client.

`check_spark` and its like are made of this.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from weft.client.local import LocalCluster, write_conf

ROOT = Path(__file__).resolve().parents[1]
VERSION = "3.5.3"
INSTALL_S = 600.0
# This is a limit, never a measure.
CASE_S = 240.0
APPLICATION = re.compile(r"application_\d+_\d+")

# A job whose result is known, and one that lasts until it has run `seconds` of tasks.
PROBE = """
import sys
from pyspark.sql import SparkSession, functions as F
spark = SparkSession.builder.appName("probe").getOrCreate(); sc = spark.sparkContext
total = sc.parallelize(range(1, 1001), 4).map(lambda x: x * x).sum()
rows = (spark.range(0, 100000, 1, 4).groupBy((F.col("id") % 7).alias("k"))
        .agg(F.sum("id").alias("s")).orderBy("k").collect())
good = total == 333833500 and [r.s for r in rows] == [sum(range(k, 100000, 7)) for k in range(7)]
open(sys.argv[1], "w").write("OK" if good else "WRONG")
spark.stop()
"""
LONG = """
import os, sys, time
from pyspark.sql import SparkSession
spark = SparkSession.builder.appName("long").getOrCreate(); sc = spark.sparkContext
def one(x):
    time.sleep(1); return x
n = int(sys.argv[2]); total = sc.parallelize(range(n), n).map(one).sum()
good = total == n * (n - 1) // 2
open(sys.argv[1], "w").write(("OK " if good else "WRONG ") + os.environ.get("CONTAINER_ID", ""))
spark.stop()
"""
# A job that runs tasks until it is told that it may end.
TOLD = """
import os, sys, time
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate(); sc = spark.sparkContext
def one(x):
    time.sleep(2); return x
n, rounds, good = int(sys.argv[3]), 0, True
while not os.path.exists(sys.argv[2]) or not rounds:
    good &= sc.parallelize(range(n), n).map(one).sum() == n * (n - 1) // 2
    rounds += 1
open(sys.argv[1], "w").write("OK" if good else "WRONG")
spark.stop()
"""
# What makes a Java machine start with less CPU, where many start at once.
LIGHT = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"


class Failure(Exception):
    """A promise that was not kept."""


def say(text: str) -> None:
    """Print one line of progress."""
    print(f"spark-test: {text}", flush=True)


def install(version: str) -> str:
    """Install PySpark into build/; return its folder, empty where it cannot be had."""
    venv = ROOT / "build" / f"pyspark-{version}"
    python = venv / "bin/python"
    if not (venv / "installed").exists():
        shutil.rmtree(venv, ignore_errors=True)
        say(f"installing PySpark {version} into {venv.relative_to(ROOT)}")
        for command in (
            [sys.executable, "-m", "venv", str(venv)],
            [str(python), "-m", "pip", "-q", "install", f"pyspark=={version}"],
        ):
            try:
                done = subprocess.run(
                    command, capture_output=True, text=True, timeout=INSTALL_S, check=False
                )
            except subprocess.TimeoutExpired:
                say(f"not checked: no PySpark {version} within {INSTALL_S:g} s")
                return ""
            if done.returncode:
                words = (done.stderr.strip().splitlines() or ["no output"])[-1]
                say(f"not checked: PySpark {version} cannot be installed: {words}")
                return ""
        (venv / "installed").touch()
    return str(venv)


class Spark:
    """Spark's commands against one cluster."""

    def __init__(self, cluster: LocalCluster, venv: Path, work: Path) -> None:
        self.cluster, self.venv, self.work = cluster, venv, work
        (found,) = venv.glob("lib/python*/site-packages/pyspark/jars")
        self.jars = found
        self.started: list[Running] = []
        self.conf = self.write()
        for name, text in (("probe", PROBE), ("long", LONG), ("told", TOLD)):
            (work / f"{name}.py").write_text(text)

    def write(self, *, files: bool = False) -> Path:
        """Write a configuration folder; `files`: WebHDFS, where one disk would do as well."""
        ready = dict(self.cluster.ready["hadoop"])
        if not files:
            # One host's disk is shared by all, so the staging files need no file server.
            ready.pop("files", None)
        return write_conf(
            self.work / ("conf-files" if files else "conf"), ready, self.cluster.web_address
        )

    def environment(self) -> dict[str, str]:
        """Return what clients are told: the cluster, and nothing of another Spark."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("SPARK_", "HADOOP_", "YARN_", "PYSPARK_"))
        }
        conf = str(self.conf)
        return kept | {
            "HADOOP_CONF_DIR": conf,
            "YARN_CONF_DIR": conf,
            "SPARK_LOCAL_HOSTNAME": "localhost",
            "PYSPARK_PYTHON": str(self.venv / "bin/python"),
        }

    def submit(
        self,
        case: str,
        mode: str,
        script: str,
        *arguments: str,
        user: str = "",
        settings: Mapping[str, str] | None = None,
    ) -> "Running":
        """Start spark-submit with its output in a file; `settings` are Spark's, over the usual."""
        command = [str(self.venv / "bin/spark-submit"), "--master", "yarn", "--deploy-mode", mode]
        usual = {
            "spark.executor.memory": "512m",
            "spark.driver.memory": "512m",
            "spark.yarn.am.memory": "512m",
            "spark.executor.instances": "2",
            "spark.ui.showConsoleProgress": "false",
            "spark.app.name": case,
            "spark.yarn.jars": f"local:{self.jars}/*",
        }
        for name, value in (usual | dict(settings or {})).items():
            command += ["--conf", f"{name}={value}"]
        result = self.work / f"{case}.result"
        result.unlink(missing_ok=True)
        environment = self.environment() | ({"HADOOP_USER_NAME": user} if user else {})
        running = Running(
            [*command, str(self.work / f"{script}.py"), str(result), *arguments],
            self.work / f"{case}.log",
            result,
            environment,
        )
        self.started.append(running)
        return running

    def end(self) -> None:
        """End what clients still run: a check that failed leaves nothing behind."""
        for running in self.started:
            if running.process.poll() is None:
                running.end()

    def command_line(self, tool: str, *arguments: str) -> str:
        """Run a class of YARN's command line; what it printed."""
        name = f"org.apache.hadoop.yarn.client.cli.{tool}"
        command = ["java", "-cp", f"{self.conf}:{self.jars}/*", name, *arguments]
        done = subprocess.run(
            command,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=CASE_S,
            check=False,
        )
        return done.stdout


class Running:
    """A client under way."""

    def __init__(
        self, command: list[str], log: Path, result: Path, environment: dict[str, str]
    ) -> None:
        self.log, self.result = log, result
        self.ends_s = time.monotonic() + CASE_S
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                command,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=log.parent,
                start_new_session=True,
            )

    def text(self) -> str:
        """Return what it wrote so far."""
        return self.log.read_text(errors="replace")

    def application(self) -> str:
        """Return the id of its application."""
        found = APPLICATION.search(self.text())
        if found is None:
            raise Failure("it names no application")
        return found[0]

    def until(self, words: str) -> None:
        """Wait until it says something."""
        while words not in self.text():
            if self.process.poll() is not None or time.monotonic() > self.ends_s:
                self.end()
                raise Failure(f"{words!r} did not show up in\n{self.text()[-3000:]}")
            time.sleep(0.2)

    def wait(self) -> int:
        """Wait for its end; the exit code."""
        try:
            return self.process.wait(max(1.0, self.ends_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.end()
            raise Failure(f"no end within {CASE_S:g} s:\n{self.text()[-3000:]}") from None

    def succeeded(self, result: str) -> None:
        """Wait for its end, which must be a good one."""
        code = self.wait()
        found = self.result.read_text() if self.result.exists() else "no result"
        if code or found != result:
            raise Failure(f"exit code {code}, {found}\n{self.text()[-3000:]}")

    def end(self) -> None:
        """Kill it and what it started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
