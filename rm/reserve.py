"""Preconditions of the loop: gangs that start together, and nodes kept for asks that starve.

A matcher sees neither: rows of gangs are hidden from it, and on a reserved node it sees the one row
that the node is kept for (Graphene section 5, co-existing features; YARN's reservations).
"""

import numpy as np

from rm.allocation import grant
from rm.books import Books
from rm.ledger.asks import AskEntry
from rm.ledger.columns import Bools
from rm.ledger.ledger_kernels import TOLERANCE
from rm.match.limit_kernels import full_queue, user_allows
from rm.match.protocol import Placement
from weft.dag import Floats, Ints

_NODES_PER_RESERVATION = 20  # so that nodes kept empty cost at most a twentieth of the cluster
_PATIENCE = 10  # times `reserve_after_s`: a reservation that did not help goes


def before_match(books: Books) -> None:
    """Start the gangs that fit, and keep nodes for what has starved for too long."""
    if books.rows.gangs and books.version != books.gangs_at:
        _start_gangs(books)
        books.gangs_at = books.version
    if books.now >= books.reserve_at:
        books.reserve_at = books.now + books.settings.reserve_after_s / 4
        _clear(books)
        if books.rows.live:
            _reserve(books)


def _start_gangs(books: Books) -> None:
    for entry in _in_line(books, gangs=True):
        room = _room(books, entry, books.ledger.nodes.available)
        wanted = entry.pending
        if int(room.sum()) < wanted or not _within_limits(books, entry, wanted):
            continue
        for slot in np.argsort(-room, kind="stable").tolist():
            count = min(int(room[slot]), entry.pending)
            if count <= 0:
                break
            grant(books, books.node_at[slot], Placement(entry.row, count, (("gang", wanted),)))
            if entry.row < 0:
                break
        _release(books, entry.serial)


def _reserve(books: Books) -> None:
    """The longest-waiting ask that fits nowhere, though others were served, gets a node or more."""
    columns, n = books.ledger.nodes, books.ledger.node_count
    most = max(1, int(columns.up[:n].sum()) // _NODES_PER_RESERVATION)
    if len(books.reserved) >= most:
        return
    late = books.now - books.settings.reserve_after_s
    for entry in sorted(_in_line(books), key=lambda e: (books.rows.since_s[e.row], e.serial)):
        if books.rows.since_s[entry.row] > late:
            return
        if entry.serial in books.reserved or not _starved(books, entry):
            continue
        wanted = entry.pending if entry.ask.gang else 1
        if not _within_limits(books, entry, wanted):
            continue
        free = np.maximum(columns.available, 0.0)
        able = _room(books, entry, columns.capacity)
        if int(able.sum()) < wanted:
            continue
        _keep(books, entry, _nearest(entry, free[:n], able), able, wanted)
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
    wanted = entry.pending if entry.ask.gang else 1
    return int(_room(books, entry, books.ledger.nodes.available).sum()) < wanted


def _keep(books: Books, entry: AskEntry, order: list[int], able: Ints, wanted: int) -> None:
    """Reserve nodes in order until they could hold what is wanted once they are empty."""
    found = 0
    slots = []
    for slot in order:
        if found >= wanted:
            break
        found += int(able[slot])
        books.ledger.nodes.w["reserved"][slot] = entry.serial
        slots.append(slot)
    books.reserved[entry.serial] = (books.now, slots)
    books.version += 1


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


def _in_line(books: Books, *, gangs: bool = False) -> list[AskEntry]:
    """Asks with something pending: larger priority, earlier application, larger priScore first."""
    rows, apps = books.rows, books.ledger.apps
    found = [e for e in rows.entries if e is not None and (e.ask.gang or not gangs)]
    return sorted(
        found,
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


def _within_limits(books: Books, entry: AskEntry, count: int) -> bool:
    """Whether its queues and its user may hold so many more."""
    ledger, tree = books.ledger, books.queues
    demand = entry.demand * count
    leaf, user = int(ledger.apps.queue[entry.app]), int(ledger.apps.user[entry.app])
    held, total = ledger.by_queue.held, ledger.total
    # a queue that may use the whole cluster is limited by room only, which others will give back
    most = np.where(tree.max_capacity >= 1, np.inf, tree.max_capacity)
    return full_queue(
        leaf, demand, total, held, most, tree.parent
    ) < 0 and user_allows(
        demand, total, held[leaf], ledger.users.held[user], float(tree.capacity[leaf]),
        int(ledger.by_queue.users[leaf]), float(tree.user_limit[leaf]),
        float(tree.user_limit_factor[leaf]),
    )  # fmt: skip
