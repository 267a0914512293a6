"""Delay scheduling is worth as much in prompt pace as in YARN's."""

import numpy as np
import pytest

from sim.cluster import Simulation
from sim.recorder import Recorder
from sim.settings import SimSettings
from weft.model.cluster import cluster_from_text
from weft.model.job import Job, Preference, Stage
from weft.policies.presets import preset


def local_share(scheduler: str, prompt: bool) -> float:
    """The part of 960 tasks that runs on one of its two preferred nodes of 20."""
    rng = np.random.default_rng(3)
    cluster = cluster_from_text("20x4vcores,16384memory_mb")
    names = [spec.node_id for spec in cluster.nodes]
    jobs = []
    for number in range(30):
        stages = [
            Stage(
                f"s{i}",
                4,
                float(rng.uniform(2, 6)),
                {"vcores": 1.0, "memory_mb": 1024.0},
                prefer=Preference(nodes=tuple(str(n) for n in rng.choice(names, 2, False))),
            )
            for i in range(8)
        ]
        jobs.append(Job(f"j{number}", tuple(stages), arrival_s=number * 2.0))
    recorder = Recorder()
    settings = SimSettings(preset(scheduler), seed=1, prompt=prompt)
    Simulation(cluster, jobs, settings, recorder).run()
    ends = recorder.columns()
    jobs_of = {app: row.job for app, row in recorder.by_app.items()}
    local = sum(
        ends.nodes[node] in jobs_of[int(app)].stages[int(stage)].prefer.nodes
        for app, stage, node in zip(ends.app, ends.stage, ends.node, strict=True)
    )
    return local / len(ends)


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", ["capacity", "fair"])
def test_as_many_tasks_are_local_in_prompt_pace(scheduler: str) -> None:
    paced, prompt = local_share(scheduler, False), local_share(scheduler, True)
    assert paced > 0.8
    assert prompt > paced - 0.05
