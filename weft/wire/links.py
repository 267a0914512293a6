"""Connections of an Application Master process: to the Resource Manager, and to node managers.

A link to a node manager process keeps one bulk request of each kind in flight and collects what
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

from weft.errors import WeftError
from weft.messages import StartContainers, StopContainers
from weft.wire import channel as wire
from weft.wire import codec
from weft.wire.containers_pb2 import ContainersResponse, FollowTasksRequest
from weft.wire.containers_pb2_grpc import ContainerManagerStub
from weft.wire.host_pb2_grpc import MasterHostStub
from weft.wire.lanes import Greeting, Lane, OnDrop, Stream, broken, cancel, check, parts
from weft.wire.master_pb2_grpc import ApplicationMasterProtocolStub
from weft.wire.places import Newest
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


class _Starts:
    """Requests to start tasks, one at a time over a stream that is opened again where it broke.

    A node manager that serves no such stream, as one of an earlier release, is called instead.
    """

    def __init__(self, dialled: "wire.Dialled[Any]") -> None:
        self._dialled = dialled
        self._stub: Any = None  # by which the stream was opened: another one needs another stream
        self._stream: Any = None
        self._calls = False

    async def __call__(self, request: Any, timeout: float) -> Any:
        """Return the answer to a request; raises AioRpcError, also where none came in time, s."""
        stub = self._dialled.stub
        if self._calls:
            return await stub.StartContainers(request, timeout=timeout)
        if self._stream is None or self._stub is not stub or self._stream.done():
            self.close()
            self._stub, self._stream = stub, stub.StreamStarts()
        stream = self._stream
        timer = asyncio.get_running_loop().call_later(timeout, stream.cancel)
        try:
            return await self._answer(stream, request)
        except BaseException as error:
            self.close()
            unknown = grpc.StatusCode.UNIMPLEMENTED
            if isinstance(error, grpc.aio.AioRpcError) and error.code() is unknown:
                self._calls = True
                return await stub.StartContainers(request, timeout=timeout)
            raise
        finally:
            timer.cancel()

    async def _answer(self, stream: Any, request: Any) -> Any:
        try:
            await stream.write(request)
            if (answer := await stream.read()) is not grpc.aio.EOF:
                return answer
        except asyncio.InvalidStateError:
            pass  # it is over, and its status says why
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise  # else it was the stream, for no answer came
        await check(stream)
        raise broken(grpc.StatusCode.UNAVAILABLE, "closed by the server", None)

    def close(self) -> None:
        """End the stream; the next request opens another."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.cancel()


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
        self._starts = _Starts(self._dialled)
        ways: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
            "start": (self._starts, codec.encode_starts),
            "stop": (partial(self._ask, "StopContainers"), codec.encode_containers),
            "query": (partial(self._ask, "GetContainerStatuses"), codec.encode_containers),
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
        return not self._busy and not any(lane.waiting for lane in self._lanes.values())

    async def close(self) -> None:
        """End the calls and the channel."""
        for task in self._tasks:
            await cancel(task)
        self._starts.close()
        await self._dialled.close()

    async def _serve(self, lane: Lane, ask: Callable[..., Any], encode: Callable[..., Any]) -> None:
        while True:
            batch = await lane.take()
            self._busy += 1
            try:
                made = partial(encode, self._follower, tokens=self._tokens)
                for part, request in parts(batch, made):
                    await self._call(ask, request, len(part))
            finally:
                self._busy -= 1

    async def _ask(self, method: str, request: Any, timeout: float) -> Any:
        return await getattr(self._dialled.stub, method)(request, timeout=timeout)

    async def _call(self, ask: Callable[..., Any], request: Any, count: int) -> None:
        if request is None:
            self._on_drop(count)
            return
        try:
            response = await ask(request, timeout=DEADLINE_S)
            self._on_batch(codec.decode_answers(response))
        except (grpc.aio.AioRpcError, codec.CodecError):
            self._on_drop(count)

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
