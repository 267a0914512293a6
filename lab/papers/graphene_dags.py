"""Graphene's figures about DAGs themselves: figure 5 and table 1, drawn, and figure 25, planned."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np

from am.plan.bounds.bounds import bounds_of
from am.plan.bounds.cuts import cut
from am.plan.registry import PlanRequest, planner
from am.plan.validate import violations
from lab.papers.digest import Case
from lab.papers.page import Figure, Line, against, bars, over
from lab.papers.verdict import COUNT, FACTOR, SAVED, SHARE, Measure
from lab.studies.trials import Rows
from weft.model.dag import Dag, Machines, dag_of_job
from weft.model.errors import InvariantError
from weft.model.job import EdgeKind, Job
from weft.model.resources import ResourceType, ResourceTypes, guess_kind
from weft.workloads.synth import MACHINE, PRIVATE_STACK, generate

# For figure 5, each seed draws so many jobs.
JOBS = 200
# For figure 25, each seed plans so many DAGs, each with so many tasks.
DAGS, TASKS = 12, (20, 300)
DOMAINS: Mapping[str, tuple[int, int]] = {"builds": (20, 30), "requests": (24, 24)}
SCHEMES = ("graphene", "tetris", "critical_path")
# The mean task demands this fraction of a machine of every resource, as for table 7.
MEAN_DEMAND_FRACTION = 0.15
TYPES = ResourceTypes(tuple(ResourceType(name, guess_kind(name)) for name in MACHINE))


def structure(seed: int) -> dict[str, Any]:
    """Return properties of drawn DAGs, as the paper's figure 5 and section 2.3 count them."""
    jobs = list(generate("graphene", JOBS, np.random.default_rng([seed, 43])))
    edges = [(job, edge) for job in jobs for stage in job.stages for edge in stage.parents]
    barriers = sum(edge.kind is EdgeKind.ALL_TO_ALL for _, edge in edges)
    depth = [_depth(job) for job in jobs]
    cycles = [sum(len(s.parents) for s in job.stages) - len(job.stages) + 1 for job in jobs]
    cov = {}
    for name in PRIVATE_STACK:
        demand = np.array([s.demand[name] for job in jobs for s in job.stages])
        cov[name] = round(float(demand.std() / demand.mean()), 3)
    return {
        "depth_p50": float(np.median(depth)),
        "deeper_than_10": float(np.mean(np.array(depth) > 10)),
        "trees": float(np.mean(np.array(cycles) <= 0)),
        "cycles_3": float(np.mean(np.array(cycles) >= 3)),
        "tasks_p50": float(np.median([job.task_count for job in jobs])),
        "stages_p50": float(np.median([len(job.stages) for job in jobs])),
        "barriers": barriers / max(1, len(edges)),
        "four_parts": float(np.mean([len(cut(dag_of_job(job, TYPES))) >= 4 for job in jobs])),
        "cov": cov,
    }


def _depth(job: Job) -> int:
    """Return how many edges the longest path has: a map-reduce job's has one."""
    length: dict[int, int] = {}
    for place in job.topological_order():
        length[place] = max((length[p] + 1 for p, _ in job.parents_of(place)), default=0)
    return max(length.values())


def figure_5(rows: Rows) -> list[Line]:
    """Return the published marginals beside the drawn ones."""

    def line(what: str, paper: str, key: str, measure: Measure, times: float = 1) -> Line:
        return Line(what, paper, over(rows, "drawn", lambda r: times * r[key]), measure)

    def varies(name: str, row: Mapping[str, Any]) -> float:
        return float(row["cov"][name])

    cov = [
        Line(
            f"variation of demands (table 1), {name}",
            f"{paper:g}",
            over(rows, "drawn", partial(varies, name)),
            FACTOR,
            "no demand is over a machine",
        )
        for name, paper in PRIVATE_STACK.items()
    ]
    return [
        line("depth, median", "5", "depth_p50", COUNT),
        line("deeper than ten, %", "25", "deeper_than_10", SHARE, 100),
        line("trees, %", "40", "trees", SHARE, 100),
        line("three cycles and more, %", "50", "cycles_3", SHARE, 100),
        line("stages, median", "tens", "stages_p50", COUNT),
        line("tasks, median", "thousands", "tasks_p50", COUNT),
        line("edges that are barriers, %", "the smaller part", "barriers", SHARE, 100),
        replace(
            line("cut into four parts and more, %", "24", "four_parts", SHARE, 100),
            why="the generator does not draw after this one",
        ),
        *cov,
    ]


# -- figure 25 -------------------------------------------------------------------------------------


@cache
def drawn(kind: str, seed: int) -> tuple[tuple[Dag, Machines], ...]:
    """Return DAGs of a kind, with machines that make their work as long as their critical path."""
    rng = np.random.default_rng([seed, 47])
    found: list[tuple[Dag, Machines]] = []
    for job in generate(kind, 1_000_000, rng):
        if len(found) == DAGS:
            break
        if not TASKS[0] <= job.task_count <= TASKS[1]:
            continue
        dag = dag_of_job(job, TYPES)
        room = np.maximum(
            dag.demand.max(axis=0), dag.demand.mean(axis=0) / MEAN_DEMAND_FRACTION
        ).tolist()
        alone = bounds_of(dag, Machines.alike(1, room), 0)
        count = max(1, round(alone.t_work_s / alone.cp_len_s))
        found.append((dag, Machines.alike(count, room)))
    return tuple(found)


def planned(kind: str, name: str, seed: int) -> dict[str, Any]:
    """Return makespans of a planner on every DAG of a seed."""
    made = []
    for dag, machines in drawn(kind, seed):
        plan = planner(name)(PlanRequest(dag, machines, np.random.default_rng(seed), {}))
        broken = violations(dag, machines, plan.machine, plan.start_s, plan.end_s)
        if broken:
            raise InvariantError(f"{kind}, {name}, seed {seed}: {broken[0]}")
        made.append(round(plan.makespan_s, 4))
    return {"makespan_s": made}


def plans() -> dict[str, Case]:
    """Return every scheme on both domains."""
    return {
        f"{kind}/{name}": Case(planned, (kind, name), planners=(name,))
        for kind in DOMAINS
        for name in SCHEMES
    }


def faster(p: float, base: Mapping[str, Any], own: Mapping[str, Any]) -> float:
    """Return a percentile over DAGs of the makespan saved, %."""
    gain = 100 * (1 - np.array(own["makespan_s"]) / np.array(base["makespan_s"]))
    return float(np.percentile(gain, p))


def figure_25(rows: Rows) -> list[Line]:
    """Return quartiles of what Graphene saves of the makespan of a DAG."""
    lines = []
    why = "the paper's DAGs are a company's; of these only the parts are published"
    for kind, papers in DOMAINS.items():
        for name, paper in zip(SCHEMES[1:], papers, strict=True):
            for p in (25, 50, 75):
                gain = against(rows, f"{kind}/graphene", f"{kind}/{name}", partial(faster, p))
                what = f"{kind}: graphene over `{name}`, p{p}, %"
                lines.append(Line(what, str(paper) if p == 50 else "", gain, SAVED, why))
    return lines


def draw_25(rows: Rows, axes: Any) -> None:
    """Draw medians of the gains."""
    kinds = list(DOMAINS)
    ours = {
        f"over {name}": [
            against(rows, f"{k}/graphene", f"{k}/{name}", partial(faster, 50)) for k in kinds
        ]
        for name in SCHEMES[1:]
    }
    theirs = {f"over {name}": [DOMAINS[k][i] for k in kinds] for i, name in enumerate(SCHEMES[1:])}
    bars(axes, kinds, ours, theirs)
    axes.set_ylabel("makespan saved, median DAG, %")


FIGURE_5 = Figure(
    "figure 5",
    "structure of DAGs, with table 1",
    {"drawn": Case(structure, planners=("bfs",))},
    figure_5,
    f"The paper's are counted on Microsoft's DAGs; ours on {JOBS} a seed that `weft generate "
    "graphene` draws after them.",
    None,
    1.0,
    also="table 1",
)
FIGURE_25 = Figure(
    "figure 25",
    "builds and requests",
    plans(),
    figure_25,
    f"{DAGS} DAGs a seed of `weft generate builds` and `weft generate requests`, {TASKS[0]} to "
    f"{TASKS[1]} tasks, planned on machines whose number makes the work as long as the critical "
    "path. The section names the parts of such DAGs; their sizes, times and demands are ours.",
    draw_25,
    0.3,
    also="section 9",
)
