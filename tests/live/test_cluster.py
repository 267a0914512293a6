"""Jobs through real processes, told from what the processes recorded."""

from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from testkit.live import Cluster, assert_ran_right, chain, until, wait_for_nodes
from weft.client.api import Client
from weft.model.errors import WeftError
from weft.model.ids import attempt_of_container

MEMORY_MB = 16384.0
NODE = f"--cluster=1x8vcores,{MEMORY_MB:.0f}memory_mb,800disk_mbps,1000network_mbps"


@pytest.mark.parametrize("pace", ["prompt", "yarn"])
def test_jobs_run_exactly_once_in_order_and_within_capacity(cluster: Cluster, pace: str) -> None:
    manager = cluster.manager(f"--pace={pace}", "--heartbeat-s=0.2", "--master-heartbeat-s=0.2")
    host = cluster.host(manager)
    cluster.nodes(manager, f"--am-host={host.address}", "--nodes=4", NODE)
    jobs = [chain(f"job{i}", 3, 40, 0.02 * i) for i in range(3)]
    with Client(manager.address) as client:
        wait_for_nodes(client, 4)
        apps = [client.submit(job) for job in jobs]
        reports = client.wait(apps)
        assert {report.final_status for report in reports.values()} == {"SUCCEEDED"}
        assert {report.finished_tasks for report in reports.values()} == {120}
    for part in cluster.parts:
        assert part.stop() == 0
    events = cluster.events()
    for app, job in zip(apps, jobs, strict=True):
        assert_ran_right(events, app, job, MEMORY_MB)


def test_a_killed_node_manager_costs_its_tasks_and_nothing_else(cluster: Cluster) -> None:
    manager = cluster.manager("--node-expiry-s=2")
    host = cluster.host(manager)
    first = cluster.nodes(manager, f"--am-host={host.address}", "--nodes=2", NODE)
    with Client(manager.address) as client:
        wait_for_nodes(client, 2)
        job = chain("survivor", 3, 40, 0.5)
        app = client.submit(job)  # its master runs in the first process
        until(lambda: client.application(app).running_containers, "tasks run")
        doomed = cluster.nodes(
            manager, f"--am-host={host.address}", "--nodes=2", "--first-node=11", NODE
        )
        busy = {"n11", "n12"}
        until(
            lambda: any(n.containers for n in client.nodes() if n.node_id in busy),
            "tasks run on the doomed nodes",
        )
        doomed.kill()
        wait_for_nodes(client, 2, "LOST")
        report = client.wait([app])[app]
        assert report.final_status == "SUCCEEDED", report.diagnostics
        assert report.finished_tasks == 120
    assert first.stop() == 0
    assert_ran_right(cluster.events(), app, job, MEMORY_MB, repeats=True)


def test_a_killed_master_is_followed_by_one_that_repeats_no_finished_task(
    cluster: Cluster,
) -> None:
    manager = cluster.manager()
    nodes = cluster.nodes(
        manager,
        "--launch=process",
        f"--work-dir={cluster.folder / 'work'}",
        "--master-args=--resend-s=1",
        "--nodes=2",
        NODE,
    )
    with Client(manager.address) as client:
        wait_for_nodes(client, 2)
        job = chain("heir", 4, 30, 0.3)
        app = client.submit(job)
        until(lambda: client.application(app).finished_tasks >= 40, "a stage is done")
        (master,) = psutil.Process(nodes.process.pid).children()
        master.kill()
        report = client.wait([app])[app]
        assert report.final_status == "SUCCEEDED", report.diagnostics
        assert report.attempt_id & 0xFF == 2
    nodes.stop()
    events = cluster.events()
    assert_ran_right(events, app, job, MEMORY_MB)
    by_attempt = {
        attempt_of_container(e["container"]) & 0xFF for e in events if e["fact"] == "TaskStopped"
    }
    assert by_attempt == {1, 2}
    starts = [(e["stage"], e["task"]) for e in events if e["fact"] == "TaskStarted"]
    tasks = [key for key in starts if key[0] >= 0]
    assert len(tasks) == len(set(tasks)) == 120, "the second master took over what ran"


def test_a_killed_am_host_costs_an_attempt(cluster: Cluster) -> None:
    manager = cluster.manager()
    host = cluster.host(manager)
    port = host.address.rpartition(":")[2]
    nodes = cluster.nodes(manager, f"--am-host={host.address}", "--nodes=2", NODE)
    with Client(manager.address) as client:
        wait_for_nodes(client, 2)
        job = chain("heir", 4, 30, 0.3)
        app = client.submit(job)
        until(lambda: client.application(app).finished_tasks >= 40, "a stage is done")
        host.kill()
        cluster.host(manager, f"--port={port}")
        report = client.wait([app])[app]
        assert report.final_status == "SUCCEEDED", report.diagnostics
    nodes.stop()
    assert_ran_right(cluster.events(), app, job, MEMORY_MB)


def test_accepted_jobs_survive_a_killed_resource_manager(cluster: Cluster) -> None:
    state = f"--state-dir={cluster.folder / 'state'}"
    manager = cluster.manager(state)
    port = manager.address.rpartition(":")[2]
    host = cluster.host(manager)
    nodes = cluster.nodes(manager, f"--am-host={host.address}", "--nodes=2", NODE)
    job, waiting = chain("running", 4, 40, 0.4), chain("waiting", 1, 5, 0.1)
    with Client(manager.address) as client:
        wait_for_nodes(client, 2)
        app = client.submit(job)
        until(lambda: client.application(app).finished_tasks >= 40, "a stage is done")
        later = client.submit(waiting)
        manager.kill()
        with ThreadPoolExecutor(1) as pool:
            third = pool.submit(client.submit, waiting)
            with Client(manager.address) as stranger, pytest.raises(WeftError, match="no Resource"):
                stranger.submit(waiting)  # has no job there, so it is not patient
            assert not third.done()  # the other is
            again = cluster.manager(state, f"--port={port}")
            assert third.result(60.0) == later + 1
    assert again.ready["cluster_ts"] == manager.ready["cluster_ts"]
    with Client(again.address) as client:
        reports = client.wait([app, later])
        assert {r.final_status for r in reports.values()} == {"SUCCEEDED"}, reports
        assert client.submit(waiting) == later + 2
    nodes.stop()
    assert_ran_right(cluster.events(), app, job, MEMORY_MB)
    assert_ran_right(cluster.events(), later, waiting, MEMORY_MB)


def test_a_faster_clock_is_the_same_for_every_part(cluster: Cluster) -> None:
    """An hour passes in seconds, and durations on the cluster's clock stay true."""
    scale = "--time-scale=300"
    manager = cluster.manager(scale, "--heartbeat-s=60", "--resend-after-s=600")
    host = cluster.host(manager, scale, "--resend-s=600")
    nodes = cluster.nodes(
        manager, f"--am-host={host.address}", "--nodes=2", NODE, scale, "--resend-after-s=600"
    )
    with Client(manager.address) as client:
        wait_for_nodes(client, 2)
        job = chain("hour", 3, 14, 1200.0)  # with its master all of a stage runs at once
        app = client.submit(job)
        report = client.wait([app])[app]
        assert report.final_status == "SUCCEEDED"
        assert report.finished_s - report.started_s >= 3600.0
    nodes.stop()
    events = cluster.events()
    assert_ran_right(events, app, job, MEMORY_MB)
    runs = [e["run_s"] for e in events if e["fact"] == "TaskStopped" and e["stage"] >= 0]
    assert runs == pytest.approx([1200.0] * 42, rel=1e-3)
