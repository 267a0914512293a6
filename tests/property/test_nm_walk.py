"""Whatever is lost, doubled or late, a node runs each container at most once and owns up to it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nm.core import NodeManager
from nm.settings import NodeSettings
from weft.model.ids import attempt_id, container_id
from weft.model.resources import DEFAULT_RESOURCE_TYPES
from weft.protocol.effects import NodeSlowed, Note, Send, SetTimer, Started, TimerFired
from weft.protocol.facts import TaskStarted, TaskStopped, facts_of
from weft.protocol.messages import (
    NodeAccepted,
    NodeAnswered,
    NodeHeartbeated,
    NodeRegistered,
    Outcome,
    StartContainers,
    StopContainers,
    TaskLaunch,
)

ATTEMPT = attempt_id(1, 1)


class World:
    """One node with a manager that acknowledges what it hears, over a bad line."""

    def __init__(self, seed: int, loss: float, prompt: bool) -> None:
        self.rng = np.random.default_rng(seed)
        self.loss = loss
        self.prompt = prompt
        capacity = {"vcores": 4.0, "memory_mb": 1000.0, "disk_mbps": 100.0}
        rng = np.random.default_rng(1)
        self.node = NodeManager("n1", "", capacity, "r", (), NodeSettings(), rng)
        self.now = 0.0
        self.timers: dict = {}
        self.mail: list = []  # (time, event)
        self.heard: dict[int, Outcome] = {}  # ends that reached the manager
        self.started: list = []
        self.stopped: list = []
        self.responses = 0

    def tell(self, event) -> None:
        for effect in self.node.handle(event, self.now):
            if isinstance(effect, SetTimer):
                self.timers.pop(effect.key, None)
                if effect.delay_s is not None:
                    self.timers[effect.key] = self.now + effect.delay_s
            elif isinstance(effect, Note):
                kinds = {TaskStarted: self.started, TaskStopped: self.stopped}
                for fact in facts_of(effect.fact):
                    kinds[type(fact)].append(fact)
            elif isinstance(effect, Send) and effect.to == "rm":
                for _ in range(self.copies()):
                    self.hear(effect.message)
        self.node.check()

    def copies(self) -> int:
        draw = self.rng.random()
        return 0 if draw < self.loss else 2 if draw > 1 - self.loss else 1

    def post(self, event) -> None:
        for _ in range(self.copies()):
            self.mail.append((self.now + self.rng.random() * 0.5, event))

    def hear(self, message) -> None:
        """The Resource Manager's side."""
        if isinstance(message, NodeRegistered):
            accepted = NodeAccepted("n1", DEFAULT_RESOURCE_TYPES, 1.0, self.prompt, 0)
            self.post(accepted)
        elif isinstance(message, NodeHeartbeated):
            for end in message.ended:
                before = self.heard.setdefault(end.container_id, end.outcome)
                assert before == end.outcome, "an end changed its mind"
            self.responses += 1
            self.post(NodeAnswered("n1", self.responses, (message.request_id,)))

    def run_until(self, time: float) -> None:
        while True:
            due = [(t, 0, key) for key, t in self.timers.items()]
            due += [(t, 1, i) for i, (t, _) in enumerate(self.mail)]
            if not due or min(due, key=lambda d: d[:2])[0] > time:
                break
            at, kind, key = min(due, key=lambda d: d[:2])
            self.now = max(self.now, at)
            if kind == 0:
                del self.timers[key]
                self.tell(TimerFired(key))
            else:
                self.tell(self.mail.pop(key)[1])
        self.now = time


ACTION = st.tuples(
    st.floats(0.0, 2.0),
    st.one_of(
        st.tuples(st.just("start"), st.integers(2, 15), st.floats(0.0, 5.0)),
        st.tuples(st.just("stop"), st.integers(2, 15), st.just(0.0)),
        st.tuples(st.just("slow"), st.just(0), st.sampled_from([0.5, 1.0])),
        st.tuples(st.just("resync"), st.just(0), st.just(0.0)),
    ),
)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(
    st.lists(ACTION, max_size=30),
    st.integers(0, 1000),
    st.sampled_from([0.0, 0.1, 0.3]),
    st.booleans(),
)
def test_every_container_runs_at_most_once_and_its_end_becomes_known(
    actions, seed, loss, prompt
) -> None:
    world = World(seed, loss, prompt)
    world.tell(Started())
    named = set()
    for delay, (what, number, amount) in actions:
        world.run_until(world.now + delay)
        container = container_id(ATTEMPT, number)
        if what == "start":
            demand = (1.0 + number % 3, 200.0, 0.0, 0.0)
            item = TaskLaunch(container, 0, number, 0, amount, demand, granted=demand)
            world.post(StartContainers(ATTEMPT, "n1", (item,)))
        elif what == "stop":
            world.post(StopContainers(ATTEMPT, "n1", (container,)))
            named.add(container)
        elif what == "slow":
            world.post(NodeSlowed(amount))
        else:
            world.responses += 1
            world.post(NodeAnswered("n1", world.responses, resync=True))
    world.loss = 0.0
    world.post(NodeSlowed(1.0))
    world.run_until(world.now + 200)
    ran = [fact.container for fact in world.started]
    assert len(ran) == len(set(ran)), "a container ran twice"
    assert sorted(ran) == sorted(fact.container for fact in world.stopped)
    assert set(ran) <= set(world.heard), "an end was never heard of"
    for fact in world.stopped:
        assert world.heard[fact.container] == fact.outcome
    assert world.node.containers == ()
    assert world.node.silent
