"""Count the gRPC calls that a process serves: by method, status code and time."""

import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import grpc
import grpc.aio

from weft.wire.handlers import Interceptor, rewrapped

# It gets the method, the status code and the duration, s.
OnCall = Callable[[str, str, float], None]


class Metering(Interceptor):
    """Tells `on_call` when a call ended; methods that nobody serves make no series."""

    def __init__(self, on_call: OnCall) -> None:
        super().__init__()
        self._on_call = on_call

    def wrapped(self, method: str, handler: Any) -> Any:
        """Return the handler that serves a method instead of this one."""
        return rewrapped(handler, partial(self._measured, method.lstrip("/")))

    def _measured(self, method: str, serve: Callable[[Any, Any], Awaitable[Any]]) -> Any:
        async def measured(request: Any, context: Any) -> Any:
            began_s, code = time.perf_counter(), "OK"
            try:
                return await serve(request, context)
            except BaseException as error:
                # A cancelled call is counted as well.
                code = _code(error, context)
                raise
            finally:
                self._on_call(method, code, time.perf_counter() - began_s)

        return measured


def _code(error: BaseException, context: Any) -> str:
    """Return the status code that the caller sees.

    One that was refused may close its stream before the refusal returns here.
    """
    code = context.code()
    refused = isinstance(code, grpc.StatusCode) and code is not grpc.StatusCode.OK
    if isinstance(error, grpc.aio.AbortError):
        return str(code.name) if refused else "UNKNOWN"
    # The latter: the connection to the peer is gone.
    if isinstance(error, Exception) and not isinstance(error, grpc.aio.InternalError):
        return "UNKNOWN"
    return str(code.name) if refused else "CANCELLED"
