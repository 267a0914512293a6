"""What does altruism cost and gain? Figures 4, 5, 7, 9 to 12 and tables 3, 4 of Carbyne.

`python -m lab.studies.carbyne offline|online|contention|misestimates|altruism|promise`. Machines
with six resources; jobs are picked at random from a benchmark's queries. `offline`: all at once
(figure 4); `online`: a Poisson process with the paper's mean of 20 s (figure 5), on 100 machines
and on 50. The last four vary one parameter and draw it with `--plot`: three as in section 5.4, on
50 machines but for contention, and the promise (docs/carbyne.md) offline. The paper's are in
brackets. With `--rows FILE` runs are kept, and a study that was stopped goes on where it was.
"""

import argparse
import json
import math
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from lab.studies.grid import kept_rows
from lab.studies.runs import FILES, WINDOW_S, finished, machines, picked_jobs, spread
from sim.reshape import fit, misestimate
from sim.results import dominant_shares, jain_by_window, jain_index, jct_s, makespan_s, utilisation
from weft.client.show import table
from weft.model.dag import Floats
from weft.model.job import Job

MACHINES = 100
INTERVAL_S = 20.0  # mean time between arrivals, section 5.1
OFFLINE_JOBS = 40  # at once: DRF's index is then the paper's 0.86 on TPC-DS (docs/carbyne.md)
ONLINE_JOBS = {"TPC-DS": 100, "TPC-H": 100, "BigBench": 60, "MapReduce": 60}
SCHEMES: dict[str, tuple[str, Mapping[str, Any]]] = {
    "drf": ("drf", {}),
    "sjf": ("sjf", {}),
    "tetris": ("tetris", {}),
    "carbyne": ("carbyne", {}),
    "carbyne_graphene": ("carbyne_graphene", {}),
    "carbyne, promise 0.9": ("carbyne", {"asker.promise": 0.9}),
    "carbyne, no promise": ("carbyne", {"asker.promise": math.inf}),
}
COMPARED = tuple(SCHEMES)
PROMISES = (0.5, 0.8, 0.9, 0.95, 1.0, 1.1, math.inf)  # of T_k; inf: counted anew at every event
SCHEMES |= {f"promise {part:g}": ("carbyne", {"asker.promise": part}) for part in PROMISES}
PERCENTILES = (25, 50, 75, 95)
CONTENTION = (1.0, 2.0, 4.0, 6.0)
ERRORS = (-50, -25, 0, 25, 50)
ALTRUISM = (0.0, 0.25, 0.5, 0.75, 1.0)
# Section 5.2.1: Jain's index below DRF's 0.86; mean JCT over SJF's; makespan over Tetris's.
FIGURE_4 = {
    "drf": (0.0, 1.59, 1.26),
    "sjf": (0.22, 1.0, 1.43),
    "tetris": (0.12, 1.46, 1.0),
    "carbyne": (0.05, 1.06, 1.03),
}
FIGURE_5 = {
    "carbyne": (0.06, 1.2, 1.07),
    "sjf": (None, 1.0, None),
    "tetris": (None, None, 1.0),
    "drf": (0.0, None, None),
}
# Factors of improvement of carbyne over (DRF, Tetris) at PERCENTILES: measured on the cluster
# (table 3) and simulated (table 4; its Facebook trace is MapReduce).
TABLE_3 = {
    "TPC-DS": ((1.15, 1.12), (1.36, 1.32), (1.55, 1.47), (1.88, 1.75)),
    "TPC-H": ((1.11, 1.14), (1.33, 1.29), (1.62, 1.44), (1.96, 1.71)),
    "BigBench": ((1.13, 1.10), (1.41, 1.35), (1.57, 1.52), (1.85, 1.82)),
}
TABLE_4 = {
    "TPC-DS": ((1.17, 1.12), (1.59, 1.47), (2.73, 2.23), (7.67, 6.17)),
    "MapReduce": ((1.24, 1.24), (2.75, 2.85), (4.31, 4.31), (8.77, 8.88)),
}
SLOWER = 1 - 1e-3  # a factor below: slower by more than a heartbeat now and then


@dataclass(frozen=True, slots=True)
class Setting:
    """What one run varies: `contention` divides the machines, errors are of all estimates."""

    workload: str
    jobs: int
    online: bool
    scheme: str
    contention: float = 1.0
    error_percent: int = 0
    altruism: float = 1.0
    rigid: str = "memory"  # what is never over-allocated, "": nothing
    seed: int = 1

    def workload_jobs(self) -> list[Job]:
        """Return the jobs as schedulers see them; estimates of all stages are off by the error."""
        jobs = picked_jobs(self.workload, self.jobs, self.seed)
        if self.online:
            jobs = spread(jobs, INTERVAL_S, self.seed)
        if self.error_percent:
            error = self.error_percent / 100.0
            jobs = fit(misestimate(jobs, error, error, self.seed), machines(1))
        return jobs

    def make(self) -> dict[str, Any]:
        """Run it; return the row to keep. Times in s, Jain's index as mean, lowest and highest."""
        scheduler, options = SCHEMES[self.scheme]
        if self.altruism < 1.0:
            options = {**options, "asker.altruism": self.altruism}
        cluster = machines(round(MACHINES / self.contention), self.rigid)
        run, recorder = finished(self.workload_jobs(), cluster, scheduler, options, self.seed)
        shares = dominant_shares(run)
        jain = jain_by_window(run, WINDOW_S, shares)
        jain = jain if len(jain) else np.ones(1)  # never two jobs for a whole window
        return {
            **asdict(self),
            "jct_s": [jct_s(row) for row in run.jobs],
            "makespan_s": makespan_s(run),
            "jain": [float(jain.mean()), float(jain.min()), float(jain.max())],
            "jain_10": jain_index(run, 10.0, shares),
            "jain_240": jain_index(run, 240.0, shares),
            "utilisation": max(utilisation(run).values()),
            "altruistic": len(recorder.altruistic) / max(recorder.finished_tasks, 1),
            "digest": recorder.digest(),
        }


class Rows:
    """The rows of runs, by setting."""

    def __init__(self, path: Path, settings: Sequence[Setting]) -> None:
        keys = {json.dumps(asdict(one), sort_keys=True): one for one in settings}
        makes: dict[str, Callable[[], Mapping[str, Any]]] = {
            key: partial(_told, one) for key, one in keys.items()
        }
        rows = kept_rows(path, makes)
        self._by = dict(zip(keys.values(), rows, strict=True))

    def of(self, setting: Setting) -> dict[str, Any]:
        """Return one run's row."""
        return self._by[setting]

    def jct(self, setting: Setting) -> Floats:
        """Return completion times in the order of the jobs, s."""
        return np.array(self._by[setting]["jct_s"])


def _told(setting: Setting) -> dict[str, Any]:
    row = setting.make()
    mean_s = float(np.mean(row["jct_s"]))
    place = f"{setting.workload} {setting.contention:g}x, error {setting.error_percent:+d} %,"
    print(f"# {place} P {setting.altruism:g} {setting.scheme}: {mean_s:.0f} s", flush=True)
    return row


def told(value: float, paper: float | None, form: str = ".2f") -> str:
    """Return a number, and the paper's in brackets where it gives one."""
    return format(value, form) + (f" ({paper:{form}})" if paper is not None else "")


def approach_rows(rows: Rows, base: Setting) -> Iterable[tuple[Any, ...]]:
    """Return figures 4 and 5: how close each scheme comes to the best in every category."""
    drf, sjf, tetris = (replace(base, scheme=name) for name in ("drf", "sjf", "tetris"))
    for name in COMPARED:
        one = replace(base, scheme=name)
        row = rows.of(one)
        paper = (FIGURE_5 if base.online else FIGURE_4).get(name, (None,) * 3)
        paper = paper if base.workload == "TPC-DS" and base.contention == 1.0 else (None,) * 3
        mean, low, high = row["jain"]
        yield (
            name,
            f"{mean:.2f} [{low:.2f}, {high:.2f}]",
            told(rows.of(drf)["jain"][0] - mean, paper[0]),
            f"{rows.of(drf)['jain_240'] - row['jain_240']:.2f}",
            told(float(rows.jct(one).mean() / rows.jct(sjf).mean()), paper[1]),
            told(row["makespan_s"] / rows.of(tetris)["makespan_s"], paper[2]),
            f"{np.mean(row['jct_s']):.0f}",
            f"{row['makespan_s']:.0f}",
            f"{100 * row['utilisation']:.0f}",
            f"{100 * row['altruistic']:.0f}" if name.startswith("carbyne") else "",
        )


def factor_rows(rows: Rows, base: Setting) -> Iterable[tuple[Any, ...]]:
    """Return tables 3, 4, figures 7, 12: factors of improvement by job over DRF and Tetris."""
    for name in COMPARED:
        for column, other in enumerate(("drf", "tetris")):
            if not name.startswith("carbyne"):
                continue
            times = rows.jct(replace(base, scheme=name))
            others = rows.jct(replace(base, scheme=other))
            own = others / times
            cells = []
            for place, p in enumerate(PERCENTILES):
                known = [
                    t[base.workload][place][column]
                    for t in (TABLE_3, TABLE_4)
                    if base.workload in t
                ]
                papers = "; ".join(f"{one:.2f}" for one in known) if name == "carbyne" else ""
                cells.append(f"{np.percentile(own, p):.2f}" + (f" ({papers})" if papers else ""))
            yield (
                f"{name} over {other}",
                *cells,
                f"{others.mean() / times.mean():.2f}",
                f"{100 * (own < SLOWER).mean():.0f} (16)",
                f"{100 * (own < 0.8).mean():.0f} (4)",
                f"{own.min():.2f} (0.62)",
            )


def compare(base: Setting, path: Path) -> None:
    """Print figure 4 or 5 and tables 3 and 4 of one workload."""
    rows = Rows(path, [replace(base, scheme=name) for name in COMPARED])
    how = f"online, {round(MACHINES / base.contention)} machines" if base.online else "offline"
    print(f"\n{base.workload}, {base.jobs} jobs, {how}\n")
    table(
        (
            "scheme",
            "Jain 60 s [min, max]",
            "below DRF's",
            "240 s",
            "mean JCT / SJF's",
            "makespan / Tetris's",
            "JCT mean s",
            "makespan s",
            "used %",
            "altruistic %",
        ),
        list(approach_rows(rows, base)),
    )
    print()
    table(
        (
            "factors",
            *(f"p{p}" for p in PERCENTILES),
            "of the mean",
            "% slower",
            "% below 0.8x",
            "worst",
        ),
        list(factor_rows(rows, base)),
    )


def points_of(what: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the values of a sweep: what they are called, and what they change.

    A task that gets less memory than it needs would fail, and the paper's do not: under wrong
    estimates memory is shared like the rest, and slows tasks down where it is short.
    """
    if what == "contention":
        return [(f"{x:g}x", {"contention": x}) for x in CONTENTION]
    if what == "misestimates":
        return [(f"{x:+d} %", {"error_percent": x, "rigid": ""}) for x in ERRORS]
    if what == "promise":
        return [(f"{x:g}", {"scheme": f"promise {x:g}"}) for x in PROMISES]
    return [(f"{x:g}", {"altruism": x}) for x in ALTRUISM]


def sensitivity(what: str, base: Setting, path: Path, plot: str) -> None:
    """Print how the mean JCT over carbyne's varies with one parameter; draw it if asked."""
    others = ("drf", "tetris")
    grid = {name: replace(base, **change) for name, change in points_of(what)}

    def other(point: Setting, scheme: str) -> Setting:
        return replace(point, scheme=scheme, altruism=1.0)  # others have no altruism to vary

    wanted = [other(point, name) for point in grid.values() for name in others]
    rows = Rows(path, [*grid.values(), *wanted])
    found = []
    for name, point in grid.items():
        own, row = rows.jct(point), rows.of(point)
        means = [float(rows.jct(other(point, scheme)).mean()) for scheme in others]
        drf = rows.jct(other(point, "drf"))
        found.append(
            (
                name,
                *(f"{mean / float(own.mean()):.2f}" for mean in means),
                round(float(own.mean())),
                *(round(mean) for mean in means),
                f"{row['jain'][0]:.2f} ({rows.of(other(point, 'drf'))['jain'][0]:.2f})",
                round(100 * float((drf / own < SLOWER).mean())),
                round(100 * float((drf / own < 0.8).mean())),
                round(100 * row["altruistic"]),
            )
        )
    print(f"\n{base.workload}, {base.jobs} jobs: mean JCT over carbyne's by {what}\n")
    table(
        (
            what,
            "over drf",
            "over tetris",
            "carbyne s",
            "drf s",
            "tetris s",
            "Jain (DRF's)",
            "% slower than drf",
            "% below 0.8x",
            "altruistic %",
        ),
        found,
    )
    if plot:
        draw(what, found, plot)


def draw(what: str, rows: Sequence[tuple[Any, ...]], path: str) -> None:
    """Draw factors of improvement as bars, as in figures 9 to 11, and Jain's index under them."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    titles = {
        "contention": "load, times that of 100 machines",
        "misestimates": "error of estimated demands and durations",
        "altruism": "P(Altruism)",
        "promise": "part of T_k within which a job keeps itself to end",
    }
    places = np.arange(len(rows))
    figure, (axes, below) = plt.subplots(
        2, 1, figsize=(5, 4.6), sharex=True, height_ratios=(3, 2), layout="constrained"
    )
    axes.axhline(1.0, color="grey", linewidth=0.8, zorder=0)
    for place, base in enumerate(("DRF", "Tetris")):
        gains = [float(row[1 + place]) for row in rows]
        bars = axes.bar(places + 0.4 * place - 0.2, gains, 0.38, label=f"over {base}")
        axes.bar_label(bars, fmt="%.2f", fontsize=7, padding=1)
    axes.set_ylim(0, 1.3 * max(float(gain) for row in rows for gain in row[1:3]))
    axes.set_ylabel("mean JCT over carbyne's")
    axes.legend(frameon=False, ncols=2, loc="upper left")
    for column, name in enumerate(("carbyne", "DRF")):
        index = [float(row[6].replace("(", "").replace(")", "").split()[column]) for row in rows]
        below.plot(places, index, marker="o", label=name, color=("black", "C0")[column])
    below.set_ylim(0, 1.05)
    below.set_ylabel("Jain's index, 60 s")
    below.legend(frameon=False, ncols=2, loc="lower left")
    below.set_xticks(places, [row[0] for row in rows])
    below.set_xlabel(titles[what])
    for each in (axes, below):
        each.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130)


def main() -> None:
    """Run one part of the study."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    sweeps = ("contention", "misestimates", "altruism", "promise")
    parser.add_argument("part", choices=["offline", "online", *sweeps])
    parser.add_argument("--workload", choices=list(FILES), action="append")
    parser.add_argument("--jobs", type=int, default=0, help="default: minutes on one core")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rows", default="", metavar="FILE", help="keep runs here")
    parser.add_argument("--plot", default="", metavar="FILE", help="draw a sweep to this file")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(args.rows or f"{folder}/rows.jsonl")
        if args.part in sweeps:
            for workload in args.workload or ["TPC-DS"]:
                jobs = args.jobs or 60
                load = 1.0 if args.part == "contention" else 2.0  # where jobs queue
                base = Setting(workload, jobs, True, "carbyne", load, seed=args.seed)
                if args.part == "promise":  # where figure 4 looks
                    jobs = args.jobs or OFFLINE_JOBS
                    base = Setting(workload, jobs, False, "carbyne", seed=args.seed)
                sensitivity(args.part, base, path, args.plot)
            return
        online = args.part == "online"
        for workload in args.workload or list(FILES):
            jobs = args.jobs or (ONLINE_JOBS[workload] if online else OFFLINE_JOBS)
            for load in (1.0, 2.0) if online else (1.0,):
                base = Setting(workload, jobs, online, "carbyne", load, seed=args.seed)
                compare(base, path)


if __name__ == "__main__":
    main()
