"""Backfill in `fifo` beside the textbook: rigid jobs on one machine, and promises that are kept.

The other side is written here from the definitions (Mu'alem and Feitelson 2001) and shares nothing
with `rm.placing.backfill`: processors of one machine, jobs of so many of them, in order of arrival.
"""

from typing import NamedTuple

import numpy as np
import pytest

from rm.ledger.queues import QueueTree
from rm.match.registry import make_matcher
from rm.placing.backfill import Backfill, Plan, check_queues
from sim.cluster import Simulation
from sim.process.gang_walk import gang_walk
from sim.recorder import Recorder
from sim.settings import SimSettings
from weft.model.cluster import cluster_from_dict
from weft.model.errors import InputError
from weft.model.job import Job, Stage
from weft.model.queues import queues_from_dict
from weft.policies.presets import PROMISING, preset, with_options

PROCESSORS = 16
EASY, CONSERVATIVE = "easy", "conservative"


class Rigid(NamedTuple):
    """A job of the textbook."""

    arrival_s: float
    processors: int
    estimate_s: float
    run_s: float


def _drawn(seed: int, true: bool) -> list[Rigid]:
    """Return jobs of whole seconds, more than the machine can run at once."""
    rng = np.random.default_rng(seed)
    found, now = [], 0
    for _ in range(int(rng.integers(4, 30))):
        now += int(rng.integers(0, 12))
        run_s = int(rng.integers(1, 40))
        estimate_s = run_s if true else run_s + int(rng.integers(0, 30))
        wide = int(rng.integers(1, PROCESSORS + 1)) if rng.random() < 0.5 else 1
        found.append(Rigid(now, wide, estimate_s, run_s))
    return found


# -- the textbook ----------------------------------------------------------------------------------


def _textbook(jobs: list[Rigid], kind: str) -> list[float]:
    """Return when each job starts."""
    starts = [np.inf] * len(jobs)
    reserved: dict[int, float] = {}
    events = {job.arrival_s for job in jobs}
    while events:
        now = min(events)
        events.discard(now)
        queue = [i for i, job in enumerate(jobs) if job.arrival_s <= now and starts[i] == np.inf]
        running = [i for i, at_s in enumerate(starts) if at_s <= now < at_s + jobs[i].run_s]
        busy = [(starts[i], i) for i in running]
        chosen = (
            _easy(jobs, queue, busy, now)
            if kind == EASY
            else _conservative(jobs, queue, busy, now, reserved)
        )
        for i in chosen:
            starts[i] = now
            events.add(now + jobs[i].run_s)
    return starts


def _expected_end(jobs: list[Rigid], start_s: float, i: int, now: float) -> float:
    return max(start_s + jobs[i].estimate_s, now + 1e-9)


def _easy(
    jobs: list[Rigid], queue: list[int], running: list[tuple[float, int]], now: float
) -> list[int]:
    free = PROCESSORS - sum(jobs[i].processors for _, i in running)
    busy = [(_expected_end(jobs, at_s, i, now), jobs[i].processors) for at_s, i in running]
    chosen: list[int] = []
    waiting = list(queue)
    while waiting and jobs[waiting[0]].processors <= free:
        i = waiting.pop(0)
        chosen.append(i)
        free -= jobs[i].processors
        busy.append((now + jobs[i].estimate_s, jobs[i].processors))
    if not waiting:
        return chosen
    head, available, shadow_s = jobs[waiting[0]], free, now
    for end_s in sorted({end_s for end_s, _ in busy}):
        available += sum(count for at_s, count in busy if at_s == end_s)
        if available >= head.processors:
            shadow_s = end_s
            break
    extra = available - head.processors
    for i in waiting[1:]:
        job = jobs[i]
        if job.processors > free:
            continue
        short = now + job.estimate_s <= shadow_s
        if not short and job.processors > extra:
            continue
        chosen.append(i)
        free -= job.processors
        if not short:
            extra -= job.processors
    return chosen


def _conservative(
    jobs: list[Rigid],
    queue: list[int],
    running: list[tuple[float, int]],
    now: float,
    reserved: dict[int, float],
) -> list[int]:
    chosen: list[int] = []
    for i in queue:
        job = jobs[i]
        used = [(now, _expected_end(jobs, at_s, k, now), jobs[k].processors) for at_s, k in running]
        used += [(now, now + jobs[k].estimate_s, jobs[k].processors) for k in chosen]
        used += [
            (at_s, at_s + jobs[k].estimate_s, jobs[k].processors)
            for k, at_s in reserved.items()
            if k != i
        ]
        for start_s in sorted({now, *(end_s for _, end_s, _ in used)}):
            end_s = start_s + job.estimate_s
            points = [start_s, *(a for a, _, _ in used if start_s < a < end_s)]
            most = max(sum(c for a, b, c in used if a <= at < b) for at in points)
            if most + job.processors <= PROCESSORS:
                reserved[i] = min(start_s, reserved.get(i, np.inf))
                break
        if reserved[i] == now:
            del reserved[i]
            chosen.append(i)
    return chosen


# -- Weft ------------------------------------------------------------------------------------------


def _starts(jobs: list[Rigid], backfill: str, gangs: bool, nodes: int = 1) -> list[float]:
    """Return when each job starts, its processors as a gang of tasks or as one large task."""
    cluster = cluster_from_dict(
        {
            "resources": [{"name": "vcores", "kind": "rigid"}],
            "nodes": [{"count": nodes, "capacity": {"vcores": PROCESSORS // nodes}}],
        }
    )
    made = []
    for at, job in enumerate(jobs):
        tasks, vcores = (job.processors, 1.0) if gangs else (1, float(job.processors))
        demand = {"vcores": vcores}
        stage = Stage(
            "run",
            tasks,
            job.estimate_s,
            demand,
            actual_duration_s=job.run_s,
            gang=gangs and tasks > 1,
        )
        made.append(Job(f"job{at}", (stage,), arrival_s=job.arrival_s))
    scheduler = with_options(preset("fifo"), {"matcher.backfill": backfill})
    manager = {"master_demand": {"vcores": 0.0}}
    settings = SimSettings(scheduler, prompt=True, manager=manager)
    simulation = Simulation(cluster, made, settings, Recorder())
    simulation.run()
    columns = simulation.recorder.columns()
    apps = {row.job.name: row.app for row in simulation.recorder.jobs}
    started = [columns.start_s[columns.app == apps[job.name]] for job in made]
    return [float(times.min()) for times in started]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [EASY, CONSERVATIVE])
@pytest.mark.parametrize("gangs", [False, True])
def test_starts_are_those_of_the_textbook(kind: str, gangs: bool) -> None:
    """Of 16 drawn workloads each, with estimates that are true and that are too long."""
    for seed in range(16):
        jobs = _drawn(seed, true=seed % 2 == 0)
        assert _starts(jobs, kind, gangs) == _textbook(jobs, kind), f"seed {seed}"


@pytest.mark.slow
@pytest.mark.parametrize("kind", [EASY, CONSERVATIVE])
def test_some_start_sooner_and_all_are_done_sooner_than_without(kind: str) -> None:
    """What waits in a strict line uses the gaps; with `conservative` nobody starts later."""
    gained = 0.0
    for seed in range(0, 16, 2):
        jobs = _drawn(seed, true=True)
        strict, filled = (np.array(_starts(jobs, each, False)) for each in ("none", kind))
        gained += float((strict - filled).sum())
        if kind == CONSERVATIVE:
            assert (filled <= strict + 1e-6).all(), f"seed {seed}"
    assert gained > 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", [EASY, CONSERVATIVE])
def test_a_promise_is_kept_on_many_nodes(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With true estimates no promise moves back, though packing gangs on nodes is no exact art."""
    plans: list[Plan] = []
    made = Backfill._made

    def recorded(planner: Backfill, first: int) -> Plan:
        plans.append(made(planner, first))
        return plans[-1]

    monkeypatch.setattr(Backfill, "_made", recorded)
    promises = 0
    for seed in range(0, 16, 2):
        plans.clear()
        _starts(_drawn(seed, true=True), kind, gangs=True, nodes=4)
        promised_s: dict[int, float] = {}
        for plan in plans:
            for serial, (promise,) in plan.promised.items():
                assert promise.start_s <= promised_s.get(serial, np.inf) + 1e-6, f"seed {seed}"
                promised_s[serial] = promise.start_s
        promises += len(promised_s)
    assert promises > 10


@pytest.mark.slow
@pytest.mark.parametrize("kind", [EASY, CONSERVATIVE])
@pytest.mark.parametrize("seed", [*range(4), *range(len(PROMISING), len(PROMISING) + 4)])
def test_gangs_start_whole_beside_labels_and_tight_queues(kind: str, seed: int) -> None:
    """The walks of every preset, in both paces, with gangs and reservations among the jobs."""
    gang_walk(seed, with_options(preset("fifo"), {"matcher.backfill": kind}))


def test_one_line_is_planned() -> None:
    """Queues that decide who is next are refused, at the start and when they change."""
    half = {"capacity": 0.5}
    several = queues_from_dict({"root": {"queues": {"a": half, "b": half}}})
    limited = queues_from_dict({"root": {"queues": {"a": {"capacity": 0.4, "max_capacity": 0.5}}}})
    fifo = make_matcher("fifo", {"backfill": EASY})
    check_queues(make_matcher("fifo", {}), QueueTree(several))
    for queues, what in ((several, "several leaf queues"), (limited, "limits of queues or users")):
        with pytest.raises(InputError, match=rf"matcher\.backfill: plans one line.*{what}"):
            check_queues(fifo, QueueTree(queues))


def test_other_fillers_do_not_go_with_backfill() -> None:
    """Two rules for the same gap would each break what the other promises."""
    with pytest.raises(InputError, match=r"matcher\.backfill: goes with fill=none"):
        make_matcher("fifo", {"backfill": EASY, "fill": "all"})
