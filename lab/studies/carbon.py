"""What CAP and PCAPS save and cost: `python -m lab.studies.carbon footprint`.

Jobs drawn after TPC-DS's shapes arrive over two days on a cluster at a load of 0.6; a day of carbon
intensity takes 24 minutes, as in the paper, whose hour is a minute. The footprint is the sum over
tasks of the intensity while each ran, weighted with the dominant share of the cluster that it held.
docs/results/matching.md holds the table.
"""

import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from lab.studies.runs import finished
from lab.studies.trials import Trial, print_table, reader, run_trials
from rm.match.carbon import Trace, trace_of
from sim.reshape import fit
from sim.results import Run, dominant_shares, jct_s, makespan_s
from weft.model.cluster import ClusterSpec, cluster_from_dict
from weft.model.dag import Floats
from weft.model.job import Job
from weft.policies.presets import preset, with_options
from weft.workloads.synth import generate

HOUR_S, DAYS = 30.0, 2
# A day in California spans about this, in g CO2 a kWh.
CLEAN, DIRTY = 130.0, 440.0
TRACE = f"diurnal:{CLEAN:g}:{DIRTY:g}:{24 * HOUR_S:g}"
JOBS, LOAD, NODES_MIN = 12, 0.6, 5
CAPS, GAMMAS = (0.8, 0.5, 0.2), (0.25, 0.5, 0.9)
KIND, SCHEDULER = "tpcds_like", "graphene"
NODE = {"vcores": 8.0, "memory_mb": 32768.0, "disk_mbps": 400.0, "network_mbps": 625.0}


def footprint(run: Run, trace: Trace) -> float:
    """Return the share of the cluster x intensity, summed over tasks and time, g CO2 s a kWh."""
    edges = np.arange(trace.slot(float(run.tasks.end_s.max())) + 2)
    values = np.array([trace.values[slot % len(trace.values)] for slot in edges.tolist()])
    total = np.concatenate([[0.0], np.cumsum(values * trace.step_s)])

    def until(time_s: Floats) -> Floats:
        return np.asarray(np.interp(time_s, np.arange(len(total)) * trace.step_s, total))

    return float(dominant_shares(run) @ (until(run.tasks.end_s) - until(run.tasks.start_s)))


def drawn(seed: int) -> tuple[list[Job], ClusterSpec]:
    """Return a seed's jobs over two days, and machines that they keep busy to LOAD."""
    span_s = DAYS * 24 * HOUR_S
    rng = np.random.default_rng([seed, 7])
    jobs = list(generate(KIND, JOBS, rng, interarrival_s=span_s / JOBS))
    needed = max(
        sum(
            stage.demand.get(name, 0.0) * stage.tasks * stage.duration_s
            for job in jobs
            for stage in job.stages
        )
        / amount
        for name, amount in NODE.items()
    )
    nodes = max(NODES_MIN, round(needed / span_s / LOAD))
    cluster = cluster_from_dict({"nodes": [{"count": nodes, "capacity": NODE}]})
    return fit(jobs, cluster), cluster


def run_case(scheduler: str, options: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Return one run's footprint, mean JCT and makespan."""
    jobs, cluster = drawn(seed)
    chosen = with_options(preset(scheduler), options)
    run, _ = finished(jobs, cluster, chosen, seed=seed)
    return {
        "footprint": footprint(run, trace_of(TRACE)),
        "mean JCT s": float(np.mean([jct_s(row) for row in run.jobs])),
        "makespan s": makespan_s(run),
    }


def cases(scheduler: str) -> dict[str, Trial]:
    """Return a scheduler by itself, under CAP and under PCAPS."""
    found: dict[str, Trial] = {scheduler: partial(run_case, scheduler, {})}
    for least in CAPS:
        own = {"matcher.carbon": TRACE, "matcher.carbon_least": least}
        found[f"CAP, B = {least:g}"] = partial(run_case, scheduler, own)
    for gamma in GAMMAS:
        own = {"matcher.carbon": TRACE, "matcher.carbon_policy": "pcaps"}
        own["matcher.carbon_gamma"] = gamma
        found[f"PCAPS, gamma = {gamma:g}"] = partial(run_case, scheduler, own)
    return found


def main() -> None:
    """Run the study and print its tables."""
    parser = reader("lab.studies.carbon", ("footprint",), "carbon.jsonl")
    args = parser.parse_args(sys.argv[1:])
    rows = run_trials(cases(SCHEDULER), range(args.seeds), args.rows, SCHEDULER)
    names = {"footprint": 0, "mean JCT s": 0, "makespan s": 0}
    against = dict.fromkeys(names, True)
    print_table(f"{JOBS} jobs over two days", rows, names, SCHEDULER, against)


if __name__ == "__main__":
    main()
