"""What is left of a job, as Carbyne packs it: residuals of running tasks, an order of groups."""

from dataclasses import replace

import pytest

from am.ask.carbyne import Carbyne, schedule
from am.ask.remaining import Remaining, declared_s, shape_of
from am.ask.view import JobView, RunningTask
from testkit.master import accepted, stage, work_of
from weft.model.job import Edge, Job

SLOTS = ((16.0, 65536.0, 800.0, 1000.0), 1)
WAITING, RUNNING = 0, 2


def view_of(job: Job) -> JobView:
    answer = accepted(job, machines=(SLOTS,))
    work = work_of(answer, Carbyne())
    return work._view()


def test_a_running_task_counts_with_what_is_left_of_it() -> None:
    """30 s of which 20 are over, then a child of 10 s: the job ends in 20 s, not in 40."""
    above = stage("a", 1, duration_s=30.0)
    below = replace(stage("b", 1, duration_s=10.0), parents=(Edge("a"),))
    view = replace(
        view_of(Job("j", (above, below))),
        states=(bytes([RUNNING]), bytes([WAITING])),
        running=(RunningTask(0, 0, 5.0),),
    )
    left = Remaining(shape_of(view), declared_s(view), view, 25.0)
    assert left.residual == pytest.approx([10.0])
    intra = schedule(left, SLOTS[0], view.capacity, False)
    assert intra.t_k == pytest.approx(20.0)
    assert intra.latest[1] == pytest.approx(10.0)


def test_equals_go_by_dominant_demand_then_by_number() -> None:
    """Ties of a packing are broken in the same way in every run."""
    sizes = (1.0, 3.0, 3.0, 2.0)
    view = view_of(
        Job("j", tuple(stage(f"s{i}", 1, demand={"vcores": v}) for i, v in enumerate(sizes)))
    )
    shape = shape_of(view)
    demand = shape.need[:, 0]
    assert sorted(demand) == sorted(sizes)
    wanted = sorted(range(len(sizes)), key=lambda group: (-demand[group], group))
    assert [wanted.index(group) for group in range(len(sizes))] == shape.tie.tolist()
