"""Queues that submissions make meet all else: moves, other trees, time, restarts, explanations."""

import random

import pytest

from rm.applications import OVER
from rm.settings import ManagerSettings
from testkit.builders import ask, job, stage
from testkit.manager import Rig
from weft.model.json_types import Json, Table
from weft.model.queues import QueueSpec, queues_from_dict, queues_to_dict
from weft.protocol.effects import TimerFired
from weft.protocol.requests import (
    ClientRequest,
    Explain,
    GetQueues,
    KillApplication,
    MoveApplication,
    Queues,
    QueuesSet,
    Refused,
    SetQueues,
    SubmitApplication,
)

POLICIES = ["yarn", "yarn_fair", "capacity", "fifo", "drf", "graphene", "carbyne", "tetris"]
NAMED = ["default", "b", "users", "root.users.q1", "users.q2.z", "users.submit", "users..", "keep"]
LIKE: list[Json] = [
    {},
    {"max_capacity": 0.4},
    {"weight": 3, "max_applications": 1},
    {"max_allocation": {"vcores": 1}},
    {"user_limit_factor": 1.0, "max_am_share": 0.1},
]


def tree(draw: random.Random, fair: bool) -> QueueSpec:
    users: Json = {
        "capacity": 0.5,
        "creates": {
            "expires_s": draw.choice([0, 1, 60]),
            "most": draw.choice([1, 3, 10]),
            "depth": draw.choice([1, 2, 3]),
            "leaf": draw.choice(LIKE),
            "parent": draw.choice([{}, {"creates": {"expires_s": 2}}, {"max_capacity": 0.3}]),
        },
    }
    if draw.random() < 0.3:
        users["keep"] = {"weight": 1}
    if draw.random() < 0.15:
        users["state"] = "STOPPED"
    root: Json = {"b": {"capacity": 0.3, "weight": draw.choice([0, 1])}, "users": users}
    if draw.random() < 0.2:
        root["b"] = {"capacity": 0.3, "c": {}, "d": {}}
    rules: list[Json] = [{"queue": "root.users.%user"}]
    if fair:
        root["placement"] = {"fair": True, "rules": [{"queue": "%specified"}, *rules]}
    elif draw.random() < 0.5:
        root["placement"] = {"rules": rules, "overrides": draw.random() < 0.5}
    return queues_from_dict({"root": root})


class Walk:
    """A manager to which everything happens that makes, fills, empties or moves queues."""

    def __init__(self, draw: random.Random, policy: str) -> None:
        self.draw, self.policy, self.fair = draw, policy, draw.random() < 0.3
        self.settings = ManagerSettings(
            master_demand=draw.choice([{}, {"vcores": 1.0}]),
            master_expiry_s=10_000.0,
            node_expiry_s=10_000.0,
        )
        self.said = tree(draw, self.fair)
        self.rig = self.manager(())

    def manager(self, records: tuple[Table, ...]) -> Rig:
        rig = Rig(self.policy, self.settings, self.said, records=records)
        for name in ("n0", "n1"):
            rig.add_node(name)
        return rig

    def app(self) -> int:
        return self.draw.choice([*self.rig.manager.books.apps, 0])

    def submit(self) -> None:
        wanted = stage(tasks=self.draw.choice([1, 5]), demand={"vcores": self.draw.choice([1, 2])})
        user, queue = self.draw.choice(["ann", "c.d", "submit"]), self.draw.choice(NAMED)
        self.rig.ask_manager(SubmitApplication(job("j", wanted, queue=queue, user=user), ""))

    def change(self) -> None:
        queue = self.draw.choice(self.rig.manager.books.queues.paths)
        changes: list[ClientRequest] = [
            KillApplication(self.app()),
            MoveApplication(self.app(), queue),
            SetQueues(tree(self.draw, self.fair)),
        ]
        self.rig.ask_manager(self.draw.choice(changes))

    def read(self) -> None:
        got = self.rig.ask_manager(GetQueues())
        assert isinstance(got, Queues)
        assert queues_from_dict(queues_to_dict(got.queues)) == got.queues
        assert isinstance(self.rig.ask_manager(SetQueues(got.queues)), QueuesSet)
        told = self.rig.ask_manager(Explain(self.app()))
        assert not isinstance(told, Refused) or told.code == "not_found", told

    def run(self) -> None:
        rig, books = self.rig, self.rig.manager.books
        rig.tell(TimerFired("liveness"), self.draw.choice([0.5, 3.0, 100.0]))
        rig.beat(later_s=0.5)
        for app in list(books.apps.values()):
            attempt = app.attempts[-1] if app.attempts else None
            if attempt is not None and attempt.state.name == "ALLOCATED":
                rig.allocate(rig.register(attempt.attempt_id), ask(1, 2, demand=(1.0, 256.0)))

    def restart(self) -> None:
        books = self.rig.manager.books
        before = {
            number: books.queues.paths[app.queue]
            for number, app in books.apps.items()
            if app.state not in OVER
        }
        self.rig = self.manager(tuple(self.rig.records))
        books = self.rig.manager.books
        assert before == {n: books.queues.paths[books.apps[n].queue] for n in before}


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
def test_queues_that_are_made_stay_whole_whatever_meets_them(policy: str) -> None:
    for seed in range(12):
        walk = Walk(random.Random(f"{policy} {seed}"), policy)
        ways = [walk.submit, walk.change, walk.read, walk.run, walk.restart]
        for way in walk.draw.choices(ways, weights=[6, 4, 3, 4, 1], k=25):
            way()
