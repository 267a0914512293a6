"""The filter and the snapshot of a scoring matcher in one pass over the rows."""

import numpy as np

from rm.ledger.asks import NODE_LOCAL
from rm.ledger.columns import Bools
from rm.match.fit_kernels import TOLERANCE
from weft.compiled import kernel, making_kernel
from weft.dag import Floats, Ints

Gathered = tuple[
    Ints, int, Floats, Floats, Floats, Floats, Ints, Ints, Ints, Floats, Floats, Floats
]


@making_kernel
def gather(
    pending: Ints,
    app: Ints,
    label: Ints,
    gang: Bools,
    serial: Ints,
    demand: Floats,
    duration_s: Floats,
    pri_score: Floats,
    level: Ints,
    order: Ints,
    banned: Bools,
    labels: int,
    reserved: int,
    available: Floats,
    capacity: Floats,
    total: Floats,
    beyond: Floats,
    extra_most: int,
) -> Gathered:
    """Rows that may use a node and fit there, then at most `extra_most` that would fit with
    `beyond` (d,) x capacity more room, the most preferred first.

    Answers (rows, how many of them fit, demand / capacity (k, d), demand / C (k, d), duration,
    priScore, pending, application, rank, remote, free / capacity (d,), room with `beyond` (d,)).
    """
    n, d = pending.shape[0], total.shape[0]
    chosen = np.empty(n + extra_most, dtype=np.int64)
    extra = np.empty(extra_most, dtype=np.int64)
    more, least = np.empty(d), np.empty(d)
    for r in range(d):
        least[r] = available[r] + TOLERANCE * capacity[r]
        more[r] = least[r] + beyond[r] * capacity[r]
    fit, extras = 0, 0
    for row in range(n):
        if pending[row] <= 0 or gang[row] or banned[app[row]]:
            continue
        if reserved != 0 and serial[row] != reserved:
            continue
        if label[row] == 0:
            if labels != 0:
                continue
        elif labels & label[row] == 0:
            continue
        lacking = _lacking(demand[row], least, more)
        if lacking == 0:
            chosen[fit] = row
            fit += 1
        elif lacking == 1 and extra_most > 0:
            extras = _keep(row, extra, extras, pri_score, serial)
    for i in range(extras):
        chosen[fit + i] = extra[i]
    k = fit + extras
    rows = chosen[:k].copy()
    packing, work = np.zeros((k, d)), np.zeros((k, d))
    duration, pri, remote = np.empty(k), np.empty(k), np.empty(k)
    left, of, rank = np.empty(k, np.int64), np.empty(k, np.int64), np.empty(k, np.int64)
    for i in range(k):
        row = rows[i]
        of[i] = app[row]
        left[i] = pending[row]
        duration[i] = duration_s[row]
        pri[i] = pri_score[row]
        rank[i] = (order[app[row]] << 32) + serial[row]
        remote[i] = 1.0 if level[row] != NODE_LOCAL else 0.0
        for r in range(d):
            if capacity[r] > 0.0:
                packing[i, r] = demand[row, r] / capacity[r]
            if total[r] > 0.0:
                work[i, r] = demand[row, r] / total[r]
    free, room = np.zeros(d), np.zeros(d)
    for r in range(d):
        if capacity[r] > 0.0:
            free[r] = max(available[r], 0.0) / capacity[r]
            room[r] = available[r] / capacity[r] + beyond[r]
    return rows, fit, packing, work, duration, pri, left, of, rank, remote, free, room


@kernel
def _lacking(need: Floats, least: Floats, more: Floats) -> int:
    """0: it fits; 1: only with more room; 2: not even then."""
    lacking = 0
    for r in range(need.shape[0]):
        if need[r] > 0.0 and need[r] > least[r]:
            if need[r] > more[r]:
                return 2
            lacking = 1
    return lacking


@kernel
def _keep(row: int, kept: Ints, count: int, pri_score: Floats, serial: Ints) -> int:
    """Insert a row among the most preferred ones, as many as `kept` holds; answers how many."""
    at = count
    while at > 0:
        other = kept[at - 1]
        if pri_score[other] > pri_score[row] or (
            pri_score[other] == pri_score[row] and serial[other] < serial[row]
        ):
            break
        at -= 1
    if at >= kept.shape[0]:
        return count
    for i in range(min(count, kept.shape[0] - 1), at, -1):
        kept[i] = kept[i - 1]
    kept[at] = row
    return count + 1 if count < kept.shape[0] else count


@making_kernel
def over(amounts: Floats, by: Floats) -> Floats:
    """Amounts (n, d) over capacities (d,), 0 where that is 0; shape (n, d)."""
    out = np.zeros(amounts.shape)
    for i in range(amounts.shape[0]):
        for r in range(by.shape[0]):
            if by[r] > 0.0:
                out[i, r] = amounts[i, r] / by[r]
    return out


@kernel
def mean_of_busy(remaining: Floats, active: Bools, pending: Ints) -> float:
    """Mean over active applications with something pending, 0 where there is none."""
    total, count = 0.0, 0
    for slot in range(remaining.shape[0]):
        if active[slot] and pending[slot] > 0:
            total += remaining[slot]
            count += 1
    return total / count if count else 0.0


@making_kernel
def weights_of(queue: Ints, active: Bools, capacity: Floats, apps: Ints) -> Floats:
    """By application slot: the queue's capacity over its applications, mean 1 over active ones."""
    out = np.empty(queue.shape[0])
    total, count = 0.0, 0
    for slot in range(queue.shape[0]):
        at = queue[slot]
        out[slot] = capacity[at] / max(apps[at], 1)
        if active[slot]:
            total += out[slot]
            count += 1
    mean = total / count if total > 0.0 else 1.0
    for slot in range(queue.shape[0]):
        out[slot] = max(out[slot] / mean, 1e-9)
    return out


@making_kernel
def largest_over(amounts: Floats, by: Floats) -> Floats:
    """The dominant share of each row of amounts (n, d) over capacities (d,), shape (n,)."""
    out = np.zeros(amounts.shape[0])
    for i in range(amounts.shape[0]):
        for r in range(by.shape[0]):
            if by[r] > 0.0:
                out[i] = max(out[i], amounts[i, r] / by[r])
    return out


@making_kernel
def steps_of(work: Floats, app: Ints, weight: Floats) -> Floats:
    """By how much the weighted dominant share of its application grows with a row, shape (k,)."""
    out = np.zeros(work.shape[0])
    for i in range(work.shape[0]):
        for r in range(work.shape[1]):
            out[i] = max(out[i], work[i, r])
        out[i] /= weight[app[i]]
    return out


@making_kernel
def wanted_of(held: Floats, pending: Ints, demand: Floats, app: Ints) -> Floats:
    """What each application holds and asks for together, absolute, shape (slots, d)."""
    out = held.copy()
    for row in range(pending.shape[0]):
        if pending[row] > 0:
            for r in range(held.shape[1]):
                out[app[row], r] += pending[row] * demand[row, r]
    return out


@making_kernel
def next_is_one(
    pri: Floats, of: Ints, pending: Ints, app: Ints, pri_score: Floats, slots: int
) -> Floats:
    """priScore (k,) of rows of applications `of` over the largest of each one's pending rows."""
    top = np.zeros(slots)
    for row in range(pending.shape[0]):
        if pending[row] > 0:
            top[app[row]] = max(top[app[row]], pri_score[row])
    out = np.empty(pri.shape[0])
    for i in range(pri.shape[0]):
        out[i] = pri[i] / top[of[i]] if top[of[i]] > 0.0 else pri[i]
    return out
