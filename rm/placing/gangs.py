"""Gangs: all containers of a gang stage are granted at one time, or none.

The asks of one attempt and stage that say `gang` are one unit, whatever their demands, preferences
and places in the job's order. A waiting gang holds nothing, so gangs cannot wait for each other.
One that would starve gets enough nodes kept to start on once they are empty: one gang at a time,
and within `gang_nodes_max` of the cluster. One that an empty cluster could not hold is refused
when its job is submitted.
"""

from typing import NamedTuple

import numpy as np

from rm.ledger.asks import AskEntry
from rm.match.candidates import limit_of, shares_of
from rm.match.limit_kernels import ADMITTED
from rm.match.protocol import Placement
from rm.placing.allocation import grant
from rm.placing.feasible import usable
from rm.placing.gang_room import Need, capacity_of, distances, free_of, pack
from rm.state.books import Books
from weft.model.dag import Floats, Ints
from weft.model.resources import TOLERANCE


class Gang(NamedTuple):
    """The pending asks of one gang stage of one attempt."""

    app: int  # slot of the application
    entries: tuple[AskEntry, ...]

    @property
    def serial(self) -> int:
        """Return the number that its reservation goes by."""
        return min(entry.serial for entry in self.entries)


# -- starting --------------------------------------------------------------------------------------


def start(books: Books) -> list[int]:
    """Start every waiting gang that fits now, in the order of the line; return their serials."""
    started = []
    for gang in waiting(books):
        need = need_of(books, gang)
        if not within_limits(books, gang.app, need.total):
            continue
        placed = pack(need, free_of(books), capacity_of(books))
        if placed is None:
            continue
        size = int(need.wanted.sum())
        for entry, on in zip(gang.entries, placed, strict=True):
            for slot in np.flatnonzero(on).tolist():
                chosen = Placement(entry.row, int(on[slot]), (("gang", float(size)),))
                grant(books, books.node_at[slot], chosen)
        started.append(gang.serial)
    return started


def waiting(books: Books) -> list[Gang]:
    """Return the gangs that wait by larger priority, then the earlier application, then stage."""
    rows, apps = books.rows, books.ledger.apps
    found: dict[tuple[int, int], list[AskEntry]] = {}
    for row in np.flatnonzero(rows.gang[: rows.count]).tolist():
        entry = rows.entries[row]
        if entry is not None:
            found.setdefault((entry.app, entry.ask.stage), []).append(entry)
    order = sorted(found, key=lambda at: (-apps.priority[at[0]], apps.order[at[0]], at[1]))
    return [Gang(at[0], tuple(found[at])) for at in order]


def of_entry(books: Books, entry: AskEntry) -> Gang:
    """Return the gang that a pending ask belongs to."""
    key = (entry.app, entry.ask.stage)
    return next(g for g in waiting(books) if (g.app, g.entries[0].ask.stage) == key)


def need_of(books: Books, gang: Gang) -> Need:
    """Return what a waiting gang needs; it may use nodes that are free or reserved for it."""
    asks = [entry.ask for entry in gang.entries]
    return Need(
        np.array([entry.demand for entry in gang.entries]),
        np.array([entry.pending for entry in gang.entries]),
        np.array([usable(books, entry, gang.serial) for entry in gang.entries]),
        np.array([distances(books, ask.nodes, ask.racks) for ask in asks]),
    )


def within_limits(books: Books, app: int, demand: Floats) -> bool:
    """Return whether the queues and the user of an application slot may hold a demand (d,) more."""
    return limit_of(books.view, app, demand) == ADMITTED


# -- nodes kept for gangs that starve --------------------------------------------------------------


def reserve(books: Books) -> None:
    """Reserve nodes for the gang that waited longest while others behind it were served.

    One gang at a time: what is kept for it suffices once it is empty, so no other gang has to give
    way for it to start.
    """
    if not books.rows.gangs:
        return
    found = waiting(books)
    kept = books.matching.reserved
    if books.now < books.matching.gangs_rest_s or any(gang.serial in kept for gang in found):
        return
    late = books.now - books.settings.reserve_after_s
    for gang in sorted(found, key=lambda gang: (since_s(books, gang), gang.serial)):
        if since_s(books, gang) > late:
            return
        need = need_of(books, gang)
        if not _passed_over(books, gang) or not within_limits(books, gang.app, need.total):
            continue
        slots = nodes_for(books, gang, need)
        if slots and len(slots) <= nodes_max(books):
            keep(books, gang.serial, slots)
            return


def keep(books: Books, serial: int, slots: list[int]) -> None:
    """Reserve nodes for an ask, or for the gang that it belongs to."""
    books.ledger.reserve(slots, serial)
    books.matching.reserved[serial] = (books.now, slots)
    books.matching.changed()


def drains(books: Books, slots: list[int]) -> bool:
    """Return whether something runs on reserved nodes which is expected to end."""
    return any(
        holding.entry is not None and holding.end_s > books.now
        for slot in slots
        for holding in books.node_at[slot].holdings.once()
    )


def reservations(books: Books) -> int:
    """Return how many gangs have nodes reserved for them."""
    if not books.matching.reserved or not books.rows.gangs:
        return 0
    return sum(gang.serial in books.matching.reserved for gang in waiting(books))


def nodes_max(books: Books) -> int:
    """Return how many nodes may be reserved for gangs at a time."""
    up = int(books.ledger.nodes.up[: books.ledger.node_count].sum())
    return max(1, int(books.settings.gang_nodes_max * up + TOLERANCE))


def nodes_for(books: Books, gang: Gang, need: Need) -> list[int]:
    """Return few nodes that could hold the gang once empty; none where the cluster could not.

    First those that are nearly empty already; if they are too many, the largest.
    """
    capacity, free = capacity_of(books), free_of(books)
    if not len(capacity):  # a manager started anew hears masters before it hears any node
        return []
    empty = capacity.copy()
    for (
        app
    ) in books.app_at:  # masters stay: what their jobs still need may wait for just these nodes
        if app is not None and app.attempt is not None and app.attempt.master is not None:
            empty[app.attempt.master.node.slot] -= app.attempt.master.demand
    size = shares_of(capacity, capacity.max(axis=0)).sum(axis=1)
    part = np.divide(free, capacity, out=np.ones_like(free), where=capacity > 0).min(axis=1)
    best: list[int] = []
    for key in (part, size):
        order = np.argsort(-key, kind="stable")
        some = np.asarray(need.usable.any(axis=0))
        order = order[some[order]]
        slots = _shortest(need, order, empty, capacity)
        if slots and (not best or len(slots) < len(best)):
            best = slots
        if best and len(best) <= nodes_max(books):
            break
    return best


def since_s(books: Books, gang: Gang) -> float:
    """Return since when all of it waits."""
    return max(float(books.rows.since_s[entry.row]) for entry in gang.entries)


def _shortest(need: Need, order: Ints, empty: Floats, capacity: Floats) -> list[int]:
    """Return the shortest beginning of an order of nodes that could hold all, by bisection."""
    low, high, found = 1, len(order), []
    while low <= high:
        middle = (low + high) // 2
        nodes = np.zeros(len(empty), dtype=np.bool_)
        nodes[order[:middle]] = True
        placed = pack(need.on(nodes), empty, capacity)
        if placed is None:
            low = middle + 1
        else:
            high, found = middle - 1, np.flatnonzero(placed.any(axis=0)).tolist()
    return found


def _passed_over(books: Books, gang: Gang) -> bool:
    """Return whether others that stand behind it were served since it waits.

    Others are its application's own other asks, later ones of no higher priority in its queue, and
    those of queues that use more of their guarantee.
    """
    ledger, tree = books.ledger, books.queues
    apps, n, slot = ledger.apps, ledger.app_slots, gang.app
    leaf = int(apps.queue[slot])
    held = ledger.by_queue.held[: len(tree)]
    ratio = shares_of(held, ledger.total).max(axis=1) / np.maximum(tree.capacity, 1e-9)
    same = apps.queue[:n] == leaf
    later = (apps.order[:n] >= apps.order[slot]) & (apps.priority[:n] <= apps.priority[slot])
    needier = ratio[apps.queue[:n]] < ratio[leaf]
    served = apps.active[:n] & (apps.granted_s[:n] > since_s(books, gang))
    return bool((served & ((same & later) | ~(same | needier))).any())
