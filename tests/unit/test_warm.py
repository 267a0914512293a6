"""What a process loads before it says that it serves: no kernel is left for its event loop."""

import subprocess
import sys

import pytest

from am.process.warm import warm
from weft.model.resources import DEFAULT_RESOURCE_TYPES
from weft.policies.presets import PRESETS, preset

LEFT = """
import gc, sys
from pathlib import Path
from numba.core.dispatcher import Dispatcher
from am.process.warm import warm as warm_master
from rm.match.registry import make_matcher
from rm.process.warm import warm
from sim.cluster import Simulation
from sim.settings import SimSettings
from testkit.master import stage
from weft.model.cluster import cluster_from_text
from weft.model.job import Job, Stage
from weft.policies.presets import preset
from weft.model.resources import DEFAULT_RESOURCE_TYPES
from weft.workloads.jobs_file import load_jobs

def compiled():
    kernels = [one for one in gc.get_objects() if isinstance(one, Dispatcher)]
    return {(one.py_func.__name__, str(types)) for one in kernels for types in one.overloads}

chosen = preset(sys.argv[1])
warm(make_matcher(chosen.matcher, chosen.matcher_options), DEFAULT_RESOURCE_TYPES)
warm_master(chosen, DEFAULT_RESOURCE_TYPES, plan=True)
before = compiled()
jobs = [
    Job(f"j{n}", (stage("a", 9), stage("b", 5, "a"), stage("c", 7, "a")), arrival_s=3.0 * n)
    for n in range(9)
]
reads = {"vcores": 0.5, "memory_mb": 512.0, "disk_mbps": 500.0}  # disks are overbooked
jobs.append(Job("disks", (Stage("a", 9, 2.0, reads),), arrival_s=40.0))
if chosen.asker == "carbyne":  # some queries have its reversed packing turn out too long
    jobs += load_jobs(sorted(Path("weft/client/samples/tpch").glob("*.json")))
for prompt in (False, True):
    cluster = cluster_from_text("3x4vcores,16384memory_mb,800disk_mbps,1000network_mbps")
    Simulation(cluster, jobs, SimSettings(scheduler=chosen, prompt=prompt)).run()
print(sorted(name for name, _ in compiled() - before))
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["graphene", "carbyne"])
def test_no_kernel_is_left_to_load_inside_the_event_loop(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LEFT, name], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", list(PRESETS))
def test_the_small_job_runs_under_every_preset(name: str) -> None:
    assert warm(preset(name), DEFAULT_RESOURCE_TYPES, plan=True) >= 7
