"""Is Graphene faster than Tez? Figure 19 and tables 4 and 6 of the paper, beside its numbers.

`python -m lab.studies.graphene TPC-DS`. As in section 8.1, jobs are picked at random from a
benchmark and arrive as a Poisson process with a mean of 25 s; the cluster is as small as makes jobs
queue. For makespan all jobs arrive within the first minutes. Each seed draws its own jobs and
arrivals; schemes are compared on the same ones. `--scale N` divides the tasks of every stage and
the machines by N. `tez` sees all six resources; `tez_2` sees CPU and memory only, as YARN does and
as the paper says of its baseline: what it over-allocates slows down.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from lab.studies.matching import thinned
from lab.studies.runs import FILES, machines, picked_jobs, simulate, spread, work_s
from lab.studies.trials import Rows, cell, interval, reader, run_trials, told
from weft.client.show import table
from weft.model.job import Job

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
    """Return jobs of which schedulers see CPU and memory only; what really happens stays."""
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


def measured(
    scheme: Scheme, workload: str, args: argparse.Namespace, burst: bool, seed: int
) -> dict[str, Any]:
    """Run once; `load` is work over capacity while jobs arrive."""
    jobs = [thinned(job, args.scale) for job in picked_jobs(workload, args.jobs, seed)]
    size = max(2, round(work_s(jobs) / (args.load * args.jobs * ARRIVALS_S)))
    jobs = spread(jobs, BURST_S if burst else ARRIVALS_S, seed)
    seen = blinded(jobs) if scheme.blind else jobs
    found = simulate(seen, machines(size), scheme.preset, dict(scheme.options), seed)
    return {
        "jct_s": found.jct_s.tolist(),
        "makespan_s": found.makespan_s,
        "machines": size,
        "utilisation": found.utilisation,
        "jain": found.jain,
    }


def paper_of(workload: str, row: int, scheme: Scheme) -> str:
    """Return the paper's number in brackets, where it has one."""
    numbers = PAPER.get(workload)
    theirs = numbers[row] if numbers is not None else None
    return f" ({theirs[scheme.paper]:+.1f})" if theirs and scheme.paper >= 0 else ""


def over_seeds(rows: Rows, case: str, base: str, number: Callable[[Any, Any], Any]) -> str:
    """Return a number of each seed's pair of rows, with its interval."""
    pairs = zip(rows[base], rows[case], strict=True)
    return told(interval([number(b, own) for b, own in pairs]), 1, sign=True)


def gain(p: float, base: Mapping[str, Any], own: Mapping[str, Any]) -> float:
    """Return a percentile over the jobs of the gain in JCT, % of their time under the base."""
    before, after = np.array(base["jct_s"]), np.array(own["jct_s"])
    return float(np.percentile(100.0 * (before - after) / before, p))


def jct_rows(workload: str, base: str, rows: Rows) -> list[tuple[Any, ...]]:
    """Return figure 19 b: gains in JCT relative to `base`, %; the paper's in brackets."""
    found = []
    for scheme in SCHEMES:
        if scheme.name == base or scheme.name not in rows:
            continue
        tell = partial(over_seeds, rows, scheme.name, base)
        cells = []
        for place, p in enumerate(PERCENTILES):
            paper = paper_of(workload, place, scheme) if place < 3 else ""
            cells.append(tell(partial(gain, p)) + paper)
        mean = tell(
            lambda b, own: 100.0 - 100.0 * float(np.mean(own["jct_s"]) / np.mean(b["jct_s"]))
        )
        slower = tell(
            lambda b, own: 100.0 * np.mean(np.array(own["jct_s"]) > 1.16 * np.array(b["jct_s"]))
        )
        found.append((workload, scheme.name, *cells, mean, slower))
    return found


def makespan_rows(workload: str, base: str, rows: Rows) -> list[tuple[Any, ...]]:
    """Return table 4: makespan, gap from `base`, %; the paper's in brackets."""
    found = []
    for scheme in SCHEMES:
        if scheme.name not in rows:
            continue
        own = rows[scheme.name]
        gap = over_seeds(
            rows,
            scheme.name,
            base,
            lambda b, own: 100.0 * (1.0 - own["makespan_s"] / b["makespan_s"]),
        )
        found.append(
            (
                workload,
                scheme.name,
                told(interval([r["makespan_s"] for r in own]), 0),
                gap + paper_of(workload, 3, scheme),
                told(interval([100.0 * r["utilisation"] for r in own]), 0),
                cell([r["jain"] for r in own], 2),
            )
        )
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the study and print both tables."""
    known = [name for name in FILES if name in PAPER]
    parser = reader("lab.studies.graphene", known, "graphene.jsonl")
    parser.add_argument("--jobs", type=int, default=60, help="the paper: 120")
    parser.add_argument("--load", type=float, default=1.5)
    parser.add_argument("--scale", type=int, default=8)
    parser.add_argument("--base", default="tez_2", choices=["tez", "tez_2"])
    parser.add_argument("--scheme", action="append", choices=[s.name for s in SCHEMES])
    parser.add_argument("--only", choices=["jct", "makespan"])
    args = parser.parse_args(arguments)
    names = [args.base, *(args.scheme or [s.name for s in SCHEMES])]
    jct: list[tuple[Any, ...]] = []
    span: list[tuple[Any, ...]] = []
    for workload in args.study:
        for burst, left_out in ((False, "makespan"), (True, "jct")):
            if args.only == left_out:
                continue
            cases = {
                scheme.name: partial(measured, scheme, workload, args, burst)
                for scheme in SCHEMES
                if scheme.name in names
            }
            kind = "makespan" if burst else "jct"
            key = f"{workload}/{kind}/{args.jobs}/{args.load:g}/{args.scale}"
            rows = run_trials(cases, range(args.seeds), args.rows, key)
            sizes = [row["machines"] for row in rows[args.base]]
            print(f"{workload}, {kind}: {args.jobs} jobs on {min(sizes)} to {max(sizes)} machines")
            if burst:
                span += makespan_rows(workload, args.base, rows)
            else:
                jct += jct_rows(workload, args.base, rows)
    if jct:
        print(f"\nGain in JCT relative to {args.base}, %, ± 95 % (the paper: figure 19)\n")
        titles = [f"p{p}" for p in PERCENTILES]
        table(("workload", "scheme", *titles, "of the mean", "% of jobs 16 % slower"), jct)
    if span:
        print(f"\nMakespan, gap from {args.base}, %, ± 95 % (the paper: table 4)\n")
        table(("workload", "scheme", "makespan s", "gap", "utilisation %", "Jain 60 s"), span)


if __name__ == "__main__":
    main()
