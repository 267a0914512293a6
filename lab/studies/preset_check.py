"""Does every preset run a public workload without breaking a rule?

Run as `python -m lab.studies.preset_check`.

`queries_tpcds_FB_distr` on 100 machines, with every checker on: `sim.checkers` judges each fact
from outside, and after every `EVERY`-th event the core that took it checks its own books. A
violation ends the run with its name. Names after the command choose presets; `--jobs N` takes at
most so many jobs, evenly picked.
"""

import sys
import time

from lab.inputs import public_files
from sim.cluster import Simulation
from sim.results import Run, jct_s, makespan_s
from sim.settings import SimSettings
from weft.model.cluster import ClusterSpec, NodeSpec
from weft.model.job import Job
from weft.model.queues import DEFAULT_QUEUES
from weft.model.resources import Kind, ResourceType, ResourceTypes
from weft.policies.presets import PRESETS, preset
from weft.workloads.imported import Imported
from weft.workloads.registry import import_jobs

WORKLOAD = "carbyne-workloads/queries_tpcds_FB_distr_new.txt.gz"
# To check the manager's books takes longer than to take in 50 events.
EVERY = 50
SIX = ("cpu", "memory", "r3", "r4", "r5", "r6")


def workload(jobs_max: int = 0) -> list[Job]:
    """Return the jobs with their own arrivals; at most `jobs_max`, evenly picked (0: all)."""
    jobs = list(import_jobs("carbyne", public_files(WORKLOAD), {}, Imported()))
    return jobs[:: -(-len(jobs) // jobs_max)] if jobs_max else jobs


def machines(count: int) -> ClusterSpec:
    """Return machines that have 1 of each of six resources; memory is rigid."""
    types = ResourceTypes(
        tuple(ResourceType(n, Kind.RIGID if n == "memory" else Kind.DIVISIBLE) for n in SIX)
    )
    nodes = tuple(NodeSpec(f"n{i}", (1.0,) * len(SIX), f"r{i // 20}") for i in range(count))
    return ClusterSpec(types, nodes, DEFAULT_QUEUES)


def check(name: str, jobs: list[Job], nodes: int = 100, *, every: int = EVERY) -> str:
    """Run one preset, a line of a Markdown table; raises InvariantError where a rule is broken."""
    settings = SimSettings(scheduler=preset(name), checks=True, check_every=every)
    start_s = time.process_time()
    simulation = Simulation(machines(nodes), jobs, settings)
    recorder = simulation.run()
    spent_s = time.process_time() - start_s
    ended = [row for row in recorder.jobs if row.end == "SUCCEEDED"]
    run = Run(simulation.cluster, recorder.jobs, recorder.columns())
    mean_s = sum(map(jct_s, ended)) / max(len(ended), 1)
    cells = (
        name,
        f"{len(ended)} of {len(jobs)}",
        f"{recorder.finished_tasks:,}",
        f"{simulation.engine.events:,}",
        f"{mean_s:,.0f}",
        f"{makespan_s(run):,.0f}",
        recorder.digest()[:12],
        f"{spent_s:,.0f}",
    )
    return f"| {' | '.join(cells)} |"


def main(arguments: list[str]) -> None:
    """Print the table, a row as soon as it is known."""
    most = 0
    if "--jobs" in arguments:
        at = arguments.index("--jobs")
        most = int(arguments[at + 1])
        del arguments[at : at + 2]
    jobs = workload(most)
    print("| preset | jobs succeeded | tasks | events | mean JCT s | makespan s | digest | CPU s |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for name in arguments or PRESETS:
        print(check(name, jobs), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
