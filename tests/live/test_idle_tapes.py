"""Tapes of runs in which nodes said nothing replay equal."""

from sim.replay.verify import Replay
from testkit.live import Cluster, chain, until, wait_for_nodes
from weft.client.api import Client
from weft.protocol.effects import Heard, NodesIdle
from weft.runtime.tapefile import find_tapes
from weft.tape.rows import Handled

NODE = "--cluster=1x4vcores,8192memory_mb"


def test_nodes_that_idled_and_then_worked_under_two_lives_of_the_manager(cluster: Cluster) -> None:
    tape = f"--tape={cluster.folder / 'tapes'}"
    keeps = ("--pace=yarn", f"--state-dir={cluster.folder / 'state'}", tape)
    manager = cluster.manager(*keeps)
    host = cluster.host(manager, tape)
    cluster.nodes(manager, f"--am-host={host.address}", "--nodes=3", NODE, tape)
    with Client(manager.address) as client:
        wait_for_nodes(client, 3)
        began_s = client.metrics().now_s
        until(lambda: client.metrics().now_s > began_s + 3.0, "they idle")
        first = client.submit(chain("one", 2, 6, 0.2))
        assert client.wait([first])[first].final_status == "SUCCEEDED"
        manager.kill()
        cluster.manager(*keeps, f"--port={manager.address.rpartition(':')[2]}")
        wait_for_nodes(client, 3)
        second = client.submit(chain("two", 2, 6, 0.2))
        assert client.wait([second])[second].final_status == "SUCCEEDED"
    for part in cluster.parts:
        if part.process.poll() is None:
            part.stop()
    tapes = find_tapes(cluster.folder / "tapes")
    heard: set[type] = set()
    for one in tapes:
        heard |= {type(row.event) for row in one.rows() if isinstance(row, Handled)}
        run = Replay(checked=True).run(one.rows())
        assert run.difference is None, f"{one.path.name}: {run.difference}"
    assert heard >= {NodesIdle, Heard}
