"""What does altruism cost and gain? Figures 4, 5, 9 to 12 and tables 3, 4 of Carbyne, side by side.

`python -m lab.carbyne_study offline|online|contention|misestimates|altruism`. 100 machines, six
resources; jobs are picked at random from a benchmark's queries. `offline`: all at once, as in
figure 4; `online`: they arrive as a Poisson process, as in figure 5. `sensitivity` runs the last
three. The paper's numbers stand in brackets.
"""

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lab.study_runs import (
    FILES,
    Outcome,
    factors,
    machines,
    picked_jobs,
    simulate,
    spread,
    work_s,
)
from sim.reshape import fit, misestimate
from weft.client.show import table
from weft.job import Job

MACHINES = 100
SCHEMES = ("drf", "sjf", "tetris", "carbyne", "carbyne_graphene")
JOBS = {"TPC-DS": 100, "TPC-H": 100, "BigBench": 40, "MapReduce": 100}  # minutes on one core
PERCENTILES = (25, 50, 75, 95)
CONTENTION = (1.0, 2.0, 4.0, 6.0)
ERRORS = (-50, -25, 0, 25, 50)
ALTRUISM = (0.0, 0.25, 0.5, 0.75, 1.0)
# Section 5.2.1: Jain's index below DRF's 0.86; mean JCT over SJF's; makespan over Tetris's.
FIGURE_4 = {"drf": (0.0, 1.59, 1.26), "sjf": (0.22, 1.0, 1.43), "tetris": (0.12, 1.46, 1.0),
            "carbyne": (0.05, 1.06, 1.03)}  # fmt: skip
FIGURE_5 = {"carbyne": (0.06, 1.2, 1.07), "sjf": (None, 1.0, None), "tetris": (None, None, 1.0),
            "drf": (0.0, None, None)}  # fmt: skip
# Factors of improvement of carbyne over (DRF, Tetris) at PERCENTILES: the cluster's, table 3;
# in simulation, table 4 (its Facebook trace is MapReduce).
TABLES = {
    "TPC-DS": ((1.17, 1.12), (1.59, 1.47), (2.73, 2.23), (7.67, 6.17)),
    "TPC-H": ((1.11, 1.14), (1.33, 1.29), (1.62, 1.44), (1.96, 1.71)),
    "BigBench": ((1.13, 1.10), (1.41, 1.35), (1.57, 1.52), (1.85, 1.82)),
    "MapReduce": ((1.24, 1.24), (2.75, 2.85), (4.31, 4.31), (8.77, 8.88)),
}


@dataclass(frozen=True, slots=True)
class Setting:
    """What one run of a study varies; `load` is work over capacity while jobs arrive."""

    workload: str
    jobs: int
    online: bool
    load: float = 1.0
    contention: float = 1.0
    error_percent: int = 0
    altruism: float = 1.0
    seed: int = 1

    def workload_jobs(self) -> list[Job]:
        """The jobs as schedulers see them; estimates are off by the error in all stages alike."""
        jobs = picked_jobs(self.workload, self.jobs, self.seed)
        if self.online:
            mean_s = work_s(jobs) / (self.load * MACHINES * len(jobs))
            jobs = spread(jobs, mean_s, self.seed)
        if self.error_percent:
            error = self.error_percent / 100.0
            jobs = fit(misestimate(jobs, error, error, self.seed), machines(1))
        return jobs

    def run(self, schemes: Iterable[str]) -> dict[str, Outcome]:
        """One outcome a scheme."""
        jobs, cluster = self.workload_jobs(), machines(round(MACHINES / self.contention))
        own = {"asker.altruism": self.altruism}
        return {
            name: simulate(
                jobs, cluster, name, own if name.startswith("carbyne") else {}, self.seed
            )
            for name in schemes
        }


def told(value: float, paper: float | None, form: str = ".2f") -> str:
    """A number, and the paper's in brackets where it gives one."""
    return format(value, form) + (f" ({paper:{form}})" if paper is not None else "")


def approach_rows(
    workload: str, found: Mapping[str, Outcome], paper: Mapping[str, Sequence[float | None]]
) -> list[tuple[Any, ...]]:
    """Figures 4 and 5: how close each scheme comes to the best in every category."""
    rows = []
    for name, own in found.items():
        theirs = paper.get(name, (None, None, None)) if workload == "TPC-DS" else (None,) * 3
        rows.append(
            (
                workload,
                name,
                f"{own.jain:.2f}",
                told(found["drf"].jain - own.jain, theirs[0]),
                told(float(own.jct_s.mean() / found["sjf"].jct_s.mean()), theirs[1]),
                told(own.makespan_s / found["tetris"].makespan_s, theirs[2]),
                f"{own.jct_s.mean():.0f}",
                f"{own.makespan_s:.0f}",
                f"{100 * own.utilisation:.0f}",
            )
        )
    return rows


def factor_rows(workload: str, found: Mapping[str, Outcome]) -> list[tuple[Any, ...]]:
    """Tables 3 and 4, figures 7 and 12: factors of improvement by job over DRF and Tetris."""
    rows = []
    for name in found:
        if not name.startswith("carbyne"):
            continue
        for column, base in enumerate(("drf", "tetris")):
            own = factors(found[base], found[name])
            theirs = TABLES[workload] if name == "carbyne" else None
            rows.append(
                (
                    workload,
                    f"{name} over {base}",
                    *(
                        told(
                            float(np.percentile(own, p)), theirs[place][column] if theirs else None
                        )
                        for place, p in enumerate(PERCENTILES)
                    ),
                    f"{found[base].jct_s.mean() / found[name].jct_s.mean():.2f}",
                    f"{100 * (own < 1 - 1e-9).mean():.0f} (16)",
                    f"{100 * (own < 0.8).mean():.0f} (4)",
                )
            )
    return rows


def compare(workloads: Sequence[str], count: int, online: bool, load: float, seed: int) -> None:
    """Print figure 4 or 5 and tables 3 and 4."""
    near: list[tuple[Any, ...]] = []
    gained: list[tuple[Any, ...]] = []
    for workload in workloads:
        jobs = count or JOBS[workload]
        found = Setting(workload, jobs, online, load=load, seed=seed).run(SCHEMES)
        print(f"{workload}: {jobs} jobs", flush=True)
        near += approach_rows(workload, found, FIGURE_5 if online else FIGURE_4)
        gained += factor_rows(workload, found)
    print(f"\n{'Online (figure 5)' if online else 'Offline (figure 4)'}; TPC-DS (the paper)")
    table(
        ("workload", "scheme", "Jain 60 s", "below DRF's", "mean JCT / SJF's",
         "makespan / Tetris's", "JCT mean s", "makespan s", "utilisation %"),
        near,
    )  # fmt: skip
    print("\nFactor of improvement by job (the paper: tables 3 and 4)")
    titles = [f"p{p}" for p in PERCENTILES]
    table(
        ("workload", "scheme", *titles, "of the mean", "% slower", "% below 0.8x"), gained
    )  # fmt: skip


def sensitivity(what: str, workload: str, count: int, load: float, seed: int, plot: str) -> None:
    """Print how the mean JCT over carbyne's varies with one parameter; draw it if asked."""
    if what == "contention":
        points = [(f"{x:g}x", {"contention": x}) for x in CONTENTION]
    elif what == "misestimates":
        points = [(f"{x:+d} %", {"error_percent": x}) for x in ERRORS]
    else:
        points = [(f"{x:g}", {"altruism": x}) for x in ALTRUISM]
    bases = ("drf", "tetris")
    rows: list[tuple[str, float, float, float]] = []
    known: dict[str, Outcome] = {}
    for name, varied in points:
        setting = Setting(workload, count, True, load=load, seed=seed, **varied)  # type: ignore[arg-type]
        if what != "altruism" or not known:
            known = setting.run(bases)
        found = setting.run(("carbyne",))["carbyne"]
        gain = [float(known[b].jct_s.mean() / found.jct_s.mean()) for b in bases]
        rows.append((name, round(gain[0], 2), round(gain[1], 2), round(float(found.jct_s.mean()))))
    print(f"\n{workload}, {count} jobs: mean JCT over carbyne's by {what}")
    table((what, "over drf", "over tetris", "carbyne's mean s"), rows)
    if plot:
        draw(what, rows, plot)


def draw(what: str, rows: Sequence[tuple[str, float, float, float]], path: str) -> None:
    """The factors of improvement as bars, in the manner of figures 9 to 11."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(5, 3))
    for place, base in enumerate(("DRF", "Tetris")):
        at = np.arange(len(rows)) + 0.4 * place - 0.2
        axes.bar(at, [row[1 + place] for row in rows], 0.4, label=f"over {base}")
    axes.axhline(1.0, color="black", linewidth=0.8)
    axes.set_xticks(np.arange(len(rows)), [row[0] for row in rows])
    axes.set_xlabel(what)
    axes.set_ylabel("factor of improvement")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path)


def main() -> None:
    """Run one part of the study."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    sweeps = ("contention", "misestimates", "altruism")
    parser.add_argument("part", choices=["offline", "online", "sensitivity", *sweeps])
    parser.add_argument("--workload", choices=list(FILES), action="append")
    parser.add_argument("--jobs", type=int, default=0, help="default: what takes minutes")
    parser.add_argument("--load", type=float, default=1.0, help="of the online case")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plot", default="", metavar="PREFIX", help="draw to PREFIX<part>.png")
    args = parser.parse_args()
    if args.part in ("offline", "online"):
        workloads = args.workload or list(FILES)
        compare(workloads, args.jobs, args.part == "online", args.load, args.seed)
        return
    for what in sweeps if args.part == "sensitivity" else (args.part,):
        path = f"{args.plot}{what}.png" if args.plot else ""
        for workload in args.workload or ["TPC-DS"]:
            sensitivity(what, workload, args.jobs or 60, args.load, args.seed, path)


if __name__ == "__main__":
    main()
