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

from tools.spark_kit import ROOT, VERSION, Failure, Spark, install, say
from weft.client.local import LocalCluster, LocalSettings

HARNESS = Path(os.environ.get("WEFT_YARN_CLIENTS") or ROOT.parent / "shared/tools/yarn-clients")
# Five JVMs on a busy machine may miss any limit of Spark's own, so a case has a second try.
TRIES_PER_CASE = 2
NODES = "2x4vcores,6144memory_mb"


class Check(Spark):
    """The gate's cases."""

    def nodes(self) -> None:
        """Check that `yarn node -list` shows both nodes."""
        text = self.command_line("NodeCLI", "-list")
        if "Total Nodes:2" not in text:
            raise Failure(f"yarn node -list says\n{text}")

    def client(self) -> None:
        """Check that a job in client mode has the right result, and is told as succeeded."""
        running = self.submit("client", "client", "probe")
        running.succeeded("OK")
        text = self.command_line("ApplicationCLI", "application", "-status", running.application())
        if "Final-State : SUCCEEDED" not in text:
            raise Failure(f"yarn application -status says\n{text}")

    def kill(self) -> None:
        """Check that `yarn application -kill` ends the driver."""
        running = self.submit("kill", "client", "long", "600")
        running.until("Finished task 0.0")
        self.command_line("ApplicationCLI", "application", "-kill", running.application())
        code = running.wait()
        if code == 0 or "KILLED" not in running.text():
            raise Failure(f"the driver ended with {code} and without a word of KILLED")

    def master_loss(self) -> None:
        """Check that the second attempt ends the job after SIGKILL of the first one's master."""
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
        """Check that a job ends right after kill -9 of Resource Manager and gateway in turn."""
        for mode in ("client", "cluster"):
            running = self.submit(f"losses_{mode}", mode, "long", "40")
            running.until("Finished task 1.0" if mode == "client" else "state: RUNNING")
            for name, start in (
                ("rm", self.cluster.start_manager),
                ("hadoop", self.cluster.start_hadoop),
            ):
                self.cluster.processes[name].kill()
                self.cluster.processes[name].wait()
                start()
            running.wait()
            if not running.result.read_text().startswith("OK "):
                raise Failure(f"in {mode} mode\n{running.text()[-3000:]}")


def short(cluster: LocalCluster, venv: Path, work: Path, *, faults: bool) -> bool:
    """Run the gate's cases, or the loss of services; return whether all passed."""
    check = Check(cluster, venv, work)
    cases: dict[str, Callable[[], None]] = {
        "yarn node -list": check.nodes,
        "client mode": check.client,
        "kill": check.kill,
        "loss of a master": check.master_loss,
    }
    if faults:
        cases = {"loss of manager and gateway": check.losses}
    tried = [
        any(_passes(name, case) for _ in range(TRIES_PER_CASE)) for name, case in cases.items()
    ]
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


def harness(cluster: LocalCluster, venv: Path, work: Path, cases: list[str], *, disk: bool) -> bool:
    """Run the harness's cases over WebHDFS, or over this disk; return whether all passed."""
    ready = cluster.ready["hadoop"]
    script = HARNESS / "yarn_clients.py"
    if not script.exists():
        raise Failure(f"there is no {script}: WEFT_YARN_CLIENTS names the harness's folder")
    listed = subprocess.run(
        [sys.executable, str(script), "-h"], capture_output=True, text=True, check=True
    )
    named = re.search(r"CASE +of (.*?);", " ".join(listed.stdout.split()))
    every = named[1].split() if named else []
    if disk:
        # Skein needs a file system with a host in its address.
        every = [case for case in every if case != "skein"]
    command = [
        sys.executable,
        str(script),
        "--rm",
        ready["clients"],
        "--scheduler",
        ready["schedulers"],
        "--webapp",
        cluster.web_address,
        "--default-fs",
        "file:///" if disk else ready["files"],
        "--spark-venv",
        str(venv),
        "--work",
        str(work),
        *(cases or every),
    ]
    return subprocess.run(command, check=False).returncode == 0


def main() -> int:
    """Run what was asked for; 0: all passed, or nothing could be checked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spark-version", default=VERSION)
    parser.add_argument("--harness", action="store_true", help="the whole harness")
    parser.add_argument("--disk", action="store_true", help="harness: file:/// for WebHDFS")
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
                    good &= harness(cluster, Path(venv), work, chosen.cases, disk=chosen.disk)
                else:
                    good &= short(cluster, Path(venv), work, faults=chosen.faults)
            if problem := cluster.failed():
                raise Failure(problem)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
