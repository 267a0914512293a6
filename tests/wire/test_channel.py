"""Connections fail in words, come back by themselves, and forget what they could not deliver."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from weft.errors import InputError, WeftError
from weft.job import Job, Stage
from weft.messages import NodeAnswered, NodeHeartbeated, NodeUnregistered
from weft.requests import (
    ApplicationAccepted,
    Done,
    GetMetrics,
    KillApplication,
    Refused,
    SubmitApplication,
)
from weft.wire import channel
from weft.wire.client import ManagerConnection
from weft.wire.lanes import Lane, Stream
from weft.wire.links import tracker_stream
from weft.wire.server import Server
from weft.wire.services import add_client_service, add_tracker_service


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def manager(
    answer: Callable[[Any], Awaitable[Any]], port: int = 0
) -> AsyncIterator[tuple[str, list[Any], list[Lane]]]:
    """A server that answers clients with `answer` and keeps what nodes say."""
    heard: list[Any] = []
    lanes: list[Lane] = []

    async def watch(after: int) -> AsyncIterator[tuple[int, list[str]]]:
        yield after + 1, ['{"fact":"Remark","now_s":1.0}', '{"fact":"Gauge","now_s":2.0}']

    def on_batch(lane: Lane, batch: Any) -> None:
        heard.extend(batch)
        if lane not in lanes:
            lanes.append(lane)

    server = Server("127.0.0.1", port)
    add_client_service(server, answer, watch)
    add_tracker_service(server, on_batch, lambda lane: None)
    address = await server.start()
    try:
        yield address, heard, lanes
    finally:
        await server.stop(0)


async def nobody(request: Any) -> Any:
    raise AssertionError("not asked")


def test_a_manager_that_is_not_there_is_named() -> None:
    async def main() -> None:
        address = f"127.0.0.1:{free_port()}"
        connection = ManagerConnection(address, patience_s=0.2)
        with pytest.raises(
            WeftError, match=f"no Resource Manager at {address}: connection refused"
        ):
            await connection.ask(GetMetrics())
        await connection.close()

    asyncio.run(main())


def test_a_host_that_does_not_exist_is_named() -> None:
    async def main() -> None:
        connection = ManagerConnection("no-such-host.invalid:8030", patience_s=0.1)
        with pytest.raises(WeftError, match=r"no Resource Manager at no-such-host"):
            await connection.ask(GetMetrics())
        await connection.close()

    asyncio.run(main())


def test_a_call_is_tried_again_until_the_manager_is_there() -> None:
    async def done(request: Any) -> Any:
        return Done("KILLED")

    async def main() -> None:
        port = free_port()
        connection = ManagerConnection(f"127.0.0.1:{port}", patience_s=60)
        asked = asyncio.create_task(connection.ask(KillApplication(1)))
        await asyncio.sleep(0.05)
        async with manager(done, port):
            assert await asked == Done("KILLED")
            await connection.close()

    asyncio.run(main())


@pytest.mark.parametrize("code", ["invalid_argument", "not_found", "failed_precondition",
                                  "resource_exhausted", "unavailable"])  # fmt: skip
def test_a_refusal_arrives_with_its_place(code: str) -> None:
    refused = Refused(code, "stages[2].demand.vcores", "too much: ö\nx")

    async def refuse(request: Any) -> Any:
        return refused

    async def main() -> None:
        async with manager(refuse) as (address, _, _):
            connection = ManagerConnection(address, patience_s=0.1)
            assert await connection.ask(GetMetrics()) == refused
            await connection.close()

    asyncio.run(main())


def test_a_manager_that_does_not_answer_in_time_is_said_so() -> None:
    async def forget(request: Any) -> Any:
        await asyncio.sleep(60)

    async def main() -> None:
        async with manager(forget) as (address, _, _):
            connection = ManagerConnection(address, deadline_s=0.1)
            with pytest.raises(WeftError, match=r"did not answer within 0\.1 s"):
                await connection.ask(GetMetrics())
            await connection.close()

    asyncio.run(main())


def test_a_job_over_the_limit_is_refused_before_it_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "MESSAGE_BYTES_MAX", 2_000)

    async def main() -> None:
        async with manager(nobody) as (address, _, _):
            connection = ManagerConnection(address)
            job = Job("x" * 2_000, (Stage("s", 1, 1.0, {}),))
            with pytest.raises(InputError, match="more than the limit"):
                await connection.ask(SubmitApplication(job, "1"))
            await connection.close()

    asyncio.run(main())


def test_a_job_of_100_000_told_tasks_passes() -> None:
    stage = {
        "name": "big",
        "tasks": [{"duration_s": 1.0 + i, "demand": {"vcores": 1.0}} for i in range(100_000)],
    }
    from weft.jobfile import job_from_dict

    job = job_from_dict({"name": "big", "stages": [stage]})

    async def accept(request: Any) -> Any:
        assert request.job == job
        return ApplicationAccepted(7, 1)

    async def main() -> None:
        async with manager(accept) as (address, _, _):
            connection = ManagerConnection(address)
            assert await connection.ask(SubmitApplication(job, "1")) == ApplicationAccepted(7, 1)
            await connection.close()

    asyncio.run(main())


def test_a_job_that_is_no_job_is_refused_with_its_place() -> None:
    from weft.wire.client_pb2 import SubmitApplicationRequest
    from weft.wire.client_pb2_grpc import ResourceManagerClientStub

    async def main() -> None:
        async with manager(nobody) as (address, _, _), channel.dial(address) as dialled:
            submit = ResourceManagerClientStub(dialled).SubmitApplication
            for data, problem in (
                (b"{", "invalid JSON"),
                (b"\xff", "invalid UTF-8"),
                (b"[" * 100_000, "nested too deeply"),
                (
                    b'{"name":"x","stages":[{"name":"s","tasks":0,"duration_s":1}]}',
                    "stages[0].tasks",
                ),
            ):
                with pytest.raises(grpc.aio.AioRpcError) as error:
                    await submit(SubmitApplicationRequest(job_json=data, submission_id="1"))
                assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
                assert problem in (error.value.details() or "")

    asyncio.run(main())


def test_events_are_watched() -> None:
    async def main() -> None:
        async with manager(nobody) as (address, _, _):
            connection = ManagerConnection(address)
            batches = [batch async for batch in connection.watch(after=7)]
            assert [first for first, _ in batches] == [8]
            assert [event["fact"] for _, batch in batches for event in batch] == ["Remark", "Gauge"]
            await connection.close()

    asyncio.run(main())


def test_a_stream_comes_back_and_forgets_what_it_could_not_deliver() -> None:
    async def main() -> None:
        port = free_port()
        lost: list[int] = []
        got: list[Any] = []
        states: list[bool] = []
        stream: Stream = tracker_stream(
            f"127.0.0.1:{port}", got.extend, lambda up, reason: states.append(up), lost.append
        )
        running = asyncio.create_task(stream.run())
        stream.send([NodeHeartbeated("n1", 1)])
        await until(lambda: lost)
        assert states[0] is False
        for number in (2, 3):  # a server, and the one after it
            async with manager(nobody, port) as (_, heard, lanes):
                await until(lambda: stream.up)
                stream.send([NodeHeartbeated("n1", number), NodeUnregistered("n2")])
                await until(lambda: len(heard) == 2)
                assert heard == [NodeHeartbeated("n1", number), NodeUnregistered("n2")]
                lanes[0].send([NodeAnswered("n1", number)])
                await until(lambda: NodeAnswered("n1", number) in got)  # noqa: B023
            await until(lambda: not stream.up)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(main())


def test_a_lane_of_a_peer_that_is_gone_refuses_and_counts() -> None:
    async def main() -> None:
        lost: list[int] = []
        lane = Lane(lost.append)
        lane.send([1, 2, 3])
        lane.close()
        lane.send([4])
        assert lost == [3, 1]
        assert lane.waiting == 0

    asyncio.run(main())


def test_a_port_in_use_is_one_clear_line() -> None:
    async def main() -> None:
        async with manager(nobody) as (address, _, _):
            again = Server("127.0.0.1", int(address.rpartition(":")[2]))
            with pytest.raises(WeftError, match=f"cannot listen on {address}: is the port in use"):
                await again.start()

    asyncio.run(main())


def test_health_and_reflection_are_on() -> None:
    async def main() -> None:
        async with manager(nobody) as (address, _, _), channel.dial(address) as dialled:
            check = health_pb2_grpc.HealthStub(dialled).Check
            for name in ("", "weft.ResourceManagerClient", "weft.NodeTracker"):
                answer = await check(health_pb2.HealthCheckRequest(service=name))
                assert answer.status == health_pb2.HealthCheckResponse.SERVING
            request = reflection_pb2.ServerReflectionRequest(list_services="")
            info = reflection_pb2_grpc.ServerReflectionStub(dialled).ServerReflectionInfo
            async for reply in info(iter([request])):
                names = {service.name for service in reply.list_services_response.service}
                assert {"weft.ResourceManagerClient", "weft.NodeTracker"} <= names

    asyncio.run(main())
