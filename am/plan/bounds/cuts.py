"""Sound cuts: where a DAG falls into parts that run strictly one after another.

Graphene section 4.4 (CutDAGs) cuts between stages and ignores edge kinds; docs/rules.md, rule 10,
asks that every task before a cut is an ancestor of every task after it.
"""

import numpy as np

from am.plan.paths import Dependencies, Dependency, dependencies_of, levels
from weft.model.dag import Dag, Ints, Link, StageEdge


def cut(dag: Dag) -> list[Ints]:
    """Return the parts of a DAG in order, each the task numbers of one part, ascending.

    A cut leaves all of the first part before all of the rest exactly when each last task of the
    first part is a parent of each first task of the rest, and then longest hop counts separate
    the two. So only the thresholds of that count are tried, each by counting edges.
    """
    if dag.tasks == 0:
        return []
    dependencies = dependencies_of(dag)
    level = levels(dependencies)
    deepest = int(level.max())
    ahead = _nearest_child(dependencies, level, deepest + 1)
    # `last[L]` becomes the number of tasks up to level L that have no child up to L.
    last = np.zeros(deepest + 2, dtype=np.int64)
    np.add.at(last, level, 1)
    np.add.at(last, ahead, -1)
    last = np.cumsum(last)
    count = _parents_among_last(dependencies, level, ahead)
    fewest = np.full(deepest + 1, np.iinfo(np.int64).max)
    np.minimum.at(fewest, level, count)
    starts = [0] + [k + 1 for k in range(deepest) if fewest[k + 1] == last[k]]
    part = np.searchsorted(starts, level, side="right") - 1
    by_part = np.argsort(part, kind="stable")
    return np.split(by_part, np.searchsorted(part[by_part], np.arange(1, len(starts))))


def split(dag: Dag, parts: list[Ints]) -> list[Dag]:
    """Return the sub-DAGs over disjoint task sets: edges inside a set are kept, others dropped."""
    part = np.full(dag.tasks, -1, dtype=np.int64)
    number = np.zeros(dag.tasks, dtype=np.int64)
    for index, tasks in enumerate(parts):
        part[tasks] = index
        number[tasks] = np.arange(len(tasks))
    stage_of = dag.stage_of
    stages = [np.unique(stage_of[tasks]) for tasks in parts]
    edges: list[list[StageEdge]] = [[] for _ in parts]
    for dependency in dependencies_of(dag).dependencies:
        for index, edge in _edges_inside(dag, dependency, part, number, stages):
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


def _nearest_child(dependencies: Dependencies, level: Ints, none: int) -> Ints:
    """Return the smallest level among each task's children, `none` without children."""
    ahead = np.full(dependencies.tasks, none, dtype=np.int64)
    for dependency in dependencies.dependencies:
        if dependency.pairs is None:
            above = dependencies.span(dependency.parent)
            np.minimum(
                ahead[above], level[dependencies.span(dependency.child)].min(), out=ahead[above]
            )
        else:
            np.minimum.at(ahead, dependency.pairs[0], level[dependency.pairs[1]])
    return ahead


def _parents_among_last(dependencies: Dependencies, level: Ints, ahead: Ints) -> Ints:
    """Return how many parents of each task have no child on an earlier level than it."""
    count = np.zeros(dependencies.tasks, dtype=np.int64)
    for dependency in dependencies.dependencies:
        if dependency.pairs is None:
            below = dependencies.span(dependency.child)
            nearest = np.sort(ahead[dependencies.span(dependency.parent)])
            count[below] += np.searchsorted(nearest, level[below], side="right")
            count[below] -= np.searchsorted(nearest, level[below], side="left")
        else:
            parents, children = dependency.pairs
            np.add.at(count, children, ahead[parents] == level[children])
    return count


def _edges_inside(
    dag: Dag, dependency: Dependency, part: Ints, number: Ints, stages: list[Ints]
) -> list[tuple[int, StageEdge]]:
    """Return a dependency's edges inside each part, in the part's own stage and task numbers."""
    above = part[dag.first[dependency.parent] : dag.first[dependency.parent + 1]]
    below = part[dag.first[dependency.child] : dag.first[dependency.child + 1]]
    found: list[tuple[int, StageEdge]] = []
    # Most stages consist of one part each.
    if above.max() < below.min():
        return found
    for index in np.intersect1d(above, below).tolist():
        if index < 0:
            continue
        parent = int(np.searchsorted(stages[index], dependency.parent))
        child = int(np.searchsorted(stages[index], dependency.child))
        if dependency.pairs is None:
            found.append((index, StageEdge(parent, child, Link.ALL)))
            continue
        inside = (part[dependency.pairs[0]] == index) & (part[dependency.pairs[1]] == index)
        if inside.any():
            pairs = np.column_stack(
                [number[dependency.pairs[0][inside]], number[dependency.pairs[1][inside]]]
            )
            found.append((index, StageEdge(parent, child, Link.SOME, pairs)))
    return found
