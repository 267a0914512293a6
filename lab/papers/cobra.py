"""COBRA (ICDCS 2020): figures 5 and 7, with the gain as a curve over the load, and theorem 7.

And what it costs to estimate tasks instead of knowing them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np

from lab.inputs import public_files
from lab.papers.digest import Case
from lab.papers.page import ClaimRow, Figure, Line, Paper, against, bars, over
from lab.papers.runs import mean_jct, scheduler, span_gain
from lab.papers.verdict import FACTOR, SAVED
from lab.studies.cobra import CORES, MEMORY_MB, PART, alibaba
from lab.studies.runs import simulate, spread
from lab.studies.trials import Rows
from weft.model.cluster import cluster_from_text
from weft.model.job import Job, Preference, Stage
from weft.policies.presets import Preset
from weft.workloads.imported import Imported
from weft.workloads.registry import import_jobs

USE = "alibaba-v2018/task_usage.csv.gz"
# A quarter of the paper's cluster, and smaller jobs.
MACHINES, JOBS, TASKS_MAX = 25, 40, 30
# Demand over supply of containers, if every task had one for itself.
LOADS = (0.5, 1.0, 2.0, 4.0)
# The paper's numbers are of one load; jobs compete at the last of these.
AT_LOADS = [f"load {load:g}" for load in LOADS]
DEFAULT = "default_container"
DURATION_FACTORS = (1.0, 0.3, 0.1, 0.03)
# Jobs compete at this load.
BUSY = 4.0
SCHEMES = (DEFAULT, "cobra", "tetris")
# These are swept beside the defaults, 1.5 and 0.7.
RHO, DELTA = (1.2, 2.0, 3.0), (0.5, 0.9)
# For theorem 7, so many jobs come at once.
BATCHES = (5, 10, 20, 40)
# So many jobs, where plans are told for what tasks use.
PLANNED_JOBS = 20
CONTAINER = {"vcores": PART * CORES, "memory_mb": PART * MEMORY_MB}


@cache
def jobs_of(times: float) -> tuple[Job, ...]:
    """Return the first jobs, with at most TASKS_MAX tasks a stage, which last `times` as long.

    Their inputs are anywhere.
    """
    return tuple(
        replace(
            job,
            stages=tuple(
                replace(
                    s,
                    tasks=min(s.tasks, TASKS_MAX),
                    duration_s=times * s.duration_s,
                    prefer=Preference(),
                )
                for s in job.stages
            ),
        )
        for job in alibaba()[:JOBS]
    )


def case(run: Callable[..., Mapping[str, Any]], *arguments: object) -> Case:
    """Return a case that reads the trace."""
    return Case(run, arguments, files=(USE,), modules=("weft.workloads.alibaba2018",))


def run(load: float, times: float, scheme: Preset, seed: int) -> dict[str, Any]:
    """Run once: Poisson arrivals at a load."""
    jobs = jobs_of(times)
    seconds = sum(s.tasks * s.duration_s for job in jobs for s in job.stages)
    mean_s = seconds / (len(jobs) * MACHINES / PART * load)
    cluster = cluster_from_text(f"{MACHINES}x{CORES:g}vcores,{MEMORY_MB:g}memory_mb")
    found = simulate(spread(jobs, mean_s, seed), cluster, scheme, None, seed)
    return {
        "jct_s": [round(float(t), 1) for t in found.jct_s],
        "makespan_s": round(found.makespan_s, 1),
        "used": round(found.utilisation, 4),
    }


def by_load() -> dict[str, Case]:
    """Return every scheme at every load."""
    return {
        f"load {load:g}/{scheme}": case(run, load, 1.0, scheduler(scheme))
        for load in LOADS
        for scheme in SCHEMES
    }


def by_duration() -> dict[str, Case]:
    """Return every scheme at every duration of tasks."""
    return {
        f"durations x {times:g}/{scheme}": case(run, BUSY, times, scheduler(scheme))
        for times in DURATION_FACTORS
        for scheme in SCHEMES
    }


def saved(base: Mapping[str, Any], own: Mapping[str, Any]) -> float:
    """Return the mean response saved, %."""
    return 100.0 * (1.0 - mean_jct(own) / mean_jct(base))


def figure_5(points: Sequence[str], rows: Rows) -> list[Line]:
    """Return response and makespan saved over Default, and the loss against Tetris, by point."""
    lines = []
    for point in points:
        base, own, tetris = (f"{point}/{name}" for name in (DEFAULT, "cobra", "tetris"))
        for what, paper, other, number in (
            ("response saved over Default", "35", base, saved),
            ("makespan saved over Default", "40", base, span_gain),
            ("response lost to Tetris", "at most 7", tetris, _lost(saved)),
            ("makespan lost to Tetris", "at most 9", tetris, _lost(span_gain)),
        ):
            # The paper's numbers are of one load, and so is the verdict.
            theirs = paper if point == AT_LOADS[-1] else ""
            lines.append(
                Line(f"{what}, {point}, %", theirs, against(rows, own, other, number), SAVED)
            )
    return lines


Compared = Callable[[Mapping[str, Any], Mapping[str, Any]], float]


def _lost(gain: Compared) -> Compared:
    return lambda base, own: -gain(base, own)


def draw_5(points: Sequence[str], rows: Rows, axes: Any) -> None:
    """Draw the curve."""
    for name in ("cobra", "tetris"):
        found = [against(rows, f"{p}/{name}", f"{p}/{DEFAULT}", saved) for p in points]
        axes.errorbar(
            range(len(points)),
            [m for m, _ in found],
            yerr=[h for _, h in found],
            marker="o",
            capsize=2,
            label=name,
        )
    axes.axhline(35, color="black", linewidth=1, label="the paper's cobra")
    axes.set_xticks(range(len(points)), points)
    axes.set_ylabel("response saved over Default, %")
    axes.legend(frameon=False)


# The runs of figure 5.
AT_BUSY = f"load {BUSY:g}/{DEFAULT}", f"load {BUSY:g}/cobra"


def axes_cases() -> dict[str, Case]:
    """Return one parameter at a time, at the load where jobs compete."""
    found: dict[str, Case] = {name: by_load()[name] for name in AT_BUSY}
    for name, values in (("rho", RHO), ("delta", DELTA)):
        for value in values:
            options = {f"asker.{name}": value}
            found[f"axes/{name} {value:g}"] = case(run, BUSY, 1.0, scheduler("cobra", options))
    return found


def axis(name: str, values: Sequence[float], default: float) -> dict[str, str]:
    """Return the case of each value of a parameter."""
    found = {value: f"axes/{name} {value:g}" for value in values} | {default: AT_BUSY[1]}
    return {f"{name} {value:g}": case for value, case in sorted(found.items())}


AXES = axis("rho", RHO, 1.5) | axis("delta", DELTA, 0.7)


def figure_7(rows: Rows) -> list[Line]:
    """Return response saved over Default by rho and delta."""
    lines = []
    for name, own in AXES.items():
        why = "the paper: a good choice"
        if own != AT_BUSY[1]:
            why = f"beside the default: {SAVED.told(against(rows, own, AT_BUSY[1], saved))}"
        gain = against(rows, own, AT_BUSY[0], saved)
        lines.append(Line(f"response saved, {name}, %", "", gain, SAVED, why))
    return lines


def draw_7(rows: Rows, axes: Any) -> None:
    """Draw bars."""
    found = [against(rows, case, AT_BUSY[0], saved) for case in AXES.values()]
    bars(axes, list(AXES), {"cobra": found})
    axes.set_ylabel("response saved over Default, %")


# -- theorem 7: batches ----------------------------------------------------------------------------


def batch(size: int, scheme: Preset, seed: int) -> dict[str, Any]:
    """Run so many jobs at once, drawn at random, with the least possible mean response."""
    drawn = np.random.default_rng([seed, 51]).choice(JOBS, size, replace=False)
    jobs = [jobs_of(1.0)[number] for number in sorted(drawn.tolist())]
    jobs = [replace(job, arrival_s=0.0) for job in jobs]
    cluster = cluster_from_text(f"{MACHINES}x{CORES:g}vcores,{MEMORY_MB:g}memory_mb")
    found = simulate(jobs, cluster, scheme, None, seed)
    return {
        "jct_s": [round(float(t), 1) for t in found.jct_s],
        "bound_s": round(least_mean_response_s(jobs), 2),
    }


def least_mean_response_s(jobs: Sequence[Job]) -> float:
    """Return the least mean response that jobs which come at once can have.

    It is at least their mean span, and at least what the machines need for their work, the smallest
    job's first (Turek et al. 1994, squashed area).
    """
    span_s = sum(_span_s(job) for job in jobs) / len(jobs)
    works = np.array(
        [
            [sum(s.tasks * s.duration_s * s.demand[name] for s in job.stages) for name in CONTAINER]
            for job in jobs
        ]
    )
    room = np.array([MACHINES * most / PART for most in CONTAINER.values()])
    # How many jobs wait for the work of each, itself included.
    after = np.arange(len(jobs), 0, -1)
    squashed = [float((np.sort(column) * after).sum()) for column in (works / room).T]
    return max(span_s, max(squashed) / len(jobs))


def _span_s(job: Job) -> float:
    ends: dict[str, float] = {}
    for place in job.topological_order():
        stage = job.stages[place]
        begin = max((ends[edge.stage] for edge in stage.parents), default=0.0)
        ends[stage.name] = begin + stage.duration_s
    return max(ends.values())


def batches() -> dict[str, Case]:
    """Return COBRA and Default on batches of every size."""
    return {
        f"{size} jobs/{scheme}": case(batch, size, scheduler(scheme))
        for size in BATCHES
        for scheme in ("cobra", DEFAULT)
    }


def _ratio(row: Mapping[str, Any]) -> float:
    return mean_jct(row) / float(row["bound_s"])


def theorem_7(rows: Rows) -> list[Line]:
    """Return mean response over its lower bound by the number of jobs."""
    why = {"cobra": "a bound of the optimum, not the optimum; waits for containers count"}
    return [
        Line(
            f"mean response over its bound, {size} jobs at once, `{scheme}`",
            "a constant" if scheme == "cobra" else "",
            over(rows, f"{size} jobs/{scheme}", _ratio),
            FACTOR,
            why.get(scheme, ""),
        )
        for scheme in ("cobra", DEFAULT)
        for size in BATCHES
    ]


def draw_theorem(rows: Rows, axes: Any) -> None:
    """Draw the ratios."""
    for scheme in ("cobra", DEFAULT):
        found = [over(rows, f"{size} jobs/{scheme}", _ratio) for size in BATCHES]
        axes.errorbar(
            BATCHES,
            [m for m, _ in found],
            yerr=[h for _, h in found],
            marker="o",
            capsize=2,
            label=scheme,
        )
    axes.set(xlabel="jobs at once", ylabel="mean response over its bound", ylim=(0, None))
    axes.legend(frameon=False)


# -- estimates against truth -----------------------------------------------------------------------


@cache
def plans() -> Mapping[tuple[str, str], Mapping[str, float]]:
    """Return what stages asked for in the trace, at most a container: (job, stage) to demand."""
    files = public_files(USE)
    return {
        (job.name, s.name): {k: min(s.demand.get(k, 0.0), most) for k, most in CONTAINER.items()}
        for job in import_jobs("alibaba2018", files, {}, Imported())
        for s in job.stages
    }


def as_planned(job: Job) -> Job:
    """Return the job as seen by schedulers that are told what it asked for, not what it used.

    Of memory it asks for no less than it uses: tasks die of less.
    """

    def told_plan(stage: Stage) -> Stage:
        asked = dict(plans()[job.name, stage.name])
        asked["memory_mb"] = max(asked["memory_mb"], stage.demand["memory_mb"])
        return replace(stage, demand=asked, actual_demand=stage.demand)

    return replace(job, stages=tuple(told_plan(stage) for stage in job.stages))


def estimated(scheme: Preset, planned: bool, seed: int) -> dict[str, Any]:
    """Run once at the load where jobs compete, told what tasks use or what they asked for."""
    jobs: Sequence[Job] = jobs_of(1.0)[:PLANNED_JOBS]
    seconds = sum(s.tasks * s.duration_s for job in jobs for s in job.stages)
    mean_s = seconds / (len(jobs) * MACHINES / PART * BUSY)
    jobs = [as_planned(job) for job in jobs] if planned else jobs
    cluster = cluster_from_text(f"{MACHINES}x{CORES:g}vcores,{MEMORY_MB:g}memory_mb")
    found = simulate(spread(jobs, mean_s, seed), cluster, scheme, None, seed)
    return {
        "jct_s": [round(float(t), 1) for t in found.jct_s],
        "makespan_s": round(found.makespan_s, 1),
        "used": round(found.utilisation, 4),
    }


EXACT = {"asker.over_estimate": 0.0}
TOLD: Mapping[str, tuple[str, bool, Mapping[str, Any]]] = {
    "cobra, use told and trusted": ("cobra", False, EXACT),
    "cobra, use told, first tasks over-estimated": ("cobra", False, {}),
    "cobra, plans told, first tasks over-estimated": ("cobra", True, {}),
    "tetris, use told": ("tetris", False, {}),
    "tetris, plans told": ("tetris", True, {}),
    DEFAULT: (DEFAULT, False, {}),
}


def estimates(rows: Rows) -> list[Line]:
    """Return response saved over Default by what schedulers know."""
    return [
        Line(
            f"response saved over Default, `{name}`, %",
            "",
            against(rows, name, DEFAULT, saved),
            SAVED,
        )
        for name in TOLD
        if name != DEFAULT
    ]


def draw_estimates(rows: Rows, axes: Any) -> None:
    """Draw bars."""
    names = [name for name in TOLD if name != DEFAULT]
    words = [name.replace(", ", "\n").replace("first tasks ", "first tasks\n") for name in names]
    bars(axes, words, {"saved": [against(rows, name, DEFAULT, saved) for name in names]})
    axes.tick_params(axis="x", labelsize=6)
    axes.set_ylabel("response saved over Default, %")


CLAIMS = (
    ClaimRow(
        "VII: response 35 %, makespan 40 % less than Default's",
        "figure 5",
        tuple(f"{what} saved over Default, {AT_LOADS[-1]}, %" for what in ("response", "makespan")),
    ),
    ClaimRow(
        "VII: 7 and 9 % behind Tetris, which knows all demands",
        "figure 5",
        tuple(f"{what} lost to Tetris, {AT_LOADS[-1]}, %" for what in ("response", "makespan")),
    ),
    ClaimRow("VII: 37 and 38 % less than SRS's on 28 hosts", "", ()),
)
AT_TIMES = [f"durations x {times:g}" for times in DURATION_FACTORS]
PAPER = Paper(
    "cobra",
    "COBRA: elastic containers for DAG jobs",
    f"""
The first {JOBS} jobs of Alibaba's trace with measured use per task (5 to 7 stages), at most
{TASKS_MAX} tasks a stage, on {MACHINES} machines of {CORES:g} cores; a container is a quarter of a
machine. The paper's trace is Google's, whose jobs are not DAGs as published. How much COBRA saves
depends on the load, and on how long a task lasts beside the wait for a container, which is what it
saves. The paper names no load: its claims are judged at load {BUSY:g}, where jobs compete, against
`{DEFAULT}` and `tetris`, for all figures; at other loads and durations there is no verdict.
""",
    (
        Figure(
            "figure 5",
            "response and makespan over Default, by load",
            by_load(),
            partial(figure_5, AT_LOADS),
            "Where jobs do not compete there is nothing to save: a wait of 3 s is short beside "
            "these tasks, half of which last a minute and more. What is saved grows with the "
            "load, and at none of them to the paper's 35 %; it does where tasks are short, "
            "which is figure 5 b.",
            partial(draw_5, AT_LOADS),
            1.5,
        ),
        Figure(
            "figure 5 b",
            "the same by how long tasks last",
            by_duration(),
            partial(figure_5, AT_TIMES),
            f"At load {BUSY:g}, with all durations and gaps between arrivals shortened alike. A "
            "container costs three heartbeats (3 s) to get, whatever the task lasts. To keep "
            "one saves more only where tasks last about as long as that: at 0.03, not at 0.1.",
            partial(draw_5, AT_TIMES),
            1.5,
        ),
        Figure(
            "theorem 7",
            "mean response of jobs that come at once, over its lower bound",
            batches(),
            theorem_7,
            "The theorem says that a constant bounds it, whatever the number of jobs, and names "
            "none. The bound is the greater of the mean span and the machines' time for the "
            "work, the smallest job's first. The jobs of a batch are drawn; 40 are all of them.",
            draw_theorem,
            0.5,
        ),
        Figure(
            "estimates",
            "estimates against truth (section VI-A)",
            {
                name: case(estimated, scheduler(own, options), planned)
                for name, (own, planned, options) in TOLD.items()
            },
            estimates,
            f"{PLANNED_JOBS} jobs at load {BUSY:g}. COBRA estimates what tasks need from the first "
            "of each stage, for which it takes too much; Tetris believes what it is told.",
            draw_estimates,
            0.6,
        ),
        Figure(
            "figure 7",
            "sensitivity to rho and delta",
            axes_cases(),
            figure_7,
            f"At load {BUSY:g}; the other parameter as by default (rho 1.5, delta 0.7).",
            draw_7,
            4.0,
        ),
    ),
    {
        "figures 1, 2": "worked examples: `tests/golden`, through whole masters",
        "figures 3, 4": "cases of a proof (`tests/property/test_cobra_bounds.py`), and the "
        "architecture",
        "figure 6": "one run's timeline: `weft simulate ... --out DIR` writes it as `report.html`",
        "figure 8, table III": "their 28 hosts and inputs; docs/cobra.md has a live run's numbers",
        "table I": "live: `python -m lab.studies.cobra response`; docs/cobra.md",
        "table II": "a glossary",
        "table IV": "live, from the processes' metrics; docs/cobra.md",
    },
    CLAIMS,
)
