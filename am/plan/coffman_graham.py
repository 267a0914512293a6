"""Coffman-Graham: labels from the sinks upwards, then a list schedule, highest label first.

A label goes to the task whose children's labels, in falling order, come first in the dictionary.
Tasks with equal children get neighbouring labels, so a stage whose children all wait for all of it
is labelled at once, and sets of labels are kept as ranges.
"""

from heapq import heappop, heappush

import numpy as np

from am.plan.list_schedule import in_order
from am.plan.paths import Dependencies, Dependency, dependencies_of, precede, whole_ancestors
from am.plan.registry import PlanRequest
from weft.model.dag import Dag, Flags, Ints
from weft.model.errors import InputError
from weft.model.plan import Plan, plan_of_starts

# Beyond this, transitive edges stay: they only move labels.
_STAGES_MAX = 2000
# Each range is (highest, minus the lowest); the ranges fall.
Ranges = tuple[tuple[int, int], ...]


def plan(request: PlanRequest) -> Plan:
    """List schedule by falling labels."""
    dependencies = dependencies_of(request.dag)
    order = np.argsort(-_labels(request.dag, _reduced(dependencies)), kind="stable")
    machine, start_s = in_order(request.dag, request.machines, order, dependencies)
    return plan_of_starts("coffman_graham", request.dag, machine, start_s)


def _reduced(dependencies: Dependencies) -> Dependencies:
    """Leave out what says nothing new: another path puts all of one stage before the other."""
    if dependencies.order is None or len(dependencies.order) > _STAGES_MAX:
        return dependencies
    before, reach = whole_ancestors(dependencies)
    into: dict[int, list[Dependency]] = {}
    for dependency in dependencies.dependencies:
        into.setdefault(dependency.child, []).append(dependency)
    kept = [
        dependency
        for dependency in dependencies.dependencies
        if not _implied(dependencies, dependency, into[dependency.child], before, reach)
    ]
    return Dependencies(dependencies.first, tuple(kept), dependencies.order)


def _implied(
    dependencies: Dependencies,
    dependency: Dependency,
    beside: list[Dependency],
    before: Flags,
    reach: Flags,
) -> bool:
    return any(
        precede(dependencies, other, before, reach)[dependency.parent]
        for other in beside
        if other.parent not in (dependency.parent, dependency.child)
    )


def _labels(dag: Dag, dependencies: Dependencies) -> Ints:
    """Return a label for each task, 0 to n - 1, children below parents, shape (n,)."""
    blocks = _Blocks(dag, dependencies)
    label = np.full(dag.tasks, -1, dtype=np.int64)
    waiting = [len(children) for children in blocks.children]
    heap: list[tuple[Ranges, int]] = [((), b) for b, count in enumerate(waiting) if count == 0]
    ranges: list[Ranges] = [()] * len(waiting)
    given = 0
    while heap:
        _, block = heappop(heap)
        tasks = blocks.tasks[block]
        label[tasks.start : tasks.stop] = np.arange(given, given + len(tasks))[::-1]
        ranges[block] = ((given + len(tasks) - 1, -given),)
        given += len(tasks)
        done = [block]
        # The list grows while it is read, because hubs have no label to wait for.
        for ended in done:
            for parent in blocks.parents[ended]:
                waiting[parent] -= 1
                if waiting[parent] == 0:
                    joined = _joined([ranges[child] for child in blocks.children[parent]])
                    if blocks.tasks[parent]:
                        heappush(heap, (joined, parent))
                    else:
                        ranges[parent] = joined
                        done.append(parent)
    if given < dag.tasks:
        raise InputError("stages", "the tasks depend on each other in a circle")
    return label


def _joined(several: list[Ranges]) -> Ranges:
    """Return one falling list of ranges, neighbours joined, that sorts as its labels do."""
    joined: list[list[int]] = []
    for high, minus_low in sorted({r for ranges in several for r in ranges}, reverse=True):
        if joined and high == joined[-1][0] - 1:
            joined[-1][0] = -minus_low
        else:
            joined.append([-minus_low, high])
    return tuple((high, -low) for low, high in joined)


class _Blocks:
    """Tasks that share all children: whole stages where every edge out is a barrier, else tasks.

    A barrier between two stages of single tasks goes through a hub without tasks.
    """

    def __init__(self, dag: Dag, dependencies: Dependencies) -> None:
        apart = {
            dependency.parent
            for dependency in dependencies.dependencies
            if dependency.pairs is not None
        }
        self.tasks: list[range] = []
        block_of = np.zeros(dag.tasks, dtype=np.int64)
        for stage in range(dag.stages):
            numbers = dag.tasks_of(stage)
            for piece in [range(t, t + 1) for t in numbers] if stage in apart else [numbers]:
                block_of[piece.start : piece.stop] = len(self.tasks)
                self.tasks.append(piece)
        self.children: list[list[int]] = [[] for _ in self.tasks]
        self.parents: list[list[int]] = [[] for _ in self.tasks]
        for dependency in dependencies.dependencies:
            if dependency.pairs is None:
                self._join(
                    np.unique(block_of[dependencies.span(dependency.parent)]).tolist(),
                    np.unique(block_of[dependencies.span(dependency.child)]).tolist(),
                )
            else:
                codes = np.unique(
                    np.stack([block_of[side] for side in dependency.pairs], axis=1), axis=0
                )
                for parent, child in codes.tolist():
                    self._join([parent], [child])

    def _join(self, above: list[int], below: list[int]) -> None:
        if len(above) > 1 and len(below) > 1:
            hub = len(self.tasks)
            self.tasks.append(range(0))
            self.children.append([])
            self.parents.append([])
            self._join(above, [hub])
            above = [hub]
        for parent in above:
            for child in below:
                self.children[parent].append(child)
                self.parents[child].append(parent)
