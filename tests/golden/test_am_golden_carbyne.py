"""Worked examples of Carbyne: the master's decision, and completion times of the whole stack."""

from typing import Any

import numpy as np
import pytest

from am.ask.carbyne import Carbyne, Intra, schedule
from am.ask.remaining import Remaining, declared_s, shape_of
from am.work import JobExecution
from sim.cluster import Simulation
from sim.results import jct_s
from sim.settings import SimSettings
from testkit.examples import Table, examples, reading
from testkit.master import accepted, work_of
from weft.model.cluster import ClusterSpec, NodeSpec
from weft.model.job import Edge, Job, Stage
from weft.model.queues import DEFAULT_QUEUES
from weft.model.resources import Kind, ResourceType, ResourceTypes
from weft.policies.presets import preset
from weft.protocol.facts import Placed
from weft.protocol.messages import AskType


def read_job(given: Table) -> Job:
    stages = tuple(
        Stage(
            s["name"],
            s["num_tasks"],
            s["duration"],
            dict(s["demand"].items()),
            tuple(Edge(p) for p in s.get("parents", ())),
        )
        for s in given["stages"]
    )
    return Job(given["name"], stages)


def decided(
    job: Job, types: ResourceTypes, total: float, share: float
) -> tuple[JobExecution, Intra]:
    """What a master decides that may count on `share` of a pool of `total`."""
    answer = accepted(job, types=types, machines=(((total,), 1),), share=(share,))
    work = work_of(answer, Carbyne())
    view = work._view()
    remaining = Remaining(shape_of(view), declared_s(view), view, 0.0)
    return work, schedule(remaining, (share,), view.capacity, False)


def simulated(
    jobs: list[Job], types: ResourceTypes, room: float
) -> tuple[list[float], list[Placed]]:
    """Completion times of all cores together on one machine, and what was placed at time 0."""
    cluster = ClusterSpec(types, (NodeSpec("n", (room,), "k"),), DEFAULT_QUEUES)
    settings = SimSettings(scheduler=preset("carbyne"), prompt=True, checks=True)
    simulation = Simulation(cluster, jobs, settings)
    placed: list[Placed] = []
    simulation.watchers.append(
        lambda now, fact: placed.append(fact) if now == 0 and isinstance(fact, Placed) else None
    )
    return [jct_s(row) for row in simulation.run().jobs], placed


@pytest.mark.slow
@examples("carbyne")
def test_worked_example(case: dict[str, Any]) -> None:
    """T_k, must-start tasks, leftovers; then the jobs' ends with the leftover given out by SRTF."""
    with reading(case) as (given, expected, tolerance):
        close = {"abs": tolerance.get("abs", 1e-6)}
        (total,) = given["capacity"].values()
        types = ResourceTypes(tuple(ResourceType(n, Kind.RIGID) for n in given["capacity"]))
        for job in given["jobs"]:
            assert job["resources"] == list(types.names)
        jobs = [read_job(job) for job in given["jobs"]]
        rooms = [share * total for share in given["share"]]
        for number, (job, room) in enumerate(zip(jobs, rooms, strict=True)):
            work, intra = decided(job, types, total, room)
            assert intra.t_k == pytest.approx(expected["T"][number], **close)
            assert intra.leftover[0] == pytest.approx(expected["leftover"][number], **close)
            stages = shape_of(work._view()).links.stage[intra.must]
            musts = np.bincount(stages, minlength=len(job.stages))
            stated = expected["must_start_counts"][number]
            found = {s.name: int(n) for s, n in zip(job.stages, musts, strict=True)}
            assert found == {s.name: stated.get(s.name, 0) for s in job.stages}
        ends, placed = simulated(jobs, types, total)
        assert ends == pytest.approx(expected["carbyne_jct"], **close)
        assert np.mean(ends) == pytest.approx(expected["carbyne_avg"], **close)
        lent = [p.demand[0] for p in placed if p.kind is AskType.ALTRUISTIC]
        if "after_srtf_left" in expected:
            left = sum(expected["leftover"]) - lent[0]
            assert left == pytest.approx(expected["after_srtf_left"], **close)
        alone = [simulated([job], types, room)[0][0] for job, room in zip(jobs, rooms, strict=True)]
        assert np.mean(alone) == pytest.approx(expected["strict_share_avg"], **close)
        if "improvement" in expected:
            ratio = np.mean(alone) / np.mean(ends)
            assert ratio == pytest.approx(expected["improvement"], **close)
