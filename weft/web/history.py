"""When tasks ran and how full the cluster was, kept by watching; bounded, and lost at a restart.

The Resource Manager itself keeps an application's newest ended containers only.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from weft.client.api import AsyncClient
from weft.errors import WeftError
from weft.ids import AppId, ContainerId, app_of_container
from weft.requests import ClusterMetrics, ContainerReport

APPS_MAX = 300
SPANS_MAX = 5_000  # of one application
SAMPLES_MAX = 450
SAMPLE_S = 2.0
RETRY_S = 1.0


@dataclass(slots=True)
class Span:
    """A container from its grant to its end; times in s on the cluster's clock."""

    container: ContainerId
    node: str
    stage: int  # position in the job; -1: the master
    start_s: float
    end_s: float = 0.0  # 0: it still runs
    task: int = -1  # known at the end
    attempt: int = 0
    state: str = "RUNNING"
    demand: tuple[float, ...] = ()


@dataclass(slots=True)
class Track:
    """What was seen of one application."""

    spans: "OrderedDict[ContainerId, Span]" = field(default_factory=OrderedDict)
    held_s: list[float] = field(default_factory=list)  # demand x time of ended ones, per resource
    planner: Mapping[str, Any] = field(default_factory=dict)


class History:
    """Fed by the manager's facts and by samples of its metrics."""

    def __init__(self) -> None:
        self.tracks: OrderedDict[AppId, Track] = OrderedDict()
        self.samples: deque[dict[str, Any]] = deque(maxlen=SAMPLES_MAX)
        self.version = 0  # grows with whatever a page might show
        self.reachable = True
        self.problem = ""
        self.cluster_ts = 0
        self.on_new_cluster: list[Callable[[], None]] = []

    # -- facts -------------------------------------------------------------------------------------

    def learn(self, fact: Mapping[str, Any]) -> None:
        """Take one fact of the manager."""
        kind = fact["fact"]
        if kind == "Placed":
            self._placed(fact)
        elif kind == "Closed":
            self._closed(fact)
        elif kind not in ("AppChanged", "AttemptChanged", "NodeChanged"):
            return
        self.version += 1

    def _track(self, app: AppId) -> Track:
        track = self.tracks.get(app)
        if track is None:
            track = self.tracks[app] = Track()
            if len(self.tracks) > APPS_MAX:
                self.tracks.popitem(last=False)
        return track

    def _placed(self, fact: Mapping[str, Any]) -> None:
        number = int(fact["container"])
        track = self._track(app_of_container(number))
        track.spans[number] = Span(
            number, fact["node"], int(fact["stage"]), fact["now_s"], demand=tuple(fact["demand"])
        )
        if len(track.spans) > SPANS_MAX:
            track.spans.popitem(last=False)

    def _closed(self, fact: Mapping[str, Any]) -> None:
        number = int(fact["container"])
        track = self.tracks.get(app_of_container(number))
        span = track.spans.get(number) if track is not None else None
        if track is None or span is None:
            return
        span.end_s, span.state = fact["now_s"], fact["outcome"]
        span.task, span.attempt = int(fact["task"]), int(fact["attempt"])
        held = [amount * (span.end_s - span.start_s) for amount in span.demand]
        track.held_s = [a + b for a, b in zip(track.held_s, held, strict=True)] or held

    def spans(
        self, app: AppId, reports: tuple[ContainerReport, ...], stages: Sequence[str]
    ) -> list[Span]:
        """What was seen of an application's containers, and what its manager still knows."""
        position = {name: number for number, name in enumerate(stages)}
        track = self.tracks.get(app)
        found: dict[ContainerId, Span] = dict(track.spans) if track is not None else {}
        for report in reports:
            span = found.get(report.container_id)
            if span is None:
                stage = position.get(report.stage, -1)
                span = Span(report.container_id, report.node_id, stage, report.started_s)
                span.end_s, span.task, span.attempt = (
                    report.finished_s, report.index, report.attempt,
                )  # fmt: skip
                span.state = report.state
                found[report.container_id] = span
            elif span.end_s == 0 and report.finished_s:
                span.end_s, span.state = report.finished_s, report.state
                span.task, span.attempt = report.index, report.attempt
        return sorted(found.values(), key=lambda s: (s.start_s, s.container))

    # -- samples -----------------------------------------------------------------------------------

    def sample(self, metrics: ClusterMetrics) -> None:
        """Keep how full the cluster is now; of another cluster than before, forget all else."""
        if metrics.cluster_ts != self.cluster_ts:
            if self.cluster_ts:
                self.tracks.clear()
                self.samples.clear()
                for forget in self.on_new_cluster:
                    forget()
            self.cluster_ts = metrics.cluster_ts
        shares = {
            name: round(metrics.allocated.get(name, 0.0) / total, 4) if total else 0.0
            for name, total in metrics.capacity.items()
        }
        last = self.samples[-1] if self.samples else None
        one = {
            "now_s": round(metrics.now_s, 3),
            "shares": shares,
            "running": metrics.containers_running,
            "pending": metrics.containers_pending,
        }
        if last is None or any(last[key] != one[key] for key in ("shares", "running", "pending")):
            self.version += 1
        self.samples.append(one)


async def watch(history: History, client: AsyncClient) -> None:
    """Follow the manager's facts for good, over its restarts."""
    while True:
        try:
            async for fact in client.events():
                history.learn(fact)
        except WeftError:
            pass
        await asyncio.sleep(RETRY_S)


async def sample(history: History, client: AsyncClient) -> None:
    """Sample the manager's metrics for good; says whether it can be reached."""
    while True:
        try:
            history.sample(await client.metrics())
            reachable, problem = True, ""
        except WeftError as error:
            reachable, problem = False, str(error)
        if reachable != history.reachable:
            history.reachable, history.problem = reachable, problem
            history.version += 1
        await asyncio.sleep(SAMPLE_S)
