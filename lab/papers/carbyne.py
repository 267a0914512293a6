"""Carbyne (OSDI 2016): figures 4 to 7, 9 to 12, tables 3 and 4."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from lab.carbyne_study import PERCENTILES, TABLE_3, TABLE_4
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
from lab.trials import Rows, Trial

JOBS, NODES = 40, 12  # at once; 48 machines of the paper's 100, divided as the tasks are
LOADS = {1: 24, 2: 12, 4: 6, 6: 4}  # machines: 24 stand for the paper's 100
STRICT, EQUAL, LENDS = "drf_strict", "drf_strict, equal", "drf"
OFFLINE = ("carbyne", "tetris", "sjf", LENDS, STRICT, EQUAL, "drf, p90 containers")
FEW = ("carbyne", "tetris", LENDS, STRICT)
SMALL_JOBS, SMALL_NODES = 20, 6  # half of both, for sweeps of many runs
ERRORS = (-50, -25, 0, 25, 50)
ALTRUISM = (0.0, 0.25, 0.5, 0.75, 1.0)
ONLINE_JOBS, ONLINE_S = 60, 20.0  # section 5.1: Poisson, a mean of 20 s


def offline(workload: str, nodes: int, schemes: Sequence[str]) -> dict[str, Trial]:
    """All jobs at once, as in section 5.2.1."""
    return trials(workload, JOBS, nodes, schemes)


def figure_4(rows: Rows) -> list[Line]:
    """Fairness, completion time and makespan of each scheme against the best in each."""
    factor = partial(against, rows)
    strict = factor("carbyne", STRICT, jct_factor)
    span = factor(STRICT, "tetris", span_factor)
    over_sjf = factor("sjf", STRICT, jct_factor)
    lines = [
        Line("mean JCT, strict DRF over Carbyne", "1.50 (1.59 / 1.06)", told(strict, 2),
             f"{near(strict, 1.50, 0.10)} (within 0.10); DRF's closed form, nothing lent"),
        Line("mean JCT, strict DRF over SJF", "1.59", told(over_sjf, 2),
             f"{near(over_sjf, 1.59, 0.10)} (within 0.10)"),
        Line("mean JCT, lending DRF over Carbyne", "1.50 (1.59 / 1.06)",
             told(factor("carbyne", LENDS, jct_factor), 2),
             "what is lent makes the difference: the line above but one, on the same jobs"),
        Line("mean JCT, equal strict shares over Carbyne", "",
             told(factor("carbyne", EQUAL, jct_factor), 2), "a fair share of every resource"),
        Line("mean JCT, DRF on p90 containers over Carbyne", "",
             told(factor("carbyne", "drf, p90 containers", jct_factor), 2),
             "Tez's one container size a job"),
        Line("makespan, strict DRF over Tetris", "1.26", told(span, 2),
             f"{near(span, 1.26, 0.08)} (within 0.08)"),
        Line("makespan, lending DRF over Tetris", "1.26",
             told(factor(LENDS, "tetris", span_factor), 2), "what is lent, as above"),
        Line("makespan, Carbyne over Tetris", "1.03",
             told(factor("carbyne", "tetris", span_factor), 2)),
        Line("makespan, SJF over Tetris", "1.43", told(factor("sjf", "tetris", span_factor), 2)),
        Line("mean JCT, Carbyne over SJF", "1.06", told(factor("sjf", "carbyne", jct_factor), 2)),
        Line("mean JCT, Tetris over SJF", "1.46", told(factor("sjf", "tetris", jct_factor), 2)),
    ]  # fmt: skip
    for name, paper in ((STRICT, "0.86"), (LENDS, "0.86"), ("carbyne", "0.81"), ("tetris", "0.74"),
                        ("sjf", "0.64")):  # fmt: skip
        lines.append(Line(f"Jain's index, 60 s, {name}", paper, told(over(rows, name, jain_of), 2)))
    return lines


def draw_4(rows: Rows, axes: Any) -> None:
    """Mean JCT over SJF's, makespan over Tetris's."""
    names = ("carbyne", "tetris", "sjf", LENDS, STRICT, EQUAL)
    bars(axes, names, {
        "mean JCT over SJF's": [against(rows, "sjf", n, jct_factor) for n in names],
        "makespan over Tetris's": [against(rows, n, "tetris", span_factor) for n in names],
    }, {
        "mean JCT over SJF's": (1.06, 1.46, 1.0, 1.59, 1.59, 1.59),
        "makespan over Tetris's": (1.03, 1.0, 1.43, 1.26, 1.26, 1.26),
    })  # fmt: skip
    axes.set_ylabel("times the best")


def factor_lines(paper: Mapping[str, Any], workload: str, rows: Rows) -> list[Line]:
    """Factors of improvement by job at percentiles, over DRF (both kinds) and Tetris."""
    lines = []
    for base, column in ((STRICT, 0), (LENDS, 0), ("tetris", 1)):
        for place, p in enumerate(PERCENTILES):
            ours = against(rows, "carbyne", base, partial(job_factor, p))
            theirs = f"{paper[workload][place][column]:.2f}"
            lines.append(Line(f"{workload}, p{p} over {base}", theirs, told(ours, 2)))
    slower = against(
        rows, "carbyne", STRICT, lambda b, own: float(100 * np.mean(jct(b) / jct(own) < 0.999))
    )
    seven = ("16", "0.62") if paper is TABLE_3 and workload == "TPC-DS" else ("", "")  # figure 7
    lines.append(
        Line(f"{workload}, % of jobs slower than under strict DRF", seven[0], told(slower, 0))
    )
    worst = against(rows, "carbyne", STRICT, partial(job_factor, 0))
    lines.append(Line(f"{workload}, the worst job's factor", seven[1], told(worst, 2)))
    return lines


def draw_factors(rows: Rows, axes: Any) -> None:
    """Figure 7: the distribution of factors over jobs of all seeds."""
    for base in (STRICT, LENDS, "tetris"):
        pairs = zip(rows[base], rows["carbyne"], strict=True)
        found = np.sort(np.concatenate([jct(b) / jct(own) for b, own in pairs]))
        axes.step(
            found, np.arange(1, len(found) + 1) / len(found), where="post", label=f"over {base}"
        )
    axes.axvline(1.0, color="grey", linewidth=0.8)
    axes.set(xlabel="factor of improvement of a job", ylabel="share of jobs", xlim=(0, 5))
    axes.legend(frameon=False)


def load_cases() -> dict[str, Trial]:
    """Four sizes of cluster under the same jobs, which come over time."""
    found: dict[str, Trial] = {}
    for nodes in LOADS.values():
        own = trials("TPC-DS", ONLINE_JOBS, nodes, FEW, mean_s=ONLINE_S)
        found |= {f"{nodes}/{name}": trial for name, trial in own.items()}
    return found


AT_LOADS = {1: "up to 1.57", 2: "1.76 to 1.91", 4: "more than at 2 x", 6: "as at 4 x"}


def figure_9(rows: Rows) -> list[Line]:
    """Gains by load."""
    lines = []
    for load, nodes in LOADS.items():
        for base in (STRICT, LENDS, "tetris"):
            ours = against(rows, f"{nodes}/carbyne", f"{nodes}/{base}", jct_factor)
            at_2 = against(rows, f"{LOADS[2]}/carbyne", f"{LOADS[2]}/{base}", jct_factor)
            why = (
                ""
                if load == 1
                else "not known"
                if load == 2
                else (
                    "agrees"
                    if np.mean(ours) > np.mean(at_2)
                    else "does not: the fuller the cluster the less; why is not known"
                )
            )
            lines.append(Line(f"mean JCT over {base}, load {load} x", AT_LOADS[load],
                              told(ours, 2), why))  # fmt: skip
        used = over(rows, f"{nodes}/carbyne", lambda row: 100 * row["used"])
        lines.append(Line(f"used of what is used most, carbyne, load {load} x, %", "",
                          told(used, 0)))  # fmt: skip
    return lines


def draw_9(rows: Rows, axes: Any) -> None:
    """Factors by load."""
    bars(axes, [f"{load} x" for load in LOADS], {
        f"over {base}": [
            against(rows, f"{n}/carbyne", f"{n}/{base}", jct_factor) for n in LOADS.values()
        ]
        for base in (STRICT, LENDS, "tetris")
    })  # fmt: skip
    axes.set(ylabel="mean JCT over Carbyne's", xlabel="load")


def error_cases() -> dict[str, Trial]:
    """Estimates off by as much in all stages."""
    found: dict[str, Trial] = {}
    for error in ERRORS:
        own = trials(
            "TPC-DS", SMALL_JOBS, SMALL_NODES, ("carbyne", STRICT, "tetris"),
            error=error / 100 or 1e-9,
        )  # fmt: skip
        found |= {f"{name}, {error:+d} %": trial for name, trial in own.items()}
    return found


def figure_10(rows: Rows) -> list[Line]:
    """Mean JCT over Carbyne's by the error of estimates."""
    return [
        Line(f"over {base}, {error:+d} %", "above 1" if base == STRICT else "",
             told(against(rows, f"carbyne, {error:+d} %", f"{base}, {error:+d} %", jct_factor), 2))
        for base in (STRICT, "tetris") for error in ERRORS
    ]  # fmt: skip


def draw_10(rows: Rows, axes: Any) -> None:
    """Factors by error."""
    bars(axes, [f"{e:+d} %" for e in ERRORS], {
        f"over {base}": [
            against(rows, f"carbyne, {e:+d} %", f"{base}, {e:+d} %", jct_factor) for e in ERRORS
        ]
        for base in (STRICT, "tetris")
    })  # fmt: skip
    axes.set(ylabel="mean JCT over Carbyne's", xlabel="error of estimated demands and durations")


def altruism_cases() -> dict[str, Trial]:
    """Jobs that yield with less than certainty."""
    found: dict[str, Trial] = {}
    for part in ALTRUISM:
        options = {"asker.altruism": part}
        own = trials("TPC-DS", SMALL_JOBS, SMALL_NODES, ("carbyne",), options=options)
        found[f"P {part:g}"] = own["carbyne"]
    return found | trials("TPC-DS", SMALL_JOBS, SMALL_NODES, (STRICT, "tetris"))


def figure_11(rows: Rows) -> list[Line]:
    """Mean JCT over Carbyne's by P(Altruism)."""
    return [
        Line(f"over {base}, P(Altruism) {part:g}", "grows with P",
             told(against(rows, f"P {part:g}", base, jct_factor), 2))
        for base in (STRICT, "tetris") for part in ALTRUISM
    ]  # fmt: skip


def draw_11(rows: Rows, axes: Any) -> None:
    """Factors by P(Altruism)."""
    bars(axes, [f"{p:g}" for p in ALTRUISM], {
        f"over {base}": [against(rows, f"P {p:g}", base, jct_factor) for p in ALTRUISM]
        for base in (STRICT, "tetris")
    })  # fmt: skip
    axes.set(ylabel="mean JCT over Carbyne's", xlabel="P(Altruism)")


def figure_5(rows: Rows) -> list[Line]:
    """The online case."""
    factor = partial(against, rows)
    return [
        Line("mean JCT, Carbyne over SJF", "1.2", told(factor("sjf", "carbyne", jct_factor), 2)),
        Line("makespan, Carbyne over Tetris", "1.07",
             told(factor("carbyne", "tetris", span_factor), 2)),
        Line("Jain's index below strict DRF's", "0.06",
             told(factor("carbyne", STRICT, lambda b, own: jain_of(b) - jain_of(own)), 2)),
        Line("mean JCT, strict DRF over Carbyne", "1.36 (p50, table 3)",
             told(factor("carbyne", STRICT, jct_factor), 2)),
        Line("mean JCT, lending DRF over Carbyne", "1.36 (p50, table 3)",
             told(factor("carbyne", LENDS, jct_factor), 2)),
    ]  # fmt: skip


def _factors(number: str, workload: str, paper: Mapping[str, Any], draws: bool) -> Figure:
    return Figure(
        number, f"factors of improvement by job, {workload}",
        f"offline/{workload}/{NODES}", offline(workload, NODES, FEW),
        partial(factor_lines, paper, workload),
        f"All jobs at once, as in figure 4, on {workload}; the paper's come over time, on its "
        "cluster (table 3) and simulated (table 4). Figures 6, 7 and 12 are such distributions.",
        draw_factors if draws else None, 1.5,
    )  # fmt: skip


PAPER = Paper(
    "carbyne",
    "Carbyne: altruistic scheduling in multi-resource clusters",
    f"""
Queries of three benchmarks drawn at random, {JOBS} at once where nothing else is said (the paper:
250, one every 20 s on average); tasks of every stage and machines are divided by {SCALE}, so that
{NODES} machines stand for {NODES * SCALE}. Everything runs in YARN's pace (1 s heartbeats). What
the paper calls DRF is YARN's, which conserves work (section 5.2.3: "either due to fairness or work
conservation mechanisms"); `drf` does, too, and loses less to Carbyne than the paper's. A DRF that
lends nothing (`drf_strict`, [baselines](../papers.md)) comes to the paper's numbers. It has a name
of its own here, as it is not what the paper describes. `tetris` weighs remaining work beside
packing, as its own paper says.
""",
    (
        Figure("figure 4", "fairness, completion time and makespan, TPC-DS, all jobs at once",
               f"offline/TPC-DS/{NODES}", offline("TPC-DS", NODES, OFFLINE), figure_4, "", draw_4,
               1.3),
        Figure("figure 5", "the online case, TPC-DS", f"online/TPC-DS/{NODES}",
               trials("TPC-DS", ONLINE_JOBS, NODES, ("carbyne", "tetris", "sjf", LENDS, STRICT),
                      mean_s=ONLINE_S),
               figure_5, f"{ONLINE_JOBS} jobs, one every {ONLINE_S:g} s on average.", None, 1.8),
        _factors("table 3", "TPC-DS", TABLE_3, True),
        _factors("table 3 b", "TPC-H", TABLE_3, False),
        _factors("table 3 c", "BigBench", TABLE_3, False),
        _factors("table 4", "TPC-DS", TABLE_4, False),
        Figure("figure 9", "gains by load, TPC-DS", "online/TPC-DS", load_cases(), figure_9,
               f"The jobs of figure 5 on {', '.join(str(n) for n in LOADS.values())} machines. The "
               "paper's numbers are those of its text; its bars have none.", draw_9, 3.0),
        Figure("figure 10", "wrong estimates", f"errors/TPC-DS/{SMALL_NODES}", error_cases(),
               figure_10, f"{SMALL_JOBS} jobs on {SMALL_NODES} machines. "
               "Demands and durations of all stages are off by as much; memory is shared here like "
               "the rest, so that no task dies of a wrong estimate.", draw_10, 0.4),
        Figure("figure 11", "how often jobs are altruistic", f"altruism/TPC-DS/{SMALL_NODES}",
               altruism_cases(), figure_11, f"{SMALL_JOBS} jobs on {SMALL_NODES} machines.",
               draw_11, 0.4),
    ),
    {
        "figures 1, 3": "an illustration of figure 4, and the architecture (ARCHITECTURE.md)",
        "figure 2": "a worked example: `tests/golden`, every value",
        "figure 8": "one run's timeline: `weft simulate ... --out DIR` writes it as `report.html`",
        "table 4, Facebook and Microsoft": "the traces are not public",
    },
)  # fmt: skip
