"""Baselines as papers ran them: one container size a job, strict shares, FIFO with gaps."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from am.ask.all_ready import AllReady
from am.sizes import UNIFORM, uniform_size
from nm.settings import NodeSettings
from rm.match.candidate_kernels import largest_over
from sim.cluster import Simulation
from sim.results import jct_s
from sim.settings import SimSettings
from testkit.master import PretendedCluster, assert_ran_in_order, stage
from testkit.matching import MatcherHarness
from weft.model.cluster import ClusterSpec, cluster_from_text
from weft.model.errors import InputError
from weft.model.ids import app_of_container
from weft.model.job import Edge, Job, Stage, TaskOverride
from weft.model.resources import DEFAULT_RESOURCE_TYPES as TYPES
from weft.policies.presets import choose, preset, with_options
from weft.protocol.messages import Ask, AskType, ContainersAsked, Outcome

CALM = settings(max_examples=25, deadline=None)
AMOUNT = st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.0])


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """A few stages; in some, tasks of their own demand."""
    stages = []
    for number in range(draw(st.integers(1, 4))):
        tasks = draw(st.integers(1, 12))
        demand = {"vcores": draw(AMOUNT), "memory_mb": 256.0 * draw(st.integers(1, 8))}
        own: tuple[TaskOverride, ...] = ()
        if draw(st.booleans()):
            own = tuple(
                TaskOverride(demand={**demand, "disk_mbps": draw(AMOUNT)}) for _ in range(tasks)
            )
        stages.append(Stage(f"s{number}", tasks, 5.0, demand, overrides=own))
    return Job("j", tuple(stages))


@CALM
@given(jobs(), st.sampled_from(["p75", "p90", "largest"]))
def test_a_uniform_container_is_the_least_that_enough_tasks_need_at_most(
    job: Job, choice: str
) -> None:
    size = uniform_size(choice, job, TYPES)
    demands = [TYPES.vector(s.demand_of(task)) for s in job.stages for task in range(s.tasks)]
    enough = UNIFORM[choice] * len(demands) - 1e-9
    for r, amount in enumerate(size):
        amounts = [demand[r] for demand in demands]
        assert amount in amounts
        assert sum(each <= amount for each in amounts) >= enough
        less = [each for each in amounts if each < amount]
        assert len(less) < enough or not less


def asked(job: Job, asker: AllReady) -> set[tuple[float, ...]]:
    cluster = PretendedCluster(job, asker_name=asker)
    assert_ran_in_order(cluster.run(1000))
    requests = [m for _, m in cluster.sent if isinstance(m, ContainersAsked)]
    return {ask.demand for request in requests for ask in request.asks}


def test_a_job_asks_for_one_size_and_more_only_where_a_task_needs_more() -> None:
    job = Job(
        "j",
        (
            stage("a", 18, demand={"vcores": 1.0, "memory_mb": 1024.0, "disk_mbps": 50.0}),
            stage("b", 2, "a", demand={"vcores": 4.0, "memory_mb": 512.0}),
        ),
    )
    assert asked(job, AllReady()) == {(1.0, 1024.0, 50.0, 0.0), (4.0, 512.0, 0.0, 0.0)}
    assert asked(job, AllReady("p90")) == {(1.0, 1024.0, 50.0, 0.0), (4.0, 1024.0, 50.0, 0.0)}
    assert asked(job, AllReady("largest")) == {(4.0, 1024.0, 50.0, 0.0)}
    blind = AllReady("p90", sees="vcores, memory_mb")
    assert asked(job, blind) == {(1.0, 1024.0, 0.0, 0.0), (4.0, 1024.0, 0.0, 0.0)}
    assert asked(job, AllReady(sees="vcores")) == {(1.0, 1024.0, 0.0, 0.0), (4.0, 512.0, 0.0, 0.0)}


@pytest.mark.parametrize("options", [{"container": "p80"}, {"sees": "vcores,gold"}])
def test_unknown_sizes_and_resources_are_refused(options: dict[str, str]) -> None:
    job = Job("j", (stage("a", 1),))
    with pytest.raises(InputError):
        asked(job, AllReady(**options))


def run(jobs_of: list[Job], cluster: ClusterSpec, scheduler: str, **options: Any) -> Simulation:
    chosen = with_options(preset(scheduler), {k.replace("__", "."): v for k, v in options.items()})
    simulation = Simulation(cluster, jobs_of, SimSettings(chosen, checks=True, check_every=20))
    return simulation


@pytest.mark.slow
@CALM
@given(st.lists(jobs(), min_size=1, max_size=4), st.sampled_from(["closed_form", "equal"]))
def test_strict_shares_are_never_passed_but_by_a_first_container(
    many: list[Job], share: str
) -> None:
    cluster = cluster_from_text("2x4vcores,8192memory_mb,100disk_mbps,100network_mbps")
    simulation = run(many, cluster, "drf_strict", matcher__share=share)
    master = 256.0 / 16_384.0  # its part of the cluster's memory
    matcher, view = simulation.manager.books.matcher, simulation.manager.books.view

    def watch(now: float, fact: Any) -> None:
        if type(fact).__name__ != "Placed" or fact.stage < 0:
            return
        app = simulation.manager.books.apps[app_of_container(fact.container)]
        slot, stages = app.slot, app.job.stages
        held = largest_over(view.apps.held[slot : slot + 1], view.total)[0]
        allowed = largest_over(matcher.shares(view, now), view.total)[slot]
        needs = [TYPES.vector(s.demand_of(task)) for s in stages for task in range(s.tasks)]
        first = max(largest_over(np.array(needs), view.total)) + master
        assert held <= max(allowed, first) + 1e-6

    simulation.watchers.append(watch)
    recorder = simulation.run()
    assert [row.end for row in recorder.jobs] == ["SUCCEEDED"] * len(many)
    total = sum(largest_over(matcher.shares(view, 0.0), view.total))
    assert share != "equal" or total <= 1.0 + 1e-9


def test_a_job_alone_has_the_whole_cluster_and_two_have_half_of_it_each() -> None:
    cluster = cluster_from_text("4x8vcores,8192memory_mb,100disk_mbps,100network_mbps")
    one = Stage("s", 64, 10.0, {"vcores": 1.0, "memory_mb": 64.0})
    small = Stage("s", 2, 200.0, {"vcores": 1.0, "memory_mb": 64.0})
    ends: dict[str, float] = {}
    for lend in (True, False):
        for name, other in (("alone", ()), ("beside a small one", (Job("b", (small,)),))):
            simulation = run([Job("a", (one,)), *other], cluster, "drf", matcher__lend=lend)
            row = simulation.run().jobs[0]
            ends[f"{name}, lend {lend}"] = jct_s(row)
    assert ends["alone, lend True"] == pytest.approx(ends["alone, lend False"], abs=3.0)
    # 32 slots: two rounds of 32 tasks, or four of 16 within half of the cluster
    longer = ends["beside a small one, lend False"] - ends["beside a small one, lend True"]
    assert 12.0 <= longer <= 30.0


def line(fill: str) -> list[tuple[int, int]]:
    """Served on a node of 4 cores: (application, cores), in order of the line."""
    harness = MatcherHarness("fifo", {"fill": fill})
    node = harness.add_node((4.0, 8192.0, 1000.0))
    first, second = harness.add_app(), harness.add_app()
    cores = {}
    for serial, (app, need, pri) in enumerate(
        [(first, 3.0, 1.0), (first, 2.0, 0.9), (first, 0.5, 0.8), (second, 0.25, 1.0)]
    ):
        entry = harness.ask(app, Ask(serial, 1, (need, 1.0, 1.0), 5.0, pri, AskType.DEFAULT, 0))
        cores[entry.row] = (app, need)
    return [cores[p.row] for p in harness.match(node).placements for _ in range(p.copies)]


def test_fifo_leaves_gaps_or_lets_others_fill_them() -> None:
    first, second = line("all")[0][0], line("all")[-1][0]
    assert line("none") == [(first, 3.0)]
    assert line("job") == [(first, 3.0), (first, 0.5)]
    assert line("all") == [(first, 3.0), (first, 0.5), (second, 0.25)]


@pytest.mark.slow
@CALM
@given(st.integers(0, 2**16))
def test_what_fills_gaps_never_delays_the_head_on_slots(seed: int) -> None:
    """With tasks that are alike there are no gaps, so that all three are the same."""
    rng = np.random.default_rng(seed)
    need = {"vcores": 1.0, "memory_mb": 1024.0}
    many = [
        Job(
            f"j{i}",
            (
                Stage("a", int(rng.integers(1, 6)), float(rng.integers(1, 9)), need),
                Stage("b", int(rng.integers(1, 6)), 3.0, need),
            ),
            arrival_s=float(rng.integers(0, 20)),
        )
        for i in range(4)
    ]
    cluster = cluster_from_text("2x4vcores,4096memory_mb")
    digests = {
        run(many, cluster, "fifo", matcher__fill=fill).run().digest()
        for fill in ("none", "job", "all")
    }
    assert len(digests) == 1


@pytest.mark.slow
@CALM
@given(st.integers(0, 2**16))
def test_whole_jobs_in_line_start_nothing_before_those_before_them_have(seed: int) -> None:
    rng = np.random.default_rng(seed)
    need = {"vcores": 1.0, "memory_mb": 1024.0}
    many = [
        Job(
            f"j{i}",
            (
                Stage("a", int(rng.integers(1, 4)), float(rng.integers(2, 20)), need),
                Stage("b", int(rng.integers(1, 4)), 3.0, need, (Edge("a"),)),
            ),
        )
        for i in range(3)
    ]
    cluster = cluster_from_text("2x8vcores,8192memory_mb")
    recorder = run(many, cluster, "fifo", matcher__whole=True).run()
    tasks = recorder.columns()
    starts = [tasks.start_s[tasks.app == row.app] for row in recorder.jobs]
    for before, after in pairwise(starts):
        assert before.max() <= after.min()


def test_the_presets_of_papers_say_what_they_change() -> None:
    assert choose("tez_p90").asker_options == {"container": "p90"}
    assert choose("drf_strict").matcher_options == {"lend": False}
    assert preset("tez").asker_options == {}
    assert preset("drf").matcher_options == {}


# -- what emulated tasks suffer --------------------------------------------------------------------


def suffered(many: list[Job], scheduler: str, **node: float) -> Simulation:
    """One run with every checker, on nodes whose tasks suffer."""
    cluster = cluster_from_text("3x4vcores,8192memory_mb")
    settings_ = SimSettings(preset(scheduler), checks=True, node=NodeSettings(**node))
    return Simulation(cluster, many, settings_)


def durations(simulation: Simulation) -> tuple[list[str], list[float]]:
    recorder = simulation.run()
    tasks = recorder.columns()
    done = tasks.outcome == list(Outcome).index(Outcome.SUCCEEDED)
    return [row.end for row in recorder.jobs], (tasks.end_s - tasks.start_s)[done].tolist()


def alike(tasks: int, attempts: int = 4) -> list[Job]:
    need = {"vcores": 1.0, "memory_mb": 256.0}
    parts = (Stage("a", tasks, 10.0, need), Stage("b", tasks, 10.0, need, (Edge("a"),)))
    return [Job("j", parts, max_task_attempts=attempts)]


@pytest.mark.slow
def test_containers_start_up_and_some_tasks_straggle() -> None:
    ends, plain = durations(suffered(alike(60), "tez"))
    assert ends == ["SUCCEEDED"]
    assert plain == pytest.approx([10.0] * 120)
    _, later = durations(suffered(alike(60), "tez", start_up_s=4.0))
    assert later == pytest.approx([14.0] * 120)
    _, varied = durations(suffered(alike(60), "tez", start_up_s=4.0, start_up_cov=0.5))
    extra = np.array(varied) - 10.0
    assert min(extra) > 0
    assert extra.mean() == pytest.approx(4.0, abs=0.6)
    assert extra.std() == pytest.approx(2.0, abs=0.7)
    _, slow = durations(suffered(alike(60), "tez", straggler_share=0.25, straggler_factor=3.0))
    assert {round(lasts) for lasts in slow} == {10, 30}
    assert sum(lasts > 20 for lasts in slow) == pytest.approx(30, abs=14)


def test_a_kept_container_starts_up_once() -> None:
    _, fresh = durations(suffered(alike(30), "default_container", start_up_s=5.0))
    _, kept = durations(suffered(alike(30), "drs", start_up_s=5.0))
    assert min(fresh) == pytest.approx(15.0)
    assert sum(lasts < 11 for lasts in kept) > len(kept) / 2


def test_tries_fail_by_chance_and_the_same_under_every_scheduler() -> None:
    failed = []
    for scheduler in ("tez", "drf"):
        simulation = suffered(alike(40, 40), scheduler, failure_share=0.3)
        recorder = simulation.run()
        tasks = recorder.columns()
        assert [row.end for row in recorder.jobs] == ["SUCCEEDED"]
        bad = tasks.outcome == list(Outcome).index(Outcome.FAILED)
        assert bad.sum() / len(bad) == pytest.approx(0.3, abs=0.12)
        failed.append(sorted(zip(tasks.stage[bad].tolist(), tasks.task[bad].tolist(), strict=True)))
    assert failed[0] == failed[1]
    assert [row.end for row in suffered(alike(5), "tez", failure_share=1.0).run().jobs] == [
        "FAILED"
    ]
