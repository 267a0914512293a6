"""Runs of benchmark queries that several papers' pages need: one preset, its numbers as a row."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lab.papers.digest import Case
from lab.studies.matching import thinned
from lab.studies.runs import FILES, machines, picked_jobs, simulate, spread
from sim.reshape import fit, misestimate
from weft.model.dag import Floats
from weft.policies.presets import Preset, choose, preset, with_options

# Divides the tasks of every stage and the machines, so that a run takes a second.
SCALE = 4
# The resources r3 to r6 are disk and network, in and out.
OVERBOOK = {"matcher.overbook": "r3,r4,r5,r6"}
SEEN = {"asker.sees": "cpu,memory"}
SCHEMES: Mapping[str, tuple[str | Preset, Mapping[str, Any]]] = {
    "graphene": ("graphene", OVERBOOK),
    "carbyne": ("carbyne", {}),
    "carbyne_graphene": ("carbyne_graphene", {}),
    "tetris": ("tetris", {}),
    "sjf": ("sjf", {}),
    "tez": ("tez", {}),
    "tez, cores and memory": ("tez", SEEN),
    "tez, p75 containers": ("tez", {"asker.container": "p75"}),
    "tez, p90 containers": ("tez_p90", {}),
    "tez, p90 containers kept": (choose("tez", asker="reuse"), {}),
    "tez, largest containers": ("tez", {"asker.container": "largest"}),
    "tez, p90 of cores and memory": ("tez_p90", SEEN),
    "tez_cp": ("tez_cp", {}),
    "tez_tetris": ("tez_tetris", {}),
    "tez_cp, p90 of cores and memory": ("tez_cp", {"asker.container": "p90", **SEEN}),
    "tez_tetris, p90 containers": ("tez_tetris", {"asker.container": "p90"}),
    "tez_g_cs": ("tez_g_cs", {}),
    "tez_g_tetris": ("tez_g_tetris", {}),
    "drf": ("drf", {}),
    "drf, cores and memory": ("drf", SEEN),
    "drf, p90 containers": ("drf", {"asker.container": "p90"}),
    "drf_strict": ("drf_strict", {}),
    "drf_strict, equal": ("drf_strict", {"matcher.share": "equal"}),
}


def row_of(
    workload: str,
    jobs: int,
    nodes: int,
    mean_s: float,
    scale: int,
    error: float,
    chosen: Preset,
    seed: int,
) -> dict[str, Any]:
    """Return one run: times in s, in the order of the jobs.

    `mean_s` between arrivals, Poisson; 0: all at once. `error`: relative, of all estimates, memory
    then being shared like the rest so that no task dies of it.
    """
    drawn = [thinned(job, scale) for job in picked_jobs(workload, jobs, seed)]
    if mean_s:
        drawn = spread(drawn, mean_s, seed)
    if error:
        drawn = fit(misestimate(drawn, error, error, seed), machines(1))
    cluster = machines(nodes, "" if error else "memory")
    found = simulate(drawn, cluster, chosen, None, seed)
    return {
        "jct_s": [round(float(t), 1) for t in found.jct_s],
        "makespan_s": round(found.makespan_s, 1),
        "jain": None if math.isnan(found.jain) else round(found.jain, 4),
        "used": round(found.utilisation, 4),
    }


def scheduler(name: str, options: Mapping[str, Any] | None = None) -> Preset:
    """Return one of `SCHEMES`, or a preset, with parameters; its text, which decides nothing, not.

    Raises InputError for an unknown one.
    """
    chosen, own = SCHEMES.get(name, (name, {}))
    made = preset(chosen) if isinstance(chosen, str) else chosen
    return replace(with_options(made, {**own, **(options or {})}), text="")


def trials(
    workload: str,
    jobs: int,
    nodes: int,
    schemes: Sequence[str],
    *,
    mean_s: float = 0.0,
    scale: int = SCALE,
    error: float = 0.0,
    options: Mapping[str, Any] | None = None,
) -> dict[str, Case]:
    """Return a case for each scheme on the same jobs."""
    drawn = (workload, jobs, nodes, mean_s, scale, error)
    return {
        name: Case(row_of, (*drawn, scheduler(name, options)), files=(file_of(workload),))
        for name in schemes
    }


def file_of(workload: str) -> str:
    """Return where a benchmark's queries lie below the public inputs."""
    return f"carbyne-workloads/{FILES[workload]}"


def jct(row: Mapping[str, Any]) -> Floats:
    """Return completion times of a row, s."""
    return np.array(row["jct_s"])


def mean_jct(row: Mapping[str, Any]) -> float:
    """Return the mean completion time of a row, s."""
    return float(jct(row).mean())


def jct_factor(base: Mapping[str, Any], own: Mapping[str, Any]) -> float:
    """Return by how much the mean completion time of `base` is longer."""
    return mean_jct(base) / mean_jct(own)


def span_factor(base: Mapping[str, Any], own: Mapping[str, Any]) -> float:
    """Return by how much the makespan of `base` is longer."""
    return float(own["makespan_s"] / base["makespan_s"])


def span_gain(base: Mapping[str, Any], own: Mapping[str, Any]) -> float:
    """Return the makespan saved, % of that of `base`."""
    return 100.0 * (1.0 - span_factor(base, own))


def jct_gain(p: float, base: Mapping[str, Any], own: Mapping[str, Any]) -> float:
    """Return a percentile over jobs of the time saved, % of their time under `base`."""
    return float(np.percentile(100.0 * (1.0 - jct(own) / jct(base)), p))


def job_factor(p: float, base: Mapping[str, Any], own: Mapping[str, Any]) -> float:
    """Return a percentile over jobs of by how much longer they took under `base`."""
    return float(np.percentile(jct(base) / jct(own), p))


def jain_of(row: Mapping[str, Any]) -> float:
    """Return Jain's index over 60 s; NaN where no window counts."""
    return math.nan if row["jain"] is None else float(row["jain"])
