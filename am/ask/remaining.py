"""A job's remaining DAG as arrays, for askers that pack it."""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from am.ask.packing_kernels import HeldOverTime, Run, Shape
from am.ask.view import JobView
from am.plan.link_kernels import Ends, Links, barrier_ends, joined, links_of
from am.plan.paths import one_to_one_pairs
from weft.model.dag import Floats, Ints
from weft.model.job import parents_first
from weft.model.resources import Vector

READY, RUNNING, DONE = 1, 2, 3
# A task that overran is given this part of its expected duration yet.
OVERDUE_SHARE = 0.05


def shape_of(view: JobView) -> Shape:
    """Return the unchanging part of a job: stages, groups and links."""
    groups, sizes = view.groups, [len(states) for states in view.states]
    first = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    kind = np.empty(first[-1], np.int64)
    listing: list[Ints] = []
    for group in groups:
        tasks = np.asarray(group.tasks, dtype=np.int64) + first[group.stage]
        kind[tasks] = group.number
        listing.append(tasks)
    need = np.array([group.demand for group in groups], dtype=np.float64)
    capacity = np.asarray(view.capacity)
    dominant = (need / np.where(capacity > 0, capacity, 1.0)).max(axis=1)
    tie = np.empty(len(groups), np.int64)
    tie[np.lexsort((np.arange(len(groups)), -dominant))] = np.arange(len(groups))
    links = _links(view, first, np.concatenate(listing))
    backwards = [links.listing[low:high][::-1] for low, high in pairwise(first)]
    return Shape(
        links=links,
        back=links.reversed()._replace(listing=np.concatenate(backwards)),
        kind=kind,
        group_at=np.concatenate(([0], np.cumsum([len(group.tasks) for group in groups]))).astype(
            np.int64
        ),
        need=need,
        rank=np.array([group.pri_score for group in groups]),
        tie=tie,
        depth=_depths(view),
    )


def _links(view: JobView, first: Ints, listing: Ints) -> Links:
    """Return a job's edges; those that are neither barriers nor lists of pairs are one_to_one."""
    barriers: list[tuple[int, int]] = []
    pairs: list[Ends] = []
    for child, parents in enumerate(view.parents):
        for parent, every in parents:
            if every:
                barriers.append((parent, child))
                continue
            above, below = _task_pairs(view, parent, child)
            pairs.append((above + first[parent], below + first[child]))
    return links_of(first, barrier_ends(barriers), joined(pairs), listing)


def _task_pairs(view: JobView, parent: int, child: int) -> Ends:
    """Return parent and child tasks of an edge that is no barrier, counted within their stages."""
    listed = view.pairs.get((parent, child))
    if listed is None:
        return one_to_one_pairs(len(view.states[parent]), len(view.states[child]))
    parents, children = (np.frombuffer(side, np.uint32) for side in (listed.parent, listed.child))
    return parents.astype(np.int64), children.astype(np.int64)


def _depths(view: JobView) -> Ints:
    depth = np.zeros(len(view.parents), np.int64)
    for child in parents_first([[parent for parent, _ in above] for above in view.parents]):
        depth[child] = max([depth[parent] + 1 for parent, _ in view.parents[child]], default=0)
    return depth


def declared_s(view: JobView) -> Floats:
    """Return the declared duration of every task, in the order of `Shape`."""
    first = np.concatenate(([0], np.cumsum([len(states) for states in view.states])))
    declared = np.empty(first[-1])
    for group in view.groups:
        tasks = np.asarray(group.tasks, dtype=np.int64) + first[group.stage]
        declared[tasks] = [group.declared_of(task) for task in group.tasks]
    return declared


def states_of(view: JobView) -> NDArray[np.uint8]:
    """Return the state of every task, in the order of `Shape`."""
    return np.concatenate([np.frombuffer(bytes(s), np.uint8) for s in view.states])


class Remaining:
    """What is left of a job now: states, estimated durations, residuals of running tasks."""

    __slots__ = ("done", "duration", "residual", "running", "shape", "states", "unstarted")

    def __init__(self, shape: Shape, declared: Floats, view: JobView, now: float) -> None:
        self.shape = shape
        factor = np.asarray(view.factors)[shape.links.stage]
        self.duration = declared * factor
        self.states = states_of(view)
        self.unstarted = self.states <= READY
        self.done = self.states == DONE
        first = shape.links.first.tolist()
        starts = {first[stage] + task: started_s for stage, task, started_s in view.running}
        self.running = np.flatnonzero(self.states == RUNNING).astype(np.int64)
        expected = self.duration[self.running]
        began = np.array([starts.get(task, now) for task in self.running.tolist()])
        self.residual = np.maximum(expected - (now - began), OVERDUE_SHARE * expected)

    def run(self, reverse: bool) -> Run:
        """Return fresh counters for one packing."""
        shape, n = self.shape, len(self.states)
        groups = len(shape.need)
        duration = self.duration.copy()
        if not reverse:
            duration[self.running] = self.residual
        return Run(
            duration=duration,
            waits=shape.back.waits(self.unstarted) if reverse else shape.links.waits(~self.done),
            ready=np.empty(n, np.int64),
            queue=np.empty(n, np.int64),
            head=np.zeros(groups, np.int64),
            tail=np.zeros(groups, np.int64),
            live=np.empty(groups, np.int64),
            ends=np.empty(n),
            tasks=np.empty(n, np.int64),
            start=np.full(n, np.nan),
        )

    def held(self, horizon_s: float, most: int = 64) -> HeldOverTime:
        """Return what running tasks hold, seen backwards from `horizon_s`.

        The times are ascending, with demands. More than `most` different ends are rounded up, so
        that less is taken for free.
        """
        if len(self.running) == 0:
            return HeldOverTime(np.zeros(0), np.zeros((0, self.shape.need.shape[1])))
        residual = self.residual
        distinct = np.unique(residual)
        if len(distinct) > most:
            steps = distinct[np.linspace(0, len(distinct) - 1, most).round().astype(int)]
            residual = steps[np.searchsorted(steps, residual)]
            distinct = np.unique(residual)
        demand = self.shape.need[self.shape.kind[self.running]]
        held = np.zeros((len(distinct), demand.shape[1]))
        np.add.at(held, np.searchsorted(distinct, residual), demand)
        return HeldOverTime(horizon_s - distinct[::-1], np.ascontiguousarray(held[::-1]))

    def release_s(self) -> Floats:
        """Return when the running parents of each task end, at the earliest; 0 without any."""
        links = self.shape.links
        until = np.zeros(len(self.states))
        release = np.zeros(len(self.states))
        if not len(self.running):
            return release
        until[self.running] = self.residual
        for stage in np.unique(links.stage[self.running]):
            latest = float(until[links.first[stage] : links.first[stage + 1]].max())
            for child in links.after[links.after_at[stage] : links.after_at[stage + 1]]:
                span = slice(links.first[child], links.first[child + 1])
                release[span] = np.maximum(release[span], latest)
        if len(links.child):
            above = np.repeat(np.arange(len(until)), np.diff(links.child_at))
            waits = until[above] > 0
            np.maximum.at(release, links.child[waits], until[above[waits]])
        return release


def pool_of(share: Vector, capacity: Vector, need: Floats, todo: Ints) -> Floats:
    """Return the share as one pool, with room for each task that is left on its own."""
    pool = np.array(share if share else capacity, dtype=np.float64)
    if len(todo):
        pool = np.maximum(pool, need[np.flatnonzero(np.bincount(todo))].max(axis=0))
    return pool
