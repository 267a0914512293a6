"""A node whose disk is full says so, and its neighbour does the work.

The disk is a small one in memory, mounted where only the processes of this test see it.
"""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from testkit.live import until
from weft.client import local
from weft.client.api import Client
from weft.client.local import LocalCluster, LocalSettings
from weft.model.job import Job, Stage

JOBS, TASKS = 10, 12
SCRIPT = "set -e; for i in 1 2 3; do echo line $i; sleep .1; done"


def main(folder: Path) -> None:
    """Run jobs on two nodes, one of them without room; print what became of them."""
    small = folder / "work" / "n1"
    small.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", small], check=True)
    settings = LocalSettings(
        mode="process",
        nodes=2,
        cluster="2x4vcores,4096memory_mb",
        flags={"nm": ["disk-free-mb=0"]},
    )
    stage = Stage("a", TASKS, 1.0, {"vcores": 1.0, "memory_mb": 64.0}, command=("sh", "-c", SCRIPT))
    with LocalCluster(settings, folder) as cluster, Client(cluster.address) as client:
        with open(small / "fill", "wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(b"x" * 65536)
        apps = [client.submit(Job(f"j{number}", (stage,))) for number in range(JOBS)]
        reports = client.wait(apps)
        health = {node.node_id: node.health_report for node in client.nodes()}
        states = {node.node_id: node.state for node in client.nodes()}
        (small / "fill").unlink()
        until(lambda: {node.state for node in client.nodes()} == {"RUNNING"}, "room again")
        outcomes = [task.state for app in apps for task in client.tasks(app)]
    said = {
        "finals": [report.final_status for report in reports.values()],
        "states": states,
        "health": health["n1"],
        "failed": outcomes.count("FAILED"),
        "succeeded": outcomes.count("SUCCEEDED"),
    }
    print(json.dumps(said))


def test_a_cluster_starts_on_a_disk_that_is_nearly_full_and_says_why_it_does_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []
    flags = {"nm": ["disk-free-mb=1000000000"]}
    settings = LocalSettings(mode="process", cluster="1x1vcores,64memory_mb", flags=flags)
    with (
        LocalCluster(settings, tmp_path, heard.append) as cluster,
        Client(cluster.address) as client,
    ):
        until(lambda: client.nodes()[0].state == "UNHEALTHY", "the disk was looked at")
        # Whether that is before the start is over is up to the host.
        heard.clear()
        monkeypatch.setattr(local, "START_S", 3.0)
        cluster._await_nodes()
    (text,) = heard
    assert text.startswith("n1 gets no work: the disk of ")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a disk")
def test_jobs_succeed_beside_a_node_whose_disk_is_full_and_no_task_is_to_blame(
    tmp_path: Path,
) -> None:
    words = [sys.executable, "-m", "tests.live.test_full_disk", str(tmp_path)]
    done = subprocess.run(
        ["unshare", "--mount", *words], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["finals"] == ["SUCCEEDED"] * JOBS
    assert said["states"] == {"n1": "UNHEALTHY", "n2": "RUNNING"}
    assert "100 % full (at most 90 %)" in said["health"]
    assert (said["failed"], said["succeeded"]) == (0, JOBS * TASKS)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
