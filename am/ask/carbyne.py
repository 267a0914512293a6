"""Carbyne inside a job: start what must start for the job not to be late, offer the rest.

Sources: Carbyne pseudocode 1 (IntraJobScheduler) and section 4.2; docs/rules.md, rules 58
to 67. With the job's share as one pool, T_k is the end of a packing of the remaining DAG (running
tasks hold their demand for what is left of them). Packing the reversed DAG backwards from T_k puts
every task as late as it may start: `Actual = T_k - Rev - Dur`. Runnable tasks with `Actual <= 0`
must start now (DEFAULT); the others are asked for ALTRUISTIC, so others may use the leftover first.

What a job yields may be held by others when it falls due, as tasks are not interrupted. A T_k that
is counted from now at every event then forgets how late the job is, and the job yields again and
again. So the first T_k is a promise that is kept: it moves only when the share falls, an estimate
moves or a task fails (sections 3.4, 3.5), or forward where a later T_k ends earlier.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from am.ask.justify_kernels import justify
from am.ask.packing_kernels import HeldOverTime, Shape, pack
from am.ask.remaining import Remaining, declared_s, pool_of, shape_of, states_of
from am.ask.view import JobView, Wanted, Wish
from weft.model.dag import Floats
from weft.model.errors import InputError
from weft.model.resources import Vector
from weft.protocol.messages import AskType

READY = 1
PACKERS = ("tetris", "plan")


@dataclass(frozen=True, slots=True)
class Intra:
    """One job's schedule inside its share; times in s from now, by task.

    `start` is the packing that gives `t_k`, `latest` the Actual start times. `reversed_holds` is
    False where the reversed packing was longer than T_k, so the packing was pushed right instead.
    `leftover` is what the share has left beside running and must-start tasks (L_k).
    """

    t_k: float
    start: Floats
    latest: Floats
    must: NDArray[np.bool_]
    ready: NDArray[np.bool_]
    leftover: Floats
    reversed_holds: bool


def schedule(
    remaining: Remaining,
    share: Vector,
    capacity: Vector,
    by_rank: bool,
    within_s: float = np.inf,
    promise: float = 1.0,
) -> Intra:
    """Return one job's schedule by lines 16 to 24 of pseudocode 1.

    The job is to end within `promise` x the smaller of T_k and `within_s`. Where that is before
    T_k, every task is due that much earlier, and those that are late already must start.
    """
    shape = remaining.shape
    todo = np.flatnonzero(remaining.unstarted)
    pool = pool_of(share, capacity, shape.need, shape.kind[todo])
    marks = remaining.unstarted.astype(np.int64)
    none = HeldOverTime(np.zeros(0), np.zeros((0, len(pool))))
    forward = remaining.run(reverse=False)
    t_k = pack(shape, forward, marks, remaining.running, pool, none, by_rank, False)
    tolerance = 1e-9 * (1.0 + t_k)
    backward = remaining.run(reverse=True)
    idle = np.zeros(0, np.int64)
    length = pack(shape, backward, marks, idle, pool, remaining.held(t_k), by_rank, True)
    latest = t_k - backward.start - remaining.duration
    release = remaining.release_s()[todo] - tolerance
    reversed_holds = bool(np.isfinite(length) and np.all(latest[todo] >= release))
    if not reversed_holds and np.isfinite(t_k):
        latest = _justified(remaining, forward.start, pool, t_k)
    if not np.all(latest[todo] >= release):
        latest = forward.start.copy()
    latest = latest - max(0.0, t_k - promise * min(t_k, within_s))
    ready = remaining.states == READY
    must = ready & (latest <= tolerance)
    busy = np.concatenate((np.flatnonzero(must), remaining.running))
    leftover = np.asarray(share or capacity) - shape.need[shape.kind[busy]].sum(axis=0)
    return Intra(t_k, forward.start, latest, must, ready, np.maximum(leftover, 0.0), reversed_holds)


def _justified(remaining: Remaining, start: Floats, pool: Floats, t_k: float) -> Floats:
    """Push the forward packing right; T_k holds, unlike under a reversed packing that is longer.

    Falling back to the forward starts would give no altruism at all in such a round.
    """
    shape = remaining.shape
    todo = np.flatnonzero(remaining.unstarted)
    depth = shape.depth[shape.links.stage[todo]]
    begin = start[todo]
    by_end = np.lexsort((-todo, -depth, -begin, -(begin + remaining.duration[todo])))
    return justify(
        shape, remaining.duration, todo[by_end], remaining.running, remaining.residual, pool, t_k
    )


def pool_level(share: Vector, capacity: Vector) -> tuple[float, Vector]:
    """Return the dominant share, and the pool that it is worth: that part of every resource.

    DRF holds a job to its largest share only. Inside A_k itself, whose other parts follow the mean
    of the job's demands, a stage that differs from the mean would look longer than DRF makes it.
    """
    if not share:
        return 1.0, capacity
    level = max((s / c for s, c in zip(share, capacity, strict=True) if c > 0), default=0.0)
    return level, tuple(level * c for c in capacity)


# What a schedule was made for: version of the view, share, factors.
Known = tuple[int, Vector, tuple[float, ...]]


class Carbyne:
    """Asks DEFAULT for must-start tasks, ALTRUISTIC for the other ready ones.

    `altruism` is P(Altruism): with that probability the job yields at a scheduling event, else it
    asks DEFAULT for whatever its share holds now; at 0 it asks DEFAULT for every ready task, as a
    job under DRF does. `packer`: `tetris` inside the share, or the order of the job's `plan`.
    The schedule is made anew whenever anything changed.

    `promise` is the part of T_k within which the job keeps itself to end: 1 as in theorem 3.1, less
    to yield less (0: nothing), `inf` for a T_k that is counted anew at every event.
    """

    follows_share = True

    def __init__(
        self,
        altruism: float = 1.0,
        packer: str = "tetris",
        promise: float = 1.0,
    ) -> None:
        if packer not in PACKERS:
            raise InputError(
                "asker.packer", f"unknown packer {packer!r}; known: {', '.join(PACKERS)}"
            )
        if not 0.0 <= float(altruism) <= 1.0:
            raise InputError("asker.altruism", f"expected a number from 0 to 1, got {altruism!r}")
        if not float(promise) >= 0.0:
            raise InputError("asker.promise", f"expected a number from 0 on, got {promise!r}")
        self._altruism = float(altruism)
        self._promise = float(promise)
        self._by_rank = packer == "plan"
        self._shape: Shape | None = None
        self._declared: Floats = np.zeros(0)
        self._of: object = None
        self._known: Known | None = None
        self._intra: Intra | None = None
        self._at_s = 0.0
        # The promised end, the dominant share under which it was promised (0: nothing was), and the
        # tasks that had not started then.
        self._ends_s = np.inf
        self._level = 0.0
        self._left = 0

    def ask(self, view: JobView, now: float, rng: np.random.Generator) -> Wish:
        """Return must-start tasks and the rest, by group; wake when the next one falls due."""
        if self._altruism == 0.0:
            return Wish([Wanted(group.number, len(group.ready)) for group in view.changed.values()])
        intra = self._schedule(view, now)
        shape = self._shape
        assert shape is not None
        passed = now - self._at_s
        tolerance = 1e-9 * (1.0 + intra.t_k)
        if self._altruism < 1.0 and rng.random() >= self._altruism:
            due = intra.start
        else:
            due = intra.latest
        ready = states_of(view) == READY
        must = ready & (due <= passed + tolerance)
        counts = np.bincount(shape.kind[must], minlength=len(shape.need))
        rows: list[Wanted] = []
        for group in {**view.changed, **{group.number: group for group in view.available}}.values():
            now_due = min(int(counts[group.number]), len(group.ready))
            rows.append(Wanted(group.number, now_due, AskType.DEFAULT))
            rows.append(Wanted(group.number, len(group.ready) - now_due, AskType.ALTRUISTIC))
        later = due[ready & ~must]
        wake = float(later.min()) - passed if len(later) else None
        return Wish(rows, wake)

    def load(self) -> None:
        """Load the kernel that is needed only where a reversed packing turns out too long."""
        if self._shape is not None:
            none, pool = np.zeros(0, np.int64), np.ones(self._shape.need.shape[1])
            justify(self._shape, np.zeros(0), none, none, np.zeros(0), pool, 1.0)

    def _schedule(self, view: JobView, now: float) -> Intra:
        """Pack anew when the share, the remaining DAG or an estimate changed."""
        if self._of is not view.groups:
            self._of = view.groups
            self._shape, self._declared = shape_of(view), declared_s(view)
            self._known = None
        assert self._shape is not None
        known = (view.version, view.share, tuple(view.factors))
        if self._intra is None or known != self._known:
            remaining = Remaining(self._shape, self._declared, view, now)
            level, pool = pool_level(view.share, view.capacity)
            left = int(remaining.unstarted.sum())
            anew = left > self._left or not self._known or known[2] != self._known[2]
            within_s = np.inf if anew else self._within_s(level, now)
            self._intra = schedule(
                remaining,
                pool,
                view.capacity,
                self._by_rank,
                within_s=within_s,
                promise=self._promise,
            )
            self._ends_s = now + min(within_s, self._intra.t_k)
            self._level, self._left = level, left
            self._known, self._at_s = known, now
        return self._intra

    def _within_s(self, level: float, now: float) -> float:
        """Return how much of the promise is left, s; longer by as much as the share fell."""
        if level <= 0.0 or self._level <= 0.0:
            return np.inf
        return max(0.0, self._ends_s - now) * max(1.0, self._level / level)
