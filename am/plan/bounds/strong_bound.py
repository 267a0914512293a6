"""A stronger lower bound than the paper's: waves, heads and tails (docs/rules.md, rules 15, 16).

A task's head is a time before which it cannot start, its tail a time that must pass after it ends.
All tasks with head >= h and tail >= q run between h and the end less q, so
h + (their work) + q bounds the time, for every h and q.
"""

import numpy as np

from am.plan.bounds.destructive_bound import Spans, spans_of
from am.plan.bounds.fragmentation import loads, waves_s
from am.plan.bounds.parallel_rounds import in_slots_s
from am.plan.paths import Dependencies, dependencies_of, heads, relax, whole_ancestors
from weft.model.dag import Dag, Floats, Ints, Machines

# The ancestor sets of more stages cost more than they give.
_STAGES_MAX = 1000
_CUTOFFS_MAX = 64


def strong_bound(dag: Dag, machines: Machines, refute: bool = True) -> tuple[float, Spans | None]:
    """Return the bound of one part by heads, tails and work, s.

    Every task must fit on some machine. With `refute`, and where the part is small, what may raise
    the bound is returned beside it.
    """
    dependencies = dependencies_of(dag)
    share, kind = loads(dag, machines)
    waves = waves_s(dag, dependencies, machines)
    first = dag.first[:-1]
    # A cell holds the task seconds of one stage and one demand class.
    busy_s = np.zeros((dag.stages, len(share)))
    np.add.at(busy_s, (dag.stage_of, kind), dag.duration_s)
    work = busy_s @ share
    head = _heads(dag, dependencies, work, waves)
    tail = _heads(dag, dependencies.reversed(), work, waves)
    low_head, low_tail = np.minimum.reduceat(head, first), np.minimum.reduceat(tail, first)
    by_stage = low_head + waves + low_tail
    longest = float((head + dag.duration_s + tail).max())
    least_s = max(
        longest,
        float(by_stage.max()),
        _between(dag, share, kind, head, tail),
        in_slots_s(dag, machines, low_head, low_tail),
    )
    return least_s, spans_of(dag, machines, least_s, head, tail) if refute else None


def _heads(dag: Dag, dependencies: Dependencies, work: Floats, waves: Floats) -> Floats:
    """Return the larger of the longest path into a task and the work that must precede it, (n,).

    What must precede a stage is kept by stage: the stages all of whose tasks are ancestors of all
    of its tasks.
    """
    if dependencies.order is None or dag.stages > _STAGES_MAX:
        return heads(dependencies, dag.duration_s)
    head = np.zeros(dag.tasks)
    low = np.zeros(dag.stages)
    before, _ = whole_ancestors(dependencies)
    for stage, into in dependencies.by_child():
        for dependency in into:
            if dependency.parent != stage:
                relax(dependencies, dependency, head, dag.duration_s)
        above = np.flatnonzero(before[stage])
        span = dependencies.span(stage)
        if len(above):
            above = above[np.argsort(-low[above], kind="stable")]
            since = low[above] + np.cumsum(work[above], axis=0).max(axis=1)
            least = max(since.max(), (low[above] + waves[above]).max())
            np.maximum(head[span], least, out=head[span])
        inner = tuple(dependency for dependency in into if dependency.parent == stage)
        if inner:
            inside = heads(
                Dependencies(dependencies.first, inner, dependencies.order), dag.duration_s
            )
            head[span] = np.maximum(head[span], head[span].min() + inside[span])
        low[stage] = head[span].min()
    return head


def _between(dag: Dag, share: Floats, kind: Ints, head: Floats, tail: Floats) -> float:
    """Return the largest h + work + q over cut-offs h of the heads and q of the tails."""
    early, late = _cutoffs(head), _cutoffs(tail)
    cell = (np.searchsorted(early, head, side="right") - 1) * len(late)
    cell += np.searchsorted(late, tail, side="right") - 1
    cells, cell = np.unique(cell, return_inverse=True)
    busy_s = np.zeros((len(cells), len(share)))
    np.add.at(busy_s, (cell.reshape(-1), kind), dag.duration_s)
    work = np.zeros((len(early) * len(late), share.shape[1] + 1))
    work[cells, :-1] = busy_s @ share
    # The last column marks the cells that have tasks at all.
    work[cells, -1] = 1.0
    work = work.reshape(len(early), len(late), -1)
    beyond = work[::-1, ::-1].cumsum(axis=0).cumsum(axis=1)[::-1, ::-1]
    some = beyond[:, :, -1] > 0.5
    least = early[:, None] + beyond[:, :, :-1].max(axis=2) + late[None, :]
    return float(np.where(some, least, 0.0).max())


def _cutoffs(values: Floats) -> Floats:
    distinct = np.unique(values)
    if len(distinct) <= _CUTOFFS_MAX:
        return distinct
    ranks = np.linspace(0, len(distinct) - 1, _CUTOFFS_MAX).astype(np.int64)
    return distinct[ranks]
