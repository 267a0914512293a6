"""Requests that are larger than one gRPC message may be here: they are sent and read in pieces.

gRPC takes a message in before anybody is asked whether there is room for it, and as many at a time
as callers like. So a server takes small messages only, and a larger request comes as several of
them, of which it reads the next one when it likes. A piece begins with a zero byte, by which no
message of protobuf begins, and says how many bytes are still to come with it (32 bits, the most
significant first). The last piece says as many as it has.
"""

import struct
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from typing import Any, cast

import grpc
import grpc.aio

# A request may have so many bytes in one message.
PIECE_BYTES = 256 << 10
_HEAD = struct.Struct(">BI")
HEAD_BYTES = _HEAD.size
_NOT_SENT = "Internal error from Core"

Serialize = Callable[[Any], bytes]


def split(data: bytes) -> Iterator[bytes]:
    """Yield what is sent for a request: itself, or pieces of it."""
    if len(data) <= PIECE_BYTES:
        yield data
        return
    for at in range(0, len(data), PIECE_BYTES):
        yield _HEAD.pack(0, len(data) - at) + data[at : at + PIECE_BYTES]


def owed(data: bytes) -> int:
    """Return how many bytes of a request come with a piece and after it; 0: it is a whole one."""
    if data[:1] != b"\0" or len(data) <= HEAD_BYTES:
        return 0
    return int(_HEAD.unpack_from(data)[1])


def in_pieces(channel: grpc.aio.Channel) -> grpc.aio.Channel:
    """Return a channel over which large requests leave in pieces."""
    return cast(grpc.aio.Channel, _Channel(channel))


class _Channel:
    """A channel as the generated classes of calls use it."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)

    async def __aenter__(self) -> "_Channel":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()

    def unary_unary(
        self,
        method: str,
        request_serializer: Serialize | None = None,
        response_deserializer: Any = None,
        **more: Any,
    ) -> Any:
        """Return what makes a call with one request and one answer."""
        whole = self._channel.unary_unary(method, None, response_deserializer, **more)
        stream = self._channel.stream_unary(method, None, response_deserializer, **more)

        def several(pieces: Iterator[bytes], **options: Any) -> Any:
            return _answer(stream(pieces, **options))

        return _either(request_serializer or bytes, whole, several)

    def unary_stream(
        self,
        method: str,
        request_serializer: Serialize | None = None,
        response_deserializer: Any = None,
        **more: Any,
    ) -> Any:
        """Return what makes a call with one request and a stream of answers."""
        whole = self._channel.unary_stream(method, None, response_deserializer, **more)
        several = self._channel.stream_stream(method, None, response_deserializer, **more)
        return _either(request_serializer or bytes, whole, several)

    def stream_stream(
        self,
        method: str,
        request_serializer: Serialize | None = None,
        response_deserializer: Any = None,
        **more: Any,
    ) -> Any:
        """Return what opens a stream of requests and answers."""
        serialize = request_serializer or bytes
        open_ = self._channel.stream_stream(method, None, response_deserializer, **more)

        def call(requests: Iterable[Any] | AsyncIterable[Any] | None = None, **more: Any) -> Any:
            if requests is None:
                return _Call(open_(**more), serialize)
            return open_(_all_split(requests, serialize), **more)

        return call


class _Call:
    """A stream whose `write` sends a large request in pieces."""

    def __init__(self, call: Any, serialize: Serialize) -> None:
        self._call = call
        self._serialize = serialize
        self.read = call.read

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)

    def __aiter__(self) -> Any:
        return self._call.__aiter__()

    async def write(self, request: Any) -> None:
        """Send a request."""
        for piece in split(self._serialize(request)):
            await self._call.write(piece)


async def _answer(call: Any) -> Any:
    """Return what a call answers; one that ended before all was sent may be made again.

    gRPC tells of a piece that could not be sent, and not why the server ended the call.
    """
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        if error.code() is not grpc.StatusCode.INTERNAL or error.details() != _NOT_SENT:
            raise
        raise grpc.aio.AioRpcError(
            grpc.StatusCode.UNAVAILABLE,
            error.initial_metadata(),
            error.trailing_metadata(),
            "the call was ended before all of the request was sent",
        ) from None


def _either(serialize: Serialize, whole: Any, several: Any) -> Callable[..., Any]:
    def call(request: Any, **options: Any) -> Any:
        data = serialize(request)
        if len(data) <= PIECE_BYTES:
            return whole(data, **options)
        return several(iter(split(data)), **options)

    return call


async def _all_split(
    requests: Iterable[Any] | AsyncIterable[Any], serialize: Serialize
) -> AsyncIterator[bytes]:
    if isinstance(requests, AsyncIterable):
        async for request in requests:
            for piece in split(serialize(request)):
                yield piece
    else:
        for request in requests:
            for piece in split(serialize(request)):
                yield piece
