"""A stream is read as fast as what it says is handled, and who waits to be read is told of."""

import asyncio
from typing import Any

import grpc.aio
import pytest

from rm.process import unread
from rm.process.unread import Unread
from weft.protocol.messages import NodeHeartbeated
from weft.wire import codec
from weft.wire.outbound_queues import Lane
from weft.wire.server import Server
from weft.wire.services import add_tracker_service
from weft.wire.tracker_pb2_grpc import NodeTrackerStub

BATCHES = 200


async def until(condition: Any) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.005)


def test_two_batches_of_a_stream_are_in_memory_however_many_it_sends() -> None:
    async def main() -> None:
        gates: list[asyncio.Future[None]] = []

        def on_batch(lane: Lane, batch: Any) -> asyncio.Future[None]:
            gates.append(asyncio.get_running_loop().create_future())
            return gates[-1]

        server = Server("127.0.0.1", 0)
        add_tracker_service(server, on_batch, lambda lane: None)
        address = await server.start()
        channel = grpc.aio.insecure_channel(address)
        call = NodeTrackerStub(channel).Track()
        beats = [NodeHeartbeated(f"{number:0100}", 1) for number in range(2_000)]
        batch = codec.encode_node_reports(beats)
        written = 0

        async def flood() -> None:
            nonlocal written
            for _ in range(BATCHES):
                await call.write(batch)
                written += 1

        flooding = asyncio.create_task(flood())
        try:
            await until(lambda: gates)
            before = -1
            while before != written:  # until it is held up
                before = written
                await asyncio.sleep(0.2)
            assert len(gates) == 1
            assert written < BATCHES / 2, "whoever writes waits, too"
            gates[0].set_result(None)
            await until(lambda: len(gates) == 2)
        finally:
            flooding.cancel()
            call.cancel()
            await channel.close()
            await server.stop(0.1)

    asyncio.run(main())


def test_streams_that_wait_for_long_are_told_of_and_only_while_they_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unread, "BEHIND_S", 0.05)

    async def main() -> None:
        told: list[float] = []
        waits = Unread(told.append)
        watching = asyncio.create_task(waits.watch())
        loop = asyncio.get_running_loop()
        done, never = loop.create_future(), loop.create_future()
        done.set_result(None)
        assert waits.held("a", done) is None
        held = waits.held("b", never)
        assert held is not None
        await asyncio.sleep(0.2)
        assert not told, "nobody wants to be read yet"

        async def wait() -> None:
            await held

        waiting = asyncio.create_task(wait())
        await until(lambda: len(told) >= 2)
        never.set_result(None)
        await waiting
        count = len(told)
        await asyncio.sleep(0.2)
        assert len(told) == count
        watching.cancel()

    asyncio.run(main())
