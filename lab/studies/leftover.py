"""Carbyne's leftover: how much fairness for how much speed?

Run as `python -m lab.studies.leftover TPC-DS`.

40 jobs at once, as in Carbyne section 5.2.1, with the leftover given out by remaining work (the
paper's order), by least share, and by mixes of both (`matcher.leftover`, `matcher.leftover_mix`),
beside DRF; the same jobs for every case of a seed. `--plot FILE` draws Jain's index against the
gain in mean JCT.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from lab.studies.matching import thinned
from lab.studies.runs import WINDOW_S, finished, machines, picked_jobs
from lab.studies.trials import Rows, Trial, interval, paired, print_table, reader, run_trials
from sim.results import dominant_shares, jain_index, jct_s, makespan_s

MACHINES, JOBS = 100, 40
MIXES = (0.25, 0.5, 0.75)
WORKLOADS = ("TPC-DS", "TPC-H", "BigBench")


def measured(
    workload: str, scale: int, preset: str, options: Mapping[str, Any], seed: int
) -> dict[str, float]:
    """Return one run's numbers."""
    jobs = [thinned(job, scale) for job in picked_jobs(workload, JOBS, seed)]
    cluster = machines(max(2, round(MACHINES / scale)))
    run, recorder = finished(jobs, cluster, preset, options, seed)
    shares = dominant_shares(run)
    return {
        "mean JCT s": float(np.mean([jct_s(row) for row in run.jobs])),
        "makespan s": makespan_s(run),
        "Jain 60 s": jain_index(run, WINDOW_S, shares),
        "Jain 240 s": jain_index(run, 4 * WINDOW_S, shares),
        "altruistic %": 100.0 * len(recorder.altruistic) / max(recorder.finished_tasks, 1),
    }


def cases_of(workload: str, scale: int) -> dict[str, Trial]:
    """Return DRF, and Carbyne with each order of the leftover."""
    options: dict[str, dict[str, Any]] = {"srtf (mix 0)": {}}
    for mix in MIXES:
        options[f"mix {mix:g}"] = {"matcher.leftover": "mix", "matcher.leftover_mix": mix}
    options["least_share"] = {"matcher.leftover": "least_share"}
    cases: dict[str, Trial] = {"drf": partial(measured, workload, scale, "drf", {})}
    for name, own in options.items():
        cases[name] = partial(measured, workload, scale, "carbyne", own)
    return cases


def draw(tables: Mapping[str, Rows], path: Path) -> None:
    """Draw Jain's index below DRF's against the gain in mean JCT, a curve a workload, 95 % bars."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 4.0))
    for workload, rows in tables.items():
        names = [name for name in rows if name != "drf"]
        speed = [paired(rows, name, "drf", "mean JCT s", True) for name in names]
        fair = [paired(rows, name, "drf", "Jain 60 s", False) for name in names]
        axes.errorbar(
            [m for m, _ in fair],
            [-m for m, _ in speed],
            xerr=[h for _, h in fair],
            yerr=[h for _, h in speed],
            marker="o",
            capsize=2,
            linewidth=1,
            label=workload,
        )
        for name, (x, _), (y, _) in zip(names, fair, speed, strict=True):
            axes.annotate(name, (x, -y), textcoords="offset points", xytext=(4, 4), fontsize=7)
    axes.set_xlabel("Jain's index (60 s) minus DRF's")
    axes.set_ylabel("mean JCT below DRF's, %")
    axes.legend()
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120, metadata={"Software": None})


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the study, print its tables, and draw the curve where asked."""
    parser = reader("lab.studies.leftover", WORKLOADS, "leftover.jsonl")
    parser.add_argument("--scale", type=int, default=8, help="divides tasks and machines")
    parser.add_argument("--plot", type=Path)
    args = parser.parse_args(arguments)
    tables: dict[str, Rows] = {}
    for workload in args.study:
        cases, key = cases_of(workload, args.scale), f"leftover/{workload}/{args.scale}"
        rows = tables[workload] = run_trials(cases, range(args.seeds), args.rows, key)
        nodes = max(2, round(MACHINES / args.scale))
        names = {
            "mean JCT s": 0,
            "makespan s": 0,
            "Jain 60 s": 3,
            "Jain 240 s": 3,
            "altruistic %": 0,
        }
        against = {"mean JCT s": True, "Jain 60 s": False}
        title = f"Carbyne's leftover, {JOBS} {workload} jobs at once, {nodes} machines"
        print_table(title, rows, names, "drf", against)
        spent, _ = interval([row["cpu_s"] for found in rows.values() for row in found])
        print(f"\n{spent:.1f} s of processor time a run")
    if args.plot:
        draw(tables, args.plot)


if __name__ == "__main__":
    main()
