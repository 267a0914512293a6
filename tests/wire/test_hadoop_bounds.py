"""What peers of YARN's wire send and do not read is bounded, told, and nobody else's matter."""

import asyncio
import contextlib
import gc
import socket
import struct
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from testkit.hadoop import Peer
from weft.yarn import clients, rpc, wire
from weft.yarn import hadoop_pb2 as pb

PATIENCE_S = 20.0


class Face:
    """A protocol whose answers are as large, and as slow, as a test wants."""

    def __init__(self) -> None:
        self.begun = 0
        self.made: list[str] = []
        self.takes_s = 0.0
        self.go = asyncio.Event()
        self.go.set()

    async def quick(self, caller: rpc.Caller, request: Any) -> Any:
        self.begun += 1
        return pb.Empty()

    async def large(self, caller: rpc.Caller, request: Any) -> Any:
        self.begun += 1
        return pb.Kill(diagnostics="x" * 200_000)

    async def listing(self, caller: rpc.Caller, request: Any) -> Any:
        self.begun += 1
        await self.go.wait()
        await asyncio.sleep(self.takes_s)
        self.made.append(caller.user)
        return pb.Kill(diagnostics="x" * 200_000)

    def protocol(self) -> dict[str, rpc.Method]:
        return {
            "quick": rpc.Method(pb.Empty, self.quick),
            "large": rpc.Method(pb.Empty, self.large),
            "list": rpc.Method(pb.Empty, self.listing, True),
        }


@contextlib.asynccontextmanager
async def served() -> AsyncIterator[tuple[rpc.Server, Face, int]]:
    face = Face()
    server = rpc.Server({"P": face.protocol()})
    port = await server.start("127.0.0.1", 0)
    try:
        yield server, face, port
    finally:
        await server.stop()


async def dial(port: int, user: str = "ada", narrow: bool = False) -> Peer:
    plain = socket.socket()
    if narrow:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    plain.setblocking(False)
    await asyncio.get_running_loop().sock_connect(plain, ("127.0.0.1", port))
    peer = Peer(*await asyncio.open_connection(sock=plain, limit=1_024), "P")
    peer.hello(0, user)
    return peer


def frame(method: str, number: int = 1) -> bytes:
    head = pb.RequestEnvelope(rpc_kind=2, rpc_op=0, call_id=number, client_id=b"x" * 16)
    call = pb.MethodCall(method=method, protocol="P", version=1)
    data = b"".join(map(Peer.delimited, (head, call, pb.Empty())))
    return struct.pack(">I", len(data)) + data


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.005)


def conversation(act: Callable[[rpc.Server, Face, int], Awaitable[None]]) -> None:
    async def main() -> None:
        async with served() as (server, face, port):
            await act(server, face, port)

    asyncio.run(asyncio.wait_for(main(), 2 * PATIENCE_S))


async def steady(value: Callable[[], int]) -> int:
    """A number once it does not change any more."""
    last, same = value(), 0
    async with asyncio.timeout(PATIENCE_S):
        while same < 20:
            await asyncio.sleep(0.01)
            same = same + 1 if value() == last else 0
            last = value()
    return last


def test_calls_whose_answers_nobody_takes_are_few_and_their_peer_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wire, "UNREAD_TIMEOUT_S", 0.2)

    async def act(server: rpc.Server, face: Face, port: int) -> None:
        deaf = await dial(port, narrow=True)
        deaf.writer.write(frame("large") * 500)
        begun = await steady(lambda: face.begun)
        assert begun <= 2 * rpc.CONNECTION_CALLS_MAX + 20  # as many as the system takes answers of
        other = await dial(port)
        await other.exchange(pb.Empty(), pb.Empty, "quick")
        await until(lambda: len(server._all) == 1)
        assert face.begun < 500

    conversation(act)


def test_an_error_repeats_little_of_what_was_said() -> None:
    async def act(server: rpc.Server, face: Face, port: int) -> None:
        peer = await dial(port)
        for protocol, method in (("P", "m" * 60_000), ("p" * 60_000, "m")):
            head = pb.RequestEnvelope(rpc_kind=2, rpc_op=0, call_id=1, client_id=b"x" * 16)
            peer.frame(head, pb.MethodCall(method=method, protocol=protocol), pb.Empty())
            answer, _ = await peer.answer()
            assert answer.status == 1
            assert len(answer.error) < 600

    conversation(act)


def test_frames_that_stay_unfinished_give_way_and_small_ones_do_not_wait_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rpc, "LARGE_FRAMES_BYTES", 1 << 20)
    monkeypatch.setattr(wire, "STALE_FRAME_S", 0.2)

    async def act(server: rpc.Server, face: Face, port: int) -> None:
        size = 400 << 10
        half = [await dial(port) for _ in range(6)]
        for one in half:
            one.writer.write(struct.pack(">I", size) + bytes(size // 2))
        honest = await dial(port)
        began_s = asyncio.get_running_loop().time()
        await honest.exchange(pb.Empty(), pb.Empty, "quick")
        # a large call of somebody who goes on to its end
        head = pb.RequestEnvelope(rpc_kind=2, rpc_op=0, call_id=7, client_id=b"x" * size)
        honest.frame(head, pb.MethodCall(method="quick", protocol="P"), pb.Empty())
        answer, _ = await honest.answer()
        assert answer.status == 0
        assert asyncio.get_running_loop().time() - began_s < PATIENCE_S / 2
        await until(lambda: server.large._used <= 1 << 20)
        assert len(server._all) < 7, "some of the halves were given up"

    conversation(act)


def test_nothing_is_left_of_half_a_frame_before_anybody_collects() -> None:
    """A process that is ready collects seldom: what a peer sent must not wait for that."""

    async def act(server: rpc.Server, face: Face, port: int) -> None:
        peer = await dial(port)
        peer.writer.write(struct.pack(">I", 400_000) + bytes(200_000))
        await until(lambda: server.large._used)
        gone = weakref.ref(next(iter(server._all)))
        gc.disable()
        try:
            peer.writer.close()
            await until(lambda: gone() is None)
        finally:
            gc.enable()

    conversation(act)


def test_a_frame_has_a_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "FRAME_TIMEOUT_S", 0.2)

    async def act(server: rpc.Server, face: Face, port: int) -> None:
        peer = await dial(port)
        peer.writer.write(struct.pack(">I", 60_000) + b"x" * 100)
        with contextlib.suppress(ConnectionError):
            assert await peer.reader.read() == b""
        assert (server.small._used, server._all) == (0, set())

    conversation(act)


def test_idle_connections_make_room_and_busy_ones_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "CONNECTIONS_MAX", 4)

    async def act(server: rpc.Server, face: Face, port: int) -> None:
        face.go.clear()
        busy = await dial(port)
        busy.writer.write(frame("list"))
        await until(lambda: face.begun)
        idle = [await dial(port) for _ in range(3)]
        for one in idle:
            await one.exchange(pb.Empty(), pb.Empty, "quick")
        more = await dial(port)
        await more.exchange(pb.Empty(), pb.Empty, "quick")
        with contextlib.suppress(ConnectionError):
            assert await idle[0].reader.read() == b"", "the one that was idle for longest"
        face.go.set()
        answer, _ = await busy.answer()
        assert answer.status == 0

    conversation(act)


def test_one_with_a_queue_of_listings_does_not_hold_the_others() -> None:
    async def act(server: rpc.Server, face: Face, port: int) -> None:
        greedy = [await dial(port, "greedy") for _ in range(8)]

        async def drink(peer: Peer) -> None:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                while await peer.reader.read(1 << 16):
                    pass

        drinks = [asyncio.create_task(drink(peer)) for peer in greedy]
        for peer in greedy:
            peer.writer.write(frame("list") * 200)
        await until(lambda: len(face.made) > 20)
        honest = await dial(port, "honest")
        await honest.exchange(pb.Empty(), pb.Empty, "quick")
        before = len(face.made)
        await honest.exchange(pb.Empty(), pb.Kill, "list")
        assert face.made.index("honest") - before < 200, "of 1,600 that came before"
        for task in drinks:
            task.cancel()

    conversation(act)


def test_others_are_served_while_a_long_listing_is_made() -> None:
    async def main() -> None:
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(others())
        assert await clients.in_turns(str, range(1_000)) == [str(one) for one in range(1_000)]
        task.cancel()
        assert turns >= 1_000 // clients.MADE_AT_ONCE

    asyncio.run(main())


def test_between_two_listings_there_is_as_much_time_as_one_took() -> None:
    async def act(server: rpc.Server, face: Face, port: int) -> None:
        server.listings = wire.Turns(1)
        peer = await dial(port, "greedy")
        face.takes_s = 0.05
        began_s = asyncio.get_running_loop().time()
        for _ in range(5):
            await peer.exchange(pb.Empty(), pb.Kill, "list")
        assert asyncio.get_running_loop().time() - began_s >= 9 * face.takes_s

    conversation(act)
