"""Preconditions of the loop: gangs that start together, and nodes kept for asks that starve.

A matcher sees neither: rows of gangs are hidden from it (`rm.gangs`), and on a reserved node it
sees the one row that the node is kept for (Graphene section 5, co-existing features; YARN's
reservations).
"""

import numpy as np

from rm import gangs
from rm.books import Books
from rm.ledger.asks import AskEntry
from rm.ledger.columns import Bools
from rm.ledger.ledger_kernels import TOLERANCE
from weft.dag import Floats, Ints

_NODES_PER_RESERVATION = 20  # so that nodes kept empty cost at most a twentieth of the cluster
_PATIENCE = 10  # times `reserve_after_s`: a reservation that did not help goes


def before_match(books: Books) -> None:
    """Start the gangs that fit, and keep nodes for what has starved for too long."""
    if books.rows.gangs and books.version != books.gangs_at:
        for serial in gangs.start(books):
            _release(books, serial)
        books.gangs_at = books.version
    if books.now >= books.reserve_at:
        books.reserve_at = books.now + books.settings.reserve_after_s / 4
        _clear(books)
        if books.rows.live:
            _reserve(books)
            gangs.reserve(books)


def _reserve(books: Books) -> None:
    """The longest-waiting ask that fits nowhere, though others were served, gets a node."""
    columns, n = books.ledger.nodes, books.ledger.node_count
    most = max(1, int(columns.up[:n].sum()) // _NODES_PER_RESERVATION)
    if len(books.reserved) - gangs.reservations(books) >= most:
        return
    late = books.now - books.settings.reserve_after_s
    for entry in sorted(_in_line(books), key=lambda e: (books.rows.since_s[e.row], e.serial)):
        if books.rows.since_s[entry.row] > late:
            return
        if entry.ask.gang or entry.serial in books.reserved or not _starved(books, entry):
            continue
        if not gangs.within_limits(books, entry.app, entry.demand):
            continue
        able = _room(books, entry, columns.capacity)
        nearest = _nearest(entry, np.maximum(columns.available, 0.0)[:n], able)
        if nearest:
            gangs.keep(books, entry.serial, nearest[:1])
            return


def _starved(books: Books, entry: AskEntry) -> bool:
    """Whether it fits nowhere, and others that stand behind it were served in its wait.

    Others are the application's own other asks, and later applications of no higher priority in the
    same queue: then its size keeps it waiting, not its place in the line.
    """
    apps, n, slot = books.ledger.apps, books.ledger.app_slots, entry.app
    behind = (apps.order[:n] >= apps.order[slot]) & (apps.priority[:n] <= apps.priority[slot])
    behind &= apps.active[:n] & (apps.queue[:n] == apps.queue[slot])
    if not (apps.granted_s[:n][behind] > books.rows.since_s[entry.row]).any():
        return False
    return not _room(books, entry, books.ledger.nodes.available).any()


def _nearest(entry: AskEntry, free: Floats, able: Ints) -> list[int]:
    """Node slots that could hold the ask, those that lack the least first."""
    need = np.where(entry.demand > 0, entry.demand, 1.0)
    ratio = np.where(entry.demand > 0, free / need, np.inf).min(axis=1, initial=np.inf)
    order = np.lexsort((np.arange(len(able)), -ratio))
    return [slot for slot in order.tolist() if able[slot] > 0]


def _clear(books: Books) -> None:
    """Forget reservations whose ask is served or gone, or that did not help."""
    for serial, (since_s, slots) in list(books.reserved.items()):
        entry = _entry_of(books, serial)
        late = books.now - since_s > _PATIENCE * books.settings.reserve_after_s
        if late and entry is not None and entry.ask.gang:
            late = not gangs.drains(books, slots)
            if late:  # what is in its way may itself wait for these nodes
                books.gangs_rest_s = books.now + books.settings.reserve_after_s
        served = entry is not None and books.rows.since_s[entry.row] > since_s
        if entry is None or late or served or not books.ledger.nodes.up[slots].all():
            _release(books, serial)


def _release(books: Books, serial: int) -> None:
    found = books.reserved.pop(serial, None)
    if found is None:
        return
    reserved = books.ledger.nodes.w["reserved"]
    for slot in found[1]:
        if reserved[slot] == serial:
            reserved[slot] = 0
    books.version += 1


def _entry_of(books: Books, serial: int) -> AskEntry | None:
    rows = books.rows
    at = np.flatnonzero((rows.serial[: rows.count] == serial) & (rows.pending[: rows.count] > 0))
    return rows.entries[int(at[0])] if len(at) else None


def _in_line(books: Books) -> list[AskEntry]:
    """Asks with something pending: larger priority, earlier application, larger priScore first."""
    rows, apps = books.rows, books.ledger.apps
    return sorted(
        (entry for entry in rows.entries if entry is not None),
        key=lambda e: (-apps.priority[e.app], apps.order[e.app], -e.ask.pri_score, e.serial),
    )


def _room(books: Books, entry: AskEntry, amounts: Floats) -> Ints:
    """How many of an ask's containers fit into `amounts` of each node that it may use."""
    columns, n = books.ledger.nodes, books.ledger.node_count
    capacity = columns.capacity[:n]
    free = amounts[:n] + TOLERANCE * capacity
    need = entry.demand > 0
    most = np.full(n, float(entry.pending))
    if need.any():
        most = np.minimum(most, np.floor(free[:, need] / entry.demand[need]).min(axis=1))
    label = books.rows.label[entry.row]
    labels = columns.labels[:n]
    usable: Bools = columns.up[:n] & ((labels == 0) if label == 0 else (labels & label) != 0)
    usable &= (columns.reserved[:n] == 0) | (columns.reserved[:n] == entry.serial)
    app = books.app_at[entry.app]
    for name in app.attempt.blacklist if app is not None and app.attempt is not None else ():
        if name in books.nodes:
            usable[books.nodes[name].slot] = False
    return np.asarray(np.where(usable, np.maximum(most, 0.0), 0.0).astype(np.int64))
