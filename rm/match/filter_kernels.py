"""Which asks may use a node, and what keeps the others off it: written once, as a reason.

Candidates keep what `kept_off` leaves OPEN and `fits`, explanations count the reasons of
`blocked_on`, reservations and submissions ask with the capacity for what is available. A new
precondition goes into `kept_off`. Limits of queues and users have reasons of their own
(`limit_kernels.held_back`). A gang's rows are never a matcher's (the core starts gangs whole).
"""

from typing import NamedTuple

import numpy as np

from rm.ledger.columns import Bools
from weft.model.dag import Floats, Ints
from weft.model.resources import TOLERANCE
from weft.policies.compiled import inner_kernel, kernel

# These are what keeps an ask off a node, in the order in which it is looked for; what is below
# TOO_LARGE has nothing to do with size.
OPEN, DOWN, LABEL, PLACE, BANNED, RESERVED, TOO_LARGE, NO_ROOM = range(8)
# Explanations use these words, for nodes in service.
WORDS = {
    LABEL: "node {label}",
    PLACE: "node is none that the ask names",
    BANNED: "node is on the application's black list",
    RESERVED: "node is reserved for another ask",
    TOO_LARGE: "larger than the node: {resource}",
    NO_ROOM: "does not fit: {resource}",
}


class Asks(NamedTuple):
    """Pending asks by row; arrays have room for more than `size`, the rows in use.

    `app` is the application's slot, `label` the bit of the label needed, 0 for nodes without
    labels. `needs` (d, rows) is absolute, of one container, and lies by resource as most kernels
    look at one resource of many rows.
    """

    size: int
    pending: Ints
    app: Ints
    label: Ints
    gang: Bools
    serial: Ints
    needs: Floats
    duration_s: Floats
    pri_score: Floats


class Site(NamedTuple):
    """One node, by its slot in the tables of all.

    `banned` is by application slot: whether its master keeps off the node. `available` and
    `capacity` are (nodes, d).
    """

    node: int
    banned: Bools
    labels: Ints
    reserved: Ints
    available: Floats
    capacity: Floats


class Place(NamedTuple):
    """One node, to all asks.

    `labels` is a bit mask, `reserved` the serial of the ask that the node is kept for, 0 for none.
    `available` (d,) is below 0 where the node is overbooked; `capacity` is (d,). `banned` is by
    application slot: whether its master keeps off the node.
    """

    labels: int
    reserved: int
    available: Floats
    capacity: Floats
    banned: Bools


class Nodes(NamedTuple):
    """All nodes, to one ask; by node slot.

    `named` are those among the places that the ask names, where it may not go elsewhere; `banned`
    those that the application's master keeps off. `available` (nodes, d) is what the ask may count
    on there, `capacity` is (nodes, d).
    """

    up: Bools
    labels: Ints
    named: Bools
    banned: Bools
    reserved: Ints
    available: Floats
    capacity: Floats


class Want(NamedTuple):
    """What one container of an ask needs of a node; `demand` is (d,)."""

    label: int
    serial: int
    demand: Floats


@inner_kernel
def place_at(site: Site) -> Place:
    """Return a node taken out of the tables, which is cheaper here than in Python."""
    node = site.node
    return Place(
        site.labels[node],
        site.reserved[node],
        site.available[node],
        site.capacity[node],
        site.banned,
    )


@inner_kernel
def _lacks(need: float, room: float, capacity: float) -> bool:
    return need > 0.0 and need > room + TOLERANCE * capacity


@kernel
def fits(demand: Floats, room: Floats, capacity: Floats) -> bool:
    """Return whether a demand (d,) fits into `room` (d,) on a node of `capacity` (d,)."""
    for r in range(demand.shape[0]):  # noqa: SIM110 (a loop compiles to less)
        if _lacks(demand[r], room[r], capacity[r]):
            return False
    return True


@inner_kernel
def lacking(demand: Floats, room: Floats, capacity: Floats) -> int:
    """Return the first resource of which there is too little for a demand (d,); -1: of none."""
    for r in range(demand.shape[0]):
        if _lacks(demand[r], room[r], capacity[r]):
            return r
    return -1


@inner_kernel
def fits_share(need: Floats, free: Floats) -> bool:
    """Return whether a demand (d,) fits into what is free (d,), both over the node's capacity."""
    lacks = 0
    for r in range(free.shape[0]):
        # A branch here would be predicted wrongly for half of the rows.
        lacks += int(need[r] > max(free[r] + TOLERANCE, 0.0))
    return lacks == 0


@kernel
def allowed(label: int, labels: int) -> bool:
    """Return whether a node with `labels` (bits) takes an ask for `label` (a bit; 0: for none)."""
    return labels & label != 0 if label != 0 else labels == 0


@inner_kernel
def kept_off(label: int, serial: int, labels: int, reserved: int, banned: bool) -> int:
    """Return what keeps an ask off a node whatever its size: LABEL, BANNED, RESERVED, or OPEN."""
    if not allowed(label, labels):
        return LABEL
    if banned:
        return BANNED
    if reserved not in (0, serial):
        return RESERVED
    return OPEN


@inner_kernel
def size_keeps(demand: Floats, room: Floats, capacity: Floats) -> int:
    """Return whether a demand (d,) is too much for a node: TOO_LARGE, NO_ROOM (d,), or OPEN."""
    if fits(demand, room, capacity):
        return OPEN
    return NO_ROOM if fits(demand, capacity, capacity) else TOO_LARGE


@inner_kernel
def row_kept_off(asks: Asks, place: Place, row: int) -> int:
    """Return what keeps a row off a node whatever its size, as `kept_off`."""
    banned = place.banned[asks.app[row]]
    return kept_off(asks.label[row], asks.serial[row], place.labels, place.reserved, banned)


@kernel
def blocked_on(want: Want, nodes: Nodes, reason: Ints, lacks: Ints) -> None:
    """Fill `reason` (nodes,) with what keeps an ask off each node.

    Where that is its size, `lacks` (nodes,) becomes the first resource that is lacking.
    """
    for node in range(reason.shape[0]):
        available, capacity = nodes.available[node], nodes.capacity[node]
        labels, reserved, banned = nodes.labels[node], nodes.reserved[node], nodes.banned[node]
        off = kept_off(want.label, want.serial, labels, reserved, banned)
        if not nodes.up[node]:
            off = DOWN
        elif off != LABEL and not nodes.named[node]:
            off = PLACE
        if off == OPEN:
            off = size_keeps(want.demand, available, capacity)
            room = capacity if off == TOO_LARGE else available
            lacks[node] = lacking(want.demand, room, capacity)
        reason[node] = off


@kernel
def copies(demand: Floats, available: Floats, capacity: Floats, most: int) -> int:
    """Return how many containers of a demand fit into `available` together, at most `most`."""
    count = most
    for r in range(available.shape[0]):
        if demand[r] > 0:
            room = int(np.floor((available[r] + TOLERANCE * capacity[r]) / demand[r]))
            count = min(count, max(room, 0))
    return count


@kernel
def copies_on(demand: Floats, available: Floats, capacity: Floats, count: Ints) -> None:
    """Lower each node's `count` (nodes,) to how many containers of a demand (d,) fit there."""
    for node in range(count.shape[0]):
        count[node] = copies(demand, available[node], capacity[node], count[node])
