"""The servicers: protobuf on the outside, messages on the inside.

A service of a role gives functions over messages; nothing here decides anything.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from types import SimpleNamespace
from typing import Any, Protocol

import grpc
import grpc.aio

from weft.errors import InputError
from weft.requests import ClientRequest, Refused
from weft.wire import channel as wire
from weft.wire import (
    client_pb2,
    client_pb2_grpc,
    codec,
    containers_pb2,
    containers_pb2_grpc,
    host_pb2_grpc,
    master_pb2_grpc,
    tracker_pb2_grpc,
)
from weft.wire.lanes import Lane, serve
from weft.wire.server import Server

Ask = Callable[[ClientRequest], Awaitable[Any]]
Watch = Callable[[int], AsyncIterator[tuple[int, list[str]]]]
OnBatch = Callable[[Lane, Any], None]
OnClosed = Callable[[Lane], None]
_STATUS = {code.name.lower(): code for code in grpc.StatusCode}


def add_client_service(server: Server, ask: Ask, watch: Watch) -> None:
    """Serve ResourceManagerClient: `ask` answers requests, `watch` numbered lines of JSON."""

    def method(row: codec.Call) -> Callable[[Any, Any], Awaitable[Any]]:
        async def answer(message: Any, context: Any) -> Any:
            try:
                got = await ask(row.decode_request(message))
            except InputError as error:
                got = Refused("invalid_argument", error.place, error.problem)
            if isinstance(got, Refused):
                await _refuse(context, got)
            return row.encode_answer(got)

        return answer

    async def watch_events(request: Any, context: Any) -> None:
        async for first, lines in watch(request.after):
            await context.write(client_pb2.Events(json=lines, first=first))

    methods: dict[str, Any] = {row.method: method(row) for row in codec.CALLS.values()}
    servicer = SimpleNamespace(**methods, WatchEvents=watch_events)
    add = client_pb2_grpc.add_ResourceManagerClientServicer_to_server
    server.add(add, servicer, "weft.ResourceManagerClient")


async def _refuse(context: Any, refused: Refused) -> None:
    metadata = (
        (wire.PLACE_KEY, refused.place.encode("utf-8", "replace")),
        (wire.PROBLEM_KEY, refused.problem.encode("utf-8", "replace")),
    )
    details = f"{refused.place}: {refused.problem}" if refused.place else refused.problem
    status = _STATUS.get(refused.code, grpc.StatusCode.UNKNOWN)
    await context.abort(status, details, metadata)


def add_tracker_service(server: Server, on_batch: OnBatch, on_closed: OnClosed) -> None:
    """Serve NodeTracker: every stream has a lane back."""

    async def track(_: Any, context: Any) -> None:
        await _stream(
            context, codec.encode_node_orders, codec.decode_node_reports, on_batch, on_closed
        )

    add = tracker_pb2_grpc.add_NodeTrackerServicer_to_server
    server.add(add, SimpleNamespace(Track=track), "weft.NodeTracker")


def add_master_service(server: Server, on_batch: OnBatch, on_closed: OnClosed) -> None:
    """Serve ApplicationMasterProtocol: every stream has a lane back."""

    async def allocate(_: Any, context: Any) -> None:
        await _stream(
            context, codec.encode_master_orders, codec.decode_master_reports, on_batch, on_closed
        )

    add = master_pb2_grpc.add_ApplicationMasterProtocolServicer_to_server
    server.add(add, SimpleNamespace(Allocate=allocate), "weft.ApplicationMasterProtocol")


def add_host_service(server: Server, on_batch: OnBatch, on_closed: OnClosed) -> None:
    """Serve MasterHost: batches are (masters to start, containers to kill); the lane takes ends."""

    async def host(_: Any, context: Any) -> None:
        await _stream(context, codec.encode_ends, codec.decode_launches, on_batch, on_closed)

    add = host_pb2_grpc.add_MasterHostServicer_to_server
    server.add(add, SimpleNamespace(HostMasters=host), "weft.MasterHost")


async def _stream(
    context: Any,
    encode: Callable[[Any], Any],
    decode: Callable[[Any], Any],
    on_batch: OnBatch,
    on_closed: OnClosed,
) -> None:
    lane = Lane()
    try:
        await serve(context, lane, encode, decode, lambda batch: on_batch(lane, batch))
    finally:
        on_closed(lane)


class Containers(Protocol):
    """What a node manager gives ContainerManager to serve."""

    async def carry_out(self, follower: str, orders: list[Any]) -> list[Any]:
        """Hand orders to their nodes; returns what the nodes answer."""
        ...

    def follow(self, follower: str, lane: Lane) -> None:
        """Send what happens in the follower's containers to a lane, until it is closed."""
        ...

    def read_log(self, node: str, container: int, stream: str, skip: int) -> AsyncIterator[bytes]:
        """What a container wrote after `skip` bytes; raises InputError if there is no such log."""
        ...


def add_container_service(server: Server, containers: Containers) -> None:
    """Serve ContainerManager."""

    async def carry_out(follower: str, orders: list[Any]) -> Any:
        return codec.encode_answers(await containers.carry_out(follower, orders))

    async def start(request: Any, context: Any) -> Any:
        return await carry_out(request.follower, codec.decode_starts(request))

    async def stop(request: Any, context: Any) -> Any:
        return await carry_out(request.follower, list(codec.decode_stops(request)))

    async def query(request: Any, context: Any) -> Any:
        return await carry_out(request.follower, list(codec.decode_queries(request)))

    async def follow(request: Any, context: Any) -> None:
        lane = Lane()
        containers.follow(request.follower, lane)
        try:
            await lane.pump(context.write, codec.encode_answers)
        finally:
            lane.close()

    async def read_log(request: Any, context: Any) -> None:
        try:
            async for data in containers.read_log(
                request.node_id, request.container_id, request.stream, max(0, request.offset)
            ):
                await context.write(containers_pb2.LogChunk(data=data))
        except InputError as error:
            await context.abort(grpc.StatusCode.NOT_FOUND, str(error))

    servicer = SimpleNamespace(
        StartContainers=start,
        StopContainers=stop,
        GetContainerStatuses=query,
        FollowTasks=follow,
        ReadLog=read_log,
    )
    add = containers_pb2_grpc.add_ContainerManagerServicer_to_server
    server.add(add, servicer, "weft.ContainerManager")
