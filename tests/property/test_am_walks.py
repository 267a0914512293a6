"""Whatever the network loses, doubles or delays, a job's tasks each finish once, in order."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from am.settings import MasterSettings
from testkit.master import PretendedCluster, assert_ran_in_order, random_edge, stage
from weft.model.dag import dag_of_job
from weft.model.job import Job, Preference, TaskOverride
from weft.model.plan import Plan, plan_of_starts
from weft.protocol.effects import MakePlan
from weft.protocol.messages import Outcome

KINDS = [Outcome.FAILED, Outcome.KILLED, Outcome.LOST, Outcome.OUT_OF_MEMORY, Outcome.RELEASED]


def random_job(rng: np.random.Generator) -> Job:
    stages = []
    for number in range(int(rng.integers(1, 7))):
        parents = [p for p in range(number) if rng.random() < 0.4]
        tasks = int(rng.integers(1, 9))
        edges = [random_edge(rng, stages[p], tasks) for p in parents]
        overrides: tuple[TaskOverride, ...] = ()
        if rng.random() < 0.3:
            overrides = tuple(
                TaskOverride(
                    duration_s=float(rng.integers(0, 9)) if rng.random() < 0.5 else None,
                    demand={"vcores": float(rng.integers(1, 3))} if rng.random() < 0.5 else None,
                    prefer=Preference((f"n{rng.integers(9)}",)) if rng.random() < 0.5 else None,
                )
                for _ in range(tasks)
            )
        lasts = float(rng.choice([0.0, 0.5, 3.0, 20.0]))
        stages.append(stage(f"s{number}", tasks, *edges, duration_s=lasts, overrides=overrides))
    return Job("walk", tuple(stages), max_task_attempts=1000)


def random_plan(rng: np.random.Generator):
    def plan(order: MakePlan) -> Plan | None:
        if rng.random() < 0.3:
            return None
        dag = dag_of_job(order.job, order.types)
        starts = rng.integers(0, 20, dag.tasks).astype(float)
        return plan_of_starts("random", dag, np.zeros(dag.tasks, np.int64), starts)

    return plan


@pytest.fixture(autouse=True, scope="module")
def many_stragglers() -> Iterator[None]:
    """Have tasks get second copies early and often."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("am.work.STRAGGLER_FACTOR", 0.5)
        patched.setattr("am.work.STRAGGLER_FINISHED_MIN", 0.1)
        yield


def walk(seed: int, **fields: object) -> PretendedCluster:
    rng = np.random.default_rng(seed)
    trouble = float(rng.choice([0.0, 0.1, 0.4]))

    def outcome_of(launch: object, node: str) -> Outcome:
        if rng.random() < trouble:
            return KINDS[int(rng.integers(len(KINDS)))]
        return Outcome.SUCCEEDED

    chosen = MasterSettings(
        speculate=bool(rng.random() < 0.5),
        node_failures_max=int(rng.integers(2, 9)),
    )
    return PretendedCluster(
        random_job(rng),
        settings=chosen,
        slots=int(rng.choice([1, 3, 50])),
        plan=random_plan(rng),
        outcome_of=outcome_of,
        chaos=rng,
        prompt=bool(rng.random() < 0.5),
        **fields,  # type: ignore[arg-type]
    )


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**32))
def test_a_job_ends_well_over_a_bad_network(seed: int) -> None:
    cluster = walk(seed).run(50_000)
    assert cluster.stopped
    assert cluster.verdict is not None
    assert cluster.verdict.succeeded
    if not cluster.master._settings.speculate:
        assert_ran_in_order(cluster)


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**32))
def test_a_job_survives_restarts_of_its_manager(seed: int) -> None:
    cluster = walk(seed)
    for at in (0.5, 4.0, 9.0):
        cluster.run(at)
        if not cluster.stopped:
            cluster.forget()
    cluster.run(50_000)
    assert cluster.stopped
    assert cluster.verdict is not None
    assert cluster.verdict.succeeded


@pytest.mark.slow
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**32))
def test_the_same_events_give_the_same_effects(seed: int) -> None:
    assert walk(seed).run(3_000).sent == walk(seed).run(3_000).sent
