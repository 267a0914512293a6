"""What Graphene section 6 claims of its bounds holds, and each step of the argument is needed."""

import numpy as np
import pytest

from am.plan.bounds.bounds import bounds_of
from am.plan.bounds.cuts import cut
from am.plan.bounds.packing_kernels import packing_of, unpackable
from am.plan.bounds.parallel_rounds import span_s
from am.plan.registry import PlanRequest, planner
from weft.model.dag import Dag, Link, Machines, StageEdge

ONE = Machines.alike(1, [1.0])


def dag(stages: list[tuple[int, float, float]], edges: list[tuple[int, int, Link]]) -> Dag:
    """Stages as (tasks, duration, demand of the one resource)."""
    sizes = [tasks for tasks, _, _ in stages]
    return Dag(
        resources=("r",),
        stage_names=tuple(f"S{i + 1}" for i in range(len(stages))),
        first=np.cumsum([0, *sizes]).astype(np.int64),
        duration_s=np.repeat([duration for _, duration, _ in stages], sizes).astype(np.float64),
        demand=np.repeat([demand for *_, demand in stages], sizes).reshape(-1, 1),
        edges=tuple(StageEdge(parent, child, link) for parent, child, link in edges),
    )


def test_a_chain_then_independent_tasks_adds_both_bounds() -> None:
    """Section 6, first idea: CPLen of the chain plus TWork of the group behind it."""
    made = dag([(1, 3.0, 0.1), (1, 4.0, 0.1), (10, 1.0, 0.5)], [(0, 1, Link.ALL), (1, 2, Link.ALL)])
    found = bounds_of(made, ONE)
    assert found.cp_len_s == pytest.approx(8.0)
    assert found.t_work_s == pytest.approx(5.7)
    assert found.new_lb_s == pytest.approx(7.0 + 5.0)
    assert found.parts == 3


def test_one_stage_of_every_path_ends_whole() -> None:
    """Section 6, second idea, over edges that are no barriers: one stage counts whole, once."""
    made = dag([(4, 1.0, 1.0), (4, 1.0, 1.0)], [(0, 1, Link.ONE)])
    found = bounds_of(made, ONE)
    assert found.mod_cp_s == pytest.approx(4.0 + 1.0)
    assert found.new_lb_s == pytest.approx(8.0)  # TWork of both


@pytest.mark.slow
def test_a_barrier_stage_counts_whole_on_top_of_the_one_replacement() -> None:
    """Section 6, third idea: S2 lies between barriers, and S4 is replaced besides.

    A stage beside the path keeps the DAG from being cut.
    """
    made = dag(
        [(1, 1.0, 0.01), (6, 1.0, 0.5), (1, 1.0, 0.01), (6, 1.0, 0.5), (1, 7.0, 0.01)],
        [(0, 1, Link.ALL), (1, 2, Link.ALL), (2, 3, Link.ONE)],
    )
    found = bounds_of(made, ONE)
    assert len(cut(made)) == 1
    assert found.mod_cp_s == pytest.approx(1.0 + 3.0 + 1.0 + 3.0)


def test_stages_of_like_role_are_one_group() -> None:
    """Section 6, fourth idea: two map stages of a join have to end together."""
    made = dag(
        [(4, 1.0, 0.5), (4, 1.0, 0.5), (1, 1.0, 0.1), (1, 4.0, 0.01)],
        [(0, 2, Link.ALL), (1, 2, Link.ALL)],
    )
    assert bounds_of(made, ONE).mod_cp_s == pytest.approx(4.0 + 1.0)


def test_merging_never_lowers_the_bound() -> None:
    """A group has the shortest task of all its stages, so the unmerged path counts too."""
    made = dag([(1, 1.0, 0.1), (1, 9.0, 0.1), (8, 1.0, 0.5)], [(0, 2, Link.ONE), (1, 2, Link.ONE)])
    assert bounds_of(made, ONE).mod_cp_s == pytest.approx(9.0 + 4.0)


def test_waves_count_what_perfect_packing_hides() -> None:
    """Tasks of 0.6 never share a machine: ten of them on two machines take five waves, not 3."""
    made = dag([(10, 1.0, 0.6)], [])
    found = bounds_of(made, Machines.alike(2, [1.0]))
    assert found.new_lb_s == pytest.approx(3.0)
    assert found.strong_lb_s == pytest.approx(5.0)


def test_a_share_of_the_cluster_is_what_counts() -> None:
    """C is what the job may use: half of the machines, twice the work's time."""
    made = dag([(40, 1.0, 0.5)], [])
    half, full = (bounds_of(made, Machines.alike(count, [1.0])) for count in (2, 4))
    assert half.t_work_s == pytest.approx(2 * full.t_work_s)


def test_no_tasks_and_no_time_are_no_trouble() -> None:
    """Tasks of no duration and no demand bound nothing."""
    made = dag([(3, 0.0, 0.0), (2, 0.0, 1.0)], [(0, 1, Link.ALL)])
    assert bounds_of(made, ONE).strong_lb_s == 0.0
    empty = Dag(("r",), (), np.zeros(1, np.int64), np.zeros(0), np.zeros((0, 1)), ())
    assert bounds_of(empty, ONE).strong_lb_s == 0.0


def test_a_hundred_thousand_tasks_are_bounded_by_stage() -> None:
    """Barriers of 1,000 x 1,000 tasks are never expanded: this would not end otherwise."""
    stages = [(1000, 1.0 + i % 7, 0.1 + 0.08 * (i % 9)) for i in range(100)]
    edges = [(i, i + 1, Link.ALL if i % 3 else Link.ONE) for i in range(99)]
    edges += [(i, i + 5, Link.ALL) for i in range(0, 90, 4)]
    found = bounds_of(dag(stages, edges), Machines.alike(100, [1.0]))
    assert found.strong_lb_s >= found.new_lb_s > found.t_work_s


def test_one_task_more_than_slots_needs_a_second_round() -> None:
    """Three of 0.3 fit on a machine: 31 tasks on ten machines take two rounds, not 31/30."""
    found = bounds_of(dag([(31, 10.0, 0.3)], []), Machines.alike(10, [1.0]))
    assert found.strong_lb_s == pytest.approx(20.0)


def test_rounds_are_counted_over_stages_that_differ() -> None:
    """Two stages that each fit at once do not fit together: a short task waits behind another."""
    made = dag([(6, 10.0, 0.5), (4, 7.0, 0.4)], [])
    found = bounds_of(made, Machines.alike(4, [1.0]))
    assert found.t_work_s == pytest.approx(10.3)
    assert found.strong_lb_s == pytest.approx(14.0)


def test_spans_are_refuted_by_packing_time_itself() -> None:
    """Four of 61 s and three of 32 s in five slots: none fits behind a 61 before 93 s."""
    assert span_s(np.array([61.0, 32.0]), np.array([4, 3]), 5) == pytest.approx(93.0)
    assert span_s(np.array([61.0, 32.0]), np.array([4, 2]), 5) == pytest.approx(64.0)
    assert span_s(np.array([5.0]), np.array([3]), 3) == pytest.approx(5.0)


def test_slots_that_take_one_task_more_cannot_all_take_short_ones() -> None:
    """26 tasks in 10 slots: six slots take three, and 13 short tasks do for four of these."""
    length, count = np.array([20.5, 20.4]), np.array([13, 13], np.int64)
    assert span_s(length, count, 10) == pytest.approx(2 * 20.4 + 20.5)
    assert span_s(length, np.array([8, 18], np.int64), 10) == pytest.approx(3 * 20.4)


def test_sets_that_fit_together_refute_what_work_does_not() -> None:
    """Of five tasks in a ring that exclude their neighbours, two run at once (Mingozzi)."""
    length, room = np.full(5, 2, np.int64), np.full(5, 10, np.int64)
    need = 6 * (np.eye(5, dtype=np.int64) + np.roll(np.eye(5, dtype=np.int64), 1, axis=0))
    assert (need @ length).max() < 3 * 10  # by work alone three ticks are enough
    early, never = np.zeros(5, np.int64), np.zeros((5, 5), np.int8)

    def packed_within(span: int) -> bool:
        packing = packing_of(length, [need], [room], never)
        work = np.array([0, 10**6], np.int64)
        return not unpackable(packing, early, span - length, work)

    assert [span for span in range(2, 8) if packed_within(span)] == [5, 6, 7]


@pytest.mark.slow
def test_a_proof_that_is_paid_for_longer_is_no_weaker() -> None:
    """Steps spent raise the bound or leave it, and never above a schedule that exists."""
    rng = np.random.default_rng(3)
    stages = [(2, float(rng.integers(2, 9)), float(rng.uniform(0.2, 0.7))) for _ in range(9)]
    edges = [(a, b, Link.ALL) for b in range(9) for a in range(b) if rng.random() < 0.15]
    made = dag(stages, edges)
    bounds = [bounds_of(made, ONE, work).strong_lb_s for work in (0, 10**5, 10**7, 10**8)]
    plan = planner("graphene_plus")(PlanRequest(made, ONE, np.random.default_rng(0), {}))
    assert bounds == sorted(bounds)
    assert bounds[0] < bounds[-1] <= plan.makespan_s
