"""Two node managers of one name do not take the node from each other; a restarted one gets it."""

from dataclasses import replace

from rm.process.owners import Owners
from weft.protocol.messages import NodeAnswered, NodeHeartbeated, NodeRegistered, NodeUnregistered
from weft.wire.outbound_queues import Lane

HOST = NodeRegistered("n1", "a:1", "", (), {"vcores": 1.0}, (), 7)
BEAT = NodeHeartbeated("n1", 1)


def test_the_second_of_two_that_live_is_refused_and_told_both_peers() -> None:
    owners, first, second = Owners(3.0), Lane(peer="ipv4:1.1.1.1:1"), Lane(peer="ipv4:2.2.2.2:2")
    assert owners.hear(first, HOST, 0.0) is True
    other = replace(HOST, boot=8)
    answers = []
    for at in range(20):
        assert owners.hear(first, BEAT, float(at)) is True
        answers.append(owners.hear(second, other, at + 0.5))
    assert True not in answers, "the first keeps the node"
    refusals = [answer for answer in answers if isinstance(answer, NodeAnswered)]
    assert answers[0] is False, "the first may have ended just now"
    assert refusals
    assert all(p in refusals[0].shutdown for p in ("1.1.1.1:1", "2.2.2.2:2", "another name"))
    resync = owners.hear(second, BEAT, 20.0)
    assert isinstance(resync, NodeAnswered)
    assert resync.resync
    assert owners.hear(second, NodeUnregistered("n1"), 20.0) is False


def test_one_that_started_anew_gets_the_node_when_the_former_stream_ends_or_is_silent() -> None:
    anew = replace(HOST, boot=8)
    owners, first, second = Owners(3.0), Lane(), Lane()
    assert owners.hear(first, HOST, 0.0) is True
    assert owners.hear(second, anew, 1.0) is False
    first.close()
    owners.closed(first)
    assert owners.hear(second, anew, 2.0) is True
    third = Lane()  # a stream that nobody closed: the host lost its power
    assert owners.hear(third, replace(HOST, boot=9), 4.0) is False
    assert owners.hear(third, replace(HOST, boot=9), 5.5) is True
    back = owners.hear(second, BEAT, 5.6)  # it was only paused: it asks again, and is refused
    assert isinstance(back, NodeAnswered)
    assert back.resync


def test_the_same_process_on_a_new_stream_is_itself() -> None:
    owners, first, second = Owners(3.0), Lane(), Lane()
    assert owners.hear(first, HOST, 0.0) is True
    resync = owners.hear(second, BEAT, 0.1)
    assert isinstance(resync, NodeAnswered)
    assert resync.resync
    assert owners.hear(second, HOST, 0.2) is True
    owners.closed(first)
    assert owners.hear(second, BEAT, 0.3) is True
    assert owners.hear(Lane(), replace(HOST, boot=8), 0.4) is False


def test_rivals_are_told_whatever_boot_they_name_and_however_many_they_are() -> None:
    owners, first = Owners(3.0), Lane(peer="ipv4:1.1.1.1:1")
    rivals = [Lane(peer=f"ipv4:2.2.2.{n}:1") for n in range(3)]
    assert owners.hear(first, HOST, 0.0) is True
    told: set[Lane] = set()
    for at in range(20):
        assert owners.hear(first, BEAT, float(at)) is True
        for n, lane in enumerate(rivals):
            answer = owners.hear(lane, replace(HOST, boot=100 + 10 * at + n), at + 0.5)
            assert answer is not True
            if isinstance(answer, NodeAnswered) and answer.shutdown:
                assert at > 3, "the first may have ended just now"
                told.add(lane)
    assert told == set(rivals)
    started_anew = Lane()  # the first, once its former stream is silent
    assert owners.hear(started_anew, replace(HOST, boot=9), 20.0) is False
    assert owners.hear(started_anew, replace(HOST, boot=9), 22.5) is True
