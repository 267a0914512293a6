"""The table of who may call what, whole: real processes, real certificates, every cell."""

import asyncio
import base64
import contextlib
import json
import ssl
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from aiohttp import ClientError, ClientSession
from click.testing import CliRunner

from lab.cli import weft
from testkit.live import Cluster, Part, chain, until, wait_for_nodes
from weft.client import certificates
from weft.client.api import Client, RefusedError
from weft.client.certificates import make
from weft.model.errors import WeftError
from weft.protocol import access
from weft.protocol.access import TABLE, Who
from weft.protocol.messages import NodeHeartbeated, NodeRegistered, NodeUnregistered
from weft.wire import channel, client_pb2, codec, containers_pb2, host_pb2, tls
from weft.wire.codec_job import encode_job
from weft.wire.tokens import TimeTold
from weft.wire.words_pb2 import Nothing

CLUSTER = {
    "nodes": [{"count": 2, "capacity": {"vcores": 8, "memory_mb": 16384}}],
    "queues": {
        "root": {
            "open": {"administer": ["carol"]},
            "closed": {"submit": ["bob"], "administer": ["dora"]},
        }
    },
}
DENIED = {"PERMISSION_DENIED", "UNAUTHENTICATED"}
# who is at the table -> the certificate of
SHOWN = {
    Who.OTHER: "bob",
    Who.OWNER: "alice",
    Who.QUEUE_ADMIN: "carol",
    Who.MASTER: "masters",
    Who.NODE: "n1",
    Who.GATEWAY: "pages",
    Who.ADMIN: "root",
    Who.EXPIRED: "old",
    Who.FOREIGN: "stranger",
}


class LongAgo(datetime):
    """Sixty days ago, for certificates that have ended."""

    @classmethod
    def now(cls, tz: Any = None) -> "LongAgo":
        return cls.fromtimestamp(datetime.now(UTC).timestamp() - 60 * 86_400, UTC)


class Live:
    """A cluster over mutual TLS, and everybody who may come."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        users = {"client": ["alice", "bob", "carol", "dora"], "admin": ["root"]}
        parts = {"manager": ["rm1"], "emulator": ["workers"]}
        make(folder / "tls", [], others=users | parts)
        self._only("n1", "node")
        self._only("masters", "am")
        self._only("pages", "gateway")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(certificates, "datetime", LongAgo)
            make(folder / "tls", [], 30, {"admin": ["old"]})
        make(folder / "theirs", [], others={"admin": ["stranger"]})
        (folder / "cluster.json").write_text(json.dumps(CLUSTER))
        file = f"--cluster={folder / 'cluster.json'}"
        self.cluster = Cluster(folder)
        self.manager = self.cluster.manager(
            *self.flags("rm1"), file, f"--state-dir={folder / 'state'}", "--metrics-tls"
        )
        self.host = self.cluster.host(self.manager, *self.flags("rm1"))
        self.nodes = self.cluster.nodes(
            self.manager,
            f"--am-host={self.host.address}",
            "--nodes=2",
            file,
            *self.flags("workers"),
        )
        with self.client("root") as client:
            wait_for_nodes(client, 2)

    def _only(self, name: str, role: str) -> None:
        """A certificate of one role, as an own authority might give."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(certificates.KINDS, "only", (f"{role}/{{}}",))
            make(self.folder / "tls", [], others={"only": [name]})

    def identity(self, name: str) -> tls.Identity | None:
        """What somebody shows; everybody trusts the cluster's authority."""
        if not name:
            return None
        own = self.folder / ("theirs" if name == "stranger" else "tls")
        return tls.Identity(
            (self.folder / "tls" / "ca.pem").read_bytes(),
            (own / f"{name}.pem").read_bytes(),
            (own / f"{name}-key.pem").read_bytes(),
        )

    def flags(self, name: str) -> list[str]:
        at = self.folder / "tls"
        files = {"ca": at / "ca.pem", "cert": at / f"{name}.pem", "key": at / f"{name}-key.pem"}
        return [f"--tls-{what}={path}" for what, path in files.items()]

    def client(self, name: str) -> Client:
        with tls.using(self.identity(name)):
            return Client(self.manager.address)

    def state(self, app: int) -> tuple[Any, ...]:
        """What a refused call must not change."""
        with self.client("root") as client:
            report = client.application(app)
            nodes = [(node.node_id, node.state, node.containers) for node in client.nodes()]
            return report.state, report.queue, report.priority, nodes, len(client.applications())

    def part(self, method: str) -> Part:
        """Who serves a method."""
        if "ContainerManager" in method:
            return self.nodes
        return self.host if "MasterHost" in method else self.manager

    def calls(self, cells: list[tuple[str, str, Any]]) -> list[str]:
        """The status of each call (as whom, what, request), made one after the other."""

        async def main() -> list[str]:
            dialled: dict[tuple[str, str], Any] = {}
            found = []
            for name, method, request in cells:
                address = self.part(method).address
                if (name, address) not in dialled:
                    with tls.using(self.identity(name)):
                        dialled[name, address] = channel.dial(address)
                found.append(await one_call(dialled[name, address], method, request))
            for each in dialled.values():
                await each.close()
            return found

        return asyncio.run(main())


async def one_call(dialled: Any, method: str, request: Any) -> str:
    """The status of one call; of a stream that a client opens, when both ends said all."""
    data, call = request.SerializeToString(), method.rpartition("/")[2]
    try:
        if call in ("Track", "Allocate", "HostMasters", "StreamStarts"):
            stream = dialled.stream_stream(method)()
            with contextlib.suppress(Exception):  # refused before we were done
                await stream.done_writing()
            return str((await asyncio.wait_for(stream.code(), 30)).name)
        if call in ("WatchEvents", "FollowTasks", "ReadLog"):
            return str((await dialled.unary_stream(method)(data, timeout=0.5).code()).name)
        await dialled.unary_unary(method)(data, timeout=30)
    except grpc.aio.AioRpcError as error:
        return error.code().name
    return "OK"


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    made = Live(tmp_path_factory.mktemp("access"))
    try:
        yield made
        for part in made.cluster.parts:
            assert "Traceback" not in part.log.read_text(), part.log.read_text()
    finally:
        made.cluster.close()


@pytest.fixture
def app(live: Live) -> Iterator[int]:
    """An application of alice's that goes on for as long as anybody looks."""
    job = replace(chain("hers", 1, 1, 9_000.0), queue="open")
    with live.client("alice") as client:
        number = client.submit(job)
        until(lambda: client.application(number).running_containers == 2, "master and task run")
        yield number
        client.kill(number)


# Who administers a queue may ask these of his own queue only.
ELSEWHERE = ("SubmitApplication", "SetQueues")


def requests(app: int) -> dict[str, Any]:
    """A request for every method of the table, about alice's application where it has one."""
    pb = client_pb2
    job = replace(chain("new", 1, 1, 0.01), queue="open", user="alice")
    submit = pb.SubmitApplicationRequest(job_json=encode_job(job), submission_id="again")
    about = {
        "NewApplication": Nothing(),
        "SubmitApplication": submit,
        "FindSubmission": pb.FindSubmissionRequest(submission_id="alice's"),
        "KillApplication": pb.KillApplicationRequest(app_id=app),
        "MoveApplication": pb.MoveApplicationRequest(app_id=app, queue="open"),
        "SetPriority": pb.SetPriorityRequest(app_id=app, priority=3),
        "SetExpiry": pb.SetExpiryRequest(app_id=app),
        "GetApplication": pb.GetApplicationRequest(app_id=app),
        "GetJob": pb.GetJobRequest(app_id=app),
        "ListApplications": pb.ListApplicationsRequest(),
        "ListNodes": pb.ListNodesRequest(),
        "DecommissionNode": pb.DecommissionNodeRequest(node_id="n2", timeout_s=-1),
        "RecommissionNode": pb.RecommissionNodeRequest(node_id="n2"),
        "UpdateNode": pb.UpdateNodeRequest(node_id="n2", own=True),
        "ListQueues": Nothing(),
        "SetQueues": pb.SetQueuesRequest(queues_json=b'{"root": null}', dry_run=True),
        "GetMetrics": Nothing(),
        "GetManager": Nothing(),
        "GetSettings": Nothing(),
        "GetQueues": Nothing(),
        "Explain": pb.ExplainRequest(app_id=app),
        "ListContainers": pb.ListContainersRequest(app_id=app),
        "WatchEvents": pb.WatchEventsRequest(),
        "Track": Nothing(),
        "Allocate": Nothing(),
        "HostMasters": host_pb2.HostOrders(),
        "StartContainers": containers_pb2.StartContainersRequest(follower="f"),
        "StreamStarts": Nothing(),
        "StopContainers": containers_pb2.ContainersRequest(follower="f"),
        "GetContainerStatuses": containers_pb2.ContainersRequest(follower="f"),
        "FollowTasks": containers_pb2.FollowTasksRequest(follower="f"),
        "ReadLog": containers_pb2.ReadLogRequest(container_id=1 << 33, node_id="n1"),
    }
    return {method: about[method.rpartition("/")[2]] for method in TABLE}


def test_every_cell_of_the_table_is_as_it_says(live: Live, app: int) -> None:
    """First all that is refused, which changes nothing; then all that is allowed, kills last."""
    wanted = requests(app)
    before = live.state(app)
    with live.client("alice") as client:  # whose log it is, the node asks of what she was given
        one = next(iter(client.containers(app)))
        leave = client._client._connection.log_token(one.container_id)
    assert leave
    log = containers_pb2.ReadLogRequest(container_id=one.container_id, node_id=one.node_id)
    wanted["/weft.ContainerManager/ReadLog"] = log
    cells = [(m, who) for m in TABLE for who in Who]
    refused = [(m, who) for m, who in cells if who not in TABLE[m]]
    got = live.calls([(SHOWN.get(who, ""), m, wanted[m]) for m, who in refused])
    strange = (Who.ANONYMOUS, Who.EXPIRED, Who.FOREIGN)
    said = dict(zip(refused, got, strict=True))
    wrong = {
        cell: code
        for cell, code in said.items()
        if code not in ({"UNAVAILABLE"} if cell[1] in strange else DENIED)
    }
    assert not wrong
    assert live.state(app) == before, "a refused call changed something"
    log.token = leave
    allowed = [
        (m, who)
        for m, who in sorted(cells, key=lambda cell: "Kill" in cell[0])
        if who in TABLE[m] and not (m.endswith(ELSEWHERE) and who is Who.QUEUE_ADMIN)
    ]
    got = live.calls([(SHOWN[who], m, wanted[m]) for m, who in allowed])
    usual = {"OK", "DEADLINE_EXCEEDED", "NOT_FOUND", "FAILED_PRECONDITION"}
    assert not {cell: code for cell, code in zip(allowed, got, strict=True) if code not in usual}


def test_every_rpc_of_every_service_has_a_row() -> None:
    from weft.wire import master_pb2, tracker_pb2

    modules = (client_pb2, containers_pb2, host_pb2, master_pb2, tracker_pb2)
    found = {
        f"/weft.{name}/{method.name}"
        for module in modules
        for name, service in module.DESCRIPTOR.services_by_name.items()
        for method in service.methods
    }
    assert found == set(TABLE)


def test_the_docs_show_the_table() -> None:
    page = Path(__file__).parents[2] / "docs" / "security.md"
    assert access.markdown() in page.read_text()


def test_users_see_and_change_only_what_is_theirs(live: Live, app: int) -> None:
    with ExitStack() as stack:
        people = {
            name: stack.enter_context(live.client(name))
            for name in ("alice", "bob", "carol", "dora", "root")
        }

        def seen(name: str) -> bool:
            return app in [found.app_id for found in people[name].applications()]

        assert [name for name in people if seen(name)] == ["alice", "carol", "root"]
        assert people["root"].application(app).user == "alice"
        mine = replace(chain("mine", 1, 1, 0.01), queue="open")
        with pytest.raises(RefusedError, match="'bob' submits as 'alice'") as refused:
            people["bob"].submit(replace(mine, user="alice"))
        assert refused.value.code == "permission_denied"
        with pytest.raises(RefusedError, match=r"queue: 'alice' may not submit to root\.closed"):
            people["alice"].submit(replace(mine, queue="closed"))
        with pytest.raises(RefusedError, match=r"'alice' may not submit to root\.closed"):
            people["alice"].move(app, "closed")
        for name in ("bob", "dora"):  # dora administers the queue
            number = people[name].submit(replace(mine, queue="closed"))
            assert people[name].wait([number])[number].final_status == "SUCCEEDED"
        assert people["carol"].set_priority(app, 7)
        with pytest.raises(RefusedError, match=rf"app_id: 'dora' may not touch application {app}"):
            people["dora"].kill(app)
        text = live.manager.log.read_text()
        assert "refused a message" in text
        assert "'dora' may not touch" in text


def test_a_node_speaks_for_itself_alone(live: Live) -> None:
    """n1's certificate: n1 is taken, what it says of n2 is refused, told and counted."""
    capacity = {"vcores": 8.0, "memory_mb": 16384.0}

    async def say(*messages: Any) -> list[Any]:
        with tls.using(live.identity("n1")):
            dialled = channel.dial(live.manager.address)
        stream = dialled.stream_stream(
            "/weft.NodeTracker/Track",
            request_serializer=lambda batch: batch.SerializeToString(),
            response_deserializer=type(codec.encode_node_orders([])).FromString,
        )()
        await stream.write(codec.encode_node_reports(messages))
        told = codec.decode_node_orders(await asyncio.wait_for(stream.read(), 30))
        stream.cancel()
        await dialled.close()
        return [one for one in told if not isinstance(one, TimeTold)]

    with live.client("root") as client:
        before = [(node.node_id, node.state, node.address) for node in client.nodes()]
        other = NodeRegistered("n2", "127.0.0.1:9", "r", (), capacity, boot=7)
        (answer,) = asyncio.run(say(other, NodeHeartbeated("n2", 99), NodeUnregistered("n2")))
        assert "node n1 is not 'n2'" in answer.shutdown
        assert [(node.node_id, node.state, node.address) for node in client.nodes()] == before
    until(lambda: "is not 'n2'" in live.manager.log.read_text(), "it is told")


def token(live: Live, *flags: str) -> str:
    """What `weft login` writes on the manager's host."""
    file = live.folder / "token"
    command = ["login", str(live.folder / "state"), "--out", str(file), *flags]
    done = CliRunner().invoke(weft, command)
    assert done.exit_code == 0, done.output
    assert file.stat().st_mode & 0o777 == 0o600
    return file.read_text().strip()


def test_pages_and_rest_know_their_visitors(live: Live, app: int) -> None:
    """Each path as each visitor: refused without a trace, or answered in the visitor's name."""
    pages = live.cluster.pages(live.manager, "--https", *live.flags("rm1"))
    base = pages.ready["url"].removesuffix("/cluster")
    assert base.startswith("https://")
    with live.client("alice") as client:
        name = f"application_{client.metrics().cluster_ts}_{app:04d}"
    true = {who: token(live, "--user", who) for who in ("alice", "bob", "carol")}
    root = token(live, "--admin")
    header = {who: {"Authorization": f"Bearer {text}"} for who, text in true.items()}
    header["root"] = {"Authorization": f"Bearer {root}"}
    password = base64.b64encode(f"any:{true['alice']}".encode()).decode()
    header["password"] = {"Authorization": f"Basic {password}"}
    header["forged"] = {"Authorization": f"Bearer {true['bob'][:-8]}AAAAAAA="}
    header["late"] = {"Authorization": f"Bearer {token(live, '--hours', '1e-7')}"}
    header["nonsense"] = {"Authorization": "Bearer ????"}
    header["nobody"] = {}
    one = f"/ws/v1/cluster/apps/{name}"
    reads = [one, f"{one}/appattempts", f"/api/apps/{name}", f"/proxy/{name}/", f"{one}/state"]

    def context(certificate: str = "") -> ssl.SSLContext:
        made = ssl.create_default_context(cafile=live.folder / "tls" / "ca.pem")
        if certificate:
            at = live.folder / ("theirs" if certificate == "stranger" else "tls")
            made.load_cert_chain(at / f"{certificate}.pem", at / f"{certificate}-key.pem")
        return made

    async def main() -> None:
        async with ClientSession(base) as session:

            async def get(path: str, who: str = "nobody", shown: str = "") -> tuple[int, str]:
                async with session.get(path, headers=header[who], ssl=context(shown)) as got:
                    return got.status, await got.text()

            for who in ("nobody", "forged", "late", "nonsense"):
                for path in [*reads, "/", "/cluster", "/api/overview", "/static/none.js"]:
                    assert (await get(path, who))[0] == 401, (who, path)
            for path in reads:
                assert (await get(path, "bob"))[0] == 403, path
                assert name not in (await get(path, "bob"))[1] or path.startswith("/proxy")
            for who, shown in (
                ("alice", ""),
                ("password", ""),
                ("carol", ""),
                ("root", ""),
                ("nobody", "alice"),
                ("nobody", "root"),
            ):
                assert (await get(one, who, shown))[0] == 200, (who, shown)
                assert name in (await get("/ws/v1/cluster/apps", who, shown))[1]
            for who, shown in (("bob", ""), ("nobody", "bob")):
                assert name not in (await get("/ws/v1/cluster/apps", who, shown))[1]
                assert (await get("/ws/v1/cluster/nodes", who, shown))[0] == 200
            for shown in ("stranger", "old"):
                with pytest.raises(ClientError):
                    await get(one, "nobody", shown)
            kill = {"json": {"state": "KILLED"}, "ssl": context()}
            off = {"json": {"timeout_s": 1}, "ssl": context()}
            for who, status in (("nobody", 401), ("bob", 403)):
                for path, how in ((f"{one}/state", kill), ("/api/nodes/n2/decommission", off)):
                    method = "PUT" if path.startswith(one) else "POST"
                    async with session.request(method, path, headers=header[who], **how) as got:
                        assert got.status == status, (who, path)
            assert live.state(app)[0] == "RUNNING"
            async with session.put(f"{one}/state", headers=header["alice"], **kill) as got:
                assert got.status in (200, 202)

    before = live.state(app)[1:]
    asyncio.run(main())
    until(lambda: live.state(app)[0] == "KILLED", "its owner killed it")
    assert live.state(app)[1:3] == before[:2]


def test_metrics_are_read_by_who_shows_a_certificate(live: Live) -> None:
    def read(certificate: str) -> str:
        at = live.folder / ("theirs" if certificate == "stranger" else "tls")
        context = ssl.create_default_context(cafile=live.folder / "tls" / "ca.pem")
        if certificate:
            context.load_cert_chain(at / f"{certificate}.pem", at / f"{certificate}-key.pem")
        where = f"https://{live.manager.ready['metrics']}/metrics"
        with urllib.request.urlopen(where, timeout=30, context=context) as answer:
            return str(answer.read().decode())

    assert "weft_grpc_calls_total" in read("alice")
    for certificate in ("", "stranger", "old"):
        with pytest.raises(OSError):  # noqa: PT011 - how a hand-shake fails differs
            read(certificate)
    with pytest.raises(OSError):  # noqa: PT011
        urllib.request.urlopen(f"http://{live.manager.ready['metrics']}/metrics", timeout=30)
    assert "weft_grpc_calls_total" in read("root")


def test_a_certificate_without_a_role_is_told_how_to_get_one(live: Live) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(certificates.KINDS, "only", ())
        make(live.folder / "tls", [], others={"only": ["plain"]})
    with live.client("plain") as client, pytest.raises(WeftError, match="names no role"):
        client.metrics()
