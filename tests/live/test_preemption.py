"""Preemption on clusters of real processes: emulated nodes, and commands on a host."""

import time
from pathlib import Path

import pytest

from weft.client.api import Client
from weft.client.local import LocalCluster, LocalSettings
from weft.model.jobfile import job_from_dict

CLUSTER = """
resources: [{name: vcores, kind: divisible}, {name: memory_mb, kind: rigid}]
nodes: [{count: 1, capacity: {vcores: 4.5, memory_mb: 4096}}]
queues: {root: {a: {capacity: 0.5}, b: {capacity: 0.5}}}
"""
FLAGS = {"rm": ("preemption=true", "preemption_grace_s=1")}


@pytest.mark.parametrize("mode", ["emulated", "process"])
def test_a_queue_gets_its_guarantee_back(mode: str, tmp_path: Path) -> None:
    """Queue a fills the node for five minutes; a task of queue b ends within seconds."""
    (tmp_path / "cluster.yaml").write_text(CLUSTER)

    def job(queue: str, tasks: int, seconds: float) -> object:
        return job_from_dict(
            {
                "name": queue,
                "queue": queue,
                "max_task_attempts": 1,
                "stages": [
                    {
                        "name": "s",
                        "tasks": tasks,
                        "duration_s": seconds,
                        "demand": {"vcores": 1, "memory_mb": 64},
                        "command": ["sleep", str(seconds)],
                    }
                ],
            }
        )

    settings = LocalSettings(cluster=str(tmp_path / "cluster.yaml"), mode=mode, flags=FLAGS)
    with LocalCluster(settings, tmp_path / "c") as cluster, Client(cluster.address) as client:
        first = client.submit(job("a", 4, 300.0))
        until = time.monotonic() + 60
        while client.application(first).running_containers < 5 and time.monotonic() < until:
            time.sleep(0.05)
        second = client.submit(job("b", 1, 0.5))
        report = client.wait([second])[second]
        assert report.final_status == "SUCCEEDED"
        robbed = client.application(first)
        assert robbed.state == "RUNNING"
        assert robbed.preempted_containers == 1
        assert "PREEMPTED" in {container.state for container in client.containers(first)}
        client.kill(first)
