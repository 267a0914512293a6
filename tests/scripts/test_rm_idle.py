"""Heartbeats that say nothing come many in one message, and do what each would have done."""

import random
from dataclasses import replace

import pytest

from rm.settings import ManagerSettings
from testkit.builders import ask, job, noted, sent, stage, succeeded
from testkit.manager import Rig
from weft.model.ids import ContainerId
from weft.protocol.effects import Effect, NodesIdle, TimerFired
from weft.protocol.facts import NodeChanged, Placed
from weft.protocol.messages import NodeAnswered, NodeHeartbeated

FREE = ManagerSettings(prompt=False, master_demand={}, node_expiry_s=10.0, master_expiry_s=1e6)
NODES = ("n1", "n2", "n3", "n4")


def rig_of(settings: ManagerSettings = FREE, matcher: str = "fifo") -> Rig:
    rig = Rig(matcher, settings=settings)
    for name in NODES:
        rig.add_node(name)
    return rig


def test_an_idle_beat_gets_what_is_pending() -> None:
    rig = rig_of()
    master = rig.start(job("j", stage(tasks=40)))
    rig.allocate(master, ask(total=40))
    effects = rig.tell(NodesIdle(NODES), 1.0)
    assert {fact.node for fact in noted(effects, Placed)} == set(NODES)


def test_idle_nodes_are_heard_of_and_those_that_are_left_out_are_lost() -> None:
    rig = rig_of()
    for _ in range(4):
        rig.tell(NodesIdle(NODES[:3]), 4.0)
    effects = rig.tell(TimerFired("liveness"))
    assert [(f.node, f.state) for f in noted(effects, NodeChanged)] == [("n4", "LOST")]


def test_who_is_not_known_or_was_given_up_has_to_register() -> None:
    rig = rig_of()
    for _ in range(4):
        rig.tell(NodesIdle(NODES[:3]), 4.0)
    rig.tell(TimerFired("liveness"))
    effects = rig.tell(NodesIdle(("n4", "n1", "stranger")))
    told = sent(effects, NodeAnswered)
    assert [(answer.node_id, answer.resync) for answer in told] == [
        ("n4", True),
        ("stranger", True),
    ]


def test_what_a_node_is_owed_is_told_at_its_idle_beat() -> None:
    rig = rig_of()
    rig.submit(job("j", stage(tasks=1)))
    (answer,) = sent(rig.tell(NodesIdle(("n2",)), 1.0), NodeAnswered)
    assert len(answer.start) == 1
    again = rig.tell(NodesIdle(("n2",)), FREE.resend_after_s + 1.0)
    assert sent(again, NodeAnswered)[0].start == answer.start, "it was not acknowledged"


class _Twin:
    """The same cluster once more; its nodes say nothing in a message of their own each."""

    def __init__(self, matcher: str, prompt: bool, apart: bool) -> None:
        settings = replace(FREE, prompt=prompt, node_expiry_s=1e6)
        self.rig, self.apart = rig_of(settings, matcher), apart
        self.placed: list[tuple[str, ContainerId]] = []
        self.masters = [self.rig.start(job(f"j{n}", stage(tasks=60))) for n in range(3)]

    def note(self, effects: list[Effect]) -> None:
        self.placed += [(fact.node, fact.container) for fact in noted(effects, Placed)]

    def idle(self, names: tuple[str, ...]) -> None:
        if not self.apart:
            self.note(self.rig.tell(NodesIdle(names)))
            return
        for name in names:
            node = self.rig.nodes[name]
            node.request_id += 1
            self.note(self.rig.tell(NodeHeartbeated(name, node.request_id)))


@pytest.mark.parametrize("prompt", [False, True])
@pytest.mark.parametrize("matcher", ["fifo", "capacity", "graphene", "drf", "carbyne"])
def test_together_they_do_what_they_would_do_one_by_one(matcher: str, prompt: bool) -> None:
    rng = random.Random(f"{matcher} {prompt}")
    twins = [_Twin(matcher, prompt, apart) for apart in (True, False)]
    for step in range(120):
        wait_s, what = rng.random(), rng.choice(("ask", "end", "idle", "idle", "idle"))
        names = tuple(rng.sample(NODES, rng.randint(1, 4)))
        which, count = rng.randrange(3), rng.randint(1, 6)
        ending = list(range(len(twins[0].placed)))
        place = rng.choice(ending) if ending else -1
        for twin in twins:
            rig = twin.rig
            rig.now += wait_s
            if what == "idle":
                twin.idle(names)
            elif what == "ask":
                wanted = ask(ask_id=1 + which, total=10 + step * count, demand=(1.0, 512.0))
                twin.note(rig.allocate(twin.masters[which], wanted))
            elif place >= 0:
                node, container = twin.placed[place]
                end = succeeded(container, 0, place % 60)
                twin.note(rig.tell(rig.nodes[node].heartbeat(end)))
        assert twins[0].placed == twins[1].placed, step
    assert len(twins[0].placed) > 20
