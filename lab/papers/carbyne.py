"""Carbyne (OSDI 2016): figures 4 to 7 and 9 to 11, tables 3 and 4; what they share."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from lab.papers.carbyne_sweeps import FEW, LENDS, ONLINE_JOBS, ONLINE_S, STRICT
from lab.papers.carbyne_sweeps import FIGURES as SWEEPS
from lab.papers.digest import Case
from lab.papers.page import Figure, Line, Paper, against, bars, near, over, told
from lab.papers.runs import (
    SCALE,
    jain_of,
    jct,
    jct_factor,
    job_factor,
    span_factor,
    trials,
)
from lab.studies.trials import Rows

PERCENTILES = (25, 50, 75, 95)
# Factors over DRF and over Tetris at each of the percentiles, by workload.
TABLE_3 = {
    "TPC-DS": ((1.15, 1.12), (1.36, 1.32), (1.55, 1.47), (1.88, 1.75)),
    "TPC-H": ((1.11, 1.14), (1.33, 1.29), (1.62, 1.44), (1.96, 1.71)),
    "BigBench": ((1.13, 1.10), (1.41, 1.35), (1.57, 1.52), (1.85, 1.82)),
}
TABLE_4 = {
    "TPC-DS": ((1.17, 1.12), (1.59, 1.47), (2.73, 2.23), (7.67, 6.17)),
    "MapReduce": ((1.24, 1.24), (2.75, 2.85), (4.31, 4.31), (8.77, 8.88)),
}

EQUAL = "drf_strict, equal"
# Jobs at once on 48 machines of the paper's 100, divided by SCALE as the tasks are.
JOBS, NODES = 40, 12
OFFLINE = ("carbyne", "tetris", "sjf", LENDS, STRICT, EQUAL, "drf, p90 containers")


def offline(workload: str, nodes: int, schemes: Sequence[str]) -> dict[str, Case]:
    """Return trials of all jobs at once, as in section 5.2.1."""
    return trials(workload, JOBS, nodes, schemes)


def figure_4(rows: Rows) -> list[Line]:
    """Return each scheme's fairness, completion time and makespan against the best in each."""
    factor = partial(against, rows)
    strict = factor("carbyne", STRICT, jct_factor)
    span = factor(STRICT, "tetris", span_factor)
    over_sjf = factor("sjf", STRICT, jct_factor)
    lines = [
        Line(
            "mean JCT, strict DRF over Carbyne",
            "1.50 (1.59 / 1.06)",
            told(strict, 2),
            f"{near(strict, 1.50, 0.10)} (within 0.10); DRF's closed form, nothing lent",
        ),
        Line(
            "mean JCT, strict DRF over SJF",
            "1.59",
            told(over_sjf, 2),
            f"{near(over_sjf, 1.59, 0.10)} (within 0.10)",
        ),
        Line(
            "mean JCT, lending DRF over Carbyne",
            "1.50 (1.59 / 1.06)",
            told(factor("carbyne", LENDS, jct_factor), 2),
            "what is lent makes the difference: the line above but one, on the same jobs",
        ),
        Line(
            "mean JCT, equal strict shares over Carbyne",
            "",
            told(factor("carbyne", EQUAL, jct_factor), 2),
            "a fair share of every resource",
        ),
        Line(
            "mean JCT, DRF on p90 containers over Carbyne",
            "",
            told(factor("carbyne", "drf, p90 containers", jct_factor), 2),
            "Tez's one container size a job",
        ),
        Line(
            "makespan, strict DRF over Tetris",
            "1.26",
            told(span, 2),
            f"{near(span, 1.26, 0.08)} (within 0.08)",
        ),
        Line(
            "makespan, lending DRF over Tetris",
            "1.26",
            told(factor(LENDS, "tetris", span_factor), 2),
            "what is lent, as above",
        ),
        Line(
            "makespan, Carbyne over Tetris",
            "1.03",
            told(factor("carbyne", "tetris", span_factor), 2),
        ),
        Line("makespan, SJF over Tetris", "1.43", told(factor("sjf", "tetris", span_factor), 2)),
        Line("mean JCT, Carbyne over SJF", "1.06", told(factor("sjf", "carbyne", jct_factor), 2)),
        Line("mean JCT, Tetris over SJF", "1.46", told(factor("sjf", "tetris", jct_factor), 2)),
    ]
    for name, paper in (
        (STRICT, "0.86"),
        (LENDS, "0.86"),
        ("carbyne", "0.81"),
        ("tetris", "0.74"),
        ("sjf", "0.64"),
    ):
        lines.append(Line(f"Jain's index, 60 s, {name}", paper, told(over(rows, name, jain_of), 2)))
    return lines


def draw_4(rows: Rows, axes: Any) -> None:
    """Draw mean JCT over SJF's, makespan over Tetris's."""
    names = ("carbyne", "tetris", "sjf", LENDS, STRICT, EQUAL)
    bars(
        axes,
        names,
        {
            "mean JCT over SJF's": [against(rows, "sjf", n, jct_factor) for n in names],
            "makespan over Tetris's": [against(rows, n, "tetris", span_factor) for n in names],
        },
        {
            "mean JCT over SJF's": (1.06, 1.46, 1.0, 1.59, 1.59, 1.59),
            "makespan over Tetris's": (1.03, 1.0, 1.43, 1.26, 1.26, 1.26),
        },
    )
    axes.set_ylabel("times the best")


def factor_lines(paper: Mapping[str, Any], workload: str, rows: Rows) -> list[Line]:
    """Return factors of improvement by job at percentiles, over DRF (both kinds) and Tetris."""
    lines = []
    for base, column in ((STRICT, 0), (LENDS, 0), ("tetris", 1)):
        for place, p in enumerate(PERCENTILES):
            ours, strict, lends = (
                against(rows, "carbyne", name, partial(job_factor, p))
                for name in (base, STRICT, LENDS)
            )
            theirs = float(paper[workload][place][column])
            why = ""
            if base != "tetris" and lends[0] + lends[1] < theirs < strict[0] - strict[1]:
                why = "the paper's lies between a DRF that lends and one that does not"
            lines.append(Line(f"{workload}, p{p} over {base}", f"{theirs:.2f}", told(ours, 2), why))
    return lines


def slower(below: float, base: Mapping[str, Any], own: Mapping[str, Any]) -> float:
    """Return % of the jobs whose factor of improvement is below a number."""
    return float(100 * np.mean(jct(base) / jct(own) < below))


def figure_7(rows: Rows) -> list[Line]:
    """Return which part of the jobs slows down, and by how much."""
    lines = []
    for base in (LENDS, STRICT, "tetris"):
        for what, below, theirs in (
            ("slower", 0.999, "16"),
            ("slower than 0.8 x", 0.8, "at most 4"),
        ):
            ours = against(rows, "carbyne", base, partial(slower, below))
            lines.append(Line(f"% of jobs {what}, over {base}", theirs, told(ours, 0)))
        worst = against(rows, "carbyne", base, partial(job_factor, 0))
        lines.append(Line(f"the worst job's factor, over {base}", "0.62", told(worst, 2)))
    return lines


def later(rows: Rows) -> list[float]:
    """Return Carbyne's completion times over Tetris's at percentiles 1 to 100, over all seeds."""
    own, base = (np.concatenate([jct(row) for row in rows[name]]) for name in ("carbyne", "tetris"))
    at = np.arange(1, 101)
    return [float(r) for r in np.percentile(own, at) / np.percentile(base, at)]


def figure_6(rows: Rows) -> list[Line]:
    """Return at how many percentiles completion times are worse than Tetris's."""
    found = later(rows)
    return [
        Line(
            "percentiles of 100 at which Carbyne is later than Tetris",
            "2",
            f"{sum(ratio > 1.0 for ratio in found)}",
        ),
        Line("by at most, times", "1.1", f"{max(found):.2f}"),
        Line(
            "the highest percentile at which it is earlier",
            "98",
            f"{max(i + 1 for i, ratio in enumerate(found) if ratio < 1.0)}",
        ),
    ]


def draw_6(rows: Rows, axes: Any) -> None:
    """Draw distributions of completion times over the jobs of all seeds."""
    for name in ("carbyne", "tetris", "sjf", LENDS, STRICT):
        found = np.sort(np.concatenate([jct(row) for row in rows[name]]))
        axes.step(found, np.arange(1, len(found) + 1) / len(found), where="post", label=name)
    axes.set(xlabel="completion time of a job, s", ylabel="share of jobs", xscale="log")
    axes.legend(frameon=False)


def draw_factors(rows: Rows, axes: Any) -> None:
    """Draw figure 7: the distribution of factors over jobs of all seeds."""
    for base in (STRICT, LENDS, "tetris"):
        pairs = zip(rows[base], rows["carbyne"], strict=True)
        found = np.sort(np.concatenate([jct(b) / jct(own) for b, own in pairs]))
        axes.step(
            found, np.arange(1, len(found) + 1) / len(found), where="post", label=f"over {base}"
        )
    axes.axvline(1.0, color="grey", linewidth=0.8)
    axes.set(xlabel="factor of improvement of a job", ylabel="share of jobs", xlim=(0, 5))
    axes.legend(frameon=False)


def figure_5(rows: Rows) -> list[Line]:
    """Return the online case."""
    factor = partial(against, rows)
    return [
        Line("mean JCT, Carbyne over SJF", "1.2", told(factor("sjf", "carbyne", jct_factor), 2)),
        Line(
            "makespan, Carbyne over Tetris",
            "1.07",
            told(factor("carbyne", "tetris", span_factor), 2),
        ),
        Line(
            "Jain's index below strict DRF's",
            "0.06",
            told(factor("carbyne", STRICT, lambda b, own: jain_of(b) - jain_of(own)), 2),
        ),
        Line(
            "mean JCT, strict DRF over Carbyne",
            "1.36 (p50, table 3)",
            told(factor("carbyne", STRICT, jct_factor), 2),
        ),
        Line(
            "mean JCT, lending DRF over Carbyne",
            "1.36 (p50, table 3)",
            told(factor("carbyne", LENDS, jct_factor), 2),
        ),
    ]


def _factors(
    number: str,
    workload: str,
    cases: Mapping[str, Case],
    paper: Mapping[str, Any],
    text: str,
) -> Figure:
    return Figure(
        number,
        f"factors of improvement by job, {workload}",
        cases,
        partial(factor_lines, paper, workload),
        text,
        None,
        1.5,
    )


ONLINE = trials(
    "TPC-DS", ONLINE_JOBS, NODES, ("carbyne", "tetris", "sjf", LENDS, STRICT), mean_s=ONLINE_S
)
AT_ONCE = (
    "All jobs at once, as in figure 4; the paper's come over time, which shows less (table 3 and "
    "figure 4 on TPC-DS)."
)


PAPER = Paper(
    "carbyne",
    "Carbyne: altruistic scheduling in multi-resource clusters",
    f"""
Queries of three benchmarks drawn at random, {JOBS} at once where nothing else is said (the paper:
250, one every 20 s on average); tasks of every stage and machines are divided by {SCALE}, so that
{NODES} machines stand for {NODES * SCALE}. Everything runs in YARN's pace (1 s heartbeats). What
the paper calls DRF is YARN's, which conserves work (section 5.2.3: "either due to fairness or work
conservation mechanisms"); `drf` does, too, and loses less to Carbyne than the paper's. A DRF that
lends nothing (`drf_strict`, [baselines](../papers.md)) comes to the paper's numbers of figure 4;
where jobs come over time (figures 5 to 7, table 3) the paper's lie between both. It has a name of
its own here, as it is not what the paper describes. `tetris` weighs remaining work beside packing,
as its own paper says.
""",
    (
        Figure(
            "figure 4",
            "fairness, completion time and makespan, TPC-DS, all jobs at once",
            offline("TPC-DS", NODES, OFFLINE),
            figure_4,
            "",
            draw_4,
            1.3,
        ),
        Figure(
            "figure 5",
            "the online case, TPC-DS",
            ONLINE,
            figure_5,
            f"{ONLINE_JOBS} jobs, one every {ONLINE_S:g} s on average.",
            None,
            1.8,
        ),
        Figure(
            "figure 6",
            "completion times, TPC-DS",
            ONLINE,
            figure_6,
            "The runs of figure 5; percentiles over the jobs of all seeds, so no interval.",
            draw_6,
            1.8,
        ),
        Figure(
            "figure 7",
            "factors of improvement of single jobs, TPC-DS",
            ONLINE,
            figure_7,
            'The runs of figure 5. The paper\'s numbers are over "different approaches".',
            draw_factors,
            1.8,
        ),
        _factors("table 3", "TPC-DS", ONLINE, TABLE_3, "The runs of figure 5."),
        _factors(
            "table 3 b",
            "TPC-H",
            offline("TPC-H", NODES, FEW),
            TABLE_3,
            AT_ONCE,
        ),
        _factors(
            "table 3 c",
            "BigBench",
            offline("BigBench", NODES, FEW),
            TABLE_3,
            AT_ONCE,
        ),
        _factors(
            "table 4",
            "TPC-DS",
            ONLINE,
            TABLE_4,
            "The paper's is its simulator's on the jobs of table 3; ours are the same runs.",
        ),
        *SWEEPS,
    ),
    {
        "figures 1, 3": "an illustration of figure 4, and the architecture (ARCHITECTURE.md)",
        "figure 2": "a worked example: `tests/golden`, every value",
        "figure 8": "one run's timeline: `weft simulate ... --out DIR` writes it as `report.html`",
        "table 4, Facebook and Microsoft": "the traces are not public",
    },
)
