"""The checkers judge what may happen, and only that."""

import pytest

from sim.checkers import Checkers
from weft.model.cluster import cluster_from_text
from weft.model.errors import InvariantError
from weft.model.ids import container_id
from weft.model.job import Job, Stage
from weft.protocol.facts import Placed, TaskStarted
from weft.protocol.messages import AskType

NUMBER = container_id(1 << 8 | 1, 2)
DEMAND = (1.0, 1.0)


def begun() -> Checkers:
    job = Job("j", (Stage("s", 1, 1.0, {"vcores": 1.0}),))
    checkers = Checkers(cluster_from_text("2x4vcores,64memory_mb"), lambda app: job, strict=False)
    checkers.note(0.0, Placed(NUMBER, "n1", 1, 0, DEMAND, AskType.DEFAULT, "root.default", ()))
    checkers.note(0.0, TaskStarted(NUMBER, "n1", 0, 0, 0, DEMAND))
    return checkers


def test_a_task_is_not_started_twice_in_one_container() -> None:
    with pytest.raises(InvariantError, match="started twice"):
        begun().note(1.0, TaskStarted(NUMBER, "n1", 0, 0, 0, DEMAND))


def test_a_start_that_is_repeated_to_a_node_that_came_back_empty_is_fair() -> None:
    checkers = begun()
    checkers.crashed("n1")
    checkers.note(1.0, TaskStarted(NUMBER, "n1", 0, 0, 0, DEMAND))
