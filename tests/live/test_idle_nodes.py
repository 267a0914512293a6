"""Nodes that have nothing to say are told of together, and lose nothing by it."""

import asyncio
import re
import urllib.request

from testkit.live import Cluster, Part, chain, until, wait_for_nodes
from weft.client.api import Client
from weft.wire import channel, codec
from weft.wire.idle import IdleHeard, IdleTold
from weft.wire.tracker_pb2_grpc import NodeTrackerStub

NODES = ("--cluster=30x8vcores,16384memory_mb", "--nodes=30")
EXPIRY_S = 3.0


def idle_beats(manager: Part) -> float:
    with urllib.request.urlopen(f"http://{manager.ready['metrics']}/metrics", timeout=30) as page:
        found = re.search(r"^weft_idle_heartbeats_total ([\d.e+]+)$", page.read().decode(), re.M)
    return float(found[1]) if found else 0.0


def test_nodes_that_said_nothing_for_longer_than_the_expiry_start_tasks_at_once(
    cluster: Cluster,
) -> None:
    """They are not LOST; and each knows that it was heard, or it would start nothing."""
    manager = cluster.manager("--pace=yarn", f"--node-expiry-s={EXPIRY_S}", *NODES[:1])
    host = cluster.host(manager)
    cluster.nodes(manager, f"--am-host={host.address}", *NODES)
    with Client(manager.address) as client:
        wait_for_nodes(client, 30)
        until(lambda: idle_beats(manager) > 30 * 3 * EXPIRY_S, "they idle")
        app = client.submit(chain("late", 1, 60, 0.1))
        ended = client.wait([app])[app]
        assert ended.final_status == "SUCCEEDED"
        assert client.metrics().nodes == {"RUNNING": 30}
    attempts = [e for e in cluster.events() if e.get("fact") == "Closed" and e["stage"] >= 0]
    assert len(attempts) == 60, "none had to run twice"


def test_nobody_says_that_anothers_node_is_idle(cluster: Cluster) -> None:
    """Whose node it is not hears that it was not heard, and nothing is kept alive by it."""
    manager = cluster.manager("--pace=yarn", *NODES[:1])
    host = cluster.host(manager)
    cluster.nodes(manager, f"--am-host={host.address}", *NODES)

    async def say(*names: str) -> list[IdleHeard]:
        dialled = channel.dial(manager.address)
        call = NodeTrackerStub(dialled).Track()
        await call.write(codec.encode_node_reports([IdleTold(5, names)]))
        while True:
            batch = await asyncio.wait_for(call.read(), 30)
            found = [w for w in codec.decode_node_orders(batch) if isinstance(w, IdleHeard)]
            if found:
                call.cancel()
                await dialled.close()
                return found

    with Client(manager.address) as client:
        wait_for_nodes(client, 30)
        own = client.nodes()[0].node_id
        (heard,) = asyncio.run(say(own, "made up", ""))
        assert heard == IdleHeard(5, heard.unheard)
        assert sorted(heard.unheard) == sorted((own, "made up", ""))
        assert client.metrics().nodes == {"RUNNING": 30}
        assert {node.node_id for node in client.nodes()} >= {own}
