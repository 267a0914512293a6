"""A job's remaining DAG as arrays, for askers that pack it."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from am.ask.packing_kernels import Held, Run, Shape
from am.ask.view import JobView
from weft.dag import Flags, Floats, Ints
from weft.job import TaskPairs
from weft.resources import Vector

Value = TypeVar("Value", np.float64, np.int64)
READY, RUNNING, DONE = 1, 2, 3
OVERDUE_SHARE = 0.05  # of its expected duration that a task which overran is given yet


def shape_of(view: JobView) -> Shape:
    """The unchanging part: stages, lots and links."""
    lots, sizes = view.lots, [len(states) for states in view.states]
    first = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    kind = np.empty(first[-1], np.int64)
    listing: list[Ints] = []
    for lot in lots:
        tasks = np.asarray(lot.tasks, dtype=np.int64) + first[lot.stage]
        kind[tasks] = lot.number
        listing.append(tasks)
    need = np.array([lot.demand for lot in lots], dtype=np.float64)
    capacity = np.asarray(view.capacity)
    dominant = (need / np.where(capacity > 0, capacity, 1.0)).max(axis=1)
    tie = np.empty(len(lots), np.int64)
    tie[np.lexsort((np.arange(len(lots)), -dominant))] = np.arange(len(lots))
    count = len(sizes)
    barrier = [(p, c) for c in range(count) for p, every in view.parents[c] if every]
    chained = [
        (p, c)
        for c in range(count)
        for p, every in view.parents[c]
        if not every and (p, c) not in view.pairs
    ]
    return Shape(
        first=first,
        stage=np.repeat(np.arange(count, dtype=np.int64), sizes),
        kind=kind,
        listing=np.concatenate(listing),
        lot_at=np.concatenate(([0], np.cumsum([len(lot.tasks) for lot in lots]))).astype(np.int64),
        need=need,
        rank=np.array([lot.pri_score for lot in lots]),
        tie=tie,
        depth=_depths(view),
        **_links("heir", barrier, count),
        **_links("chain", chained, count),
        **_pair_links(view.pairs, first),
    )


def _depths(view: JobView) -> Ints:
    depth = np.zeros(len(view.parents), np.int64)
    for _ in range(len(view.parents)):  # at most as many rounds as stages
        before = depth.copy()
        for child, parents in enumerate(view.parents):
            for parent, _every in parents:
                depth[child] = max(depth[child], depth[parent] + 1)
        if np.array_equal(before, depth):
            break
    return depth


def _links(name: str, pairs: Sequence[tuple[int, int]], stages: int) -> dict[str, Ints]:
    """Stage links as offsets and targets, down and up."""
    found: dict[str, Ints] = {}
    for suffix, ends in (("", pairs), ("_up", [(c, p) for p, c in pairs])):
        grouped = sorted(ends)
        counts = np.bincount([a for a, _ in grouped], minlength=stages) if grouped else [0] * stages
        found[f"{name}{suffix}_at"] = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        found[f"{name}{suffix}"] = np.array([b for _, b in grouped], dtype=np.int64)
    return found


def _pair_links(pairs: Mapping[tuple[int, int], TaskPairs], first: Ints) -> dict[str, Ints]:
    """Listed pairs as offsets and targets by task, down and up; empty without any."""
    none = np.zeros(0, np.int64)
    above, below = [none], [none]
    for (parent, child), listed in pairs.items():
        above.append(np.frombuffer(listed.parent, np.uint32) + first[parent])
        below.append(np.frombuffer(listed.child, np.uint32) + first[child])
    found: dict[str, Ints] = {}
    ends = np.concatenate(above), np.concatenate(below)
    for name, (start, end) in (("pair", ends), ("pair_up", ends[::-1])):
        counts = np.bincount(start, minlength=int(first[-1]))
        found[f"{name}_at"] = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        found[name] = end[np.lexsort((end, start))].astype(np.int64)
        if not pairs:
            found[f"{name}_at"] = none
    return found


def declared_s(view: JobView) -> Floats:
    """The declared duration of every task, in the order of `Shape`."""
    first = np.concatenate(([0], np.cumsum([len(states) for states in view.states])))
    declared = np.empty(first[-1])
    for lot in view.lots:
        tasks = np.asarray(lot.tasks, dtype=np.int64) + first[lot.stage]
        declared[tasks] = [lot.declared_of(task) for task in lot.tasks]
    return declared


def states_of(view: JobView) -> NDArray[np.uint8]:
    """The state of every task, in the order of `Shape`."""
    return np.concatenate([np.frombuffer(bytes(s), np.uint8) for s in view.states])


class Remaining:
    """What is left of a job now: states, believed durations, residuals of running tasks."""

    __slots__ = ("done", "duration", "residual", "running", "shape", "states", "unstarted")

    def __init__(self, shape: Shape, declared: Floats, view: JobView, now: float) -> None:
        self.shape = shape
        factor = np.asarray(view.factors)[shape.stage]
        self.duration = declared * factor
        self.states = states_of(view)
        self.unstarted = self.states <= READY
        self.done = self.states == DONE
        starts = {shape.first[t.stage] + t.task: t.started_s for t in view.running}
        self.running = np.flatnonzero(self.states == RUNNING).astype(np.int64)
        expected = self.duration[self.running]
        began = np.array([starts.get(int(task), now) for task in self.running])
        self.residual = np.maximum(expected - (now - began), OVERDUE_SHARE * expected)

    def run(self, reverse: bool) -> Run:
        """Fresh counters for one packing."""
        shape, n = self.shape, len(self.states)
        lots = len(shape.need)
        waits = self.unstarted if reverse else ~self.done
        at, links = (shape.heir_at, shape.heir) if reverse else (shape.heir_up_at, shape.heir_up)
        left = np.add.reduceat(waits, shape.first[:-1], dtype=np.int64)
        open_links = np.concatenate(([0], np.cumsum(left[links] > 0)))
        duration = self.duration.copy()
        if not reverse:
            duration[self.running] = self.residual
        return Run(
            duration=duration,
            missing=self._missing(waits, left > 0, reverse),
            stage_missing=(open_links[at[1:]] - open_links[at[:-1]]).astype(np.int64),
            stage_left=left,
            queue=np.empty(n, np.int64),
            head=np.zeros(lots, np.int64),
            tail=np.zeros(lots, np.int64),
            live=np.empty(lots, np.int64),
            ends=np.empty(n),
            tasks=np.empty(n, np.int64),
            start=np.full(n, np.nan),
        )

    def _missing(self, waits: NDArray[np.bool_], some: NDArray[np.bool_], reverse: bool) -> Ints:
        """Linked tasks over edges that are no barriers that each task waits for."""
        shape = self.shape
        missing = np.zeros(len(waits), np.int64)
        for parent in range(len(shape.first) - 1):
            low, high = shape.first[parent], shape.first[parent + 1]
            for child in shape.chain[shape.chain_at[parent] : shape.chain_at[parent + 1]]:
                if not some[child if reverse else parent]:
                    continue
                start, end = shape.first[child], shape.first[child + 1]
                ahead, behind = int(high - low), int(end - start)
                if reverse:
                    missing[low:high] += _tied(waits[start:end], ahead, behind)
                else:
                    missing[start:end] += _block(waits[low:high].astype(np.int64), ahead, behind)
        at, targets = (shape.pair_at, shape.pair) if reverse else (shape.pair_up_at, shape.pair_up)
        if len(at):
            open_links = np.concatenate(([0], np.cumsum(waits[targets])))
            missing += open_links[at[1:]] - open_links[at[:-1]]
        return missing

    def held(self, horizon_s: float, most: int = 64) -> Held:
        """What running tasks hold, seen backwards from `horizon_s`: times ascending, demands.

        More than `most` different ends are rounded up, so that less is taken for free.
        """
        if len(self.running) == 0:
            return Held(np.zeros(0), np.zeros((0, self.shape.need.shape[1])))
        residual = self.residual
        distinct = np.unique(residual)
        if len(distinct) > most:
            steps = distinct[np.linspace(0, len(distinct) - 1, most).round().astype(int)]
            residual = steps[np.searchsorted(steps, residual)]
            distinct = np.unique(residual)
        demand = self.shape.need[self.shape.kind[self.running]]
        held = np.zeros((len(distinct), demand.shape[1]))
        np.add.at(held, np.searchsorted(distinct, residual), demand)
        return Held(horizon_s - distinct[::-1], np.ascontiguousarray(held[::-1]))

    def release_s(self) -> Floats:
        """When the running parents of each task end, at the earliest; 0 without any."""
        shape = self.shape
        until = np.zeros(len(self.states))
        until[self.running] = self.residual
        release = np.zeros(len(self.states))
        for stage in np.unique(shape.stage[self.running]):
            low, high = shape.first[stage], shape.first[stage + 1]
            latest = float(until[low:high].max())
            for child in shape.heir[shape.heir_at[stage] : shape.heir_at[stage + 1]]:
                heirs = slice(shape.first[child], shape.first[child + 1])
                release[heirs] = np.maximum(release[heirs], latest)
            for child in shape.chain[shape.chain_at[stage] : shape.chain_at[stage + 1]]:
                heirs = slice(shape.first[child], shape.first[child + 1])
                ahead, behind = int(high - low), int(heirs.stop - heirs.start)
                own = _block(until[low:high], ahead, behind, np.maximum)
                release[heirs] = np.maximum(release[heirs], own)
        if len(shape.pair_at):
            above = np.repeat(np.arange(len(until)), np.diff(shape.pair_at))
            np.maximum.at(release, shape.pair, until[above])
        return release


def _block(
    values: NDArray[Value], parents: int, children: int, fold: np.ufunc = np.add
) -> NDArray[Value]:
    """Fold the parents' values for every child of a one_to_one edge."""
    begin = np.arange(children) * parents // children
    if parents < children:
        return values[begin]
    folded: NDArray[Value] = fold.reduceat(values, begin)
    return folded


def _tied(values: Flags, parents: int, children: int) -> Ints:
    """Sum the children's values for every parent of a one_to_one edge."""
    index = np.arange(parents)
    whole = values.astype(np.int64)
    if parents >= children:
        return whole[((index + 1) * children - 1) // parents]
    sums: Ints = np.add.reduceat(whole, -((-index * children) // parents))
    return sums


def pool_of(share: Vector, capacity: Vector, need: Floats, todo: Ints) -> Floats:
    """The share as one pool, with room for each task that is left on its own."""
    pool = np.array(share if share else capacity, dtype=np.float64)
    if len(todo):
        pool = np.maximum(pool, need[np.unique(todo)].max(axis=0))
    return pool
