"""A cluster as its Resource Manager tells of it: the least that a prediction begins with.

It is read by the requests that every client may make, so it is known of a live cluster as well as
of one that was rebuilt from a tape.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from weft.model.cluster import ClusterSpec, NodeSpec
from weft.model.errors import InputError
from weft.model.ids import AppId, NodeId
from weft.model.job import Job
from weft.model.queues import QueueSpec
from weft.model.resources import ResourceType, ResourceTypes, guess_kind
from weft.protocol.requests import (
    ApplicationReport,
    ClusterMetrics,
    ContainerReport,
    NodeReport,
    QueueReport,
)

# Tasks of so many ended applications tell how far estimates are off.
LEARNED_APPS_MAX = 100
_DONE = "SUCCEEDED"


class Asked(Protocol):
    """Who tells: `weft.client.api.Client`, or `sim.replay.client_view.AskedManager`."""

    def applications(
        self, states: Iterable[str] = (), queue: str = "", user: str = "", limit: int = 0
    ) -> tuple[ApplicationReport, ...]:
        """Return reports of applications, the newest last."""

    def application(self, app: AppId) -> ApplicationReport:
        """Return one application with its stages."""

    def job(self, app: AppId) -> Job:
        """Return the job of an application."""

    def containers(self, app: AppId) -> tuple[ContainerReport, ...]:
        """Return containers of an application, running and ended."""

    def nodes(self) -> tuple[NodeReport, ...]:
        """Return reports of all nodes."""

    def queues(self) -> QueueReport:
        """Return the tree of queues."""

    def metrics(self) -> ClusterMetrics:
        """Return counts over the whole cluster."""


@dataclass(frozen=True, slots=True)
class Held:
    """A container of a task that runs; `since_s` on the cluster's clock."""

    node: NodeId
    stage: int
    since_s: float


@dataclass(frozen=True, slots=True)
class OpenApplication:
    """An application that has not ended.

    `finished` counts tasks, by stage.
    """

    report: ApplicationReport
    job: Job
    finished: tuple[int, ...]
    held: tuple[Held, ...]

    @property
    def waits(self) -> bool:
        """Whether no task of it runs or ever ran."""
        return not self.held and not any(self.finished)


@dataclass(frozen=True, slots=True)
class Learned:
    """A task that ended: how long it ran over how long it was estimated to.

    `key` is the job's history key, which names what recurs (empty: nothing).
    """

    app: AppId
    key: str
    stage: str
    ratio: float


@dataclass(slots=True)
class State:
    """A cluster at `now_s`."""

    now_s: float
    cluster: ClusterSpec
    matcher: str
    apps: list[OpenApplication] = field(default_factory=list)
    learned: list[Learned] = field(default_factory=list)
    ended: dict[AppId, ApplicationReport] = field(default_factory=dict)


def read_state(
    asked: Asked, cluster: ClusterSpec | None = None, learned_max: int = LEARNED_APPS_MAX
) -> State:
    """Ask for all that a simulation begins with.

    `cluster` tells what no report does (limits of users in queues, kinds of resources). Raises
    InputError for a cluster without a node in service.
    """
    metrics = asked.metrics()
    nodes = [node for node in asked.nodes() if node.state == "RUNNING"]
    if not nodes:
        raise InputError("cluster", "no node is in service")
    if cluster is None:
        types = _types(nodes)
        queues = _queues(asked.queues())
    else:
        types, queues = cluster.types, cluster.queues
    specs = tuple(
        NodeSpec(node.node_id, types.vector(node.capacity), node.rack, tuple(node.labels))
        for node in nodes
    )
    state = State(metrics.now_s, ClusterSpec(types, specs, queues), metrics.scheduler)
    reports = asked.applications()
    state.ended = {one.app_id: one for one in reports if one.finished_s > 0}
    for report in reports:
        if report.finished_s <= 0 and report.final_status == "UNDEFINED" and report.kind == "WEFT":
            state.apps.append(_standing(asked, asked.application(report.app_id), state.learned))
    for report in [one for one in reports if one.finished_s > 0][-learned_max:]:
        if report.kind == "WEFT":
            _learn(asked.job(report.app_id), report.app_id, asked.containers(report.app_id), state)
    return state


def _standing(asked: Asked, report: ApplicationReport, learned: list[Learned]) -> OpenApplication:
    job = asked.job(report.app_id)
    places = {stage.name: place for place, stage in enumerate(job.stages)}
    containers = asked.containers(report.app_id)
    held = tuple(
        Held(one.node_id, places[one.stage], one.started_s)
        for one in containers
        if one.stage in places and one.finished_s <= 0
    )
    finished = tuple(stage.finished for stage in report.stages)
    learned += _ratios(job, report.app_id, containers)
    return OpenApplication(report, job, finished, held)


def _learn(job: Job, app: AppId, containers: Iterable[ContainerReport], state: State) -> None:
    state.learned += _ratios(job, app, containers)


def _ratios(job: Job, app: AppId, containers: Iterable[ContainerReport]) -> list[Learned]:
    stages = {stage.name: stage for stage in job.stages}
    found = []
    for one in containers:
        stage = stages.get(one.stage)
        if stage is None or one.state != _DONE or one.run_s <= 0 or one.index < 0:
            continue
        estimate_s = stage.duration_of(one.index)
        if estimate_s > 0:
            found.append(Learned(app, job.history_key, one.stage, one.run_s / estimate_s))
    return found


def _types(nodes: Iterable[NodeReport]) -> ResourceTypes:
    names: dict[str, None] = {}
    for node in nodes:
        names.update(dict.fromkeys(node.capacity))
    return ResourceTypes(tuple(ResourceType(name, guess_kind(name)) for name in names))


def _queues(report: QueueReport, above: QueueReport | None = None) -> QueueSpec:
    """Return the reported tree, with fractions of the parent's instead of the whole cluster."""
    part = most = 1.0
    if above is not None:
        part = report.capacity / above.capacity if above.capacity > 0 else 0.0
        most = report.max_capacity / above.max_capacity if above.max_capacity > 0 else 1.0
    children = tuple(_queues(child, report) for child in report.children)
    return QueueSpec(
        report.name.rpartition(".")[2],
        min(1.0, part),
        min(1.0, max(most, 1e-9)),
        max_am_share=report.max_am_share,
        children=children,
    )
