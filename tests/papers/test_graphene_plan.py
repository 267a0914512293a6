"""What Graphene's paper says of its offline side, shown on small DAGs (sections 2 to 4)."""

from itertools import pairwise

import numpy as np
import pytest

from am.plan.bounds.bounds import bounds_of
from am.plan.options import read_options
from am.plan.part import Grid
from am.plan.population import Inserter, evolve
from am.plan.registry import PlanRequest, planner
from am.plan.scores import frag_scores, long_scores, steady_scores
from am.plan.search import PreparedPart, _choices
from am.plan.subsets import thresholds
from am.plan.validate import violations
from weft.model.dag import Dag, Link, Machines, StageEdge
from weft.model.errors import InputError
from weft.model.plan import Plan

ONE = Machines.alike(1, [1.0, 1.0])


def chain_dag(*stages: tuple[int, float, float, float], edges: list[tuple] | None = None) -> Dag:
    """Stages of (tasks, duration, two demands); by default each a barrier after the one before."""
    sizes = [row[0] for row in stages]
    given = edges if edges is not None else [(a, b) for a, b in pairwise(range(len(stages)))]
    return Dag(
        resources=("r1", "r2"),
        stage_names=tuple(f"s{i}" for i in range(len(stages))),
        first=np.cumsum([0, *sizes]).astype(np.int64),
        duration_s=np.repeat([row[1] for row in stages], sizes).astype(float),
        demand=np.repeat([row[2:] for row in stages], sizes, axis=0).astype(float),
        edges=tuple(StageEdge(*e) if len(e) > 2 else StageEdge(*e, Link.ALL) for e in given),
    )


def build(dag: Dag, machines: Machines = ONE, name: str = "graphene", **options: object) -> Plan:
    """A valid plan."""
    plan = planner(name)(PlanRequest(dag, machines, np.random.default_rng(3), options))
    assert violations(dag, machines, plan.machine, plan.start_s, plan.end_s) == []
    return plan


def unbalanced() -> Dag:
    """Section 2.2 in small: a long task that others hide, if they are placed first."""
    rows = [(1, 10.0, 0.5, 0.1), (1, 0.1, 0.1, 0.9), (1, 10.0, 0.5, 0.1), (6, 1.0, 0.6, 0.2)]
    return chain_dag(*rows, edges=[(1, 2), (1, 3)])


def test_long_tasks_overlap() -> None:
    """Section 2.2: the long tasks run at the same time although one has a parent."""
    dag = chain_dag((1, 10.0, 0.5, 0.5), (1, 0.1, 0.6, 0.1), (1, 10.0, 0.5, 0.5), edges=[(1, 2)])
    plan = build(dag)
    assert plan.makespan_s == pytest.approx(10.1)
    assert abs(plan.start_s[0] - plan.start_s[2]) < 10.0


def test_parts_are_concatenated() -> None:
    """Section 4.4: a barrier cuts, and no part begins before the one before it has ended."""
    plan = build(chain_dag((3, 2.0, 0.6, 0.1), (2, 3.0, 0.6, 0.1), (1, 1.0, 0.1, 0.1)))
    assert len(plan.explain["parts"]) == 3
    assert plan.makespan_s == pytest.approx(3 * 2.0 + 2 * 3.0 + 1.0)


def test_simple_jobs_bypass_the_search() -> None:
    """Section 4.4: a map-reduce job without choices is placed once a stage."""
    plan = build(chain_dag((8, 2.0, 0.5, 0.1), (2, 3.0, 0.5, 0.1)))
    assert plan.candidates == 2
    assert all(part["bypass_why"] == "simple" for part in plan.explain["parts"])


def test_a_span_at_the_bound_stops_the_search() -> None:
    """Section 4.4 and docs/rules.md, rule 23: no candidate is tried after an optimal one."""
    dag = chain_dag((1, 10.0, 0.1, 0.1), (1, 1.0, 0.1, 0.1), (1, 2.0, 0.1, 0.1), edges=[(1, 2)])
    stopped, whole = build(dag), build(dag, early_stop=False)
    assert stopped.makespan_s == whole.makespan_s == bounds_of(dag, ONE).strong_lb_s
    assert stopped.candidates == 1 < whole.candidates


def test_candidates_are_closed_sets_seen_once() -> None:
    """Figure 13: thresholds that choose the same closed set are one candidate."""
    dag = unbalanced()
    prepared = PreparedPart.of(dag, ONE, Grid.of(dag, ONE))
    found = _choices(prepared, read_options({}))
    closed = [(c.label == 0).tobytes() for c in found]
    assert len(set(closed)) == len(closed) > 2
    assert all(c.troublesome > 0 for c in found)


def test_thresholds_keep_both_ends() -> None:
    """docs/rules.md, rule 20: at most eight values, evenly by rank."""
    scores = np.arange(101) / 100
    assert len(thresholds(scores, 8)) == 8
    assert (thresholds(scores, 8)[0], thresholds(scores, 8)[-1]) == (0.0, 1.0)
    assert thresholds(np.array([0.5, 0.5, 1.0]), 8) == [0.5, 1.0]


def test_frag_scores_lie_in_0_to_1_and_zero_work_is_no_trouble() -> None:
    """Section 4.1; a stage of 0 s has no makespan to divide by."""
    dag = chain_dag((3, 0.0, 0.5, 0.5), (5, 2.0, 0.4, 0.1), (2, 1.0, 0.0, 0.0))
    frag = frag_scores(dag, ONE, Grid.of(dag, ONE))
    assert frag.tolist() == pytest.approx([1.0, 4.0 / 6.0, 1.0])
    assert steady_scores(dag, ONE).tolist() == pytest.approx([1.0, 0.8, 1.0])
    assert long_scores(dag).max() == 1.0


def test_stages_with_unlike_tasks_are_packed_longest_first() -> None:
    """docs/rules.md, rule 6: never n times the first task."""
    dag = chain_dag((3, 1.0, 0.6, 0.1))
    mixed = Dag(
        dag.resources,
        dag.stage_names,
        dag.first,
        np.array([1.0, 4.0, 2.0]),
        np.array([[0.3, 0.1], [0.6, 0.1], [0.4, 0.1]]),
        (),
    )
    frag = frag_scores(mixed, ONE, Grid.of(mixed, ONE))
    assert frag[0] == pytest.approx((0.3 + 2.4 + 0.8) / 4.0)
    assert steady_scores(mixed, ONE)[0] == pytest.approx((0.9 * 1 + 0.6 * 4 + 0.8 * 2) / 7.0)


def test_every_option_is_a_parameter_and_wrong_ones_are_named() -> None:
    """Unknown names and values give one clear line."""
    for options in (
        {"rule": "shortest"},
        {"threshold": 8},
        {"orders": "PTSC"},
        {"thresholds": "x"},
    ):
        with pytest.raises(InputError, match=r"options\."):
            build(unbalanced(), **options)
    text = {"t_both": "false", "thresholds": "4", "orders": "TSCP", "frag": "ratio"}
    assert build(unbalanced(), **text).makespan_s >= bounds_of(unbalanced(), ONE).strong_lb_s


def test_more_choices_never_hurt() -> None:
    """Both FragScores, both headings of T and all orders contain what each alone finds."""
    whole = build(unbalanced(), early_stop=False, rule="both").makespan_s
    for less in ({"frag": "ratio"}, {"frag": "steady"}, {"t_both": False}, {"orders": "TSCP"}):
        assert whole <= build(unbalanced(), early_stop=False, **less).makespan_s


def test_explain_names_the_winner() -> None:
    """Which thresholds, how much is troublesome, which order."""
    part = build(unbalanced(), early_stop=False).explain["parts"][-1]
    assert part["order"] in ("TSCP", "TSPC", "TCSP", "TPSC")
    assert 0 < part["troublesome_share"] <= 1
    assert 0 < part["troublesome_work_share"] <= 1


def hard_dags() -> list[tuple[Dag, Machines]]:
    """Small DAGs on which Graphene does not reach its bound."""
    found = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        rows = [
            (
                int(rng.integers(1, 4)),
                float(rng.integers(1, 12)),
                *rng.uniform(0.1, 0.9, 2).round(2),
            )
            for _ in range(9)
        ]
        edges = [(p, c) for c in range(1, 9) for p in range(c) if rng.random() < 0.25]
        found.append((chain_dag(*rows, edges=edges), Machines.alike(2, [1.0, 1.0])))
    return found


@pytest.mark.slow
def test_graphene_plus_is_never_worse_and_better_in_the_mean() -> None:
    """docs/rules.md, rule 70: more starts and local search pay on hard DAGs."""
    plain = [build(*case).makespan_s for case in hard_dags()]
    more = [build(*case, name="graphene_plus", iterations=200).makespan_s for case in hard_dags()]
    assert all(m <= p for m, p in zip(more, plain, strict=True))
    assert np.mean(more) < np.mean(plain)


def test_a_population_narrows_and_keeps_to_its_insertions() -> None:
    """docs/rules.md, rule 70: with few insertions many starts first, then many generations."""
    dag, machines = hard_dags()[0]
    prepared = PreparedPart.of(dag, machines, Grid.of(dag, machines))
    inserter = Inserter(prepared, PlanRequest(dag, machines, np.random.default_rng(0), {}))
    seen = [0]
    for schedule in evolve(inserter, np.random.default_rng(0), [], 1000):
        seen.append(inserter.done)
        assert (
            violations(
                dag,
                machines,
                schedule.machine,
                prepared.grid.seconds(schedule.start),
                prepared.grid.seconds(schedule.start + prepared.part.length),
            )
            == []
        )
    made = np.diff(seen)  # a whole generation, then two children for each schedule
    assert 2 * made[0] == made[1] > 3 * made[-1]
    assert 1000 - made[-1] < seen[-1] <= 1000


@pytest.mark.slow
def test_more_time_never_gives_a_worse_plan() -> None:
    """Time only cuts a fixed sequence of tries; it is counted in looks at the clock here."""
    for case in hard_dags()[:3]:
        spans = []
        for looks in (0, 5, 40, 80, 120, 200):
            left = iter(range(looks, -100_000, -1))
            request = PlanRequest(
                *case,
                np.random.default_rng(3),
                {"iterations": 120},
                time_left_s=lambda left=left: float(next(left)),
            )
            plan = planner("graphene_plus")(request)
            assert violations(*case, plan.machine, plan.start_s, plan.end_s) == []
            spans.append(plan.makespan_s)
        assert spans == sorted(spans, reverse=True)


def test_a_task_within_the_tolerance_of_its_machine_is_placed() -> None:
    """docs/rules.md, rule 2: capacities count with 1e-7."""
    dag = chain_dag((2, 1.0, 1.0 + 9e-8, 0.1), (1, 2.0, 0.5, 0.5))
    assert build(dag).makespan_s == pytest.approx(4.0)
