"""Is Graphene faster than Tez? Figure 19 and tables 4 and 6 of the paper, beside its numbers.

`python -m lab.graphene_study`. As in section 8.1, jobs are picked at random from a benchmark and
arrive as a Poisson process with a mean of 25 s; the cluster is as small as makes jobs queue. For
makespan all jobs arrive within the first minutes. `tez` sees all six resources; `tez_2` sees CPU
and memory only, as YARN does and as the paper says of its baseline: what it over-allocates slows
down.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lab.study_runs import (
    FILES,
    Outcome,
    gains,
    machines,
    picked_jobs,
    simulate,
    spread,
    work_s,
)
from weft.client.show import table
from weft.job import Job

ARRIVALS_S = 25.0  # section 8.1
BURST_S = 3.0  # for makespan: all within the first few minutes
SEEN = ("cpu", "memory")
OVERBOOK = {"matcher.overbook": "r3,r4,r5,r6"}  # disk and network, in and out
PERCENTILES = (25, 50, 75, 90)
# (T+CP, T+T, G) at p25, p50, p75: figure 19 b; makespan, gap from Tez: table 4
PAPER = {
    "TPC-DS": ((2.0, 1.9, 16.0), (4.1, 6.5, 27.8), (8.9, 16.6, 45.7), (2.1, 8.2, 30.9)),
    "TPC-H": ((1.8, 1.5, 7.6), (3.8, 8.9, 30.5), (7.7, 15.0, 48.3), (4.3, 9.6, 27.5)),
    "BigBench": ((4.1, 2.0, 5.6), (6.4, 6.2, 25.0), (21.7, 18.5, 33.3), None),
}


@dataclass(frozen=True, slots=True)
class Scheme:
    """One row of the study."""

    name: str
    preset: str
    options: tuple[tuple[str, Any], ...] = ()
    blind: bool = False  # the scheduler sees CPU and memory only
    paper: int = -1  # column of PAPER


def _graphene(name: str, paper: int = -1, **options: Any) -> Scheme:
    own = {**OVERBOOK, **{f"matcher.{key}": value for key, value in options.items()}}
    return Scheme(name, "graphene", tuple(own.items()), paper=paper)


SCHEMES: tuple[Scheme, ...] = (
    Scheme("tez", "tez"),
    Scheme("tez_2", "tez", blind=True),
    Scheme("tez_cp", "tez_cp", paper=0),
    Scheme("tez_tetris", "tez_tetris", paper=1),
    Scheme("tez_g_cs", "tez_g_cs"),
    Scheme("tez_g_tetris", "tez_g_tetris"),
    _graphene("graphene", 2),  # as preset: m = 1, priScore by what is left
    _graphene("graphene m=0", eta_m=0.0),
    _graphene("graphene m=0.2", eta_m=0.2),
    _graphene("graphene m=5", eta_m=5.0),
    _graphene("figure 15 m=0.2", eta_m=0.2, priority_from="all"),  # as printed
    _graphene("figure 15 m=1", eta_m=1.0, priority_from="all"),
)


def blinded(jobs: Sequence[Job]) -> list[Job]:
    """Schedulers are told of CPU and memory only; what really happens stays."""
    return [
        replace(
            job,
            stages=tuple(
                replace(
                    stage,
                    demand={name: stage.demand.get(name, 0.0) for name in SEEN},
                    actual_demand=stage.demand,
                )
                for stage in job.stages
            ),
        )
        for job in jobs
    ]


def run_workload(
    workload: str, count: int, load: float, arrivals_s: float, seed: int, names: Sequence[str]
) -> tuple[int, dict[str, Outcome]]:
    """(machines, outcome by scheme); `load` is work over capacity while jobs arrive."""
    jobs = picked_jobs(workload, count, seed)
    size = max(1, round(work_s(jobs) / (load * count * ARRIVALS_S)))
    jobs = spread(jobs, arrivals_s, seed)
    found = {}
    for scheme in SCHEMES:
        if scheme.name in names:
            seen = blinded(jobs) if scheme.blind else jobs
            found[scheme.name] = simulate(
                seen, machines(size), scheme.preset, dict(scheme.options), seed
            )
    return size, found


def jct_rows(workload: str, base: str, found: dict[str, Outcome]) -> list[tuple[Any, ...]]:
    """Figure 19 b: gains in JCT relative to `base`, %; the paper's in brackets."""
    rows = []
    for scheme in SCHEMES:
        if scheme.name == base or scheme.name not in found:
            continue
        own = gains(found[base], found[scheme.name])
        paper = PAPER.get(workload)
        cells: list[str] = []
        for place, p in enumerate(PERCENTILES):
            text = f"{np.percentile(own, p):+.1f}"
            theirs = paper[place] if paper is not None and place < 3 else None
            if theirs is not None and scheme.paper >= 0:
                text += f" ({theirs[scheme.paper]:+.1f})"
            cells.append(text)
        mean = 100.0 * (1.0 - found[scheme.name].jct_s.mean() / found[base].jct_s.mean())
        slower = 100.0 * float((own < -16.0).mean())
        rows.append((workload, scheme.name, *cells, f"{mean:+.1f}", f"{slower:.0f}"))
    return rows


def makespan_rows(workload: str, base: str, found: dict[str, Outcome]) -> list[tuple[Any, ...]]:
    """Table 4: makespan, gap from `base`, %; the paper's in brackets."""
    rows = []
    for scheme in SCHEMES:
        if scheme.name not in found:
            continue
        own = found[scheme.name]
        gap = 100.0 * (found[base].makespan_s - own.makespan_s) / found[base].makespan_s
        paper = PAPER.get(workload)
        theirs = paper[3] if paper is not None else None
        told = f" ({theirs[scheme.paper]:+.1f})" if theirs and scheme.paper >= 0 else ""
        rows.append(
            (workload, scheme.name, f"{own.makespan_s:.0f}", f"{gap:+.1f}{told}",
             f"{100 * own.utilisation:.0f}", f"{own.jain:.2f}")
        )  # fmt: skip
    return rows


def main() -> None:
    """Run the study and print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    known = [name for name in FILES if name in PAPER]
    parser.add_argument("--workload", choices=known, action="append")
    parser.add_argument("--jobs", type=int, default=60, help="the paper: 120")
    parser.add_argument("--load", type=float, default=1.5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--base", default="tez_2", choices=["tez", "tez_2"])
    parser.add_argument("--scheme", action="append", choices=[s.name for s in SCHEMES])
    parser.add_argument("--only", choices=["jct", "makespan"])
    args = parser.parse_args()
    names = [args.base, *(args.scheme or [s.name for s in SCHEMES])]
    jct: list[tuple[Any, ...]] = []
    span: list[tuple[Any, ...]] = []
    for workload in args.workload or known:
        if args.only != "makespan":
            size, found = run_workload(workload, args.jobs, args.load, ARRIVALS_S, args.seed, names)
            print(f"{workload}: {args.jobs} jobs on {size} machines", flush=True)
            jct += jct_rows(workload, args.base, found)
        if args.only != "jct":
            _, found = run_workload(workload, args.jobs, args.load, BURST_S, args.seed, names)
            span += makespan_rows(workload, args.base, found)
    if jct:
        print(f"\nGain in JCT relative to {args.base}, % (the paper: figure 19)")
        titles = [f"p{p}" for p in PERCENTILES]
        table(("workload", "scheme", *titles, "of the mean", "% of jobs 16 % slower"), jct)
    if span:
        print(f"\nMakespan, gap from {args.base}, % (the paper: table 4)")
        table(("workload", "scheme", "makespan s", "gap", "utilisation %", "Jain 60 s"), span)


if __name__ == "__main__":
    main()
