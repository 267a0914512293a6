"""Walks over a part of a DAG: an order, longest paths, and who is before or after a set of tasks.

A part is taken either way round; a barrier costs its two stages, not its task
edges.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.compiled import making_kernel

Ints = NDArray[np.int64]
Labels = NDArray[np.int8]

T, S, P, C = range(4)  # troublesome, siblings, parents, children (Graphene section 4.1)


class Part(NamedTuple):
    """A DAG of n tasks in s stages; times in ticks, demands in units (see `am.plan.part.Grid`).

    Barriers are kept by stage: `gate_from[gate_start[x]:gate_start[x + 1]]` are the stages that
    stage x waits for as a whole, `gate_to` the mirror. Other edges are pairs of tasks, likewise by
    task. `order` has the tasks, parents first.
    """

    first: Ints
    stage_of: Ints
    length: Ints
    demand: Ints
    gate_start: Ints
    gate_from: Ints
    gate_stop: Ints
    gate_to: Ints
    pair_start: Ints
    pair_from: Ints
    pair_stop: Ints
    pair_to: Ints
    order: Ints

    def reversed(self) -> "Part":
        """The same part with time running backwards."""
        return self._replace(
            gate_start=self.gate_stop,
            gate_from=self.gate_to,
            gate_stop=self.gate_start,
            gate_to=self.gate_from,
            pair_start=self.pair_stop,
            pair_from=self.pair_to,
            pair_stop=self.pair_start,
            pair_to=self.pair_from,
            order=np.ascontiguousarray(self.order[::-1]),
        )


class Ranks(NamedTuple):
    """Who goes first among ready tasks: tasks of one kind are equal to the board, lower goes first.

    `kind` (n,); `slot` (kinds + 1,) is where each kind's queue begins in an array of n.
    """

    kind: Ints
    slot: Ints


@making_kernel
def topological(part: Part, order: Ints) -> int:
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
def longest(part: Part, path: Ints) -> None:
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
def reached(part: Part, seeds: Labels, mark: Labels) -> None:
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
