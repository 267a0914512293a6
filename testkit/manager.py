"""A Resource Manager with obedient nodes and masters around it, for tests only."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rm.core import ResourceManager
from rm.match.protocol import Matcher
from rm.match.registry import make_matcher
from rm.settings import ManagerSettings
from testkit.builders import (
    TWO_TYPES,
    FakeMaster,
    FakeNode,
    ask,
    job,
    node_registered,
    persisted,
    sent,
    stage,
    timers,
)
from weft.model.ids import attempt_id
from weft.model.job import Job
from weft.model.queues import DEFAULT_QUEUES, QueueSpec
from weft.model.resources import ResourceTypes
from weft.protocol.access import TRUSTED, Caller
from weft.protocol.effects import ClientRequested, Effect, Recovered, Send, TimerFired
from weft.protocol.event_unions import ManagerTold
from weft.protocol.messages import Ask, AttemptRegistered, ContainerEnd, NodeAnswered
from weft.protocol.requests import ApplicationAccepted, ClientRequest, SubmitApplication


class Rig:
    """Delivers events, zero-delay timers and answers; calls `check()` after every event."""

    def __init__(
        self,
        matcher: str | Matcher = "fifo",
        settings: ManagerSettings | None = None,
        queues: QueueSpec = DEFAULT_QUEUES,
        types: ResourceTypes = TWO_TYPES,
        records: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        made = make_matcher(matcher) if isinstance(matcher, str) else matcher
        self.manager = ResourceManager(
            7, types, queues, made, settings or ManagerSettings(), np.random.default_rng(1)
        )
        self.now = 0.0
        self.nodes: dict[str, FakeNode] = {}
        self.masters: dict[int, FakeMaster] = {}
        self.records: list[Mapping[str, Any]] = list(records)
        self.effects: list[Effect] = []
        # Holds every message that was sent, in order.
        self.heard: list[Any] = []
        self.tell(Recovered(tuple(records)))

    def tell(
        self, event: ManagerTold, later_s: float = 0.0, *, paused: bool = False
    ) -> list[Effect]:
        """Hand in an event; all that followed.

        A look for silent nodes is on time, as if those before it had been as well, unless `paused`.
        """
        self.now += later_s
        if event == TimerFired("liveness") and not paused:
            self.manager._watch_at = self.now
        effects = self.manager.handle(event, self.now)
        self.manager.check()
        for timer in timers(effects):
            if timer.delay_s == 0:
                effects = effects + self.manager.handle(TimerFired(timer.key), self.now)
                self.manager.check()
        self.records.extend(persisted(effects))
        for message in sent(effects, object):
            self.heard.append(message)
            for node in self.nodes.values():
                node.hears(message)
            for master in self.masters.values():
                master.hears(message)
        self.effects = effects
        return effects

    def add_node(
        self, name: str = "n1", vcores: float = 4.0, memory_mb: float = 8192.0, **more: Any
    ) -> FakeNode:
        """Register a node."""
        self.nodes[name] = FakeNode(name)
        self.tell(node_registered(name, vcores, memory_mb, **more))
        return self.nodes[name]

    def restart_node(self, name: str, boot: int, **more: Any) -> list[Effect]:
        """Start a node's process anew, until it is believed; return all that followed."""
        effects = self.tell(node_registered(name, boot=boot, **more))
        for answer in sent(effects, NodeAnswered):
            if answer.token:
                said = node_registered(
                    name, boot=boot, life=answer.life, token=answer.token, **more
                )
                effects = self.tell(said)
        return effects

    def ask_manager(self, request: ClientRequest, caller: Caller = TRUSTED) -> Any:
        """Send a client's request; return its answer."""
        effects = self.tell(ClientRequested("t", request, caller))
        return next(e.message for e in effects if isinstance(e, Send) and e.to == "client:t")

    def submit(self, wanted: Job | None = None, submission_id: str = "") -> int:
        """Submit a job that must be accepted."""
        answer = self.ask_manager(SubmitApplication(wanted or job(), submission_id))
        assert isinstance(answer, ApplicationAccepted), answer
        return answer.app_id

    def beat(self, name: str | None = None, *ended: ContainerEnd, later_s: float = 0.0) -> None:
        """Send one heartbeat of a node, or of all."""
        for node in [name] if name else list(self.nodes):
            self.tell(self.nodes[node].heartbeat(*ended), later_s)

    def start(self, wanted: Job | None = None) -> FakeMaster:
        """Submit a job, launch its master and register it."""
        app = self.submit(wanted)
        self.beat()
        return self.register(attempt_id(app, 1))

    def register(self, attempt: int) -> FakeMaster:
        """Register a master."""
        master = self.masters[attempt] = FakeMaster(attempt)
        self.tell(AttemptRegistered(attempt))
        return master

    def allocate(self, master: FakeMaster, *asks: Ask, **more: Any) -> list[Effect]:
        """Send a master's heartbeat."""
        return self.tell(master.asks(*asks, **more))


def granted(settings: ManagerSettings, count: int = 1) -> tuple[Rig, FakeMaster]:
    """Return a cluster of one node, on which the master of a job of four tasks got containers."""
    rig = Rig(settings=settings)
    rig.add_node("n1")
    master = rig.start(job("j", stage(tasks=4)))
    rig.allocate(master, ask(total=count))
    rig.beat()
    rig.allocate(master)
    return rig, master
