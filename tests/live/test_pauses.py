"""Processes that stand still for longer than the expiry, as on a host that was suspended."""

import signal
import time
from pathlib import Path

import psutil

from testkit.live import Cluster, Part, assert_ran_right, chain, until, wait_for_nodes
from weft.client.api import Client
from weft.model.job import Job, Stage

EXPIRY_S, MEMORY_MB = 0.8, 4096.0
NODE = f"--cluster=1x4vcores,{MEMORY_MB:.0f}memory_mb,800disk_mbps,1000network_mbps"
EXPIRIES = (f"--node-expiry-s={EXPIRY_S}", f"--master-expiry-s={EXPIRY_S}")
SOON = ("--heartbeat-s=0.1", "--master-heartbeat-s=0.1")


def test_a_manager_that_stood_still_judges_nobody_by_what_it_did_not_hear(cluster: Cluster) -> None:
    manager = cluster.manager(*EXPIRIES, *SOON)
    host = cluster.host(manager)
    nodes = cluster.nodes(manager, f"--am-host={host.address}", "--nodes=3", NODE)
    job = chain("patient", 2, 16, 0.2)
    with Client(manager.address) as client:
        wait_for_nodes(client, 3)
        app = client.submit(job)
        until(lambda: client.application(app).finished_tasks, "tasks end")
        manager.process.send_signal(signal.SIGSTOP)
        over_s = time.monotonic() + 3 * EXPIRY_S
        until(lambda: time.monotonic() > over_s, "everybody was silent for too long")
        manager.process.send_signal(signal.SIGCONT)
        report = client.wait([app])[app]
        assert report.final_status == "SUCCEEDED", report.diagnostics
        assert report.attempt_id & 0xFF == 1
        assert len(client.nodes(["RUNNING"])) == 3
    assert nodes.stop() == 0
    assert_ran_right(cluster.events(), app, job, MEMORY_MB)


def test_a_node_manager_that_stood_still_ends_what_is_no_longer_its_own(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Its tasks went on meanwhile, and others have begun in their place."""
    manager = cluster.manager(*EXPIRIES, *SOON)
    host = cluster.host(manager)

    def node(number: int) -> Part:
        flags = (f"--work-dir={cluster.folder / f'work{number}'}", f"--first-node={number}")
        more = ("--mode=process", "--cgroups=off", NODE, *flags)
        return cluster.nodes(manager, f"--am-host={host.address}", *more)

    numbers, go = tmp_path / "numbers", tmp_path / "go"
    script = f"echo $$ >> {numbers}; while [ ! -e {go} ]; do sleep 0.05; done"
    demand = {"vcores": 1.0, "memory_mb": 64.0}
    job = Job("kept", (Stage("a", 6, 1.0, demand, command=("sh", "-c", script)),))

    def begun() -> list[int]:
        return [int(one) for one in numbers.read_text().split()] if numbers.exists() else []

    node(1)
    with Client(manager.address) as client:
        wait_for_nodes(client, 1)
        app = client.submit(job)
        until(lambda: len(begun()) == 3, "its master and three tasks run on the first")
        paused = node(2)
        until(lambda: len(begun()) == 6, "the others run on the second")
        first = {one.node_id: one.containers for one in client.nodes()}
        before = set(begun()[3:])
        paused.process.send_signal(signal.SIGSTOP)
        wait_for_nodes(client, 1, "LOST")
        assert all(psutil.pid_exists(one) for one in before), "nobody told them"
        paused.process.send_signal(signal.SIGCONT)
        until(lambda: not any(map(psutil.pid_exists, before)), "they end")
        until(lambda: len(begun()) == 9, "they run once more")
        wait_for_nodes(client, 2)
        assert {one.node_id: one.containers for one in client.nodes()} == first
        go.touch()
        report = client.wait([app])[app]
        assert report.final_status == "SUCCEEDED", report.diagnostics
        assert (report.finished_tasks, report.attempt_id & 0xFF) == (6, 1)
        until(lambda: not any(one.containers for one in client.nodes()), "nothing is left")
