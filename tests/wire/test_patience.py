"""What callers leave half sent or do not take is bounded, for all of them together, and told."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.message import DecodeError
from structlog.testing import capture_logs

from testkit.http2 import Connection, message
from weft.protocol.messages import NodeHeartbeated
from weft.protocol.requests import Done
from weft.wire import codec, inflow, patience
from weft.wire.client_pb2 import KillApplicationRequest
from weft.wire.client_pb2_grpc import ResourceManagerClientStub
from weft.wire.server import Server
from weft.wire.services import add_client_service, add_tracker_service
from weft.wire.tracker_pb2 import TrackerReports
from weft.wire.tracker_pb2_grpc import NodeTrackerStub

KILL, TRACK = "/weft.ResourceManagerClient/KillApplication", "/weft.NodeTracker/Track"
MB = 1 << 20


@contextlib.contextmanager
def served(
    ask: Callable[[Any], Any] = lambda request: Done("FINISHED"),
    on_batch: Callable[[Any, Any], Any] = lambda lane, batch: None,
) -> Iterator[str]:
    """A manager's server on a thread; `ask` answers clients."""
    began: list[str] = []
    ready, over = threading.Event(), threading.Event()

    async def main() -> None:
        async def answer(request: Any, caller: Any) -> Any:
            return ask(request)

        server = Server("127.0.0.1", 0)
        add_client_service(server, answer, lambda after: None)  # type: ignore[arg-type, return-value]
        add_tracker_service(server, on_batch, lambda lane: None)
        began.append(await server.start())
        ready.set()
        while not over.is_set():
            await asyncio.sleep(0.01)
        await server.stop(0)

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    ready.wait(30)
    try:
        yield began[0]
    finally:
        over.set()
        thread.join()


def is_served(address: str) -> bool:
    with grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as dialled:
        kill = ResourceManagerClientStub(dialled).KillApplication
        return bool(kill(KillApplicationRequest(app_id=1), timeout=20).state)


def until_hung_up(connections: list[Connection]) -> Connection:
    """Return the first that the server hung up on."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        for one in connections:
            one.socket.settimeout(0.02)
            try:
                while True:
                    one.hear()
            except TimeoutError:
                continue
            except OSError:
                return one
    raise AssertionError("nobody was shut")


@pytest.mark.parametrize("method", [KILL, TRACK])
def test_of_two_who_hold_half_messages_one_makes_room(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inflow, "UNREAD_BYTES_MAX", 5 * MB)
    monkeypatch.setattr(inflow, "GROWTH_BYTES", MB)
    half = message(bytes(3 * MB))[:-1]
    with served() as address, capture_logs() as said, contextlib.ExitStack() as kept:
        connections = []
        for _ in range(2):
            one = Connection(address)
            kept.callback(one.close)
            one.send(one.call(method), half)
            connections.append(one)
        assert until_hung_up(connections)
        assert is_served(address)
    (line,) = said
    assert line["bytes"] > 2 * MB
    assert line["peer"].startswith("ipv4:127.0.0.1:")


def test_much_that_is_read_is_no_reason_to_shut_a_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inflow, "UNREAD_BYTES_MAX", MB)
    monkeypatch.setattr(inflow, "GROWTH_BYTES", 0)
    monkeypatch.setattr(inflow, "SWEEP_S", 0.1)
    beats = codec.encode_node_reports([NodeHeartbeated("n", 1) for _ in range(2_000)])
    heard = 0

    def on_batch(lane: Any, batch: Any) -> None:
        nonlocal heard
        heard += len(batch)

    with (
        served(on_batch=on_batch) as address,
        capture_logs() as said,
        grpc.insecure_channel(address) as dialled,
    ):
        list(NodeTrackerStub(dialled).Track(iter([beats] * 200)))
    assert heard == 400_000
    assert said == []


def test_a_request_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "REQUEST_S", 0.2)
    with served() as address:
        connection = Connection(address)
        stream = connection.call(KILL)
        while stream not in connection.ended:
            connection.hear()
        connection.close()
        assert is_served(address)


def test_calls_without_a_request_make_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "UNREAD_MAX", 5)
    with served() as address:
        connection = Connection(address)
        streams = [connection.call(KILL) for _ in range(8)]
        while len(connection.ended) < 3:
            connection.hear()
        assert connection.ended == set(streams[:3])
        assert is_served(address)
        connection.close()


def test_answers_that_nobody_takes_make_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "ANSWER_BYTES_MAX", 3_000)
    with served(lambda request: Done("x" * 1_000)) as address:
        connection = Connection(address, window=0)
        body = message(KillApplicationRequest(app_id=1).SerializeToString())
        for _ in range(5):
            connection.send(connection.call(KILL), body, end=True)
        assert until_hung_up([connection])
        assert is_served(address)
        connection.close()


def test_an_answer_that_nobody_takes_is_not_kept_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "ANSWER_S", 0.2)
    with served() as address:
        connection = Connection(address, window=0)
        body = message(KillApplicationRequest(app_id=1).SerializeToString())
        connection.send(connection.call(KILL), body, end=True)
        assert until_hung_up([connection])
        connection.close()


def test_large_requests_are_carried_out_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(patience, "REQUEST_BYTES_MAX", 3_000)

    async def main() -> None:
        held = patience.Patience()

        class Context:
            async def abort(self, code: grpc.StatusCode, text: str) -> None:
                raise PermissionError(code)

        await held.hold(Context(), 10_000)
        with pytest.raises(PermissionError):
            await held.hold(Context(), 10)
        held.let_go(10_000)
        await held.hold(Context(), 10)

    asyncio.run(main())


def test_what_is_packed_is_not_unpacked() -> None:
    """A megabyte of zeros is a kilobyte on the way here."""
    with (
        served() as address,
        grpc.insecure_channel(address, compression=grpc.Compression.Gzip) as dialled,
    ):
        stub = ResourceManagerClientStub(dialled)
        with pytest.raises(grpc.RpcError):
            stub.KillApplication(KillApplicationRequest(app_id=1, diagnostics="x" * MB), timeout=20)


def test_a_large_report_is_taken_in_in_pieces_that_say_the_same() -> None:
    heard: list[int] = []

    def on_batch(lane: Any, batch: Any) -> None:
        heard.append(len(batch))

    beats = [NodeHeartbeated(f"n{number}", number) for number in range(1, 20_001)]
    batch = codec.encode_node_reports(beats)
    whole = batch.SerializeToString()
    with served(on_batch=on_batch) as address, grpc.insecure_channel(address) as dialled:
        list(NodeTrackerStub(dialled).Track(iter([batch])))
    assert sum(heard) == 20_000
    assert max(heard) == patience.PIECE_FIELDS
    at, merged = 0, TrackerReports()
    while at < len(whole):
        end = patience.end_of_piece(whole, at)
        merged.MergeFromString(whole[at:end])
        at = end
    assert merged == batch


@pytest.mark.parametrize("data", [b"\x0b" + b"\x00" * 9, b"\x0a\xff", b"\x80", b"\x0f\x01"])
def test_what_is_no_message_is_refused_before_it_is_cut(data: bytes) -> None:
    with pytest.raises(DecodeError):
        patience.end_of_piece(data, 0, 100)


def test_other_fields_are_stepped_over() -> None:
    data = b"\x28\xff\x01" + b"\x31" + b"\x80" * 8 + b"\x35" + b"\x80" * 4 + b"\x0a\x02hi"
    assert patience.end_of_piece(data, 0, 1) == 3
    assert patience.end_of_piece(data, 3, 1) == 12
    assert patience.end_of_piece(data, 12, 1) == 17
    assert patience.end_of_piece(data, 17, 1) == len(data)
