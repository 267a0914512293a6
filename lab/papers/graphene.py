"""Graphene (OSDI 2016): figures 5, 6, 19, 21 and 23 to 25, tables 1 and 4 to 7."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np

from am.plan.bounds.bounds import bounds_of
from am.plan.registry import PlanRequest, planner
from am.plan.validate import violations
from am.sizes import UNIFORM
from lab.papers.digest import Case
from lab.papers.graphene_dags import FIGURE_5, FIGURE_25
from lab.papers.graphene_gain import FIGURES as GAINS
from lab.papers.graphene_runs import ARRIVALS_S, BASE, BURST_S, CP, TETRIS
from lab.papers.graphene_runs import FIGURES as SMALL_FIGURES
from lab.papers.page import ClaimRow, Figure, Line, Paper, against, bars, over
from lab.papers.runs import jct_gain, span_gain, trials
from lab.papers.verdict import FACTOR, INDEX, SAVED, SHARE
from lab.studies.trials import Rows
from weft.model.dag import Dag, Machines, dag_of_job
from weft.model.errors import InvariantError
from weft.model.resources import ResourceType, ResourceTypes, guess_kind
from weft.workloads.synth import generate

PUBLISHED = {
    "TPC-DS": ((2.0, 1.9, 16.0), (4.1, 6.5, 27.8), (8.9, 16.6, 45.7), (2.1, 8.2, 30.9)),
    "TPC-H": ((1.8, 1.5, 7.6), (3.8, 8.9, 30.5), (7.7, 15.0, 48.3), (4.3, 9.6, 27.5)),
    "BigBench": ((4.1, 2.0, 5.6), (6.4, 6.2, 25.0), (21.7, 18.5, 33.3), None),
}
# Each workload has figure 19 b at three percentiles, then table 4.
PUBLISHED_BY_WORKLOAD: Any = PUBLISHED
# The paper has 120 jobs and 200 machines.
JOBS, NODES = 40, 30
BOUNDS = "bounds"
P90, LARGEST = "tez, p90 containers", "tez, largest containers"
KEPT = "tez, p90 containers kept"
# Other kinds of Tez, to show what a gain owes to its baseline.
BASES = ("tez", "tez, cores and memory", "tez, p75 containers", P90, KEPT, LARGEST)
TABLE_7 = {
    "graphene": (7, 25, 57, 74),
    "random": (-2, 0, 1, 4),
    "critical_path": (1, 4, 13, 16),
    "tetris": (0, 7, 29, 42),
    "strip_part": (0, 1, 12, 27),
    "coffman_graham": (0, 1, 12, 26),
}
PERCENTILES = (25, 50, 75, 90)
# Each seed plans so many DAGs, each with so many tasks.
DAGS, TASKS = 12, (30, 300)
# With fewer, one stage is most of the DAG.
STAGES_MIN = 5
# The mean task demands this fraction of a machine of every resource.
MEAN = 0.15
SIZES = ("p75", "p90", "largest")


def table_4(workload: str, rows: Rows) -> list[Line]:
    """Return makespan saved against Tez, and beside it against other kinds of Tez."""
    paper = PUBLISHED_BY_WORKLOAD[workload][3]
    lines = []
    for name, theirs in zip((CP, TETRIS, "graphene"), paper, strict=True):
        gain = against(rows, name, BASE, span_gain)
        lines.append(Line(f"`{name}` over `{BASE}`, %", f"+{theirs}", gain, SAVED))
    bases = [base for base in BASES if base in rows]
    for base in bases:
        gain = against(rows, "graphene", base, span_gain)
        lines.append(Line(f"`graphene` over `{base}`, %", "", gain, SAVED, _WHY[base]))
    for name in ("graphene", BASE, *bases):
        used = over(rows, name, lambda row: 100 * row["used"])
        lines.append(Line(f"used of what is used most, `{name}`, %", "", used, SHARE))
    return lines


_LESS_UNUSED = "smaller containers leave less unused: the rows of use below"
_WHY = {
    "tez": "asks for what each task needs, of every resource: packing has little left to win",
    "tez, cores and memory": "what it over-allocates slows down",
    "tez, p75 containers": _LESS_UNUSED,
    P90: "the same of every resource",
    KEPT: "the same, one task after another in each",
    LARGEST: "larger containers leave more unused: the rows of use below",
}


def draw_4(workload: str, rows: Rows, axes: Any) -> None:
    """Draw makespan saved."""
    paper = PUBLISHED_BY_WORKLOAD[workload][3]
    bases = [BASE, *(base for base in BASES if base in rows)]
    names = [base.removeprefix("tez, ").replace(" ", "\n") for base in bases]
    gains = [against(rows, "graphene", base, span_gain) for base in bases]
    theirs = [paper[2], *[math.nan] * (len(bases) - 1)]
    bars(axes, names, {"graphene": gains}, {"graphene": theirs})
    axes.tick_params(axis="x", labelsize=7)
    axes.set_ylabel(f"makespan saved, {workload}, %")


def figure_19(workload: str, rows: Rows) -> list[Line]:
    """Return completion times saved at three percentiles over jobs, by Graphene and two others."""
    lines = []
    for column, name in enumerate((CP, TETRIS, "graphene")):
        for place, p in enumerate(PERCENTILES[:3]):
            gain = against(rows, name, BASE, partial(jct_gain, p))
            theirs = PUBLISHED_BY_WORKLOAD[workload][place][column]
            lines.append(Line(f"`{name}` over `{BASE}`, p{p}, %", f"{theirs:+.1f}", gain, SAVED))
    for base, names in (("tez", ("tez_cp", "tez_tetris", "graphene")), (P90, ("graphene",))):
        for name in names:
            for p in PERCENTILES[:3]:
                gain = against(rows, name, base, partial(jct_gain, p))
                lines.append(Line(f"`{name}` over `{base}`, p{p}, %", "", gain, SAVED))
    return lines


def draw_19(workload: str, rows: Rows, axes: Any) -> None:
    """Draw completion times saved."""
    bars(
        axes,
        [f"p{p}" for p in PERCENTILES[:3]],
        {
            f"over {base}": [
                against(rows, "graphene", base, partial(jct_gain, p)) for p in PERCENTILES[:3]
            ]
            for base in ("tez", BASE)
        },
        {f"over {BASE}": [PUBLISHED_BY_WORKLOAD[workload][i][2] for i in range(3)]},
    )
    axes.set_ylabel(f"JCT saved, {workload}, %")


# -- one DAG at a time -----------------------------------------------------------------------------


def in_containers(dag: Dag, choice: str) -> Dag:
    """Return the DAG of a job whose tasks have one container size: the percentile's, or more."""
    rank = math.ceil(UNIFORM[choice] * dag.tasks - 1e-9) - 1
    return replace(dag, demand=np.maximum(dag.demand, np.sort(dag.demand, axis=0)[rank]))


@cache
def drawn(seed: int) -> tuple[tuple[Dag, Machines], ...]:
    """Return DAGs after the paper's marginals (`weft generate graphene`), with their machines.

    Each has as many machines as make its work as long as its critical path. A machine holds what
    `MEAN` says of the mean demand, or the largest task.
    """
    rng = np.random.default_rng([seed, 41])
    found: list[tuple[Dag, Machines]] = []
    for job in generate("graphene", 1_000_000, rng):
        if len(found) == DAGS:
            break
        if len(job.stages) < STAGES_MIN or not TASKS[0] <= job.task_count <= TASKS[1]:
            continue
        names = dict.fromkeys(name for stage in job.stages for name in stage.demand)
        types = ResourceTypes(tuple(ResourceType(name, guess_kind(name)) for name in names))
        dag = dag_of_job(job, types)
        room = np.maximum(dag.demand.max(axis=0), dag.demand.mean(axis=0) / MEAN).tolist()
        alone = bounds_of(dag, Machines.alike(1, room), 0)
        found.append((dag, Machines.alike(max(1, round(alone.t_work_s / alone.cp_len_s)), room)))
    return tuple(found)


def planned(name: str, seed: int) -> dict[str, Any]:
    """Return makespans of a planner on a seed's DAGs over bounds; `bfs, p90` in containers."""
    kind, _, choice = name.partition(", ")
    made, path, work, new = [], [], [], []
    for dag, machines in drawn(seed):
        seen = in_containers(dag, choice) if choice else dag
        plan = planner(kind)(PlanRequest(seen, machines, np.random.default_rng(seed), {}))
        broken = violations(dag, machines, plan.machine, plan.start_s, plan.end_s)
        if broken:
            raise InvariantError(f"{name}, seed {seed}: {broken[0]}")
        bounds = bounds_of(dag, machines, 0)
        made.append(round(plan.makespan_s, 3))
        path.append(round(bounds.cp_len_s, 3))
        work.append(round(bounds.t_work_s, 3))
        new.append(round(bounds.new_lb_s, 3))
    return {"makespan_s": made, "cp_len_s": path, "t_work_s": work, "new_lb_s": new}


def bounded(seed: int) -> dict[str, Any]:
    """Return Weft's own lower bound of a seed's DAGs, which knows machines and order better."""
    found = [bounds_of(dag, machines).strong_lb_s for dag, machines in drawn(seed)]
    return {"strong_lb_s": [round(each, 3) for each in found]}


def planners(*names: str) -> dict[str, Case]:
    """Return a case for each."""
    return {
        name: Case(planned, (name,), planners=(name.partition(", ")[0],))
        for name in dict.fromkeys(names)
    }


def gap(bound: str, p: float, row: dict[str, Any]) -> float:
    """Return a percentile over DAGs of 1 - bound / makespan (figure 6)."""
    return float(np.percentile(1 - np.array(row[bound]) / np.array(row["makespan_s"]), p))


def saved(p: float, base: dict[str, Any], own: dict[str, Any]) -> float:
    """Return a percentile over DAGs of the makespan saved, % (table 7)."""
    return float(np.percentile(100 * (1 - np.array(own["makespan_s"]) / base["makespan_s"]), p))


# Tez's order in Tez's containers, for planners as well.
PLANNED_BASE = "bfs, p90"
FIGURE_6 = ("bfs", *(f"bfs, {size}" for size in SIZES), "graphene")


def figure_6(rows: Rows) -> list[Line]:
    """Return the median gap of a DAG's runtime to its critical path and to its work."""
    lines = []
    for name in FIGURE_6:
        for bound, text, theirs in (
            ("cp_len_s", "CPLength", "> 0.70"),
            ("t_work_s", "TWork", "> 0.70"),
            ("new_lb_s", "NewLB", "> 0.50"),
        ):
            ours = over(rows, name, partial(gap, bound, 50))
            paper = theirs if name == PLANNED_BASE else ""
            lines.append(Line(f"`{name}`, gap to {text}, p50", paper, ours, INDEX))
    # Section 8.3 gives these percentiles.
    for p, theirs in ((50, "1.04"), (75, "1.13")):
        ours = over(rows, "graphene", partial(_over_new_lb, p))
        strong = against(rows, "graphene", BOUNDS, partial(_over_strong, p))
        what = f"`graphene`, makespan over NewLB, p{p} (section 8.3)"
        why = "NewLB is loose on these machines: the line below"
        lines += [
            Line(what, theirs, ours, FACTOR, why),
            Line(f"`graphene`, makespan over Weft's own bound, p{p}", "", strong, FACTOR),
        ]
    return lines


def _over_strong(p: float, bounds: dict[str, Any], row: dict[str, Any]) -> float:
    ratio = np.array(row["makespan_s"]) / np.array(bounds["strong_lb_s"])
    return float(np.percentile(ratio, p))


def _over_new_lb(p: float, row: dict[str, Any]) -> float:
    return float(np.percentile(np.array(row["makespan_s"]) / np.array(row["new_lb_s"]), p))


def draw_6(rows: Rows, axes: Any) -> None:
    """Draw distributions over the DAGs of all seeds."""
    for name in FIGURE_6:
        for bound, style in (("cp_len_s", "-"), ("t_work_s", ":")):
            found = np.sort(
                np.concatenate(
                    [1 - np.array(row[bound]) / np.array(row["makespan_s"]) for row in rows[name]]
                )
            )
            at = f"C{FIGURE_6.index(name)}"
            label = name if style == "-" else None
            axes.step(
                found,
                np.arange(1, len(found) + 1) / len(found),
                style,
                where="post",
                color=at,
                label=label,
            )
    axes.axvline(0.7, color="black", linewidth=0.8)
    axes.set(xlabel="gap to CPLength (lines) and TWork (dots)", ylabel="share of DAGs", xlim=(0, 1))
    axes.legend(frameon=False, fontsize=7)


def table_7(rows: Rows) -> list[Line]:
    """Return makespan saved at four percentiles over a breadth first order in containers."""
    lines = []
    for name, theirs in TABLE_7.items():
        for p, paper in zip(PERCENTILES, theirs, strict=True):
            ours = against(rows, name, PLANNED_BASE, partial(saved, p))
            lines.append(Line(f"`{name}` over `{PLANNED_BASE}`, p{p}, %", f"{paper}", ours, SAVED))
    for base in ("bfs", "bfs, p75", "bfs, largest"):
        for p in PERCENTILES:
            ours = against(rows, "graphene", base, partial(saved, p))
            lines.append(Line(f"`graphene` over `{base}`, p{p}, %", "", ours, SAVED))
    return lines


def draw_7(rows: Rows, axes: Any) -> None:
    """Draw figure 21: distributions of the makespan saved."""
    pairs = [("graphene", "bfs")] + [("graphene", f"bfs, {size}") for size in SIZES]
    for name, base in [*pairs, ("critical_path", "bfs"), ("tetris", "bfs")]:
        found = np.sort(
            np.concatenate(
                [
                    100 * (1 - np.array(own["makespan_s"]) / b["makespan_s"])
                    for b, own in zip(rows[base], rows[name], strict=True)
                ]
            )
        )
        axes.step(
            found,
            np.arange(1, len(found) + 1) / len(found),
            where="post",
            label=f"{name} over {base}",
        )
    axes.plot(
        TABLE_7["graphene"], [p / 100 for p in PERCENTILES], "ko", label="the paper's graphene"
    )
    axes.set(xlabel="makespan saved, %", ylabel="share of DAGs", xlim=(-20, 90))
    axes.legend(frameon=False, fontsize=7)


def _table_4(number: str, workload: str, bases: Sequence[str]) -> Figure:
    return Figure(
        number,
        f"makespan, gap from Tez, {workload}",
        trials(workload, JOBS, NODES, (*bases, "graphene"), mean_s=BURST_S, scale=1),
        partial(table_4, workload),
        f"{JOBS} jobs within {JOBS * BURST_S / 60:.0f} minutes on {NODES} machines, none scaled.",
        partial(draw_4, workload),
        3.5,
    )


PLANS = planners(
    *FIGURE_6,
    *(name for name in TABLE_7 if name != "graphene"),
    *(f"critical_path, {size}" for size in SIZES),
) | {BOUNDS: Case(bounded, planners=("bfs",))}
PAGE_TEXT = f"""
Queries of the benchmarks drawn at random on machines with six resources, in YARN's pace (1 s
heartbeats). What Graphene gains depends on what Tez is, so it is said once, by the paper's own
words, for all figures: Tez's containers are "a fixed amount of various resources", and YARN's
Capacity Scheduler sees cores and memory, while "ignoring disk and network usage leads to arbitrary
over-allocation". That is `{BASE}`: containers that nine tenths of the job's tasks fit in, of cores
and memory; disk and network are shared. Rows over any other Tez have no verdict: they show what a
gain owes to its baseline ([baselines](../papers.md)). For planners of single DAGs the same is
`{PLANNED_BASE}`, a breadth first order in such containers.

`graphene` is Weft's preset with overbooking of disk and network. In two points it is not as the
paper sets it: remaining work weighs 1 beside packing (the paper's m is 0.2), and the order of a
job's tasks counts from what is left ([why](../matching.md)).

Single DAGs are {DAGS} a seed after the paper's marginals (`weft generate graphene`), of {TASKS[0]}
to {TASKS[1]} tasks in {STAGES_MIN} stages or more, whose mean task takes {MEAN:.0%} of a machine;
each has as many machines as make its work as long as its critical path.
"""
PAGE_FIGURES = (
    FIGURE_5,
    Figure(
        "figure 6",
        "gap of a DAG's runtime to its bounds",
        PLANS,
        figure_6,
        "The paper's are production runs with all that happens there; ours are schedules, "
        "breadth first, with one container size for all tasks of the DAG.",
        draw_6,
        1.5,
    ),
    _table_4("table 4", "TPC-DS", (BASE, CP, TETRIS, *BASES)),
    _table_4("table 4 b", "TPC-H", (BASE, CP, TETRIS, "tez", P90, LARGEST)),
    Figure(
        "figure 19",
        "completion times against Tez, TPC-DS",
        trials(
            "TPC-DS",
            JOBS,
            NODES,
            ("tez", P90, "graphene", "tez_cp", "tez_tetris", BASE, CP, TETRIS),
            mean_s=ARRIVALS_S,
            scale=1,
        ),
        partial(figure_19, "TPC-DS"),
        f"{JOBS} jobs, one every {ARRIVALS_S:g} s on average, {NODES} machines. Three "
        "benchmarks, other baselines and other weights stand in [the simulator's "
        "page](../simulation.md#graphene-against-tez).",
        partial(draw_19, "TPC-DS"),
        3.5,
    ),
    Figure(
        "table 7",
        "planners against breadth first (figure 21)",
        PLANS,
        table_7,
        "Planners see what each task needs; the breadth first order has one container size, which "
        "is Tez's. Against one that sees all resources no kind of DAG was found where half of them "
        "gain 25 %: the room that the bounds leave is 16 % at the median.",
        draw_7,
        1.5,
        also="figure 21",
    ),
    *SMALL_FIGURES,
    FIGURE_25,
    *GAINS,
)
PAGE_ABSENT = {
    "figures 1, 3, 8 to 10, 18": "worked examples: `tests/golden`, every value",
    "figures 2, 11 to 17": "the algorithm: docs/planning.md, docs/rules.md say how each is read",
    "figures 4, 7, table 2": "of Microsoft's production DAGs and cluster, which are not public",
    "figure 20": "one run's timeline: `weft simulate ... --out DIR` writes it as `report.html`",
    "figure 22": "m by `python -m lab.studies.matching eta`, with its table in "
    "docs/results/matching.md; rp is the paper's 0.8 and not swept",
    "table 3": "a glossary: docs/glossary.md",
}

CLAIMS = (
    ClaimRow("1: the median DAG has a depth of five", "figure 5", ("depth, median",)),
    ClaimRow(
        "2: half of the DAGs have a gap of 70 % to critical path and work, 50 % to NewLB",
        "figure 6",
        tuple(f"`{PLANNED_BASE}`, gap to {b}, p50" for b in ("CPLength", "TWork", "NewLB")),
    ),
    ClaimRow(
        "8.2: half of the jobs end 28 % earlier than under Tez, a quarter 46 % (TPC-DS)",
        "figure 19",
        tuple(f"`graphene` over `{BASE}`, p{p}, %" for p in (25, 50, 75)),
    ),
    ClaimRow(
        "8.2: critical path alone gains 4 %, Tetris 7 % at the median",
        "figure 19",
        tuple(f"`{name}` over `{BASE}`, p50, %" for name in (CP, TETRIS)),
    ),
    ClaimRow("8.2: up to 5 % of jobs slow down, by 16 % at most", "", ()),
    ClaimRow("8.2: makespan 31 % shorter on TPC-DS", "table 4", (f"`graphene` over `{BASE}`, %",)),
    ClaimRow("8.2: 27.5 % on TPC-H", "table 4 b", (f"`graphene` over `{BASE}`, %",)),
    ClaimRow(
        "8.2: two queues cost other schedulers 10 to 13 %",
        "table 5",
        tuple(f"`{s}`, median JCT, two queues against one, %" for s in ("tez", "drf")),
    ),
    ClaimRow(
        "8.2: they cost Graphene nothing",
        "table 5",
        ("`graphene`, median JCT, two queues against one, %",),
    ),
    ClaimRow(
        "8.2: orders that the cluster does not enforce lose 26 to 28 % at the median",
        "table 6",
        tuple(f"JCT saved over `{s}`, p50, %" for s in ("tez_g_cs", "tez_g_tetris")),
    ),
    ClaimRow(
        "8.3: on single DAGs, 7, 25, 57 and 74 % over breadth first",
        "table 7",
        tuple(f"`graphene` over `{PLANNED_BASE}`, p{p}, %" for p in PERCENTILES),
    ),
    ClaimRow(
        "8.3: within 4 % of a bound for half of the DAGs, 13 % for three quarters",
        "figure 6",
        tuple(f"`graphene`, makespan over NewLB, p{p} (section 8.3)" for p in (50, 75)),
    ),
    ClaimRow(
        "8.4: gains grow by 10 points at twice the load, 15 at six times",
        "figure 23",
        tuple(f"median JCT saved over `{BASE}`, load {n} x, more than at 1 x" for n in (2, 6)),
    ),
    ClaimRow(
        "9: builds 20 % faster than Tetris, 30 % than critical path",
        "figure 25",
        tuple(f"builds: graphene over `{s}`, p50, %" for s in ("tetris", "critical_path")),
    ),
    ClaimRow(
        "9: requests 24 % faster",
        "figure 25",
        tuple(f"requests: graphene over `{s}`, p50, %" for s in ("tetris", "critical_path")),
    ),
)
PAPER = Paper(
    "graphene",
    "Graphene: packing and dependency-aware scheduling",
    PAGE_TEXT,
    PAGE_FIGURES,
    PAGE_ABSENT,
    CLAIMS,
)
