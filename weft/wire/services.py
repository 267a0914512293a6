"""The servicers: protobuf on the outside, messages on the inside.

A service of a role gives functions over messages; nothing here decides anything.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, Protocol

import grpc
import grpc.aio

from weft.model.errors import InputError, WeftError
from weft.protocol.access import Caller
from weft.protocol.messages import ItemAnswer, StartAnswered, StartContainers
from weft.protocol.requests import ClientRequest, ContainerReport, ListContainers, Refused
from weft.wire import (
    auth,
    client_pb2,
    client_pb2_grpc,
    codec,
    containers_pb2,
    containers_pb2_grpc,
    host_pb2_grpc,
    master_pb2_grpc,
    rules,
    tracker_pb2_grpc,
)
from weft.wire import channel as wire
from weft.wire.codec import CodecError
from weft.wire.joining import joined
from weft.wire.outbound_queues import Lane, serve
from weft.wire.server import Server
from weft.wire.starts import answering
from weft.wire.tokens import TimeTold
from weft.wire.validator import Gate

Ask = Callable[[ClientRequest, Caller], Awaitable[Any]]
Watch = Callable[[int], AsyncIterator[tuple[int, list[str]]]]
# The next batch waits for what this returns.
OnBatch = Callable[[Lane, Any], Awaitable[None] | None]
OnClosed = Callable[[Lane], None]
# It returns the cluster's start, ms, and the life of its manager.
Stamp = Callable[[], tuple[int, int]]
# A master hears that a task begins at most so much cluster time later, and at most BEGUN_S_MAX on
# the wall clock, as masters drop a stream that is silent.
BEGUN_S = 0.05
BEGUN_S_MAX = 1.0
_STATUS = {code.name.lower(): code for code in grpc.StatusCode}
# A refusal travels in the trailers, of which gRPC takes 8 KiB (a byte of details may become three,
# the others in base64 four of three); whoever asked would be told of the trailers else.
_PLACE_BYTES, _TEXT_BYTES, _DETAILS_BYTES = 500, 2_000, 1_000
_MORE = b" ..."


def add_client_service(
    server: Server,
    ask: Ask,
    watch: Watch,
    gate: Gate | None = None,
    leave: Callable[[Sequence[ContainerReport]], Sequence[bytes]] = lambda reports: (),
) -> None:
    """Serve ResourceManagerClient: `ask` answers requests, `watch` numbered lines of JSON.

    `leave` gives the tokens by which the logs of reported containers are read.
    """
    gate = gate or Gate()

    def method(kind: type, row: codec.Call) -> Callable[[Any, Any], Awaitable[Any]]:
        async def answer(message: Any, context: Any) -> Any:
            try:
                request = row.decode_request(message)
                rules.check(request, 0)
            except InputError as error:
                gate.refuse(kind.__name__, context.peer(), error)
                await _refuse(context, Refused("invalid_argument", error.place, error.problem))
                return None
            try:
                got = await ask(request, auth.peer().caller)
            except InputError as error:
                got = Refused("invalid_argument", error.place, error.problem)
            except WeftError as error:
                # Whoever has to answer is not there, which the caller may wait for.
                await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
            if isinstance(got, Refused):
                if got.code == "permission_denied":
                    gate.refuse(kind.__name__, context.peer(), InputError(got.place, got.problem))
                await _refuse(context, got)
            try:
                message = got if isinstance(got, bytes) else row.encode_answer(got)
                if kind is ListContainers:
                    message.tokens.extend(leave(got.items))
                wire.check_size(message, row.method, wire.MESSAGE_BYTES_MAX)
                return message
            except InputError as error:
                problem = f"the answer does not fit one message: {error.problem}"
                await _refuse(context, Refused("resource_exhausted", row.method, problem))
            except ValueError as error:
                # Protobuf takes no such value, which is a bug of Weft.
                problem = f"the answer cannot be written: {error}"
                await _refuse(context, Refused("internal", "", problem))

        return answer

    async def watch_events(request: Any, context: Any) -> None:
        if problem := rules.id_problem(request.after):
            gate.refuse("WatchEvents", context.peer(), InputError("after", problem))
            await _refuse(context, Refused("invalid_argument", "after", problem))
        try:
            async for first, lines in watch(request.after):
                await context.write(client_pb2.Events(json=lines, first=first))
        except InputError as error:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, error.problem)

    methods: dict[str, Any] = {row.method: method(kind, row) for kind, row in codec.CALLS.items()}
    servicer = SimpleNamespace(**methods, WatchEvents=watch_events)
    add = client_pb2_grpc.add_ResourceManagerClientServicer_to_server
    server.add(add, servicer, "weft.ResourceManagerClient")


async def _refuse(context: Any, refused: Refused) -> None:
    place, problem = _bounded(refused.place, _PLACE_BYTES), _bounded(refused.problem, _TEXT_BYTES)
    metadata = ((wire.PLACE_KEY, place), (wire.PROBLEM_KEY, problem))
    text = f"{refused.place}: {refused.problem}" if refused.place else refused.problem
    details = _bounded(text, _DETAILS_BYTES).decode()
    status = _STATUS.get(refused.code, grpc.StatusCode.UNKNOWN)
    await context.abort(status, details, metadata)


def _bounded(text: str, most: int) -> bytes:
    """Return a text in UTF-8, of so many bytes at most."""
    data = text.encode("utf-8", "replace")
    if len(data) <= most:
        return data
    cut = data[: most - len(_MORE)].decode("utf-8", "ignore")
    return cut.encode() + _MORE


def _unknown() -> tuple[int, int]:
    return 0, 0


def add_tracker_service(
    server: Server,
    on_batch: OnBatch,
    on_closed: OnClosed,
    gate: Gate | None = None,
    stamp: Stamp = _unknown,
) -> None:
    """Serve NodeTracker: every stream has a lane back, and every batch says whose it is."""
    gate = gate or Gate()

    async def track(_: Any, context: Any) -> None:
        def decode(batch: Any) -> Any:
            return codec.decode_node_reports(batch, refused)

        def encode(orders: list[Any]) -> Any:
            batch = codec.encode_node_orders([TimeTold(time.time()), *joined(orders)])
            batch.cluster_ts, batch.life = stamp()
            return batch

        refused = _refuser(gate, "TrackerReport", context)
        await _stream(context, encode, decode, on_batch, on_closed)

    add = tracker_pb2_grpc.add_NodeTrackerServicer_to_server
    server.add(add, SimpleNamespace(Track=track), "weft.NodeTracker")


def add_master_service(
    server: Server,
    on_batch: OnBatch,
    on_closed: OnClosed,
    gate: Gate | None = None,
    stamp: Stamp = _unknown,
) -> None:
    """Serve ApplicationMasterProtocol: every stream has a lane back, every batch says whose."""
    gate = gate or Gate()

    async def allocate(_: Any, context: Any) -> None:
        def decode(batch: Any) -> Any:
            return codec.decode_master_reports(batch, refused)

        def encode(orders: list[Any]) -> Any:
            batch = codec.encode_master_orders(orders)
            batch.cluster_ts, batch.life = stamp()
            return batch

        refused = _refuser(gate, "MasterReport", context)
        await _stream(context, encode, decode, on_batch, on_closed)

    add = master_pb2_grpc.add_ApplicationMasterProtocolServicer_to_server
    server.add(add, SimpleNamespace(Allocate=allocate), "weft.ApplicationMasterProtocol")


def add_host_service(server: Server, on_batch: OnBatch, on_closed: OnClosed) -> None:
    """Serve MasterHost: batches are (masters to start, containers to kill); the lane takes ends."""

    async def host(_: Any, context: Any) -> None:
        await _stream(context, codec.encode_ends, codec.decode_launches, on_batch, on_closed)

    add = host_pb2_grpc.add_MasterHostServicer_to_server
    server.add(add, SimpleNamespace(HostMasters=host), "weft.MasterHost")


def _refuser(gate: Gate, message: str, context: Any) -> Callable[[Exception], None]:
    """Return what is told of a message that was not understood."""
    return lambda error: gate.refuse(message, context.peer(), error)


async def _stream(
    context: Any,
    encode: Callable[[Any], Any],
    decode: Callable[[Any], Any],
    on_batch: OnBatch,
    on_closed: OnClosed,
) -> None:
    lane = Lane(peer=context.peer(), who=auth.peer())
    await context.send_initial_metadata(((wire.SERVES_KEY, "1"),))
    try:
        await serve(context, lane, encode, decode, lambda batch: on_batch(lane, batch))
    finally:
        on_closed(lane)


class Containers(Protocol):
    """What a node manager gives ContainerManager to serve."""

    async def carry_out(
        self, follower: str, orders: list[Any], shown: Sequence[bytes], peer: str
    ) -> list[Any]:
        """Hand orders to their nodes; returns what the nodes answer.

        `shown` are tokens of containers: what is ordered of others is refused.
        """
        ...

    def follow(self, follower: str, lane: Lane) -> None:
        """Send what happens in the follower's containers to a lane, until it is closed."""
        ...

    def read_log(
        self, node: str, container: int, stream: str, skip: int
    ) -> AsyncIterator[tuple[bytes, int]]:
        """Yield what a container wrote after `skip` bytes, each with the number to skip next.

        Raises InputError for no log.
        """
        ...

    def may_read(self, node: str, container: int, token: bytes) -> str:
        """Return why a token is no leave to read what a container wrote; empty: it is."""
        ...


def _refused_order(order: Any, error: InputError) -> StartAnswered:
    """Return the answer to an order that was refused: an error for each of its items."""
    text = f"refused: {error}"
    items = (
        [ItemAnswer(item.container_id, item.stage, item.task, text) for item in order.items]
        if (isinstance(order, StartContainers))
        else [ItemAnswer(container, error=text) for container in order.containers]
    )
    return StartAnswered(order.node_id, order.attempt_id, tuple(items))


def begun_within_s(wall_s: Callable[[float], float]) -> float:
    """Return how long a stream of starts may be silent of tasks that begin, s of wall clock.

    `wall_s` tells how long a time on the cluster's clock lasts.
    """
    return min(BEGUN_S_MAX, wall_s(BEGUN_S))


def add_container_service(
    server: Server, containers: Containers, gate: Gate | None = None, within_s: float = 0.0
) -> None:
    """Serve ContainerManager. An order that breaks a rule is answered with an error per item.

    `within_s`: what a stream is told of tasks that begin waits so long for more of it.
    """
    gate = gate or Gate()

    async def carry_out(request: Any, context: Any, decode: Callable[[Any], list[Any]]) -> Any:
        peer = context.peer()
        try:
            orders = decode(request)
            problem = rules.name_problem(request.follower)
        except (CodecError, InputError) as error:
            problem = str(error)
            orders = []
        if problem:
            gate.refuse(type(request).__name__, peer, InputError("", problem))
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, problem)
        good, answers = [], []
        for order in orders:
            try:
                rules.check(order, 0)
                good.append(order)
            except InputError as error:
                gate.refuse(type(order).__name__, peer, error)
                answers.append(_refused_order(order, error))
        answers.extend(await containers.carry_out(request.follower, good, request.tokens, peer))
        return codec.encode_answers(answers)

    start = partial(carry_out, decode=codec.decode_starts)
    stop = partial(carry_out, decode=codec.decode_stops)
    query = partial(carry_out, decode=codec.decode_queries)

    async def follow(request: Any, context: Any) -> None:
        if problem := rules.name_problem(request.follower):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, problem)
        lane = Lane()
        containers.follow(request.follower, lane)
        try:
            await lane.pump(context.write, codec.encode_answers)
        finally:
            lane.close()

    async def read_log(request: Any, context: Any) -> None:
        if auth.peer().is_user:
            problem = containers.may_read(request.node_id, request.container_id, request.token)
            if problem:
                gate.refuse("ReadLogRequest", context.peer(), InputError("token", problem))
                await context.abort(grpc.StatusCode.PERMISSION_DENIED, problem)
        try:
            async for data, end in containers.read_log(
                request.node_id, request.container_id, request.stream, max(0, request.offset)
            ):
                await context.write(containers_pb2.LogChunk(data=data, end=end))
        except InputError as error:
            await context.abort(grpc.StatusCode.NOT_FOUND, str(error))

    servicer = SimpleNamespace(
        StartContainers=start,
        StreamStarts=answering(start, within_s),
        StopContainers=stop,
        GetContainerStatuses=query,
        FollowTasks=follow,
        ReadLog=read_log,
    )
    add = containers_pb2_grpc.add_ContainerManagerServicer_to_server
    server.add(add, servicer, "weft.ContainerManager")
