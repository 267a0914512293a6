"""Carbyne's figures 9 to 12: one thing varied at a time, on TPC-DS."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from lab.papers.digest import Case
from lab.papers.page import Figure, Line, against, bars, over, told
from lab.papers.runs import SCALE, jct, jct_factor, job_factor, trials
from lab.studies.trials import Rows

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


AT_LOADS = {1: "", 2: "1.76 to 1.91", 4: "more than at 2 x", 6: "as at 4 x"}


def most(rows: Rows, pairs: Sequence[tuple[str, str]]) -> str:
    """Return the most that Carbyne gains over any baseline, as `up to` in the paper."""
    return told(max(against(rows, own, base, jct_factor) for own, base in pairs), 2)


_LESS = {
    STRICT: "falls mostly as a share of scaled machines is less than a task (figure 9 b); that it "
    "does not grow is not explained",
    LENDS: "does not: more of a job's end is due to its share, and it yields less "
    "([unscaled](../carbyne.md#sensitivity))",
    "tetris": "does not; not known",
}


def figure_9(rows: Rows) -> list[Line]:
    """Return gains by load."""
    bases = (STRICT, LENDS, "tetris")
    pairs = [(f"{LOADS[1]}/carbyne", f"{LOADS[1]}/{base}") for base in bases]
    lines = [Line("mean JCT over any of them, the most, load 1 x", "1.57", most(rows, pairs))]
    for load, nodes in LOADS.items():
        for base in bases:
            ours = against(rows, f"{nodes}/carbyne", f"{nodes}/{base}", jct_factor)
            at_2 = against(rows, f"{LOADS[2]}/carbyne", f"{LOADS[2]}/{base}", jct_factor)
            why = "not known" if load == 2 else ""
            if load > 2:
                why = "agrees" if np.mean(ours) > np.mean(at_2) else _LESS[base]
            lines.append(
                Line(f"mean JCT over {base}, load {load} x", AT_LOADS[load], told(ours, 2), why)
            )
        used = over(rows, f"{nodes}/carbyne", lambda row: 100 * row["used"])
        lines.append(
            Line(f"used of what is used most, carbyne, load {load} x, %", "", told(used, 0))
        )
    return lines


# SCALE divides these machines of each load.
WHOLE = {load: nodes * SCALE for load, nodes in LOADS.items() if load > 1}


def whole_cases() -> dict[str, Case]:
    """Return the same jobs with all of their tasks, on machines of that number."""
    found: dict[str, Case] = {}
    for nodes in WHOLE.values():
        own = trials("TPC-DS", ONLINE_JOBS, nodes, ("carbyne", STRICT), mean_s=ONLINE_S, scale=1)
        found |= {f"{nodes}/{name}": trial for name, trial in own.items()}
    return found


_FLAT = {
    4: "does not grow; not known",
    6: "holds on where figure 9's, of scaled machines, falls further",
}


def figure_9_b(rows: Rows) -> list[Line]:
    """Return gains by load where nothing is scaled."""
    gains = {
        load: against(rows, f"{nodes}/carbyne", f"{nodes}/{STRICT}", jct_factor)
        for load, nodes in WHOLE.items()
    }
    lines = []
    for load, gain in gains.items():
        near = {4: gain[0] > gains[2][0], 6: abs(gain[0] - gains[4][0]) <= gain[1] + gains[4][1]}
        why = "not known" if load == 2 else "agrees" if near[load] else _FLAT[load]
        lines.append(
            Line(f"mean JCT over {STRICT}, load {load} x", AT_LOADS[load], told(gain, 2), why)
        )
    return lines


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
            "above 1" if base == STRICT else "",
            told(against(rows, f"carbyne, {error:+d} %", f"{base}, {error:+d} %", jct_factor), 2),
        )
        for base in (STRICT, "tetris")
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
    bases = (STRICT, LENDS, "tetris")
    lines = []
    for part in ALTRUISM:
        gain = most(rows, [(f"P {part:g}", base) for base in bases])
        what = f"over any of them, the most, P(Altruism) {part:g}"
        why = "most of it is the order of leftovers, not yielding: see P 0.01"
        lines.append(Line(what, AT_PARTS.get(part, ""), gain, why if part in AT_PARTS else ""))
    for base in bases:
        for part in ALTRUISM:
            own = against(rows, f"P {part:g}", base, jct_factor)
            paper, why = "", ""
            if not part:
                paper = "comparable"
                why = "agrees" if abs(own[0] - 1) <= 0.1 else "not known"
                why = "what strict DRF does not lend" if base == STRICT else why
            lines.append(Line(f"over {base}, P(Altruism) {part:g}", paper, told(own, 2), why))
    for part, why in (
        (0.01, "what exceeds a share goes to the job with least left, if P > 0"),
        (1.0, "the same, and what jobs yield of their shares"),
    ):
        gain = told(against(rows, f"P {part:g}", "P 0", jct_factor), 2)
        lines.append(Line(f"over itself at P(Altruism) 0, at {part:g}", "", gain, why))
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
                gain = told(against(rows, name, base, partial(job_factor, p)), 2)
                paper = theirs if p == 75 else ""
                lines.append(Line(f"`{name}` over {base}, p{p}", paper, gain))
    better = against(
        rows, "carbyne_graphene", "carbyne", lambda b, own: float(100 * np.mean(jct(own) < jct(b)))
    )
    lines.append(Line("% of jobs that are faster with the planner", "at least 50", told(better, 0)))
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
