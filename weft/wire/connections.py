"""Connections of an Application Master process: to the Resource Manager, and to node managers.

A link to a node manager process makes one bulk request of each kind at a time and collects what
comes meanwhile, so that requests grow with the load. Starts go over one stream, the rest in calls.
What a request could not deliver is gone: the masters repeat it.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import grpc
import grpc.aio

from weft.model.errors import WeftError
from weft.protocol.messages import StartContainers, StopContainers
from weft.wire import channel as wire
from weft.wire import codec
from weft.wire.addresses import Newest
from weft.wire.containers_pb2 import ContainersResponse, FollowTasksRequest
from weft.wire.containers_pb2_grpc import ContainerManagerStub
from weft.wire.host_pb2_grpc import MasterHostStub
from weft.wire.master_pb2_grpc import ApplicationMasterProtocolStub
from weft.wire.outbound_queues import Greeting, Lane, OnDrop, Stream, cancel, parts
from weft.wire.starts import Starts
from weft.wire.tracker_pb2_grpc import NodeTrackerStub

DEADLINE_S = 10.0
OnBatch = Callable[[Any], None]
OnState = Callable[[bool, str], None]


def tracker_stream(
    address: str,
    on_batch: OnBatch,
    on_state: OnState | None = None,
    on_drop: OnDrop | None = None,
    greeting: Greeting | None = None,
) -> Stream:
    """Return the stream Node Manager -> Resource Manager; `on_batch` gets messages to nodes."""
    dialled = wire.Dialled(address, NodeTrackerStub)
    return Stream(
        lambda: dialled.stub.Track(),  # noqa: PLW0108 - the stub may be another by then
        codec.encode_node_reports,
        _of_the_newest(codec.decode_node_orders),
        on_batch,
        on_state,
        on_drop,
        greeting,
        dialled,
    )


def master_stream(
    address: str,
    on_batch: OnBatch,
    on_state: OnState | None = None,
    on_drop: OnDrop | None = None,
    greeting: Greeting | None = None,
) -> Stream:
    """Return the stream Application Master -> Resource Manager; `on_batch` gets the answers."""
    dialled = wire.Dialled(address, ApplicationMasterProtocolStub)
    return Stream(
        lambda: dialled.stub.Allocate(),  # noqa: PLW0108
        codec.encode_master_reports,
        _of_the_newest(codec.decode_master_orders),
        on_batch,
        on_state,
        on_drop,
        greeting,
        dialled,
    )


def _of_the_newest(decode: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Decode what a manager says, and break with one that was replaced by another since."""
    newest = Newest()

    def decoded(batch: Any) -> Any:
        if not newest.counts(batch.cluster_ts, batch.life):
            raise WeftError(f"life {batch.life} of the manager is over, {newest.life} goes on")
        return decode(batch)

    return decoded


def host_stream(address: str, on_batch: OnBatch, on_state: OnState) -> Stream:
    """Return the stream Node Manager -> AM host, of (launch, kill, tokens); back: ended masters."""

    def encode(orders: list[Any]) -> Any:
        return codec.encode_launches(
            [item for launch, _, _ in orders for item in launch],
            [container for _, kill, _ in orders for container in kill],
            [token for _, _, tokens in orders for token in tokens],
        )

    dialled = wire.Dialled(address, MasterHostStub)
    return Stream(
        lambda: dialled.stub.HostMasters(),  # noqa: PLW0108
        encode,
        codec.decode_ends,
        on_batch,
        on_state,
    )


class NodeLink:
    """Bulk requests to one node manager process, and what it tells on its own."""

    def __init__(
        self,
        address: str,
        follower: str,
        on_batch: OnBatch,
        on_drop: OnDrop,
        tokens: codec.TokensOf = codec.no_tokens,
    ) -> None:
        """`tokens` finds those of containers."""
        self.address = address
        self._tokens = tokens
        self._follower = follower
        self._on_batch = on_batch
        self._on_drop = on_drop
        self._busy = 0
        self._down_since_s: float | None = None
        self._dialled = wire.Dialled(address, ContainerManagerStub)
        self._starts = Starts(self._dialled, DEADLINE_S, self._take, on_drop)
        ways: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
            "start": (self._starts.send, codec.encode_starts),
            "stop": (partial(self._call, "StopContainers"), codec.encode_containers),
            "query": (partial(self._call, "GetContainerStatuses"), codec.encode_containers),
        }
        self._lanes = {kind: Lane(on_drop) for kind in ways}
        self._tasks = [
            asyncio.create_task(self._serve(self._lanes[kind], *way)) for kind, way in ways.items()
        ]
        self._tasks.append(asyncio.create_task(self._follow()))

    @property
    def down_s(self) -> float:
        """Time for which the node manager could not be reached, s of wall clock; 0: it can be."""
        since_s = self._down_since_s
        return 0.0 if since_s is None else asyncio.get_running_loop().time() - since_s

    def send(self, messages: Sequence[Any]) -> None:
        """Queue StartContainers, StopContainers and QueryContainers."""
        for message in messages:
            kind = "start" if isinstance(message, StartContainers) else "query"
            if isinstance(message, StopContainers):
                kind = "stop"
            self._lanes[kind].send((message,))

    @property
    def idle(self) -> bool:
        """Whether nothing waits and no call is under way."""
        waiting = any(lane.waiting for lane in self._lanes.values())
        return not (self._busy or waiting) and self._starts.idle

    async def close(self) -> None:
        """End the calls and the channel."""
        for task in self._tasks:
            await cancel(task)
        await self._starts.close()
        await self._dialled.close()

    async def _serve(
        self, lane: Lane, send: Callable[..., Any], encode: Callable[..., Any]
    ) -> None:
        while True:
            batch = await lane.take()
            self._busy += 1
            try:
                made = partial(encode, self._follower, tokens=self._tokens)
                for part, request in parts(batch, made, wire.REQUEST_BYTES_MAX):
                    if request is None:
                        self._on_drop(len(part))
                    else:
                        await send(request, len(part))
            finally:
                self._busy -= 1

    async def _call(self, method: str, request: Any, count: int) -> None:
        try:
            self._take(await getattr(self._dialled.stub, method)(request, timeout=DEADLINE_S))
        except (grpc.aio.AioRpcError, codec.CodecError):
            self._on_drop(count)

    def _take(self, response: ContainersResponse) -> None:
        self._on_batch(codec.decode_answers(response))

    async def _follow(self) -> None:
        """Follow ends of tasks inside reusable containers, over a stream that is dialled again."""
        waits = wire.backoffs()
        while True:
            call = self._dialled.stub.FollowTasks(FollowTasksRequest(follower=self._follower))
            with contextlib.suppress(grpc.aio.AioRpcError, codec.CodecError):
                await call.wait_for_connection()
                self._down_since_s = None
                while isinstance(batch := await call.read(), ContainersResponse):
                    self._on_batch(codec.decode_answers(batch))
                    waits = wire.backoffs()
            call.cancel()
            if self._down_since_s is None:
                self._down_since_s = asyncio.get_running_loop().time()
            await asyncio.sleep(next(waits))
