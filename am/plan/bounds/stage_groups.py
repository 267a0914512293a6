"""Stages merged into groups of like role, and what lower bounds may take from each group."""

from dataclasses import dataclass

import numpy as np

from am.plan.paths import Dependencies, heads
from weft.model.dag import Dag, Floats
from weft.model.job import parents_first


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """A partition of the stages; arrays have shape (groups,), times in s.

    `least` is the shortest task, `whole` the time that no schedule of the whole group can beat,
    `barrier` says that all tasks of all parents end before any of the group starts, and all of the
    group before any child. `edges` are the pairs of groups in which every child task has a parent
    and every parent task a child; `order` has the groups, parents first, those in circles left out.
    """

    of_stage: list[int]
    least: Floats
    whole: Floats
    barrier: list[bool]
    edges: list[tuple[int, int]]
    order: list[int]


def work_s(duration_s: Floats, demand: Floats, total: Floats) -> float:
    """Return Graphene's eq. 1b, TWork: the fullest resource's work over its capacity, s."""
    return float((duration_s @ demand / np.where(total > 0, total, 1.0)).max(initial=0.0))


def groups_of(dag: Dag, dependencies: Dependencies, total: Floats, *, merge: bool) -> Groups:
    """Merge stages with equal parents and equal children (Graphene section 6, third idea)."""
    of_stage = _partition(dag, dependencies, merge)
    count = max(of_stage, default=-1) + 1
    inside = tuple(
        dependency
        for dependency in dependencies.dependencies
        if dependency.parent == dependency.child
    )
    longest = dag.duration_s
    if inside:
        longest = (
            heads(Dependencies(dependencies.first, inside, dependencies.order), dag.duration_s)
            + dag.duration_s
        )
    least = np.full(count, np.inf)
    most = np.zeros(count)
    work = np.zeros((count, dag.demand.shape[1]))
    for stage, group in enumerate(of_stage):
        span = dependencies.span(stage)
        least[group] = min(least[group], dag.duration_s[span].min())
        most[group] = max(most[group], longest[span].max())
        work[group] += dag.duration_s[span] @ dag.demand[span]
    barrier = [True] * count
    for dependency in dependencies.dependencies:
        if dependency.pairs is not None:
            barrier[of_stage[dependency.parent]] = barrier[of_stage[dependency.child]] = False
    edges = _covering(dependencies, of_stage)
    share = (work / np.where(total > 0, total, 1.0)).max(axis=1, initial=0.0)
    whole = np.maximum(most, share)
    return Groups(of_stage, least, whole, barrier, edges, _sorted_groups(count, edges))


def _partition(dag: Dag, dependencies: Dependencies, merge: bool) -> list[int]:
    if not merge:
        return list(range(dag.stages))
    parents: list[set[int]] = [set() for _ in range(dag.stages)]
    children: list[set[int]] = [set() for _ in range(dag.stages)]
    for dependency in dependencies.dependencies:
        parents[dependency.child].add(dependency.parent)
        children[dependency.parent].add(dependency.child)
    known: dict[object, int] = {}
    of_stage = []
    for stage in range(dag.stages):
        has_inner_edges = stage in parents[stage]
        key = stage if has_inner_edges else (frozenset(parents[stage]), frozenset(children[stage]))
        of_stage.append(known.setdefault(key, len(known)))
    return of_stage


def _covering(dependencies: Dependencies, of_stage: list[int]) -> list[tuple[int, int]]:
    """Return the pairs of groups whose tasks all take part in an edge between the two."""
    members: dict[int, list[int]] = {}
    for stage, group in enumerate(of_stage):
        members.setdefault(group, []).append(stage)
    covered: dict[tuple[int, int], list[set[int]]] = {}
    # The tasks met so far of each stage that does not take part as a whole.
    partial: dict[tuple[int, int], list[set[int]]] = {}
    for dependency in dependencies.dependencies:
        pair = (of_stage[dependency.parent], of_stage[dependency.child])
        if pair[0] == pair[1]:
            continue
        full = covered.setdefault(pair, [set(), set()])
        for side, stage in enumerate((dependency.parent, dependency.child)):
            if dependency.pairs is None:
                full[side].add(stage)
                continue
            met = np.unique(dependency.pairs[side])
            span = dependencies.span(stage)
            if len(met) == span.stop - span.start:
                full[side].add(stage)
            else:
                partial.setdefault(pair, [set(), set()])[side].update(met.tolist())
    edges = []
    for pair, full in covered.items():
        some = partial.get(pair, [set(), set()])
        if all(
            stage in full[side] or some[side].issuperset(_numbers(dependencies, stage))
            for side in (0, 1)
            for stage in members[pair[side]]
        ):
            edges.append(pair)
    return edges


def _numbers(dependencies: Dependencies, stage: int) -> range:
    span = dependencies.span(stage)
    return range(span.start, span.stop)


def _sorted_groups(count: int, edges: list[tuple[int, int]]) -> list[int]:
    parents: list[list[int]] = [[] for _ in range(count)]
    for parent, child in edges:
        parents[child].append(parent)
    return parents_first(parents)
