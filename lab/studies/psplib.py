"""How good are the planners by another field's yardstick? PSPLIB, resource-constrained projects.

Kolisch and Hartmann's table (2006): the mean deviation from the critical path, and from the best
known where `best_known.json` lies beside the instances, at a number of schedules. Every insertion
of all tasks counts as a schedule there, so one that is justified both ways counts as three.
"""

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from am.plan.bounds.bounds import bounds_of
from am.plan.registry import PlanRequest, planner
from am.plan.validate import violations
from lab.worker_pool import WorkerPool
from weft.model.dag import Dag, Machines, dag_of_job
from weft.model.errors import InputError
from weft.model.resources import ResourceType, ResourceTypes, guess_kind
from weft.workloads.psplib import instances
from weft.workloads.reading import expand

# Name, planner and options of each row. Besides Graphene's two and the four starts of
# `graphene_plus`, only list schedules count towards a row's number of schedules.
CONTESTANTS: tuple[tuple[str, str, Mapping[str, Any]], ...] = (
    ("bfs", "bfs", {}),
    ("critical_path", "critical_path", {}),
    ("graphene", "graphene", {}),
    ("graphene_plus, 1,000 schedules", "graphene_plus", {"candidates": "lists", "iterations": 331}),
    (
        "graphene_plus, 5,000 schedules",
        "graphene_plus",
        {"candidates": "lists", "iterations": 1664},
    ),
    ("graphene_plus, 1,000 justified (its default)", "graphene_plus", {}),
)
_ENOUGH = 1 + 1e-9


@dataclass(frozen=True, slots=True)
class Outcome:
    """One instance: makespans by contestant, s; `best_s` is 0 where none is known."""

    group: str
    name: str
    best_s: float
    path_s: float
    bound_s: float
    made_s: Mapping[str, float]
    took_s: Mapping[str, float]
    schedules: Mapping[str, int]
    invalid: tuple[str, ...]


def run(folder: Path, quick: bool = False, cores: int | None = None) -> list[dict[str, Any]]:
    """Return a row for each set and contestant; `quick` takes every tenth instance."""
    cases = list(_cases(folder))[:: 10 if quick else 1]
    with WorkerPool(cores or len(os.sched_getaffinity(0))) as pool:
        outcomes = list(pool.map(_outcome, cases, chunksize=4))
    rows = []
    for group in dict.fromkeys(outcome.group for outcome in outcomes):
        mine = [outcome for outcome in outcomes if outcome.group == group]
        rows += [_row(group, mine, name) for name, _, _ in CONTESTANTS]
    return rows


def _cases(folder: Path) -> Iterator[tuple[str, str, Dag, Machines, float]]:
    """Yield (set, name, DAG, machine, best known) of every instance in a folder and archives."""
    best: dict[str, float] = {}
    known = folder / "best_known.json"
    if known.is_file():
        best = _best_known(known)
    files = [p for p in expand([folder]) if p.name.endswith((".sm", ".tar", ".tar.gz", ".tgz"))]
    if not files:
        raise InputError(str(folder), "holds no .sm file and no archive of them")
    for path in files:
        for instance in instances(path):
            names = tuple(instance.capacity)
            types = ResourceTypes(tuple(ResourceType(n, guess_kind(n)) for n in names))
            machine = Machines.alike(1, [instance.capacity[n] for n in names])
            dag = dag_of_job(instance.job, types)
            name = instance.job.name
            best_s = best.get(name, 0.0)
            yield _group(path, dag.tasks), name, dag, machine, best_s


def _best_known(path: Path) -> dict[str, float]:
    """Return the best known makespan of each instance, by its name; raises InputError."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return {str(name): float(row["best"]) for name, row in data.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(str(path), f'expected {{"NAME": {{"best": S}}}}: {error!r}') from None


def _group(path: Path, tasks: int) -> str:
    """Return the set's name: the archive's, else by size, without the two empty activities."""
    return path.name.partition(".")[0] if ".t" in path.name else f"j{tasks - 2}"


def _outcome(case: tuple[str, str, Dag, Machines, float]) -> Outcome:
    group, name, dag, machine, best_s = case
    bounds = bounds_of(dag, machine)
    made_s, took_s, schedules, invalid = {}, {}, {}, []
    for label, which, options in CONTESTANTS:
        request = PlanRequest(dag, machine, np.random.default_rng(0), options)
        began_s = time.process_time()
        plan = planner(which)(request)
        took_s[label] = time.process_time() - began_s
        made_s[label], schedules[label] = plan.makespan_s, plan.candidates
        if violations(dag, machine, plan.machine, plan.start_s, plan.end_s):
            invalid.append(label)
    strong = bounds.strong_lb_s
    return Outcome(
        group, name, best_s, bounds.cp_len_s, strong, made_s, took_s, schedules, tuple(invalid)
    )


def _row(group: str, outcomes: Sequence[Outcome], label: str) -> dict[str, Any]:
    """Return one row of the table; deviations in %."""
    known = [o for o in outcomes if o.best_s > 0]
    over = [100 * (o.made_s[label] / o.best_s - 1) for o in known]
    path = [100 * (o.made_s[label] / o.path_s - 1) for o in outcomes if o.path_s > 0]
    row: dict[str, Any] = {"set": group, "instances": len(outcomes), "planner": label}
    row["schedules"] = round(float(np.mean([o.schedules[label] for o in outcomes])))
    row["over_path_%"] = round(float(np.mean(path)), 2)
    if known:
        best = [100 * (o.best_s / o.path_s - 1) for o in known if o.path_s > 0]
        row["best_over_path_%"] = round(float(np.mean(best)), 2)
        row["over_best_%"] = round(float(np.mean(over)), 2)
        row["p90_%"] = round(float(np.percentile(over, 90)), 1)
        row["max_%"] = round(max(over), 1)
        row["at_best_%"] = round(100 * float(np.mean([x < 1e-6 for x in over])))
        row["bound_of_best"] = round(float(np.mean([o.bound_s / o.best_s for o in known])), 4)
    row["over_lists"] = sum(
        o.made_s[label] > min(o.made_s["bfs"], o.made_s["critical_path"]) * _ENOUGH
        for o in outcomes
    )
    row["bound_above"] = sum(o.bound_s > min(o.made_s.values()) * _ENOUGH for o in outcomes)
    row["invalid"] = sum(label in o.invalid for o in outcomes)
    row["cpu_s"] = round(float(np.mean([o.took_s[label] for o in outcomes])), 3)
    return row
