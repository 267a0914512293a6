"""A walk through gangs: random jobs with gang stages, every preset, both paces, every checker on.

Seen from outside: all tasks of a gang start at one instant, or none ever runs and its job was
refused. `python -m sim gangs FIRST LAST` runs seeds; the tests run a few.
"""

import random
from collections import defaultdict

from sim.cluster import Simulation
from sim.recorder import Recorder
from sim.settings import SimSettings
from weft.model.cluster import ClusterSpec, cluster_from_dict
from weft.model.errors import InvariantError
from weft.model.job import Edge, EdgeKind, Job, Preference, Stage, TaskOverride
from weft.policies.presets import PROMISING, Preset, preset

JOBS = 4
UNTIL_S = 20_000.0
SAME_S = 1e-6


def cluster_of(seed: int) -> ClusterSpec:
    """Return two to seven nodes of one or two sizes in two racks, some of them labelled."""
    chance = random.Random(seed)
    small = {"count": chance.randint(1, 4), "capacity": {"vcores": 4, "memory_mb": 4096}}
    large = {"count": chance.randint(1, 3), "capacity": {"vcores": 8, "memory_mb": 16384}}
    if chance.random() < 0.3:
        large["labels"] = ["large"]
    return cluster_from_dict(
        {
            "resources": [
                {"name": "vcores", "kind": "divisible"},
                {"name": "memory_mb", "kind": "rigid"},
            ],
            "nodes": [{**small, "racks": 2}, {**large, "racks": 2}],
        }
    )


def jobs_of(seed: int, cluster: ClusterSpec) -> list[Job]:
    """Return a few jobs of plain stages and gangs, with mixed demands, preferences and labels."""
    chance = random.Random(seed)
    names = [spec.node_id for spec in cluster.nodes]
    labelled = any(spec.labels for spec in cluster.nodes)
    jobs = []
    for number in range(JOBS):
        stages: list[Stage] = []
        for i in range(chance.randint(1, 4)):
            kind = chance.choice([EdgeKind.ALL_TO_ALL, EdgeKind.ONE_TO_ONE])
            parents = (Edge(stages[-1].name, kind),) if stages and chance.random() < 0.6 else ()
            gang = chance.random() < 0.6
            tasks = chance.choice([1, 2, 3, 4, 6, 8, 12, 24] if gang else [1, 3, 10, 25])
            own = tuple(_override(chance, names) for _ in range(tasks))
            stages.append(
                Stage(
                    f"s{i}",
                    tasks,
                    chance.uniform(1.0, 12.0),
                    _demand(chance),
                    parents,
                    label="large" if labelled and chance.random() < 0.2 else "",
                    gang=gang,
                    overrides=own if chance.random() < 0.6 else (),
                )
            )
        priority = chance.choice([0, 0, 0, 1])
        jobs.append(
            Job(f"j{number}", tuple(stages), arrival_s=chance.uniform(0, 20), priority=priority)
        )
    return jobs


def _demand(chance: random.Random) -> dict[str, float]:
    return {
        "vcores": chance.choice([0.5, 1.0, 1.0, 2.0, 3.0]),
        "memory_mb": float(chance.choice([64, 256, 1000, 1500, 3000])),
    }


def _override(chance: random.Random, names: list[str]) -> TaskOverride:
    return TaskOverride(
        demand=_demand(chance) if chance.random() < 0.4 else None,
        actual_duration_s=chance.uniform(0.5, 15.0) if chance.random() < 0.5 else None,
        prefer=Preference(nodes=(chance.choice(names),)) if chance.random() < 0.3 else None,
    )


def gang_walk(seed: int, scheduler: Preset | None = None) -> Simulation:
    """Run one walk; raises InvariantError where a gang starts in parts or a job does not end.

    Without a scheduler the seed chooses a preset.
    """
    cluster = cluster_of(seed)
    settings = SimSettings(
        scheduler or preset(PROMISING[seed % len(PROMISING)]),
        seed=seed,
        prompt=bool(seed // len(PROMISING) % 2),
        checks=True,
        check_every=7,
        until_s=UNTIL_S,
        manager={"gang_nodes_max": (0.3, 0.6, 1.0)[seed % 3], "reserve_after_s": 5.0},
    )
    simulation = Simulation(cluster, jobs_of(seed, cluster), settings, Recorder())
    simulation.run()
    simulation.check()
    judge(simulation)
    return simulation


def judge(simulation: Simulation) -> None:
    """Raise InvariantError for a gang that started in parts, and for a job that did not end."""
    recorder = simulation.recorder
    ends = recorder.columns()
    starts: dict[tuple[int, int], list[float]] = defaultdict(list)
    for app, stage, start_s in zip(ends.app, ends.stage, ends.start_s, strict=True):
        starts[int(app), int(stage)].append(float(start_s))
    for row in recorder.jobs:
        if row.state not in ("FINISHED", "REFUSED"):
            raise InvariantError(f"job {row.job.name} is {row.state}: {row.diagnostics}")
        if row.state == "REFUSED":
            continue
        for number, stage in enumerate(row.job.stages):
            times = starts[row.app, number]
            if stage.gang and (len(times) != stage.tasks or max(times) - min(times) > SAME_S):
                raise InvariantError(
                    f"gang {stage.name} of {row.job.name}: {len(times)} of {stage.tasks} tasks "
                    f"started from {min(times):g} to {max(times):g} s"
                )
