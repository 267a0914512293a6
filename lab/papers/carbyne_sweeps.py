"""Carbyne's figures 9 to 12: one thing varied at a time, on TPC-DS."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from lab.papers.digest import Case
from lab.papers.page import Figure, Line, against, bars, over
from lab.papers.runs import SCALE, jct, jct_factor, job_factor, trials
from lab.papers.verdict import FACTOR, SHARE
from lab.studies.trials import Rows, interval

NODES = 12
# Machines for each load: 24 stand for the paper's 100.
LOADS = {1: 24, 2: NODES, 4: 6, 6: 4}
STRICT, LENDS = "drf_strict", "drf"
FEW = ("carbyne", "tetris", LENDS, STRICT)
# Half of both, for sweeps of many runs.
SMALL_JOBS, SMALL_NODES = 20, 6
ERRORS = (-50, -25, 0, 25, 50)
ALTRUISM = (0.0, 0.01, 0.25, 0.5, 0.75, 1.0)
# Section 5.1 has Poisson arrivals with a mean of 20 s.
ONLINE_JOBS, ONLINE_S = 60, 20.0


def load_cases() -> dict[str, Case]:
    """Return four sizes of cluster under the same jobs, which come over time."""
    found: dict[str, Case] = {}
    for nodes in LOADS.values():
        own = trials("TPC-DS", ONLINE_JOBS, nodes, FEW, mean_s=ONLINE_S)
        found |= {f"{nodes}/{name}": trial for name, trial in own.items()}
    return found


AT_LOADS = {1: "", 2: "1.76 to 1.91", 4: "", 6: ""}


def most(rows: Rows, pairs: Sequence[tuple[str, str]]) -> tuple[float, float]:
    """Return the most that Carbyne gains over any baseline, as `up to` in the paper."""
    return max(against(rows, own, base, jct_factor) for own, base in pairs)


def figure_9(rows: Rows) -> list[Line]:
    """Return gains by load, and what they are of those at the load before."""
    pairs = [(f"{LOADS[1]}/carbyne", f"{LOADS[1]}/{base}") for base in (LENDS, "tetris")]
    lines = [Line("over any of them, the most, load 1 x", "1.57", most(rows, pairs), FACTOR)]
    for base in (LENDS, "tetris", STRICT):
        gains = {
            load: [
                jct_factor(b, own)
                for b, own in zip(rows[f"{n}/{base}"], rows[f"{n}/carbyne"], strict=True)
            ]
            for load, n in LOADS.items()
        }
        for load, found in gains.items():
            paper = AT_LOADS[load] if base == LENDS else ""
            lines.append(Line(f"over {base}, load {load} x", paper, interval(found), FACTOR))
        for load, before, words in ((4, 2, "above 1"), (6, 4, "1")):
            part = [own / first for own, first in zip(gains[load], gains[before], strict=True)]
            what = f"over {base}, load {load} x, of that at {before} x"
            paper = words if base == LENDS else ""
            lines.append(Line(what, paper, interval(part), FACTOR, _LESS[base]))
    for load, nodes in LOADS.items():
        used = over(rows, f"{nodes}/carbyne", lambda row: 100 * row["used"])
        lines.append(Line(f"used of what is used most, carbyne, load {load} x, %", "", used, SHARE))
    return lines


_LESS = {
    STRICT: "a share of scaled machines is less than a task (figure 9 b)",
    LENDS: "more of a job's end is due to its share, and it yields less "
    "([unscaled](../carbyne.md#sensitivity))",
    "tetris": "",
}
# SCALE divides these machines of each load.
WHOLE = {load: nodes * SCALE for load, nodes in LOADS.items() if load > 1}


def whole_cases() -> dict[str, Case]:
    """Return the same jobs with all of their tasks, on machines of that number."""
    found: dict[str, Case] = {}
    for nodes in WHOLE.values():
        own = trials("TPC-DS", ONLINE_JOBS, nodes, ("carbyne", STRICT), mean_s=ONLINE_S, scale=1)
        found |= {f"{nodes}/{name}": trial for name, trial in own.items()}
    return found


def figure_9_b(rows: Rows) -> list[Line]:
    """Return gains by load where nothing is scaled."""
    return [
        Line(
            f"over {STRICT}, load {load} x",
            "",
            against(rows, f"{nodes}/carbyne", f"{nodes}/{STRICT}", jct_factor),
            FACTOR,
        )
        for load, nodes in WHOLE.items()
    ]


def draw_9(rows: Rows, axes: Any) -> None:
    """Draw factors by load."""
    bars(
        axes,
        [f"{load} x" for load in LOADS],
        {
            f"over {base}": [
                against(rows, f"{n}/carbyne", f"{n}/{base}", jct_factor) for n in LOADS.values()
            ]
            for base in (STRICT, LENDS, "tetris")
        },
    )
    axes.set(ylabel="mean JCT over Carbyne's", xlabel="load")


def error_cases() -> dict[str, Case]:
    """Return trials with estimates off by as much in all stages."""
    found: dict[str, Case] = {}
    for error in ERRORS:
        own = trials(
            "TPC-DS",
            SMALL_JOBS,
            SMALL_NODES,
            ("carbyne", STRICT, "tetris"),
            error=error / 100 or 1e-9,
        )
        found |= {f"{name}, {error:+d} %": trial for name, trial in own.items()}
    return found


def figure_10(rows: Rows) -> list[Line]:
    """Return mean JCT over Carbyne's by the error of estimates."""
    return [
        Line(
            f"over {base}, {error:+d} %",
            "above 1" if base == "tetris" and error else "",
            against(rows, f"carbyne, {error:+d} %", f"{base}, {error:+d} %", jct_factor),
            FACTOR,
        )
        for base in ("tetris", STRICT)
        for error in ERRORS
    ]


def draw_10(rows: Rows, axes: Any) -> None:
    """Draw factors by error."""
    bars(
        axes,
        [f"{e:+d} %" if e else "none" for e in ERRORS],
        {
            f"over {base}": [
                against(rows, f"carbyne, {e:+d} %", f"{base}, {e:+d} %", jct_factor) for e in ERRORS
            ]
            for base in (STRICT, "tetris")
        },
    )
    axes.set(ylabel="mean JCT over Carbyne's", xlabel="error of estimated demands and durations")


def altruism_cases() -> dict[str, Case]:
    """Return trials with jobs that yield with less than certainty."""
    found: dict[str, Case] = {}
    for part in ALTRUISM:
        options = {"asker.altruism": part}
        own = trials("TPC-DS", SMALL_JOBS, SMALL_NODES, ("carbyne",), options=options)
        found[f"P {part:g}"] = own["carbyne"]
    return found | trials("TPC-DS", SMALL_JOBS, SMALL_NODES, (STRICT, LENDS, "tetris"))


AT_PARTS = {0.5: "1.24", 1.0: "1.56"}


def figure_11(rows: Rows) -> list[Line]:
    """Return mean JCT over Carbyne's by P(Altruism)."""
    lines = []
    for part in ALTRUISM:
        gain = most(rows, [(f"P {part:g}", base) for base in (LENDS, "tetris")])
        what = f"over any of them, the most, P(Altruism) {part:g}"
        why = "most of it is the order of leftovers, not yielding: see P 0.01"
        paper = AT_PARTS.get(part, "")
        lines.append(Line(what, paper, gain, FACTOR, why if paper else ""))
    for base in (LENDS, "tetris", STRICT):
        for part in ALTRUISM:
            own = against(rows, f"P {part:g}", base, jct_factor)
            paper = "1 (comparable)" if not part and base != STRICT else ""
            lines.append(Line(f"over {base}, P(Altruism) {part:g}", paper, own, FACTOR))
    for part, why in (
        (0.01, "what exceeds a share goes to the job with least left, if P > 0"),
        (1.0, "the same, and what jobs yield of their shares"),
    ):
        gain = against(rows, f"P {part:g}", "P 0", jct_factor)
        what = f"over itself at P(Altruism) 0, at {part:g}"
        lines.append(Line(what, "", gain, FACTOR, why))
    return lines


def draw_11(rows: Rows, axes: Any) -> None:
    """Draw factors by P(Altruism)."""
    bars(
        axes,
        [f"{p:g}" for p in ALTRUISM],
        {
            f"over {base}": [against(rows, f"P {p:g}", base, jct_factor) for p in ALTRUISM]
            for base in (STRICT, LENDS, "tetris")
        },
    )
    axes.set(ylabel="mean JCT over Carbyne's", xlabel="P(Altruism)")


def figure_12(rows: Rows) -> list[Line]:
    """Return factors by job over DRF of Carbyne with either planner inside the job."""
    lines = []
    for base in (LENDS, STRICT):
        for name, theirs in (("carbyne", "2.36"), ("carbyne_graphene", "3.41")):
            for p in (50, 75):
                gain = against(rows, name, base, partial(job_factor, p))
                paper = theirs if p == 75 and base == LENDS else ""
                lines.append(Line(f"`{name}` over {base}, p{p}", paper, gain, FACTOR))
    better = against(
        rows, "carbyne_graphene", "carbyne", lambda b, own: float(100 * np.mean(jct(own) < jct(b)))
    )
    lines.append(Line("% of jobs that are faster with the planner", "at least 50", better, SHARE))
    return lines


FIGURES = (
    Figure(
        "figure 9",
        "gains by load, TPC-DS",
        load_cases(),
        figure_9,
        f"The jobs of figure 5 on {', '.join(str(n) for n in LOADS.values())} machines. The "
        "paper's numbers are those of its text; its bars have none.",
        draw_9,
        3.0,
    ),
    Figure(
        "figure 9 b",
        "gains by load, nothing scaled, TPC-DS",
        whole_cases(),
        figure_9_b,
        f"The jobs of figure 5 with all of their tasks on {', '.join(map(str, WHOLE.values()))} "
        "machines: the same load, and shares that hold tasks.",
        None,
        12.0,
    ),
    Figure(
        "figure 10",
        "wrong estimates",
        error_cases(),
        figure_10,
        f"{SMALL_JOBS} jobs on {SMALL_NODES} machines. "
        "Demands and durations of all stages are off by as much; memory is shared here like "
        "the rest, so that no task dies of a wrong estimate.",
        draw_10,
        0.4,
    ),
    Figure(
        "figure 11",
        "how often jobs are altruistic",
        altruism_cases(),
        figure_11,
        f"{SMALL_JOBS} jobs on {SMALL_NODES} machines.",
        draw_11,
        0.4,
    ),
    Figure(
        "figure 12",
        "Graphene's planner inside the job, TPC-DS",
        trials(
            "TPC-DS",
            ONLINE_JOBS,
            NODES,
            ("carbyne", "carbyne_graphene", LENDS, STRICT),
            mean_s=ONLINE_S,
        ),
        figure_12,
        "The runs of figure 5; the planner that the paper calls DAGPS is Graphene's.",
        None,
        3.0,
    ),
)
