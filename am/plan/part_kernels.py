"""Walks over a part of a DAG: an order, longest paths, and who is before or after a set of tasks.

`part` is an `am.plan.part.Part`, either way round; a barrier costs its two stages, not its task
edges.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from weft.compiled import making_kernel

if TYPE_CHECKING:
    from am.plan.part import Part

Ints = NDArray[np.int64]
Labels = NDArray[np.int8]

T, S, P, C = range(4)  # troublesome, siblings, parents, children (Graphene section 4.1)


@making_kernel
def topological(part: "Part", order: Ints) -> int:
    """Fill `order` with the tasks, parents first; how many there are, less than n on a circle."""
    stages, tasks = len(part.first) - 1, len(part.stage_of)
    left = np.empty(stages, np.int64)
    gate = np.empty(stages, np.int64)
    missing = np.empty(tasks, np.int64)
    for s in range(stages):
        left[s] = part.first[s + 1] - part.first[s]
        gate[s] = part.gate_start[s + 1] - part.gate_start[s]
    done = 0
    for v in range(tasks):
        missing[v] = part.pair_start[v + 1] - part.pair_start[v]
        if missing[v] == 0 and gate[part.stage_of[v]] == 0:
            order[done] = v
            done += 1
    at = 0
    while at < done:
        v = order[at]
        at += 1
        for i in range(part.pair_stop[v], part.pair_stop[v + 1]):
            w = part.pair_to[i]
            missing[w] -= 1
            if missing[w] == 0 and gate[part.stage_of[w]] == 0:
                order[done] = w
                done += 1
        s = part.stage_of[v]
        left[s] -= 1
        if left[s] > 0:
            continue
        for i in range(part.gate_stop[s], part.gate_stop[s + 1]):
            c = part.gate_to[i]
            gate[c] -= 1
            if gate[c] == 0:
                for w in range(part.first[c], part.first[c + 1]):
                    if missing[w] == 0:
                        order[done] = w
                        done += 1
    return done


@making_kernel
def longest(part: "Part", path: Ints) -> None:
    """Fill `path` with the longest path that ends with each task, its own length included."""
    stages = len(part.first) - 1
    above = np.full(stages, -1, np.int64)  # the longest path up to a stage's gate, once known
    most = np.zeros(stages, np.int64)
    for v in part.order:
        s = part.stage_of[v]
        if above[s] < 0:
            above[s] = 0
            for i in range(part.gate_start[s], part.gate_start[s + 1]):
                above[s] = max(above[s], most[part.gate_from[i]])
        best = above[s]
        for i in range(part.pair_start[v], part.pair_start[v + 1]):
            best = max(best, path[part.pair_from[i]])
        path[v] = best + part.length[v]
        most[s] = max(most[s], path[v])


@making_kernel
def reached(part: "Part", seeds: Labels, mark: Labels) -> None:
    """Set `mark` to 1 on the seeds and everything after them, else 0."""
    stages = len(part.first) - 1
    known = np.zeros(stages, np.int8)
    gate = np.zeros(stages, np.int8)
    hit = np.zeros(stages, np.int8)
    for v in part.order:
        s = part.stage_of[v]
        if known[s] == 0:
            known[s] = 1
            for i in range(part.gate_start[s], part.gate_start[s + 1]):
                gate[s] |= hit[part.gate_from[i]]
        found = seeds[v] | gate[s]
        for i in range(part.pair_start[v], part.pair_start[v + 1]):
            found |= mark[part.pair_from[i]]
        mark[v] = found
        hit[s] |= found


@making_kernel
def divide(part: "Part", back: "Part", seeds: Labels, label: Labels) -> None:
    """Label every task T, S, P or C for a set of seeds (Graphene figure 13; docs/rules.md rule 21).

    T is closed: the seeds and all on a path between two of them.
    """
    after = np.empty_like(label)
    before = np.empty_like(label)
    reached(part, seeds, after)
    reached(back, seeds, before)
    for v in range(len(label)):
        if after[v] == 1:
            label[v] = T if before[v] == 1 else C
        else:
            label[v] = P if before[v] == 1 else S
