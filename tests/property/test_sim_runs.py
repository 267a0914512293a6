"""The same input gives the same run, idle beats left out or not; faults break no rule."""

import random
from collections import deque
from dataclasses import replace

import pytest

from sim.client import Client
from sim.cluster import Simulation
from sim.engine import Actor, HeartbeatTimer
from sim.heartbeat_order import MASTERS_NEXT, place_by_rank
from sim.recorder import Recorder
from sim.results import Run, jain, jct_s, job_rows, ready_times, task_rows, utilisation
from sim.settings import SimSettings
from weft.model.cluster import cluster_from_text
from weft.model.job import Edge, EdgeKind, Job, Stage
from weft.policies.presets import PRESETS, preset
from weft.protocol.messages import MANAGER, ContainersAsked

CLUSTER = cluster_from_text("12x8vcores,4000memory_mb")


def parents_of(chance: random.Random, stages: list[Stage]) -> tuple[Edge, ...]:
    """Most often one of the stages before."""
    if not stages or chance.random() >= 0.8:
        return ()
    kind = chance.choice([EdgeKind.ALL_TO_ALL, EdgeKind.ONE_TO_ONE])
    return (Edge(chance.choice(stages).name, kind),)


def jobs_of(seed: int, count: int = 10) -> list[Job]:
    """Small random DAGs, some with one_to_one edges."""
    chance = random.Random(seed)
    jobs = []
    for number in range(count):
        stages: list[Stage] = []
        for place in range(chance.randint(1, 4)):
            parents = parents_of(chance, stages)
            demand = {
                "vcores": chance.choice([0.5, 1, 2, 4]),
                "memory_mb": chance.choice([100, 500]),
            }
            truth = {"vcores": demand["vcores"] * 1.5, "memory_mb": demand["memory_mb"]}
            stages.append(
                Stage(
                    f"s{place}",
                    chance.randint(1, 15),
                    chance.uniform(0.0, 10.0),
                    demand,
                    parents,
                    actual_demand=truth if chance.random() < 0.3 else None,
                )
            )
        jobs.append(Job(f"j{number}", tuple(stages), arrival_s=chance.uniform(0, 40)))
    return jobs


def simulate(seed: int, scheduler: str = "capacity", **settings) -> Simulation:
    settings.setdefault("checks", True)
    settings.setdefault("until_s", 5000.0)
    chosen = SimSettings(preset(scheduler), seed=seed, **settings)
    simulation = Simulation(CLUSTER, jobs_of(seed), chosen)
    simulation.run()
    return simulation


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", ["fifo", "capacity", "tetris"])
@pytest.mark.parametrize("prompt", [False, True], ids=["yarn", "prompt"])
def test_the_same_seed_gives_the_same_run_with_and_without_idle_beats(scheduler, prompt) -> None:
    for seed in range(3):
        first = simulate(seed, scheduler, prompt=prompt)
        again = simulate(seed, scheduler, prompt=prompt, checks=False)
        unskipped = simulate(seed, scheduler, prompt=prompt, skip_idle=False)
        assert {row.state for row in first.recorder.jobs} == {"FINISHED"}
        assert first.recorder.digest() == again.recorder.digest()
        assert first.recorder.digest() == unskipped.recorder.digest()
        assert first.engine.events < unskipped.engine.events


def whole_jobs(chance: random.Random) -> list[Job]:
    """Jobs whose arrivals and tasks often last whole seconds: beats and ends fall together then."""
    jobs = []
    for number in range(chance.randint(3, 25)):
        stages: list[Stage] = []
        for place in range(chance.randint(1, 4)):
            parents = parents_of(chance, stages)
            lasts_s = chance.choice([0.0, 1.0, 2.0, chance.uniform(0, 10)])
            demand = {
                "vcores": chance.choice([0.5, 1, 2, 4]),
                "memory_mb": chance.choice([100, 500]),
            }
            stages.append(Stage(f"s{place}", chance.randint(1, 15), lasts_s, demand, parents))
        arrival_s = float(chance.choice([0, chance.randint(0, 10), chance.uniform(0, 40)]))
        jobs.append(Job(f"j{number}", tuple(stages), arrival_s=arrival_s))
    return jobs


# slow masters order starts late
QUIET = {"manager": {"master_heartbeat_s": 3.0}}


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", PRESETS)
def test_what_falls_together_is_told_in_the_same_beat_with_and_without_idle_beats(
    scheduler: str,
) -> None:
    for seed, others in ((1, {}), (3, {}), (24, {}), (3, QUIET)):
        digests = []
        for skip in (True, False):
            chance = random.Random(seed)
            cluster = cluster_from_text(f"{chance.choice([1, 2, 5, 12])}x8vcores,4000memory_mb")
            settings = SimSettings(preset(scheduler), seed=seed, skip_idle=skip, **others)
            simulation = Simulation(cluster, whole_jobs(chance), replace(settings, until_s=3000.0))
            simulation.run()
            digests.append(simulation.recorder.digest())
        assert digests[0] == digests[1], (seed, others)


@pytest.mark.slow
def test_nobody_is_given_up_for_beats_that_were_left_out() -> None:
    patience = {
        "heartbeat_s": 3.0,
        "master_heartbeat_s": 3.0,
        "node_expiry_s": 3.1,
        "master_expiry_s": 3.1,
    }
    for seed in (0, 1):
        whole, skipped = (
            simulate(seed, manager=patience, skip_idle=skip, until_s=300.0)
            for skip in (False, True)
        )
        assert whole.recorder.digest() == skipped.recorder.digest()


@pytest.mark.parametrize("skip_idle", [True, False])
def test_a_run_that_is_cut_short_does_nothing_after_its_end(skip_idle: bool) -> None:
    for seed in range(6):
        ends_s = 5.0 + seed  # with slow masters, a node's beat is often all that comes next
        settings = SimSettings(
            preset("capacity"), seed=seed, skip_idle=skip_idle, until_s=ends_s, **QUIET
        )
        simulation = Simulation(CLUSTER, jobs_of(seed), settings)
        times: list[float] = []
        simulation.watchers.append(lambda now, _, times=times: times.append(now))
        simulation.run()
        assert simulation.engine.now == ends_s
        assert max(times, default=0.0) <= ends_s


def suppressed_master(until_s: float) -> tuple[Simulation, HeartbeatTimer]:
    """A run up to a time, with the suppressed master whose beat was left out last."""
    settings = SimSettings(preset("capacity"), seed=1, until_s=until_s)
    simulation = Simulation(CLUSTER, jobs_of(1), settings)
    simulation.run()
    beats = [actor.beat for actor in simulation.actors.values() if actor.beat is not None]
    suppressed = [beat for beat in beats if beat.suppressed and not isinstance(beat.key, str)]
    return simulation, max(suppressed, key=lambda beat: beat.left_out_s)


def test_what_a_master_is_owed_after_its_beat_was_left_out_waits_for_the_next_one() -> None:
    _, beat = suppressed_master(20.0)
    simulation, beat = suppressed_master(beat.left_out_s)
    now = simulation.engine.now
    assert beat.left_out_s == now
    simulation.manager.books.on_owed(beat.key)
    assert not beat.suppressed
    assert not any(event is beat.actor for _, event, _ in simulation.engine.ready)
    assert beat.next_s == pytest.approx(now + 1.0)


def test_a_beat_that_is_due_now_takes_its_turn_behind_those_of_lower_ranks() -> None:
    core = Client([], Recorder(), repeat=False)
    late, manager = Actor("beats", core), Actor(MANAGER, core)
    assert place_by_rank(deque(), late, MASTERS_NEXT + 5) == 0
    told = (ContainersAsked(3, 1), "no beat", ContainersAsked(7, 1), "no beat")
    ready = deque((manager, event, 0) for event in told)
    turns = [place_by_rank(ready, late, MASTERS_NEXT + number) for number in (2, 3, 5, 7, 8)]
    assert turns == [0, 2, 2, 3, 3]


def test_other_seeds_give_other_runs() -> None:
    assert simulate(1).recorder.digest() != simulate(2).recorder.digest()


def test_idle_nodes_are_free() -> None:
    jobs = [Job("one", (Stage("s", 5, 2000.0, {"vcores": 1}),))]
    events = []
    for nodes in (10, 500):
        cluster = cluster_from_text(f"{nodes}x8vcores,4000memory_mb")
        simulation = Simulation(cluster, jobs, SimSettings())
        simulation.run()
        events.append(simulation.engine.events)
    # registering and being suppressed costs a few events a node, 2000 s of heartbeats nothing
    assert events[1] - events[0] < 490 * 15


def test_what_the_rows_say_is_what_happened() -> None:
    simulation = simulate(5)
    run = Run(CLUSTER, simulation.recorder.jobs, simulation.recorder.columns())
    rows = list(task_rows(run))
    assert len(rows) == sum(job.task_count for job in jobs_of(5))
    ready = ready_times(run)
    assert (ready <= run.tasks.start_s + 1e-6).all()
    assert all(0 <= value <= 1 for value in utilisation(run).values())
    for row, line in zip(run.jobs, job_rows(run), strict=True):
        assert line[6] == pytest.approx(jct_s(row), abs=1e-5)


def test_jain_of_the_worked_examples() -> None:
    import numpy as np

    assert jain(np.array([1.0, 1, 1, 1])) == 1.0
    assert jain(np.array([1.0, 0, 0, 0])) == 0.25
    assert jain(np.array([3.0, 3, 6])) == pytest.approx(0.8888888888888888)
