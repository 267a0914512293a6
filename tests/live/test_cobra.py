"""COBRA live: masters hold reusable containers and run several tasks in each, over gRPC."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from testkit.live import (
    Cluster,
    assert_memory,
    assert_ran_right,
    recorded,
    series,
    until,
    wait_for_nodes,
)
from weft.client.api import Client
from weft.client.local import LocalCluster, LocalSettings
from weft.model.ids import app_of_container, attempt_of_container
from weft.model.job import Edge, Job, Stage
from weft.model.jobfile import job_from_dict

DEMAND = {"vcores": 1.0, "memory_mb": 1024.0}
NODE_MB = 16384.0


def two_stages(name: str, tasks: int, duration_s: float) -> Job:
    """A wide stage and a narrow one behind a barrier."""
    return Job(
        name,
        (
            Stage("wide", tasks, duration_s, DEMAND),
            Stage("narrow", tasks // 4, duration_s, DEMAND, (Edge("wide"),)),
        ),
    )


def counted(cluster: LocalCluster, process: str, name: str) -> float:
    """How often a duration was observed, from the process's metrics."""
    lines = series(cluster.ready[process]["metrics"]).splitlines()
    found = [line.rpartition(" ")[2] for line in lines if line.startswith(f"{name}_count")]
    return float(found[0]) if found else 0.0


def ran_in(events: Sequence[dict[str, Any]], app: int) -> dict[int, int]:
    """How many tasks of an application ran in each of its containers."""
    found: dict[int, int] = {}
    for event in events:
        if event["fact"] == "TaskStarted" and event["stage"] >= 0:
            container = event["container"]
            if app_of_container(container) == app:
                found[container] = found.get(container, 0) + 1
    return found


def assert_reused(events: Sequence[dict[str, Any]], app: int, job: Job) -> None:
    """Fewer containers than tasks, and several tasks in one of them."""
    used = ran_in(events, app)
    assert sum(used.values()) == job.task_count
    assert len(used) < job.task_count
    assert max(used.values()) > 1


@pytest.mark.parametrize("pace", ["prompt", "yarn"])
def test_jobs_reuse_containers_on_emulated_nodes(pace: str, tmp_path: Path) -> None:
    jobs = [two_stages("a", 40, 3.0), two_stages("b", 24, 8.0)]
    settings = LocalSettings(
        cluster=f"3x8vcores,{NODE_MB:g}memory_mb",
        scheduler="cobra",
        pace=pace,
        time_scale=10.0,
        events=True,
    )
    with LocalCluster(settings, tmp_path / "c") as cluster:
        with Client(cluster.address) as client:
            apps = [client.submit(job) for job in jobs]
            reports = client.wait(apps)
        assert not cluster.failed()
    events = recorded(cluster.folder)
    for app, job in zip(apps, jobs, strict=True):
        assert reports[app].final_status == "SUCCEEDED", reports[app].diagnostics
        assert_ran_right(events, app, job, NODE_MB)
        assert_reused(events, app, job)


def test_real_commands_share_a_container(tmp_path: Path) -> None:
    """Twelve commands leave their files; what a container runs is measured and told."""
    out, seen = tmp_path / "out", tmp_path / "seen"
    out.mkdir()
    script = (
        f"sleep 0.2; while [ $WEFT_STAGE = narrow ] && [ ! -e {seen} ]; do sleep 0.05; done; "
        f"echo $WEFT_CONTAINER > {out}/$WEFT_STAGE-$WEFT_TASK"
    )
    stages = [
        {
            "name": name,
            "tasks": tasks,
            "duration_s": 0.2,
            "demand": DEMAND,
            "command": ["sh", "-c", script],
            "parents": parents,
        }
        for name, tasks, parents in (("wide", 10, []), ("narrow", 2, ["wide"]))
    ]
    job = job_from_dict({"name": "real", "stages": stages})
    settings = LocalSettings(
        cluster="2x8vcores,8192memory_mb", scheduler="cobra", mode="process", events=True
    )
    with LocalCluster(settings, tmp_path / "c") as cluster:
        with Client(cluster.address) as client:
            app = client.submit(job)
            # what table IV measures: looking at containers, telling, and deciding about them
            for parts, name in (
                (("nm0", "nm1"), "weft_monitor_seconds"),
                (("am",), "weft_use_transmission_seconds"),
                (("am",), "weft_holding_seconds"),
            ):
                until(lambda at=parts, what=name: any(counted(cluster, p, what) for p in at), name)
            seen.touch()  # not before: the commands are short
            report = client.wait([app])[app]
        assert not cluster.failed()
    events = recorded(cluster.folder)
    assert report.final_status == "SUCCEEDED", report.diagnostics
    assert len(list(out.iterdir())) == job.task_count
    named = {path.read_text().strip() for path in out.iterdir()}
    assert len(named) == len(ran_in(events, app))
    assert_reused(events, app, job)
    assert_memory(events, 8192.0)


def test_the_tasks_of_a_lost_master_go_on_in_its_containers(
    cluster: Cluster, tmp_path: Path
) -> None:
    """The process of all masters is killed: the next one follows, and starts only what waits."""
    out = tmp_path / "out"
    out.mkdir()
    small = {"vcores": 0.25, "memory_mb": 256.0}  # so that one container has room for all
    script = (
        f"echo $WEFT_STAGE $WEFT_TASK >> {out}/begun; while [ ! -e {out}/go ]; do sleep 0.05; done"
    )
    stages = [
        {
            "name": name,
            "tasks": tasks,
            "duration_s": 1.0,
            "demand": small,
            "command": ["sh", "-c", script],
            "parents": parents,
        }
        for name, tasks, parents in (("wide", 4, []), ("narrow", 2, ["wide"]))
    ]
    manager = cluster.manager("--pace=prompt")
    host = cluster.host(manager, "--scheduler=cobra")
    cluster.nodes(
        manager,
        f"--am-host={host.address}",
        "--mode=process",
        "--cgroups=off",
        "--cluster=1x8vcores,16384memory_mb",
        f"--work-dir={cluster.folder / 'work'}",
    )
    with Client(manager.address) as client:
        wait_for_nodes(client, 1)
        app = client.submit(job_from_dict({"name": "kept", "stages": stages}))
        begun = out / "begun"
        until(lambda: begun.exists() and begun.read_text().count("wide") == 4, "all of a stage run")
        host.kill()
        cluster.host(manager, "--scheduler=cobra", f"--port={host.address.rpartition(':')[2]}")

        def followed() -> bool:
            report = client.application(app)
            return report.attempt_id & 0xFF == 2 and report.state == "RUNNING"

        until(followed, "another master is registered")
        (out / "go").touch()
        report = client.wait([app])[app]
    assert report.final_status == "SUCCEEDED", report.diagnostics
    lines = sorted(begun.read_text().splitlines())
    assert lines == ["narrow 0", "narrow 1", "wide 0", "wide 1", "wide 2", "wide 3"]
    ran = ran_in(cluster.events(), app)
    assert {attempt_of_container(number) & 0xFF for number in ran} == {1}, "no other was needed"
