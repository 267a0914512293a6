"""A gRPC method with something around it, whatever its kind."""

import inspect
from abc import abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

Serve = Callable[[Any, Any], Awaitable[Any]]
# All methods, and all but those of health and reflection.
EVERY, OURS = "/", "/weft."


def rewrapped(handler: Any, around: Callable[[Serve], Any], read: Any = None) -> Any:
    """Return a method handler like this one that serves by `around(what it served by)`.

    `read` makes requests of bytes, where not the handler's own way does.
    """
    kind = f"{_word(handler.request_streaming)}_{_word(handler.response_streaming)}"
    make = getattr(grpc, f"{kind}_rpc_method_handler")
    serve = getattr(handler, kind)
    return make(
        around(partial(_written, serve) if inspect.isasyncgenfunction(serve) else serve),
        request_deserializer=read or handler.request_deserializer,
        response_serializer=handler.response_serializer,
    )


async def _written(serve: Callable[[Any, Any], Any], request: Any, context: Any) -> None:
    """Serve by what yields its answers."""
    async for answer in serve(request, context):
        await context.write(answer)


@dataclass(frozen=True, slots=True)
class _Unreadable:
    """Stands for a request that is none."""

    problem: str


def _read(deserialize: Callable[[bytes], Any], data: bytes) -> Any:
    try:
        return deserialize(data)
    except DecodeError as error:
        return _Unreadable(str(error))


def quiet(handler: Any, around: Callable[[Serve], Any]) -> Any:
    """Return `rewrapped(handler, around)` that refuses bytes which are no message.

    gRPC prints a traceback otherwise, by which anybody on the wire could fill a disk.
    """

    def quieted(serve: Serve) -> Any:
        async def answer(request: Any, context: Any) -> Any:
            try:
                if not isinstance(request, _Unreadable):
                    return await serve(request, context)
                problem = request.problem
            except DecodeError as error:
                problem = str(error)
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"not understood: {problem}")

        return around(answer)

    # The requests of a stream are read within the call.
    streams = handler.request_streaming
    read = None if streams else partial(_read, handler.request_deserializer)
    return rewrapped(handler, quieted, read)


class Interceptor(grpc.aio.ServerInterceptor):
    """Has something around each method, made once for each as gRPC asks at every call."""

    # Methods whose names begin so.
    of: ClassVar[str] = OURS

    def __init__(self) -> None:
        self._made: dict[str, tuple[Any, Any]] = {}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Wrap a method, where it is one of `of`."""
        handler = await continuation(handler_call_details)
        method = str(handler_call_details.method)
        if handler is None or not method.startswith(self.of):
            return handler
        known = self._made.get(method)
        if known is None or known[0] is not handler:
            known = self._made[method] = (handler, self.wrapped(method, handler))
        return known[1]

    @abstractmethod
    def wrapped(self, method: str, handler: Any) -> Any:
        """Return the handler that serves a method instead of this one."""


def _word(streaming: bool) -> str:
    return "stream" if streaming else "unary"
