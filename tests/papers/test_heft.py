"""HEFT (Topcuoglu, Hariri, Wu, TPDS 2002): the paper's worked example, and unlike speeds."""

import numpy as np
import pytest

from am.plan.heft import schedule, upward_ranks
from am.plan.paths import dependencies_of
from am.plan.registry import PlanRequest, planned, planner_parameters
from am.plan.validate import violations
from weft.model.dag import Dag, Link, Machines, StageEdge
from weft.model.errors import InputError

# Table 1: the computation costs of ten tasks on three processors
COSTS = np.array(
    [
        [14, 16, 9],
        [13, 19, 18],
        [11, 13, 19],
        [13, 8, 17],
        [12, 13, 10],
        [13, 16, 9],
        [7, 15, 11],
        [5, 11, 14],
        [18, 12, 20],
        [21, 7, 16],
    ],
    dtype=float,
)
# Figure 2: what an edge costs between processors
WAITS = {
    (1, 2): 18,
    (1, 3): 12,
    (1, 4): 9,
    (1, 5): 11,
    (1, 6): 14,
    (2, 8): 19,
    (2, 9): 16,
    (3, 7): 23,
    (4, 8): 27,
    (4, 9): 23,
    (5, 9): 13,
    (6, 8): 15,
    (7, 10): 17,
    (8, 10): 11,
    (9, 10): 13,
}
# Table 3, column rank_u; figure 3a: processor, start and finish
RANKS = [108.0, 77.0, 80.0, 80.0, 69.0, 63.333, 42.667, 35.667, 44.333, 14.667]
SCHEDULE = [
    (3, 0, 9),
    (1, 27, 40),
    (3, 9, 28),
    (2, 18, 26),
    (3, 28, 38),
    (2, 26, 42),
    (3, 38, 49),
    (1, 57, 62),
    (2, 56, 68),
    (2, 73, 80),
]
BY_STAGE = {(parent - 1, child - 1): float(s) for (parent, child), s in WAITS.items()}


def dag(sizes: list[int], duration_s: list[float], edges: list[tuple[int, int]]) -> Dag:
    """Stages of tasks that take a whole machine each."""
    return Dag(
        resources=("slots",),
        stage_names=tuple(f"s{i}" for i in range(len(sizes))),
        first=np.cumsum([0, *sizes]).astype(np.int64),
        duration_s=np.repeat(np.array(duration_s, dtype=float), sizes),
        demand=np.ones((sum(sizes), 1)),
        edges=tuple(StageEdge(parent, child, Link.ALL) for parent, child in edges),
    )


@pytest.mark.slow
def test_the_papers_example_has_its_ranks_and_its_schedule_of_80() -> None:
    """Ranks of table 3 and the schedule of figure 3a, by the function that the planner calls."""
    example = dag([1] * 10, [1.0] * 10, list(BY_STAGE))
    ranks = upward_ranks(dependencies_of(example), COSTS.mean(axis=1), BY_STAGE)
    assert ranks == pytest.approx(RANKS, abs=5e-4)
    machine, start, end = schedule(
        example, Machines.alike(3, [1.0]), COSTS, np.arange(3, dtype=np.int64), BY_STAGE
    )
    assert [*zip((machine + 1).tolist(), start.tolist(), end.tolist(), strict=True)] == SCHEDULE
    assert end.max() == 80


def test_idle_time_between_two_tasks_is_used() -> None:
    """The insertion-based policy: a short task goes before one that waits for its parent."""
    # s0 -> s1 on machines 2 apart; s2 stands alone and fits into the gap that s1's wait leaves
    example = dag([1, 1, 1], [4.0, 4.0, 2.0], [(0, 1)])
    machines = Machines(np.ones((1, 1)))
    machine, start, _ = schedule(
        example, machines, np.array([[4.0], [4.0], [2.0]]), np.zeros(1, np.int64), {}
    )
    assert start.tolist() == [0.0, 4.0, 8.0]
    two = Machines(np.ones((2, 1)))
    costs = np.array([[4.0, 90.0], [90.0, 4.0], [90.0, 2.0]])
    kind = np.arange(2, dtype=np.int64)
    machine, start, _ = schedule(example, two, costs, kind, {(0, 1): 1.0})
    assert machine.tolist() == [0, 1, 1]
    assert start.tolist() == [0.0, 5.0, 0.0]  # after s1 by rank, before it in time


def test_a_barrier_waits_for_the_last_task_of_its_parent_from_elsewhere() -> None:
    """transfer_s is due for parents on other machines, not for those on the child's own."""
    example = dag([2, 1], [2.0, 1.0], [(0, 1)])
    request = PlanRequest(
        example, Machines.alike(2, [1.0]), np.random.default_rng(0), {"transfer_s": "0.5"}
    )
    found = planned("heft", request)
    assert found.start_s.tolist() == [0.0, 0.0, 2.5]
    alone = planned("heft", PlanRequest(example, Machines.alike(1, [1.0]), request.rng, {}))
    assert sorted(alone.start_s.tolist()) == [0.0, 2.0, 4.0]


def test_the_long_path_goes_to_the_fast_machine() -> None:
    """A chain of 3 x 6 s and six tasks of 2 s: the chain alone on the machine of speed 2."""
    example = dag([1, 1, 1, 6], [6.0, 6.0, 6.0, 2.0], [(0, 1), (1, 2)])
    machines = Machines(np.ones((3, 1)), np.array([1.0, 2.0, 0.5]))
    found = planned("heft", PlanRequest(example, machines, np.random.default_rng(0), {}))
    assert found.machine[:3].tolist() == [1, 1, 1]
    assert found.makespan_s == pytest.approx(9.0)
    assert violations(example, machines, found.machine, found.start_s, found.end_s) == []
    # one that knows no speeds is timed as it would run
    blind = planned("critical_path", PlanRequest(example, machines, np.random.default_rng(0), {}))
    assert violations(example, machines, blind.machine, blind.start_s, blind.end_s) == []
    assert blind.makespan_s == pytest.approx(18.0)  # its chain is on the first machine
    assert blind.planner == "critical_path"


@pytest.mark.parametrize("options", [{"speed": 1}, {"transfer_s": "-1"}, {"transfer_s": "soon"}])
def test_wrong_parameters_are_named(options: dict[str, object]) -> None:
    with pytest.raises(InputError, match="transfer_s"):
        planner_parameters("heft", options)
