"""Count the gRPC calls that a process serves: by method, status code and time."""

import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import grpc
import grpc.aio

from weft.wire.handlers import Wrapped

# Health checks and reflection are not worth series.
OURS = "/weft."
# It gets the method, the status code and the duration, s.
OnCall = Callable[[str, str, float], None]


class Metering(grpc.aio.ServerInterceptor):
    """Tells `on_call` when a call ended; methods that nobody serves make no series."""

    def __init__(self, on_call: OnCall) -> None:
        self._on_call = on_call
        self._wrapped = Wrapped()

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
        return self._wrapped.of(method, handler, partial(self._measured, method.lstrip("/")))

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
    """Return the status code that the caller sees."""
    if isinstance(error, grpc.aio.AbortError):
        code = context.code()
        return code.name if isinstance(code, grpc.StatusCode) else "UNKNOWN"
    return "UNKNOWN" if isinstance(error, Exception) else "CANCELLED"
