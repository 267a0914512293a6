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


def _word(streaming: bool) -> str:
    return "stream" if streaming else "unary"
