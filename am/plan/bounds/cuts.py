"""Sound cuts: where a DAG falls into parts that run strictly one after another.

Graphene section 4.4 (CutDAGs) cuts between stages and ignores edge kinds; docs/rules.md, rule 10,
asks that every task before a cut is an ancestor of every task after it.
"""

import numpy as np

from am.plan.paths import Tie, Ties, levels, ties_of
from weft.dag import Dag, Ints, Link, StageEdge


def cut(dag: Dag) -> list[Ints]:
    """The parts of a DAG in order, each the task numbers of one part, ascending.

    A cut leaves all of the first part before all of the rest exactly when each last task of the
    first part is a parent of each first task of the rest, and then longest hop counts separate
    the two. So only the thresholds of that count are tried, each by counting edges.
    """
    if dag.tasks == 0:
        return []
    ties = ties_of(dag)
    level = levels(ties)
    deepest = int(level.max())
    ahead = _nearest_child(ties, level, deepest + 1)
    last = np.zeros(deepest + 2, dtype=np.int64)  # last[L]: tasks up to L without a child up to L
    np.add.at(last, level, 1)
    np.add.at(last, ahead, -1)
    last = np.cumsum(last)
    count = _parents_among_last(ties, level, ahead)
    fewest = np.full(deepest + 1, np.iinfo(np.int64).max)
    np.minimum.at(fewest, level, count)
    starts = [0] + [k + 1 for k in range(deepest) if fewest[k + 1] == last[k]]
    part = np.searchsorted(starts, level, side="right") - 1
    by_part = np.argsort(part, kind="stable")
    return np.split(by_part, np.searchsorted(part[by_part], np.arange(1, len(starts))))


def split(dag: Dag, parts: list[Ints]) -> list[Dag]:
    """The sub-DAGs over disjoint task sets: edges inside a set kept, the others dropped."""
    part = np.full(dag.tasks, -1, dtype=np.int64)
    number = np.zeros(dag.tasks, dtype=np.int64)
    for index, tasks in enumerate(parts):
        part[tasks] = index
        number[tasks] = np.arange(len(tasks))
    stage_of = dag.stage_of
    stages = [np.unique(stage_of[tasks]) for tasks in parts]
    edges: list[list[StageEdge]] = [[] for _ in parts]
    for tie in ties_of(dag).ties:
        for index, edge in _edges_inside(dag, tie, part, number, stages):
            edges[index].append(edge)
    return [
        Dag(
            resources=dag.resources,
            stage_names=tuple(dag.stage_names[s] for s in stages[index]),
            first=np.concatenate([[0], np.cumsum(np.bincount(stage_of[tasks])[stages[index]])]),
            duration_s=dag.duration_s[tasks],
            demand=dag.demand[tasks],
            edges=tuple(edges[index]),
        )
        for index, tasks in enumerate(parts)
    ]


def _nearest_child(ties: Ties, level: Ints, none: int) -> Ints:
    """The smallest level among each task's children, `none` without children."""
    ahead = np.full(ties.tasks, none, dtype=np.int64)
    for tie in ties.ties:
        if tie.pairs is None:
            above = ties.span(tie.parent)
            np.minimum(ahead[above], level[ties.span(tie.child)].min(), out=ahead[above])
        else:
            np.minimum.at(ahead, tie.pairs[0], level[tie.pairs[1]])
    return ahead


def _parents_among_last(ties: Ties, level: Ints, ahead: Ints) -> Ints:
    """How many parents of each task have no child on an earlier level than it."""
    count = np.zeros(ties.tasks, dtype=np.int64)
    for tie in ties.ties:
        if tie.pairs is None:
            below = ties.span(tie.child)
            nearest = np.sort(ahead[ties.span(tie.parent)])
            count[below] += np.searchsorted(nearest, level[below], side="right")
            count[below] -= np.searchsorted(nearest, level[below], side="left")
        else:
            parents, children = tie.pairs
            np.add.at(count, children, ahead[parents] == level[children])
    return count


def _edges_inside(
    dag: Dag, tie: Tie, part: Ints, number: Ints, stages: list[Ints]
) -> list[tuple[int, StageEdge]]:
    """A tie's edges inside each part, in the part's own stage and task numbers."""
    above = np.unique(part[dag.first[tie.parent] : dag.first[tie.parent + 1]])
    below = np.unique(part[dag.first[tie.child] : dag.first[tie.child + 1]])
    found = []
    for index in np.intersect1d(above, below).tolist():
        if index < 0:
            continue
        parent = int(np.searchsorted(stages[index], tie.parent))
        child = int(np.searchsorted(stages[index], tie.child))
        if tie.pairs is None:
            found.append((index, StageEdge(parent, child, Link.ALL)))
            continue
        inside = (part[tie.pairs[0]] == index) & (part[tie.pairs[1]] == index)
        if inside.any():
            pairs = np.column_stack([number[tie.pairs[0][inside]], number[tie.pairs[1][inside]]])
            found.append((index, StageEdge(parent, child, Link.SOME, pairs)))
    return found
