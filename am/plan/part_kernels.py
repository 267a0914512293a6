"""Walks over a part of a DAG: longest paths, and who is before or after a set of tasks.

A part is taken either way round; a barrier costs its two stages, not its task edges.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from am.plan.link_kernels import Links
from weft.policies.compiled import making_kernel

Ints = NDArray[np.int64]
Labels = NDArray[np.int8]

# They stand for troublesome tasks, siblings, parents and children (Graphene, section 4.1).
T, S, P, C = range(4)


class Part(NamedTuple):
    """A DAG of n tasks; times in ticks, demands in units (see `am.plan.part.Grid`).

    Shapes: `length` (n,), `demand` (n, d), `order` (n,), which lists parents before children.
    """

    links: Links
    length: Ints
    demand: Ints
    order: Ints

    def reversed(self) -> "Part":
        """Return the same part with time running backwards."""
        order = np.ascontiguousarray(self.order[::-1])
        return self._replace(links=self.links.reversed(), order=order)


class Ranks(NamedTuple):
    """Who goes first among ready tasks: tasks of one kind are equal to the board, lower goes first.

    `kind` (n,); `slot` (kinds + 1,) is where each kind's queue begins in an array of n.
    """

    kind: Ints
    slot: Ints


@making_kernel
def longest(part: Part, path: Ints) -> None:
    """Fill `path` with the longest path that ends with each task, its own length included."""
    links = part.links
    stages = len(links.first) - 1
    # The longest path up to a stage's barriers, or -1 while it is not known.
    above = np.full(stages, -1, np.int64)
    most = np.zeros(stages, np.int64)
    for v in part.order:
        s = links.stage[v]
        if above[s] < 0:
            above[s] = 0
            for i in range(links.before_at[s], links.before_at[s + 1]):
                above[s] = max(above[s], most[links.before[i]])
        best = above[s]
        for i in range(links.parent_at[v], links.parent_at[v + 1]):
            best = max(best, path[links.parent[i]])
        path[v] = best + part.length[v]
        most[s] = max(most[s], path[v])


@making_kernel
def reached(part: Part, seeds: Labels, mark: Labels) -> None:
    """Set `mark` to 1 on the seeds and everything after them, else 0."""
    links = part.links
    stages = len(links.first) - 1
    known = np.zeros(stages, np.int8)
    above = np.zeros(stages, np.int8)
    hit = np.zeros(stages, np.int8)
    for v in part.order:
        s = links.stage[v]
        if known[s] == 0:
            known[s] = 1
            for i in range(links.before_at[s], links.before_at[s + 1]):
                above[s] |= hit[links.before[i]]
        found = seeds[v] | above[s]
        for i in range(links.parent_at[v], links.parent_at[v + 1]):
            found |= mark[links.parent[i]]
        mark[v] = found
        hit[s] |= found


@making_kernel
def divide(part: Part, back: Part, seeds: Labels, label: Labels) -> None:
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
