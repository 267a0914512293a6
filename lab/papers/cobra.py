"""COBRA (ICDCS 2020): figures 5 and 7, with the gain as a curve over the load."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

from lab.cobra_study import CORES, MEMORY_MB, PART, alibaba
from lab.papers.page import Figure, Line, Paper, against, bars, near, told
from lab.papers.runs import mean_jct, span_gain
from lab.study_runs import simulate, spread
from lab.trials import Rows, Trial
from weft.cluster import cluster_from_text
from weft.job import Job, Preference

MACHINES, JOBS, TASKS_MAX = 25, 40, 30  # a quarter of the paper's cluster, smaller jobs
LOADS = (0.5, 1.0, 2.0, 4.0)  # of the containers, if every task had one for itself
DEFAULT = "default_container"
TIMES = (1.0, 0.3, 0.1, 0.03)  # of the trace's durations
BUSY = 4.0  # a load at which jobs compete
SCHEMES = (DEFAULT, "cobra", "tetris")
RHO, DELTA = (1.2, 1.5, 2.0, 3.0), (0.5, 0.7, 0.9)


@cache
def jobs_of(times: float) -> tuple[Job, ...]:
    """The first jobs, with at most so many tasks a stage, which last so many times as long; inputs
    are anywhere.
    """
    return tuple(
        replace(job, stages=tuple(
            replace(s, tasks=min(s.tasks, TASKS_MAX), duration_s=times * s.duration_s,
                    prefer=Preference())
            for s in job.stages
        ))
        for job in alibaba()[:JOBS]
    )  # fmt: skip


def run(
    load: float, times: float, scheme: str, options: Mapping[str, Any], seed: int
) -> dict[str, Any]:
    """One run: Poisson arrivals at a load."""
    jobs = jobs_of(times)
    seconds = sum(s.tasks * s.duration_s for job in jobs for s in job.stages)
    mean_s = seconds / (len(jobs) * MACHINES / PART * load)
    cluster = cluster_from_text(f"{MACHINES}x{CORES:g}vcores,{MEMORY_MB:g}memory_mb")
    found = simulate(spread(jobs, mean_s, seed), cluster, scheme, options, seed)
    return {
        "jct_s": [round(float(t), 1) for t in found.jct_s],
        "makespan_s": round(found.makespan_s, 1), "used": round(found.utilisation, 4),
    }  # fmt: skip


def by_load() -> dict[str, Trial]:
    """Every scheme at every load."""
    return {
        f"load {load:g}/{scheme}": partial(run, load, 1.0, scheme, {})
        for load in LOADS for scheme in SCHEMES
    }  # fmt: skip


def by_duration() -> dict[str, Trial]:
    """Every scheme at every duration of tasks."""
    return {
        f"durations x {times:g}/{scheme}": partial(run, BUSY, times, scheme, {})
        for times in TIMES for scheme in SCHEMES
    }  # fmt: skip


def saved(base: Mapping[str, Any], own: Mapping[str, Any]) -> float:
    """The mean response saved, %."""
    return 100.0 * (1.0 - mean_jct(own) / mean_jct(base))


def figure_5(points: Sequence[str], rows: Rows) -> list[Line]:
    """Response and makespan saved over Default, and the loss against Tetris, at every point."""
    lines = []
    for point in points:
        base, own, tetris = (f"{point}/{name}" for name in (DEFAULT, "cobra", "tetris"))
        gain = against(rows, own, base, saved)
        why = f"{near(gain, 35, 5)} (within 5 points)" if abs(gain[0] - 35) <= 5 else ""
        lines += [
            Line(f"response saved over Default, {point}, %", "35", told(gain, 1, True), why),
            Line(f"makespan saved over Default, {point}, %", "40",
                 told(against(rows, own, base, span_gain), 1, True)),
            Line(f"response lost to Tetris, {point}, %", "at most 7",
                 told(against(rows, own, tetris, lambda b, o: -saved(b, o)), 1, True)),
        ]  # fmt: skip
    return lines


def draw_5(points: Sequence[str], rows: Rows, axes: Any) -> None:
    """The curve."""
    for name in ("cobra", "tetris"):
        found = [against(rows, f"{p}/{name}", f"{p}/{DEFAULT}", saved) for p in points]
        axes.errorbar(range(len(points)), [m for m, _ in found], yerr=[h for _, h in found],
                      marker="o", capsize=2, label=name)  # fmt: skip
    axes.axhline(35, color="black", linewidth=1, label="the paper's cobra")
    axes.set_xticks(range(len(points)), points)
    axes.set_ylabel("response saved over Default, %")
    axes.legend(frameon=False)


def axes_cases() -> dict[str, Trial]:
    """One parameter at a time, at the load where jobs compete."""
    found = {"default": partial(run, BUSY, 1.0, DEFAULT, {})}
    for name, values in (("rho", RHO), ("delta", DELTA)):
        for value in values:
            options = {f"asker.{name}": value}
            found[f"{name} {value:g}"] = partial(run, BUSY, 1.0, "cobra", options)
    return dict(found)


def figure_7(rows: Rows) -> list[Line]:
    """Response saved over Default by rho and delta."""
    return [
        Line(f"response saved at {case}, %", _seven(case),
             told(against(rows, case, "default", saved), 1, True))
        for case in rows if case != "default"
    ]  # fmt: skip


def _seven(case: str) -> str:
    return "best" if case in ("rho 1.5", "delta 0.7") else ""


def draw_7(rows: Rows, axes: Any) -> None:
    """Bars."""
    names: Sequence[str] = [case for case in rows if case != "default"]
    bars(axes, names, {"cobra": [against(rows, case, "default", saved) for case in names]})
    axes.set_ylabel("response saved over Default, %")


AT_LOADS = [f"load {load:g}" for load in LOADS]
AT_TIMES = [f"durations x {times:g}" for times in TIMES]
PAPER = Paper(
    "cobra",
    "COBRA: elastic containers for DAG jobs",
    f"""
The first {JOBS} jobs of Alibaba's trace with measured use per task (5 to 7 stages), at most
{TASKS_MAX} tasks a stage, on {MACHINES} machines of {CORES:g} cores; a container is a quarter of a
machine. The paper's trace is Google's, whose jobs are not DAGs as published. How much COBRA saves
depends on the load, and on how long a task lasts beside the wait for a container, which is what it
saves.
""",
    (
        Figure("figure 5", "response and makespan over Default, by load", "alibaba", by_load(),
               partial(figure_5, AT_LOADS), "", partial(draw_5, AT_LOADS), 1.5),
        Figure("figure 5 b", "the same by how long tasks last", "alibaba", by_duration(),
               partial(figure_5, AT_TIMES),
               f"At load {BUSY:g}, with all durations and gaps between arrivals shortened alike. A "
               "container costs three heartbeats (3 s) to get, whatever the task lasts, so the "
               "shorter tasks are, the more it saves to keep one.",
               partial(draw_5, AT_TIMES), 1.5),
        Figure("figure 7", "sensitivity to rho and delta", "alibaba/axes", axes_cases(), figure_7,
               "", draw_7, 1.5),
    ),
    {
        "figures 1, 2": "worked examples: `tests/golden`, through whole masters",
        "figures 3, 4": "cases of a proof (`tests/property/test_cobra_bounds.py`), and the "
        "architecture",
        "figure 6": "one run's timeline: `weft simulate ... --out DIR` writes it as `report.html`",
        "figure 8, table III": "their 28 hosts and inputs; docs/cobra.md has a live run's numbers",
        "table I": "live: `python -m lab.cobra_study response`; docs/cobra.md",
        "table II": "a glossary",
        "table IV": "live, from the processes' metrics; docs/cobra.md",
    },
)  # fmt: skip
