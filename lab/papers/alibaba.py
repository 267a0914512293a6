"""The thesis on Alibaba 2018 (Xue, UC Santa Cruz, 2025): chapter 2 by `weft analyse`, chapter 3."""

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from lab.inputs import public_files
from lab.papers.digest import Case
from lab.papers.page import ClaimRow, Figure, Line, Paper, against, bars, over
from lab.papers.runs import jct_factor, scheduler, span_gain
from lab.papers.verdict import COUNT, FACTOR, SAVED, SHARE
from lab.studies.runs import simulate
from lab.studies.trials import Rows
from weft.model.cluster import cluster_from_text
from weft.model.job import Job
from weft.policies.presets import Preset
from weft.workloads.imported import Imported
from weft.workloads.registry import import_jobs

HOUR = "hour_slice.csv.gz"
# Section 3.6 has so many jobs, at this interval.
JOBS, EVERY_S = 30, 5.0
# Figure 3.3 has so many copies; the sample's jobs are smaller than its 7,000 tasks.
COPIES, TASKS = 20, (300, 600)
MACHINE = "1x96vcores,393216memory_mb"
# The thesis's FIFO starts nothing past a task that does not fit; for all figures.
BASE = "fifo"
# A random part of all jobs, which is what the thesis counts.
SAMPLE = "4,600 random jobs"
SCHEMES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "fifo, whole jobs": ("fifo", {"matcher.whole": True}),
    "fifo": ("fifo", {}),
    "fifo, gaps filled": ("fifo", {"matcher.fill": "all"}),
    "graphene": ("graphene", {}),
}


def data(name: str) -> Path:
    """Return a file of the public sample; raises InputError where it is not there."""
    return public_files(f"alibaba-v2018/{name}")[0]


# -- chapter 2 -------------------------------------------------------------------------------------


def analysis(name: str, number: str) -> Case:
    """Return a case of one figure over a file of the sample."""
    modules = ("lab.analysis.figures", "lab.analysis.tables")
    return Case(analysed, (name, number), files=(f"alibaba-v2018/{name}",), modules=modules)


def analysed(name: str, number: str, seed: int) -> dict[str, Any]:
    """Return one figure of the analysis over a file of the sample, as its rows."""
    from lab.analysis.figures import FIGURES, Facts, Options
    from lab.analysis.tables import open_trace

    facts = Facts(open_trace([str(data(name))]), Options())
    (figure,) = (f for f in FIGURES if f.number == number)
    rows = figure.make(facts).execute().to_dict("records")
    kept = [{k: round(v, 6) if isinstance(v, float) else v for k, v in row.items()} for row in rows]
    return {"rows": kept}


FILES = {
    "half an hour, all jobs": HOUR,
    "4,600 random jobs": "batch_task_mixed.csv.gz",
    "jobs of 5 to 7 tasks": "task_usage.csv.gz",
}


def figure_2_1(rows: Rows) -> list[Line]:
    """Return shares of jobs by how long they took."""
    lines = []
    for name in FILES:
        shares = {row["size"]: row["share"] for row in rows[name][0]["rows"]}
        for size, theirs in (
            ("1: under a minute", "38"),
            ("2: under an hour", "about 60"),
            ("3: an hour and more", "1"),
        ):
            ours = (100 * shares.get(size, 0.0), 0.0)
            why = "selected by their size" if name.startswith("jobs of") else ""
            paper = theirs if name == SAMPLE else ""
            lines.append(Line(f"{size[3:]}, {name}, %", paper, ours, SHARE, why))
    return lines


def figure_2_10(rows: Rows) -> list[Line]:
    """Return which part of the tasks asks for more than it uses."""
    lines = []
    for what in ("cpu", "memory"):
        found = [r for r in rows["use"][0]["rows"] if r["of"] == what]
        many = np.array([r["tasks"] for r in found], dtype=float)
        ratio = np.array([r["log2_of_asked_over_used"] for r in found])
        middle = ratio[np.searchsorted(np.cumsum(many), many.sum() / 2)]
        above = float(100 * many[ratio >= 0].sum() / many.sum())
        theirs = "up to 1,000,000" if what == "memory" else ""
        why = "of tasks; theirs is of times" if theirs else ""
        lines += [
            Line(f"tasks that ask for more {what} than they use, %", "most", (above, 0.0), SHARE),
            Line(f"{what} asked for over used, median", "", (float(2.0**middle), 0.0), FACTOR),
            Line(
                f"{what} asked for over used, most",
                theirs,
                (float(2.0 ** ratio.max()), 0.0),
                COUNT,
                why,
            ),
        ]
    return lines


def draw_2_10(rows: Rows, axes: Any) -> None:
    """Draw both distributions."""
    for what in ("cpu", "memory"):
        found = [r for r in rows["use"][0]["rows"] if r["of"] == what]
        axes.step(
            [r["log2_of_asked_over_used"] for r in found],
            [r["tasks"] for r in found],
            where="mid",
            label=what,
        )
    axes.axvline(0.0, color="grey", linewidth=0.8)
    axes.set(xlabel="asked for over used, powers of two", ylabel="tasks")
    axes.legend(frameon=False)


# -- chapter 3 -------------------------------------------------------------------------------------


@cache
def dags() -> tuple[Job, ...]:
    """Return the jobs of the half hour that are DAGs, in the order of their submission."""
    jobs = import_jobs("alibaba2018", [data(HOUR)], {}, Imported())
    return tuple(job for job in jobs if any(stage.parents for stage in job.stages))


def first_jobs(seed: int) -> list[Job]:
    """Return thirty jobs in a row, one every 5 s; seeds begin where the last one ended."""
    mine = dags()[JOBS * seed : JOBS * (seed + 1)]
    return [replace(job, arrival_s=EVERY_S * i) for i, job in enumerate(mine)]


def copies(seed: int) -> list[Job]:
    """Return copies of one large job, one every 5 s; each seed takes the next smaller one."""
    large = [job for job in dags() if TASKS[0] <= job.task_count <= TASKS[1]]
    large.sort(key=lambda job: (-job.task_count, job.name))
    job = large[seed]
    return [replace(job, name=f"{job.name}-{i}", arrival_s=EVERY_S * i) for i in range(COPIES)]


def run(made: Any, scheme: Preset, seed: int) -> dict[str, Any]:
    """Run once on one machine."""
    jobs = made(seed)
    found = simulate(jobs, cluster_from_text(MACHINE), scheme, None, seed)
    return {
        "jct_s": [round(float(t), 1) for t in found.jct_s],
        "makespan_s": round(found.makespan_s, 1),
        "used": round(found.utilisation, 4),
        "tasks": sum(job.task_count for job in jobs),
    }


def chapter_3(made: Any) -> dict[str, Case]:
    """Return a trial of each scheme."""
    return {
        name: Case(
            run,
            (made, scheduler(*how)),
            files=(f"alibaba-v2018/{HOUR}",),
            modules=("weft.workloads.alibaba2018",),
        )
        for name, how in SCHEMES.items()
    }


def shorter(theirs: str, rows: Rows) -> list[Line]:
    """Return makespan saved by Graphene over each kind of FIFO."""
    lines = []
    for name in SCHEMES:
        if name == "graphene":
            continue
        gain = against(rows, "graphene", name, span_gain)
        times = against(rows, "graphene", name, lambda b, o: b["makespan_s"] / o["makespan_s"])
        said = theirs if name == BASE else ""
        longer = against(rows, "graphene", name, jct_factor)
        lines += [
            Line(f"makespan, graphene over `{name}`, %", said, gain, SAVED, _WHY[name]),
            Line(f"makespan, `{name}` over graphene, times", "", times, FACTOR),
            Line(f"mean JCT, `{name}` over graphene, times", "", longer, FACTOR),
        ]
    for name in SCHEMES:
        used = over(rows, name, lambda row: 100 * row["used"])
        lines.append(Line(f"used of what is used most, `{name}`, %", "", used, SHARE))
    return lines


_WHY = {
    "fifo, whole jobs": "a later job waits for all tasks of the earlier one: gaps while those wait "
    "for their inputs, as the thesis's picture shows them",
    "fifo": "a later job's tasks start while the earlier one's wait for their inputs",
    "fifo, gaps filled": "",
}


def draw_3(theirs: float, rows: Rows, axes: Any) -> None:
    """Draw makespans as times of Graphene's; `theirs`: of the thesis's FIFO, whichever it is."""
    names = list(SCHEMES)
    bars(
        axes,
        names,
        {
            "makespan": [
                against(rows, "graphene", n, lambda b, o: b["makespan_s"] / o["makespan_s"])
                for n in names
            ],
        },
        {
            "makespan": [theirs if n == BASE else math.nan for n in names],
        },
    )
    axes.set_ylabel("makespan over graphene's, times")


CLAIMS = (
    ClaimRow(
        "2: 38 % of jobs end within a minute, 60 % within an hour, 1 % later",
        "figure 2.1",
        tuple(
            f"{size}, {SAMPLE}, %"
            for size in ("under a minute", "under an hour", "an hour and more")
        ),
    ),
    ClaimRow(
        "3.6: thirty jobs 30 % faster than under FIFO",
        "figure 3.2",
        (f"makespan, graphene over `{BASE}`, %",),
    ),
    ClaimRow(
        "3.6: copies of a large one 4 to 6 times faster",
        "figure 3.3",
        (f"makespan, graphene over `{BASE}`, %",),
    ),
)
PAPER = Paper(
    "alibaba",
    "An analysis and application of Graphene on Alibaba",
    f"""
Chapter 2 is `weft analyse` ([how](../analysis.md)) over the parts of the trace that are handed on,
by task: the other figures need whole tables, of which no part is public. Chapter 3 is simulated on
one machine of 96 cores: {JOBS} DAG jobs, one every {EVERY_S:g} s, and {COPIES} copies of a job of
{TASKS[0]} to {TASKS[1]} instances. What Graphene gains over FIFO is a matter
of what FIFO means. The thesis's, "if there is no space for the first job in the queue, waits until
there is": nothing starts past a task that does not fit. That is `{BASE}`, for all
figures. Rows over one of whole jobs, and over one that fills gaps, have no verdict.
""",
    (
        Figure(
            "figure 2.1",
            "jobs by how long they took",
            {name: analysis(file, "2.1") for name, file in FILES.items()},
            figure_2_1,
            "",
            None,
            1.0,
            1,
        ),
        Figure(
            "figure 2.10",
            "asked for over used, jobs of 5 to 7 tasks",
            {"use": analysis("task_usage.csv.gz", "2.10")},
            figure_2_10,
            "",
            draw_2_10,
            1.0,
            1,
        ),
        Figure(
            "figure 3.2",
            "thirty DAG jobs on one machine",
            chapter_3(first_jobs),
            partial(shorter, "about 30"),
            "",
            partial(draw_3, 1 / 0.7),
            1.0,
            167,
        ),
        Figure(
            "figure 3.3",
            "copies of a large job on one machine",
            chapter_3(copies),
            partial(shorter, "75 to 83 (4 to 6 times)"),
            "",
            partial(draw_3, 4.0),
            6.0,
            261,
        ),
    ),
    {
        "figures 2.2 to 2.5, 2.9": "need start_time and end_time of instances "
        "(`batch_instance.csv`), which no public part has; `weft analyse` makes them where it is",
        "figures 2.6, 2.7": "need cpu_avg and mem_avg of instances beside",
        "figure 2.8": "`weft analyse task_usage.csv` makes it of the jobs of 5 to 7 tasks, which "
        "are a thousandth of the cluster",
        "figures 2.11, 2.12": "need machine_id of instances (`batch_instance.csv`)",
        "figure 3.1": "pseudocode: docs/planning.md says how Weft divides subsets",
    },
    CLAIMS,
)
