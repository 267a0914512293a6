"""Reusable containers: every task ends once, no container holds more than it may, none is lost."""

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from am.ask.af import AfSettings, next_desire, request_of
from am.ask.cobra import Cobra
from am.ask.disposable import Disposable
from am.ask.dynamic import Dynamic
from am.ask.registry import ASKERS, asker
from am.ask.static import Static
from am.ask.view import HoldView, HoldWish
from am.demands import Demands
from am.settings import MasterSettings
from am.task_groups import TaskGroup
from sim.cluster import Simulation
from sim.settings import SimSettings
from testkit.master import PretendedCluster, accepted, assert_ran_in_order, chain, stage
from weft.model.cluster import cluster_from_text
from weft.model.errors import InputError
from weft.model.job import NO_PREFERENCE, Edge, Job, Preference
from weft.policies.presets import preset
from weft.protocol.messages import AskType, ContainersAsked, Outcome

HOLDING = ["cobra", "static", "dynamic", "disposable", "reuse"]
CALM = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


def random_job(rng: np.random.Generator, stages: int = 6) -> Job:
    made = []
    for number in range(int(rng.integers(1, stages))):
        parents = [p for p in range(number) if rng.random() < 0.5]
        edges = [chain(f"s{p}") if rng.random() < 0.5 else Edge(f"s{p}") for p in parents]
        need = {"vcores": float(rng.integers(1, 7)), "memory_mb": float(rng.integers(1, 20_000))}
        near = Preference((f"n{rng.integers(10)}",)) if rng.random() < 0.3 else Preference()
        lasts = float(rng.choice([0.0, 0.5, 4.0, 30.0]))
        tasks = int(rng.integers(1, 12))
        made.append(stage(f"s{number}", tasks, *edges, duration_s=lasts, demand=need, prefer=near))
    return Job("j", tuple(made), max_task_attempts=1000)


@pytest.mark.slow
@pytest.mark.parametrize("name", HOLDING)
@CALM
@given(st.integers(0, 2**32))
def test_a_job_ends_well_over_a_bad_network(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    trouble = float(rng.choice([0.0, 0.2]))

    def outcome_of(launch: object, node: str) -> Outcome:
        return Outcome.FAILED if rng.random() < trouble else Outcome.SUCCEEDED

    options = {"surplus_release": bool(rng.random() < 0.5)} if name == "cobra" else {}
    cluster = PretendedCluster(
        random_job(rng),
        asker_name=asker(name, options),
        slots=int(rng.integers(1, 20)),
        chaos=rng,
        prompt=bool(rng.random() < 0.5),
        outcome_of=outcome_of,
    )
    for at in (2.0, 9.0):
        cluster.run(at)
        if rng.random() < 0.3 and not cluster.stopped:
            for container in list(cluster.granted)[:2]:
                cluster.release(container, Outcome.LOST)
    cluster.run(50_000)
    assert cluster.stopped
    assert cluster.verdict is not None
    assert cluster.verdict.succeeded
    # a lost container's tasks run again although the word of their success may be on its way
    assert_ran_in_order(cluster, once=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", HOLDING)
@CALM
@given(st.integers(0, 2**32))
@example(7565)  # with `disposable`: a registration of before the restart arrives after it
def test_a_job_survives_restarts_of_its_manager(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    cluster = PretendedCluster(
        random_job(rng), asker_name=name, slots=int(rng.integers(1, 20)), chaos=rng
    )
    for at in (0.5, 6.0):
        cluster.run(at)
        if not cluster.stopped:
            cluster.forget()
    cluster.run(50_000)
    assert cluster.stopped
    assert cluster.verdict is not None
    assert cluster.verdict.succeeded


class Spy:
    """Records what a holding asker is shown and what it decides."""

    def __init__(self, inner: Cobra) -> None:
        self.inner = inner
        self.container = inner.container
        self.over_estimate = inner.over_estimate
        self.seen: list[tuple[float, str, HoldWish]] = []
        self.desires: list[float] = []

    def hold(self, view: HoldView, now: float, rng: np.random.Generator) -> HoldWish:
        shown = repr(
            [(w.group.stage, w.group.demand, len(w.group.ready), w[1:]) for w in view.waiting]
        )
        wish = self.inner.hold(view, now, rng)
        self.seen.append((now, shown, wish))
        self.desires.append(self.inner.desire)
        assert 1.0 <= self.inner.desire <= max(view.pool_max, 1)
        return wish


@pytest.mark.slow
@settings(CALM, max_examples=20)
@given(st.integers(0, 2**32))
def test_changing_a_later_stage_changes_nothing_before_it_is_released(seed: int) -> None:
    rng = np.random.default_rng(seed)
    job = random_job(rng, stages=4)
    gate = stage("gate", 1, *[s.name for s in job.stages], duration_s=7.0)
    later = [
        stage(
            "late",
            int(rng.integers(1, 30)),
            "gate",
            duration_s=float(rng.integers(1, 90)),
            demand={"vcores": float(rng.integers(1, 16))},
        )
        for _ in range(2)
    ]
    runs = []
    for end in (later[:1], later[1:], []):
        spy = Spy(Cobra())
        cluster = PretendedCluster(Job("j", (*job.stages, gate, *end)), asker_name=spy, slots=9)
        cluster.run(10_000)
        released = max(at for at, launch, _ in cluster.ends if launch.stage <= len(job.stages))
        asks = [
            (at, m.asks, m.remaining_work)
            for at, m in cluster.sent
            if isinstance(m, ContainersAsked) and at < released
        ]
        runs.append(([s for s in spy.seen if s[0] < released], asks))
    assert runs[0] == runs[1] == runs[2]


def test_desires_grow_while_tasks_wait_and_shrink_when_containers_idle() -> None:
    job = Job("j", (stage("wide", 200, duration_s=10.0), stage("thin", 1, "wide", duration_s=90.0)))
    spy = Spy(Cobra())
    cluster = PretendedCluster(job, asker_name=spy, slots=30)
    cluster.run(10_000)
    assert cluster.stopped
    assert max(spy.desires) > 5
    assert spy.desires[-1] == 1.0
    assert len(cluster.granted) <= 1


def test_a_stage_that_needs_more_gets_larger_containers() -> None:
    job = Job("j", (stage("a", 4), stage("b", 2, "a", demand={"vcores": 12.0})))
    cluster = PretendedCluster(job, asker_name="cobra", slots=4)
    assert_ran_in_order(cluster.run(1000))
    granted = {launch.stage: launch.granted[0] for _, launch, _ in cluster.starts}
    assert granted == {0: 4.0, 1: 12.0}


def test_the_first_tasks_of_a_stage_get_more_room_and_then_what_was_measured() -> None:
    job = Job("j", (stage("a", 60, duration_s=10.0, demand={"vcores": 2.0}),))
    options = {"container": {"vcores": 6.0}, "over_estimate": 1.5, "rho": 1.01}
    cluster = PretendedCluster(job, asker_name=asker("cobra", options), slots=1)
    cluster.uses = lambda launch: (0.5, 0.0, -1.0, -1.0)  # a quarter of what was declared
    assert_ran_in_order(cluster.run(10_000))
    starts = [at for at, _, _ in cluster.starts]
    at_once = [starts.count(at) for at in sorted(set(starts))]
    # 2 tasks of 3 cores fit, then all that were measured count 0.5 (after three ends)
    assert at_once[0] == 2
    assert max(at_once) >= 10


def test_demands_are_over_estimated_within_a_container_then_measured() -> None:
    (group,) = (TaskGroup(0, range(9), (2.0, 4.0, 9.0), NO_PREFERENCE, 1.0),)
    group.number = 0
    machines = (((9.0, 9.0, 9.0), 2),)
    beliefs = Demands(1.5, lambda _: ((8.0, 5.0, 8.0), machines))
    assert beliefs.of(group) == (3.0, 5.0, 9.0), "at most a container, at least what is declared"
    for use in [(1.0, 3.0, -1.0), (1.5, 2.0, -1.0)]:
        beliefs.measured(group, use)
        beliefs.measured(group, ())
        assert beliefs.of(group) == (3.0, 5.0, 9.0), "too few were measured"
    beliefs.measured(group, (0.5, 2.0, -1.0))
    assert beliefs.of(group) == (1.5, 3.0, 9.0), "the most of each; the last was not measured"
    beliefs.measured(group, (2.5, 2.0, -1.0))
    assert beliefs.of(group) == (2.5, 3.0, 9.0)
    beliefs.measured(group, (2.5, 12.0, -1.0))
    assert beliefs.of(group) == (2.5, 5.0, 9.0), (
        "no machine holds 12: a container for it never came"
    )
    beliefs.too_little(group)
    assert beliefs.of(group) == (3.0, 5.0, 9.0)
    assert Demands(0.0, lambda _: ((8.0, 5.0, 8.0), machines)).of(group) == group.demand


@pytest.mark.parametrize("name", ["cobra", "drs"])
def test_stages_that_no_one_machine_serves_both_get_containers_in_turn(name: str) -> None:
    wide = stage("wide", 4, duration_s=5.0, demand={"vcores": 6.0, "memory_mb": 1024.0})
    deep = stage("deep", 4, duration_s=5.0, demand={"vcores": 1.0, "memory_mb": 12000.0})
    cluster = cluster_from_text("1x8vcores,4096memory_mb+1x2vcores,16384memory_mb")
    calm = SimSettings(preset(name), prompt=True, checks=True, until_s=2_000.0)
    recorder = Simulation(cluster, [Job("j", (wide, deep))], calm).run()
    assert [one.state for one in recorder.jobs] == ["FINISHED"]


def test_tasks_wait_for_their_rack_before_they_go_anywhere() -> None:
    near = Preference(("n1",))
    job = Job("j", (stage("a", 1, duration_s=40.0, prefer=near),))
    began = {}
    for racks in ((("n1", "r1"), ("n4", "r1")), (("n1", "r1"), ("n4", "r2"))):
        cluster = PretendedCluster(job, asker_name=asker("cobra", {"tau": 0.5}), slots=1)
        cluster.answer = accepted(job, racks=racks)
        assert_ran_in_order(cluster.run(10_000))
        ((at, _, node),) = cluster.starts
        assert node == "n4"
        began[racks[1][1]] = at
    assert began["r1"] == pytest.approx(0.5 * 40.0, abs=6.0)
    assert began["r2"] == pytest.approx(2 * 0.5 * 40.0, abs=6.0)


def test_spark_static_allocation_holds_its_containers_to_the_end() -> None:
    job = Job("j", (stage("a", 40), stage("b", 1, "a", duration_s=50.0)))
    cluster = PretendedCluster(job, asker_name=Static(containers=3), slots=9)
    cluster.run(1000)
    assert cluster.stopped
    asks = [a for _, m in cluster.sent if isinstance(m, ContainersAsked) for a in m.asks]
    assert {a.total for a in asks} == {3}


def test_spark_dynamic_allocation_follows_the_backlog_and_gives_back_the_idle() -> None:
    job = Job("j", (stage("a", 100, duration_s=20.0), stage("b", 1, "a", duration_s=200.0)))
    cluster = PretendedCluster(job, asker_name=Dynamic(idle_s=30.0), slots=50)
    cluster.run(1000)
    assert cluster.stopped
    asks = [
        (at, a.total) for at, m in cluster.sent if isinstance(m, ContainersAsked) for a in m.asks
    ]
    assert [total for _, total in asks][:5] == [1, 2, 4, 8, 16]
    releases = [at for at, m in cluster.sent if isinstance(m, ContainersAsked) and m.releases]
    assert min(releases) >= 20.0 + 30.0


def test_disposable_containers_have_one_size() -> None:
    job = Job("j", (stage("a", 4), stage("b", 2, "a", demand={"vcores": 12.0})))
    cluster = PretendedCluster(job, asker_name=Disposable({"vcores": 2.0, "memory_mb": 4096.0}))
    assert_ran_in_order(cluster.run(1000))
    asks = [a for _, m in cluster.sent if isinstance(m, ContainersAsked) for a in m.asks]
    assert {a.demand[:2] for a in asks} == {(2.0, 4096.0), (12.0, 4096.0)}
    assert {a.kind for a in asks} == {AskType.DEFAULT}


@given(
    st.lists(
        st.tuples(st.integers(0, 50), st.floats(0, 1), st.booleans()), min_size=1, max_size=60
    ),
    st.integers(1, 40),
)
def test_desires_stay_within_one_and_the_pool(
    periods: list[tuple[int, float, bool]], most: int
) -> None:
    desire = 1.0
    for allocation, use, waiting in periods:
        desire, _ = next_desire(desire, allocation, use, waiting, AfSettings(), most)
        assert 1.0 <= desire <= most
        assert request_of(desire) <= most


@pytest.mark.parametrize(
    "options", [{"rho": 1.0}, {"delta": 0.0}, {"period_s": 0.0}, {"no_such": 1}]
)
def test_bad_options_are_input_errors(options: dict[str, float]) -> None:
    with pytest.raises(InputError):
        asker("cobra", options)


def test_every_asker_runs_a_job() -> None:
    job = Job("j", (stage("a", 9), stage("b", 3, chain("a")), stage("c", 2, "b")))
    for name in ASKERS:
        cluster = PretendedCluster(job, asker_name=name, settings=MasterSettings(planner=""))
        assert_ran_in_order(cluster.run(1000))
