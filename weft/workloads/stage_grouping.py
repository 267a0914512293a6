"""Single tasks with edges, grouped into stages whose edges say exactly the same dependencies.

A stage holds the tasks of one kind at one depth of the graph. Its edges from another stage are
`all_to_all` where they are complete, `one_to_one` where an order of the tasks was found in which
they are matched in contiguous blocks (`weft.model.job.one_to_one_parents`), and else listed pairs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from weft.model.errors import InputError
from weft.model.job import NO_PAIRS, EdgeKind, TaskPairs, one_to_one_parents, parents_first

_ORDER_PASSES = 4


@dataclass(slots=True)
class Group:
    """One stage: its tasks in order, and its parents: position of the group, kind, listed pairs."""

    tasks: list[int]
    parents: list[tuple[int, EdgeKind, TaskPairs]]


def group_tasks(kinds: Sequence[str], parents: Sequence[Sequence[int]]) -> list[Group]:
    """Return stages of tasks given by kind and parents (by position), parents first.

    Raises InputError for a cycle.
    """
    depth = _depths(parents)
    members: dict[tuple[int, str], list[int]] = {}
    for task, kind in enumerate(kinds):
        members.setdefault((depth[task], kind), []).append(task)
    groups = [tasks for _, tasks in sorted(members.items(), key=lambda m: (m[0][0], m[1][0]))]
    bundles = _bundles(groups, parents)
    _order_tasks(groups, bundles)
    answer = [Group(tasks, []) for tasks in groups]
    for (parent, child), bundle in sorted(bundles.items(), key=lambda item: item[0]):
        kind = _kind(groups[parent], groups[child], bundle)
        pairs = NO_PAIRS
        if kind is EdgeKind.PAIRS:
            pairs = _pairs(groups[parent], groups[child], bundle)
        answer[child].parents.append((parent, kind, pairs))
    return answer


def _depths(parents: Sequence[Sequence[int]]) -> list[int]:
    """Return the longest path from a root to each task; raises InputError for a cycle."""
    depth, order = [0] * len(parents), parents_first(parents)
    for task in order:
        depth[task] = max([depth[parent] + 1 for parent in parents[task]], default=0)
    if len(order) < len(parents):
        raise InputError("parents", "the tasks' dependencies form a cycle")
    return depth


# A bundle holds the edges between two groups: for each child task its parents of that group.
_Bundle = dict[int, list[int]]


def _bundles(
    groups: list[list[int]], parents: Sequence[Sequence[int]]
) -> dict[tuple[int, int], _Bundle]:
    where = {task: number for number, tasks in enumerate(groups) for task in tasks}
    bundles: dict[tuple[int, int], _Bundle] = {}
    for child, above in enumerate(parents):
        for parent in above:
            bundle = bundles.setdefault((where[parent], where[child]), {})
            bundle.setdefault(child, []).append(parent)
    return bundles


def _complete(parent: list[int], child: list[int], bundle: _Bundle) -> bool:
    return len(bundle) == len(child) and all(len(b) == len(parent) for b in bundle.values())


def _kind(parent: list[int], child: list[int], bundle: _Bundle) -> EdgeKind:
    """Return how the edges between two ordered groups are said exactly."""
    if _complete(parent, child, bundle):
        return EdgeKind.ALL_TO_ALL
    for position, task in enumerate(child):
        wanted = one_to_one_parents(len(parent), len(child), position)
        if sorted(bundle.get(task, ())) != sorted(parent[i] for i in wanted):
            return EdgeKind.PAIRS
    return EdgeKind.ONE_TO_ONE


def _pairs(parent: list[int], child: list[int], bundle: _Bundle) -> TaskPairs:
    place = {task: position for position, task in enumerate(parent)}
    return TaskPairs.of(
        (place[above], position)
        for position, task in enumerate(child)
        for above in bundle.get(task, ())
    )


def _order_tasks(groups: list[list[int]], bundles: dict[tuple[int, int], _Bundle]) -> None:
    """Order tasks inside groups so that matched blocks become contiguous where they can.

    Alternates down the graph (children by their parents' positions) and up (parents by their
    children's). Only how shortly edges are said depends on how well this does, never exactness.
    """
    above: list[list[tuple[int, _Bundle]]] = [[] for _ in groups]
    below: list[list[tuple[int, _Bundle]]] = [[] for _ in groups]
    for (parent, child), bundle in sorted(bundles.items(), key=lambda item: item[0]):
        if _complete(groups[parent], groups[child], bundle):
            continue
        above[child].append((parent, bundle))
        turned: _Bundle = {}
        for task, found in bundle.items():
            for one in found:
                turned.setdefault(one, []).append(task)
        below[parent].append((child, turned))
    for number in range(_ORDER_PASSES):
        down = number % 2 == 0
        order = range(len(groups)) if down else range(len(groups) - 1, -1, -1)
        for group in order:
            _sort_by_neighbours(groups, group, above[group] if down else below[group])


def _sort_by_neighbours(
    groups: list[list[int]], group: int, neighbours: list[tuple[int, _Bundle]]
) -> None:
    keys: dict[int, list[int]] = {task: [] for task in groups[group]}
    for other, bundle in neighbours:
        position = {task: i for i, task in enumerate(groups[other])}
        for task, key in keys.items():
            key.append(min((position[one] for one in bundle.get(task, ())), default=-1))
    groups[group].sort(key=lambda task: keys[task])
