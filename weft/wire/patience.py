"""How long a gRPC server waits for a call's message and for its answer to be taken, and how many.

gRPC reads a request of any size for as long as it takes, and keeps an answer until the caller takes
it. So every call with one request is served as a stream here, of which this reads one message and,
where one is answered, writes one: the wire is the same, and the waiting can end.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from functools import partial
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from weft.wire.handlers import Serve, Wrapped, rewrapped

OURS = "/weft."
# A request must have come within this, and an answer be taken, on the wall clock.
REQUEST_S = 30.0
ANSWER_S = 30.0
# So many calls may wait for the rest of their request: the oldest makes room.
UNREAD_MAX = 256
# Requests that are carried out may have so many bytes together, a single one any number.
REQUEST_BYTES_MAX = 40 << 20
# The same of answers that nobody took yet: the oldest makes room.
ANSWER_BYTES_MAX = 40 << 20

# It is told whose message of how many bytes was read.
OnRead = Callable[[str, int], None]
_caller: ContextVar[str] = ContextVar("caller", default="")


class _Waiting:
    """Those who wait, the oldest first, each with the bytes that are kept for it."""

    def __init__(self) -> None:
        self.all: dict[asyncio.Timeout, int] = {}
        self.bytes = 0

    def add(self, one: asyncio.Timeout, size: int = 0) -> None:
        self.all[one] = size
        self.bytes += size

    def discard(self, one: asyncio.Timeout) -> None:
        self.bytes -= self.all.pop(one, 0)

    def give_way(self) -> None:
        """End the wait of the oldest."""
        oldest = next(iter(self.all))
        self.discard(oldest)
        oldest.reschedule(asyncio.get_running_loop().time())


class Patience(grpc.aio.ServerInterceptor):
    """Bounds what calls wait for, in time and in bytes of all callers together."""

    def __init__(self, on_read: OnRead = lambda peer, size: None) -> None:
        self._on_read = on_read
        self._wrapped = Wrapped(lambda handler, around: around(handler))
        self._unread = _Waiting()
        self._answers = _Waiting()
        self._held_bytes = 0

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Wrap a method of ours."""
        handler = await continuation(handler_call_details)
        method = str(handler_call_details.method)
        if handler is None or not method.startswith(OURS):
            return handler
        return self._wrapped.of(method, handler, self._patient)

    def _patient(self, handler: Any) -> Any:
        if handler.request_streaming:
            return rewrapped(
                handler, _known, partial(self._counted, handler.request_deserializer or bytes)
            )
        answers = handler.response_streaming
        serve = self._read(handler, handler.unary_stream if answers else self._one(handler))
        return grpc.stream_stream_rpc_method_handler(
            serve, response_serializer=handler.response_serializer if answers else None
        )

    def _counted(self, deserialize: Callable[[bytes], Any], data: bytes) -> Any:
        self._on_read(_caller.get(), len(data))
        return deserialize(data)

    def _read(self, handler: Any, serve: Serve) -> Serve:
        """Return what reads the one request of a call and serves it."""

        async def served(_: Any, context: Any) -> None:
            waiting = self._unread
            if len(waiting.all) >= UNREAD_MAX:
                waiting.give_way()
            data: Any = grpc.aio.EOF
            try:
                async with asyncio.timeout(REQUEST_S) as limit:
                    waiting.add(limit)
                    try:
                        data = await context.read()
                    finally:
                        waiting.discard(limit)
            except TimeoutError:
                text = "the request did not come in time, or made room for others"
                await context.abort(grpc.StatusCode.UNAVAILABLE, text)
            if data is grpc.aio.EOF:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "there is no request")
            size = len(data)
            self._on_read(context.peer(), size)
            if self._held_bytes and self._held_bytes + size > REQUEST_BYTES_MAX:
                text = "other large requests are carried out"
                await context.abort(grpc.StatusCode.UNAVAILABLE, text)
            self._held_bytes += size
            try:
                try:
                    request = handler.request_deserializer(data)
                except DecodeError as error:
                    text = f"not understood: {error}"
                    await context.abort(grpc.StatusCode.INVALID_ARGUMENT, text)
                del data
                await serve(request, context)
            finally:
                self._held_bytes -= size

        return served

    def _one(self, handler: Any) -> Serve:
        """Return what serves a call and has its one answer taken."""

        async def served(request: Any, context: Any) -> None:
            answer = handler.response_serializer(await handler.unary_unary(request, context))
            del request
            waiting = self._answers
            while waiting.all and waiting.bytes + len(answer) > ANSWER_BYTES_MAX:
                waiting.give_way()
            try:
                async with asyncio.timeout(ANSWER_S) as limit:
                    waiting.add(limit, len(answer))
                    try:
                        await context.write(answer)
                    finally:
                        waiting.discard(limit)
            except TimeoutError as error:
                # A call that still writes cannot end with a status: it is reset.
                raise asyncio.CancelledError from error

        return served


def _known(serve: Serve) -> Serve:
    """Return what serves a stream and knows whose messages are read in it."""

    async def served(request: Any, context: Any) -> Any:
        _caller.set(context.peer())
        return await serve(request, context)

    return served
