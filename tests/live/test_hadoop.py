"""A foreign client and masters on YARN's wire: a whole cluster of processes, nothing of Java."""

import asyncio
import hmac
import json
import os
import signal
import struct
import time
import zlib
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from testkit.hadoop import ADMIN, CLIENTS, MASTERS, NODES, CallFailed, Peer
from weft.client.api import Client
from weft.client.local import LocalCluster, LocalSettings, write_conf
from weft.yarn import hadoop_pb2 as pb

PATIENCE_S = 60.0
SIZE = pb.Resource(memory=128, virtual_cores=1)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    settings = LocalSettings(
        cluster="2x4vcores,4096memory_mb", mode="process", hadoop=True, web=False, state=True
    )
    with LocalCluster(settings, tmp_path_factory.mktemp("hadoop")) as made:
        yield made
        assert not made.failed()


def run(conversation: Awaitable[None]) -> None:
    async def within() -> None:
        await asyncio.wait_for(conversation, 2 * PATIENCE_S)

    asyncio.run(within())


def ready(cluster: LocalCluster, what: str) -> str:
    return str(cluster.ready["hadoop"][what])


def test_rmadmin_reads_the_queues_again_from_the_file_that_the_cluster_began_with(
    tmp_path: Path,
) -> None:
    file = tmp_path / "cluster.json"

    def write(queues: dict[str, Any]) -> None:
        nodes = [{"count": 1, "capacity": {"vcores": 4, "memory_mb": 4096}}]
        file.write_text(json.dumps({"nodes": nodes, "queues": {"root": queues}}))

    write({"a": None})
    settings = LocalSettings(cluster=str(file), hadoop=True)
    with LocalCluster(settings, tmp_path / "run") as cluster, Client(cluster.address) as client:

        async def refresh() -> None:
            peer = await Peer.dial(ready(cluster, "clients"), ADMIN, "ada")
            await peer.call("refreshQueues", pb.Empty(), pb.Empty)

        write({"a": None, "b": {"capacity": 0.25}})
        run(refresh())
        shares = {queue.name: queue.capacity for queue in client.queues().children}
        assert shares == {"root.a": 0.75, "root.b": 0.25}
        write({"a": {"capacity": 2}})
        with pytest.raises(CallFailed, match="expected a fraction from 0 to 1, got 2"):
            run(refresh())
        conf = write_conf(tmp_path / "conf", cluster.ready["hadoop"], "")
        assert "yarn.resourcemanager.admin.address" in (conf / "yarn-site.xml").read_text()


def test_rmadmin_gives_a_node_another_size_or_none_where_one_of_them_is_unknown() -> None:
    with (
        LocalCluster(LocalSettings(cluster="2x4vcores,4096memory_mb", hadoop=True)) as cluster,
        Client(cluster.address) as client,
    ):

        async def resize(*more: Any) -> None:
            peer = await Peer.dial(ready(cluster, "clients"), CLIENTS, "ada")
            found = await peer.call("getClusterNodes", pb.NodesQuery(), pb.Nodes)
            admin = await Peer.dial(ready(cluster, "clients"), ADMIN, "ada")
            size = pb.ResourceOption(resource=pb.Resource(memory=1024, virtual_cores=2))
            rows = [pb.NodeResource(node=found.nodes[0].node, option=size), *more]
            await admin.call("updateNodeResource", pb.UpdateNodeResource(nodes=rows), pb.Empty)

        def sizes() -> list[float]:
            return sorted(node.capacity["memory_mb"] for node in client.nodes())

        away = pb.NodeResource(node=pb.NodeId(host="away", port=1))
        with pytest.raises(CallFailed, match="unrecognized node: away:1"):
            run(resize(away))
        assert sizes() == [4096.0, 4096.0]
        run(resize())
        assert sizes() == [1024.0, 4096.0]


async def until(look: Callable[[], Awaitable[Any]], what: str) -> Any:
    give_up = time.monotonic() + PATIENCE_S
    while not (found := await look()):
        assert time.monotonic() < give_up, f"never happened: {what}"
        await asyncio.sleep(0.1)
    return found


async def client_of(cluster: LocalCluster) -> Peer:
    return await Peer.dial(ready(cluster, "clients"), CLIENTS, "ada")


async def submitted(
    client: Peer, name: str, command: str = "", unmanaged: bool = False, max_attempts: int = 1
) -> Any:
    app = (await client.call("getNewApplication", pb.Empty(), pb.NewApplication)).application
    context = pb.SubmissionContext(
        application=app,
        name=name,
        queue="default",
        resource=SIZE,
        type="TEST",
        tags=["t1"],
        unmanaged=unmanaged,
        max_attempts=max_attempts,
    )
    context.master.command.append(command)
    context.master.environment.add(key="GREETING", value="hello<CPS>{{USER}}")
    await client.call("submitApplication", pb.Submission(context=context), pb.Empty)
    return app


async def report(client: Peer, app: Any) -> Any:
    request = pb.OneApplication(application=app)
    return (await client.call("getApplicationReport", request, pb.OneApplicationReport)).report


async def master_of(cluster: LocalCluster, client: Peer, app: Any) -> Peer:
    """A master that runs here: unmanaged, with the token of its application's report."""

    async def token() -> Any:
        found = await report(client, app)
        return found.am_rm_token if found.HasField("am_rm_token") else None

    found = await until(token, "the attempt has a token")
    return await Peer.dial(ready(cluster, "schedulers"), MASTERS, token=found)


class Beats:
    """A master's `allocate`, and what it has gathered."""

    def __init__(self, peer: Peer) -> None:
        self.peer, self.response_id = peer, 0
        self.containers: list[Any] = []
        self.completed: dict[int, Any] = {}
        self.tokens: dict[int, Any] = {}

    async def beat(self, **more: Any) -> Any:
        request = pb.Allocate(response_id=self.response_id, progress=0.5, **more)
        answer = await self.peer.call("allocate", request, pb.Allocated)
        self.response_id = answer.response_id
        self.containers += answer.containers
        self.completed |= {one.container.id: one for one in answer.completed}
        self.tokens |= {one.node.port: one.token for one in answer.node_tokens}
        return answer

    async def until(self, condition: Callable[[], Any], what: str) -> None:
        async def look() -> Any:
            await self.beat()
            return condition()

        await until(look, what)


def ask(count: int, priority: int = 1) -> Any:
    return pb.ResourceRequest(
        priority=pb.Priority(priority=priority),
        resource_name="*",
        capability=SIZE,
        num_containers=count,
    )


async def start(
    beats: Beats, container: Any, command: str, host: str = "127.0.0.1", token: bytes = b""
) -> Any:
    """Start a container; `token`: the job's own, for the shuffle."""
    address = f"{host}:{container.node.port}"
    node = await Peer.dial(address, NODES, token=beats.tokens[container.node.port])
    request = pb.StartContainers()
    item = request.items.add(token=container.container_token)
    item.context.command.append(command)
    if token:
        item.context.service_data.add(key="mapreduce_shuffle", value=token)
    answer = await node.call("startContainers", request, pb.Started)
    await node.close()
    return answer


def test_a_master_of_the_jobs_own_runs_on_a_node(cluster: LocalCluster, tmp_path: Path) -> None:
    """The command runs with YARN's environment; its end without a word fails the application."""

    async def conversation() -> None:
        client = await client_of(cluster)
        out = tmp_path / "out"
        # some clients look for their files below LOCAL_DIRS, where YARN's containers run
        own = "test -f $LOCAL_DIRS/$CONTAINER_ID/container_tokens"
        command = f"{own} && echo $GREETING $CONTAINER_ID > {out}; exit 3"
        app = await submitted(client, "own", command)

        async def failed() -> Any:
            found = await report(client, app)
            return found if found.state == 7 else None

        found = await until(failed, "the application failed")
        assert (found.final_status, found.type, list(found.tags)) == (2, "TEST", ["t1"])
        assert found.user == "ada"
        assert "exit code 3" in found.diagnostics
        name = f"container_{app.cluster_timestamp}_{app.id:04d}_01_000001"
        assert out.read_text() == f"hello:ada {name}\n"

        async def left() -> Any:
            (container,) = cluster.folder.glob(f"work/*/*/{name}")
            names = {path.name for path in container.iterdir()}
            kept = (container.parent / "filecache").exists()
            return names == {"stdout", "stderr", "prelaunch.out"} and not kept

        await until(left, "all but its logs is gone from the node")

    run(conversation())


def test_a_foreign_master_asks_starts_stops_and_gives_back(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """Containers are granted once, run what they are told, and end with Hadoop's statuses."""

    async def conversation() -> None:
        client = await client_of(cluster)
        app = await submitted(client, "unmanaged", unmanaged=True)
        peer = await master_of(cluster, client, app)
        beats = Beats(peer)
        with pytest.raises(CallFailed, match="NotRegistered"):
            await beats.beat()
        registered = await peer.call(
            "registerApplicationMaster", pb.Register(host="", rpc_port=-1), pb.Registered
        )
        assert registered.maximum.memory == 4096
        assert (await report(client, app)).state == 5
        await beats.beat(asks=[ask(4)])
        await beats.until(lambda: len(beats.containers) == 4, "four containers")
        good, bad, stopped, released = beats.containers
        assert good.id.id == 1, "an unmanaged master has no container of its own"
        for container, command in (
            (good, f"echo $CONTAINER_ID > {tmp_path / 'good'}"),
            (bad, "exit 7"),
            (stopped, "sleep 600"),
        ):
            assert len((await start(beats, container, command)).succeeded) == 1
        node = await Peer.dial(
            f"127.0.0.1:{stopped.node.port}", NODES, token=beats.tokens[stopped.node.port]
        )
        one = pb.ContainerIds(containers=[stopped.id])
        statuses = await node.call("getContainerStatuses", one, pb.ContainerStatuses)
        assert [status.state for status in statuses.statuses] == [2]
        await node.call("stopContainers", one, pb.Stopped)
        await beats.beat(releases=[released.id])
        await beats.until(lambda: len(beats.completed) == 4, "all four ended")
        ends = {number: one.exit_status for number, one in beats.completed.items()}
        assert ends == {good.id.id: 0, bad.id.id: 7, stopped.id.id: -106, released.id.id: -100}
        both = pb.ContainerIds(containers=[good.id, bad.id])
        statuses = await node.call("getContainerStatuses", both, pb.ContainerStatuses)
        assert [status.exit_status for status in statuses.statuses] == [0, 7]
        told = await client.call(
            "getContainerReport", pb.OneContainer(container=bad.id), pb.OneContainerReport
        )
        assert (told.report.exit_status, told.report.state) == (7, 3)
        assert (tmp_path / "good").read_text().startswith("container_")
        assert len(beats.containers) == 4, "nothing was granted twice"
        done = pb.Finish(final_status=1, diagnostics="done", tracking_url="http://history/")
        await peer.call("finishApplicationMaster", done, pb.Finished)

        async def finished() -> Any:
            found = await report(client, app)
            return found if found.state == 6 else None

        found = await until(finished, "the application finished")
        assert (found.final_status, found.original_tracking_url) == (1, "http://history/")

    run(conversation())


def test_no_call_goes_without_its_own_token(cluster: LocalCluster) -> None:
    """Forged tokens, other attempts' containers and altered grants start nothing."""

    async def conversation() -> None:
        client = await client_of(cluster)
        beats = []
        for name in ("first", "second"):
            app = await submitted(client, name, unmanaged=True)
            peer = await master_of(cluster, client, app)
            await peer.call("registerApplicationMaster", pb.Register(), pb.Registered)
            one = Beats(peer)
            await one.beat(asks=[ask(1)])
            await one.until(lambda one=one: one.containers, "a container")
            beats.append((app, one))
        (_, first), (_, second) = beats
        mine, other = first.containers[0], second.containers[0]
        first.tokens.setdefault(other.node.port, first.tokens[mine.node.port])
        stolen = await start(first, other, "touch stolen")
        assert not stolen.succeeded
        assert "another application" in stolen.failed[0].error.message
        larger = pb.ContainerTokenIdentifier()
        larger.ParseFromString(mine.container_token.identifier)
        larger.resource.memory = 100_000
        mine.container_token.identifier = larger.SerializeToString()
        with pytest.raises(CallFailed, match="InvalidToken"):
            await start(first, mine, "touch larger")
        forged = pb.Token(identifier=larger.SerializeToString(), password=b"x" * 20)
        for address, protocol in (
            (ready(cluster, "schedulers"), MASTERS),
            (f"127.0.0.1:{mine.node.port}", NODES),
        ):
            with pytest.raises(CallFailed):
                await Peer.dial(address, protocol, token=forged)
        for app, _ in beats:
            await client.call("forceKillApplication", pb.Kill(application=app), pb.KillAnswer)

        async def over() -> bool:
            try:
                await first.beat()
            except CallFailed as error:
                return "AttemptNotFound" in error.java_class
            return False

        await until(over, "a killed application's master is told so")

    run(conversation())


def test_masters_live_through_the_loss_of_gateway_and_manager(cluster: LocalCluster) -> None:
    """After kill -9 of either, what was granted goes on and what is asked for comes."""

    async def conversation() -> None:
        client = await client_of(cluster)
        app = await submitted(client, "survivor", unmanaged=True)
        token = None

        async def look() -> Any:
            nonlocal token
            found = await report(client, app)
            token = found.am_rm_token if found.HasField("am_rm_token") else None
            return token

        await until(look, "a token")
        peer = await Peer.dial(ready(cluster, "schedulers"), MASTERS, token=token)
        await peer.call("registerApplicationMaster", pb.Register(), pb.Registered)
        beats = Beats(peer)
        await beats.beat(asks=[ask(1)])
        await beats.until(lambda: beats.containers, "the first container")
        await start(beats, beats.containers[0], "sleep 600")

        os.kill(cluster.processes["rm"].pid, signal.SIGKILL)
        cluster.processes["rm"].wait()
        await asyncio.to_thread(cluster.start_manager)
        await beats.beat(asks=[ask(1, priority=2)])
        await beats.until(lambda: len(beats.containers) == 2, "one more after the manager's loss")
        assert not beats.completed

        os.kill(cluster.processes["hadoop"].pid, signal.SIGKILL)
        cluster.processes["hadoop"].wait()
        await asyncio.to_thread(cluster.start_hadoop)
        again = await Peer.dial(ready(cluster, "schedulers"), MASTERS, token=token)
        beats.peer, beats.response_id = again, 0
        with pytest.raises(CallFailed, match="NotRegistered"):
            await beats.beat()
        await again.call("registerApplicationMaster", pb.Register(), pb.Registered)
        await beats.beat(asks=[ask(1, priority=3)])
        await beats.until(lambda: len(beats.containers) == 3, "one more after the gateway's loss")
        assert not beats.completed, "nothing that ran was lost"
        await beats.beat(releases=[one.id for one in beats.containers])
        await beats.until(lambda: len(beats.completed) == 3, "all given back")
        await again.call("finishApplicationMaster", pb.Finish(final_status=1), pb.Finished)

    run(conversation())


def test_a_master_starts_again_after_the_managers_loss(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """The later life's container numbers are others; the second attempt finds what to run."""

    async def conversation() -> None:
        client = await client_of(cluster)
        out = tmp_path / "attempts"
        command = f"echo $CONTAINER_ID $MAX_APP_ATTEMPTS $$ >> {out}; exec sleep 600"
        app = await submitted(client, "twice", command, max_attempts=2)

        async def begun(count: int) -> list[list[str]]:
            lines = out.read_text().splitlines() if out.exists() else []
            return [line.split() for line in lines] if len(lines) >= count else []

        ((first, most, pid),) = await until(lambda: begun(1), "the first attempt runs")
        assert most == "2"
        os.kill(cluster.processes["rm"].pid, signal.SIGKILL)
        cluster.processes["rm"].wait()
        await asyncio.to_thread(cluster.start_manager)
        os.kill(int(pid), signal.SIGKILL)
        _, (second, _, _) = await until(lambda: begun(2), "the second attempt runs")
        assert (first.split("_")[3], second.split("_")[3]) == ("01", "02")
        assert int(second.split("_")[4]) > int(first.split("_")[4]), "not number 1 of its attempt"
        await client.call("forceKillApplication", pb.Kill(application=app), pb.KillAnswer)

    run(conversation())


def test_what_a_container_wrote_is_fetched_from_its_node_until_the_application_is_over(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """The service knows the job's token again after `kill -9`."""
    from aiohttp import ClientError, ClientSession

    key, part = b"twenty bytes of key!", b"a part" * 50_000
    token = b"\0" + bytes([len(key)]) + key + b"\0\0"
    (tmp_path / "file.out").write_bytes(b"other" + part)
    index = struct.pack(">qqq", 5, len(part), len(part))
    (tmp_path / "file.out.index").write_bytes(index + struct.pack(">q", zlib.crc32(index)))

    async def fetched(app: Any) -> tuple[int, bytes]:
        port = int(cluster.ready["services"]["address"].rpartition(":")[2])
        job = f"job_{app.cluster_timestamp}_{app.id:04d}"
        path = f"/mapOutput?job={job}&reduce=0&map=attempt_1_m_0"
        signed = b64encode(hmac.digest(key, f"{port}{path}".encode(), "sha1")).decode()
        headers = {"name": "mapreduce", "version": "1.0.0", "UrlHash": signed}
        async with ClientSession() as session:
            url = f"http://127.0.0.1:{port}{path}"
            try:
                async with session.get(url, headers=headers) as got:
                    return got.status, await got.read()
            except ClientError:
                return 0, b""

    async def conversation() -> None:
        client = await client_of(cluster)
        app = await submitted(client, "shuffled", unmanaged=True)
        peer = await master_of(cluster, client, app)
        await peer.call("registerApplicationMaster", pb.Register(), pb.Registered)
        beats = Beats(peer)
        await beats.beat(asks=[ask(1)])
        await beats.until(lambda: beats.containers, "a container")
        out, place = tmp_path / "port", "$LOCAL_DIRS/output/attempt_1_m_0"
        copied = f"mkdir -p {place} && cp {tmp_path}/file.out* {place}/"
        command = f"{copied} && echo $NM_AUX_SERVICE_mapreduce_shuffle > {out}"
        answer = await start(beats, beats.containers[0], command, token=token)
        (told,) = answer.services
        port = cluster.ready["services"]["address"].rpartition(":")[2]
        assert (told.key, int.from_bytes(told.value, "big")) == ("mapreduce_shuffle", int(port))
        await beats.until(lambda: beats.completed, "it ran")
        assert b64decode(out.read_text()) == told.value
        status, data = await fetched(app)
        assert (status, data[-len(part) :]) == (200, part)
        cluster.processes["services"].kill()
        cluster.processes["services"].wait()
        assert "services" in await asyncio.to_thread(cluster.mend)
        assert (await fetched(app))[0] == 200
        await peer.call("finishApplicationMaster", pb.Finish(final_status=1), pb.Finished)

        async def gone() -> bool:
            return (await fetched(app))[0] == 401

        await until(gone, "nothing is served of an application that is over")

    run(conversation())


def test_a_container_starts_at_its_own_host_through_a_relay(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """Where the gateway is on another host, the node's host passes on what masters say."""
    from weft.yarn.relay import Relay

    async def conversation() -> None:
        client = await client_of(cluster)
        app = await submitted(client, "far", unmanaged=True)
        peer = await master_of(cluster, client, app)
        await peer.call("registerApplicationMaster", pb.Register(), pb.Registered)
        beats = Beats(peer)
        await beats.beat(asks=[ask(1)])
        await beats.until(lambda: beats.containers, "a container")
        relay = Relay(ready(cluster, "address"), "localhost", "127.0.0.2")
        following = asyncio.create_task(relay.run())

        async def opened() -> bool:
            return beats.containers[0].node.port in relay.ports

        await until(opened, "the relay knows the node's face")
        out = tmp_path / "out"
        answer = await start(beats, beats.containers[0], f"echo here > {out}", "127.0.0.2")
        assert len(answer.succeeded) == 1
        await beats.until(lambda: beats.completed, "it ran")
        assert out.read_text() == "here\n"
        following.cancel()
        await relay.close()
        await peer.call("finishApplicationMaster", pb.Finish(final_status=1), pb.Finished)

    run(conversation())


def test_a_masters_own_pages_open_through_ours(cluster: LocalCluster, tmp_path: Path) -> None:
    """/proxy/<application>/ shows what the master registered, links and redirects included."""
    from aiohttp import ClientSession, web

    from weft.runtime.http_server import serve

    async def hello(request: web.Request) -> web.Response:
        if request.path == "/moved":
            raise web.HTTPFound("/jobs/")
        return web.Response(text=f"{request.path} {request.query_string}")

    async def conversation() -> None:
        pages = web.Application()
        pages.router.add_get("/{tail:.*}", hello)
        runner, port = await serve(pages, "127.0.0.1", 0)
        client = await client_of(cluster)
        app = await submitted(client, "with pages", unmanaged=True)
        peer = await master_of(cluster, client, app)
        request = pb.Register(tracking_url=f"http://127.0.0.1:{port}")
        await peer.call("registerApplicationMaster", request, pb.Registered)
        cluster._launch(
            "web",
            "weft.web",
            ["--manager", cluster.address, "--port", "0", *cluster._common("web", "web")],
        )
        await asyncio.to_thread(cluster._await, "web")
        base = f"http://{cluster.ready['web']['address']}"
        name = f"application_{app.cluster_timestamp}_{app.id:04d}"
        async with ClientSession() as session:
            async with session.get(f"{base}/proxy/{name}/jobs/?id=3") as got:
                assert (got.status, await got.text()) == (200, "/jobs/ id=3")
            async with session.get(f"{base}/proxy/{name}/moved", allow_redirects=False) as got:
                assert got.headers["Location"] == f"/proxy/{name}/jobs/"
            async with session.get(f"{base}/proxy/{name}/http://evil.example/") as got:
                assert got.status == 404
            async with session.get(f"{base}/proxy/application_1_1/") as got:
                assert got.status == 404
        await runner.cleanup()
        await client.call("forceKillApplication", pb.Kill(application=app), pb.KillAnswer)

    run(conversation())
