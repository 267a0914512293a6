"""Beats of nodes that say nothing, on the wire: many in one message, and what is answered."""

import asyncio

import pytest

from nm.process.idling import UNWRITTEN_MAX, IdleNodes
from rm.process.owners import Owners
from weft.protocol.messages import NodeHeartbeated, NodeRegistered
from weft.wire import codec
from weft.wire import tracker_pb2 as pb
from weft.wire.idle import IDLE_MAX, IdleHeard, IdleTold
from weft.wire.outbound_queues import Lane
from weft.wire.schema import CodecError


def test_they_survive_the_wire_beside_whole_messages() -> None:
    said = [NodeHeartbeated("n3", 7), IdleTold(1, ("n1", "n2")), IdleTold(2, ())]
    bytes_ = codec.encode_node_reports(said).SerializeToString()
    assert codec.decode_node_reports(pb.TrackerReports.FromString(bytes_)) == said
    answers = [IdleHeard(1, ("n2",)), IdleHeard(2)]
    bytes_ = codec.encode_node_orders(answers).SerializeToString()
    assert codec.decode_node_orders(pb.TrackerOrders.FromString(bytes_)) == answers


def test_an_idle_node_costs_a_few_bytes() -> None:
    names = tuple(f"node-{number:05}" for number in range(1_000))
    size = len(codec.encode_node_reports([IdleTold(9, names)]).SerializeToString())
    assert size < 13 * len(names)


def test_too_many_in_one_message_are_refused_and_nothing_else() -> None:
    batch = codec.encode_node_reports([NodeHeartbeated("n1", 1)])
    batch.idle.add(number=1, node_ids=["n"] * (IDLE_MAX + 1))
    with pytest.raises(CodecError, match="more than"):
        codec.decode_node_reports(batch)
    refused: list[Exception] = []
    assert codec.decode_node_reports(batch, refused.append) == [NodeHeartbeated("n1", 1)]
    assert len(refused) == 1


def test_a_node_that_is_named_twice_beats_once() -> None:
    batch = codec.encode_node_reports([IdleTold(1, ("n1", "n2", "n1"))])
    assert codec.decode_node_reports(batch) == [IdleTold(1, ("n1", "n2"))]


def test_a_manager_that_takes_nothing_does_not_fill_the_memory_of_its_nodes() -> None:
    nodes = IdleNodes()
    assert len(list(nodes.tell(["node:n1"], 0.0, UNWRITTEN_MAX))) == 1
    assert not list(nodes.tell(["node:n1"], 1.0, UNWRITTEN_MAX + 1))
    (told,) = nodes.tell(["node:n1"], 2.0)
    nodes.hear(IdleHeard(told.number))
    assert nodes.news_for("node:n1") == 2.0


def test_only_who_is_heard_on_a_stream_is_idle_on_it() -> None:
    async def main() -> None:
        owners, own, other = Owners(3.0), Lane(peer="a"), Lane(peer="b")
        for name in ("n1", "n2"):
            assert owners.hear(own, registered(name), 0.0) is True
            own.subjects[name] = None
        assert owners.hear(other, registered("n3"), 0.0) is True
        assert owners.hear_idle(own, ("n1", "n2", "n3", "n4"), 5.0) == ["n1", "n2"]
        # a beat that says nothing keeps a name as any other does
        assert owners.hear(other, registered("n1", boot=9), 5.1) is False
        assert owners.hear(other, registered("n3", boot=9), 9.0) is True
        # whoever may not speak for it any more does not keep it by saying nothing
        del own.subjects["n2"]
        assert owners.hear_idle(own, ("n1", "n2"), 9.0) == ["n1"]
        assert owners.hear(other, registered("n2", boot=9), 9.0) is True

    asyncio.run(main())


def registered(name: str, boot: int = 1) -> NodeRegistered:
    return NodeRegistered(name, "127.0.0.1:1", "r", (), {"vcores": 1.0}, boot=boot)
