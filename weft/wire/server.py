"""A gRPC server with the health and reflection services on, bound to loopback unless told else.

Where this process has an identity (`weft.wire.tls`), only peers of the same authority get in, and
call what `weft.protocol.access.TABLE` lets their roles call.
"""

import sys
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio
import structlog
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from weft.model.errors import WeftError
from weft.wire import tls
from weft.wire.auth import Admission, UserOf
from weft.wire.channel import SERVER_OPTIONS
from weft.wire.health import Health
from weft.wire.inflow import Inflow
from weft.wire.metering import Metering, OnCall
from weft.wire.patience import Patience


def _configuration(identity: tls.Identity) -> grpc.ServerCertificateConfiguration:
    pair = [(identity.key, identity.cert)]
    return grpc.ssl_server_certificate_configuration(pair, identity.ca)


_log = structlog.get_logger()


def _tell_shut(peer: str, size: int) -> None:
    why = "what it sent is no whole message"
    _log.warning("a connection is shut", peer=peer, reason=why, bytes=size)


class Server:
    """Services of one process on one port."""

    def __init__(
        self,
        host: str,
        port: int,
        on_call: OnCall | None = None,
        users: UserOf | None = None,
        gate: grpc.aio.ServerInterceptor | None = None,
    ) -> None:
        """`on_call` is told of every call that was served; `users` knows users' tokens.

        `gate` decides first whether a call is served here at all.
        """
        self._host = host
        self._port = port
        self._identity = tls.current()
        self._inflow: Inflow | None = None
        metering = [Metering(on_call)] if on_call is not None else []
        self._server = grpc.aio.server(
            options=SERVER_OPTIONS,
            interceptors=[
                Patience(self._on_read, self._drop),
                *metering,
                *([gate] if gate is not None else []),
                Admission(self._identity is not None, users),
            ],
        )
        self._health = Health()
        self._names = [health_pb2.DESCRIPTOR.services_by_name["Health"].full_name]
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        self.address = ""

    def add(self, adder: Callable[..., None], servicer: Any, name: str) -> None:
        """Serve `servicer`; `adder` is the generated function, `name` the service's full name."""
        adder(servicer, self._server)
        self._names.append(name)

    async def start(self) -> str:
        """Bind and serve; return host:port. Raises WeftError when the port is in use."""
        reflection.enable_server_reflection([*self._names, reflection.SERVICE_NAME], self._server)
        place = f"{self._host}:{self._port}"
        try:
            port = self._listen(place)
        except RuntimeError:
            raise WeftError(f"cannot listen on {place}: is the port in use?") from None
        if sys.platform == "linux":
            self._inflow = Inflow(port, _tell_shut)
            self._inflow.begin()
        await self._server.start()
        for name in ["", *self._names]:
            self._health.serve(name)
        self.address = f"{self._host}:{port}"
        return self.address

    def _listen(self, place: str) -> int:
        identity = self._identity
        if identity is None:
            return self._server.add_insecure_port(place)
        shown = identity

        def renewed() -> grpc.ServerCertificateConfiguration | None:
            """Return what new connections are shown, where it changed; on a thread of gRPC's."""
            nonlocal shown
            now = tls.current() if shown.files else shown
            if now is None or now == shown or not now.files:
                return None
            shown = now
            return _configuration(now)

        credentials = grpc.dynamic_ssl_server_credentials(
            _configuration(identity),
            renewed,  # type: ignore[arg-type] # None: nothing changed
            require_client_authentication=True,
        )
        return self._server.add_secure_port(place, credentials)

    def _on_read(self, peer: str, size: int) -> None:
        if self._inflow is not None:
            self._inflow.read(peer, size)

    def _drop(self, peer: str, why: str) -> None:
        if self._inflow is not None and self._inflow.shut(peer):
            _log.warning("a connection is shut", peer=peer, reason=why)

    async def stop(self, grace_s: float = 0.5) -> None:
        """Say that we leave, let calls under way end, close."""
        if self._inflow is not None:
            self._inflow.close()
        self._health.leave()
        await self._server.stop(grace_s)
