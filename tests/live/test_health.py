"""A health script takes a real node out of work and back, and says why everywhere."""

import json
import urllib.request

from testkit.live import Cluster, chain, wait_for_nodes
from weft.client.api import Client


def test_a_health_script_takes_a_node_out_of_work_and_back(cluster: Cluster) -> None:
    ill = cluster.folder / "ill-n2"
    script = cluster.folder / "health"
    script.write_text(f"#!/bin/sh\n[ -e {cluster.folder}/ill-$WEFT_NODE ] && echo ERROR no disk\n")
    script.chmod(0o700)
    ill.touch()
    manager = cluster.manager()
    host = cluster.host(manager)
    cluster.nodes(
        manager,
        f"--am-host={host.address}",
        "--nodes=2",
        f"--health-script={script}",
        "--cluster=1x4vcores,8192memory_mb",
        "--health-interval-s=0.2",
    )
    web = cluster.start("weft.web", f"--manager={manager.address}")
    with Client(manager.address) as client:
        wait_for_nodes(client, 1, "UNHEALTHY")
        (node,) = client.nodes(["UNHEALTHY"])
        assert (node.node_id, node.health_report) == ("n2", "ERROR no disk")
        with urllib.request.urlopen(
            f"http://{web.address}/ws/v1/cluster/nodes?states=UNHEALTHY", timeout=60
        ) as answer:
            (row,) = json.loads(answer.read())["nodes"]["node"]
        assert (row["healthStatus"], row["healthReport"]) == ("Unhealthy", "ERROR no disk")
        app = client.submit(chain("elsewhere", 1, 8, 0.1))
        assert client.wait([app])[app].final_status == "SUCCEEDED"
        assert {c.node_id for c in client.containers(app)} == {"n1"}
        ill.unlink()
        wait_for_nodes(client, 2)
        assert {n.health_report for n in client.nodes()} == {""}
