"""A router moves guarantees: only in members that are there, only from the tree that holds."""

import asyncio
from typing import Any

from weft.model.errors import WeftError
from weft.model.queues import QueueSpec, digest_of
from weft.policies.members import Standing
from weft.policies.shares import SHARES_S
from weft.protocol.requests import (
    ClusterMetrics,
    GetMetrics,
    GetQueues,
    QueueReport,
    Queues,
    QueuesSet,
    Refused,
    SetQueues,
)
from weft.router.sharing import share
from weft.runtime.role_settings import RouterSettings

EVEN = QueueSpec("root", children=(QueueSpec("a", 0.5), QueueSpec("b", 0.5)))


class FakeMember:
    """Has ten cores; `wanted` are what its queues hold."""

    def __init__(self, number: int, a: float, b: float) -> None:
        self.number, self.tree = number, EVEN
        self.wanted = {"root": a + b, "root.a": a, "root.b": b}
        self.standing = Standing(up=True)
        self.meanwhile: QueueSpec | None = None
        self.lost = self.refused = self.set = 0

    async def ask(self, request: Any, caller: Any) -> Any:
        if isinstance(request, GetMetrics):
            return ClusterMetrics("capacity", 0.0, 0.0, {}, {}, {"vcores": 10.0}, {}, 0, 0)
        if isinstance(request, GetQueues):
            return Queues(self.tree)
        if isinstance(request, SetQueues):
            return self.take(request)
        return self.report("root", tuple(self.report(f"root.{name}") for name in "ab"))

    def report(self, name: str, below: tuple[QueueReport, ...] = ()) -> QueueReport:
        held = {"vcores": self.wanted[name]}
        return QueueReport(name, 0.0, 1.0, 0.0, "RUNNING", 0, 0, held, 0, 0.0, below)

    def take(self, request: SetQueues) -> Any:
        if self.lost:
            raise WeftError("nobody there")
        if self.meanwhile is not None:
            self.tree = self.meanwhile
        if request.base != digest_of(self.tree):
            self.refused += 1
            return Refused("failed_precondition", "base", "changed")
        self.tree, self.set = request.queues, self.set + 1
        return QueuesSet(())


def parts(member: FakeMember) -> list[float]:
    return [round(child.capacity, 1) for child in member.tree.children]


def rounds(members: list[Any], count: int = 1) -> list[int]:
    return [asyncio.run(share(members)) for _ in range(count)]


def test_guarantees_go_where_the_work_is_and_then_stay() -> None:
    members = [FakeMember(1, 20.0, 0.0), FakeMember(2, 0.0, 20.0)]
    assert rounds(members, 3) == [2, 0, 0]
    assert (parts(members[0]), parts(members[1])) == ([1.0, 0.0], [0.0, 1.0])


def test_a_change_that_is_lost_comes_again() -> None:
    members = [FakeMember(1, 20.0, 0.0), FakeMember(2, 0.0, 20.0)]
    members[1].lost = 1
    rounds(members)
    assert parts(members[1]) == [0.5, 0.5]
    members[1].lost = 0
    rounds(members)
    assert parts(members[1]) == [0.0, 1.0]


def test_what_an_operator_sets_meanwhile_holds() -> None:
    members = [FakeMember(1, 20.0, 0.0), FakeMember(2, 0.0, 20.0)]
    other = QueueSpec("root", children=(QueueSpec("a", 0.2), QueueSpec("b", 0.8)))
    for one in members:
        one.meanwhile = other
    rounds(members)
    assert [one.tree for one in members] == [other, other]
    assert [one.refused for one in members] == [1, 1]
    for one in members:
        one.meanwhile = None
    rounds(members)
    assert parts(members[0]) == [0.4, 0.6]


def test_a_member_that_is_gone_keeps_its_guarantees_and_counts_for_nothing() -> None:
    members = [FakeMember(1, 20.0, 0.0), FakeMember(2, 0.0, 20.0), FakeMember(3, 20.0, 20.0)]
    members[2].standing.up = False
    rounds(members)
    assert parts(members[0]) == [1.0, 0.0]
    assert members[2].tree == EVEN


def test_live_and_simulated_routers_look_as_often() -> None:
    assert RouterSettings.model_fields["shares_s"].default == SHARES_S
