"""A gRPC method with something around it, whatever its kind."""

from collections.abc import Awaitable, Callable
from typing import Any

import grpc

Serve = Callable[[Any, Any], Awaitable[Any]]


def rewrapped(handler: Any, around: Callable[[Serve], Any]) -> Any:
    """Return a method handler like this one that serves by `around(what it served by)`."""
    kind = f"{_word(handler.request_streaming)}_{_word(handler.response_streaming)}"
    make = getattr(grpc, f"{kind}_rpc_method_handler")
    return make(
        around(getattr(handler, kind)),
        request_deserializer=handler.request_deserializer,
        response_serializer=handler.response_serializer,
    )


class Wrapped:
    """The handlers that one interceptor made, by method: gRPC asks for them at every call."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[Any, Any]] = {}

    def of(self, method: str, handler: Any, around: Callable[[Serve], Any]) -> Any:
        """Return `rewrapped(handler, around)`, made anew only where the handler is another."""
        known = self._made.get(method)
        if known is None or known[0] is not handler:
            known = self._made[method] = (handler, rewrapped(handler, around))
        return known[1]


def _word(streaming: bool) -> str:
    return "stream" if streaming else "unary"
