"""A walk through faults: a small workload, a random script of faults, every checker on.

Used by the tests and by `python -m sim SEED`, which repeats a walk that failed.
"""

import random

from sim.cluster import Simulation
from sim.faults import random_faults
from sim.recorder import Recorder
from sim.settings import SimSettings
from weft.model.cluster import cluster_from_text
from weft.model.errors import InvariantError
from weft.model.job import Edge, EdgeKind, Job, Stage
from weft.policies.presets import Preset, preset

CLUSTER = "6x4vcores,4096memory_mb,400disk_mbps,400network_mbps"
SCHEDULERS = ("capacity", "fifo", "drf", "tetris", "graphene", "carbyne", "fair", "cobra")
JOBS = 3
# Faults happen before this time.
HORIZON_S = 60.0
# Jobs must have ended by this time.
UNTIL_S = 2_000.0


def jobs_of(seed: int) -> list[Job]:
    """Return a few jobs of two to four small stages: barriers, one-to-one edges, gangs mixed."""
    chance = random.Random(seed)
    jobs = []
    for number in range(JOBS):
        stages: list[Stage] = []
        for i in range(chance.randint(2, 4)):
            kind = chance.choice([EdgeKind.ALL_TO_ALL, EdgeKind.ONE_TO_ONE])
            parents = (Edge(stages[-1].name, kind),) if stages and chance.random() < 0.8 else ()
            demand = {
                "vcores": chance.choice([0.5, 1.0, 2.0]),
                "memory_mb": float(chance.randint(64, 1500)),
                "network_mbps": float(chance.randint(0, 150)),
            }
            count, duration_s = chance.randint(1, 6), chance.uniform(0.5, 12.0)
            gang = chance.random() < 0.2
            stages.append(Stage(f"s{i}", count, duration_s, demand, parents, gang=gang))
        jobs.append(
            Job(f"j{number}", tuple(stages), arrival_s=chance.uniform(0, 20), max_task_attempts=50)
        )
    return jobs


def walk(seed: int, scheduler: Preset | None = None) -> Simulation:
    """Run one walk to its end; raises InvariantError where a rule is broken or a job hangs.

    Without a scheduler the seed chooses one.
    """
    cluster = cluster_from_text(CLUSTER)
    settings = SimSettings(
        scheduler or preset(SCHEDULERS[seed % len(SCHEDULERS)]),
        seed=seed,
        prompt=bool(seed // len(SCHEDULERS) % 2),
        checks=True,
        faults=random_faults(seed, [spec.node_id for spec in cluster.nodes], JOBS, HORIZON_S),
        until_s=UNTIL_S,
        manager={
            "node_expiry_s": 5.0,
            "master_expiry_s": 10.0,
            "max_attempts": 50,
            "node_ends_max": 0,
        },
        master={"node_ends_max": 0},
    )
    simulation = Simulation(cluster, jobs_of(seed), settings, Recorder())
    simulation.run()
    simulation.check()
    states = [row.state for row in simulation.recorder.jobs]
    gangs = [any(stage.gang for stage in row.job.stages) for row in simulation.recorder.jobs]
    # A gang that comes while too few nodes are up for it is refused.
    allowed = [("FINISHED", "REFUSED") if gang else ("FINISHED",) for gang in gangs]
    if any(state not in known for state, known in zip(states, allowed, strict=True)):
        raise InvariantError(f"seed {seed}: by {UNTIL_S:g} s the jobs are {', '.join(states)}")
    return simulation
