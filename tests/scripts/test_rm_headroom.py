"""What a master is told of the room that the cluster and its queue's limits leave."""

import pytest

from rm.settings import ManagerSettings
from testkit.builders import ask, job, sent, stage
from testkit.manager import Rig
from weft.model.queues import QueueSpec
from weft.protocol.messages import ContainersGranted

TREE = QueueSpec(
    "root",
    children=(
        QueueSpec("a", 0.5, 0.75, children=(QueueSpec("a1", 0.5, 0.5), QueueSpec("a2", 0.5))),
        QueueSpec("b", 0.5),
    ),
)


def headroom(rig: Rig, queue: str) -> tuple[float, ...]:
    """What a new master of a queue is told at its first heartbeat."""
    wanted = job(f"in {queue}", stage(tasks=9), queue=queue)
    master = rig.start(wanted)
    (answer,) = sent(rig.allocate(master), ContainersGranted)
    return tuple(answer.headroom)


@pytest.mark.parametrize(
    ("queue", "room"),
    [
        ("b", (16.0, 32768.0)),  # all of the cluster
        ("a2", (12.0, 24576.0)),  # what is above it may hold 3/4
        ("a1", (6.0, 12288.0)),  # half of that
    ],
)
def test_an_empty_cluster_leaves_what_the_narrowest_queue_may_hold(
    queue: str, room: tuple[float, ...]
) -> None:
    rig = Rig("capacity", ManagerSettings(master_demand={"vcores": 0.0}), TREE)
    for number in range(4):
        rig.add_node(f"n{number}")
    assert headroom(rig, queue) == pytest.approx(room)


def test_what_others_hold_is_not_left_and_less_than_nothing_is_nothing() -> None:
    rig = Rig("capacity", ManagerSettings(master_demand={"vcores": 0.0}), TREE)
    for number in range(4):
        rig.add_node(f"n{number}")
    other = rig.start(job("other", stage(tasks=9), queue="b"))
    rig.allocate(other, ask(1, 13, (1.0, 1024.0)))
    rig.beat()
    assert headroom(rig, "a2") == pytest.approx((3.0, 19456.0))  # the cluster's rest
    rig.allocate(other, ask(1, 16, (1.0, 1024.0)))
    rig.beat()
    assert headroom(rig, "a1") == pytest.approx((0.0, 12288.0))
