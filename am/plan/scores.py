"""LongScore and FragScore, which say what is troublesome.

Graphene section 4.1, table 3; docs/rules.md, rules 17 to 19. Demands are taken relative to the
capacity of all machines together.
"""

import numpy as np
from numpy.typing import NDArray

from am.plan import run_kernels as kernels
from am.plan.board import grown, space_of
from am.plan.part import Grid
from weft.model.dag import Dag, Floats, Ints, Machines
from weft.model.resources import TOLERANCE


def long_scores(dag: Dag) -> Floats:
    """Return each task's duration over the longest of the DAG (part), (n,); 1 where all are 0 s."""
    most = float(dag.duration_s.max(initial=0.0))
    return dag.duration_s / most if most > 0 else np.ones(dag.tasks)


def dominant_shares(dag: Dag, machines: Machines) -> Floats:
    """Return max_r d_r / C_r of each task, shape (n,): it breaks ties between tasks."""
    total = machines.total
    return np.asarray((dag.demand / np.where(total > 0, total, 1.0)).max(axis=1, initial=0.0))


def stage_work_s(dag: Dag, machines: Machines) -> Floats:
    """Return TWork of each stage: the largest resource's work over its capacity, s, (stages,)."""
    total = machines.total
    work = dag.duration_s[:, None] * dag.demand / np.where(total > 0, total, 1.0)
    summed = np.zeros((dag.stages, len(total)))
    np.add.at(summed, dag.stage_of, work)
    return np.asarray(summed.max(axis=1, initial=0.0))


def frag_scores(dag: Dag, machines: Machines, grid: Grid) -> Floats:
    """Return TWork over ExecTime of each stage, in (0, 1], shape (stages,).

    ExecTime is the makespan of the stage alone: tasks independent, longest first, earliest fit.
    """
    work = stage_work_s(dag, machines)
    room = grid.room(machines.capacity)
    length, demand = grid.ticks(dag.duration_s), grid.fitting(dag, machines)
    ticks = np.zeros(dag.stages, np.int64)
    alike = alike_stages(dag)
    for stage in np.flatnonzero(alike):
        head = dag.first[stage]
        waves = -(-dag.size(int(stage)) // max(_at_once(room, demand[head]), 1))
        ticks[stage] = waves * length[head]
    dominant = dominant_shares(dag, machines)
    for stage in np.flatnonzero(~alike):
        tasks = np.arange(dag.first[stage], dag.first[stage + 1])
        by_rank = tasks[np.lexsort((tasks, -dominant[tasks], -length[tasks]))]
        ticks[stage] = _makespan_alone(room, length[by_rank], demand[by_rank])
    exec_s = grid.seconds(ticks)
    some = (exec_s > 0) & (work > 0)
    return np.where(some, np.minimum(work / np.where(some, exec_s, 1.0), 1.0), 1.0)


def steady_scores(dag: Dag, machines: Machines) -> Floats:
    """Return the bottleneck's share in use while every machine is full of a stage.

    Shape (stages,), at most 1. Unlike the ratio it does not call a stage troublesome for being
    small (docs/rules.md, rule 19). Of a stage whose tasks differ, the mean over its work.
    """
    total = np.where(machines.total > 0, machines.total, 1.0)
    scores = np.ones(dag.stages)
    alike = alike_stages(dag)
    for stage in range(dag.stages):
        if alike[stage]:
            scores[stage] = _steady_share(dag.demand[dag.first[stage]], machines, total)
            continue
        tasks = slice(dag.first[stage], dag.first[stage + 1])
        rows, kind = np.unique(dag.demand[tasks], axis=0, return_inverse=True)
        share = np.array([_steady_share(row, machines, total) for row in rows])
        weight = np.bincount(kind.reshape(-1), dag.duration_s[tasks], len(rows))
        if weight.sum() > 0:
            scores[stage] = float((share * weight).sum() / weight.sum())
    return scores


def alike_stages(dag: Dag) -> NDArray[np.bool_]:
    """Return which stages' tasks all have one duration and one demand, shape (stages,)."""
    table = np.column_stack([dag.duration_s, dag.demand])
    differs = np.any(table != table[dag.first[:-1]][dag.stage_of], axis=1)
    return np.asarray(np.bincount(dag.stage_of[differs], minlength=dag.stages) == 0)


def _at_once(room: Ints, demand: Ints) -> int:
    """Return how many tasks of a demand all machines hold at once; room (m, d), demand (d,)."""
    used = demand > 0
    if not used.any():
        return 1 << 40
    return int((room[:, used] // demand[used]).min(axis=1).sum())


def _steady_share(demand: Floats, machines: Machines, total: Floats) -> float:
    used = demand > 0
    if not used.any():
        return 1.0
    at_once = np.floor(
        (machines.capacity[:, used] / demand[used]).min(axis=1) * (1 + TOLERANCE)
    ).sum()
    return min(float(at_once * (demand / total).max()), 1.0)


def _makespan_alone(room: Ints, length: Ints, demand: Ints) -> np.int64:
    """Pack independent tasks in the given order; return the makespan in ticks."""
    space = space_of(room, 16 * len(length) + 4 * len(room) + 64)
    while True:
        span = kernels.pack(space, length, demand, np.zeros(3, np.int64))
        if span >= 0:
            return np.int64(span)
        space = grown(space)
