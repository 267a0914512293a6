"""The stream of starts: what is ordered of a node manager process, and its answers; both ends.

A message costs its two ends more than what it says. So an answer that only says that tasks begin
waits for company, and nobody waits for it: the end of a task says as much. What else there is to
say leaves at once, with all that waits.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import grpc
import grpc.aio

from weft.wire.channel import Dialled
from weft.wire.containers_pb2 import ContainersResponse, StartContainersRequest
from weft.wire.outbound_queues import Lane, OnDrop, cancel
from weft.wire.schema import CodecError

Answer = Callable[[StartContainersRequest, Any], Awaitable[ContainersResponse]]
OnAnswer = Callable[[ContainersResponse], None]
# What comes waits while so many requests of a stream, or messages in them, were not answered.
UNANSWERED_REQUESTS_MAX, UNANSWERED_ORDERS_MAX = 1_000, 4_000
# Answers to so many orders are sent at once.
GATHERED_ORDERS_MAX = 500
# So many answers may wait while one is written.
QUEUED_ANSWERS_MAX = 16


def only_begins(request: StartContainersRequest, answer: ContainersResponse) -> bool:
    """Return whether an answer says no more than that tasks begin, each in its own container.

    One that serves several tasks takes no other before its master knows of it.
    """
    if answer.ended or any(item.error for one in answer.answers for item in one.items):
        return False
    return not any(item.reusable for start in request.starts for item in start.items)


def merged(answers: list[ContainersResponse]) -> ContainersResponse:
    """Return several answers as one."""
    if len(answers) == 1:
        return answers[0]
    whole = ContainersResponse()
    for answer in answers:
        whole.MergeFrom(answer)
    whole.requests = sum(answer.requests for answer in answers)
    return whole


def answering(answer: Answer, within_s: float) -> Any:
    """Return what serves a stream of starts; that tasks begin is told within `within_s`."""

    async def serve(_: Any, context: Any) -> None:
        lane = Lane()
        writer = asyncio.create_task(lane.pump(context.write, merged))
        told = partial(_told, lane, writer)
        checked = _Checked(context, told)
        # These are orders whose answers wait, or left since without being counted.
        unsent_orders = 0
        try:
            while (request := await context.read()) is not grpc.aio.EOF:
                response = await answer(request, checked)
                response.requests = 1
                unsent_orders += len(request.starts)
                waits = unsent_orders < GATHERED_ORDERS_MAX and only_begins(request, response)
                unsent_orders = unsent_orders if waits else 0
                lane.send((response,), within_s if waits else 0.0)
                if lane.writing and lane.waiting > QUEUED_ANSWERS_MAX:
                    # Nothing more is read from a peer that does not read.
                    await told()
            # A peer that orders no more may still read the answers.
            await told()
        except Exception:
            # A call that still writes cannot end with a status.
            await told()
            raise
        finally:
            lane.close()
            await cancel(writer)

    return serve


class _Checked:
    """A stream's context for what answers one request: an abort waits for the answers before it."""

    __slots__ = ("_context", "_told", "peer")

    def __init__(self, context: Any, told: Callable[[], Awaitable[None]]) -> None:
        self._context = context
        self._told = told
        self.peer = context.peer

    async def abort(self, code: grpc.StatusCode, details: str) -> None:
        """End the stream with a status."""
        await self._told()
        await self._context.abort(code, details)


async def _told(lane: Lane, writer: asyncio.Task[None]) -> None:
    """Let a lane's messages leave, and wait until they have, or cannot."""
    lane.send(())
    while (lane.waiting or lane.writing) and not writer.done():
        await asyncio.sleep(0.01)


class _Stream:
    """A stream of starts, with the requests that were not answered: the oldest is the first."""

    __slots__ = ("_deadline_s", "_timer", "call", "orders", "owed", "reader", "room", "stub")

    def __init__(self, stub: Any, deadline_s: float) -> None:
        self.stub = stub
        self.call = stub.StreamStarts()
        # Each request comes with its number of messages.
        self.owed: deque[tuple[StartContainersRequest, int]] = deque()
        self.orders = 0
        # It is set when the stream may be written to, or is over.
        self.room = asyncio.Event()
        self.room.set()
        self.reader: asyncio.Task[None] | None = None
        self._deadline_s = deadline_s
        self._timer: asyncio.TimerHandle | None = None

    async def write(self, request: StartContainersRequest, count: int) -> None:
        """Send a request; where that fails, whoever reads the answers finds out why."""
        self.owed.append((request, count))
        self.orders += count
        self._watch()
        try:
            await self.call.write(request)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            pass
        except asyncio.CancelledError:
            if _told_to_end():
                raise

    def answered(self, requests: int) -> None:
        """Note that the oldest requests were answered."""
        for _ in range(min(requests, len(self.owed))):
            self.orders -= self.owed.popleft()[1]
        self._unwatch()
        self._watch()

    def _watch(self) -> None:
        """Take no more than is answered soon; end the stream where nothing is answered in time."""
        if len(self.owed) < UNANSWERED_REQUESTS_MAX and self.orders < UNANSWERED_ORDERS_MAX:
            self.room.set()
        else:
            self.room.clear()
        if self.owed and self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._deadline_s, self.call.cancel)

    def _unwatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def rest(self) -> None:
        """Wait for no answer any more."""
        self.room.set()
        self._unwatch()


class Starts:
    """The master's end: a stream that is opened again where it broke.

    A node manager that serves no such stream, as one of an earlier release, is called instead.
    """

    def __init__(
        self, dialled: Dialled[Any], deadline_s: float, on_answer: OnAnswer, on_drop: OnDrop
    ) -> None:
        """Give answers to `on_answer`, which may raise CodecError; `deadline_s`: for one to come.

        `on_drop` is told of how many messages the requests were that nobody answered.
        """
        self._dialled = dialled
        self._deadline_s = deadline_s
        self._on_answer = on_answer
        self._on_drop = on_drop
        # The last one is written to, if it is up.
        self._streams: list[_Stream] = []
        self._calls = False

    @property
    def idle(self) -> bool:
        """Whether every request was answered, or given up."""
        return not any(stream.owed for stream in self._streams)

    async def send(self, request: StartContainersRequest, count: int) -> None:
        """Send a request that stands for so many messages, once there is room for it."""
        if self._streams:
            await self._streams[-1].room.wait()
        stub = self._dialled.stub
        if self._calls:
            await self._call(request, count)
            return
        stream = self._streams[-1] if self._streams else None
        if stream is None or stream.stub is not stub or stream.call.done():
            stream = _Stream(stub, self._deadline_s)
            self._streams.append(stream)
            stream.reader = asyncio.create_task(self._read(stream))
        await stream.write(request, count)

    async def close(self) -> None:
        """End all streams."""
        for stream in list(self._streams):
            await cancel(stream.reader)

    async def _call(self, request: StartContainersRequest, count: int) -> None:
        try:
            stub = self._dialled.stub
            self._on_answer(await stub.StartContainers(request, timeout=self._deadline_s))
        except (grpc.aio.AioRpcError, CodecError):
            self._on_drop(count)

    async def _read(self, stream: _Stream) -> None:
        """Take what a stream answers until it breaks, and see to what it did not answer."""
        code = grpc.StatusCode.UNKNOWN
        try:
            while isinstance(answer := await stream.call.read(), ContainersResponse):
                self._on_answer(answer)
                # An earlier release answers each request alone.
                stream.answered(answer.requests or 1)
            if answer is not grpc.aio.EOF:
                raise CodecError("the message that arrived is no answer")
            code = await stream.call.code()
        except grpc.aio.AioRpcError as error:
            code = error.code()
        except CodecError:
            pass
        except asyncio.CancelledError:
            if _told_to_end():
                raise
        finally:
            stream.rest()
            stream.call.cancel()
            if code is not grpc.StatusCode.UNIMPLEMENTED:
                self._streams.remove(stream)
        if code is grpc.StatusCode.UNIMPLEMENTED:
            self._calls = True
            while stream.owed:
                await self._call(*stream.owed[0])
                stream.owed.popleft()
            self._streams.remove(stream)
        elif stream.owed:
            self._on_drop(sum(count for _, count in stream.owed))


def _told_to_end() -> bool:
    """Return whether this task is cancelled, and not only a call that it waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
