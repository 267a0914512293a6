"""Preconditions of the loop: gangs that start together, and nodes kept for asks that starve.

A matcher sees neither: rows of gangs are hidden from it (`rm.placing.gangs`), and on a reserved
node it sees the one row that the node is kept for (Graphene section 5, co-existing features;
YARN's reservations).
"""

from itertools import islice

import numpy as np

from rm.ledger.asks import AskEntry
from rm.ledger.ledger_kernels import roomiest, some_wait
from rm.match.filter_kernels import fits
from rm.placing import gangs
from rm.placing.allocation import MasterLimits, admitted_masters, as_ask, kept_for_master
from rm.placing.feasible import banned_for, room_for, suits
from rm.placing.gangs import planner_of
from rm.state.books import Books
from rm.state.records import Holding
from rm.state.waiting import Group
from weft.model.dag import Floats, Ints
from weft.model.resources import TOLERANCE
from weft.policies.compiled import steady

# Nodes kept empty cost at most a twentieth of the cluster so.
_NODES_PER_RESERVATION = 20
# So many nodes are looked at for the one that is free soonest.
_LOOKED_NODES_MAX = 32
# So many asks that may be owed room are looked at on every node at a time.
_OWED_ASKS_MAX = 16
_LOOKED_MASTERS_MAX = 16
# The policy is asked whose turn it is on so many kinds of nodes.
_KINDS_MAX = 4
_some_wait, _roomiest = steady(some_wait), steady(roomiest)
# A reservation that did not help goes after so many times `reserve_after_s`.
_PATIENCE_FACTOR = 10


def before_match(books: Books) -> None:
    """Start the gangs that fit, and keep nodes for what has starved for too long."""
    start_gangs(books)
    if books.now >= books.matching.reserve_at and not books.matcher.reserves:
        books.matching.reserve_at = books.now + patience_s(books) / 4
        gives_way = _clear(books)
        if books.anything_waits and not gives_way:
            _reserve(books)
            gangs.reserve(books)


def start_gangs(books: Books) -> None:
    """Start the gangs whose turn it is, before a match and after it: others were served since."""
    if books.rows.gangs and books.matching.gangs_due:
        if (planner := planner_of(books)) is not None:
            # A promised time comes without anything that changes.
            settled = planner.start_gangs()
            books.matching.gangs_at = books.matching.version if settled else -1
            return
        for serial in gangs.start(books):
            _release(books, serial)
        books.matching.gangs_at = books.matching.version


def forget_served(books: Books) -> None:
    """Keep no node for asks that are gone; where nothing is asked, nobody matches either."""
    if books.matching.reserved and not books.rows.live:
        _clear(books)


def release_all(books: Books) -> None:
    """Keep no node for anybody: who is owed one is another question now."""
    for serial in list(books.matching.reserved):
        _release(books, serial)


def look_again(books: Books) -> None:
    """Look for starving asks as if there had been grants in their wait, and keep nothing."""
    rows = books.rows
    _some_wait.code(
        rows.pending[: rows.count], rows.since_s, books.now, rows.since_s[: rows.count] + 1
    )
    _kinds(books)


def patience_s(books: Books) -> float:
    """Return how long an ask may starve: a mean task time, within a heartbeat and the setting."""
    settings = books.settings
    most = settings.reserve_after_s
    return min(most, max(books.pace.mean_s, settings.heartbeat_s)) if books.pace.count else most


def _reserve(books: Books) -> None:
    """Reserve a node for the longest-waiting ask that fits nowhere, though it is owed room.

    On a full cluster most asks wait, so what is cheap to know is asked first: who is owed room by
    its queue or its size, then whose turn it is on an empty node of each kind.
    """
    if books.waiting and _reserve_for_master(books):
        return
    rows, apps, since = books.rows, books.ledger.apps, books.now - patience_s(books)
    granted_s = apps.granted_s[: books.ledger.app_slots]
    if not _some_wait.code(rows.pending[: rows.count], rows.since_s, since, granted_s):
        return
    columns, n = books.ledger.nodes, books.ledger.node_count
    if len(books.matching.reserved):
        most = max(1, int(columns.up[:n].sum()) // _NODES_PER_RESERVATION)
        if len(books.matching.reserved) - gangs.reservations(books) >= most:
            return
    look = _Look(books)
    owed = _owed(books, look) if _some_may_be_owed(books) else None
    if owed is None:
        _reserve_in_turn(books, look)
        return
    entry, slot = owed
    books.matching.by_debt = not books.matching.by_debt
    gangs.keep(books, _instead(books, look, entry, slot).serial, [slot])


def _some_may_be_owed(books: Books) -> bool:
    """Return whether `_soonest_owed` could find a node at all: not in one line."""
    one_line = books.matcher.strict or planner_of(books) is not None
    return books.queues.several or not one_line


def _owed(books: Books, look: "_Look") -> tuple[AskEntry, int] | None:
    """Return the longest-waiting ask that is owed a node, and the node; None where there is none.

    What a limit holds back, or what has room, counts for nothing. Of the others some are looked at,
    and the next look goes on behind them.
    """
    looked, matching = 0, books.matching
    for entry in look.late:
        if not (look.may_be_owed(entry) and look.starved(entry)):
            continue
        looked += 1
        if looked <= matching.looked:
            continue
        slot = _soonest_owed(books, entry)
        if slot >= 0:
            matching.looked = 0
            return entry, slot
        if looked >= matching.looked + _OWED_ASKS_MAX:
            matching.looked = looked
            return None
    matching.looked = 0
    return None


def _instead(books: Books, look: "_Look", owed: AskEntry, slot: int) -> AskEntry:
    """Return who gets a node that an ask is owed for its queue or its size.

    Where applications stand in a line, it is the first in the line of that queue that starves and
    could use the node. Else every second such node goes to the ask that starves longest, so that
    however many large ones come, nobody is passed over for ever.
    """
    apps = books.ledger.apps
    able = [entry for entry in look.late if look.forgotten(entry) and suits(books, entry, slot)]
    if getattr(books.matcher, "in_line", False):
        leaf = apps.queue[owed.app]
        line = [owed, *(entry for entry in able if apps.queue[entry.app] == leaf)]
        return min(line, key=lambda e: (-apps.priority[e.app], apps.order[e.app], -e.ask.pri_score))
    return able[0] if able and not books.matching.by_debt else owed


class _Look:
    """One look at the asks that wait long, during which nothing changes.

    What holds for one of them holds for all of its kind, and most are of few kinds.
    """

    def __init__(self, books: Books) -> None:
        self._books = books
        self._extremes: tuple[float, Floats, Floats] | None = None
        self.late = _late(books)
        self._owed: dict[tuple[int, bytes], bool] = {}
        self._held: dict[tuple[int, bytes], bool] = {}
        self._room: dict[tuple[str, bytes], bool] = {}

    @property
    def _seen(self) -> tuple[float, Floats, Floats]:
        """Return when something was granted last, the largest node, the most free on any (d,)."""
        if self._extremes is None:
            ledger = self._books.ledger
            nodes, n = ledger.nodes, ledger.node_count
            granted_s = float(ledger.apps.granted_s[: ledger.app_slots].max(initial=-np.inf))
            largest = nodes.capacity[:n].max(axis=0, initial=0.0)
            most = nodes.available[:n].max(axis=0, initial=0.0) + TOLERANCE * largest
            self._extremes = granted_s, largest, most
        return self._extremes

    def may_be_owed(self, entry: AskEntry) -> bool:
        """Return whether room may be owed: its queue is below its guarantee, or no two fit."""
        leaf = int(self._books.ledger.apps.queue[entry.app])
        kind = (leaf, entry.demand.tobytes())
        if kind not in self._owed:
            self._owed[kind] = self._may_be_owed(leaf, entry.demand)
        return self._owed[kind]

    def forgotten(self, entry: AskEntry) -> bool:
        """Return whether it starves, and its application got nothing else meanwhile."""
        books = self._books
        got_s = float(books.ledger.apps.granted_s[entry.app])
        return got_s <= books.now - patience_s(books) and self.starved(entry)

    def _may_hold(self, entry: AskEntry) -> bool:
        """Return whether its queues and its user may hold one more container of it."""
        kind = (int(self._books.ledger.apps.user[entry.app]), entry.demand.tobytes())
        if kind not in self._held:
            self._held[kind] = gangs.within_limits(self._books, entry.app, entry.demand)
        return self._held[kind]

    def starved(self, entry: AskEntry) -> bool:
        """Return whether it fits nowhere, though it may and others were served in its wait."""
        granted_s, _, most = self._seen
        if not self._may_hold(entry):
            return False
        if not granted_s > self._books.rows.since_s[entry.row]:
            return False
        if ((entry.demand > most) & (entry.demand > 0)).any():
            return True
        kept = entry.serial in self._books.claimed.values()
        if kept or entry.strict or banned_for(self._books, entry.app):
            return not self._fits_somewhere(entry)
        kind = (entry.ask.label, entry.demand.tobytes())
        if kind not in self._room:
            self._room[kind] = self._fits_somewhere(entry)
        return not self._room[kind]

    def _may_be_owed(self, leaf: int, demand: Floats) -> bool:
        ledger = self._books.ledger
        guarantee = self._books.queues.capacity[leaf] * ledger.total
        if _fits(ledger.by_queue.held[leaf] + demand, demand, guarantee):
            return True
        return bool((2 * demand > self._seen[1] * (1 + TOLERANCE)).any())

    def _fits_somewhere(self, entry: AskEntry) -> bool:
        return bool(room_for(self._books, entry, self._books.ledger.nodes.available).any())


def _late(books: Books) -> list[AskEntry]:
    """Return the asks that waited too long without a node reserved, the longest first.

    Of a plan, only those for which it finds no time.
    """
    rows, planner = books.rows, planner_of(books)
    count = rows.count
    since = rows.since_s[:count]
    at = np.flatnonzero((rows.pending[:count] > 0) & (since <= books.now - patience_s(books)))
    entries = [rows.entries[row] for row in at[np.lexsort((rows.serial[at], since[at]))].tolist()]
    kept = books.matching.reserved
    late = [e for e in entries if e is not None and not e.ask.gang and e.serial not in kept]
    return late if planner is None else [e for e in late if planner.finds_none(e.serial)]


def _reserve_in_turn(books: Books, look: _Look) -> None:
    """Keep a node for the ask that the policy would serve first, were a node empty.

    It is asked about a node of each kind, and about those that an ask waits for by name.
    """
    columns, kinds = books.ledger.nodes, _kinds(books)
    late = {entry.row: entry for entry in look.late}
    for emptied in kinds:
        entry = late.get(_first_in_turn(books, emptied))
        if entry is None or not look.starved(entry):
            continue
        slot = _soonest(books, entry, room_for(books, entry, columns.capacity))
        if slot >= 0 and (slot == emptied or _first_in_turn(books, slot) == entry.row):
            gangs.keep(books, entry.serial, [slot])
            return
    named = (e for e in look.late if e.strict and look.starved(e))
    for entry in islice(named, _KINDS_MAX):
        slot = _soonest(books, entry, room_for(books, entry, columns.capacity))
        if slot >= 0 and _first_in_turn(books, slot) == entry.row:
            gangs.keep(books, entry.serial, [slot])
            return


def _reserve_for_master(books: Books) -> bool:
    """Keep a node for the first master that starves; return whether one is kept, or was."""
    if any(serial < 0 for serial in books.matching.reserved):
        return True
    granted_s = books.ledger.apps.granted_s[: books.ledger.app_slots].max(initial=-np.inf)
    served_s = max(float(granted_s), books.matching.master_s)
    late_s = min(books.now - patience_s(books), served_s)
    passed: set[Group] = set()
    for group, attempt in islice(admitted_masters(books, passed), _LOOKED_MASTERS_MAX):
        # What holds for one of a group holds for all.
        passed.add(group)
        if attempt.created_s > late_s:
            continue
        wanted, able = as_ask(books, attempt)
        columns = books.ledger.nodes
        if (room_for(books, wanted, columns.available)[able] > 0).any():
            # It is placed as soon as such a node is looked at.
            continue
        slot = _soonest(books, wanted, np.where(able, room_for(books, wanted, columns.capacity), 0))
        if slot >= 0:
            gangs.keep(books, wanted.serial, [slot])
            return True
    return False


def _kinds(books: Books) -> list[int]:
    """Return a node slot of each kind in service (capacity and labels): those with most room.

    Room is summed over resources, of each as a part of the most that any node has. Of many kinds
    some are told, others at the next look.
    """
    columns, n = books.ledger.nodes, books.ledger.node_count
    scale = columns.capacity[:n].max(axis=0, initial=0.0)
    scale = np.where(scale > 0, scale, 1.0)
    if len(books.classes) == 1:
        slot = _roomiest.code(columns.up[:n], columns.reserved, columns.available, scale)
        return [slot] if slot >= 0 else []
    free = np.flatnonzero(columns.up[:n] & (columns.reserved[:n] == 0))
    room = (columns.available[:n] / scale).sum(axis=1)
    best: dict[tuple[tuple[float, ...], int], tuple[float, int]] = {}
    for slot in free.tolist():
        kind = (books.node_at[slot].capacity, int(columns.labels[slot]))
        if kind not in best or room[slot] > best[kind][0]:
            best[kind] = (float(room[slot]), slot)
    found = [slot for _, slot in sorted(best.values(), key=lambda pair: pair[1])]
    if len(found) > _KINDS_MAX:
        books.matching.kinds_from = first = (books.matching.kinds_from + _KINDS_MAX) % len(found)
        found = (found[first:] + found[:first])[:_KINDS_MAX]
    return found


def _soonest_owed(books: Books, entry: AskEntry) -> int:
    """Return the node that can hold an ask soonest, if the ask is owed it; -1: none, or not owed.

    Owed is what stays within its queue's guarantee while other queues are served. A large ask (no
    two fit on a node) is also owed what its application may count on, and its first task as long
    as the queue's guarantee could hold it. In a strict line nobody overtakes for the sake of that.
    """
    ledger, apps, app = books.ledger, books.ledger.apps, books.app_at[entry.app]
    leaf, n = int(apps.queue[entry.app]), ledger.app_slots
    beside = apps.granted_s[:n][apps.queue[:n] != leaf] > books.rows.since_s[entry.row]
    guarantee = books.queues.capacity[leaf] * ledger.total
    if beside.any() and _fits(ledger.by_queue.held[leaf] + entry.demand, entry.demand, guarantee):
        return _soonest(books, entry, room_for(books, entry, ledger.nodes.capacity))
    if app is None or books.matcher.strict:
        return -1
    able = room_for(books, entry, ledger.nodes.capacity)
    capacity = ledger.nodes.capacity[: len(able)][able > 0]
    if (2 * entry.demand <= capacity * (1 + TOLERANCE)).all(axis=1).any():
        return -1
    if int(apps.containers[entry.app]) <= 1:
        # It has its master at most.
        owed = _fits(entry.demand, entry.demand, guarantee)
    else:
        share = np.array(books.share_of(app))
        owed = _fits(apps.held[entry.app] + entry.demand, entry.demand, share)
    return _soonest(books, entry, able) if owed else -1


def _fits(amounts: Floats, demand: Floats, limit: Floats) -> bool:
    """Return whether amounts (d,) stay within a limit (d,) in all that is demanded."""
    # Lists are quicker than arrays for the few numbers of each.
    rows = zip(amounts.tolist(), demand.tolist(), limit.tolist(), strict=True)
    return all(a <= most * (1 + TOLERANCE) + TOLERANCE for a, need, most in rows if need > 0)


def _first_in_turn(books: Books, slot: int) -> int:
    """Return the row that the policy would serve first on a node, were it empty; -1: none.

    Asks that have a node kept already do not take part.
    """
    kept = books.matching.reserved
    rows = []
    if kept:
        rows = [row for row, at in enumerate(books.rows.entries) if at and at.serial in kept]
    free, hidden = books.ledger.empty(slot), books.rows.hide(rows) if rows else None
    try:
        match = books.matcher.would_match(books.view, slot, books.now)
    finally:
        books.ledger.refill(slot, free)
        if hidden is not None:
            books.rows.show(rows, hidden)
    return match.placements[0].row if match.placements else -1


def _soonest(books: Books, entry: AskEntry, able: Ints) -> int:
    """Return the node that can hold the ask soonest, as its containers are expected to end.

    -1: none. Of the nodes that lack the least, a few are looked at.
    """
    free = np.maximum(books.ledger.nodes.available, 0.0)[: len(able)]
    best, soonest_s = -1, np.inf
    for slot in _nearest(entry, free, able)[:_LOOKED_NODES_MAX]:
        room, capacity = (
            books.ledger.nodes.available[slot].copy(),
            books.ledger.nodes.capacity[slot],
        )
        at_s = books.now
        for holding in sorted(books.node_at[slot].holdings.once(), key=_ends_s):
            if fits(entry.demand, room, capacity):
                break
            room += holding.demand * holding.count
            at_s = max(at_s, _ends_s(holding))
        if best < 0 or at_s < soonest_s:
            best, soonest_s = slot, at_s
    return best


def _ends_s(holding: Holding) -> float:
    """Return when a container is expected to end; nobody expects that of a master."""
    return holding.end_s if holding.entry is not None else np.inf


def _nearest(entry: AskEntry, free: Floats, able: Ints) -> list[int]:
    """Return node slots that could hold the ask, those that lack the least first."""
    need = np.where(entry.demand > 0, entry.demand, 1.0)
    ratio = np.where(entry.demand > 0, free / need, np.inf).min(axis=1, initial=np.inf)
    order = np.lexsort((np.arange(len(able)), -ratio))
    return [slot for slot in order.tolist() if able[slot] > 0]


def _clear(books: Books) -> bool:
    """Forget reservations whose ask or master is served or gone, or that did not help.

    Return whether one did not help but a gang's: what it kept off, though it fits, goes before
    anything is kept again. What it waits for may run on for long in containers that are reused.
    """
    gives_way = False
    for serial, (since_s, slots) in list(books.matching.reserved.items()):
        entry = _entry_of(books, serial)
        if serial < 0:
            limits = MasterLimits(books)
            waits = any(kept_for_master(a) == serial and limits.admit(a) for a in books.waiting)
        else:
            waits = entry is not None and books.rows.since_s.item(entry.row) <= since_s
        late = books.now - since_s > _PATIENCE_FACTOR * books.settings.reserve_after_s
        gang = entry if entry is not None and entry.ask.gang else None
        if gang is not None:
            late = _keeps_in_vain(books, gang, slots, late=late)
        if late or not waits or not books.ledger.nodes.up[slots].all():
            _release(books, serial)
            gives_way |= late and waits and gang is None
        elif gang is not None:
            gangs.look_for_sooner(books, gangs.of_entry(books, gang))
    return gives_way


def _keeps_in_vain(books: Books, entry: AskEntry, slots: list[int], *, late: bool) -> bool:
    """Return whether a gang is no longer owed its nodes, or is `late` though they do not drain."""
    if late and not gangs.drains(books, slots):
        # What is in its way may itself wait for these nodes.
        books.matching.gangs_rest_s = books.now + books.settings.reserve_after_s
        return True
    gang = gangs.of_entry(books, entry)
    return not gangs.is_owed(books, gang, gangs.need_of(books, gang))


def _release(books: Books, serial: int) -> None:
    found = books.matching.reserved.pop(serial, None)
    if found is None:
        return
    books.ledger.unreserve(found[1], serial)
    books.matching.changed()


def _entry_of(books: Books, serial: int) -> AskEntry | None:
    rows = books.rows
    at = np.flatnonzero((rows.serial[: rows.count] == serial) & (rows.pending[: rows.count] > 0))
    return rows.entries[int(at[0])] if len(at) else None
