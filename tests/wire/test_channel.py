"""Connections fail in words, come back by themselves, and forget what they could not deliver."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from weft.model.errors import InputError, WeftError
from weft.model.job import Job, Stage
from weft.model.resources import Kind, ResourceType, ResourceTypes
from weft.protocol.access import Caller
from weft.protocol.messages import (
    AttemptAccepted,
    AttemptFinished,
    AttemptStopped,
    AttemptUnregistered,
    NodeAnswered,
    NodeHeartbeated,
    NodeUnregistered,
    StartAnswered,
    StartContainers,
    TaskLaunch,
)
from weft.protocol.requests import (
    ApplicationAccepted,
    Done,
    GetMetrics,
    KillApplication,
    Refused,
    SubmitApplication,
)
from weft.wire import channel
from weft.wire import connections as links
from weft.wire.client import ManagerConnection
from weft.wire.codec_containers import no_tokens
from weft.wire.connections import NodeLink, master_stream, tracker_stream
from weft.wire.containers_pb2 import ContainersResponse, StartContainersRequest
from weft.wire.outbound_queues import Lane, Stream
from weft.wire.server import Server
from weft.wire.services import (
    add_client_service,
    add_container_service,
    add_master_service,
    add_tracker_service,
)


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


async def nobody(request: Any, caller: Caller) -> Any:
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
    async def done(request: Any, caller: Caller) -> Any:
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


@pytest.mark.parametrize(
    "code",
    ["invalid_argument", "not_found", "failed_precondition", "resource_exhausted", "unavailable"],
)
def test_a_refusal_arrives_with_its_place(code: str) -> None:
    refused = Refused(code, "stages[2].demand.vcores", "too much: ö\nx")

    async def refuse(request: Any, caller: Caller) -> Any:
        return refused

    async def main() -> None:
        async with manager(refuse) as (address, _, _):
            connection = ManagerConnection(address, patience_s=0.1)
            assert await connection.ask(GetMetrics()) == refused
            await connection.close()

    asyncio.run(main())


@pytest.mark.parametrize("letter", ["x", "ö", "\n", "\U0001f9f5"])
def test_a_long_refusal_arrives_as_far_as_it_goes(letter: str) -> None:
    async def refuse(request: Any, caller: Caller) -> Any:
        return Refused("resource_exhausted", letter * 5_000, "it starts so" + letter * 50_000)

    async def main() -> None:
        async with manager(refuse) as (address, _, _):
            connection = ManagerConnection(address, patience_s=0.1)
            for _ in range(20):
                got = await connection.ask(GetMetrics())
                assert isinstance(got, Refused)
                assert got.code == "resource_exhausted"
                assert got.problem.startswith(f"it starts so{letter}")
                assert got.problem.endswith(f"{letter} ...")
            await connection.close()

    asyncio.run(main())


def test_a_manager_that_does_not_answer_in_time_is_said_so() -> None:
    async def forget(request: Any, caller: Caller) -> Any:
        await asyncio.sleep(60)

    async def main() -> None:
        async with manager(forget) as (address, _, _):
            connection = ManagerConnection(address, deadline_s=0.1)
            with pytest.raises(WeftError, match=r"did not answer within 0\.1 s"):
                await connection.ask(GetMetrics())
            await connection.close()

    asyncio.run(main())


def test_a_job_over_the_limit_is_refused_before_it_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "REQUEST_BYTES_MAX", 2_000)

    async def main() -> None:
        async with manager(nobody) as (address, _, _):
            connection = ManagerConnection(address)
            job = Job("x" * 2_000, (Stage("s", 1, 1.0, {}),))
            with pytest.raises(InputError, match="more than the limit"):
                await connection.ask(SubmitApplication(job, "1"))
            await connection.close()

    asyncio.run(main())


@pytest.mark.slow
def test_a_job_of_100_000_told_tasks_passes() -> None:
    stage = {
        "name": "big",
        "tasks": [{"duration_s": 1.0 + i, "demand": {"vcores": 1.0}} for i in range(100_000)],
    }
    from weft.model.jobfile import job_from_dict

    job = job_from_dict({"name": "big", "stages": [stage]})

    async def accept(request: Any, caller: Caller) -> Any:
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
            with pytest.raises(WeftError, match="refused: after: expected an id below"):
                [batch async for batch in connection.watch(after=2**64 - 1)]
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


@pytest.mark.slow
def test_what_is_too_much_for_one_message_leaves_in_parts_and_the_stream_stays_up() -> None:
    """Three masters are told jobs of 15 MB at once, as after a restart; 64 MB break a stream."""

    def told(attempt: int, size: int) -> AttemptAccepted:
        job = Job(
            "j",
            (Stage("a", 1, 1.0, {"vcores": 1.0}, command=("x" * 100_000,) * (size // 100_000)),),
        )
        types = ResourceTypes((ResourceType("vcores", Kind.DIVISIBLE),))
        return AttemptAccepted(attempt, job, types, (), (), (), 1.0, True, 1, 0)

    async def main() -> None:
        server = Server("127.0.0.1", 0)
        reached: list[Lane] = []
        add_master_service(server, lambda lane, batch: reached.append(lane), lambda lane: None)
        got: list[Any] = []
        states: list[bool] = []
        stream = master_stream(
            await server.start(), got.extend, lambda up, reason: states.append(up)
        )
        running = asyncio.create_task(stream.run())
        await until(lambda: stream.up)
        stream.send([AttemptFinished(256, True, "")])
        await until(lambda: reached)
        large = [told(256 + number, 15_000_000) for number in range(3)]
        reached[0].send([AttemptUnregistered(1), *large, told(300, 67_500_000)])
        reached[0].send([AttemptStopped(400 + n, "x" * 60_000) for n in range(300)])
        await until(lambda: len(got) == 304)
        assert [item.attempt_id for item in got] == [1, 256, 257, 258, *range(400, 700)]
        assert got[1:4] == large
        assert states == [True], "the stream never broke"
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await server.stop(0)

    asyncio.run(main())


@pytest.mark.slow
def test_calls_to_a_node_manager_leave_in_parts_that_fit() -> None:
    heard: list[tuple[int, int]] = []

    class Containers:
        async def carry_out(
            self, follower: str, orders: list[Any], shown: Any, peer: str
        ) -> list[Any]:
            heard.extend((order.attempt_id, len(order.items)) for order in orders)
            return []

        def follow(self, follower: str, lane: Lane) -> None: ...

    async def main() -> None:
        server = Server("127.0.0.1", 0)
        add_container_service(server, Containers())  # type: ignore[arg-type]
        lost: list[int] = []
        link = NodeLink(await server.start(), "master", lambda batch: None, lost.append, no_tokens)
        words = [f"{n}" * 9_000_000 for n in range(8)]
        items = [TaskLaunch(2**40, 0, 0, 0, 1.0, (1.0,), (word,)) for word in words]
        link.send([StartContainers(256 + n, "n1", (item,)) for n, item in enumerate(items)])
        link.send([StartContainers(999, "n1", tuple(items))])
        await until(lambda: len(heard) == 8 and link.idle)
        assert heard == [(256 + n, 1) for n in range(8)]
        assert lost == [1], "what fits no message is counted, the rest goes on"
        await link.close()
        await server.stop(0)

    asyncio.run(main())


def start_of(attempt: int) -> StartContainers:
    """An order to start one task."""
    return StartContainers(attempt, "n1", (TaskLaunch(2**40, 0, 0, 0, 1.0, (1.0,)),))


@pytest.mark.slow
def test_starts_leave_over_one_stream_that_is_opened_again_where_it_broke(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(links, "DEADLINE_S", 2.0)
    calls: list[tuple[str, str, float]] = []
    heard: list[int] = []
    stuck = asyncio.Event()

    class Containers:
        async def carry_out(
            self, follower: str, orders: list[Any], shown: Any, peer: str
        ) -> list[Any]:
            heard.extend(order.attempt_id for order in orders)
            if heard[-1] == 258:
                await stuck.wait()
            if heard[-1] == 259:
                raise RuntimeError("a bug")
            return [StartAnswered("n1", heard[-1], ())]

        def follow(self, follower: str, lane: Lane) -> None: ...

    async def main() -> None:
        server = Server("127.0.0.1", 0, lambda *call: calls.append(call))
        add_container_service(server, Containers())  # type: ignore[arg-type]
        got: list[Any] = []
        lost: list[int] = []
        link = NodeLink(await server.start(), "master", got.extend, lost.append, no_tokens)
        for attempt in range(256, 262):
            link.send([start_of(attempt)])
            await until(lambda: len(got) + len(lost) == len(heard) and link.idle)
        assert heard == list(range(256, 262)), "each once: to repeat them is the masters' part"
        assert [each.attempt_id for each in got] == [256, 257, 260, 261]
        assert lost == [1, 1], "no answer in time, and none at all"
        stuck.set()
        await link.close()
        await server.stop(0)
        # one until it broke, and one after
        await until(lambda: [m.endswith("StreamStarts") for m, _, _ in calls].count(True) == 3)
        assert not any(method.endswith("StartContainers") for method, _, _ in calls)

    asyncio.run(main())


def test_a_node_manager_that_serves_no_stream_of_starts_is_called() -> None:
    calls: list[str] = []

    async def start(request: Any, context: Any) -> Any:
        calls.extend(str(each.attempt_id) for each in request.starts)
        return ContainersResponse()

    def add(_: Any, server: Any) -> None:
        method = grpc.unary_unary_rpc_method_handler(
            start, StartContainersRequest.FromString, ContainersResponse.SerializeToString
        )
        methods = {"StartContainers": method}
        name = "weft.ContainerManager"
        handler = grpc.method_handlers_generic_handler(name, methods)
        server.add_generic_rpc_handlers((handler,))

    async def main() -> None:
        server = Server("127.0.0.1", 0)
        server.add(add, None, "weft.ContainerManager")
        lost: list[int] = []
        link = NodeLink(await server.start(), "master", lambda batch: None, lost.append, no_tokens)
        for number in range(3):
            link.send([start_of(256 + number)])
            await until(lambda: len(calls) > number and link.idle)  # noqa: B023
        assert calls == ["256", "257", "258"]
        assert not lost
        await link.close()
        await server.stop(0)

    asyncio.run(main())


@pytest.mark.slow
def test_an_answer_that_fits_no_message_is_an_error_that_says_so() -> None:
    async def answer(request: Any, caller: Any) -> Any:
        return Done("x" * 67_500_000)

    async def main() -> None:
        async with manager(answer) as (address, _, _):
            connection = ManagerConnection(address)
            refused = await connection.ask(KillApplication(1))
            assert isinstance(refused, Refused)
            assert refused.code == "resource_exhausted"
            assert "does not fit one message: 67.5 MB are more than" in refused.problem
            await connection.close()

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


def test_connections_that_say_nothing_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever opened them holds descriptors that others need."""
    quick = dict(channel.SERVER_OPTIONS) | {"grpc.server_handshake_timeout_ms": 300}
    assert dict(channel.SERVER_OPTIONS)["grpc.server_handshake_timeout_ms"] <= 10_000
    monkeypatch.setattr("weft.wire.server.SERVER_OPTIONS", list(quick.items()))

    async def main() -> None:
        server = Server("127.0.0.1", 0)
        address = await server.start()
        host, _, port = address.rpartition(":")
        silent = [await asyncio.open_connection(host, int(port)) for _ in range(5)]
        async with asyncio.timeout(20):
            for reader, writer in silent:
                with contextlib.suppress(ConnectionError):
                    await reader.read()
                    assert reader.at_eof()
                writer.close()
        await server.stop(0.1)

    asyncio.run(main())


LINE = "x" * 10_000


def test_little_is_kept_of_what_was_read_fast_and_is_read_no_more() -> None:
    """By itself gRPC takes in the more of a stream the faster it was read: megabytes."""
    sent = [0]

    async def watch(after: int = 0) -> AsyncIterator[tuple[int, list[str]]]:
        while True:
            sent[0] += 1
            yield sent[0], [json.dumps({"fact": LINE})]

    async def main() -> None:
        server = Server("127.0.0.1", 0)
        add_client_service(server, nobody, watch)
        connection = ManagerConnection(await server.start())
        stream = connection.watch(1)
        read = 0
        while read < 2_000:
            await anext(stream)
            read += 1
        before, calm = 0, 0
        while calm < 20:
            before, calm = sent[0], calm + 1 if sent[0] == before else 0
            await asyncio.sleep(0.01)
        kept = (sent[0] - read) * len(LINE)
        await stream.aclose()
        await connection.close()
        await server.stop(0)
        assert kept < 1_000_000

    asyncio.run(main())
