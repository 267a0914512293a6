"""Unmodified Spark on three hosts: no HDFS, no shared disk, and a host that is lost under way.

The gateway of YARN's wire runs on the control host, a relay beside every node manager, installed by
the role. Spark's own jars, what is submitted and the results lie in the gateway's WebHDFS.
"""

import os
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Any, ClassVar

from tools.spark_kit import LIGHT
from tools.testbed import proofs
from tools.testbed.bed import CONTROL, FAR_MANAGER, MANAGER, NODE_MANAGER_SETTINGS, Bed, Gate
from tools.testbed.groups import Groups
from tools.testbed.host import Host
from tools.testbed.words import RESULT, Failure, hold, say, until
from weft.client.local import write_conf
from weft.model.ids import AppId
from weft.protocol.requests import ApplicationReport

GATEWAY_PORT = 8044
# With the master they fill three hosts of two containers each.
EXECUTORS = 5
NUMBERS, PARTS = 1_000, 12
# This is a limit for Java machines on a busy machine, never a measure.
PATIENCE_S = 300.0
LOGS = RESULT.with_name("spark-logs")
# Writes sums by remainder to the result's folder; its second stage waits for the gate, when the
# first one's output lies on every host.
JOB = f"""
import socket, sys
from pyspark.sql import SparkSession
sc = SparkSession.builder.getOrCreate().sparkContext
def wait(rows):
    socket.create_connection(("{CONTROL}", {Gate.PORT})).recv(1)
    return rows
pairs = sc.parallelize(range({NUMBERS}), {PARTS}).map(lambda x: (x % 7, x * x))
sums = sorted(pairs.reduceByKey(lambda a, b: a + b, {PARTS}).mapPartitions(wait).collect())
sc.parallelize([repr(sums)], 1).saveAsTextFile(sys.argv[1])
sc.stop()
"""
RIGHT = repr([(k, sum(x * x for x in range(k, NUMBERS, 7))) for k in range(7)])
SETTINGS = {
    "spark.executor.instances": f"{EXECUTORS}",
    "spark.executor.memory": "512m",
    "spark.driver.memory": "512m",
    "spark.yarn.maxAppAttempts": "2",
    "spark.ui.enabled": "false",
    # nobody answers for a host that is cut off: who asks it must not wait for minutes
    "spark.network.timeout": "60s",
    "spark.shuffle.io.connectionTimeout": "10s",
    "spark.shuffle.io.maxRetries": "1",
    "spark.driver.extraJavaOptions": LIGHT,
    "spark.executor.extraJavaOptions": LIGHT,
}


class SparkBed(Bed):
    """Three hosts with relays, and a gateway."""

    count = 3
    capacity: ClassVar[dict[str, int]] = {"vcores": 4, "memory_mb": 2 * 896}
    services = ("nm", "relay")

    def __init__(
        self, folder: Path, groups: Groups, ansible: Path, python: Path, venv: Path
    ) -> None:
        super().__init__(folder, groups, ansible, python)
        self.venv = venv
        self.files = folder / "files"
        self.conf = folder / "hadoop-conf"
        self.clients: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start as every testbed does; the hosts know each other by name, as Java wants it."""
        super().start()
        names = "".join(f"{host.address} {host.name}\n" for host in self.hosts)
        for host in self.hosts:
            host.run("sh", "-c", f"printf '%s' '{names}' >>/etc/hosts")

    def serve(self) -> None:
        """Start the control side, and the gateway with Spark's jars in its folder."""
        super().serve()
        (jars,) = self.venv.glob("lib/python*/site-packages/pyspark/jars")
        archive = self.files / "spark/jars.zip"
        archive.parent.mkdir(parents=True)
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as packed:
            for jar in sorted(jars.glob("*.jar")):
                packed.write(jar, jar.name)
        part = self.cluster.start(
            "weft.yarn",
            f"--manager={MANAGER}",
            f"--host={CONTROL}",
            "--insecure",
            f"--port={GATEWAY_PORT}",
            f"--dir={self.folder / 'gateway'}",
            f"--files={self.files}",
        )
        write_conf(self.conf, part.ready, "")

    def stop(self) -> None:
        """Stop clients first; what containers wrote is kept where a promise was broken."""
        for client in self.clients:
            client.kill()
            client.wait()
        shutil.rmtree(LOGS, ignore_errors=True)
        for host in self.hosts:
            for path in host.path("/var/lib/weft").rglob("std*"):
                to = LOGS / host.name / f"{path.parent.name}-{path.name}"
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, to)
        super().stop()

    def _variables(self) -> dict[str, Any]:
        return super()._variables() | {"weft_gateway": f"http://{CONTROL}:{GATEWAY_PORT}"}

    def _own(self) -> dict[str, Any]:
        """Return variables by host: the last has a long way to the manager."""
        return {
            self.hosts[-1].name: {
                "weft_settings": {"nm": NODE_MANAGER_SETTINGS | {"manager": FAR_MANAGER}}
            }
        }

    # -- Spark -------------------------------------------------------------------------------------

    def submit(self, name: str) -> AppId:
        """Run `spark-submit` in cluster mode; return the application once it is accepted."""
        known = {report.app_id for report in self.client.applications()}
        script = self.folder / f"{name}.py"
        script.write_text(JOB)
        settings = SETTINGS | {
            "spark.app.name": name,
            "spark.pyspark.python": str(self.python),
            "spark.yarn.archive": f"webhdfs://{CONTROL}:9870/spark/jars.zip",
        }
        command = [str(self.venv / "bin/spark-submit"), "--master", "yarn"]
        command += ["--deploy-mode", "cluster"]
        for key, value in settings.items():
            command += ["--conf", f"{key}={value}"]
        environment = os.environ | {
            "HADOOP_CONF_DIR": str(self.conf),
            "SPARK_LOCAL_IP": CONTROL,
            "PYSPARK_PYTHON": str(self.venv / "bin/python"),
        }
        log = (self.folder / f"{name}.log").open("wb")
        client = subprocess.Popen(
            [*command, str(script), f"/results/{name}"],
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=self.folder,
        )
        self.clients.append(client)

        def accepted() -> AppId | None:
            if client.poll():
                raise Failure(f"spark-submit ended:\n{self.said(name)}")
            new = [r.app_id for r in self.client.applications() if r.app_id not in known]
            return new[0] if new else None

        return until(accepted, f"{name} is submitted", PATIENCE_S)

    def said(self, name: str) -> str:
        """Return the last words of a client."""
        return (self.folder / f"{name}.log").read_text(errors="replace")[-3000:]

    def finished(self, name: str, app: AppId) -> ApplicationReport:
        """Return the report of an application that must have ended well, with the right result."""
        try:
            client_code = self.clients[-1].wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise Failure(f"{name} does not end:\n{self.said(name)}") from None
        report = self.ended(app)
        hold(
            report.final_status == "SUCCEEDED" and client_code == 0,
            f"{name}: {report.final_status}, {report.diagnostics}; client {client_code}",
        )
        parts = sorted((self.files / "results" / name).glob("part-*"))
        text = "".join(part.read_text() for part in parts)
        hold(text.strip() == RIGHT, f"{name}: wrong result {text!r}")
        return report

    def held(self, app: AppId) -> dict[str, list[str]]:
        """Return what each host holds of an application now: `master` or `executor`."""
        found: dict[str, list[str]] = {host.name: [] for host in self.hosts}
        for one in self.client.containers(app):
            if not one.finished_s:
                found[one.node_id].append("master" if one.stage == "" else "executor")
        return found


# -- the promises ----------------------------------------------------------------------------------


def spark_installed(bed: SparkBed) -> str:
    """Prove that the role installs nodes and relays; hosts serve their own nodes' faces."""
    bed.ansible.play("install.yml")
    bed.wait_for_nodes()
    for host in bed.hosts:
        until(lambda host=host: _face_open(host), f"the relay of {host.name} serves")  # type: ignore[misc]
    return "three nodes RUNNING, a relay on each"


def executors_lost(bed: SparkBed) -> str:
    """Prove that an attempt ends right on two hosts when the host of two executors is lost."""
    app, held = _waits(bed, "executors")
    host = next(h for h in bed.hosts if "master" not in held[h.name])
    _lose(bed, host)
    bed.gate.open()
    report = bed.finished("executors", app)
    hold(report.attempt_id & 255 == 1, f"attempt {report.attempt_id & 255}")
    return f"{host.name} LOST with {_words(held[host.name])}; {_back(bed, host)}"


def master_lost(bed: SparkBed) -> str:
    """Prove that a second attempt ends the job elsewhere when the master's host is lost."""
    app, held = _waits(bed, "master")
    host = next(h for h in bed.hosts if "master" in held[h.name])
    _lose(bed, host)
    bed.gate.open()
    report = bed.finished("master", app)
    hold(report.attempt_id & 255 == 2, f"attempt {report.attempt_id & 255}")
    return f"{host.name} LOST with {_words(held[host.name])}; {_back(bed, host)}"


PROOFS = (spark_installed, executors_lost, master_lost, proofs.uninstalled)


# -- what they share -------------------------------------------------------------------------------


def _waits(bed: SparkBed, name: str) -> tuple[AppId, dict[str, list[str]]]:
    """Submit, and wait until tasks of the second stage wait in every executor."""
    bed.gate.shut()
    app = bed.submit(name)

    def all_wait() -> bool:
        if bed.clients[-1].poll() is not None:
            raise Failure(f"{name} ended before its time:\n{bed.said(name)}")
        return len(bed.gate.waiting) == EXECUTORS

    until(all_wait, "tasks wait in all executors", PATIENCE_S)
    held = bed.held(app)
    say(f"{name}: {held}")
    every = sorted(one for host in held.values() for one in host)
    hold(every == ["executor"] * EXECUTORS + ["master"], f"containers: {held}")
    hold(all(held.values()), f"every host has a part: {held}")
    return app, held


def _lose(bed: SparkBed, host: Host) -> None:
    """Cut a host off, until it is known to be lost, and the others are not."""
    host.cut(True)
    until(lambda: bed.states()[host.name] == "LOST", f"{host.name} is LOST")
    others = {name: state for name, state in bed.states().items() if name != host.name}
    hold(set(others.values()) == {"RUNNING"}, f"it alone is LOST: {others}")


def _back(bed: SparkBed, host: Host) -> str:
    """Reconnect a host: it is RUNNING by itself, and what it ran for the job is gone."""
    host.cut(False)
    until(lambda: bed.states()[host.name] == "RUNNING", f"{host.name} is back")
    for one in bed.hosts:
        until(lambda one=one: not _java(one), f"no Java machine is left on {one.name}")  # type: ignore[misc]
        until(lambda one=one: not _files(one), f"no files are left on {one.name}")  # type: ignore[misc]
    return "the result is right; back RUNNING, nothing of the job is left on any host"


def _words(held: list[str]) -> str:
    return " and ".join(f"an {one}" if one == "executor" else f"the {one}" for one in sorted(held))


def _java(host: Host) -> list[str]:
    return [line for line in host.processes() if "java" in line]


def _files(host: Host) -> list[str]:
    """Return what applications left beside their logs, but for the cache of shared files."""
    found = host.run("find", "/var/lib/weft/nm/work", "-name", "filecache", "-o", "-name", "local")
    return [line for line in found.split() if "/application_" in line or "/app" in line]


def _face_open(host: Host) -> bool:
    listening = host.run("sh", "-c", "cat /proc/net/tcp /proc/net/tcp6")
    ports = {
        int(line.split()[1].rpartition(":")[2], 16)
        for line in listening.splitlines()
        if line.split()[3:4] == ["0A"]
    }
    return any(8045 <= port < 8045 + SparkBed.count for port in ports)
