"""Unmodified Spark on a fresh cluster of processes: the gate's short form, or the whole harness.

Short form: `yarn node -list`, a job in client mode, `yarn application -kill`, and the loss of a
master in cluster mode. PySpark is installed into build/ once; where it or Java cannot be had, the
check says so and passes. `--harness` runs the cases of WEFT_YARN_CLIENTS (`yarn_clients.py`, by
default a helper next to this repository) against WebHDFS instead, `--times` in a row.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from weft.client.local import LocalCluster, LocalSettings, write_conf

ROOT = Path(__file__).resolve().parents[1]
HARNESS = Path(os.environ.get("WEFT_YARN_CLIENTS") or ROOT.parent / "shared/tools/yarn-clients")
VERSION = "3.5.3"
INSTALL_S = 600.0
CASE_S = 240.0  # a limit, never a measure
TRIES = 2  # of a case: five JVMs on a busy machine may miss any limit of Spark's own
NODES = "2x4vcores,6144memory_mb"
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


class Failure(Exception):
    """A promise that was not kept."""


def say(text: str) -> None:
    """One line of progress."""
    print(f"spark-test: {text}", flush=True)


def install(version: str) -> str:
    """Install PySpark into build/; returns its folder, empty where it cannot be had."""
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


class Check:
    """One cluster, and Spark's commands against it."""

    def __init__(self, cluster: LocalCluster, venv: Path, work: Path) -> None:
        self.cluster, self.venv, self.work = cluster, venv, work
        (found,) = venv.glob("lib/python*/site-packages/pyspark/jars")
        self.jars = found
        # one host, whose disk all share: the staging files need no file server
        ready = {k: v for k, v in cluster.ready["hadoop"].items() if k != "files"}
        self.conf = write_conf(work / "conf", ready, cluster.web_address)
        for name, text in (("probe", PROBE), ("long", LONG)):
            (work / f"{name}.py").write_text(text)

    def environment(self) -> dict[str, str]:
        """What clients are told: the cluster, and nothing of another Spark."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("SPARK_", "HADOOP_", "YARN_", "PYSPARK_"))
        }
        conf = str(self.conf)
        return kept | {
            "HADOOP_CONF_DIR": conf, "YARN_CONF_DIR": conf, "SPARK_LOCAL_HOSTNAME": "localhost",
            "PYSPARK_PYTHON": str(self.venv / "bin/python"),
        }  # fmt: skip

    def submit(self, case: str, mode: str, script: str, *arguments: str) -> "Running":
        """Start spark-submit with its output in a file."""
        command = [str(self.venv / "bin/spark-submit"), "--master", "yarn", "--deploy-mode", mode]
        for pair in (
            "spark.executor.memory=512m", "spark.driver.memory=512m", "spark.yarn.am.memory=512m",
            "spark.executor.instances=2", "spark.ui.showConsoleProgress=false",
            f"spark.yarn.jars=local:{self.jars}/*",
        ):  # fmt: skip
            command += ["--conf", pair]
        result = self.work / f"{case}.result"
        return Running(
            [*command, str(self.work / f"{script}.py"), str(result), *arguments],
            self.work / f"{case}.log", result, self.environment(),
        )  # fmt: skip

    def command_line(self, tool: str, *arguments: str) -> str:
        """Run a class of YARN's command line; what it printed."""
        name = f"org.apache.hadoop.yarn.client.cli.{tool}"
        command = ["java", "-cp", f"{self.conf}:{self.jars}/*", name, *arguments]
        done = subprocess.run(
            command, env=self.environment(), capture_output=True, text=True, timeout=CASE_S,
            check=False,
        )  # fmt: skip
        return done.stdout

    # -- cases -------------------------------------------------------------------------------------

    def nodes(self) -> None:
        """`yarn node -list` shows both nodes."""
        text = self.command_line("NodeCLI", "-list")
        if "Total Nodes:2" not in text:
            raise Failure(f"yarn node -list says\n{text}")

    def client(self) -> None:
        """A job in client mode has the right result, and the cluster says that it succeeded."""
        running = self.submit("client", "client", "probe")
        running.succeeded("OK")
        text = self.command_line("ApplicationCLI", "application", "-status", running.application())
        if "Final-State : SUCCEEDED" not in text:
            raise Failure(f"yarn application -status says\n{text}")

    def kill(self) -> None:
        """`yarn application -kill` ends the driver."""
        running = self.submit("kill", "client", "long", "600")
        running.until("Finished task 0.0")
        self.command_line("ApplicationCLI", "application", "-kill", running.application())
        code = running.wait()
        if code == 0 or "KILLED" not in running.text():
            raise Failure(f"the driver ended with {code} and without a word of KILLED")

    def master_loss(self) -> None:
        """SIGKILL of the first attempt's master: the second runs the job to its end."""
        running = self.submit("master_loss", "cluster", "long", "8")
        running.until("state: RUNNING")
        _, stamp, number = running.application().split("_")
        first = f"CONTAINER_ID=container_{stamp}_{number}_01_000001".encode()
        found = []
        for entry in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):
                if first in entry.read_bytes().split(b"\0"):
                    found.append(int(entry.parent.name))
        if not found:
            raise Failure("the first attempt's master does not run here")
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        running.succeeded(f"OK container_{stamp}_{number}_02_000001")

    def losses(self) -> None:
        """kill -9 of the Resource Manager, then of the gateway: the job ends right all the same."""
        for mode in ("client", "cluster"):
            running = self.submit(f"losses_{mode}", mode, "long", "40")
            running.until("Finished task 1.0" if mode == "client" else "state: RUNNING")
            for name, start in (
                ("rm", self.cluster.start_manager), ("hadoop", self.cluster.start_hadoop),
            ):  # fmt: skip
                self.cluster.processes[name].kill()
                self.cluster.processes[name].wait()
                start()
            running.wait()
            if not running.result.read_text().startswith("OK "):
                raise Failure(f"in {mode} mode\n{running.text()[-3000:]}")


class Running:
    """A client under way."""

    def __init__(
        self, command: list[str], log: Path, result: Path, environment: dict[str, str]
    ) -> None:
        self.log, self.result = log, result
        self.ends_s = time.monotonic() + CASE_S
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, env=environment, cwd=log.parent,
                start_new_session=True,
            )  # fmt: skip

    def text(self) -> str:
        """What it wrote so far."""
        return self.log.read_text(errors="replace")

    def application(self) -> str:
        """The id of its application."""
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


def short(cluster: LocalCluster, venv: Path, work: Path, *, faults: bool) -> bool:
    """Run the gate's cases, or the loss of services; whether all passed."""
    check = Check(cluster, venv, work)
    cases: dict[str, Callable[[], None]] = {
        "yarn node -list": check.nodes, "client mode": check.client,
        "kill": check.kill, "loss of a master": check.master_loss,
    }  # fmt: skip
    if faults:
        cases = {"loss of manager and gateway": check.losses}
    tried = [any(_passes(name, case) for _ in range(TRIES)) for name, case in cases.items()]
    return all(tried)


def _passes(name: str, case: Callable[[], None]) -> bool:
    """Run a case once, and say how it went."""
    began = time.monotonic()
    try:
        case()
    except (Failure, subprocess.SubprocessError, OSError) as error:
        say(f"FAIL {name}: {error}")
        return False
    say(f"ok   {name}, {time.monotonic() - began:.0f} s")
    return True


def harness(cluster: LocalCluster, venv: Path, work: Path, cases: list[str]) -> bool:
    """Run the harness's cases, WebHDFS being the file system; whether all passed."""
    ready = cluster.ready["hadoop"]
    script = HARNESS / "yarn_clients.py"
    if not script.exists():
        raise Failure(f"there is no {script}: WEFT_YARN_CLIENTS names the harness's folder")
    listed = subprocess.run(
        [sys.executable, str(script), "-h"], capture_output=True, text=True, check=True
    )
    named = re.search(r"CASE +of (.*?);", " ".join(listed.stdout.split()))
    command = [
        sys.executable, str(script), "--rm", ready["clients"], "--scheduler", ready["schedulers"],
        "--webapp", cluster.web_address, "--default-fs", ready["files"], "--spark-venv", str(venv),
        "--work", str(work), *(cases or (named[1].split() if named else [])),
    ]  # fmt: skip
    return subprocess.run(command, check=False).returncode == 0


def main() -> int:
    """Run what was asked for; 0: all passed, or nothing could be checked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spark-version", default=VERSION)
    parser.add_argument("--harness", action="store_true", help="the whole harness")
    parser.add_argument("--faults", action="store_true", help="kill -9 of manager and gateway")
    parser.add_argument("--times", type=int, default=1, help="how many times in a row")
    parser.add_argument("--work", default="", help="folder of the harness's clients and logs")
    parser.add_argument("cases", nargs="*", help="cases of the harness; default: all")
    chosen = parser.parse_args()
    if shutil.which("java") is None:
        say("not checked: there is no Java")
        return 0
    venv = install(chosen.spark_version)
    if not venv:
        return 0
    settings = LocalSettings(cluster=NODES, mode="process", hadoop=True, web=True, state=True)
    good = True
    with tempfile.TemporaryDirectory(prefix="weft-spark-") as folder:
        work = Path(chosen.work or Path(folder) / "work").resolve()
        work.mkdir(parents=True, exist_ok=True)
        with LocalCluster(settings, Path(folder) / "cluster") as cluster:
            for _ in range(chosen.times):
                if chosen.harness:
                    good &= harness(cluster, Path(venv), work, chosen.cases)
                else:
                    good &= short(cluster, Path(venv), work, faults=chosen.faults)
            if problem := cluster.failed():
                raise Failure(problem)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
