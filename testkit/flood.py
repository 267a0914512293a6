"""Floods of hostile messages to live services, over the wire, as a foreign client sends them."""

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple, get_args

import grpc
import grpc.aio

from testkit.mutations import Pool, broken, make
from weft.model.errors import InputError
from weft.model.ids import ContainerId, NodeId
from weft.protocol import messages, requests
from weft.wire import channel, codec
from weft.wire.client_pb2_grpc import ResourceManagerClientStub
from weft.wire.containers_pb2_grpc import ContainerManagerStub
from weft.wire.host_pb2_grpc import MasterHostStub
from weft.wire.master_pb2_grpc import ApplicationMasterProtocolStub
from weft.wire.tokens import Shown
from weft.wire.tracker_pb2_grpc import NodeTrackerStub

# The codec and protobuf raise these for a value that the wire has not.
_UNSENDABLE = (InputError, ValueError, TypeError, OverflowError)
_BATCH = 20
_STREAM_READ_WAIT_S = 120.0
NODE_WORDS, MASTER_WORDS = get_args(messages.FromNode), get_args(messages.FromMaster)


class Badges(NamedTuple):
    """Tokens that a hostile peer has: without them little gets beyond the question whose it is.

    A master or node shows `stream` at the start of each stream.
    """

    stream: tuple[bytes, ...] = ()
    containers: Callable[[NodeId, Iterable[ContainerId]], Iterable[bytes]] = lambda *_: ()


async def flood(
    service: str,
    address: str,
    rng: random.Random,
    pool: Pool,
    count: int,
    badges: Badges = Badges(),  # noqa: B008 - it is never changed
) -> int:
    """Send about so many messages to `tracker`, `master`, `client`, `node` or `am host`."""
    dialled = channel.dial(address)
    try:
        if service == "tracker":
            words = _hostile(NODE_WORDS, rng, pool, count)
            track = NodeTrackerStub(dialled).Track
            return await _streams(track, codec.encode_node_reports, words, badges.stream)
        if service == "master":
            words = _hostile(MASTER_WORDS, rng, pool, count)
            allocate = ApplicationMasterProtocolStub(dialled).Allocate
            return await _streams(allocate, codec.encode_master_reports, words, badges.stream)
        if service == "am host":
            words = _hostile((messages.MasterLaunch,), rng, pool, count)
            return await _streams(MasterHostStub(dialled).HostMasters, _encode_host, words)
        if service == "client":
            return await _all(_client_calls(dialled, rng, pool, count))
        return await _all(_node_calls(dialled, rng, pool, count, badges))
    finally:
        await dialled.close()


def _hostile(kinds: tuple[type, ...], rng: random.Random, pool: Pool, count: int) -> Iterator[Any]:
    for _ in range(count):
        message = make(rng.choice(kinds), rng, pool)
        yield broken(message, rng, pool) if rng.random() < 0.8 else message


def _encode_host(batch: list[Any]) -> Any:
    return codec.encode_launches(batch, [message.container_id for message in batch[:3]])


async def _streams(
    open_: Callable[[], Any],
    encode: Callable[[list[Any]], Any],
    words: Iterator[Any],
    shown: tuple[bytes, ...] = (),
) -> int:
    """Send batches over a stream, which is opened again when the service closes it."""
    sent, over = 0, False
    while not over:
        call = open_()
        reader = asyncio.create_task(_drain(call))
        try:
            if shown:
                await call.write(encode([Shown(shown)]))
            for _ in range(200):
                batch: list[Any] = []
                for message in words:
                    with contextlib.suppress(*_UNSENDABLE):
                        encode([message])
                        batch.append(message)
                    if len(batch) == _BATCH:
                        break
                if not batch:
                    over = True
                    break
                sent += len(batch)
                await call.write(encode(batch))
            await call.done_writing()
            # The service ends the stream once it has read everything.
            await asyncio.wait_for(reader, _STREAM_READ_WAIT_S)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            pass
        finally:
            call.cancel()
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
    return sent


async def _drain(call: Any) -> None:
    with contextlib.suppress(grpc.aio.AioRpcError):
        while (await call.read()) is not grpc.aio.EOF:
            pass


# A call is a method with its request.
_Calls = Iterator[tuple[Any, Any]]


def _client_calls(dialled: Any, rng: random.Random, pool: Pool, count: int) -> _Calls:
    stub = ResourceManagerClientStub(dialled)
    for message in _hostile(tuple(codec.CALLS), rng, pool, count):
        row = codec.CALLS[type(message)]
        try:
            request = row.encode_request(message)
        except _UNSENDABLE:
            continue
        if type(message) is requests.SubmitApplication and rng.random() < 0.7:
            request.job_json = _scratched(request.job_json, rng)
        yield getattr(stub, row.method), request


def _node_calls(dialled: Any, rng: random.Random, pool: Pool, count: int, badges: Badges) -> _Calls:
    stub = ContainerManagerStub(dialled)
    ways: dict[type, tuple[Any, Any]] = {
        messages.StartContainers: (stub.StartContainers, codec.encode_starts),
        messages.StopContainers: (stub.StopContainers, codec.encode_containers),
        messages.QueryContainers: (stub.GetContainerStatuses, codec.encode_containers),
    }
    for message in _hostile(tuple(ways), rng, pool, count):
        method, encode = ways[type(message)]
        with contextlib.suppress(*_UNSENDABLE):
            yield method, encode("fuzz", [message], partial(badges.containers, message.node_id))


async def _all(calls: _Calls) -> int:
    """Make the calls, some dozens at a time."""
    sent = 0
    waiting: set[asyncio.Task[None]] = set()
    for method, request in calls:
        sent += 1
        waiting.add(asyncio.create_task(_call(method, request)))
        if len(waiting) >= 50:
            _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    if waiting:
        await asyncio.wait(waiting)
    return sent


async def _call(method: Any, request: Any) -> None:
    with contextlib.suppress(grpc.aio.AioRpcError):
        await method(request, timeout=60)


def _scratched(data: bytes, rng: random.Random) -> bytes:
    """Return a job's text with a few bytes changed, or a strange value in it."""
    if rng.random() < 0.5:
        strange = rng.choice((b"1e308", b"null", b"-1", b"NaN", b"9" * 5000, b'"\\ud800"', b"[]"))
        parts = data.split(b":")
        at = rng.randrange(1, len(parts)) if len(parts) > 1 else 0
        _, comma, tail = parts[at].partition(b",")
        parts[at] = strange + (comma + tail if comma else b"}")
        return b":".join(parts)
    scratched = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        scratched[rng.randrange(len(scratched))] = rng.randrange(256)
    return bytes(scratched)
