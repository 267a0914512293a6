"""Bytes that are no message, and peers that leave amid a word, are no reason to print anything."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from testkit.http2 import Connection, message
from weft.wire.containers_pb2 import ContainersResponse, StartAnswer, StartContainersRequest
from weft.wire.server import Server

NAME = "weft.ContainerManager"
UNREADABLE = b"\xff\xff\xff"
METHODS = ["StartContainers", "FollowTasks", "StreamStarts"]
WATCH = "/grpc.health.v1.Health/Watch"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
# Methods of the libraries, and what each is asked.
FOREIGN = {"/grpc.health.v1.Health/Check": b"", WATCH: b"", REFLECTION: b"\x3a\x00"}


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


@pytest.mark.parametrize("method", FOREIGN)
def test_what_is_no_message_of_a_library_is_refused_and_printed_nowhere(
    method: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> grpc.StatusCode:
        async with served() as (address, _), grpc.aio.insecure_channel(address) as channel:
            call: Any = channel.stream_stream(method)()
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                await call.write(UNREADABLE)
            found: grpc.StatusCode = await call.code()
            return found

    status = asyncio.run(main())
    assert not printed(caplog)
    assert status is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("method", [*FOREIGN, f"/{NAME}/StartContainers"])
def test_a_peer_that_leaves_without_an_answer_is_no_error(
    method: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It takes nothing, so that each of its calls is within a write when it leaves."""

    def ask_and_leave(address: str) -> None:
        connection = Connection(address, window=0)
        streams = {connection.call(method) for _ in range(10)}
        for stream in streams:
            connection.send(stream, message(FOREIGN.get(method, b"")), end=True)
        while not connection.answered.issuperset(streams):
            connection.hear()
        connection.close()

    async def main() -> None:
        async with served() as (address, _):
            for _ in range(5):
                await asyncio.to_thread(ask_and_leave, address)
            async with asyncio.timeout(60):
                while any("HandleExceptions" in one.get_name() for one in asyncio.all_tasks()):
                    await asyncio.sleep(0.005)

    asyncio.run(main())
    assert not printed(caplog)


def test_who_watches_and_takes_nothing_holds_up_nobody() -> None:
    """Neither others who watch the same, nor the server's end."""

    def watch_unread(address: str) -> Connection:
        connection = Connection(address, window=0)
        connection.send(connection.call(WATCH), message(b""), end=True)
        return connection

    async def main() -> list[Any]:
        server = Server("127.0.0.1", 0)
        address = await server.start()
        unread = await asyncio.to_thread(watch_unread, address)
        async with asyncio.timeout(20), grpc.aio.insecure_channel(address) as channel:
            watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
            told = [(await watch.read()).status]
            ending = asyncio.create_task(server.stop(10))
            told.append((await watch.read()).status)
            watch.cancel()
            unread.close()
            await ending
        return told

    told = asyncio.run(main())
    kinds = health_pb2.HealthCheckResponse
    assert told == [kinds.SERVING, kinds.NOT_SERVING]
