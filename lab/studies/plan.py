"""Which offline planner is how much better? Every planner on every public DAG that carries demands.

Graphene's table 7 (improvement over breadth first at four percentiles) and section 8.3 (how far
from the lower bound). Each DAG gets one machine for every ten tasks, at least two. A demand that is
a fraction counts of one machine; absolute ones meet machines of `MACHINE`, or larger ones where a
task needs more. A DAG counts once, however often a workload repeats it.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from am.plan.bounds.bounds import bounds_of
from am.plan.paths import dependencies_of
from am.plan.registry import PlanRequest, planner
from am.plan.validate import violations
from weft.model.dag import Dag, Machines, dag_of_job
from weft.model.errors import InputError, InvariantError
from weft.model.job import Job
from weft.model.resources import ResourceType, ResourceTypes, guess_kind
from weft.workloads.imported import Imported
from weft.workloads.registry import AUTO, import_jobs
from weft.workloads.synth import generate

PERCENTILES = (25, 50, 75, 90)
PLANNERS = (
    "random",
    "critical_path",
    "tetris",
    "strip_part",
    "coffman_graham",
    "graphene",
    "graphene_plus",
)
MACHINE = {
    "vcores": 16.0,
    "memory_mb": 65536.0,
    "disk_mbps": 800.0,
    "network_mbps": 1250.0,
}
BASELINE = "bfs"
_SYNTHETIC_JOBS = 200


@dataclass(frozen=True, slots=True)
class Case:
    """One DAG of the study with its machines."""

    source: str
    name: str
    dag: Dag
    machines: Machines


@dataclass(frozen=True, slots=True)
class Row:
    """What each planner made of one DAG; times in s."""

    digest: str
    source: str
    name: str
    tasks: int
    stages: int
    machines: int
    new_lb_s: float
    strong_lb_s: float
    makespan_s: Mapping[str, float]


def cases(
    folder: Path, source: str, tasks_max: int, tasks_per_machine: float = 10
) -> Iterator[Case]:
    """Yield the distinct DAGs of a source with at least one edge and two different demands.

    `source` is a folder of `folder`, or `synth:KIND`: jobs drawn after published marginals.
    """
    seen: set[str] = set()
    for job in _drawn(source) if source.startswith("synth:") else _public(folder / source):
        if not 2 <= job.task_count <= tasks_max or len(job.stages) < 2:
            continue
        case = case_of(source, job, tasks_per_machine)
        if not case.dag.edges or len(np.unique(case.dag.demand, axis=0)) < 2:
            continue
        known = shape(case.dag)
        if known not in seen:
            seen.add(known)
            yield case


def case_of(source: str, job: Job, tasks_per_machine: float = 10) -> Case:
    """Return a job's DAG over its own resources, a machine for so many tasks (at least two)."""
    names: dict[str, None] = {}
    for stage in job.stages:
        for index in range(stage.tasks if stage.overrides else 1):
            names.update(dict.fromkeys(stage.demand_of(index)))
    types = ResourceTypes(tuple(ResourceType(name, guess_kind(name)) for name in names))
    dag = dag_of_job(job, types)
    most = dag.demand.max(axis=0)
    room = [
        max(float(need), MACHINE.get(name, 1.0)) for name, need in zip(names, most, strict=True)
    ]
    return Case(
        source, job.name, dag, Machines.alike(max(2, round(dag.tasks / tasks_per_machine)), room)
    )


def shape(dag: Dag) -> str:
    """Return a digest of a DAG that does not depend on the order of its stages."""
    parents: dict[int, list[tuple[int, str]]] = {}
    for edge in dag.edges:
        pairs = b"" if edge.pairs is None else edge.pairs.tobytes()
        link = hashlib.sha256(edge.link.encode() + pairs).hexdigest()
        parents.setdefault(edge.child, []).append((edge.parent, link))
    told: dict[int, str] = {}
    for stage in dependencies_of(dag).order or range(dag.stages):
        span = slice(int(dag.first[stage]), int(dag.first[stage + 1]))
        mixed = hashlib.sha256(dag.duration_s[span].tobytes() + dag.demand[span].tobytes())
        above = sorted(told.get(parent, "") + link for parent, link in parents.get(stage, []))
        mixed.update("".join(above).encode())
        told[stage] = mixed.hexdigest()
    whole = repr(dag.resources) + "".join(sorted(told.values()))
    return hashlib.sha256(whole.encode()).hexdigest()


def study(case: Case, planners: Iterable[str], options: Mapping[str, Any], workers: int = 1) -> Row:
    """Run every planner on one DAG; raises InvariantError where a plan is not valid."""
    bounds = bounds_of(case.dag, case.machines)
    makespans = {}
    for name in (BASELINE, *planners):
        request = PlanRequest(
            case.dag,
            case.machines,
            np.random.default_rng(0),
            options.get(name, {}),
            workers=workers,
        )
        plan = planner(name)(request)
        broken = violations(case.dag, case.machines, plan.machine, plan.start_s, plan.end_s)
        if broken:
            raise InvariantError(f"{case.source} {case.name}, {name}: {broken[0]}")
        makespans[name] = plan.makespan_s
    return Row(
        digest=case.dag.digest(),
        source=case.source,
        name=case.name,
        tasks=case.dag.tasks,
        stages=case.dag.stages,
        machines=case.machines.count,
        new_lb_s=bounds.new_lb_s,
        strong_lb_s=bounds.strong_lb_s,
        makespan_s=makespans,
    )


def improvements(rows: Sequence[Row], name: str) -> list[float]:
    """Return table 7: how much shorter than breadth first, in %, at each of `PERCENTILES`."""
    gaps = [100 * (1 - row.makespan_s[name] / row.makespan_s[BASELINE]) for row in rows]
    return [float(np.percentile(gaps, p)) for p in PERCENTILES]


def ratios(rows: Sequence[Row], name: str, bound: Callable[[Row], float]) -> list[float]:
    """Return makespan over a lower bound at each of `PERCENTILES`."""
    found = [row.makespan_s[name] / bound(row) for row in rows if bound(row) > 0]
    return [float(np.percentile(found, p)) for p in PERCENTILES]


def report(rows: Sequence[Row]) -> str:
    """Return the tables of the study as Markdown, one block for each source and one for all."""
    blocks = []
    for source in [*dict.fromkeys(row.source for row in rows), "all"]:
        mine = [row for row in rows if source in ("all", row.source)]
        if source == "all" and len({row.source for row in rows}) == 1:
            break
        blocks.append(_block(source, mine))
    return "\n\n".join(blocks)


def _block(source: str, rows: Sequence[Row]) -> str:
    names = [name for name in rows[0].makespan_s if name != BASELINE]
    heads = " | ".join(f"{p}th" for p in PERCENTILES)
    lines = [
        f"### {source}: {len(rows)} DAGs, {sum(row.tasks for row in rows):,} tasks",
        "",
        f"| planner | {heads} | over NewLB: {heads} | over strong bound: {heads} |",
        "|---" * (1 + 3 * len(PERCENTILES)) + "|",
    ]
    for name in (BASELINE, *names):
        better = [f"{value:.0f}" for value in improvements(rows, name)]
        paper = [f"{value:.3f}" for value in ratios(rows, name, lambda row: row.new_lb_s)]
        strong = [f"{value:.3f}" for value in ratios(rows, name, lambda row: row.strong_lb_s)]
        lines.append(f"| `{name}` | " + " | ".join(better + paper + strong) + " |")
    return "\n".join(lines)


def against(rows: Sequence[Row], name: str, other: str) -> str:
    """Return how much shorter a planner's makespans are than another's, mean and worst."""
    ratio = [row.makespan_s[name] / row.makespan_s[other] for row in rows]
    shorter = sum(value < 1 - 1e-6 for value in ratio)
    return (
        f"`{name}` against `{other}`: {100 * (1 - float(np.mean(ratio))):.2f} % shorter in the "
        f"mean, shorter for {shorter} of {len(rows)} DAGs, at worst {max(ratio):.6f} times as long."
    )


def worse(rows: Sequence[Row], name: str, others: Sequence[str]) -> str:
    """Return on how many DAGs a planner is longer than the best of others, and on which."""
    found = [
        f"{row.name} ({row.machines} machines)"
        for row in rows
        if row.makespan_s[name] > min(row.makespan_s[other] for other in others) * (1 + 1e-9)
    ]
    listed = f": {', '.join(found)}" if found else ""
    return (
        f"`{name}` is longer than {' or '.join(others)} on {len(found)} of {len(rows)} DAGs{listed}"
    )


def loose(rows: Sequence[Row], name: str, over: float) -> str:
    """Return the DAGs with a makespan above `over` times NewLB, with the stronger bound."""
    found = [row for row in rows if row.makespan_s[name] > over * row.new_lb_s]
    found.sort(key=lambda row: -row.makespan_s[name] / row.new_lb_s)
    lines = [
        f"| DAG | tasks | machines | {name} / NewLB | strong bound / NewLB | {name} / strong |",
        "|---|---|---|---|---|---|",
    ]
    for row in found:
        made = row.makespan_s[name]
        lines.append(
            f"| {row.name} | {row.tasks} | {row.machines} | {made / row.new_lb_s:.3f} "
            f"| {row.strong_lb_s / row.new_lb_s:.3f} | {made / row.strong_lb_s:.3f} |"
        )
    return "\n".join(lines)


def _public(folder: Path) -> Iterator[Job]:
    """Yield the jobs of every file; files of other kinds hold none."""
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        try:
            yield from import_jobs(AUTO, [path], {}, Imported())
        except InputError:
            continue


def _drawn(source: str) -> Iterator[Job]:
    return generate(source.removeprefix("synth:"), _SYNTHETIC_JOBS, np.random.default_rng(0))
