"""Deficit counters: how much service a group was owed and did not get.

A group is a leaf queue, or an application (Graphene section 5.1, figure 15 line 28; docs/rules.md,
rules 42, 43). The counters sum to 0. A placement moves them among the groups that *take part* in
it: those that have something pending which may use that node (label, black list, size, limits),
whether or not it is free now. So a group whose asks can be placed nowhere is owed nothing, and
nobody is owed for containers on nodes that it could not have used. A group that idles keeps no
credit.
"""

from typing import NamedTuple

from rm.ledger.columns import Bools
from rm.match.filter_kernels import OPEN, Asks, Place, Site, allowed, fits, kept_off, place_at
from rm.match.limit_kernels import Limits, admits
from rm.match.score_kernels import TIE, fill_part
from weft.model.dag import Floats, Ints
from weft.policies.compiled import inner_kernel, kernel

# These say what one placed container counts.
SLOTS, DRF, TIME = 0, 1, 2
# A demand that is held for so long counts as much as in DRF.
TIME_UNIT_S = 30.0


class Groups(NamedTuple):
    """Groups in a decision; working copies that change with each pick.

    `deficit` and `share` are (groups,); shares sum to 1 over the groups that take part, others have
    0. `held` (groups, d) is over C. From a deficit of `bound` on, the neediest group goes first.
    `unit` is SLOTS, DRF or TIME.
    """

    deficit: Floats
    share: Floats
    held: Floats
    bound: float
    unit: int


@kernel
def neediest(deficit: Floats, share: Floats, here: Bools) -> int:
    """Return the group with the highest deficit among those with something eligible; -1: none."""
    best = -1
    for g in range(deficit.shape[0]):
        if here[g] and share[g] > 0.0 and (best < 0 or deficit[g] > deficit[best] + TIE):
            best = g
    return best


@kernel
def book_deficit(deficit: Floats, share: Floats, group: int, factor: float) -> None:
    """Raise every counter by factor x share and lower the own one by factor (figure 15 line 28)."""
    for g in range(deficit.shape[0]):
        deficit[g] += factor * share[g]
    deficit[group] -= factor


@kernel
def deficit_factor(work: Floats, held: Floats, duration_s: float, unit: int) -> float:
    """Return what one container counts: 1 in slots, its dominant demand, or that x duration.

    `work` (d,) is the demand over C, `held` (d,) the group's holding over C: the dominant resource
    is that of which the group holds most; the demand's own largest where it holds nothing.
    """
    if unit == SLOTS:
        return 1.0
    top, best = 0.0, -1
    for r in range(held.shape[0]):
        if held[r] > top:
            top, best = held[r], r
    factor = 0.0
    if best >= 0:
        factor = work[best]
    else:
        for r in range(work.shape[0]):
            factor = max(factor, work[r])
    return float(factor * duration_s / TIME_UNIT_S if unit == TIME else factor)


@kernel
def over_active(share: Floats, active: Bools, also: int, but: int, out: Floats) -> bool:
    """Fill `out` (groups,) with shares that sum to 1 over the active groups, 0 elsewhere.

    The group `also` counts as active, the group `but` does not (-1: nobody). Return whether there
    is any.
    """
    whole = 0.0
    for g in range(out.shape[0]):
        out[g] = share[g] if (active[g] or g == also) and g != but else 0.0
        whole += out[g]
    for g in range(out.shape[0]):
        out[g] = out[g] / whole if whole > 0.0 else 0.0
    return whole > 0.0


@kernel
def book_placed(
    counters: Floats,
    share: Floats,
    active: Bools,
    group: int,
    factor: float,
    copies: int,
    normal: Floats,
) -> None:
    """Book `copies` placed containers of `group`, which took part with the `active` groups.

    `normal` (groups,) is scratch.
    """
    over_active(share, active, group, -1, normal)
    for _ in range(copies):
        book_deficit(counters, normal, group, factor)


@kernel
def give_away(counters: Floats, share: Floats, active: Bools, group: int, normal: Floats) -> bool:
    """Hand a group's counter, credit or debt, to the other active ones by share.

    Return whether there was anybody to take it; else it is kept, so that the sum stays 0. `normal`
    (groups,) is scratch.
    """
    if not over_active(share, active, -1, group, normal):
        return False
    mine = counters[group]
    counters[group] = 0.0
    for g in range(counters.shape[0]):
        counters[g] += mine * normal[g]
    return True


class Parties(NamedTuple):
    """Who may be owed.

    `group_of` is by application slot. The others are by group: `eligible` are leaf queues, or
    active applications, and `waiting` counts their pending containers. `total` (d,) is C.
    """

    group_of: Ints
    eligible: Bools
    waiting: Ints
    share: Floats
    total: Floats
    limits: Limits


@inner_kernel
def busy(who: Parties, group: int) -> bool:
    """Return whether a group has something pending."""
    return bool(who.eligible[group] and who.waiting[group] > 0)


@inner_kernel
def _may_use(asks: Asks, place: Place, row: int) -> bool:
    """Return whether a row may use a node and would fit there if nothing ran on it.

    Reservations do not matter here.
    """
    banned = place.banned[asks.app[row]]
    off = kept_off(asks.label[row], asks.serial[row], place.labels, 0, banned)
    return off == OPEN and fits(asks.needs[:, row], place.capacity, place.capacity)


@kernel
def taking_part(asks: Asks, place: Place, who: Parties, work: Floats, out: Bools) -> None:
    """Fill `out` (groups,): which of the busy groups have a pending row that may use a node.

    What is there now, and whom the node is kept for, does not matter: the room was given to
    another. A group whose queue or user is at a limit takes no part. `work` (d,) is scratch.
    """
    missing = 0
    for g in range(out.shape[0]):
        out[g] = False
        missing += 1 if busy(who, g) else 0
    for row in range(asks.size):
        if missing == 0:
            break
        app = asks.app[row]
        g = who.group_of[app]
        if asks.pending[row] <= 0 or out[g] or not busy(who, g) or not _may_use(asks, place, row):
            continue
        fill_part(asks.needs[:, row], who.total, work)
        if admits(who.limits, app, work):
            out[g] = True
            missing -= 1


@kernel
def state_on_node(
    counters: Floats,
    asks: Asks,
    site: Site,
    who: Parties,
    held: Floats,
    state: Groups,
    active: Bools,
    work: Floats,
) -> None:
    """Fill a `state` with the groups that take part on a node: deficits, shares, holdings over C.

    `held` (groups, d) is absolute. New groups start at 0. `active` (groups,) and `work` (d,) are
    scratch.
    """
    taking_part(asks, place_at(site), who, work, active)
    over_active(who.share, active, -1, -1, state.share)
    for g in range(state.share.shape[0]):
        state.deficit[g] = counters[g] if g < counters.shape[0] else 0.0
        fill_part(held[g], who.total, state.held[g])


class Booking(NamedTuple):
    """Like containers that were placed on a node.

    `demand` (d,) is that of one, `held` (d,) what the group holds with all of them, both absolute.
    """

    group: int
    demand: Floats
    duration_s: float
    copies: int
    held: Floats
    unit: int


class BookingScratch(NamedTuple):
    """Arrays for a booking to write on: `active` and `normal` are (groups,), `work` is (2, d)."""

    active: Bools
    normal: Floats
    work: Floats


@kernel
def book_on_node(
    counters: Floats,
    asks: Asks,
    site: Site,
    who: Parties,
    booking: Booking,
    up: Bools,
    scratch: BookingScratch,
) -> None:
    """Book placed containers, and hand the credit of groups that idle to those that take part.

    A group idles when nothing of it is pending (it is not busy), or nothing that any node in
    service (`up`) could hold.
    """
    active, normal, work = scratch.active, scratch.normal, scratch.work
    taking_part(asks, place_at(site), who, work[0], active)
    fill_part(booking.demand, who.total, work[0])
    fill_part(booking.held, who.total, work[1])
    factor = deficit_factor(work[0], work[1], booking.duration_s, booking.unit)
    share = who.share
    book_placed(counters, share, active, booking.group, factor, booking.copies, normal)
    for g in range(counters.shape[0]):
        if g == booking.group or counters[g] <= 0.0 or active[g]:
            continue
        if not busy(who, g) or not _placeable(asks, who.group_of, g, site, up):
            give_away(counters, share, active, g, normal)


@kernel
def _placeable(asks: Asks, group_of: Ints, group: int, nodes: Site, up: Bools) -> bool:
    """Return whether any node in service could hold anything that a group has pending."""
    for row in range(asks.size):
        if asks.pending[row] <= 0 or group_of[asks.app[row]] != group:
            continue
        demand = asks.needs[:, row]
        for node in range(up.shape[0]):
            capacity = nodes.capacity[node]
            usable = up[node] and allowed(asks.label[row], nodes.labels[node])
            if usable and fits(demand, capacity, capacity):
                return True
    return False
