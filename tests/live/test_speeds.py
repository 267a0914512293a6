"""Nodes of unlike speeds live: tasks last their duration over the speed, and planners are told."""

import json
from pathlib import Path

import pytest

from testkit.live import assert_ran_right, recorded
from weft.client.api import Client
from weft.client.local import LocalCluster, LocalSettings
from weft.model.job import Edge, Job, Stage

SPEEDS = {"fast1": 4.0, "fast2": 4.0, "slow": 0.5}


def test_tasks_last_their_duration_over_the_speed_of_their_node(tmp_path: Path) -> None:
    """The times that emulated nodes report are exact, however late the machine is."""
    nodes = [
        {"count": 2, "name": "fast", "speed": 4, "capacity": {"vcores": 4, "memory_mb": 8192}},
        {"count": 1, "name": "slow", "speed": 0.5, "capacity": {"vcores": 4, "memory_mb": 8192}},
    ]
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"nodes": nodes}), encoding="utf-8")
    demand = {"vcores": 1.0, "memory_mb": 512.0}
    job = Job(
        "mixed", (Stage("wide", 20, 2.0, demand), Stage("last", 1, 2.0, demand, (Edge("wide"),)))
    )
    settings = LocalSettings(cluster=str(file), planner="heft", events=True, time_scale=10.0)
    with LocalCluster(settings, tmp_path / "c") as cluster:
        with Client(cluster.address) as client:
            app = client.submit(job)
            assert client.wait([app])[app].final_status == "SUCCEEDED"
        assert not cluster.failed()
    events = recorded(cluster.folder)
    assert_ran_right(events, app, job, 8192.0)
    ran = [e for e in events if e["fact"] == "TaskStopped" and e["stage"] >= 0]
    assert {e["node"] for e in ran} == set(SPEEDS)
    for event in ran:
        assert event["run_s"] == pytest.approx(2.0 / SPEEDS[event["node"]], rel=1e-6)
    [plan] = [e for e in events if e["fact"] == "MasterPlanned"]
    # 8 at once on the fast nodes: three waves of 0.5 s, the last task in 0.5 s more
    assert (plan["planner"], plan["makespan_s"]) == ("heft", pytest.approx(2.0))
