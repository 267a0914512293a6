"""Several Resource Managers over one etcd: one leads, the others take over, and nothing is lost."""

import asyncio
import itertools
import json
import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from click.testing import CliRunner

from lab import cli
from testkit.etcd import EtcdServer, free_ports
from testkit.live import (
    Cluster,
    Part,
    assert_memory,
    chain,
    recorded,
    series,
    until,
    wait_for_nodes,
)
from weft.client.api import AsyncClient, Client, RefusedError
from weft.model.errors import WeftError
from weft.model.ids import app_of_container
from weft.model.queues import DEFAULT_QUEUES, queues_from_dict
from weft.protocol.access import TABLE
from weft.protocol.requests import ManagerReport
from weft.wire.channel import LEADER_KEY
from weft.wire.client_pb2_grpc import ResourceManagerClientStub
from weft.wire.connections import master_stream, tracker_stream
from weft.wire.master_pb2 import MasterOrders
from weft.wire.tracker_pb2 import TrackerOrders
from weft.wire.words_pb2 import Nothing

NODES, SIZE = 8, "4vcores,8192memory_mb"
LEASE_S = 2.0
TAKEOVER_S = 10.0  # what is promised: from the loss of the leader to an accepted submission


class Managers:
    """Two Resource Managers over one etcd, an AM host and emulated nodes."""

    def __init__(self, folder: Path) -> None:
        self.etcd = EtcdServer(folder)
        self.cluster = Cluster(folder)
        self.ports = free_ports(2)
        self.address = ",".join(f"127.0.0.1:{port}" for port in self.ports)
        self.parts: dict[str, Part] = {}
        self.started = 0

    def start(self, number: int) -> Part:
        address = f"127.0.0.1:{self.ports[number]}"
        self.started += 1
        part = self.cluster.manager(
            f"--store=etcd://{self.etcd.address}/live",
            f"--port={self.ports[number]}",
            f"--cluster={NODES}x{SIZE}",
            f"--lease-s={LEASE_S}",
            "--heartbeat-s=0.25",
            "--master-heartbeat-s=0.25",
            f"--ready-file={self.cluster.folder / f'{number}.ready'}",
        )
        assert part.address == address
        self.parts[address] = part
        return part

    def start_all(self) -> None:
        """Managers, then what looks for the one who leads."""
        self.etcd.await_()
        with ThreadPoolExecutor() as threads:
            list(threads.map(self.start, (0, 1)))
        everybody = Part("rm", self.parts[self.at(0)].process, {"address": self.address}, Path())
        am = self.cluster.host(everybody)
        self.cluster.nodes(
            everybody, f"--nodes={NODES}", f"--cluster={NODES}x{SIZE}", f"--am-host={am.address}"
        )

    def at(self, number: int) -> str:
        return f"127.0.0.1:{self.ports[number]}"

    def says(self, address: str) -> ManagerReport:
        with Client(address, deadline_s=3.0) as client:
            return client.manager()

    def leader(self) -> str:
        """host:port of the one who leads and serves."""

        def found() -> str:
            for address in self.parts:
                try:
                    said = self.says(address)
                except WeftError:
                    continue
                if said.standing == "LEADER" and not said.reason:
                    return address
            return ""

        return str(until(found, "a manager leads"))

    def other(self, address: str) -> str:
        return next(one for one in self.parts if one != address)

    def close(self) -> None:
        try:
            self.cluster.close()
        finally:
            self.etcd.close()


@pytest.fixture(scope="module")
def managers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Managers]:
    managers = Managers(tmp_path_factory.mktemp("failover"))
    try:
        managers.start_all()
        with Client(managers.address) as client:
            wait_for_nodes(client, NODES)
        yield managers
    finally:
        managers.close()


def successes(events: list[dict[str, Any]]) -> dict[tuple[int, int, int], int]:
    """How often each task of each application succeeded."""
    counted: dict[tuple[int, int, int], int] = defaultdict(int)
    for event in events:
        if event["fact"] != "TaskStopped" or event["stage"] < 0:
            continue
        if event["outcome"] == "SUCCEEDED":
            counted[app_of_container(event["container"]), event["stage"], event["task"]] += 1
    return counted


def check(managers: Managers, apps: dict[int, int]) -> None:
    """Every task of every application succeeded exactly once, and no node was ever too full."""
    events = recorded(managers.cluster.folder, "*-nm.jsonl")
    counted = successes(events)
    for app, tasks in apps.items():
        own = {key: count for key, count in counted.items() if key[0] == app}
        assert len(own) == tasks, f"application {app}: {len(own)} of {tasks} tasks"
    assert not {key for key, count in counted.items() if count > 1}
    assert_memory(events, 8192.0)


def test_one_leads_and_the_other_names_it(managers: Managers) -> None:
    leader = managers.leader()
    standby = managers.other(leader)
    said = managers.says(standby)
    assert (said.standing, said.leader, said.life) == ("STANDBY", leader, 0)
    assert managers.says(leader).life >= 1
    with (
        pytest.raises(WeftError, match=f"{standby} stands by: {leader} leads"),
        Client(standby) as client,
    ):
        client.metrics()
    text = series(str(managers.parts[leader].ready["metrics"]))
    assert "weft_leader 1.0" in text
    assert 'weft_etcd_call_seconds_count{call="txn"}' in text
    assert "weft_leader 0.0" in series(str(managers.parts[standby].ready["metrics"]))


def test_the_commands_know_several_managers(managers: Managers, tmp_path: Path) -> None:
    leader = managers.leader()
    run = CliRunner()
    shown = run.invoke(cli.weft, ["managers", "--rm", managers.address, "--json"])
    standings = {row["address"]: row["standing"] for row in json.loads(shown.output)}
    assert standings == {leader: "LEADER", managers.other(leader): "STANDBY"}
    table = run.invoke(cli.weft, ["managers", "--rm", f"{managers.address},127.0.0.1:1"]).output
    assert "UNREACHABLE" in table
    alone = run.invoke(cli.weft, ["managers", "--rm", managers.other(leader)])
    assert "nobody leads" in str(alone.exception)
    file = tmp_path / "token"
    store = f"etcd://{managers.etcd.address}/live"
    done = run.invoke(cli.weft, ["login", store, "--user", "alice", "--out", str(file)])
    assert done.exit_code == 0, done.output
    assert asyncio.run(_seen_by(managers, file.read_text().strip())) == ()
    with pytest.raises(RefusedError, match="token"):
        asyncio.run(_seen_by(managers, "a token that nobody signed"))
    none = run.invoke(cli.weft, ["login", f"{store}/other", "--user", "alice", "--out", str(file)])
    assert "holds no keys" in str(none.exception)


async def _seen_by(managers: Managers, token: str) -> Any:
    """The applications that the holder of a token sees: its own."""
    async with AsyncClient(managers.address, token=token) as client:
        return await client.applications()


def test_a_killed_leader_is_replaced_and_nothing_is_lost_or_run_again(managers: Managers) -> None:
    with Client(managers.address) as client:
        apps = {client.submit(chain(f"load {n}", 4, 12, 0.25)): 48 for n in range(6)}
        until(lambda: client.metrics().containers_running > 4, "tasks run")
        leader = managers.leader()
        number = managers.ports.index(int(leader.rpartition(":")[2]))
        managers.parts[leader].kill()
        began_s = time.monotonic()
        apps[client.submit(chain("after the kill", 1, 4, 0.05))] = 4
        assert time.monotonic() - began_s < TAKEOVER_S
        assert managers.leader() != leader
        managers.start(number)
        ended = client.wait(list(apps))
        assert {report.final_status for report in ended.values()} == {"SUCCEEDED"}
    check(managers, apps)


def test_queues_that_were_answered_for_outlive_the_leader(managers: Managers) -> None:
    """They are set all the while it is killed: what the client was told holds, or the next one."""
    trees = [
        queues_from_dict({"root": {"default": {"capacity": part}, "more": {"state": "STOPPED"}}})
        for part in (0.25, 0.5, 0.75)
    ]
    with Client(managers.address) as client:
        told = client.set_queues(trees[0])
        assert "root.more" in [one.queue for one in told.changes]
        leader = managers.leader()
        number = managers.ports.index(int(leader.rpartition(":")[2]))
        with ThreadPoolExecutor() as threads:
            killed = threads.submit(managers.parts[leader].kill)
            answered = 0
            for step in itertools.count(1):
                over = killed.done()
                with suppress(WeftError):
                    client.set_queues(trees[step % 3])
                    answered = step
                if over and answered == step:
                    break
        assert managers.leader() != leader
        queues = client.queues()
        assert queues.children[0].capacity == trees[answered % 3].children[0].capacity
        assert queues.children[1].state == "STOPPED"
        managers.start(number)
        client.set_queues(DEFAULT_QUEUES)


def test_a_leader_that_was_paused_steps_down_and_says_nothing_more(managers: Managers) -> None:
    """Its streams stay open while it sleeps, and it wakes with work to do: a job that it had."""
    with Client(managers.address) as client:
        apps = {client.submit(chain(f"paused {n}", 3, 12, 0.25)): 36 for n in range(4)}
        until(lambda: client.metrics().containers_running > 4, "tasks run")
        old = managers.leader()
        life = managers.says(old).life
        process = managers.parts[old].process
        process.send_signal(signal.SIGSTOP)
        try:
            began_s = time.monotonic()
            apps[client.submit(chain("meanwhile", 1, 4, 0.05))] = 4
            assert time.monotonic() - began_s < TAKEOVER_S
            new = managers.leader()
            assert new != old
            until(lambda: len(client.nodes(["RUNNING"])) == NODES, "every node found the new one")
        finally:
            process.send_signal(signal.SIGCONT)
        until(lambda: _standby(managers, old), "the old leader stands by")
        assert process.poll() is None, "it goes on as the same process"
        ended = client.wait(list(apps))
        assert {report.final_status for report in ended.values()} == {"SUCCEEDED"}
        assert managers.says(new).life == life + 1
    check(managers, apps)


def test_a_paused_leader_that_is_told_to_end_ends(managers: Managers) -> None:
    """As a service manager does with one that hangs: it must not come back as a standby."""
    old = managers.leader()
    part = managers.parts[old]
    part.process.send_signal(signal.SIGSTOP)
    until(lambda: managers.says(managers.other(old)).standing == "LEADER", "the other one leads")
    part.process.terminate()
    part.process.send_signal(signal.SIGCONT)
    assert part.process.wait(30) == 0
    managers.start(managers.ports.index(int(old.rpartition(":")[2])))


def _standby(managers: Managers, address: str) -> bool:
    try:
        return managers.says(address).standing == "STANDBY"
    except WeftError:  # it starts anew
        return False


def test_without_etcd_reads_and_running_tasks_go_on_and_then_everything(managers: Managers) -> None:
    leader = managers.leader()
    life = managers.says(leader).life
    with Client(managers.address, deadline_s=5.0) as client:
        apps = {client.submit(chain("long", 3, 16, 0.5)): 48}
        until(lambda: client.metrics().containers_running > 4, "tasks run")
        managers.etcd.kill()
        until(lambda: managers.says(leader).standing == "SUSPENDED", "the leader is suspended")
        assert client.application(next(iter(apps))).state == "RUNNING"
        with pytest.raises(RefusedError, match=r"nothing new is accepted .* etcd does not answer"):
            client.submit(chain("refused", 1, 1, 0.1))
        assert _standby(managers, managers.other(leader))
        managers.etcd.start()
        assert managers.leader() == leader
        apps[client.submit(chain("accepted", 1, 4, 0.05))] = 4
        ended = client.wait(list(apps))
        assert {report.final_status for report in ended.values()} == {"SUCCEEDED"}
    assert managers.says(leader).life == life, "nobody took over"
    check(managers, apps)


def test_an_orderly_end_hands_over_at_once_and_old_tokens_hold(managers: Managers) -> None:
    """Nodes and masters go on with what the predecessor signed: the keys are in the store."""
    with Client(managers.address) as client:
        apps = {client.submit(chain("handed over", 3, 16, 0.25)): 48}
        until(lambda: client.metrics().containers_running > 4, "tasks run")
        leader = managers.leader()
        number = managers.ports.index(int(leader.rpartition(":")[2]))
        assert managers.parts[leader].stop() == 0
        new = managers.leader()
        assert client.wait(list(apps))[next(iter(apps))].final_status == "SUCCEEDED"
        text = series(str(managers.parts[new].ready["metrics"]))
        refused = [li for li in text.splitlines() if li.startswith("weft_messages_refused_total{")]
        assert not [line for line in refused if "Token" in line], refused
        managers.start(number)
    check(managers, apps)


def test_the_words_of_an_earlier_life_are_not_taken(managers: Managers) -> None:
    """A node that heard a later manager breaks with one that speaks of an earlier life."""

    async def hear() -> None:
        for stream, orders in (
            (tracker_stream(managers.leader(), lambda batch: None), TrackerOrders),
            (master_stream(managers.leader(), lambda batch: None), MasterOrders),
        ):
            decode = stream._decode  # the door through which all that a manager says comes
            assert decode(orders(cluster_ts=7, life=5)) == []
            assert decode(orders(cluster_ts=8, life=1)) == [], "another cluster counts anew"
            assert decode(orders()) == [], "one that does not say who it is"
            assert decode(orders(cluster_ts=8, life=3)) == []
            with pytest.raises(WeftError, match="life 2 of the manager is over, 3 goes on"):
                decode(orders(cluster_ts=8, life=2))

    asyncio.run(hear())


def test_a_standby_refuses_every_call_but_one(managers: Managers) -> None:
    leader = managers.leader()
    standby = managers.other(leader)
    until(lambda: managers.says(standby).leader == leader, "the standby knows who leads")

    async def codes() -> dict[str, tuple[Any, bytes]]:
        found: dict[str, tuple[Any, bytes]] = {}
        async with grpc.aio.insecure_channel(standby) as channel:
            for method in TABLE:
                if "ContainerManager" in method or "MasterHost" in method:
                    continue
                if method.endswith(("Track", "Allocate")):
                    call: Any = channel.stream_stream(method)()
                elif method.endswith("WatchEvents"):
                    call = channel.unary_stream(method)(b"")
                else:
                    call = channel.unary_unary(method)(b"")
                code = await call.code()
                last = dict(await call.trailing_metadata() or ())
                found[method.rpartition("/")[2]] = (code, last.get(LEADER_KEY, b""))
            await ResourceManagerClientStub(channel).GetManager(Nothing())
        return found

    found = asyncio.run(codes())
    assert found.pop("GetManager")[0] is grpc.StatusCode.OK
    assert set(found.values()) == {(grpc.StatusCode.UNAVAILABLE, leader.encode())}
    assert len(found) > 15
