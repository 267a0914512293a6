"""An independent check of a schedule against its DAG and machines; it shares no planner's code."""

from collections.abc import Iterator

import numpy as np

from weft.model.dag import Dag, Floats, Ints, Link, Machines, StageEdge, holds
from weft.model.resources import TOLERANCE

_VIOLATIONS_SHOWN_PER_KIND = 20


def violations(
    dag: Dag, machines: Machines, machine: Ints, start_s: Floats, end_s: Floats
) -> list[str]:
    """Return how a schedule breaks the model of docs/rules.md, rules 1 to 5, one line each.

    Arrays have shape (n,), times in s. Times count with a tolerance of 1e-9 of the makespan,
    capacities with 1e-7. An empty list means that the schedule is valid.
    """
    for name, array in (("machines", machine), ("starts", start_s), ("ends", end_s)):
        if len(array) != dag.tasks:
            return [f"completeness: {len(array)} {name} for {dag.tasks} tasks"]
    if dag.tasks == 0:
        return []
    found = _named(dag, "completeness", ~_placed(machines, machine, start_s, end_s), "has no place")
    if found:
        return found
    tolerance = 1e-9 * max(float(end_s.max() - start_s.min()), 1e-300)
    found += _named(dag, "start", start_s < -tolerance, "starts before 0")
    wrong = np.abs(end_s - start_s - dag.duration_s / machines.speed[machine]) > tolerance
    found += _named(dag, "duration", wrong, "does not last its duration")
    found += _precedence(dag, start_s, end_s, tolerance)
    found += _capacity(dag, machines, machine, start_s, end_s, tolerance)
    return found


def _placed(machines: Machines, machine: Ints, start_s: Floats, end_s: Floats) -> np.ndarray:
    inside = (machine >= 0) & (machine < machines.count)
    return np.asarray(inside & np.isfinite(start_s) & np.isfinite(end_s))


def _name(dag: Dag, task: int) -> str:
    stage = int(np.searchsorted(dag.first, task, side="right")) - 1
    return f"{dag.stage_names[stage]}[{task - int(dag.first[stage])}]"


def _named(dag: Dag, kind: str, wrong: np.ndarray, problem: str) -> list[str]:
    tasks = np.flatnonzero(wrong)
    return _shortened(kind, (f"{_name(dag, int(t))} {problem}" for t in tasks), len(tasks))


def _shortened(kind: str, lines: Iterator[str], count: int) -> list[str]:
    found = [
        f"{kind}: {line}" for line, _ in zip(lines, range(_VIOLATIONS_SHOWN_PER_KIND), strict=False)
    ]
    if count > _VIOLATIONS_SHOWN_PER_KIND:
        found.append(f"{kind}: {count - _VIOLATIONS_SHOWN_PER_KIND} more")
    return found


def _precedence(dag: Dag, start_s: Floats, end_s: Floats, tolerance: float) -> list[str]:
    found = []
    for edge in dag.edges:
        found += list(_suspects(dag, edge, start_s, end_s, tolerance))
    lines = (
        f"{_name(dag, child)} starts at {start_s[child]:g} s, "
        f"before its parent {_name(dag, parent)} ends at {end_s[parent]:g} s"
        for parent, child in found
    )
    return _shortened("precedence", lines, len(found))


def _suspects(
    dag: Dag, edge: StageEdge, start_s: Floats, end_s: Floats, tolerance: float
) -> Iterator[tuple[int, int]]:
    """Yield a stage edge's broken task edges; of a barrier, each early child with one parent."""
    if edge.link is Link.ALL:
        above, below = dag.tasks_of(edge.parent), dag.tasks_of(edge.child)
        last = above.start + int(np.argmax(end_s[above.start : above.stop]))
        early = start_s[below.start : below.stop] < end_s[last] - tolerance
        yield from ((last, below.start + int(i)) for i in np.flatnonzero(early))
        return
    for parent, child in dag.pairs_of(edge):
        if start_s[child] < end_s[parent] - tolerance:
            yield parent, child


def _capacity(
    dag: Dag, machines: Machines, machine: Ints, start_s: Floats, end_s: Floats, tolerance: float
) -> list[str]:
    """Sweep over the times of starts and ends on every machine."""
    alone = ~holds(machines.capacity[machine], dag.demand)
    found = _named(dag, "capacity", alone, "needs more than its machine has")
    tasks = np.flatnonzero(end_s - start_s > 2 * tolerance)
    if len(tasks) == 0 or found:
        return found
    time = np.concatenate([start_s[tasks] + tolerance, end_s[tasks] - tolerance])
    where = np.concatenate([machine[tasks], machine[tasks]])
    change = np.concatenate([dag.demand[tasks], -dag.demand[tasks]])
    sweep = np.lexsort((time, where))
    where, time, held = where[sweep], time[sweep], np.cumsum(change[sweep], axis=0)
    first = np.searchsorted(where, np.arange(machines.count))
    before = np.concatenate([np.zeros((1, held.shape[1])), held])[first]
    held = held - before[where]
    over = held > machines.capacity[where] * (1 + TOLERANCE) + 1e-9 * machines.capacity.max(axis=0)
    # equal times on one machine count once all of them are done
    settled = np.append((where[1:] != where[:-1]) | (time[1:] > time[:-1]), True)
    rows, resources = np.nonzero(over & settled[:, None])
    lines = (
        f"machine {where[row]} holds {held[row, r]:g} {dag.resources[r]} at {time[row]:g} s, "
        f"it has {machines.capacity[where[row], r]:g}"
        for row, r in zip(rows, resources, strict=True)
    )
    return found + _shortened("capacity", lines, len(rows))
