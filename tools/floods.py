"""Floods of a live cluster, each for some seconds: what they cost its services, and honest callers.

`python -m tools.floods [NAME ...] [--seconds S] [--nodes N]`, or `make floods`. The cluster has
emulated nodes, pages, YARN's wire, a journal and a router before its manager; each flood comes from
a process of its own. Told of each: how far the memory of every service rose above what it was
before, and how long honest calls took meanwhile (GetMetrics over gRPC, of the manager and of the
router, the metrics by REST, getClusterMetrics over YARN's RPC); and by how much the host was late
to wake who slept, as what watches is as late on a busy host. Fails where a service took more than
100 MB, or the slowest of a hundred calls more than 1 s.
"""

import argparse
import asyncio
import contextlib
import json
import math
import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import psutil

from testkit.http2 import PING, RST_STREAM, SETTINGS, Connection, frame, message
from weft.client.api import Client
from weft.client.local import LocalCluster, LocalSettings
from weft.model.job import Job, Stage
from weft.wire import client_pb2, client_pb2_grpc, master_pb2, tracker_pb2, words_pb2
from weft.wire.channel import REQUEST_BYTES_MAX
from weft.wire.master_pb2_grpc import ApplicationMasterProtocolStub
from weft.wire.pieces import PIECE_BYTES, split
from weft.wire.tracker_pb2_grpc import NodeTrackerStub
from weft.yarn import hadoop_pb2 as yarn

MEMORY_MB_MAX, P99_S_MAX = 100.0, 1.0
SERVICES = ("rm", "am", "nm0", "web", "hadoop", "router")
HONEST_INTERVAL_S = 0.05
MEMORY_INTERVAL_S = 0.02
REST_S = 4.0
CALLERS = 8
APPLICATIONS = 300
# As many facts are kept as a manager keeps, and a job is as large as one may nearly be.
FACT_TASKS, LARGE_STAGES, LARGE_WORD = 20_000, 8_000, "x" * 1_200
TIMEOUT_S = 60.0
MANAGER = "/weft.ResourceManagerClient"
LISTED = client_pb2.ListApplicationsRequest(limit=10_000).SerializeToString()
WATCHED = client_pb2.WatchEventsRequest(after=1).SerializeToString()

# An attack is told where everything is, and goes on until its process is ended.
Attack = Callable[[dict[str, str]], None]
ATTACKS: dict[str, Attack] = {}


def attack(act: Attack) -> Attack:
    """Have a flood by the name of its function."""
    ATTACKS[act.__name__.replace("_", "-")] = act
    return act


def _threads(act: Callable[[int], None], count: int = CALLERS) -> None:
    """Do something in some threads for ever, again where the server hung up."""

    def again(number: int) -> None:
        while True:
            with contextlib.suppress(OSError):
                act(number)
            time.sleep(0.01)

    for number in range(count):
        threading.Thread(target=again, args=(number,), daemon=True).start()
    threading.Event().wait()


# -- gRPC ------------------------------------------------------------------------------------------


def _frames(address: str, one: bytes) -> None:
    def send(_: int) -> None:
        connection = Connection(address)
        while True:
            connection.socket.sendall(one * 1_000)

    _threads(send)


def _halves(address: str, method: str, count: int = 3 * CALLERS) -> None:
    """Send requests that lack their last byte, over many streams at once or in pieces."""
    small = message(bytes(PIECE_BYTES))[:-1]
    large = b"".join(map(message, split(bytes(REQUEST_BYTES_MAX - 4096))))[:-1]

    def half(number: int) -> None:
        connection = Connection(address)
        streams = [connection.call(method) for _ in range(1 if number % 2 else 100)]
        for stream in streams:
            connection.send(stream, large if number % 2 else small)
        while not connection.gone and not connection.ended.issuperset(streams):
            connection.hear()

    _threads(half, count)


@attack
def half_requests(at: dict[str, str]) -> None:
    """Flood with requests that lack their last byte."""
    _halves(at["rm"], f"{MANAGER}/SubmitApplication")


@attack
def half_reports(at: dict[str, str]) -> None:
    """Flood with the same over the streams of nodes."""
    _halves(at["rm"], "/weft.NodeTracker/Track")


@attack
def half_launches(at: dict[str, str]) -> None:
    """Flood with the same to the AM host."""
    _halves(at["am"], "/weft.MasterHost/HostMasters")


@attack
def half_starts(at: dict[str, str]) -> None:
    """Flood with the same to a node manager."""
    _halves(at["nm0"], "/weft.ContainerManager/StreamStarts")


@attack
def whole_requests(at: dict[str, str]) -> None:
    """Flood with requests of 15 MB of which each is whole and no job."""
    bodies = [b"[" * (15 << 20), b'{"name": "' + b"x" * (15 << 20) + b'"}']
    bodies.append(b'{"stages": [' + b"{}," * (5 << 20) + b"{}]}")

    def whole(number: int) -> None:
        request = client_pb2.SubmitApplicationRequest(job_json=bodies[number % len(bodies)])
        body = b"".join(map(message, split(request.SerializeToString())))
        connection = Connection(at["rm"])
        while True:
            stream = connection.call(f"{MANAGER}/SubmitApplication")
            connection.send(stream, body, end=True)
            while stream not in connection.ended:
                connection.hear()

    _threads(whole)


@attack
def large_jobs(at: dict[str, str]) -> None:
    """Flood with jobs of 10 MB for a queue that is not there."""
    _large_jobs(at["rm"])


def _large_jobs(address: str) -> None:
    stage = {"tasks": 1, "duration_s": 1.0, "demand": {"vcores": 1.0}, "command": [LARGE_WORD]}
    stages = [{"name": f"{number}", **stage} for number in range(LARGE_STAGES)]

    def submitted(number: int) -> None:
        job = {"name": f"{number}", "queue": "root.nowhere", "stages": stages}
        request = client_pb2.SubmitApplicationRequest(job_json=json.dumps(job).encode())
        body = b"".join(map(message, split(request.SerializeToString())))
        connection = Connection(address)
        while True:
            stream = connection.call(f"{MANAGER}/SubmitApplication")
            connection.send(stream, body, end=True)
            while stream not in connection.ended:
                connection.hear()

    _threads(submitted)


def _unread(address: str, method: str, request: bytes) -> None:
    """Make hundreds of calls a connection, whose answers nobody takes."""
    body = message(request)

    def unread(_: int) -> None:
        connection = Connection(address, window=0)
        for _ in range(400):
            connection.send(connection.call(f"{MANAGER}/{method}"), body, end=True)
        while not connection.gone:
            connection.hear()

    _threads(unread)


@attack
def unread_answers(at: dict[str, str]) -> None:
    """Flood with lists that nobody takes, hundreds of calls a connection."""
    _unread(at["rm"], "ListApplications", LISTED)


@attack
def unread_jobs(at: dict[str, str]) -> None:
    """Flood with questions for a job of 10 MB, whose answers nobody takes."""
    _unread(at["rm"], "GetJob", _job_asked(at))


def _job_asked(at: dict[str, str]) -> bytes:
    return client_pb2.GetJobRequest(app_id=int(at["large"])).SerializeToString()


@attack
def unread_events(at: dict[str, str]) -> None:
    """Flood with watches of all events from the first on, which nobody takes."""
    _unread(at["rm"], "WatchEvents", WATCHED)


@attack
def silent_calls(at: dict[str, str]) -> None:
    """Flood with calls without a message, thousands."""

    def silent(_: int) -> None:
        connection = Connection(at["rm"])
        for _ in range(990):
            connection.call(f"{MANAGER}/GetMetrics")
        while not connection.gone:
            connection.hear()

    _threads(silent, 20)


@attack
def silent_streams(at: dict[str, str]) -> None:
    """Flood with streams of nodes that say nothing, thousands."""

    def silent(_: int) -> None:
        connection = Connection(at["rm"])
        for _ in range(190):
            connection.call("/weft.NodeTracker/Track")
        while not connection.gone:
            connection.hear()

    _threads(silent, 40)


@attack
def watches(at: dict[str, str]) -> None:
    """Flood with streams that watch the server's health, thousands."""
    body = message(b"")

    def watching(_: int) -> None:
        connection = Connection(at["rm"])
        for _ in range(190):
            connection.send(connection.call("/grpc.health.v1.Health/Watch"), body, end=True)
        while not connection.gone:
            connection.hear()

    _threads(watching, 40)


@attack
def rapid_resets(at: dict[str, str]) -> None:
    """Flood with calls that are taken back as soon as they are made."""
    body = message(words_pb2.Nothing().SerializeToString())

    def reset(_: int) -> None:
        connection = Connection(at["rm"])
        while not connection.gone:
            stream = connection.call(f"{MANAGER}/GetMetrics")
            connection.send(stream, body, end=True)
            connection.socket.sendall(frame(RST_STREAM, 0, stream, struct.pack(">I", 8)))

    _threads(reset)


@attack
def pings(at: dict[str, str]) -> None:
    """Flood with pings whose answers nobody takes."""
    _frames(at["rm"], frame(PING, 0, 0, bytes(8)))


@attack
def settings(at: dict[str, str]) -> None:
    """Flood with settings whose acknowledgements nobody takes."""
    _frames(at["rm"], frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 65_535)))


@attack
def reflections(at: dict[str, str]) -> None:
    """Flood with questions what is served, whose answers nobody takes."""
    # Of ServerReflectionRequest: file_containing_symbol.
    asked = b"weft.ResourceManagerClient"
    body = message(b"\x22" + bytes([len(asked)]) + asked) * 500

    def ask(_: int) -> None:
        connection = Connection(at["rm"], window=0)
        for _ in range(100):
            stream = connection.call(
                "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
            )
            connection.send(stream, body)
        while not connection.gone:
            connection.hear()

    _threads(ask)


def _stream(address: str, open_: Callable[[Any], Any], batch: Any, *, reads: bool = True) -> None:
    async def one() -> None:
        options = [("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.insecure_channel(address, options=options) as dialled:
            call = open_(dialled)

            async def drain() -> None:
                while (await call.read()) is not grpc.aio.EOF:
                    pass

            reader = asyncio.create_task(drain()) if reads else None
            try:
                while True:
                    await call.write(batch)
            finally:
                if reader is not None:
                    reader.cancel()

    async def again() -> None:
        while True:
            with contextlib.suppress(grpc.RpcError, asyncio.InvalidStateError):
                await one()
            await asyncio.sleep(0.01)

    async def all_of_them() -> None:
        await asyncio.gather(*(again() for _ in range(CALLERS)))

    asyncio.run(all_of_them())


def _beats(count: int) -> Any:
    beat = tracker_pb2.TrackerReport(heartbeat=tracker_pb2.NodeHeartbeat(node_id="x", request_id=1))
    return tracker_pb2.TrackerReports(items=[beat] * count)


def _track(dialled: Any) -> Any:
    return NodeTrackerStub(dialled).Track()


def _allocate(dialled: Any) -> Any:
    return ApplicationMasterProtocolStub(dialled).Allocate()


@attack
def beats(at: dict[str, str]) -> None:
    """Flood with heartbeats of a node that nobody knows."""
    _stream(at["rm"], _track, _beats(2_000))


@attack
def many_beats(at: dict[str, str]) -> None:
    """Flood with the same in batches of 4 MB."""
    _stream(at["rm"], _track, _beats(400_000))


@attack
def unread_beats(at: dict[str, str]) -> None:
    """Flood with the same without taking what the manager says to it."""
    _stream(at["rm"], _track, _beats(2_000), reads=False)


@attack
def registrations(at: dict[str, str]) -> None:
    """Flood with registrations of one node."""
    amounts = [
        words_pb2.Amount(name="vcores", amount=1),
        words_pb2.Amount(name="memory_mb", amount=1),
    ]
    node = tracker_pb2.RegisterNode(
        node_id="x", address="127.0.0.1:1", rack="r", capacity=amounts, boot=1
    )
    items = [tracker_pb2.TrackerReport(register_node=node)] * 500
    _stream(at["rm"], _track, tracker_pb2.TrackerReports(items=items))


@attack
def asks(at: dict[str, str]) -> None:
    """Flood with asks of an attempt whose token nobody showed."""
    one = master_pb2.Ask(
        ask_id=1, total=6, demand=[1, 512, 0, 0], duration_s=1, pri_score=0.5, stage=0
    )
    request = master_pb2.AllocateRequest(attempt_id=257, request_id=1, asks=[one])
    items = [master_pb2.MasterReport(allocate=request)] * 2_000
    _stream(at["rm"], _allocate, master_pb2.MasterReports(items=items))


@attack
def fat_ask(at: dict[str, str]) -> None:
    """Flood with one message with 300,000 asks."""
    one = master_pb2.Ask(ask_id=1, total=6, demand=[1, 512, 0, 0], duration_s=1, stage=0)
    request = master_pb2.AllocateRequest(attempt_id=257, request_id=1, asks=[one] * 300_000)
    items = [master_pb2.MasterReport(allocate=request)]
    _stream(at["rm"], _allocate, master_pb2.MasterReports(items=items))


@attack
def lists(at: dict[str, str]) -> None:
    """Flood with lists of all applications, read."""

    def listed(_: int) -> None:
        options = [("grpc.use_local_subchannel_pool", 1)]
        with grpc.insecure_channel(at["rm"], options=options) as dialled:
            stub = client_pb2_grpc.ResourceManagerClientStub(dialled)
            while True:
                with contextlib.suppress(grpc.RpcError):
                    stub.ListApplications(client_pb2.ListApplicationsRequest(), timeout=30)

    _threads(listed)


# -- a router --------------------------------------------------------------------------------------


@attack
def routed_jobs(at: dict[str, str]) -> None:
    """Flood a router with questions for a job of 10 MB, whose answers nobody takes."""
    _unread(at["router"], "GetJob", _job_asked(at))


@attack
def routed_answers(at: dict[str, str]) -> None:
    """Flood a router with lists that nobody takes."""
    _unread(at["router"], "ListApplications", LISTED)


@attack
def routed_events(at: dict[str, str]) -> None:
    """Flood a router with watches that nobody takes."""
    _unread(at["router"], "WatchEvents", WATCHED)


@attack
def routed_halves(at: dict[str, str]) -> None:
    """Flood a router with requests that lack their last byte."""
    _halves(at["router"], f"{MANAGER}/SubmitApplication")


@attack
def routed_submissions(at: dict[str, str]) -> None:
    """Flood a router with jobs of 10 MB for a queue that is not there."""
    _large_jobs(at["router"])


# -- HTTP ------------------------------------------------------------------------------------------


def _dialled(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), 10.0)


def _head(method: str, path: str, more: str = "") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{more}\r\n".encode()


def _pipelined(address: str, path: str, count: int = 40) -> None:
    """Ask again and again over some connections, and take nothing."""
    many = _head("GET", path) * 50

    def unread(_: int) -> None:
        with _dialled(address) as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            while True:
                one.sendall(many)

    _threads(unread, count)


@attack
def unread_lists_by_rest(at: dict[str, str]) -> None:
    """Flood with lists of all applications by REST, never taken."""
    _pipelined(at["web"], "/ws/v1/cluster/apps")


@attack
def unread_pages(at: dict[str, str]) -> None:
    """Flood with a page's data, never taken."""
    _pipelined(at["web"], "/api/overview")


@attack
def unread_metrics(at: dict[str, str]) -> None:
    """Flood with the manager's metrics, never taken."""
    _pipelined(at["metrics"], "/metrics")


@attack
def lists_by_rest(at: dict[str, str]) -> None:
    """Flood with lists of all applications by REST, read."""

    def listed(_: int) -> None:
        while True:
            with urllib.request.urlopen(
                f"http://{at['web']}/ws/v1/cluster/apps", timeout=60
            ) as got:
                while got.read(1 << 16):
                    pass

    _threads(listed)


@attack
def metrics(at: dict[str, str]) -> None:
    """Flood with the manager's metrics, read."""

    def read(_: int) -> None:
        while True:
            with urllib.request.urlopen(f"http://{at['metrics']}/metrics", timeout=60) as got:
                got.read()

    _threads(read)


def _bodies(address: str, path: str, count: int = 24) -> None:
    """Bodies that lack their last byte."""
    size = 15 << 20

    def half(_: int) -> None:
        with _dialled(address) as one:
            more = f"Content-Type: application/json\r\nContent-Length: {size}\r\n"
            one.sendall(_head("POST", path, more))
            one.sendall(bytes(size - 1))
            while one.recv(1 << 16):
                pass

    _threads(half, count)


@attack
def half_bodies(at: dict[str, str]) -> None:
    """Flood with submissions by REST of 15 MB that lack their last byte."""
    _bodies(at["web"], "/ws/v1/cluster/apps")


@attack
def small_bodies(at: dict[str, str]) -> None:
    """Flood with a thousand bodies that begin and never end."""

    def begun(_: int) -> None:
        with contextlib.ExitStack() as kept:
            for _ in range(50):
                one = kept.enter_context(_dialled(at["web"]))
                more = "Content-Type: application/json\r\nContent-Length: 1000000\r\n"
                one.sendall(_head("POST", "/ws/v1/cluster/apps", more) + bytes(500_000))
            time.sleep(3600)

    _threads(begun, 20)


def _heads(
    address: str, begun: bytes, *, each: int = 100, before: bytes = b"", stay_s: float = 3600.0
) -> None:
    """Send heads of requests that do not end, as much as is taken, over many connections each.

    Every second thread asks `before` first: whoever asked once may be silent for longer.
    """

    def half(number: int) -> None:
        with contextlib.ExitStack() as kept:
            for _ in range(each):
                one = kept.enter_context(_dialled(address))
                if number % 2 and before:
                    one.sendall(before)
                    one.recv(1 << 16)
                with contextlib.suppress(OSError):
                    one.sendall(begun)
            time.sleep(stay_s)

    _threads(half, 20)


def _begun(path: str, fields: int, size: int) -> bytes:
    """Return the head of a request with so many fields of so many bytes, without its end."""
    return _head("GET", path, f"X: {'x' * size}\r\n" * fields)[:-2]


INFO = "/ws/v1/cluster/info"


@attack
def half_heads(at: dict[str, str]) -> None:
    """Flood with two thousand heads of 1 MB of requests to the pages that do not end."""
    _heads(at["web"], _begun(INFO, 125, 8_000), before=_head("GET", INFO))


@attack
def half_heads_of_files(at: dict[str, str]) -> None:
    """Flood with the same to WebHDFS."""
    _heads(at["files"], _begun(INFO, 125, 8_000), before=_head("GET", INFO))


@attack
def half_heads_of_metrics(at: dict[str, str]) -> None:
    """Flood with heads of 6 MB to the manager's metrics, which do not end."""
    _heads(at["metrics"], _begun("/metrics", 98, 65_000), each=3, stay_s=20.0)


@attack
def metadata(at: dict[str, str]) -> None:
    """Flood with calls that have much metadata, and no message."""
    more = [(f"x-{number}", "y") for number in range(90)]

    def called(_: int) -> None:
        connection = Connection(at["rm"])
        for _ in range(95):
            connection.call(f"{MANAGER}/GetMetrics", more)
        while not connection.gone:
            connection.hear()

    _threads(called, 40)


@attack
def unread_files(at: dict[str, str]) -> None:
    """Flood with listings of a folder of 2,000 files by WebHDFS, never taken."""
    _pipelined(at["files"], "/webhdfs/v1/many?op=LISTSTATUS")


@attack
def files(at: dict[str, str]) -> None:
    """Flood with the same, read."""
    address = f"http://{at['files']}/webhdfs/v1/many?op=LISTSTATUS"

    def listed(_: int) -> None:
        while True:
            with urllib.request.urlopen(address, timeout=60) as got:
                got.read()

    _threads(listed)


# -- YARN's RPC ------------------------------------------------------------------------------------

PROTOCOL = "org.apache.hadoop.yarn.api.ApplicationClientProtocolPB"


def _frame(*parts: Any) -> bytes:
    body = b""
    for part in parts:
        data, size = part.SerializeToString(), bytearray()
        left = len(data)
        while left > 0x7F:
            size.append(left & 0x7F | 0x80)
            left >>= 7
        size.append(left)
        body += bytes(size) + data
    return struct.pack(">I", len(body)) + body


def _hello(address: str) -> socket.socket:
    one = _dialled(address)
    one.settimeout(TIMEOUT_S)
    context = yarn.RequestEnvelope(rpc_kind=2, rpc_op=0, call_id=-3, client_id=b"x" * 16)
    one.sendall(b"hrpc\x09\x00\x00" + _frame(context, yarn.ConnectionContext(protocol="x")))
    return one


def _call(number: int, method: str, request: Any = None) -> bytes:
    envelope = yarn.RequestEnvelope(
        rpc_kind=2, rpc_op=0, call_id=number, client_id=b"x" * 16, retry_count=-1
    )
    called = yarn.MethodCall(method=method, protocol=PROTOCOL, version=1)
    return _frame(envelope, called, request or yarn.Empty())


def _rpc(address: str, data: bytes, count: int = CALLERS) -> None:
    def unread(_: int) -> None:
        with _hello(address) as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            while True:
                one.sendall(data)

    _threads(unread, count)


@attack
def rpc_unread(at: dict[str, str]) -> None:
    """Flood with call with 1 MB, whose answers nobody takes."""
    _rpc(at["yarn"], _call(7, "x" * 1_000_000))


@attack
def rpc_lists(at: dict[str, str]) -> None:
    """Flood with call for lists, whose answers nobody takes."""
    _rpc(at["yarn"], _call(7, "getApplications", yarn.ApplicationsQuery()) * 10)


@attack
def rpc_frames(at: dict[str, str]) -> None:
    """Flood with send frames of 16 MB that lack their last byte."""
    size = 16 << 20

    def half(_: int) -> None:
        with _hello(at["yarn"]) as one:
            one.sendall(struct.pack(">I", size) + bytes(size - 1))
            while one.recv(1 << 16):
                pass

    _threads(half, 24)


@attack
def rpc_idle(at: dict[str, str]) -> None:
    """Flood with two thousand connections that say nothing."""

    def idle(_: int) -> None:
        with contextlib.ExitStack() as kept:
            for _ in range(100):
                kept.enter_context(_hello(at["yarn"]))
            time.sleep(3600)

    _threads(idle, 20)


# -- what it costs ---------------------------------------------------------------------------------


class Honest:
    """Somebody who asks for the same small thing again and again, and how long each took, s."""

    def __init__(self, ask: Callable[[], object]) -> None:
        self._ask = ask
        self.took_s: list[float] = []
        self.problems: Counter[str] = Counter()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.is_set():
            began_s = time.perf_counter()
            try:
                self._ask()
                self.took_s.append(time.perf_counter() - began_s)
            except Exception as error:
                self.problems[f"{error!r:.150}".replace("\n", " ")] += 1
                self.took_s.append(math.inf)
            self._over.wait(HONEST_INTERVAL_S)

    def end(self) -> float:
        """Stop, and return the 99th of a hundred."""
        self._over.set()
        self._thread.join(TIMEOUT_S)
        took = sorted(self.took_s) or [math.inf]
        return took[min(len(took) - 1, int(0.99 * len(took)))]


def _honest(at: dict[str, str]) -> dict[str, Honest]:
    def by_grpc(address: str) -> Callable[[], object]:
        metrics = client_pb2_grpc.ResourceManagerClientStub(
            grpc.insecure_channel(address)
        ).GetMetrics
        return lambda: metrics(words_pb2.Nothing(), timeout=TIMEOUT_S)

    rpc = _hello(at["yarn"])

    def by_rest() -> None:
        with urllib.request.urlopen(
            f"http://{at['web']}/ws/v1/cluster/metrics", timeout=TIMEOUT_S
        ) as got:
            got.read()

    def by_rpc() -> None:
        rpc.sendall(_call(1, "getClusterMetrics"))
        left = struct.unpack(">I", rpc.recv(4, socket.MSG_WAITALL))[0]
        rpc.recv(left, socket.MSG_WAITALL)

    return {
        "grpc": Honest(by_grpc(at["rm"])),
        "routed": Honest(by_grpc(at["router"])),
        "rest": Honest(by_rest),
        "rpc": Honest(by_rpc),
    }


def _judge(
    cluster: LocalCluster,
    seen: dict[str, psutil.Process],
    name: str,
    at: dict[str, str],
    seconds: float,
) -> bool:
    """Run one flood; returns whether the cluster held."""
    rest = {one: process.memory_info().rss for one, process in seen.items()}
    most = dict(rest)
    # The other host of the attacker is this one.
    command = [
        "nice",
        "-n",
        "10",
        sys.executable,
        "-m",
        "tools.floods",
        "--attack",
        name,
        json.dumps(at),
    ]
    flood = subprocess.Popen(command)
    try:
        honest = _honest(at)
        until, late_s = time.monotonic() + seconds, 0.0
        while (now_s := time.monotonic()) < until:
            for one, process in seen.items():
                most[one] = max(most[one], process.memory_info().rss)
            due_s = max(time.monotonic(), now_s + MEMORY_INTERVAL_S)
            time.sleep(max(0.0, due_s - time.monotonic()))
            late_s = max(late_s, time.monotonic() - due_s)
        if flood.poll() is not None:
            raise RuntimeError(f"the flood {name} ended by itself")
        for caller in honest.values():
            for problem, count in caller.problems.items():
                print(f"    {count} honest calls failed: {problem}", flush=True)
        p99 = {way: one.end() for way, one in honest.items()}
    finally:
        flood.kill()
        flood.wait()
    time.sleep(REST_S)
    rose = {one: (most[one] - rest[one]) / 1e6 for one in SERVICES}
    after = {one: (process.memory_info().rss - rest[one]) / 1e6 for one, process in seen.items()}
    died = cluster.failed() or ("" if seen["router"].is_running() else "router")
    held = max(rose.values()) <= MEMORY_MB_MAX and max(p99.values()) <= P99_S_MAX and not died
    said = " ".join(f"{one}+{rose[one]:.0f}({after[one]:.0f})" for one in SERVICES)
    times = " ".join(f"{way} {1e3 * one:.0f}" for way, one in p99.items())
    text = f"{name:22} {'held' if held else 'FAILS':6} MB {said}  p99 ms {times}"
    print(f"{text}  host late ms {1e3 * late_s:.0f} {died}", flush=True)
    return held


def _addresses(cluster: LocalCluster) -> dict[str, str]:
    ready = cluster.ready
    at = {one: str(ready[one]["address"]) for one in ("rm", "am", "nm0")}
    at["web"] = cluster.web_address
    at["yarn"] = str(ready["hadoop"]["clients"])
    for name, place in (("files", ready["hadoop"]["files"]), ("metrics", ready["rm"]["metrics"])):
        at[name] = str(place).partition("://")[2].partition("/")[0] or str(place)
    return at


def run(names: list[str], seconds: float, nodes: int) -> int:
    """Start a cluster and flood it; returns how many floods it did not hold."""
    settings = LocalSettings(nodes=nodes, web=True, hadoop=True, state=True)
    with tempfile.TemporaryDirectory(prefix="weft-floods-") as made:
        many = Path(made) / "hadoop-files" / "many"
        many.mkdir(parents=True)
        for number in range(2_000):
            (many / f"{number:0100}").touch()
        with LocalCluster(settings, Path(made)) as cluster:
            with Client(cluster.address) as client:
                job = Job("small", (Stage("s", 2, 0.1, {"vcores": 1.0}),))
                client.wait([client.submit(job) for _ in range(APPLICATIONS)])
                client.wait([client.submit(Job("facts", (Stage("s", FACT_TASKS, 0.1, {}),)))])
                stages = [
                    Stage(f"{number}", 1, 0.1, {"vcores": 1.0}, command=("sleep", LARGE_WORD))
                    for number in range(LARGE_STAGES)
                ]
                large = client.submit(Job("large", tuple(stages)))
                client.wait([large])
            at = _addresses(cluster) | {"large": str(large)}
            command = [sys.executable, "-m", "weft.router", f"--member={at['rm']}", "--port=0"]
            command += ["--metrics-port=-1", f"--die-with={os.getpid()}"]
            with subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            ) as router:
                assert router.stdout is not None
                at["router"] = json.loads(router.stdout.readline())["address"]
                pids = {one: process.pid for one, process in cluster.processes.items()}
                pids["router"] = router.pid
                seen = {one: psutil.Process(pids[one]) for one in SERVICES}
                time.sleep(REST_S)
                try:
                    return sum(not _judge(cluster, seen, name, at, seconds) for name in names)
                finally:
                    router.terminate()


def main() -> int:
    """Run and tell; 1 where something was not held."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(ATTACKS))
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--attack", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.attack:
        ATTACKS[given.attack[0]](json.loads(given.attack[1]))
        return 0
    return int(bool(run(given.names or list(ATTACKS), given.seconds, given.nodes)))


if __name__ == "__main__":
    sys.exit(main())
