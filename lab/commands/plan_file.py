"""A plan as the file that `weft plan` writes and `weft validate` reads."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from am.plan.bounds.bounds import Bounds
from weft.model.cluster import ClusterSpec
from weft.model.dag import Dag, Floats, Ints
from weft.model.errors import InputError
from weft.model.plan import Plan

_BYTES_MAX = 1 << 31


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """What a plan file says of each task, shape (n,); `problems` names what it leaves unsaid."""

    machine: Ints
    start_s: Floats
    end_s: Floats
    problems: list[str]


def plan_data(
    name: str, dag: Dag, plan: Plan, bounds: Bounds, planning_time_s: float
) -> dict[str, Any]:
    """Return the file's data; `machine` counts the nodes from 0, in the cluster's order."""
    stage_of, first = dag.stage_of.tolist(), dag.first.tolist()
    columns = zip(
        plan.machine.tolist(),
        plan.start_s.tolist(),
        plan.end_s.tolist(),
        plan.pri_score.tolist(),
        strict=True,
    )
    return {
        "job": name,
        "planner": plan.planner,
        "makespan_s": plan.makespan_s,
        "bounds": bounds.as_dict(),
        "planning_time_s": planning_time_s,
        "candidates": plan.candidates,
        "tasks": [
            {
                "stage": dag.stage_names[stage_of[task]],
                "index": task - first[stage_of[task]],
                "machine": machine,
                "start_s": start_s,
                "end_s": end_s,
                "pri_score": pri_score,
            }
            for task, (machine, start_s, end_s, pri_score) in enumerate(columns)
        ],
    }


def read_schedule(path: Path, dag: Dag, cluster: ClusterSpec) -> Schedule:
    """Read a plan file; raises InputError where it is not one.

    Tasks that are missing, unknown or said twice are `problems`, not errors: they are violations.
    """
    rows = _rows(path)
    stages = {name: stage for stage, name in enumerate(dag.stage_names)}
    nodes = {node.node_id: index for index, node in enumerate(cluster.nodes)}
    machine = np.full(dag.tasks, -1, dtype=np.int64)
    start_s, end_s = np.full(dag.tasks, np.nan), np.full(dag.tasks, np.nan)
    seen = np.zeros(dag.tasks, dtype=bool)
    problems = []
    for position, row in enumerate(rows):
        place = f"{path}: tasks[{position}]"
        if not isinstance(row, dict):
            raise InputError(place, f"expected a table, got {row!r}")
        stage, index = stages.get(str(row.get("stage"))), row.get("index")
        if stage is None or type(index) is not int or not 0 <= index < dag.size(stage):
            problems.append(f"completeness: the job has no task {row.get('stage')}[{index}]")
            continue
        task = int(dag.first[stage]) + index
        if seen[task]:
            problems.append(f"completeness: {row['stage']}[{index}] is placed twice")
            continue
        seen[task] = True
        where = row.get("machine")
        if isinstance(where, str):
            where = nodes.get(where)
        if type(where) is not int or not 0 <= where < len(cluster.nodes):
            problems.append(
                f"completeness: {row['stage']}[{index}] is on no machine of the cluster"
            )
            where = -1
        machine[task] = where
        start_s[task] = _time(row.get("start_s"), f"{place}.start_s")
        end_s[task] = _time(row.get("end_s"), f"{place}.end_s")
    for task in np.flatnonzero(~seen)[:20].tolist():
        stage = int(np.searchsorted(dag.first, task, side="right")) - 1
        name = f"{dag.stage_names[stage]}[{task - int(dag.first[stage])}]"
        problems.append(f"completeness: {name} is missing")
    if int((~seen).sum()) > 20:
        problems.append(f"completeness: {int((~seen).sum()) - 20} more tasks are missing")
    return Schedule(machine, start_s, end_s, problems)


def _rows(path: Path) -> list[Any]:
    try:
        if path.stat().st_size > _BYTES_MAX:
            raise InputError(str(path), "is too large for a plan")
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(str(path), error.strerror or "cannot be read") from None
    except UnicodeDecodeError:
        raise InputError(str(path), "is not UTF-8 text") from None
    except (ValueError, RecursionError) as error:
        raise InputError(str(path), f"is not valid JSON: {error}") from None
    rows = data.get("tasks") if isinstance(data, dict) else None
    if not isinstance(rows, list):
        raise InputError(f"{path}: tasks", "expected a list of tasks, as weft plan writes it")
    return rows


def _time(value: object, place: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InputError(place, f"expected a finite number, got {value!r}")
    return float(value)
