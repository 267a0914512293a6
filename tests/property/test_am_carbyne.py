"""Carbyne inside a job: being late on purpose never makes the job later (theorem 3.1)."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from am.ask.carbyne import Carbyne, Intra, schedule
from am.ask.remaining import Remaining, declared_s, pool_of, shape_of
from am.ask.view import Wish
from am.work import JobExecution
from testkit.master import (
    ATTEMPT,
    PretendedCluster,
    accepted,
    assert_ran_in_order,
    chain,
    random_edge,
    stage,
    work_of,
)
from weft.model.ids import container_id
from weft.model.job import Job, one_to_one_parents
from weft.protocol.messages import AskType, Container, ContainersAsked

PLAIN = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


def random_job(rng: np.random.Generator) -> Job:
    stages = []
    for number in range(int(rng.integers(1, 8))):
        parents = [p for p in range(number) if rng.random() < 0.5]
        need = {"vcores": float(rng.integers(1, 5)), "memory_mb": float(rng.integers(1, 9))}
        lasts = float(rng.choice([0.0, 1.0, 2.5, 4.0]))
        tasks = int(rng.integers(1, 7))
        edges = [random_edge(rng, stages[p], tasks) for p in parents]
        stages.append(stage(f"s{number}", tasks, *edges, duration_s=lasts, demand=need))
    return Job("j", tuple(stages))


def situation(rng: np.random.Generator) -> tuple[JobExecution, Remaining]:
    """A job under way inside a share: some tasks done, some running since a while."""
    share = (float(rng.integers(4, 12)), float(rng.integers(8, 30)), 0.0, 0.0)
    job = random_job(rng)
    answer = accepted(job, share=share)
    work = work_of(answer, Carbyne(), rng)
    now, number = 0.0, 1
    for _ in range(int(rng.integers(0, 6))):
        work.progress.changed = {group.number: group for group in work.progress.groups}
        work.state.review = True
        work.consult(now)
        work.message(now)
        for row in [row for row in work.book.rows.values() if row.wanted]:
            number += 1
            work.take((Container(container_id(ATTEMPT, number), "n1", row.ask_id),), now)
        now += 0.5
        for held in list(work.launcher.held.values()):
            if rng.random() < 0.5:
                del work.launcher.held[held.container_id]
                work.progress.finish(held.stage, held.task)
    view = work._view()
    return work, Remaining(shape_of(view), declared_s(view), view, now)


def assert_feasible(job: Job, remaining: Remaining, pool: np.ndarray, start: np.ndarray) -> None:
    """Precedence and the pool hold, with running tasks where they are."""
    shape, first = remaining.shape, remaining.shape.links.first
    begin, end = start.copy(), start + remaining.duration
    begin[remaining.running] = 0.0
    end[remaining.running] = remaining.residual
    begin[remaining.done] = end[remaining.done] = -1.0
    for child in range(len(job.stages)):
        for parent, edge in job.edges_of(child):
            for task in range(job.stages[child].tasks):
                number = first[child] + task
                if not remaining.unstarted[number]:
                    continue
                sizes = job.stages[parent].tasks, job.stages[child].tasks
                needed = edge.parent_tasks(*sizes, task)
                assert all(end[first[parent] + p] <= begin[number] + 1e-6 for p in needed)
    held = shape.need[shape.kind[remaining.running]].sum(axis=0)
    for at in np.unique(begin[remaining.unstarted]):
        active = (begin <= at + 1e-7) & (end > at + 1e-7) & ~remaining.done
        used = shape.need[shape.kind[active]].sum(axis=0)
        assert np.all(used <= np.maximum(pool, held) + 1e-6)


@pytest.mark.slow
@PLAIN
@given(st.integers(0, 2**32), st.booleans())
def test_starting_as_late_as_actual_says_keeps_t_k(seed: int, by_rank: bool) -> None:
    work, remaining = situation(np.random.default_rng(seed))
    todo = np.flatnonzero(remaining.unstarted)
    if not len(todo):
        return
    state, shape = work.state, remaining.shape
    intra = schedule(remaining, state.share, state.capacity, by_rank)
    pool = pool_of(state.share, state.capacity, shape.need, shape.kind[todo])
    assert_feasible(state.job, remaining, pool, intra.start)
    assert_feasible(state.job, remaining, pool, intra.latest)
    assert np.all(intra.latest[todo] >= -1e-6)
    assert np.all(intra.latest[todo] + remaining.duration[todo] <= intra.t_k + 1e-6)
    if not intra.reversed_holds:
        assert np.all(intra.latest[todo] >= intra.start[todo] - 1e-6)
    assert np.all(intra.leftover >= 0)


def default_asks(cluster: PretendedCluster) -> list[tuple[float, int]]:
    asks = [(t, a) for t, m in cluster.sent if isinstance(m, ContainersAsked) for a in m.asks]
    return [(at, ask.stage) for at, ask in asks if ask.kind is AskType.DEFAULT and ask.total]


@pytest.mark.parametrize("options", [{}, {"altruism": 0.5}, {"altruism": 0.0}, {"packer": "plan"}])
@pytest.mark.parametrize("slots", [2, 50])
def test_a_job_runs_to_its_end_whatever_it_offers(options: dict[str, float], slots: int) -> None:
    job = random_job(np.random.default_rng(3))
    cluster = PretendedCluster(job, asker_name=Carbyne(**options), slots=slots)  # type: ignore[arg-type]
    assert_ran_in_order(cluster.run(10_000))


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**32))
def test_a_generous_job_ends_over_a_bad_network(seed: int) -> None:
    rng = np.random.default_rng(seed)
    cluster = PretendedCluster(
        random_job(rng),
        asker_name=Carbyne(),
        slots=int(rng.integers(1, 20)),
        chaos=rng,
        prompt=bool(rng.random() < 0.5),
        share=(8.0, 20.0, 0.0, 0.0),
    )
    assert_ran_in_order(cluster.run(50_000))


def test_what_is_not_due_is_altruistic_until_it_falls_due() -> None:
    job = Job("j", (stage("long", 1, duration_s=30.0), stage("short", 2, duration_s=10.0)))
    cluster = PretendedCluster(job, asker_name=Carbyne(), slots=0)
    cluster.run(25.0)
    assert default_asks(cluster)[0] == (0.0, 0)
    assert min(at for at, s in default_asks(cluster) if s == 1) == 20.0


def test_without_altruism_every_ready_task_is_default() -> None:
    job = Job("j", (stage("long", 1, duration_s=30.0), stage("short", 2, duration_s=10.0)))
    cluster = PretendedCluster(job, asker_name=Carbyne(altruism=0.0), slots=0)
    cluster.run(0.0)
    assert default_asks(cluster) == [(0.0, 0), (0.0, 1)]
    assert isinstance(Wish(), Wish)


def test_one_to_one_links_cover_every_task_both_ways() -> None:
    for parents in range(1, 9):
        for children in range(1, 9):
            job = Job("j", (stage("a", parents), stage("b", children, chain("a"))))
            work = work_of(accepted(job), Carbyne())
            view = work._view()
            remaining = Remaining(shape_of(view), declared_s(view), view, 0.0)
            down = remaining.run(reverse=False).waits.missing[parents:]
            blocks = [one_to_one_parents(parents, children, c) for c in range(children)]
            assert list(down) == [len(block) for block in blocks]
            up = remaining.run(reverse=True).waits.missing[:parents]
            assert list(up) == [sum(p in block for block in blocks) for p in range(parents)]


def test_intra_is_plain_data() -> None:
    assert Intra.__slots__
