"""Longest paths through a DAG by stage: a barrier costs one maximum, never its n * n task edges."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from am.plan.link_kernels import Links, barrier_ends, joined, links_of
from weft.model.dag import Dag, Flags, Floats, Ints, Link, StageEdge, by_resource
from weft.model.errors import InputError
from weft.model.job import parents_first


@dataclass(frozen=True, slots=True, eq=False)
class Dependency:
    """All task edges from one stage to another; `pairs` is None for a barrier.

    `pairs` holds the parents' and the children's task numbers, distinct, shape (edges,) each.
    """

    parent: int
    child: int
    pairs: tuple[Ints, Ints] | None = None

    def reversed(self) -> "Dependency":
        """Return the same edges with time running backwards."""
        return Dependency(self.child, self.parent, None if self.pairs is None else self.pairs[::-1])


@dataclass(frozen=True, slots=True, eq=False)
class Dependencies:
    """The edges of a DAG, at most one dependency for a pair of stages.

    `order` has the stages, parents first; None where stages depend on each other in a circle
    although their tasks do not (possible with listed pairs only).
    """

    first: Ints
    dependencies: tuple[Dependency, ...]
    order: tuple[int, ...] | None

    @property
    def tasks(self) -> int:
        """The number of tasks, n."""
        return int(self.first[-1])

    def span(self, stage: int) -> slice:
        """Return the task numbers of a stage as a slice."""
        return slice(int(self.first[stage]), int(self.first[stage + 1]))

    @property
    def by_stage(self) -> bool:
        """Whether stages, none of them empty, wait for whole other stages only."""
        return (
            self.order is not None
            and all(one.pairs is None and one.parent != one.child for one in self.dependencies)
            and bool((self.first[1:] > self.first[:-1]).all())
        )

    def reversed(self) -> "Dependencies":
        """Return the same edges with time running backwards: tails become heads."""
        turned = tuple(dependency.reversed() for dependency in self.dependencies)
        return Dependencies(self.first, turned, None if self.order is None else self.order[::-1])

    def links(self) -> Links:
        """Return the same edges as compiled code counts them down."""
        stages = [
            (dependency.parent, dependency.child)
            for dependency in self.dependencies
            if dependency.pairs is None
        ]
        pairs = [
            dependency.pairs for dependency in self.dependencies if dependency.pairs is not None
        ]
        return links_of(self.first, barrier_ends(stages), joined(pairs))

    def by_child(self) -> Iterator[tuple[int, list[Dependency]]]:
        """Yield stages, parents first, with the dependencies of each; needs `order`."""
        into: list[list[Dependency]] = [[] for _ in range(len(self.first) - 1)]
        for dependency in self.dependencies:
            into[dependency.child].append(dependency)
        assert self.order is not None
        return ((stage, into[stage]) for stage in self.order)


def dependencies_of(dag: Dag) -> Dependencies:
    """Return a DAG's edges; one-to-one edges and listed pairs become task pairs (in O(tasks))."""
    grouped: dict[tuple[int, int], list[StageEdge]] = {}
    for edge in dag.edges:
        grouped.setdefault((edge.parent, edge.child), []).append(edge)
    dependencies = tuple(_dependency(dag, edges) for edges in grouped.values())
    return Dependencies(dag.first, dependencies, _stage_order(dag.stages, dependencies))


def heads(dependencies: Dependencies, weight: Floats) -> Floats:
    """Return the heaviest path into each task, its own weight left out, shape (n,).

    Raises InputError where tasks depend on each other in a circle.
    """
    if dependencies.by_stage:
        return _heads_by_stage(dependencies, weight)
    head = np.zeros(dependencies.tasks)
    if dependencies.order is None:
        return _settle(dependencies, list(dependencies.dependencies), head, weight)
    for _, into in dependencies.by_child():
        inside = [dependency for dependency in into if dependency.parent == dependency.child]
        for dependency in into:
            relax(dependencies, dependency, head, weight)
        if inside:
            _settle(dependencies, inside, head, weight)
    return head


def _heads_by_stage(dependencies: Dependencies, weight: Floats) -> Floats:
    """Return `heads` where all tasks of a stage wait for the same: a few numbers a stage."""
    first = dependencies.first
    heaviest = np.maximum.reduceat(weight, first[:-1]).tolist()
    head = [0.0] * len(heaviest)
    for stage, into in dependencies.by_child():
        if into:
            head[stage] = max(0.0, *[head[one.parent] + heaviest[one.parent] for one in into])
    return np.repeat(np.array(head), np.diff(first))


def tails(dependencies: Dependencies, weight: Floats) -> Floats:
    """Return the heaviest path out of each task, its own weight left out, shape (n,)."""
    return heads(dependencies.reversed(), weight)


def levels(dependencies: Dependencies) -> Ints:
    """Return the longest hop count from a source to each task, shape (n,)."""
    return heads(dependencies, np.ones(dependencies.tasks)).astype(np.int64)


def relax(dependencies: Dependencies, dependency: Dependency, head: Floats, weight: Floats) -> None:
    """Raise the children's `head` to what one dependency demands."""
    if dependency.pairs is None:
        above, below = dependencies.span(dependency.parent), dependencies.span(dependency.child)
        np.maximum(head[below], (head[above] + weight[above]).max(), out=head[below])
    else:
        parents, children = dependency.pairs
        np.maximum.at(head, children, head[parents] + weight[parents])


def whole_ancestors(dependencies: Dependencies) -> tuple[Flags, Flags]:
    """Return what must precede a stage, kept by stage; needs `order`; shapes (stages, stages).

    before[c, s]: every task of s is an ancestor of every task of c. reach[c, s]: every task of s is
    in c or has a descendant in c.
    """
    stages = len(dependencies.first) - 1
    before = np.zeros((stages, stages), dtype=bool)
    reach = np.eye(stages, dtype=bool)
    for stage, into in dependencies.by_child():
        for dependency in into:
            if dependency.parent == stage:
                continue
            before[stage] |= precede(dependencies, dependency, before, reach)
            if dependency.pairs is None or all_met(
                dependencies, dependency.parent, dependency.pairs[0]
            ):
                reach[stage] |= reach[dependency.parent]
        reach[stage] |= before[stage]
    return before, reach


def precede(
    dependencies: Dependencies, dependency: Dependency, before: Flags, reach: Flags
) -> Flags:
    """Return the stages that a dependency puts wholly before its child stage, shape (stages,)."""
    if dependency.pairs is None:
        return np.asarray(reach[dependency.parent])
    if all_met(dependencies, dependency.child, dependency.pairs[1]):
        return np.asarray(before[dependency.parent])
    return np.zeros(len(before), dtype=bool)


def all_met(dependencies: Dependencies, stage: int, tasks: Ints) -> bool:
    """Return whether the tasks listed include all of a stage's."""
    return len(np.unique(tasks)) == int(dependencies.first[stage + 1] - dependencies.first[stage])


def one_to_one_pairs(parents: int, children: int) -> tuple[Ints, Ints]:
    """Return the index pairs of a one_to_one edge, as `job.one_to_one_parents`, all at once."""
    if parents >= children:
        parent = np.arange(parents, dtype=np.int64)
        return parent, ((parent + 1) * children - 1) // parents
    child = np.arange(children, dtype=np.int64)
    return child * parents // children, child


def _dependency(dag: Dag, edges: list[StageEdge]) -> Dependency:
    parent, child = edges[0].parent, edges[0].child
    if any(edge.link is Link.ALL for edge in edges):
        return Dependency(parent, child)
    found: list[tuple[Ints, Ints]] = []
    for edge in edges:
        if edge.pairs is None:
            above, below = one_to_one_pairs(dag.size(parent), dag.size(child))
            found.append((above + dag.first[parent], below + dag.first[child]))
        else:
            rows = edge.pairs.reshape(-1, 2)
            found.append((rows[:, 0], rows[:, 1]))
    parents = np.concatenate([pair[0] for pair in found]).astype(np.int64)
    children = np.concatenate([pair[1] for pair in found]).astype(np.int64)
    codes = parents * dag.tasks + children
    # The pairs of one-to-one edges are already sorted.
    if np.any(codes[1:] <= codes[:-1]):
        codes = np.unique(codes)
        parents, children = codes // dag.tasks, codes % dag.tasks
    if parent != child and len(codes) == dag.size(parent) * dag.size(child):
        return Dependency(parent, child)
    return Dependency(parent, child, (parents, children))


def _settle(
    dependencies: Dependencies, among: list[Dependency], head: Floats, weight: Floats
) -> Floats:
    """Repeat until nothing moves: for the rare edges that follow no order of stages."""
    longest = dependencies.tasks + 1
    for _ in range(longest):
        before = head.copy()
        for dependency in among:
            relax(dependencies, dependency, head, weight)
        if np.array_equal(before, head):
            return head
    raise InputError("stages", "the tasks depend on each other in a circle")


def _stage_order(stages: int, dependencies: tuple[Dependency, ...]) -> tuple[int, ...] | None:
    parents: list[list[int]] = [[] for _ in range(stages)]
    for dependency in dependencies:
        if dependency.parent != dependency.child:
            parents[dependency.child].append(dependency.parent)
    order = parents_first(parents)
    return tuple(order) if len(order) == stages else None


def demand_classes(dag: Dag) -> tuple[Floats, Ints]:
    """Return the distinct demands, shape (k, d), and the class of each task, shape (n,)."""
    if dag.tasks == 0:
        return np.zeros((0, dag.demand.shape[1])), np.zeros(0, np.int64)
    changes = by_resource(np.logical_or, dag.demand[1:] != dag.demand[:-1])
    # Neighbours are mostly equal, so only the first of each run is compared.
    runs = np.concatenate([[0], np.flatnonzero(changes) + 1])
    lengths = np.diff(np.append(runs, dag.tasks))
    rows = [tuple(row) for row in dag.demand[runs].tolist()]
    distinct = sorted(set(rows))
    place = {row: number for number, row in enumerate(distinct)}
    kind = np.array([place[row] for row in rows], dtype=np.int64)
    return np.array(distinct, dtype=np.float64), np.repeat(kind, lengths)
