"""Acknowledgements of reports wait for company and leave as one message; nothing else waits."""

import asyncio

from weft.protocol.messages import NodeAnswered
from weft.wire.joining import acknowledges, joined
from weft.wire.outbound_queues import Lane


def test_what_orders_anything_is_no_mere_acknowledgement() -> None:
    assert acknowledges(NodeAnswered("n1", 4, (1, 2), life=3))
    assert not acknowledges(NodeAnswered("n1", 4, (1,), stop=(7,), life=3))
    assert not acknowledges(NodeAnswered("n1", 4, (1,), life=3, resync=True))
    assert not acknowledges(NodeAnswered("n1", 4, (1,), life=3, next_heartbeat_s=2.0))


def test_those_of_one_node_and_life_are_one_message_after_all_others() -> None:
    order = NodeAnswered("n1", 2, (2,), stop=(7,), life=1)
    told = [
        NodeAnswered("n1", 1, (1,), life=1),
        order,
        NodeAnswered("n2", 1, (5,), life=1),
        NodeAnswered("n1", 3, (3, 4), life=1),
        NodeAnswered("n1", 4, (9,), life=2),
    ]
    assert joined(told) == [
        order,
        NodeAnswered("n1", 3, (1, 3, 4), life=1),
        NodeAnswered("n2", 1, (5,), life=1),
        NodeAnswered("n1", 4, (9,), life=2),
    ]
    assert joined(told[:1]) == told[:1]


def test_what_may_wait_leaves_with_what_may_not_or_when_its_time_is_up() -> None:
    async def main() -> None:
        lane = Lane()
        lane.send(["a"], 60.0)
        lane.send(["b"], 60.0)
        taking = asyncio.create_task(lane.take())
        await asyncio.sleep(0.01)
        assert not taking.done()
        lane.send(["c"])
        assert await asyncio.wait_for(taking, 10) == ["a", "b", "c"]
        lane.send(["d"], 0.01)
        assert await asyncio.wait_for(lane.take(), 10) == ["d"]

    asyncio.run(main())


def test_where_much_waits_batches_grow_with_it() -> None:
    """A busy process writes few batches a second: of a fixed size, more would come than leaves."""

    async def main() -> None:
        lane = Lane()
        lane.send(range(10_000))
        sizes = [len(await lane.take()) for _ in range(6)]
        assert sizes == [2_500, 1_875, 1_406, 1_054, 1_000, 1_000]

    asyncio.run(main())
