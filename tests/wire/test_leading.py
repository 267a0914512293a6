"""The gate of a manager that may be replaced: it says nothing any more once it does not lead."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from testkit.live import PATIENCE_S
from weft.ha.leading import Leading
from weft.protocol.access import Caller
from weft.protocol.messages import NodeAnswered, NodeUnregistered
from weft.protocol.requests import ClientRequest, GetMetrics, ListQueues, Refused
from weft.wire.addresses import Newest
from weft.wire.client import ManagerConnection
from weft.wire.connections import tracker_stream
from weft.wire.outbound_queues import Lane
from weft.wire.server import Server
from weft.wire.services import add_client_service, add_tracker_service


class Manager:
    """One of two that serve the same; who leads is told by hand."""

    def __init__(self, life: int) -> None:
        self.life = life
        self.may_order = self.may_answer = True
        self.leader = ""
        self.lanes: list[Lane] = []
        self.heard: list[Any] = []
        self.asked = 0
        self.slow = asyncio.Event()
        self.slow.set()
        self.gate = Leading(self)
        self.server = Server("127.0.0.1", 0, gate=self.gate)
        add_tracker_service(self.server, self._batch, lambda lane: None, stamp=lambda: (9, life))
        add_client_service(self.server, self._ask, self._watch)

    def refusal(self) -> tuple[str, str]:
        return f"life {self.life} does not lead", self.leader

    def _batch(self, lane: Lane, batch: list[Any]) -> None:
        self.heard += batch
        if lane not in self.lanes:
            self.lanes.append(lane)

    async def _ask(self, request: ClientRequest, caller: Caller) -> Any:
        self.asked += 1
        await self.slow.wait()
        return Refused("not_found", "", f"answered by life {self.life}")

    async def _watch(self, after: int) -> AsyncIterator[tuple[int, list[str]]]:
        yield 1, []


async def until(condition: Any, what: str) -> None:
    give_up = asyncio.get_running_loop().time() + PATIENCE_S
    while not condition():
        assert asyncio.get_running_loop().time() < give_up, what
        await asyncio.sleep(0.005)


def test_orders_in_hand_do_not_leave_and_the_node_goes_on_to_the_leader() -> None:
    async def main() -> None:
        old, new = Manager(1), Manager(2)
        old.leader, new.may_order = "", False
        places = [await one.server.start() for one in (old, new)]
        got: list[Any] = []
        reasons: list[str] = []
        stream = tracker_stream(
            ",".join(places), got.extend, lambda up, reason: reasons.append(reason)
        )
        task = asyncio.create_task(stream.run())
        await until(lambda: stream.up, "it found the one who leads")
        stream.send([NodeUnregistered("n")])
        await until(lambda: old.heard, "the leader heard it")
        old.lanes[0].send([NodeAnswered("n", 1)])
        await until(lambda: [m for m in got if isinstance(m, NodeAnswered)], "it answers")
        # it was paused, another one leads, and it wakes with an order to send
        old.may_order, new.may_order, old.leader = False, True, places[1]
        old.lanes[0].send([NodeAnswered("n", 666)])
        await until(lambda: "life 1 does not lead" in reasons, "it is told that it leads no more")
        await until(lambda: stream.up, "the node found the other one")
        stream.send([NodeUnregistered("n")])
        await until(lambda: new.heard, "the other one hears it")
        new.lanes[0].send([NodeAnswered("n", 2)])
        await until(lambda: _numbers(got) == [1, 2], "and answers")
        # a standby that only says so ends its streams
        new.may_order, old.may_order = False, True
        new.gate.end_calls()
        await until(lambda: "life 2 does not lead" in reasons, "its streams end")

        # what leads now is an earlier life: nothing of it is taken
        def left() -> bool:
            if stream.up:
                stream.send([NodeUnregistered("n")])
            for lane in old.lanes:
                lane.send([NodeAnswered("n", 667)])
            return any("life 1 of the manager is over" in reason for reason in reasons)

        await until(left, "an earlier life is left")
        assert _numbers(got) == [1, 2]
        task.cancel()
        for one in (old, new):
            await one.server.stop(0)

    asyncio.run(main())


def _numbers(got: list[Any]) -> list[int]:
    return [message.response_id for message in got if isinstance(message, NodeAnswered)]


def test_a_read_under_way_is_asked_again_of_the_leader() -> None:
    async def main() -> None:
        old, new = Manager(1), Manager(2)
        new.may_answer = new.may_order = False
        places = [await one.server.start() for one in (old, new)]
        old.slow.clear()
        client = ManagerConnection(",".join(places))
        asked = asyncio.create_task(client.ask(GetMetrics()))
        await until(lambda: old.asked, "the leader is asked")
        old.may_answer, new.may_answer, old.leader = False, True, places[1]
        old.slow.set()
        answer = await asked
        assert answer == Refused("not_found", "", "answered by life 2")
        assert await client.ask(ListQueues()) == answer
        assert old.asked == 1, "it stays with the leader"
        await client.close()
        for one in (old, new):
            await one.server.stop(0)

    asyncio.run(main())


def test_the_newest_life_of_a_cluster_counts() -> None:
    newest = Newest()
    assert newest.counts(0, 0)
    assert newest.counts(7, 5)
    assert newest.counts(7, 5)
    assert not newest.counts(7, 4)
    assert newest.counts(7, 6)
    assert newest.counts(8, 1), "begun anew"
    assert newest.counts(0, 0)
