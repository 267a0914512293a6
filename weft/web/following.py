"""What follows the manager for as long as the web process lives; started again when it fails."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from weft.client.api import AsyncClient, RefusedError
from weft.model.errors import WeftError
from weft.protocol.requests import ClusterMetrics, QueueReport
from weft.web.history import History
from weft.web.series import SAMPLE_S

RETRY_S = 1.0
LIVE = ("NEW", "SUBMITTED", "ACCEPTED", "RUNNING")
# A sample has the first queues of the tree.
SAMPLE_QUEUES_MAX = 40
_log = structlog.get_logger()


async def for_good(what: str, work: Callable[[], Awaitable[None]]) -> None:
    """Run `work` again and again; a failure that nobody expected is logged, and tried again."""
    while True:
        try:
            await work()
        # The pages say that the manager cannot be reached.
        except WeftError:
            pass
        except Exception as error:
            _log.error(f"{what} failed and is started again", exc_info=error)
        await asyncio.sleep(RETRY_S)


async def watch(history: History, client: AsyncClient) -> None:
    """Learn the manager's facts until the connection ends; what was missed is asked for first."""
    history.belong((await client.metrics()).cluster_ts)
    if not history.number:
        await _adopt(history, client)
    async for first, facts in client.event_batches(history.number or 1):
        if not history.learn_batch(first, facts):
            _log.warning("facts were missed: some histories are not whole", before=first)
            await _settle(history, client)


async def _adopt(history: History, client: AsyncClient) -> None:
    """Learn what runs already, and what the manager still knows of it."""
    for report in await client.applications(LIVE):
        try:
            stages = (await client.application(report.app_id)).stages
            reports = await client.containers(report.app_id)
        # The application was forgotten meanwhile.
        except RefusedError:
            continue
        for span in history.spans(report.app_id, reports, [stage.name for stage in stages]):
            history.put(report.app_id, span)


async def _settle(history: History, client: AsyncClient) -> None:
    for app in history.in_doubt():
        try:
            reports = await client.containers(app)
        # The manager does not know the application any more.
        except RefusedError:
            reports = ()
        history.settle(app, reports)


async def sample(history: History, client: AsyncClient) -> None:
    """Sample how full the cluster is until the manager cannot be reached; says whether it can."""
    try:
        while True:
            metrics = await client.metrics()
            history.belong(metrics.cluster_ts)
            take(history, metrics, await client.queues())
            _reached(history, "")
            await asyncio.sleep(SAMPLE_S)
    except WeftError as error:
        _reached(history, str(error))
        raise


def _reached(history: History, problem: str) -> None:
    if (not problem) != history.reachable:
        history.version += 1
    history.reachable, history.problem = not problem, problem


def take(history: History, metrics: ClusterMetrics, root: QueueReport) -> None:
    """Keep how full the cluster and its queues are now."""
    one = {
        "now_s": round(metrics.now_s, 3),
        "shares": _shares(metrics.allocated, metrics.capacity),
        "use": _shares(metrics.use, metrics.capacity) if metrics.use else {},
        "running": metrics.containers_running,
        "pending": metrics.containers_pending,
        "queues": {
            queue.name: [round(queue.used, 4), round(queue.deficit, 4)]
            for queue in _walk(root)[:SAMPLE_QUEUES_MAX]
        },
    }
    last = history.series.newest
    if last is None or any(last[key] != one[key] for key in one if key != "now_s"):
        history.version += 1
    history.series.add(one)


def _shares(held: dict[str, float], capacity: dict[str, float]) -> dict[str, float]:
    return {
        name: round(held.get(name, 0.0) / total, 4) if total else 0.0
        for name, total in capacity.items()
    }


def _walk(queue: QueueReport) -> list[Any]:
    return [queue, *(below for child in queue.children for below in _walk(child))]
