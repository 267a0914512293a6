"""Graphene's figures 23 and 24, tables 5 and 6: small runs on TPC-DS under many conditions."""

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from lab.papers.digest import Case
from lab.papers.page import Figure, Line, against, bars, over
from lab.papers.runs import SCALE, file_of, jct_gain, scheduler, span_gain
from lab.papers.verdict import FACTOR, INDEX, SAVED
from lab.studies.matching import thinned
from lab.studies.runs import finished, machines, picked_jobs, spread
from lab.studies.trials import Rows, interval
from sim.reshape import fit, misestimate
from sim.results import dominant_shares, jain_index, jct_s, makespan_s
from weft.model.queues import QueueSpec
from weft.policies.presets import Preset

# The paper has 120 jobs and 200 machines; SCALE divides the tasks as well.
JOBS, NODES = 20, 6
# A higher load is the same work on fewer machines.
LOADS = {1: 12, 2: 6, 4: 3, 6: 2}
# Tez as the paper has it, for all figures: Graphene's page says why.
BASE = "tez, p90 of cores and memory"
CP, TETRIS = "tez_cp, p90 of cores and memory", "tez_tetris, p90 containers"
AT_LOADS = (BASE, "tez", "graphene")
# These matchers ignore the orders that masters prefer.
ORDER_BLIND_MATCHERS = ("tez_g_cs", "tez_g_tetris")
ERRORS = {
    "-75 to -50": (-0.75, -0.5),
    "-50 to -25": (-0.5, -0.25),
    "0": (-1e-9, 1e-9),
    "+25 to +50": (0.25, 0.5),
    "+50 to +75": (0.5, 0.75),
}
WITH_ERRORS = ("tez_cp", "tez_tetris", "graphene")
QUEUES = QueueSpec("root", children=(QueueSpec("a", 0.5), QueueSpec("b", 0.5)))
SHARED = ("tez", "drf", "tez_tetris", "graphene")
TABLE_5 = {
    "tez": (-13, 0.82, 0.86, 0.88),
    "drf": (-12, 0.85, 0.89, 0.90),
    "tez_tetris": (-10, 0.77, 0.81, 0.92),
    "graphene": (2, 0.72, 0.83, 0.89),
}
WINDOWS_S = (10.0, 60.0, 240.0)


def run(
    nodes: int, scheme: Preset, error: tuple[float, float] | None, two_queues: bool, seed: int
) -> dict[str, Any]:
    """Run once in YARN's pace; with `error`, relative by stage, memory is shared like the rest."""
    jobs = [thinned(job, SCALE) for job in picked_jobs("TPC-DS", JOBS, seed)]
    jobs = spread(jobs, ARRIVALS_S, seed)
    if error is not None:
        jobs = fit(misestimate(jobs, *error, seed), machines(1))
    cluster = machines(nodes, "memory" if error is None else "")
    if two_queues:
        to = np.random.default_rng([seed, 33]).permutation(np.arange(JOBS) % 2).tolist()
        jobs = [replace(job, queue="ab"[queue]) for job, queue in zip(jobs, to, strict=True)]
        cluster = replace(cluster, queues=QUEUES)
    found, _ = finished(jobs, cluster, scheme, None, seed)
    shares = dominant_shares(found)
    jain = [jain_index(found, window_s, shares) for window_s in WINDOWS_S]
    return {
        "jct_s": [round(float(jct_s(row)), 1) for row in found.jobs],
        "makespan_s": round(makespan_s(found), 1),
        "jain": [None if math.isnan(each) else round(each, 4) for each in jain],
    }


def _case(
    nodes: int, scheme: str, error: tuple[float, float] | None = None, two_queues: bool = False
) -> Case:
    arguments = (nodes, scheduler(scheme), error, two_queues)
    return Case(run, arguments, files=(file_of("TPC-DS"),))


# Mean time between arrivals for completion times (section 8.1) and, for makespans, within the first
# few minutes.
ARRIVALS_S, BURST_S = 25.0, 3.0
LOAD_CASES = {f"{n}/{s}": _case(n, s) for n in LOADS.values() for s in AT_LOADS}
BLIND_CASES = {f"{NODES}/{s}": _case(NODES, s) for s in (*ORDER_BLIND_MATCHERS, "graphene")}
ERROR_CASES = {f"{e}/{s}": _case(NODES, s, how) for e, how in ERRORS.items() for s in WITH_ERRORS}
# On so many machines hardly a task waits.
IDLE_MACHINES = 48
ERROR_CASES |= {
    f"{e}/{IDLE_MACHINES}/{s}": _case(IDLE_MACHINES, s, ERRORS[e])
    for e in ("0", "+25 to +50", "+50 to +75")
    for s in WITH_ERRORS
}
QUEUE_CASES = {
    f"{count}/{s}": _case(NODES, s, None, count == 2) for count in (1, 2) for s in SHARED
}


# In the paper, the gain is by so much larger than at load 1.
MORE = {2: "+10", 6: "+15"}


def figure_23(rows: Rows) -> list[Line]:
    """Return median JCT and makespan saved over Tez by load, and how much more than at load 1."""
    lines = []
    for base in (BASE, "tez"):
        for what, number in (("median JCT", partial(jct_gain, 50)), ("makespan", span_gain)):
            gains = {
                load: [
                    number(b, own)
                    for b, own in zip(
                        rows[f"{nodes}/{base}"], rows[f"{nodes}/graphene"], strict=True
                    )
                ]
                for load, nodes in LOADS.items()
            }
            for load, found in gains.items():
                words = f"{what} saved over `{base}`, load {load} x"
                lines.append(Line(f"{words}, %", "", interval(found), SAVED))
                if load > 1:
                    more = [own - at_1 for own, at_1 in zip(found, gains[1], strict=True)]
                    paper = MORE.get(load, "") if base == BASE else ""
                    lines.append(Line(f"{words}, more than at 1 x", paper, interval(more), SAVED))
    for load, nodes in LOADS.items():
        held = over(rows, f"{nodes}/tez", partial(_held, nodes))
        lines.append(
            Line(f"machines times makespan, `tez`, load {load} x, 1,000 s", "", held, FACTOR)
        )
    return lines


def _held(nodes: int, row: Mapping[str, Any]) -> float:
    return float(row["makespan_s"] * nodes / 1e3)


def draw_23(rows: Rows, axes: Any) -> None:
    """Draw median JCT saved."""
    bars(
        axes,
        [f"{load} x" for load in LOADS],
        {
            f"over {base}": [
                against(rows, f"{n}/graphene", f"{n}/{base}", partial(jct_gain, 50))
                for n in LOADS.values()
            ]
            for base in AT_LOADS[:2]
        },
    )
    axes.set(ylabel="median JCT saved, %", xlabel="load")


def table_6(rows: Rows) -> list[Line]:
    """Return what masters' preferred orders are worth where the cluster's matcher knows them."""
    lines = []
    # The text and the table differ at the median.
    for name, theirs in zip(
        ORDER_BLIND_MATCHERS, (("24.6 to 28", "35.4"), ("22.5 to 26", "32.2")), strict=True
    ):
        pair = f"{NODES}/graphene", f"{NODES}/{name}"
        for p, paper in zip((50, 75), theirs, strict=True):
            gain = against(rows, *pair, partial(jct_gain, p))
            lines.append(Line(f"JCT saved over `{name}`, p{p}, %", paper, gain, SAVED))
        span = against(rows, *pair, span_gain)
        lines.append(Line(f"makespan saved over `{name}`, %", "", span, SAVED))
    return lines


def figure_24(rows: Rows) -> list[Line]:
    """Change of the median job's completion time when estimates are off."""
    lines = []
    for scheme in WITH_ERRORS:
        for error in ERRORS:
            if error == "0":
                continue
            why = ""
            if error[0] == "+":
                why = (
                    "machines hold fewer tasks; where few wait it is less "
                    f"(on {IDLE_MACHINES}, below); "
                )
            lines.append(_changed(rows, f"{error}/{scheme}", f"0/{scheme}", scheme, error, why))
    for scheme in WITH_ERRORS:
        for error in ("+25 to +50", "+50 to +75"):
            own, base = (f"{e}/{IDLE_MACHINES}/{scheme}" for e in (error, "0"))
            lines.append(
                _changed(rows, own, base, scheme, f"{error} %, {IDLE_MACHINES} machines", "")
            )
    return lines


def _changed(rows: Rows, own: str, base: str, scheme: str, error: str, why: str) -> Line:
    change, span = (
        against(rows, own, base, number) for number in (partial(jct_gain, 50), span_gain)
    )
    error = error if "machines" in error else f"{error} %"
    return Line(
        f"`{scheme}`, estimates off by {error}, median JCT changes by, %",
        "small" if scheme == "graphene" else "about as Graphene",
        (-change[0], change[1]),
        SAVED,
        f"{why}makespan {SAVED.told((-span[0], span[1]))} %",
    )


def table_5(rows: Rows) -> list[Line]:
    """Return two queues against one, and Jain's index over three windows."""
    lines = []
    for scheme, (gap, *papers) in TABLE_5.items():
        ours = against(rows, f"2/{scheme}", f"1/{scheme}", _median_gain)
        what = f"`{scheme}`, median JCT, two queues against one, %"
        lines.append(Line(what, f"{gap:+d}", ours, SAVED))
        for place, (window_s, paper) in enumerate(zip(WINDOWS_S, papers, strict=True)):
            jain = over(rows, f"2/{scheme}", partial(_jain, place))
            what = f"`{scheme}`, Jain's index, {window_s:g} s"
            lines.append(Line(what, f"{paper:.2f}", jain, INDEX))
    return lines


def _median_gain(base: Mapping[str, Any], own: Mapping[str, Any]) -> float:
    return float(100 * (1 - np.median(own["jct_s"]) / np.median(base["jct_s"])))


def _jain(place: int, row: Mapping[str, Any]) -> float:
    found = row["jain"][place]
    return math.nan if found is None else float(found)


_SMALL = (
    f"{JOBS} jobs, one every {ARRIVALS_S:g} s on average, tasks of every stage divided by {SCALE}"
)
FIGURES = (
    Figure(
        "figure 23",
        "gains by load, TPC-DS",
        LOAD_CASES,
        figure_23,
        f"{_SMALL}; on {', '.join(str(n) for n in LOADS.values())} machines.",
        draw_23,
        0.4,
        also="section 8.4",
    ),
    Figure(
        "figure 24",
        "wrong estimates, TPC-DS",
        ERROR_CASES,
        figure_24,
        f"{_SMALL}; {NODES} machines. Positive: slower than with right estimates under the same "
        "scheduler. Memory is shared like the rest, so that no task dies of a wrong estimate. "
        "Over-estimates delay under every scheduler alike, as the paper says: where the cluster "
        "is full, by about what they are off, as it holds so many fewer tasks; little, as the "
        f"paper has it, where hardly a task waits, on {IDLE_MACHINES} machines.",
        None,
        0.4,
    ),
    Figure(
        "table 5",
        "two queues and one, TPC-DS",
        QUEUE_CASES,
        table_5,
        f"{_SMALL}; {NODES} machines; half of the jobs at random in each of two queues that are "
        "guaranteed a half. The index is of jobs, by what each holds; the paper does not say of "
        "whom.",
        None,
        0.4,
    ),
    Figure(
        "table 6",
        "the preferred orders without a matcher that enforces them",
        BLIND_CASES,
        table_6,
        f"{_SMALL}; {NODES} machines.",
        None,
        0.4,
    ),
)
