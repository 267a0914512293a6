"""What the pages and the REST API read: one client, asked once however many are looking."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from weft.client.api import AsyncClient
from weft.model.ids import AppId
from weft.model.job import Job
from weft.model.jobfile import job_to_dict
from weft.protocol.requests import (
    ApplicationReport,
    ClusterMetrics,
    ContainerReport,
    Explanation,
    ManagerReport,
    NodeReport,
    QueueReport,
)

# What was read so lately is not asked again.
FRESH_S = 0.5
# The epoch of live clocks is longer ago.
_VIRTUAL_S_MAX = 1e9
KEPT_MAX = 500
# Jobs never change, but they are large: so many are kept, of so many bytes of JSON but for the
# newest.
JOBS_MAX, JOBS_BYTES_MAX = 100, 4 << 20

T = TypeVar("T")


class Source:
    """Reads of the Resource Manager, shared by whoever asks within half a second."""

    def __init__(self, client: AsyncClient, epoch_s: float = 0.0, time_scale: float = 1.0) -> None:
        self.client = client
        self.epoch_s = epoch_s
        self.time_scale = time_scale
        self._kept: dict[tuple[Any, ...], tuple[float, asyncio.Task[Any]]] = {}
        self._swept = 0.0
        self._jobs: dict[AppId, tuple[Job, int]] = {}

    @property
    def missing(self) -> tuple[int, ...]:
        """The numbers of members whose part of what was read is missing, as they are gone."""
        return self.client.missing

    def unix_ms(self, now_s: float) -> int:
        """Return a time on the cluster's clock in ms since the epoch; 0 stays 0: not yet."""
        return round((self.epoch_s + now_s / self.time_scale) * 1000) if now_s else 0

    def clock(self, now_s: float) -> dict[str, float]:
        """Return what a page needs to show times of day: `now_ms` is 0 where there is none.

        A cluster's clock that is far below the epoch's is of a run in virtual time.
        """
        live = self.epoch_s > 0 or now_s > _VIRTUAL_S_MAX
        now_ms = self.unix_ms(now_s) if live else 0
        return {"now_s": now_s, "now_ms": now_ms, "time_scale": self.time_scale}

    def cluster_s(self, unix_s: float) -> float:
        """Return a time since the epoch on the cluster's clock, s."""
        return (unix_s - self.epoch_s) * self.time_scale

    def wall_ms(self, duration_s: float) -> int:
        """Return how long a duration of the cluster lasts on the wall clock, ms."""
        return round(max(0.0, duration_s) / self.time_scale * 1000)

    async def _read(self, key: tuple[Any, ...], fetch: Callable[[], Awaitable[T]]) -> T:
        now = time.monotonic()
        known = self._kept.get(key)
        if known is None or (known[1].done() and (now - known[0] > FRESH_S or _failed(known[1]))):
            self._sweep(now)
            known = self._kept[key] = (now, asyncio.ensure_future(fetch()))
        # one reader that goes away must not take the others' answer with it
        return await asyncio.shield(known[1])

    def _sweep(self, now: float) -> None:
        """Forget what nobody would be answered with again; it may be megabytes each."""
        if now < self._swept + FRESH_S and len(self._kept) < KEPT_MAX:
            return
        self._swept = now
        for key, (at, task) in list(self._kept.items()):
            if task.done() and now - at > FRESH_S:
                _failed(task)
                del self._kept[key]

    def forget(self) -> None:
        """Forget what was read, after a change."""
        for key, (_, task) in list(self._kept.items()):
            if task.done():
                _failed(task)
                del self._kept[key]

    def forget_jobs(self) -> None:
        """Forget all jobs: another cluster's applications have the old ones' numbers."""
        self._jobs.clear()
        self.forget()

    async def metrics(self) -> ClusterMetrics:
        """Return counts over the whole cluster."""
        return await self._read(("metrics",), self.client.metrics)

    async def manager(self) -> ManagerReport:
        """Return how the Resource Manager that answers stands to others."""
        return await self._read(("manager",), self.client.manager)

    async def nodes(self) -> tuple[NodeReport, ...]:
        """Return all nodes."""
        return await self._read(("nodes",), self.client.nodes)

    async def queues(self) -> QueueReport:
        """Return the tree of queues."""
        return await self._read(("queues",), self.client.queues)

    async def apps(self) -> tuple[ApplicationReport, ...]:
        """Return all applications, oldest first."""
        return await self._read(("apps",), self.client.applications)

    async def app(self, app: AppId) -> ApplicationReport:
        """Return one application with its stages."""
        return await self._read(("app", app), lambda: self.client.application(app))

    async def explain(self, app: AppId) -> Explanation:
        """Return why each pending stage of an application is pending."""
        return await self._read(("explain", app), lambda: self.client.explain(app))

    async def containers(self, app: AppId) -> tuple[ContainerReport, ...]:
        """Return containers of an application, running and lately ended."""
        return await self._read(("containers", app), lambda: self.client.containers(app))

    async def job(self, app: AppId) -> Job:
        """Return the job of an application."""
        if app not in self._jobs:
            job = await self._read(("job", app), lambda: self.client.job(app))
            kept, size = self._jobs, len(json.dumps(job_to_dict(job)))
            while kept and (len(kept) >= JOBS_MAX or size + _bytes_of(kept) > JOBS_BYTES_MAX):
                del kept[next(iter(kept))]
            kept[app] = job, size
            return job
        return self._jobs[app][0]


def _bytes_of(kept: dict[AppId, tuple[Job, int]]) -> int:
    return sum(size for _, size in kept.values())


def _failed(task: asyncio.Task[Any]) -> bool:
    """Return whether a read failed; asking also marks its error as seen."""
    return task.cancelled() or task.exception() is not None
