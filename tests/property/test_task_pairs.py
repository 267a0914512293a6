"""An edge of listed pairs says what single-task stages say: the same readiness, plans and ends."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from am.plan.bounds.bounds import bounds_of
from am.plan.registry import PlanRequest, planner
from am.progress import DONE, READY, Progress
from am.task_groups import build_groups
from sim.cluster import Simulation
from sim.results import Run, ready_times
from sim.settings import SimSettings
from testkit.master import random_edge, stage
from weft.model.cluster import cluster_from_text
from weft.model.dag import Machines, dag_of_job
from weft.model.errors import InputError
from weft.model.job import Edge, Job, Stage, TaskPairs
from weft.model.jobfile import job_from_dict, job_to_dict
from weft.model.resources import DEFAULT_RESOURCE_TYPES
from weft.policies.presets import preset

TYPES = DEFAULT_RESOURCE_TYPES
CAPACITY = (16.0, 65536.0, 800.0, 1000.0)
SEEDS = st.integers(0, 2**32)
MANY = settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))


def job_of(seed: int) -> Job:
    """A few stages; between any two of them maybe an edge of any kind."""
    rng = np.random.default_rng(seed)
    made: list[Stage] = []
    for number in range(int(rng.integers(2, 7))):
        tasks = int(rng.integers(1, 9))
        edges = [random_edge(rng, above, tasks) for above in made if rng.random() < 0.6]
        lasts = float(rng.choice([1.0, 2.5, 4.0]))
        need = {"vcores": float(rng.integers(1, 9))}
        made.append(stage(f"s{number}", tasks, *edges, duration_s=lasts, demand=need))
    return Job("pairs", tuple(made))


def expanded(job: Job) -> Job:
    """The same tasks with the same edges, each in a stage of its own."""
    made = []
    for child, own in enumerate(job.stages):
        for task in range(own.tasks):
            parents = [
                f"s{above}.{index}"
                for above, edge in job.edges_of(child)
                for index in edge.parent_tasks(job.stages[above].tasks, own.tasks, task)
            ]
            edges = (Edge(name) for name in parents)
            made.append(
                stage(f"s{child}.{task}", 1, *edges, duration_s=own.duration_s, demand=own.demand)
            )
    return Job("single", tuple(made))


def progress_of(job: Job) -> Progress:
    progress = Progress(job)
    progress.adopt(build_groups(job, TYPES, CAPACITY, None, [s.duration_s for s in job.stages]))
    return progress


def states(progress: Progress) -> list[int]:
    return [state for stage in progress.stages for state in stage.state]


@MANY
@given(SEEDS)
def test_a_task_is_ready_exactly_when_its_own_parents_are_done(seed: int) -> None:
    job, rng = job_of(seed), np.random.default_rng(seed)
    pairs, single = progress_of(job), progress_of(expanded(job))
    where = [(s, t) for s, own in enumerate(job.stages) for t in range(own.tasks)]
    while not pairs.done:
        assert states(pairs) == states(single)
        pairs.check()
        ready = [number for number, state in enumerate(states(single)) if state == READY]
        number = int(rng.choice(ready))
        own, task = where[number]
        if rng.random() < 0.3:  # as an earlier attempt of the master left it
            assert pairs.finish_early(own, task)
            assert single.finish_early(number, 0)
            continue
        group = pairs.stages[own].place_of(task)[0]
        rank = pairs.take(group)
        own, task = group.stage, group.tasks[rank]
        number = where.index((own, task))
        single.take(single.stages[number].groups[0])
        if rng.random() < 0.2:
            pairs.give_back(pairs.stages[own], task)
            single.give_back(single.stages[number], 0)
            continue
        assert pairs.finish(pairs.stages[own], task)
        assert single.finish(single.stages[number], 0)
    assert single.done
    assert set(states(pairs)) == {DONE}


@MANY
@given(SEEDS)
def test_what_an_earlier_attempt_finished_counts_the_same(seed: int) -> None:
    job, rng = job_of(seed), np.random.default_rng(seed)
    pairs, single = progress_of(job), progress_of(expanded(job))
    where = [(s, t) for s, own in enumerate(job.stages) for t in range(own.tasks)]
    for number in rng.permutation(len(where))[: int(rng.integers(0, len(where)))]:
        pairs.finish_early(*where[number])
        single.finish_early(int(number), 0)
    assert states(pairs) == states(single)


@pytest.mark.slow
@settings(MANY, max_examples=20)
@given(SEEDS)
def test_plans_by_task_are_as_long_as_with_a_stage_a_task(seed: int) -> None:
    """Breadth first, critical path and Tetris look at tasks; so do the bounds by path and work."""
    machines = Machines.alike(2, CAPACITY)
    dags = [dag_of_job(job, TYPES) for job in (job_of(seed), expanded(job_of(seed)))]
    assert set(dags[0].task_edges()) == set(dags[1].task_edges())
    lengths = []
    for name in ("bfs", "critical_path", "tetris"):
        found = [
            planner(name)(PlanRequest(dag, machines, np.random.default_rng(0), {})).makespan_s
            for dag in dags
        ]
        assert found[0] == pytest.approx(found[1])
        lengths.append(found[0])
    bounds, other = (bounds_of(dag, machines) for dag in dags)
    assert bounds.cp_len_s == pytest.approx(other.cp_len_s)
    assert bounds.t_work_s == pytest.approx(other.t_work_s)
    assert max(bounds.strong_lb_s, other.strong_lb_s) <= min(lengths) * (1 + 1e-9)


@pytest.mark.parametrize("scheduler", ["capacity", "graphene", "carbyne", "cobra"])
def test_a_simulated_job_runs_as_its_expansion_where_there_is_room(scheduler: str) -> None:
    cluster = cluster_from_text("40x16vcores,65536memory_mb,800disk_mbps,1000network_mbps")
    for seed in range(4):
        job = job_of(seed)
        spans, ready = [], []
        for one in (job, expanded(job)):
            chosen = SimSettings(preset(scheduler), seed=1, prompt=True, checks=True)
            run = Simulation(cluster, [one], chosen)
            run.run()
            assert {row.state for row in run.recorder.jobs} == {"FINISHED"}
            columns = run.recorder.columns()
            assert len(columns) == one.task_count
            spans.append(run.recorder.jobs[0].finish_s)
            since = ready_times(Run(cluster, run.recorder.jobs, columns))
            ready.append(since[np.lexsort((columns.task, columns.stage))])
        if scheduler == "capacity":
            assert spans[0] == pytest.approx(spans[1], abs=0.2)
            assert ready[0] == pytest.approx(ready[1], abs=0.2)


@pytest.mark.parametrize(
    ("parent", "said"),
    [
        ({"stage": "a", "pairs": [[0, 0], [1, 2]]}, "stage 'b' has no task 2: it has 2"),
        ({"stage": "a", "pairs": [[3, 0]]}, "stage 'a' has no task 3: it has 3"),
        ({"stage": "a", "pairs": [[0, 1], [2, 0], [0, 1]]}, "the pair [0, 1] occurs twice"),
        ({"stage": "a", "pairs": [[0, -1]]}, "[0]: expected [parent task, child task]"),
        ({"stage": "a", "pairs": [[0, 0], [0, True]]}, "[1]: expected [parent task"),
        ({"stage": "a", "pairs": [[0, 0, 0]]}, "[0]: expected [parent task"),
        ({"stage": "a", "pairs": "0-1"}, "expected a list of [parent task, child task]"),
        ({"stage": "a", "pairs": []}, "lists at least one pair"),
        ({"stage": "a", "edge": "pairs"}, "expected a list of [parent task, child task]"),
        ({"stage": "a", "edge": "one_to_one", "pairs": [[0, 0]]}, "lists no pairs"),
    ],
)
def test_bad_pairs_are_one_clear_line(parent: dict[str, object], said: str) -> None:
    like = {"duration_s": 1.0, "demand": {"vcores": 1}}
    stages = [
        {"name": "a", "tasks": 3, **like},
        {"name": "b", "tasks": 2, "parents": [parent], **like},
    ]
    with pytest.raises(InputError, match=r"^stages\[1\]\.parents\[0\]\.pairs") as error:
        job_from_dict({"name": "j", "stages": stages})
    assert said in str(error.value)


@given(st.sets(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=60))
def test_pairs_are_found_from_both_sides(rows: set[tuple[int, int]]) -> None:
    pairs = TaskPairs.of(rows)
    assert list(pairs) == sorted(rows)
    assert len(pairs) == len(rows)
    for task in range(22):
        assert list(pairs.children_of(task)) == sorted(c for p, c in rows if p == task)
        assert list(pairs.parents_of(task)) == sorted(p for p, c in rows if c == task)


def test_the_order_in_the_file_makes_no_other_job() -> None:
    job = job_of(3)
    data = job_to_dict(job)
    for own in data["stages"]:
        for parent in own.get("parents", []):
            if "pairs" in parent:
                parent["pairs"].reverse()
    assert job_from_dict(data) == job
