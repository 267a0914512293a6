"""When tasks ran and how full the cluster was, learned from the manager's facts; bounded.

The Resource Manager itself keeps an application's newest ended containers only. What is not known
whole says so (`Track.is_whole`): facts that were missed are never made up.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from weft.model.ids import AppId, ContainerId, app_of_attempt, app_of_container
from weft.protocol.requests import ContainerReport
from weft.web.series import Series

APPS_MAX = 300
# So many of all applications are kept; the oldest application goes first.
SPANS_MAX = 300_000
APP_SPANS_MAX = 50_000
# The page of events lists so many of the newest.
FACTS_MAX = 2_000
# Times of facts are rounded.
_ROUNDING_S = 1e-3


@dataclass(slots=True)
class Span:
    """A container from its grant to its end; times in s on the cluster's clock.

    `stage` is the position in the job (-1: the master), `end_s` is 0 while it runs, `task` is -1
    until its node tells what it runs, and `run_s` is that of the task itself (0: unknown).
    """

    container: ContainerId
    node: str
    stage: int
    start_s: float
    end_s: float = 0.0
    task: int = -1
    attempt: int = 0
    state: str = "RUNNING"
    exit_code: int = 0
    run_s: float = 0.0
    message: str = ""


@dataclass(slots=True)
class Track:
    """What was seen of one application.

    `since_s` is the time of its first fact that was seen. Facts may have been missed up to
    `lost_at_s` (below 0: none were). `dropped` spans were too many to keep.
    """

    since_s: float
    spans: "OrderedDict[ContainerId, Span]" = field(default_factory=OrderedDict)
    lost_at_s: float = -1.0
    dropped: int = 0

    def is_whole(self, submitted_s: float) -> bool:
        """Return whether every container of the application since its submission is here."""
        return self.since_s <= submitted_s + _ROUNDING_S and self.lost_at_s < 0 and not self.dropped


class History:
    """Fed by the manager's facts and by samples of its metrics."""

    def __init__(self) -> None:
        self.tracks: OrderedDict[AppId, Track] = OrderedDict()
        self.series = Series()
        # It grows with whatever a page might show.
        self.version = 0
        self.reachable = True
        self.problem = ""
        self.cluster_ts = 0
        # The number of the newest fact that was learned, and when it happened.
        self.number = 0
        self.now_s = 0.0
        # The newest facts, each with its number.
        self.facts: deque[tuple[int, Mapping[str, Any]]] = deque(maxlen=FACTS_MAX)
        self.on_new_cluster: list[Callable[[], None]] = []
        # what a file has to be told: spans and tracks that changed, applications that are gone
        self.changed: dict[ContainerId, Span] = {}
        self.touched: set[AppId] = set()
        self.gone: set[AppId] = set()
        self._count = 0

    # -- facts -------------------------------------------------------------------------------------

    def belong(self, cluster_ts: int) -> None:
        """Take the cluster that facts are of; of another one than before, forget all else."""
        if cluster_ts == self.cluster_ts:
            return
        if self.cluster_ts:
            self.clear()
            for forget in self.on_new_cluster:
                forget()
        self.cluster_ts = cluster_ts

    def clear(self) -> None:
        """Forget all that was learned."""
        self.gone.update(self.tracks)
        self.tracks.clear()
        self.changed.clear()
        self.touched.clear()
        self.series.clear()
        self.facts.clear()
        self.number, self._count, self.now_s = 0, 0, 0.0

    def learn_batch(self, first: int, facts: Sequence[Mapping[str, Any]]) -> bool:
        """Take facts whose numbers count on from `first`; False where some before are missing."""
        following = not self.number or first <= self.number + 1
        if not following:
            self.miss()
        for number, fact in enumerate(facts, first):
            # A fact that comes twice is known.
            if number > self.number:
                self.learn(fact)
                # A manager of an earlier version tells numbers now and then, which are no events.
                if fact["fact"] != "Gauge":
                    self.facts.append((number, fact))
                self.number = number
        return following

    def learn(self, fact: Mapping[str, Any]) -> None:
        """Take one fact of the manager."""
        kind = fact["fact"]
        self.now_s = max(self.now_s, fact["now_s"])
        if kind == "Placed":
            self._placed(fact)
        elif kind == "Closed":
            self._closed(fact)
        elif kind == "AppChanged":
            self._track(int(fact["app"]), fact["now_s"])
        elif kind == "AttemptChanged":
            self._track(app_of_attempt(int(fact["attempt"])), fact["now_s"])
        elif kind not in ("NodeChanged", "QueueChanged"):
            return
        self.version += 1

    def miss(self) -> None:
        """Note that facts were lost: applications with open containers are known in part."""
        for app, track in self.tracks.items():
            track.lost_at_s = self.now_s
            self.touched.add(app)

    def _track(self, app: AppId, now_s: float) -> Track:
        track = self.tracks.get(app)
        if track is None:
            track = self.tracks[app] = Track(now_s)
            self.touched.add(app)
            self.gone.discard(app)
            if len(self.tracks) > APPS_MAX:
                self._forget_oldest()
        return track

    def _forget_oldest(self) -> None:
        app, track = self.tracks.popitem(last=False)
        self._count -= len(track.spans)
        self.gone.add(app)
        self.touched.discard(app)

    def put(self, app: AppId, span: Span) -> None:
        """Add a span to an application's track."""
        track = self._track(app, span.start_s)
        self._count += span.container not in track.spans
        track.spans[span.container] = span
        if len(track.spans) > APP_SPANS_MAX:
            self.changed.pop(track.spans.popitem(last=False)[0], None)
            track.dropped += 1
            self._count -= 1
            self.touched.add(app)
        while self._count > SPANS_MAX and len(self.tracks) > 1:
            self._forget_oldest()

    def _placed(self, fact: Mapping[str, Any]) -> None:
        number = int(fact["container"])
        span = Span(number, fact["node"], int(fact["stage"]), fact["now_s"])
        self.put(app_of_container(number), span)
        self.changed[number] = span

    def _closed(self, fact: Mapping[str, Any]) -> None:
        number = int(fact["container"])
        track = self.tracks.get(app_of_container(number))
        span = track.spans.get(number) if track is not None else None
        # A master, or a container that was granted before the watch began, has no span.
        if span is None:
            return
        span.end_s, span.state = fact["now_s"], fact["outcome"]
        span.task, span.attempt = int(fact["task"]), int(fact["attempt"])
        span.exit_code, span.run_s = fact.get("exit_code", 0), fact.get("run_s", 0.0)
        span.message = fact.get("message", "")
        self.changed[number] = span

    # -- what the manager reports ------------------------------------------------------------------

    def running(self) -> dict[ContainerId, str]:
        """Return the containers whose ends were not heard, with their nodes."""
        spans = [span for track in self.tracks.values() for span in track.spans.values()]
        return {span.container: span.node for span in spans if not span.end_s}

    def in_doubt(self) -> list[AppId]:
        """Return applications with containers that may have ended while facts were missed."""
        return [
            app
            for app, track in self.tracks.items()
            if track.lost_at_s >= 0 and any(_doubtful(s, track) for s in track.spans.values())
        ]

    def settle(self, app: AppId, reports: Iterable[ContainerReport]) -> None:
        """End what ended unseen: the manager tells all that an application holds.

        Ends that it does not remember any more have no time: those containers are left out.
        """
        track = self.tracks.get(app)
        if track is None:
            return
        known = {report.container_id: report for report in reports}
        for number, span in list(track.spans.items()):
            if not _doubtful(span, track):
                continue
            report = known.get(number)
            if report is None:
                del track.spans[number]
                self._count -= 1
                track.dropped += 1
                self.changed.pop(number, None)
            elif report.finished_s:
                _end(span, report)
                self.changed[number] = span
        self.touched.add(app)
        self.version += 1

    def spans(
        self, app: AppId, reports: Iterable[ContainerReport], stages: Sequence[str]
    ) -> list[Span]:
        """Return what was seen of an application's containers, and what its manager still knows."""
        position = {name: number for number, name in enumerate(stages)}
        track = self.tracks.get(app)
        found: dict[ContainerId, Span] = dict(track.spans) if track is not None else {}
        for report in reports:
            span = found.get(report.container_id)
            if span is None:
                stage = position.get(report.stage, -1)
                span = Span(report.container_id, report.node_id, stage, report.started_s)
                span.state = report.state
                found[report.container_id] = span
            if span.end_s == 0 and report.finished_s:
                _end(span, report)
            elif span.end_s == 0:
                span.task, span.attempt = report.index, report.attempt
        return sorted(found.values(), key=lambda s: (s.start_s, s.container))


def _doubtful(span: Span, track: Track) -> bool:
    return not span.end_s and span.start_s <= track.lost_at_s


def _end(span: Span, report: ContainerReport) -> None:
    span.end_s, span.state = report.finished_s, report.state
    span.task, span.attempt = report.index, report.attempt
    span.exit_code, span.run_s, span.message = report.exit_code, report.run_s, report.message
