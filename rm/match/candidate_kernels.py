"""The filter and the snapshot of a scoring matcher in one pass over the rows."""

from typing import NamedTuple

import numpy as np

from rm.ledger.columns import Bools
from rm.match.filter_kernels import OPEN, Asks, Place, Site, place_at, row_kept_off
from weft.model.dag import Floats, Ints
from weft.model.resources import TOLERANCE
from weft.policies.compiled import inner_kernel, kernel, making_kernel


class Candidates(NamedTuple):
    """Rows of one node's decision; arrays have shape (k,), (k, d) or (d,).

    The first `fit` rows fit, the others only with overbooking. `packing` (k, d) is demand over the
    node's capacity, `work` (k, d) over the cluster's. `rank` is the order for ties: the earlier
    application, then the earlier ask. `level` is NODE_LOCAL (also of asks that prefer no place),
    RACK_LOCAL or REMOTE. `free` (d,) is what is available over the node's capacity; `room` (d,) is
    the same with overbooking, and below 0 where the node is overbooked.
    """

    rows: Ints
    fit: int
    packing: Floats
    work: Floats
    duration: Floats
    pri: Floats
    pending: Ints
    app: Ints
    rank: Ints
    level: Ints
    free: Floats
    room: Floats

    def part(self, keep: Ints) -> "Candidates":
        """Return copies of some of the rows, in the order of `keep`; they all count as fitting."""
        return Candidates(
            self.rows[keep],
            len(keep),
            self.packing[keep],
            self.work[keep],
            self.duration[keep],
            self.pri[keep],
            self.pending[keep],
            self.app[keep],
            self.rank[keep],
            self.level[keep],
            self.free.copy(),
            self.room.copy(),
        )


class Sieve(NamedTuple):
    """Arrays for `choose` to write on.

    `most` (2, d) is what a row may need to fit, and to fit with more room; `lacks` (2, rows) is of
    how many resources each row finds too little of that. `chosen` is (rows,), and `extra` has a
    place for each row that is wanted although it fits with more room only.
    """

    most: Floats
    lacks: Ints
    chosen: Ints
    extra: Ints


@inner_kernel
def choose(asks: Asks, site: Site, beyond: Floats, sieve: Sieve) -> tuple[int, int]:
    """Fill `chosen` with the rows that may use a node and fit there.

    After them come as many as `extra` holds that would fit with `beyond` (d,) x capacity more room,
    the most preferred first. Return how many fit, and how many there are.

    Which of the rows fit is as good as chance, so nothing branches on that.
    """
    place, most, chosen, extra = place_at(site), sieve.most, sieve.chosen, sieve.extra
    # These are the sums of `fits`, which are the same for every row.
    for r in range(most.shape[1]):
        slack = TOLERANCE * place.capacity[r]
        most[0, r] = max(place.available[r] + slack, 0.0)
        most[1, r] = max(place.available[r] + beyond[r] * place.capacity[r] + slack, 0.0)
    lacks, wider = sieve.lacks[0], sieve.lacks[1]
    _count_lacks(asks, most[0], lacks)
    fit = _open_of(asks, place, chosen, _lacking_none(lacks, asks.size, chosen))
    if extra.shape[0] == 0:
        return fit, fit
    _count_lacks(asks, most[1], wider)
    # The rows that fit without more room are none of those that fit only with it.
    for row in range(asks.size):
        wider[row] += int(lacks[row] == 0)
    others = chosen[fit:]
    extras = 0
    for i in range(_open_of(asks, place, others, _lacking_none(wider, asks.size, others))):
        if extras < extra.shape[0] or _preferred(asks, others[i], extra[extras - 1]):
            extras = _keep(asks, others[i], extra, extras)
    for i in range(extras):
        chosen[fit + i] = extra[i]
    return fit, fit + extras


@kernel
def choose_alone(asks: Asks, site: Site, beyond: Floats, sieve: Sieve) -> tuple[int, int]:
    """Do what `choose` does, for Python."""
    return choose(asks, site, beyond, sieve)


@inner_kernel
def _count_lacks(asks: Asks, most: Floats, lacks: Ints) -> None:
    """Fill `lacks` (rows,): of how many resources a row needs more than `most` (d,).

    A row of which nothing is pending, or that is a gang's, lacks one more.
    """
    pending, gang = asks.pending, asks.gang
    for row in range(asks.size):
        lacks[row] = int(pending[row] <= 0) | int(gang[row])
    for r in range(most.shape[0]):
        needs, limit = asks.needs[r], most[r]
        for row in range(asks.size):
            lacks[row] += int(needs[row] > limit)


@inner_kernel
def _lacking_none(lacks: Ints, size: int, found: Ints) -> int:
    """Fill `found` with the rows that lack nothing; return how many they are."""
    count = 0
    for row in range(size):
        found[count] = row
        count += int(lacks[row] == 0)
    return count


@inner_kernel
def _open_of(asks: Asks, place: Place, rows: Ints, count: int) -> int:
    """Keep of the first `count` rows those that nothing keeps off a node; return how many."""
    kept = 0
    for i in range(count):
        row = rows[i]
        rows[kept] = row
        kept += int(row_kept_off(asks, place, row) == OPEN)
    return kept


@kernel
def describe(
    asks: Asks,
    site: Site,
    chosen: Ints,
    level: Ints,
    order: Ints,
    total: Floats,
    beyond: Floats,
    found: Candidates,
) -> None:
    """Fill the columns of candidates, whose rows are the first of `chosen`.

    `level` is by row, `order` by application slot.
    """
    capacity, available = site.capacity[site.node], site.available[site.node]
    for i in range(found.rows.shape[0]):
        row = chosen[i]
        slot = asks.app[row]
        found.rows[i] = row
        found.app[i] = slot
        found.pending[i] = asks.pending[row]
        found.duration[i] = asks.duration_s[row]
        found.pri[i] = asks.pri_score[row]
        found.rank[i] = (order[slot] << 32) + asks.serial[row]
        found.level[i] = level[row]
        for r in range(total.shape[0]):
            demand = asks.needs[r, row]
            found.packing[i, r] = demand / capacity[r] if capacity[r] > 0.0 else 0.0
            found.work[i, r] = demand / total[r] if total[r] > 0.0 else 0.0
    for r in range(total.shape[0]):
        found.free[r] = found.room[r] = 0.0
        if capacity[r] > 0.0:
            found.free[r] = max(available[r], 0.0) / capacity[r]
            found.room[r] = available[r] / capacity[r] + beyond[r]


@inner_kernel
def _preferred(asks: Asks, row: int, other: int) -> bool:
    """Return whether a row goes before another: the larger priScore, then the earlier ask."""
    mine, its = asks.pri_score[row], asks.pri_score[other]
    return bool(mine > its or (mine == its and asks.serial[row] < asks.serial[other]))


@inner_kernel
def _keep(asks: Asks, row: int, kept: Ints, count: int) -> int:
    """Insert a row among the most preferred, as many as `kept` holds; return how many there are.

    Where they are as many already, it must be preferred to the last of them.
    """
    at = min(count, kept.shape[0] - 1)
    while at > 0 and _preferred(asks, row, kept[at - 1]):
        kept[at] = kept[at - 1]
        at -= 1
    kept[at] = row
    return int(min(count + 1, kept.shape[0]))


@making_kernel
def over(amounts: Floats, by: Floats) -> Floats:
    """Return amounts (n, d) over capacities (d,), 0 where that is 0; shape (n, d)."""
    out = np.zeros(amounts.shape)
    for i in range(amounts.shape[0]):
        for r in range(by.shape[0]):
            if by[r] > 0.0:
                out[i, r] = amounts[i, r] / by[r]
    return out


@kernel
def mean_of_busy(remaining: Floats, active: Bools, pending: Ints) -> float:
    """Return the mean over active applications with something pending, 0 where there is none."""
    total, count = 0.0, 0
    for slot in range(remaining.shape[0]):
        if active[slot] and pending[slot] > 0:
            total += remaining[slot]
            count += 1
    return total / count if count else 0.0


@making_kernel
def weights_of(queue: Ints, counts: Bools, capacity: Floats) -> Floats:
    """Return a weight by application slot, of mean 1; 0 for those that do not count.

    It is the capacity of its queue over the number of the queue's applications that count.
    """
    out = np.zeros(queue.shape[0])
    many = np.zeros(capacity.shape[0])
    for slot in range(queue.shape[0]):
        if counts[slot]:
            many[queue[slot]] += 1.0
    total, count = 0.0, 0
    for slot in range(queue.shape[0]):
        if counts[slot]:
            out[slot] = max(capacity[queue[slot]] / many[queue[slot]], 1e-9)
            total += out[slot]
            count += 1
    if total > 0.0:
        out *= count / total
    return out


@making_kernel
def largest_over(amounts: Floats, by: Floats) -> Floats:
    """Return the dominant share of each row of amounts (n, d) over capacities (d,), shape (n,)."""
    out = np.zeros(amounts.shape[0])
    for i in range(amounts.shape[0]):
        for r in range(by.shape[0]):
            if by[r] > 0.0:
                out[i] = max(out[i], amounts[i, r] / by[r])
    return out


@making_kernel
def summed_up(amounts: Floats, active: Bools, queue: Ints, parent: Ints) -> Floats:
    """Return the sum of amounts (slots,) of active applications over each queue and those below."""
    out = np.zeros(parent.shape[0])
    for slot in range(amounts.shape[0]):
        at = queue[slot] if active[slot] else -1
        while at >= 0:
            out[at] += amounts[slot]
            at = parent[at]
    return out


@making_kernel
def wanted_of(held: Floats, pending: Ints, demand: Floats, app: Ints) -> Floats:
    """Return what each application holds and asks for together, absolute, shape (slots, d)."""
    out = held.copy()
    for row in range(pending.shape[0]):
        if pending[row] > 0:
            for r in range(held.shape[1]):
                out[app[row], r] += pending[row] * demand[row, r]
    return out


@kernel
def next_is_one(
    pri: Floats, slot: Ints, pending: Ints, app: Ints, pri_score: Floats, top: Floats
) -> None:
    """Divide priScore `pri` (k,) of rows of application slots by the largest pending one of each.

    `top` (slots,) is scratch.
    """
    for row in range(pending.shape[0]):
        top[app[row]] = 0.0
    for row in range(pending.shape[0]):
        if pending[row] > 0:
            top[app[row]] = max(top[app[row]], pri_score[row])
    for i in range(pri.shape[0]):
        if top[slot[i]] > 0.0:
            pri[i] = pri[i] / top[slot[i]]
