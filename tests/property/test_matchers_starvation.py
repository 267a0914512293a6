"""Nobody starves under any matcher: 10,000 random steps of the whole Resource Manager's core.

Jobs come and go, containers are granted and end at random, some asks need a whole node. Once
arrivals stop every ask that fits on some node is granted; and while they go on, the matchers that
give queues a guarantee serve each queue that waits within a bound.
"""

from typing import Any

import numpy as np
import pytest

from rm.core import ResourceManager
from rm.match.registry import make_matcher
from rm.settings import ManagerSettings
from testkit.builders import TWO_TYPES, FakeMaster, FakeNode, ask, job, node_registered, stage
from testkit.matching import VIEWING
from weft.model.queues import QueueSpec
from weft.protocol.effects import ClientRequested, Recovered, Send, TimerFired
from weft.protocol.messages import (
    AttemptFinished,
    AttemptRegistered,
    ContainerEnd,
    MasterLaunch,
    Outcome,
)
from weft.protocol.requests import SubmitApplication

QUEUES = QueueSpec("root", children=(QueueSpec("a", 0.5), QueueSpec("b", 0.5)))
NODES, LIVE_MAX, STEP_S = 4, 14, 0.25
STEPS, ARRIVALS = 10_000, 7_500
SIZES = [(0.5, 256.0), (1.0, 2048.0), (2.0, 1024.0), (4.0, 8192.0)]  # the last: a whole node
GUARANTEE = {"capacity", "fair", "drf", "graphene"}  # with a promise to each queue


class Crowd:
    """Jobs, masters and nodes that do what they are told, at random times."""

    def __init__(self, matcher: str, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        settings = ManagerSettings(
            master_demand={"vcores": 0.0},
            reserve_after_s=20.0,
            node_expiry_s=1e9,
            master_expiry_s=1e9,
        )
        self.manager = ResourceManager(
            1, TWO_TYPES, QUEUES, make_matcher(matcher), settings, np.random.default_rng(0)
        )
        self.now = 0.0
        self.jobs = 0
        self.nodes = {f"n{i}": FakeNode(f"n{i}") for i in range(NODES)}
        self.masters: dict[int, FakeMaster] = {}
        self.wanted: dict[int, int] = {}  # by attempt
        self.ended: dict[int, int] = {}
        self.on_node: dict[str, list[int]] = {name: [] for name in self.nodes}
        self.launched: dict[int, int] = {}  # attempt -> its master's container
        self.waits: dict[str, float] = {}  # since when a queue waits
        self.longest: dict[str, float] = {"a": 0.0, "b": 0.0}
        self.tell(Recovered())
        for name in self.nodes:
            self.tell(node_registered(name))

    def tell(self, event: object) -> None:
        for effect in self.manager.handle(event, self.now):
            if isinstance(effect, Send):
                for node in self.nodes.values():
                    node.hears(effect.message)
                for attempt in list(self.masters):
                    self.hears(self.masters[attempt], effect.message)
                for launch in getattr(effect.message, "start", ()):
                    self.launch(launch)

    def launch(self, launch: MasterLaunch) -> None:
        self.launched[launch.attempt_id] = launch.container_id
        self.masters[launch.attempt_id] = FakeMaster(launch.attempt_id)

    def hears(self, master: FakeMaster, message: Any) -> None:
        before = set(master.containers)
        master.hears(message)
        for number in set(master.containers) - before:
            self.on_node[master.containers[number].node_id].append(number)

    def arrive(self) -> None:
        self.jobs += 1
        made = job(f"j{self.jobs}", stage(tasks=1), queue="ab"[self.jobs % 2])
        self.tell(ClientRequested("c", SubmitApplication(made, f"s{self.jobs}")))

    def talk(self, attempt: int) -> None:
        master = self.masters[attempt]
        if attempt not in self.wanted:
            self.tell(AttemptRegistered(attempt))
            asks = []
            for number in range(1, int(self.rng.integers(2, 5))):
                size = SIZES[int(self.rng.choice(len(SIZES), p=[0.4, 0.3, 0.25, 0.05]))]
                asks.append(ask(number, int(self.rng.integers(1, 9)), size))
            self.wanted[attempt] = sum(a.total for a in asks)
            self.tell(master.asks(*asks, remaining_work=float(self.rng.uniform(1, 50))))
        elif len(master.ended) >= self.wanted[attempt]:
            self.tell(AttemptFinished(attempt, True))
            del self.masters[attempt]
            end = ContainerEnd(self.launched.pop(attempt), Outcome.SUCCEEDED)
            holding = self.manager.books.holdings.get(end.container_id)
            if holding is not None:
                self.tell(self.nodes[holding.node.node_id].heartbeat(end))
        else:
            self.tell(master.asks())

    def beat(self, name: str) -> None:
        running = self.on_node[name]
        ends = [number for number in running if self.rng.random() < 0.1]
        self.on_node[name] = [number for number in running if number not in ends]
        self.tell(
            self.nodes[name].heartbeat(
                *[ContainerEnd(number, Outcome.SUCCEEDED, 0, 0, -1) for number in ends]
            )
        )

    def step(self, arrivals: bool) -> None:
        self.now += STEP_S
        if arrivals and len(self.launched) < LIVE_MAX and self.rng.random() < 0.1:
            self.arrive()
        self.beat(f"n{int(self.rng.integers(NODES))}")
        if self.masters:
            attempts = list(self.masters)
            self.talk(attempts[int(self.rng.integers(len(attempts)))])
        self.watch()

    def watch(self) -> None:
        """How long a queue with something pending has got nothing."""
        books = self.manager.books
        apps, n = books.ledger.apps, books.ledger.app_slots
        for name in "ab":
            slot = books.queues.leaf(name)
            mine = apps.active[:n] & (apps.queue[:n] == slot)
            got = float(apps.granted_s[:n][mine].max(initial=0.0))  # to anybody of the queue
            pending = books.ledger.by_queue.pending[slot] > 0
            since = self.waits.setdefault(name, self.now) if pending else self.now
            if not pending:
                self.waits.pop(name, None)
            elif got > since:
                self.waits[name] = since = got
            self.longest[name] = max(self.longest[name], self.now - since)


@pytest.mark.slow
@pytest.mark.parametrize("matcher", VIEWING)
def test_nobody_starves_in_ten_thousand_random_steps(matcher: str) -> None:
    """Every job that came ends soon after arrivals stop; queues with a guarantee wait little."""
    crowd = Crowd(matcher, seed=11)
    for step in range(STEPS):
        crowd.step(arrivals=step < ARRIVALS)
        if step % 500 == 0:
            crowd.manager.check()
            crowd.tell(TimerFired("liveness"))
    crowd.manager.check()
    assert crowd.jobs > 100
    books = crowd.manager.books
    assert not crowd.masters, f"{len(crowd.masters)} of {crowd.jobs} jobs did not end"
    assert not books.rows.live
    assert not books.holdings
    assert not books.matching.reserved
    if matcher in GUARANTEE:
        # a task ends within 10 s on average; reservations come after 20 s
        assert max(crowd.longest.values()) < 120.0
