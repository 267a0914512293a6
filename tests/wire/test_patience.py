"""What callers leave half sent or do not take is bounded, for all of them together, and told."""

import asyncio
import contextlib
import gc
import os
import resource
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import grpc
import grpc.aio
import psutil
import pytest
from google.protobuf.message import DecodeError
from structlog.testing import capture_logs

from testkit.http2 import PING, Connection, frame, message
from testkit.live import until
from weft.protocol.messages import NodeHeartbeated
from weft.protocol.requests import Done
from weft.wire import channel, codec, inflow, patience, pieces
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


def say_halves(connection: Connection, method: str) -> None:
    """Say half of some messages, or as much as it can before it is ended."""
    with contextlib.suppress(OSError):
        for _ in range(4):
            connection.send(connection.call(method), message(bytes(MB // 4))[:-1])


@pytest.mark.parametrize("method", [KILL, TRACK])
def test_of_two_who_hold_half_messages_one_makes_room(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inflow, "UNREAD_BYTES_MAX", 3 * MB // 2)
    monkeypatch.setattr(inflow, "GROWTH_BYTES", 0)
    with served() as address, capture_logs() as said, contextlib.ExitStack() as kept:
        connections = []
        for _ in range(2):
            one = Connection(address)
            kept.callback(one.close)
            # It may be ended before it said all of it.
            say_halves(one, method)
            connections.append(one)
        assert until_hung_up(connections)
        assert is_served(address)
        until(lambda: said, "it is told")
    (line,) = said
    assert line["bytes"] > MB / 4
    assert line["peer"].startswith("ipv4:127.0.0.1:")


def test_half_messages_make_room_when_no_descriptor_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Descriptors run out by whoever connects, so who does both is ended all the same."""
    monkeypatch.setattr(inflow, "UNREAD_BYTES_MAX", MB)
    monkeypatch.setattr(inflow, "GROWTH_BYTES", 0)
    monkeypatch.setattr(inflow, "SWEEP_S", 0.1)
    few, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with served() as address, contextlib.ExitStack() as kept:
        connections = [Connection(address) for _ in range(2)]
        for one in connections:
            kept.callback(one.close)
            # It is accepted.
            one.hear()
        used = max(map(int, os.listdir("/proc/self/fd"))) + 1
        kept.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (few, most))
        resource.setrlimit(resource.RLIMIT_NOFILE, (used, most))
        filled = [os.dup(0) for _ in iter(free, False)]
        for file in filled:
            kept.callback(os.close, file)
        time.sleep(0.3)
        for one in connections:
            say_halves(one, KILL)
        assert until_hung_up(connections)


def free() -> bool:
    """Whether a descriptor is left."""
    try:
        os.close(os.dup(0))
    except OSError:
        return False
    return True


@pytest.mark.slow
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


@pytest.mark.parametrize("says", [0, 1])
def test_streams_of_whom_nobody_knows_make_room_for_others(
    monkeypatch: pytest.MonkeyPatch, says: int
) -> None:
    """They say nothing, or what anybody may say."""
    monkeypatch.setattr(patience, "UNREAD_MAX", 5)
    batch = codec.encode_node_reports([NodeHeartbeated("x", 1)]).SerializeToString()
    with served() as address:
        connection = Connection(address)
        streams = []
        for _ in range(35):
            streams.append(connection.call(TRACK))
            connection.send(streams[-1], message(batch) * says)
        while len(connection.ended) < 30:
            connection.hear()
        # Those that said something wait again, in any order.
        assert connection.ended == set(streams[:30]) if not says else len(connection.ended) == 30
        # Whatever was ended beyond what had to make room is heard of by now.
        connection.socket.sendall(frame(PING, 0, 0, bytes(8)))
        connection.hear()
        assert len(connection.ended) == 30
        assert is_served(address)
        connection.close()


def test_a_stream_of_whom_somebody_knows_makes_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "UNREAD_MAX", 5)
    batch = codec.encode_node_reports([NodeHeartbeated("x", 1)]).SerializeToString()

    known = []

    def knows(lane: Any, batch: Any) -> None:
        lane.subjects["x"] = None
        known.append(lane)

    with served(on_batch=knows) as address:
        connection, stranger = Connection(address), Connection(address)
        for number in range(8):
            connection.send(connection.call(TRACK), message(batch))
            until(lambda number=number: len(known) > number, "it was heard")
        streams = [stranger.call(TRACK) for _ in range(8)]
        while len(stranger.ended) < 3:
            stranger.hear()
        assert is_served(address)
        assert stranger.ended == set(streams[:3])
        call = connection.call(KILL)
        connection.send(call, message(b""), end=True)
        while call not in connection.ended:
            connection.hear()
        assert connection.ended == {call}
        connection.close()
        stranger.close()


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


def test_large_answers_are_made_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else all that were asked for would be in memory before the first can make room."""
    monkeypatch.setattr(patience, "LARGE_BYTES", 100)
    monkeypatch.setattr(patience, "MADE_ALONE", 2)
    making, most = 0, 0

    async def make(size: int, context: Any) -> int:
        nonlocal making, most
        making += 1
        most = max(most, making)
        await asyncio.sleep(0)
        making -= 1
        if size < 0:
            raise PermissionError
        return size

    class Context:
        async def write(self, answer: bytes) -> None:
            pass

    async def main() -> list[int]:
        nonlocal most
        handler = SimpleNamespace(unary_unary=make, response_serializer=bytes)
        serve, found = patience.Patience()._one(handler), []
        for sizes in ([1_000] * 5, [10], [-1], [10] * 5):
            most = 0
            calls = [serve(size, Context()) for size in sizes]
            await asyncio.gather(*calls, return_exceptions=True)
            found.append(most)
        return found

    assert asyncio.run(main()) == [1, 1, 1, 5]


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
    monkeypatch.setattr(patience, "HELD_BYTES_MAX", 3_000)

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


def test_calls_that_come_by_thousands_end_no_other_call() -> None:
    """gRPC itself ends some of anybody's above a thousand that Python has not looked at."""
    asked, go_on = threading.Event(), threading.Event()

    def hold(_: Any) -> Any:
        asked.set()
        go_on.wait(30)
        return Done("FINISHED")

    with served(hold) as address, contextlib.ExitStack() as kept:
        kept.callback(go_on.set)
        options = [("grpc.use_local_subchannel_pool", 1)]
        dialled = kept.enter_context(grpc.insecure_channel(address, options=options))
        kill = ResourceManagerClientStub(dialled).KillApplication
        request = KillApplicationRequest(app_id=1)
        calls = [kill.future(request, timeout=60)]
        assert asked.wait(30)
        for _ in range(40):
            connection = Connection(address)
            kept.callback(connection.close)
            for _ in range(channel.STREAMS_MAX - 1):
                connection.call(KILL)
            # What was said before it was taken in.
            connection.socket.sendall(frame(PING, 0, 0, bytes(8)))
            connection.hear()
        calls += [kill.future(request, timeout=60) for _ in range(20)]
        assert not calls[0].done()
        go_on.set()
        assert [call.result().state for call in calls] == ["FINISHED"] * 21


def test_calls_of_a_connection_beyond_its_share_are_refused() -> None:
    """Also before it acknowledged how many it may have."""
    with served() as address:
        with contextlib.closing(Connection(address, timeout_s=patience.REQUEST_S / 2)) as one:
            calls = {one.call(KILL) for _ in range(2 * channel.STREAMS_MAX)}
            while len(one.ended) < channel.STREAMS_MAX:
                one.hear()
            assert one.ended < calls
        assert is_served(address)


def test_a_call_with_much_metadata_is_refused_and_not_waited_for() -> None:
    """Also of who never acknowledges how much he may send."""
    fields = tuple((f"x-{number}", "y") for number in range(60))
    with served() as address:
        with contextlib.closing(Connection(address, timeout_s=patience.REQUEST_S / 2)) as one:
            stream = one.call(KILL, fields)
            while stream not in one.ended:
                one.hear()
        with grpc.insecure_channel(address) as dialled:
            kill = ResourceManagerClientStub(dialled).KillApplication
            request = KillApplicationRequest(app_id=1)
            # The longest token is shorter than this.
            assert kill(request, metadata=(("x", "y" * 1_000),), timeout=20).state == "FINISHED"
            with pytest.raises(grpc.RpcError) as refused:
                kill(request, metadata=fields, timeout=20)
            assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


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
        lane.subjects["n1"] = None
        heard.append(len(batch))

    beats = [NodeHeartbeated(f"n{number}", number) for number in range(1, 20_001)]
    batch = codec.encode_node_reports(beats)
    whole = batch.SerializeToString()

    async def report(address: str) -> None:
        async with channel.dial(address) as dialled:
            call = NodeTrackerStub(dialled).Track()
            # It is known whose the stream is before it says much.
            await call.write(codec.encode_node_reports(beats[:1]))
            until_known = asyncio.create_task(call.read())
            await call.write(batch)
            await call.done_writing()
            assert await until_known is grpc.aio.EOF

    with served(on_batch=on_batch) as address:
        asyncio.run(report(address))
    heard.remove(1)
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


def in_pieces(size: int) -> bytes:
    """Return what is said for a request of so many bytes, which is no message of protobuf."""
    return b"".join(map(message, pieces.split(bytes([7]) * size)))


def ended(connection: Connection, stream: int) -> None:
    while stream not in connection.ended:
        connection.hear()


@pytest.mark.parametrize("size", [pieces.PIECE_BYTES, pieces.PIECE_BYTES + 1, 3 * MB])
def test_a_request_of_any_size_comes_whole(size: int) -> None:
    """The refusal of a field says how much of it there was."""
    request = KillApplicationRequest(app_id=1, diagnostics="x" * (size - 10))
    length = len(request.diagnostics) + size - request.ByteSize()
    request.diagnostics = "x" * length
    assert request.ByteSize() == size

    async def kill(address: str) -> None:
        async with channel.dial(address) as dialled:
            await ResourceManagerClientStub(dialled).KillApplication(request, timeout=20)

    with served() as address, pytest.raises(grpc.aio.AioRpcError, match=f"{length} bytes are more"):
        asyncio.run(kill(address))


def test_one_message_that_is_larger_than_a_piece_is_refused_at_its_first_bytes() -> None:
    with served() as address, contextlib.closing(Connection(address)) as connection:
        stream = connection.call(KILL)
        with pytest.raises(ConnectionError, match="the call is over"):
            connection.send(stream, message(bytes(3 * MB)))
        assert is_served(address)


@pytest.mark.parametrize(
    "said",
    [
        # There is more than is owed, less, another number, and more than any request has.
        message(b"\0\0\0\0\x05" + bytes(6)),
        message(b"\0\0\0\0\x05" + bytes(1)),
        message(b"\0\0\0\0\x05" + bytes(1)) + message(b"\0\0\0\0\x05" + bytes(4)),
        message(b"\0\xff\xff\xff\xff" + bytes(100)),
        message(b"\0\0\0\0\0"),
        message(b"\0"),
    ],
)
def test_pieces_that_do_not_fit_together_are_refused(said: bytes) -> None:
    with served() as address, contextlib.closing(Connection(address)) as connection:
        stream = connection.call(KILL)
        connection.send(stream, said, end=True)
        ended(connection, stream)
        assert is_served(address)


def test_of_two_who_owe_a_last_piece_the_older_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "HELD_BYTES_MAX", 3 * MB)
    half = in_pieces(2 * MB)[:-1]
    with served() as address, contextlib.closing(Connection(address)) as connection:
        streams = []
        for _ in range(3):
            streams.append(connection.call(KILL))
            connection.send(streams[-1], half)
        ended(connection, streams[1])
        assert connection.ended == set(streams[:2])
        # The last one is there once it says the rest.
        connection.send(streams[2], b"\7", end=True)
        ended(connection, streams[2])
        assert is_served(address)


def test_the_rest_of_a_request_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "REQUEST_S", 0.2)
    with served() as address, contextlib.closing(Connection(address)) as connection:
        stream = connection.call(KILL)
        connection.send(stream, in_pieces(MB)[:-1])
        ended(connection, stream)


def test_a_stranger_says_nothing_large_in_pieces() -> None:
    with served() as address, contextlib.closing(Connection(address)) as connection:
        stream = connection.call(TRACK)
        with contextlib.suppress(ConnectionError):
            connection.send(stream, in_pieces(2 * MB))
        ended(connection, stream)
        assert connection.received == 0


def test_nothing_is_kept_of_requests_that_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """gRPC would keep a message for ever that comes after nobody waits for it any more."""
    monkeypatch.setattr(patience, "HELD_BYTES_MAX", MB)
    half = in_pieces(8 * MB)[:-1]
    until_s = time.monotonic() + 4.0

    def flood(address: str) -> None:
        while time.monotonic() < until_s:
            with contextlib.suppress(OSError), contextlib.closing(Connection(address)) as one:
                one.send(one.call(KILL), half)

    with served() as address:
        assert is_served(address)
        before = memory_bytes()
        threads = [threading.Thread(target=flood, args=(address,)) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert is_served(address)
        until(lambda: memory_bytes() - before < 12 * MB, "memory is given back", 20.0)


def memory_bytes() -> int:
    gc.collect()
    inflow._trim()
    return psutil.Process().memory_info().rss


def test_few_messages_of_a_connection_are_taken_in_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The others stay in what a stream may send unasked."""
    monkeypatch.setattr(patience, "READ_MAX", 2)
    half = message(bytes(MB // 4))[:-1]
    sent = 0
    with served() as address, contextlib.closing(Connection(address)) as connection:
        connection.socket.settimeout(0.5)
        for _ in range(10):
            stream = connection.call(TRACK)
            for at in range(0, len(half), 1 << 12):
                try:
                    connection.send(stream, half[at : at + (1 << 12)])
                except TimeoutError:
                    break
                sent += 1 << 12
        assert sent < 2 * len(half) + 8 * (64 << 10) + (1 << 13)
        assert is_served(address)
