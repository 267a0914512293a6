"""Builders for tests: jobs, nodes and the messages of well-behaved masters and nodes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from weft.model.ids import AttemptId, ContainerId, NodeId
from weft.model.job import Edge, Job, Stage
from weft.model.resources import Kind, ResourceType, ResourceTypes
from weft.protocol.effects import Effect, Note, Persist, Send, SetTimer
from weft.protocol.facts import facts_of
from weft.protocol.messages import (
    Ask,
    AskType,
    AttemptAccepted,
    Container,
    ContainerEnd,
    ContainersAsked,
    ContainersGranted,
    MasterLaunch,
    NodeAnswered,
    NodeHeartbeated,
    NodeRegistered,
    Outcome,
    RunningContainer,
    containers_of,
)
from weft.protocol.requests import ApplicationReport

TWO_TYPES = ResourceTypes(
    (ResourceType("vcores", Kind.DIVISIBLE), ResourceType("memory_mb", Kind.RIGID))
)

T = TypeVar("T")


def stage(
    name: str = "work",
    tasks: int = 1,
    duration_s: float = 10.0,
    demand: Mapping[str, float] | None = None,
    parents: Sequence[str] = (),
    **more: Any,
) -> Stage:
    """Return a stage; by default one task of one core and 1 GB for 10 s."""
    return Stage(
        name=name,
        tasks=tasks,
        duration_s=duration_s,
        demand=demand or {"vcores": 1.0, "memory_mb": 1024.0},
        parents=tuple(Edge(parent) for parent in parents),
        **more,
    )


def job(name: str = "job", *stages: Stage, **more: Any) -> Job:
    """Return a job; by default of one stage with one task."""
    return Job(name=name, stages=stages or (stage(),), **more)


def chain(name: str = "chain", tasks: Sequence[int] = (2, 2), **more: Any) -> Job:
    """Return a job whose stages each wait for all tasks of the one before."""
    made = [
        stage(f"s{i}", count, parents=[f"s{i - 1}"] if i else []) for i, count in enumerate(tasks)
    ]
    return Job(name=name, stages=tuple(made), **more)


def node_registered(
    node: NodeId = "n1",
    vcores: float = 4.0,
    memory_mb: float = 8192.0,
    running: Sequence[RunningContainer] = (),
    **more: Any,
) -> NodeRegistered:
    """Return a registration; `capacity=` replaces the two amounts."""
    values: dict[str, Any] = {
        "address": f"{node}:8041",
        "rack": "r1",
        "labels": (),
        "capacity": {"vcores": vcores, "memory_mb": memory_mb},
    }
    return NodeRegistered(node_id=node, running=tuple(running), **{**values, **more})


def ask(
    ask_id: int = 1,
    total: int = 1,
    demand: Sequence[float] = (1.0, 1024.0),
    **more: Any,
) -> Ask:
    """Return an ask of the two types."""
    values: dict[str, Any] = {
        "duration_s": 10.0,
        "pri_score": 1.0,
        "kind": AskType.DEFAULT,
        "stage": 0,
    }
    return Ask(ask_id=ask_id, total=total, demand=tuple(demand), **{**values, **more})


def sent(effects: Sequence[Effect], kind: type[T]) -> list[T]:
    """Return the messages of one kind among effects."""
    return [e.message for e in effects if isinstance(e, Send) and isinstance(e.message, kind)]


def noted(effects: Sequence[Effect], kind: type[T]) -> list[T]:
    """Return the facts of one kind among effects."""
    facts = [fact for e in effects if isinstance(e, Note) for fact in facts_of(e.fact)]
    return [fact for fact in facts if isinstance(fact, kind)]


def persisted(effects: Sequence[Effect]) -> list[Mapping[str, Any]]:
    """Return the records among effects."""
    return [e.record for e in effects if isinstance(e, Persist)]


def timers(effects: Sequence[Effect]) -> list[SetTimer]:
    """Return the timers among effects."""
    return [e for e in effects if isinstance(e, SetTimer)]


@dataclass
class FakeNode:
    """The Resource Manager's side of a node manager: what it was told and what it owes."""

    node_id: NodeId
    request_id: int = 0
    acks: list[int] = field(default_factory=list)
    masters: dict[ContainerId, AttemptId] = field(default_factory=dict)
    stops: list[ContainerId] = field(default_factory=list)

    def hears(self, message: object) -> None:
        """Take in an answer."""
        if isinstance(message, NodeAnswered) and message.node_id == self.node_id:
            if message.response_id:
                self.acks.append(message.response_id)
            for launch in message.start:
                self.hears_launch(launch)
            self.stops.extend(message.stop)

    def hears_launch(self, launch: MasterLaunch) -> None:
        """Note that a master is to be started."""
        self.masters[launch.container_id] = launch.attempt_id

    def heartbeat(self, *ended: ContainerEnd, **more: Any) -> NodeHeartbeated:
        """Return the next report."""
        self.request_id += 1
        acks, self.acks = tuple(self.acks), []
        return NodeHeartbeated(self.node_id, self.request_id, acks, tuple(ended), **more)


@dataclass
class FakeMaster:
    """The Resource Manager's side of an application master."""

    attempt_id: AttemptId
    request_id: int = 0
    acks: list[int] = field(default_factory=list)
    accepted: AttemptAccepted | None = None
    containers: dict[ContainerId, Container] = field(default_factory=dict)
    ended: dict[ContainerId, ContainerEnd] = field(default_factory=dict)
    resync: bool = False

    def hears(self, message: object) -> None:
        """Take in an answer."""
        if isinstance(message, AttemptAccepted) and message.attempt_id == self.attempt_id:
            self.accepted = message
        if isinstance(message, ContainersGranted) and message.attempt_id == self.attempt_id:
            self.resync |= message.resync
            if message.response_id:
                self.acks.append(message.response_id)
            for container in containers_of(message.containers):
                self.containers.setdefault(container.container_id, container)
            for end in message.ended:
                self.ended.setdefault(end.container_id, end)

    def asks(self, *asks: Ask, **more: Any) -> ContainersAsked:
        """Return the next `allocate`."""
        self.request_id += 1
        acks, self.acks = tuple(self.acks), []
        if self.accepted is not None:
            more.setdefault("epoch", self.accepted.epoch)
        return ContainersAsked(self.attempt_id, self.request_id, acks, tuple(asks), **more)


def succeeded(container: ContainerId, stage: int = 0, task: int = 0) -> ContainerEnd:
    """Return the good end of a container's task."""
    return ContainerEnd(container, Outcome.SUCCEEDED, 0, stage, task, 0, 10.0)


def report(app_id: int, **changes: Any) -> ApplicationReport:
    """Return the report of an application that was accepted and has one task."""
    plain: dict[str, Any] = {
        "app_id": app_id,
        "name": f"j{app_id}",
        "user": "ada",
        "queue": "root.default",
        "priority": 0,
        "state": "ACCEPTED",
        "final_status": "UNDEFINED",
        "progress": 0.0,
        "attempt_id": 0,
        "master_node": "",
        "submitted_s": 0.0,
        "started_s": 0.0,
        "finished_s": 0.0,
        "tasks": 1,
        "finished_tasks": 0,
        "running_containers": 0,
        "pending_containers": 0,
        "allocated": {},
    }
    return ApplicationReport(**plain | changes)
