"""A connection that never sends a whole request head is closed: there are only so many files."""

import asyncio
from collections.abc import Callable
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Middleware

from weft.web.answers import Handler

CONNECTIONS_MAX = 2_000  # at a time; more are closed at once
REFUSED_S = 0.05  # after which: a connection is there only when its protocol was made
HEAD_S = 20.0  # from the connection to its first whole head; aiohttp bounds the wait for later ones


class PatientRunner(web.AppRunner):
    """Closes connections that have not asked for anything `head_s` after they were made."""

    def __init__(
        self,
        app: web.Application,
        head_s: float = HEAD_S,
        most: int = CONNECTIONS_MAX,
        **more: Any,
    ) -> None:
        """`most`: connections at a time; what comes beyond is closed at once."""
        super().__init__(app, **more)
        self._head_s = head_s
        self._most = most
        self._silent: dict[Any, asyncio.TimerHandle] = {}  # connections, and what will close them
        app.middlewares.insert(0, self._asked)

    @property
    def server(self) -> Any:
        """Server that makes the protocol of each connection."""
        made = super().server
        return None if made is None else self._watched(made)

    def _watched(self, server: Callable[[], Any]) -> Callable[[], Any]:
        def make() -> Any:
            protocol = server()
            later = asyncio.get_running_loop().call_later
            if len(self._connections()) >= self._most:
                later(REFUSED_S, protocol.force_close)
                return protocol
            self._silent[protocol] = later(self._head_s, self._give_up, protocol)
            return protocol

        return make

    def _connections(self) -> list[Any]:
        made = super().server
        return [] if made is None else made.connections

    @property
    def _asked(self) -> Middleware:
        @web.middleware
        async def asked(request: web.Request, handler: Handler) -> web.StreamResponse:
            timer = self._silent.pop(request.protocol, None)
            if timer is not None:
                timer.cancel()
            return await handler(request)

        return asked

    def _give_up(self, protocol: Any) -> None:
        if self._silent.pop(protocol, None) is not None:
            protocol.force_close()
