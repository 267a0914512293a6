"""Which rows may use a node: label, black list, reservation, size, room. Written once.

Matchers keep the rows that nothing keeps off and that fit; deficit counters ask who could have used
a node. A gang's rows are never a matcher's (the core starts gangs whole).
"""

from typing import NamedTuple

import numpy as np

from rm.ledger.columns import Bools
from rm.ledger.ledger_kernels import TOLERANCE
from weft.compiled import inner_kernel, kernel
from weft.dag import Floats, Ints

# what keeps a row off a node whatever its size, in the order in which it is looked for
OPEN, LABEL, BANNED, RESERVED = range(4)


class Asks(NamedTuple):
    """Pending asks by row; arrays have room for more than `size`."""

    size: int  # rows in use
    pending: Ints
    app: Ints  # slot of the application
    label: Ints  # bit of the label needed, 0: nodes without labels
    gang: Bools
    serial: Ints
    demand: Floats  # (rows, d), absolute, of one container
    duration_s: Floats
    pri_score: Floats


class Site(NamedTuple):
    """One node, by its slot in the tables of all."""

    node: int
    banned: Bools  # by application slot: whose master keeps off it
    labels: Ints
    reserved: Ints
    available: Floats  # (nodes, d)
    capacity: Floats  # (nodes, d)


class Place(NamedTuple):
    """One node."""

    labels: int  # bit mask
    reserved: int  # serial of the ask that it is kept for, 0: none
    available: Floats  # (d,), below 0 where it is overbooked
    capacity: Floats  # (d,)
    banned: Bools  # by application slot: whose master keeps off it


@inner_kernel
def place_at(site: Site) -> Place:
    """Return a node taken out of the tables, which is cheaper here than in Python."""
    node = site.node
    return Place(
        site.labels[node], site.reserved[node], site.available[node], site.capacity[node],
        site.banned,
    )  # fmt: skip


@inner_kernel
def fits(demand: Floats, room: Floats, capacity: Floats) -> bool:
    """Whether a demand (d,) fits into `room` (d,) on a node of `capacity` (d,)."""
    for r in range(demand.shape[0]):
        if demand[r] > 0.0 and demand[r] > room[r] + TOLERANCE * capacity[r]:
            return False
    return True


@inner_kernel
def fits_share(need: Floats, free: Floats) -> bool:
    """Whether a demand (d,) fits into what is free (d,), both over the node's capacity."""
    lacking = 0
    for r in range(free.shape[0]):
        if need[r] > 0.0 and need[r] > free[r] + TOLERANCE:
            lacking += 1
    return lacking == 0


@inner_kernel
def allowed(label: int, labels: int) -> bool:
    """Whether a node with `labels` (bits) takes an ask for `label` (a bit; 0: for none)."""
    return labels & label != 0 if label != 0 else labels == 0


@inner_kernel
def may_use(asks: Asks, place: Place, row: int) -> bool:
    """Whether a row may use a node and an empty one could hold it, whatever is there now."""
    if place.banned[asks.app[row]] or not allowed(asks.label[row], place.labels):
        return False
    return fits(asks.demand[row], place.capacity, place.capacity)


@inner_kernel
def kept_off(asks: Asks, place: Place, row: int) -> int:
    """Return what keeps a row off a node whatever its size: LABEL, BANNED, RESERVED, or OPEN."""
    if not allowed(asks.label[row], place.labels):
        return LABEL
    if place.banned[asks.app[row]]:
        return BANNED
    if place.reserved != 0 and asks.serial[row] != place.reserved:
        return RESERVED
    return OPEN


@kernel
def copies(demand: Floats, available: Floats, capacity: Floats, most: int) -> int:
    """How many containers of a demand fit into `available` together, at most `most`."""
    count = most
    for r in range(available.shape[0]):
        if demand[r] > 0:
            room = int(np.floor((available[r] + TOLERANCE * capacity[r]) / demand[r]))
            count = min(count, max(room, 0))
    return count
