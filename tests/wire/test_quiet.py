"""Bytes that are no message, and peers that leave amid a word, are no reason to print anything."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest

from weft.wire.containers_pb2 import ContainersResponse, StartAnswer, StartContainersRequest
from weft.wire.server import Server

NAME = "weft.ContainerManager"
UNREADABLE = b"\xff\xff\xff"
METHODS = ["StartContainers", "FollowTasks", "StreamStarts"]


def add(_: Any, server: Any) -> None:
    """Serve a method of each kind that answers with more than a connection takes at once."""
    response = ContainersResponse(answers=[StartAnswer(node_id="n" * 100)] * 10_000)

    async def one(request: Any, context: Any) -> Any:
        return response

    async def several(request: Any, context: Any) -> None:
        while True:
            await context.write(response)

    async def each(_: Any, context: Any) -> None:
        while await context.read() is not grpc.aio.EOF:
            await context.write(response)

    kinds = ("unary_unary", one), ("unary_stream", several), ("stream_stream", each)
    read, write = StartContainersRequest.FromString, ContainersResponse.SerializeToString
    methods = {
        method: getattr(grpc, f"{kind}_rpc_method_handler")(serve, read, write)
        for method, (kind, serve) in zip(METHODS, kinds, strict=True)
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(NAME, methods),))


def printed(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged, but for what gRPC has left of an earlier test, whose loop is closed."""
    texts = [logging.Formatter().format(record) for record in caplog.records]
    return [text for text in texts if not text.endswith("RuntimeError: Event loop is closed")]


async def status_of(channel: grpc.aio.Channel, method: str, data: bytes) -> grpc.StatusCode:
    path = f"/{NAME}/{method}"
    call: Any
    if method == "StartContainers":
        call = channel.unary_unary(path)(data)
    elif method == "FollowTasks":
        call = channel.unary_stream(path)(data)
    else:
        call = channel.stream_stream(path)()
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await call.write(data)
    found: grpc.StatusCode = await call.code()
    return found


@contextlib.asynccontextmanager
async def served() -> AsyncIterator[tuple[str, list[tuple[str, str]]]]:
    """A server, and its calls that ended: the method and its status."""
    ended: list[tuple[str, str]] = []
    server = Server("127.0.0.1", 0, lambda call, code, _: ended.append((call, code)))
    server.add(add, None, NAME)
    try:
        yield await server.start(), ended
    finally:
        await server.stop(0)


@pytest.mark.parametrize("method", METHODS)
def test_what_is_no_message_is_refused_and_printed_nowhere(
    method: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> tuple[grpc.StatusCode, list[tuple[str, str]]]:
        async with served() as (address, ended), grpc.aio.insecure_channel(address) as channel:
            return await status_of(channel, method, UNREADABLE), ended

    status, ended = asyncio.run(main())
    assert not printed(caplog)
    assert status is grpc.StatusCode.INVALID_ARGUMENT
    assert ended == [(f"{NAME}/{method}", "INVALID_ARGUMENT")]


@pytest.mark.parametrize("method", ["FollowTasks", "StreamStarts"])
def test_a_peer_that_leaves_while_it_is_answered_is_no_error(
    method: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is killed, or waited long enough: gRPC printed a traceback where that was in a write."""

    async def main() -> list[tuple[str, str]]:
        async with served() as (address, ended):
            for turn in range(1, 11):
                async with grpc.aio.insecure_channel(address) as channel:
                    path = f"/{NAME}/{method}"
                    if method == "FollowTasks":
                        await channel.unary_stream(path)(b"").read()
                    else:
                        call = channel.stream_stream(path)()
                        for _ in range(5):
                            await call.write(b"")
                        await call.read()
                async with asyncio.timeout(60):
                    while len(ended) < turn:
                        await asyncio.sleep(0.005)
            return ended

    ended = asyncio.run(main())
    assert not printed(caplog)
    # a stream whose end was read before its peer was seen to be gone ended well
    fine = {"CANCELLED", "OK"} if method == "StreamStarts" else {"CANCELLED"}
    assert {status for _, status in ended} <= fine
