"""The health service of gRPC (grpc.health.v1): whether a service is served here.

That of the library writes to who watches under a lock: one who takes no answer holds up everybody
who watches the same, and the end of the process.
"""

import asyncio
from typing import Any

import grpc
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse


class Health:
    """What gRPC calls; an empty name stands for the whole server."""

    def __init__(self) -> None:
        self._services: set[str] = set()
        self._leaves = False
        self._changed = asyncio.Event()

    def serve(self, name: str) -> None:
        """Say that a service is served."""
        self._services.add(name)
        self._tell()

    def leave(self) -> None:
        """Say that none is served any more."""
        self._leaves = True
        self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _status(self, name: str) -> Any:
        if name not in self._services:
            return HealthCheckResponse.SERVICE_UNKNOWN
        return HealthCheckResponse.NOT_SERVING if self._leaves else HealthCheckResponse.SERVING

    async def Check(self, request: HealthCheckRequest, context: Any) -> HealthCheckResponse:
        """Say how a service is."""
        if request.service not in self._services:
            await context.abort(grpc.StatusCode.NOT_FOUND)
        return HealthCheckResponse(status=self._status(request.service))

    async def List(self, request: Any, context: Any) -> Any:
        """Say how each service is."""
        told = {name: HealthCheckResponse(status=self._status(name)) for name in self._services}
        return health_pb2.HealthListResponse(statuses=told)

    async def Watch(self, request: HealthCheckRequest, context: Any) -> None:
        """Say how a service is, and again when that changed."""
        told = None
        while True:
            changed, status = self._changed, self._status(request.service)
            if status != told:
                await context.write(HealthCheckResponse(status=status))
                told = status
            await changed.wait()
