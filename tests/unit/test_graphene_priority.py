"""Graphene's preferred order among what is left: a job's next task counts as any other's."""

import numpy as np

from rm.match.candidate_kernels import next_is_one
from rm.match.registry import make_matcher
from weft.policies.presets import preset


def test_the_next_task_of_an_old_job_scores_as_that_of_a_young_one() -> None:
    """By all of its tasks, the old job's last stage (0.1) would lose to anybody's first (1.0)."""
    app = np.array([0, 1, 1, 0])
    pri = np.array([0.1, 1.0, 0.5, 0.9])
    pending = np.array([3, 2, 2, 0])  # the old job has its last stage left
    score = pri[:3].copy()
    next_is_one(score, app[:3], pending, app, pri, np.empty(2))
    assert score.tolist() == [1.0, 1.0, 0.5]


def test_the_order_inside_a_job_stays() -> None:
    rng = np.random.default_rng(0)
    pri, app = rng.random(50), rng.integers(0, 5, 50)
    score = pri.copy()
    next_is_one(score, app, np.ones(50, np.int64), app, pri, np.empty(5))
    for job in range(5):
        mine = np.flatnonzero(app == job)
        assert np.array_equal(np.argsort(pri[mine]), np.argsort(score[mine]))
        assert score[mine].max() == 1.0


def test_graphene_in_full_goes_by_what_is_left() -> None:
    assert make_matcher("graphene", preset("graphene").matcher_options).relative  # type: ignore[attr-defined]
