"""A job that recurs follows the plan of its last run: its second master builds none."""

import dataclasses
from pathlib import Path
from typing import Any

from testkit.live import assert_ran_right, recorded
from weft.client.api import Client
from weft.client.local import LocalCluster, LocalSettings
from weft.model.ids import app_of_attempt, app_of_container
from weft.model.job import Edge, Job, Stage

NODE_MB = 16384.0


def nightly(slower: float, key: str = "nightly") -> Job:
    """A long thin stage beside a wide one: something to plan."""
    thin = {"vcores": 1.0, "memory_mb": 2048.0}
    wide = {"vcores": 3.0, "memory_mb": 6144.0}
    stages = (
        Stage("extract", 4, 2.0 * slower, wide),
        Stage("long", 2, 9.0 * slower, thin),
        Stage("join", 6, 3.0 * slower, wide, (Edge("extract"),)),
        Stage("load", 2, 2.0 * slower, thin, (Edge("join"), Edge("long"))),
    )
    return Job("etl", stages, history_key=key)


def test_the_second_run_starts_without_planning(tmp_path: Path) -> None:
    """Though its tasks have become slower; a job of another name is planned again."""
    jobs = [nightly(1.0), nightly(1.2), nightly(1.0, key="hourly")]
    settings = LocalSettings(
        cluster=f"2x8vcores,{NODE_MB:g}memory_mb",
        scheduler="graphene",
        time_scale=10.0,
        events=True,
        flags={"am": ["plan_wait_s=3600"]},  # loading kernels on a busy machine takes seconds
    )
    with LocalCluster(settings, tmp_path / "c") as cluster:
        apps = []
        with Client(cluster.address) as client:
            for job in jobs:
                apps.append(client.submit(job))
                assert client.wait(apps[-1:])[apps[-1]].final_status == "SUCCEEDED"
        assert not cluster.failed()
    events = recorded(cluster.folder)
    planned: list[dict[str, Any]] = []
    for app, job in zip(apps, jobs, strict=True):
        assert_ran_right(events, app, dataclasses.replace(job), NODE_MB)
        (plan,) = (
            event
            for event in events
            if event["fact"] == "MasterPlanned" and app_of_attempt(event["attempt"]) == app
        )
        first = min(
            event["now_s"]
            for event in events
            if event["fact"] == "TaskStarted"
            and event["stage"] >= 0
            and app_of_container(event["container"]) == app
        )
        assert plan["now_s"] <= first
        planned.append(plan)
    assert [plan["planner"] for plan in planned] == ["graphene"] * 3
    assert [plan["candidates"] > 0 for plan in planned] == [True, False, True]
    assert [plan["planning_time_s"] > 0 for plan in planned] == [True, False, True]
