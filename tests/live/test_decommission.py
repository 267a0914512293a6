"""Real nodes are taken out of service by the command line, upgraded and put back."""

import json
import urllib.request

import pytest

from testkit import forked
from testkit.live import Cluster, Part, assert_ran_right, chain, until, wait_for_nodes
from weft.client.api import Client

MEMORY_MB = 16384.0
NODE = f"--cluster=1x8vcores,{MEMORY_MB:.0f}memory_mb,800disk_mbps,1000network_mbps"


def weft(manager: Part, *arguments: str) -> forked.Said:
    """Run a command against the cluster."""
    return forked.weft(*arguments, "--rm", manager.address)


def get(url: str) -> str:
    """A page's text."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=30) as answer:
        return str(answer.read().decode())


def test_a_node_is_drained_upgraded_and_put_back_under_load(cluster: Cluster) -> None:
    state = f"--state-dir={cluster.folder / 'state'}"
    manager = cluster.manager(state)
    port = manager.address.rpartition(":")[2]
    host = cluster.host(manager)
    flags = (f"--am-host={host.address}", NODE)
    first = cluster.nodes(manager, "--node-name=n1", *flags)
    with Client(manager.address) as client:
        wait_for_nodes(client, 1)
        job = chain("steady", 12, 16, 0.5)
        app = client.submit(job)  # its master runs on n1, which stays
        until(lambda: client.application(app).running_containers > 1, "tasks run")
        second = cluster.nodes(manager, "--node-name=n2", *flags)
        until(lambda: any(n.containers for n in client.nodes() if n.node_id == "n2"), "n2 works")
        done = weft(manager, "nodes", "--decommission", "n2", "--wait", "--json")
        assert (done.returncode, json.loads(done.stdout)) == (0, {"n2": "DECOMMISSIONED"}), done
        assert client.metrics().capacity["vcores"] == 8.0
        series = get(f"http://{manager.ready['metrics']}/metrics")
        assert 'weft_nodes{state="DECOMMISSIONED"} 1.0' in series
        assert 'weft_node_capacity{node="n2"' not in series

        web = cluster.start("weft.web", f"--manager={manager.address}")
        base = f"{web.ready['url'].partition('/cluster')[0]}/ws/v1/cluster"
        assert json.loads(get(f"{base}/metrics"))["clusterMetrics"]["decommissionedNodes"] == 1
        listed = json.loads(get(f"{base}/nodes?states=DECOMMISSIONED"))["nodes"]["node"]
        assert [node["nodeHostName"] for node in listed] == ["n2"]

        assert second.stop() == 0  # the upgrade
        manager.kill()
    manager = cluster.manager(state, f"--port={port}")
    with Client(manager.address) as client:
        wait_for_nodes(client, 1, "DECOMMISSIONED")  # remembered
        second = cluster.nodes(manager, "--node-name=n2", *flags)
        done = weft(manager, "nodes", "--recommission", "n2", "--wait")
        assert (done.returncode, done.stdout) == (0, "n2 RUNNING\n"), done
        until(lambda: any(n.containers for n in client.nodes() if n.node_id == "n2"), "n2 works")
        report = client.wait([app])[app]
        assert report.final_status == "SUCCEEDED", report.diagnostics
        assert report.attempt_id & 0xFF == 1
    for part in (first, second):
        assert part.stop() == 0
    assert_ran_right(cluster.events(), app, job, MEMORY_MB)


def test_commands_that_outlast_their_nodes_service_are_stopped_and_run_elsewhere(
    cluster: Cluster,
) -> None:
    """Process mode: real commands are ended with their groups, and no attempt is counted."""
    manager = cluster.manager()
    host = cluster.host(manager)
    flags = (
        f"--am-host={host.address}",
        NODE,
        "--mode=process",
        "--cgroups=off",
        f"--work-dir={cluster.folder / 'work'}",
    )
    cluster.nodes(manager, "--node-name=n1", *flags)
    gate = cluster.folder / "gate"
    wait = f"until [ -e {gate} ]; do sleep 0.05; done"
    job = chain("patient", 1, 4, 1.0, command=("sh", "-c", wait))
    with Client(manager.address) as client:
        wait_for_nodes(client, 1)
        app = client.submit(job)
        until(lambda: client.application(app).stages[0].running == 4, "tasks run on n1")
        cluster.nodes(manager, "--node-name=n2", *flags)
        wait_for_nodes(client, 2)
        done = weft(manager, "nodes", "--decommission", "n1", "--timeout", "0.5", "--wait")
        assert (done.returncode, done.stdout) == (0, "n1 DECOMMISSIONED\n"), done
        until(lambda: client.application(app).stages[0].running == 4, "they run again, on n2")
        gate.touch()
        report = client.wait([app])[app]
        assert report.final_status == "SUCCEEDED", report.diagnostics
        assert report.stages[0].failed_attempts == 0
        assert {c.node_id for c in client.containers(app) if c.state == "SUCCEEDED"} == {"n2"}


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("--decommission", "n9"), 2, "no node 'n9' ever registered"),
        (("--decommission", "n1", "--recommission", "n1"), 2, "cannot leave and return"),
        (("--wait",), 2, "--wait goes with"),
        (("--decommission", "n1", "--timeout", "nan"), 2, "expected a finite number"),
    ],
)
def test_orders_that_mean_nothing_are_refused(
    cluster: Cluster, arguments: tuple[str, ...], code: int, says: str
) -> None:
    manager = cluster.manager()
    cluster.nodes(manager, "--node-name=n1", NODE)
    with Client(manager.address) as client:
        wait_for_nodes(client, 1)
    done = weft(manager, "nodes", *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert says in done.stderr
