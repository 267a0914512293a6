"""The face to foreign masters between its two sides: YARN's calls and the manager's stream."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from testkit.hadoop import FakeManager, foreign_master
from weft.model.ids import container_id
from weft.protocol.messages import (
    Ask,
    AsksRefused,
    Container,
    ContainerEnd,
    ContainersGranted,
    Outcome,
    Preemption,
)
from weft.yarn import hadoop_pb2 as pb
from weft.yarn import translate
from weft.yarn.errors import HadoopError
from weft.yarn.masters import RELEASES_PER_CALL_MAX

HOSTS = {"h1": ("n1", "n2"), "h2": ("n3",)}


def row(
    name: str, count: int, *, relax: bool = True, memory: int = 1_000, priority: int = 1
) -> Any:
    return pb.ResourceRequest(
        priority=pb.Priority(priority=priority),
        resource_name=name,
        num_containers=count,
        capability=pb.Resource(memory=memory, virtual_cores=2),
        relax_locality=relax,
    )


class Beats:
    """`allocate` by a master that registered."""

    def __init__(self) -> None:
        self.manager = FakeManager()
        self.master = foreign_master(self.manager, hosts=HOSTS)
        self.next = 0

    async def beat(self, **more: Any) -> Any:
        answer = await self.master.allocate(pb.Allocate(response_id=self.next, **more))
        self.next = answer.response_id
        return answer

    def asks(self) -> list[Ask]:
        return [ask for message in self.manager.asked for ask in message.asks]


def talk(conversation: Callable[[Beats], Awaitable[None]]) -> None:
    async def both() -> None:
        beats = Beats()
        await beats.master.register(pb.Register())
        await conversation(beats)

    asyncio.run(asyncio.wait_for(both(), 20))


def test_what_is_about_to_be_taken_back_is_told_and_then_counts_as_preempted() -> None:
    async def conversation(beats: Beats) -> None:
        master, number = beats.master, container_id(beats.master.attempt, 2)
        await beats.beat(asks=[row("*", 1)])
        (ask,) = beats.asks()
        granted = (Container(number, "n1", ask.ask_id),)
        master.hear(ContainersGranted(master.attempt, 90, containers=granted))
        answer = await beats.beat()
        assert [one.id.id for one in answer.containers] == [2]
        assert not answer.HasField("preempt")
        notice = (Preemption(number, 30.0), Preemption(number + 1, 30.0))
        master.hear(ContainersGranted(master.attempt, 91, preempt=notice))
        answer = await beats.beat()
        assert [one.id.id for one in answer.preempt.strict.containers] == [2], "what it holds"
        assert not (await beats.beat()).HasField("preempt"), "told once"
        end = ContainerEnd(number, Outcome.PREEMPTED)
        master.hear(ContainersGranted(master.attempt, 92, ended=(end,)))
        (done,) = (await beats.beat()).completed
        assert (done.container.id, done.exit_status) == (2, -102)

    talk(conversation)


def test_a_black_list_of_hosts_is_one_of_nodes_and_outlives_the_manager() -> None:
    async def conversation(beats: Beats) -> None:
        def told() -> list[Any]:
            return [m.blacklist for m in beats.manager.asked if m.blacklist is not None]

        await beats.beat(blacklist=pb.Blacklist(additions=["h1", "elsewhere"]))
        await beats.beat()
        await beats.beat(blacklist=pb.Blacklist(additions=["h2"], removals=["elsewhere"]))
        assert told() == [("n1", "n2"), ("n1", "n2", "n3")]
        resync = ContainersGranted(beats.master.attempt, 0, resync=True, epoch=1)
        beats.master.hear(resync)
        await beats.beat()
        assert told()[2:] == [("n1", "n2", "n3")]
        await beats.beat(blacklist=pb.Blacklist(removals=["h1", "h2"]))
        assert told()[-1] == ()

    talk(conversation)


def test_strict_requests_name_their_hosts_and_the_racks_that_are_loose() -> None:
    """As Hadoop's AMRMClient says them: racks of named hosts stand there, strict themselves."""

    async def conversation(beats: Beats) -> None:
        hosts = [row("h2", 2), row("/r1", 2, relax=False), row("*", 2, relax=False)]
        await beats.beat(asks=hosts)
        assert [(a.nodes, a.racks, a.strict) for a in beats.asks()] == [(("n3",), (), True)]
        await beats.beat(asks=[row("/r2", 2), row("*", 2, relax=False)])
        assert (beats.asks()[-1].nodes, beats.asks()[-1].racks) == ((), ("r2",))
        await beats.beat(asks=[row("unknown", 1), row("*", 1, relax=False)])
        assert beats.asks()[-1].nodes == ("unknown",), "it must not go anywhere else"
        await beats.beat(asks=[row("h1", 1), row("/r1", 1), row("*", 1)])
        last = beats.asks()[-1]
        assert (last.nodes, last.racks, last.strict) == (("n1", "n2"), ("r1",), False)

    talk(conversation)


def test_a_call_that_the_manager_refuses_fails_and_its_requests_wait_no_more() -> None:
    async def conversation(beats: Beats) -> None:
        await beats.beat(asks=[row("*", 3)])
        (ask,) = beats.asks()
        refused = (AsksRefused(7, (ask.ask_id,), "more than its queue has"),)
        for number in (90, 91):
            beats.master.hear(ContainersGranted(beats.master.attempt, number, refused=refused))
        with pytest.raises(HadoopError, match="Invalid resource request! more than its queue has"):
            await beats.beat()
        await beats.beat()
        resync = ContainersGranted(beats.master.attempt, 0, resync=True, epoch=1)
        beats.master.hear(resync)
        await beats.beat()
        assert not sum(ask.total for ask in beats.asks()[1:]), "the next manager is asked for none"

    talk(conversation)


def test_what_was_given_back_is_given_back_to_the_next_manager() -> None:
    async def conversation(beats: Beats) -> None:
        master, number = beats.master, container_id(beats.master.attempt, 2)
        await beats.beat(asks=[row("*", 1)])
        (ask,) = beats.asks()
        granted = (Container(number, "n1", ask.ask_id),)
        master.hear(ContainersGranted(master.attempt, 90, containers=granted))
        (container,) = (await beats.beat()).containers
        beats.manager.deaf = True
        await beats.beat(releases=[container.id])
        beats.manager.deaf = False
        beats.manager.asked.clear()
        master.hear(ContainersGranted(master.attempt, 0, resync=True, epoch=1))
        await beats.beat()
        assert [m.releases for m in beats.manager.asked if m.releases] == [(number,)]

    talk(conversation)


def test_a_call_that_gives_back_without_measure_is_refused_and_changes_nothing() -> None:
    async def conversation(beats: Beats) -> None:
        many = [translate.container(0, container_id(beats.master.attempt, 2))] * (
            RELEASES_PER_CALL_MAX + 1
        )
        with pytest.raises(HadoopError, match="gives back 100001 containers"):
            await beats.beat(releases=many)
        await beats.beat(releases=many[:2])
        number = container_id(beats.master.attempt, 2)
        assert [m.releases for m in beats.manager.asked if m.releases] == [(number,)]

    talk(conversation)
