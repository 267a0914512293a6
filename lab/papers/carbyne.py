"""Carbyne (OSDI 2016): figures 4 to 7 and 9 to 11, tables 3 and 4; what they share."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from lab.papers.carbyne_sweeps import FEW, LENDS, ONLINE_JOBS, ONLINE_S, STRICT
from lab.papers.carbyne_sweeps import FIGURES as SWEEPS
from lab.papers.digest import Case
from lab.papers.page import ClaimRow, Figure, Line, Paper, against, bars, over
from lab.papers.runs import (
    SCALE,
    jain_of,
    jct,
    jct_factor,
    job_factor,
    span_factor,
    trials,
)
from lab.papers.verdict import FACTOR, INDEX, SHARE
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

EQUAL, IN_P90 = "drf_strict, equal", "drf, p90 containers"
# Jobs at once on 48 machines of the paper's 100, divided by SCALE as the tasks are.
JOBS, NODES = 40, 12
OFFLINE = ("carbyne", "tetris", "sjf", LENDS, STRICT, EQUAL, IN_P90)


def offline(workload: str, nodes: int, schemes: Sequence[str]) -> dict[str, Case]:
    """Return trials of all jobs at once, as in section 5.2.1."""
    return trials(workload, JOBS, nodes, schemes)


def figure_4(rows: Rows) -> list[Line]:
    """Return each scheme's fairness, completion time and makespan against the best in each."""
    factor = partial(against, rows)
    lines = [
        Line(f"mean JCT, {what}", paper, factor(own, base, jct_factor), FACTOR, why)
        for what, paper, own, base, why in (
            ("DRF over Carbyne", "1.50 (1.59 / 1.06)", "carbyne", LENDS, ""),
            ("strict DRF over Carbyne", "", "carbyne", STRICT, "DRF's closed form, nothing lent"),
            ("equal strict shares over Carbyne", "", "carbyne", EQUAL, "of every resource"),
            ("DRF on p90 containers over Carbyne", "", "carbyne", IN_P90, "one size a job"),
            ("DRF over SJF", "1.59", "sjf", LENDS, ""),
            ("strict DRF over SJF", "", "sjf", STRICT, ""),
            ("Carbyne over SJF", "1.06", "sjf", "carbyne", ""),
            ("Tetris over SJF", "1.46", "sjf", "tetris", ""),
        )
    ]
    lines += [
        Line(f"makespan, {what} over Tetris", paper, factor(own, "tetris", span_factor), FACTOR)
        for what, paper, own in (
            ("DRF", "1.26", LENDS),
            ("strict DRF", "", STRICT),
            ("Carbyne", "1.03", "carbyne"),
            ("SJF", "1.43", "sjf"),
        )
    ]
    lines += [
        Line(f"Jain's index, 60 s, {name}", paper, over(rows, name, jain_of), INDEX)
        for name, paper in (
            (LENDS, "0.86"),
            (STRICT, ""),
            ("carbyne", "0.81"),
            ("tetris", "0.74"),
            ("sjf", "0.64"),
        )
    ]
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
            "mean JCT over SJF's": (1.06, 1.46, 1.0, 1.59, math.nan, math.nan),
            "makespan over Tetris's": (1.03, 1.0, 1.43, 1.26, math.nan, math.nan),
        },
    )
    axes.set_ylabel("times the best")


def factor_lines(paper: Mapping[str, Any], workload: str, rows: Rows) -> list[Line]:
    """Return factors of improvement by job at percentiles, over DRF, strict DRF and Tetris."""
    lines = []
    for base, column in ((LENDS, 0), ("tetris", 1), (STRICT, 0)):
        for place, p in enumerate(PERCENTILES):
            ours = against(rows, "carbyne", base, partial(job_factor, p))
            theirs = "" if base == STRICT else f"{paper[workload][place][column]:.2f}"
            lines.append(Line(f"{workload}, p{p} over {base}", theirs, ours, FACTOR))
    return lines


def slower(below: float, base: Mapping[str, Any], own: Mapping[str, Any]) -> float:
    """Return % of the jobs whose factor of improvement is below a number."""
    return float(100 * np.mean(jct(base) / jct(own) < below))


def figure_7(rows: Rows) -> list[Line]:
    """Return which part of the jobs slows down, and by how much."""
    lines = []
    for base in (LENDS, "tetris", STRICT):
        claimed = base == LENDS
        for what, below, theirs in (
            ("slower", 0.999, "16"),
            ("slower than 0.8 x", 0.8, "at most 4"),
        ):
            ours = against(rows, "carbyne", base, partial(slower, below))
            paper = theirs if claimed else ""
            lines.append(Line(f"% of jobs {what}, over {base}", paper, ours, SHARE))
        worst = against(rows, "carbyne", base, partial(job_factor, 0))
        paper = "at least 0.62" if claimed else ""
        lines.append(Line(f"the worst job's factor, over {base}", paper, worst, FACTOR))
    return lines


def later(base: Mapping[str, Any], own: Mapping[str, Any]) -> list[float]:
    """Return the completion times of a run over those of another at percentiles 1 to 100."""
    at = np.arange(1, 101)
    return [float(r) for r in np.percentile(jct(own), at) / np.percentile(jct(base), at)]


def figure_6(rows: Rows) -> list[Line]:
    """Return at how many percentiles completion times are worse than Tetris's."""

    def worse(base: Mapping[str, Any], own: Mapping[str, Any]) -> float:
        return float(sum(ratio > 1.0 for ratio in later(base, own)))

    def most_later(base: Mapping[str, Any], own: Mapping[str, Any]) -> float:
        return max(later(base, own))

    what = "percentiles of 100 at which Carbyne is later than Tetris"
    return [
        Line(what, "2", against(rows, "carbyne", "tetris", worse), SHARE),
        Line(
            "by at most, times",
            "at most 1.1",
            against(rows, "carbyne", "tetris", most_later),
            FACTOR,
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

    def below(base: Mapping[str, Any], own: Mapping[str, Any]) -> float:
        return jain_of(base) - jain_of(own)

    return [
        Line("mean JCT, Carbyne over SJF", "1.2", factor("sjf", "carbyne", jct_factor), FACTOR),
        Line(
            "makespan, Carbyne over Tetris",
            "1.07",
            factor("carbyne", "tetris", span_factor),
            FACTOR,
        ),
        Line("Jain's index below DRF's", "0.06", factor("carbyne", LENDS, below), INDEX),
        Line("mean JCT, DRF over Carbyne", "1.36", factor("carbyne", LENDS, jct_factor), FACTOR),
        Line("Jain's index below strict DRF's", "", factor("carbyne", STRICT, below), INDEX),
        Line(
            "mean JCT, strict DRF over Carbyne", "", factor("carbyne", STRICT, jct_factor), FACTOR
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

CLAIMS = (
    ClaimRow("5.2.1: mean JCT 1.06 of SJF's", "figure 4", ("mean JCT, Carbyne over SJF",)),
    ClaimRow("5.2.1: DRF's is 1.59 of it", "figure 4", ("mean JCT, DRF over SJF",)),
    ClaimRow("5.2.1: Tetris's 1.46", "figure 4", ("mean JCT, Tetris over SJF",)),
    ClaimRow("5.2.1: makespan 1.03 of Tetris's", "figure 4", ("makespan, Carbyne over Tetris",)),
    ClaimRow("5.2.1: DRF's is 1.26 of it", "figure 4", ("makespan, DRF over Tetris",)),
    ClaimRow("5.2.1: SJF's 1.43", "figure 4", ("makespan, SJF over Tetris",)),
    ClaimRow(
        "5.2.1: almost as fair as DRF: 0.81 to 0.86",
        "figure 4",
        (f"Jain's index, 60 s, {LENDS}", "Jain's index, 60 s, carbyne"),
    ),
    ClaimRow(
        "5.2.1: online, 1.2 of SJF's JCT and 1.07 of Tetris's makespan",
        "figure 5",
        ("mean JCT, Carbyne over SJF", "makespan, Carbyne over Tetris"),
    ),
    ClaimRow(
        "5.2.2: later than Tetris at two percentiles, by 1.1 at most",
        "figure 6",
        ("percentiles of 100 at which Carbyne is later than Tetris", "by at most, times"),
    ),
    ClaimRow(
        "5.2.2: jobs are 1.36 times faster than under DRF",
        "figure 5",
        ("mean JCT, DRF over Carbyne",),
    ),
    *(
        ClaimRow(
            f"5.2.2: {workload}, quartiles over DRF",
            number,
            tuple(f"{workload}, p{p} over {LENDS}" for p in (25, 50, 75)),
        )
        for number, workload in (
            ("table 3", "TPC-DS"),
            ("table 3 b", "TPC-H"),
            ("table 3 c", "BigBench"),
        )
    ),
    ClaimRow(
        "5.2.3: 16 % of jobs slow down, 4 % below 0.8",
        "figure 7",
        (f"% of jobs slower, over {LENDS}", f"% of jobs slower than 0.8 x, over {LENDS}"),
    ),
    ClaimRow("5.2.4: 2 to 4 ms more than Tetris's heartbeats", "", ()),
    ClaimRow("5.4.1: gains grow from load 1 to 2", "figure 9", (f"over {LENDS}, load 2 x",)),
    ClaimRow("5.4.1: and to 4", "figure 9", (f"over {LENDS}, load 4 x, of that at 2 x",)),
    ClaimRow("5.4.1: and stay at 6", "figure 9", (f"over {LENDS}, load 6 x, of that at 4 x",)),
    ClaimRow(
        "5.4.2: faster than the others whatever the estimates",
        "figure 10",
        tuple(f"over tetris, {error:+d} %" for error in (-50, -25, 25, 50)),
    ),
    ClaimRow(
        "5.4.3: up to 1.24 with half the altruism, 1.56 with all",
        "figure 11",
        tuple(f"over any of them, the most, P(Altruism) {part}" for part in ("0.5", "1")),
    ),
    ClaimRow(
        "5.4.3: comparable without",
        "figure 11",
        tuple(f"over {base}, P(Altruism) 0" for base in (LENDS, "tetris")),
    ),
    ClaimRow(
        "5.5: a better planner inside: 2.36 becomes 3.41 at p75",
        "figure 12",
        tuple(f"`{name}` over {LENDS}, p75" for name in ("carbyne", "carbyne_graphene")),
    ),
    ClaimRow("6: fairer, faster by 1.22 and 2.9 (p95) than a strict Tetris", "", ()),
)

PAPER = Paper(
    "carbyne",
    "Carbyne: altruistic scheduling in multi-resource clusters",
    f"""
Queries of three benchmarks drawn at random, {JOBS} at once where nothing else is said (the paper:
250, one every 20 s on average); tasks of every stage and machines are divided by {SCALE}, so that
{NODES} machines stand for {NODES * SCALE}. Everything runs in YARN's pace (1 s heartbeats). The
baselines are the paper's own words for all figures (section 5.1): DRF is "YARN's implementation",
which conserves work (5.2.3), with a breadth first order inside the job: `drf`. `tetris` weighs
remaining work beside packing, as its own paper says; `sjf` is shortest by critical path. Rows over
a DRF that lends nothing (`drf_strict`, [baselines](../papers.md)) have no verdict, as the paper
describes none: where all jobs come at once they are nearer to its numbers of figure 4.
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
            "The runs of figure 5; percentiles over the jobs of a seed.",
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
    CLAIMS,
)
