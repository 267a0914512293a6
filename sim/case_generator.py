"""What some seeds of the fault search have beyond plain jobs: gangs, queues, preemption, lifetimes.

Each is switched on and off by the seed, as faults are. Scripts that were kept before there was any
of this say nothing of it, and are run without it.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from weft.model.cluster import ClusterSpec
from weft.model.job import Job, Preference, Stage, TaskOverride
from weft.model.json_types import Json, Table
from weft.model.queues import QueueSpec

_QUEUES = ("a", "b")


@dataclass(frozen=True, slots=True)
class Variety:
    """A seed's cluster and jobs, and what it sets for the manager and for masters."""

    cluster: ClusterSpec
    jobs: tuple[Job, ...]
    manager: Table = field(default_factory=dict)
    master: Table = field(default_factory=dict)


def varied(rng: np.random.Generator, cluster: ClusterSpec, jobs: tuple[Job, ...]) -> Variety:
    """Draw it; in four seeds of ten there is nothing."""
    if rng.random() < 0.4:
        return Variety(cluster, jobs)
    manager: Json = {}
    master: Json = {}
    if rng.random() < 0.3:
        cluster, jobs = _queues(rng, cluster, jobs)
        if rng.random() < 0.7:
            manager.update(
                preemption=True,
                preemption_grace_s=float(rng.choice([0.0, 2.0])),
                preemption_intra_queue=bool(rng.random() < 0.5),
                preemption_round_max=1.0,
            )
    jobs = tuple(_job(rng, cluster, job) for job in jobs)
    if rng.random() < 0.3:
        master["speculate"] = True
    if rng.random() < 0.2:
        manager["takeover"] = False
    return Variety(cluster, jobs, manager, master)


def _queues(
    rng: np.random.Generator, cluster: ClusterSpec, jobs: tuple[Job, ...]
) -> tuple[ClusterSpec, tuple[Job, ...]]:
    share = float(rng.choice([0.2, 0.5]))
    most = float(rng.choice([0.8, 1.0]))
    tree = QueueSpec(
        "root", children=(QueueSpec("a", share, most), QueueSpec("b", 1.0 - share, 1.0))
    )
    own = tuple(
        replace(job, queue=_QUEUES[number % 2], priority=int(rng.integers(0, 3)))
        for number, job in enumerate(jobs)
    )
    return replace(cluster, queues=tree), own


def _job(rng: np.random.Generator, cluster: ClusterSpec, job: Job) -> Job:
    stages = tuple(_stage(rng, cluster, stage) for stage in job.stages)
    lifetime_s = float(rng.uniform(10.0, 90.0)) if rng.random() < 0.15 else 0.0
    return replace(job, stages=stages, lifetime_s=lifetime_s)


def _stage(rng: np.random.Generator, cluster: ClusterSpec, stage: Stage) -> Stage:
    """Return a stage that may be a gang, prefer nodes, have mixed tasks, or many short ones."""
    kind = int(rng.integers(8))
    if kind == 0:
        # So few tasks fit beside masters, in any queue, in containers of any size.
        most = len(cluster.nodes) - 1
        return replace(stage, gang=True, tasks=min(stage.tasks, most))
    if kind == 1:
        names = [spec.node_id for spec in cluster.nodes]
        return replace(stage, prefer=Preference((names[int(rng.integers(len(names)))],)))
    if kind == 2:
        sizes = ({"vcores": 0.5, "memory_mb": 128.0}, {"vcores": 1.0, "memory_mb": 512.0})
        own = tuple(
            TaskOverride(demand=sizes[int(rng.integers(2))], duration_s=float(rng.random() * 4))
            for _ in range(stage.tasks)
        )
        return replace(stage, overrides=own)
    if kind == 3:
        return replace(stage, tasks=stage.tasks + int(rng.integers(10, 40)), duration_s=0.2)
    return stage
