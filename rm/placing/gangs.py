"""Gangs: all containers of a gang stage are granted at one time, or none.

The asks of one attempt and stage that say `gang` are one unit, whatever their demands, preferences
and places in the job's order. A waiting gang holds nothing, so gangs cannot wait for each other.
A gang that fits starts when it is its turn: when the policy, asked about a node on which it would
start, serves it there before all others. One that would starve gets enough nodes kept to start on
once they are empty: one gang at a time, and within `gang_nodes_max` of the cluster. One that an
empty cluster could not hold is refused when its job is submitted.
"""

from collections.abc import Hashable, Iterable
from operator import le
from typing import NamedTuple

import numpy as np

from rm.ledger.asks import AskEntry
from rm.ledger.gang_line import GangKey, GangKind, GangLine
from rm.match.candidates import limit_of, shares_of
from rm.match.limit_kernels import ADMITTED
from rm.match.protocol import Placement, Planner
from rm.placing.allocation import grant
from rm.placing.feasible import banned_for, usable
from rm.placing.gang_room import Need, capacity_of, distances, free_of, pack
from rm.state.books import Books
from weft.model.dag import Floats, Ints
from weft.model.resources import TOLERANCE

_TRIED_KINDS_MAX = 16


class Gang(NamedTuple):
    """The pending asks of one gang stage of one attempt.

    `app` is the application's slot, `serial` the number that its reservation goes by.
    """

    app: int
    entries: tuple[AskEntry, ...]
    serial: int


# -- starting --------------------------------------------------------------------------------------


def start(books: Books) -> list[int]:
    """Start each waiting gang that fits now and whose turn it is; return their serials."""
    started: list[int] = []
    while (found := _Look(books).next()) is not None:
        gang, need, placed = found
        size = int(need.wanted.sum())
        for entry, on in zip(gang.entries, placed, strict=True):
            for slot in np.flatnonzero(on).tolist():
                chosen = Placement(entry.row, int(on[slot]), (("gang", float(size)),))
                grant(books, books.node_at[slot], chosen)
        started.append(gang.serial)
    return started


# A gang, what it needs, and where its containers go, (k, nodes).
Found = tuple[Gang, Need, Ints]


class _Look:
    """One look for a gang that may start, during which nothing changes.

    What does not fit is not tried again before more is free (`Ledger.freed`), nor is anything that
    needs no less.
    """

    def __init__(self, books: Books) -> None:
        self._books = books
        self._kinds: list[GangKind] = []
        self._failed: list[GangKind] = []
        self._packs = 0

    def next(self) -> Found | None:
        """Return the gang that starts next, if any does."""
        books = self._books
        line, ledger = line_of(books), books.ledger
        if kept := self._kept(line):
            return kept
        n = ledger.node_count
        room = (free_of(books) + TOLERANCE * ledger.nodes.capacity[:n])[ledger.nodes.up[:n]]
        free = room.sum(axis=0).tolist()
        self._kinds = [
            kind
            for kind in line.kinds.values()
            if kind.failed_at != ledger.freed and all(map(le, kind.amounts, free))
        ]
        self._kinds.sort(key=lambda kind: kind.place)
        for kind in list(self._kinds):
            found = self._try(kind, kind.first) if kind in self._kinds else None
            if found is not None and (winner := self._in_turn(line, found)) is not None:
                return winner
        return None

    def _kept(self, line: GangLine) -> Found | None:
        """Return a gang that nodes are kept for, if it fits and its queue has not had its turn."""
        books = self._books
        for serial in books.matching.reserved:
            key = books.rows.gang_of(serial)
            if key is not None and line.kind_of(key).failed_at != books.ledger.freed:
                found = self._try(line.kind_of(key), key)
                if found is not None and is_owed(books, found[0], found[1]):
                    return found
        return None

    def _try(self, kind: GangKind, key: GangKey) -> Found | None:
        """Return where a gang of a kind may start; else note that none of the kind may."""
        books = self._books
        gang = _gang(books, kind, key)
        # Limits are asked last: what needs no less than what failed is most of a long line.
        if not any(kind.needs_no_less(other) for other in self._failed):
            if not within_limits(books, gang.app, kind.total):
                self._drop(kind)
                return None
            if self._packs >= _TRIED_KINDS_MAX:
                return None
            self._packs += 1
            need = need_of(books, gang)
            placed = pack(need, free_of(books), capacity_of(books))
            if placed is not None:
                return gang, need, placed
        if gang.serial not in books.matching.reserved:
            kind.failed_at = books.ledger.freed
            self._failed.append(kind)
        self._drop(kind)
        return None

    def _drop(self, kind: GangKind) -> None:
        if kind in self._kinds:
            self._kinds.remove(kind)

    def _in_turn(self, line: GangLine, found: Found) -> Found | None:
        """Return the gang that the policy serves first where one would start; None: another ask.

        A policy with books of its own knows no gangs: they start outside of its line.
        """
        if self._books.matcher.reserves:
            return found
        gang, _, placed = found
        slot, elsewhere = _busiest(placed), set[int]()
        while True:
            kinds = [kind for kind in self._kinds if id(kind) not in elsewhere]
            key = turn_on(self._books, slot, kinds)
            if key is None:
                return None
            if key == (gang.app, gang.entries[0].ask.stage):
                return found
            kind = line.kind_of(key)
            other = self._try(kind, key)
            if other is None and kind in self._kinds:
                return None
            if other is not None:
                # It would start on other nodes, where others may go first.
                own = _busiest(other[2])
                if other[2][:, slot].any() or turn_on(self._books, own, kinds) == key:
                    return other
                elsewhere.add(id(kind))


def _busiest(placed: Ints) -> int:
    """Return the node slot with most of a gang's containers (k, nodes)."""
    return int(placed.sum(axis=0).argmax())


def is_owed(books: Books, gang: Gang, need: Need) -> bool:
    """Return whether a gang's queue stays within its guarantee, or no rival has less of its own.

    Rivals are queues that ask for what may run on the nodes that the gang may use. They compare
    where their ways down the tree part.
    """
    ledger, tree = books.ledger, books.queues
    if not tree.several:
        return True
    leaf = int(ledger.apps.queue[gang.app])
    guarantee = tree.capacity[leaf] * ledger.total
    if (ledger.by_queue.held[leaf] + need.total <= guarantee * (1 + TOLERANCE)).all():
        return True
    ratio, rows = _used_ratio(books), books.rows
    asking = rows.pending[: rows.count] > 0
    labels, apps = rows.label[: rows.count][asking], rows.app[: rows.count][asking]
    rival = np.zeros(len(labels), dtype=np.bool_)
    nodes = np.asarray(need.usable.any(axis=0))
    for mask in np.unique(ledger.nodes.labels[: ledger.node_count][nodes]).tolist():
        rival |= (labels & mask != 0) | ((labels == 0) & (mask == 0))
    for other in set(ledger.apps.queue[apps[rival]].tolist()) - {leaf}:
        mine, theirs = tree.apart(leaf, other)
        if ratio[theirs[-1]] < ratio[mine[-1]] * (1 - TOLERANCE):
            return False
    return True


def _used_ratio(books: Books) -> Floats:
    """Return what each queue holds over its guarantee, (queues,)."""
    ledger, tree = books.ledger, books.queues
    held = shares_of(ledger.by_queue.held[: len(tree)], ledger.total).max(axis=1)
    return np.asarray(held / np.maximum(tree.capacity, 1e-9))


def turn_on(books: Books, slot: int, kinds: Iterable[GangKind]) -> GangKey | None:
    """Return the gang of some kinds that the policy would serve first on a node; None: another.

    For this question their asks stand in the line as any others do, and the node is kept for
    nobody: whoever has it kept would be the first there in any case.
    """
    rows, ledger = books.rows, books.ledger
    shown = [e.row for kind in kinds for parts in kind.entries.values() for e in parts]
    before, kept = rows.reveal(shown), ledger.nodes.reserved.item(slot)
    ledger.reserve([slot], 0)
    try:
        match = books.matcher.would_match(books.view, slot, books.now)
    finally:
        ledger.reserve([slot], kept)
        rows.conceal(shown, before)
    first = rows.entries[match.placements[0].row] if match.placements else None
    return (first.app, first.ask.stage) if first is not None and first.ask.gang else None


def line_of(books: Books) -> GangLine:
    """Return the waiting gangs, by kind."""
    rows, line = books.rows, books.matching.gang_line
    if not rows.gang_changed:
        return line
    changed, rows.gang_changed = rows.gang_changed, {}
    apps = books.ledger.apps
    for key in changed:
        line.drop(key)
        app, stage = key
        parts = rows.gang_parts.get(key, {})
        entries = tuple(e for e in parts.values() if e.row >= 0 and e.ask.stage == stage)
        if not entries:
            rows.gang_parts.pop(key, None)
            line.serials.pop(key, None)
            continue
        line.name(key, {entry.serial for entry in entries})
        total = np.sum([entry.pending * entry.demand for entry in entries], axis=0)
        places = _places(books, app, entries)
        kind = GangKind(total, places, -int(apps.priority[app]))
        order = int(apps.order[app])
        kind.put(key, entries, order)
        sizes = tuple((entry.demand.tobytes(), entry.pending) for entry in entries)
        held_to = int(apps.queue[app]), int(apps.user[app]), kind.rank
        line.put(key, (held_to, sizes, places), kind, order)
    return line


def _places(books: Books, app: int, entries: tuple[AskEntry, ...]) -> Hashable:
    """Return what says which nodes the asks of a gang may use, and which they prefer."""
    wishes = tuple((e.ask.label, e.ask.nodes, e.ask.racks, e.strict) for e in entries)
    return wishes, tuple(sorted(banned_for(books, app)))


def waiting(books: Books) -> list[Gang]:
    """Return the gang of each kind that stands first, by the line."""
    kinds = sorted(line_of(books).kinds.values(), key=lambda kind: kind.place)
    return [_gang(books, kind, kind.first) for kind in kinds]


def of_entry(books: Books, entry: AskEntry) -> Gang:
    """Return the gang that a pending ask belongs to."""
    key = (entry.app, entry.ask.stage)
    return _gang(books, line_of(books).kind_of(key), key)


def _gang(books: Books, kind: GangKind, key: GangKey) -> Gang:
    return Gang(key[0], kind.entries[key], books.matching.gang_line.serials[key])


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


def planner_of(books: Books) -> Planner | None:
    """Return who plans ahead for the policy, if it does."""
    planner: Planner | None = getattr(books.matcher, "planner", None)
    return planner


def reserve(books: Books) -> None:
    """Reserve nodes for the gang that waited longest though it is owed its room.

    One gang at a time: what is kept for it suffices once it is empty, so no other gang has to give
    way for it to start. Of like gangs the first in the line stands for all.
    """
    if not books.rows.gangs or books.now < books.matching.gangs_rest_s or reservations(books):
        return
    late = books.now - books.settings.reserve_after_s
    planner = planner_of(books)
    found = [
        (since_s(books, gang), gang.serial, gang)
        for gang in waiting(books)
        if planner is None or planner.finds_none(gang.serial)
    ]
    for since, _, gang in sorted(found, key=lambda one: one[:2]):
        if since > late:
            return
        need = need_of(books, gang)
        if not within_limits(books, gang.app, need.total):
            continue
        if not is_owed(books, gang, need):
            continue
        slots = nodes_for(books, gang, need)
        if not slots or len(slots) > nodes_max(books):
            continue
        if _passed_over(books, gang) or _first_on_empty(books, gang, slots):
            keep(books, gang.serial, slots)
            return


def _first_on_empty(books: Books, gang: Gang, slots: list[int]) -> bool:
    """Return whether the policy would serve a gang first on one of its nodes, were that empty."""
    if not _others_served(books, gang):
        return False
    key = gang.app, gang.entries[0].ask.stage
    kind, slot = line_of(books).kind_of(key), slots[0]
    free = books.ledger.empty(slot)
    try:
        return turn_on(books, slot, [kind]) == key
    finally:
        books.ledger.refill(slot, free)


def _others_served(books: Books, gang: Gang) -> bool:
    """Return whether anything was granted since it waits."""
    apps = books.ledger.apps
    return bool(apps.granted_s[: books.ledger.app_slots].max() > since_s(books, gang))


def keep(books: Books, serial: int, slots: list[int]) -> None:
    """Reserve nodes for an ask, or for the gang that it belongs to."""
    books.ledger.reserve(slots, serial)
    books.matching.reserved[serial] = (books.now, slots)
    books.matching.changed()


def drains(books: Books, slots: list[int]) -> bool:
    """Return whether something runs on reserved nodes which is expected to end."""
    return _drained_s(books, slots) > books.now


def _drained_s(books: Books, slots: list[int]) -> float:
    """Return when the last task on nodes is expected to end; what is overdue ends now."""
    ends = (
        run.end_s
        for slot in slots
        for run in books.node_at[slot].holdings.once()
        if run.entry is not None
    )
    return max(ends, default=books.now)


def look_for_sooner(books: Books, gang: Gang) -> None:
    """Keep other nodes for a gang where those are expected to be empty sooner by now.

    Where something is being preempted for it, that goes on.
    """
    kept_s, slots = books.matching.reserved[gang.serial]
    if any(serial == gang.serial for _, serial in books.marks.values()):
        return
    if not drains(books, slots):
        return
    found = nodes_for(books, gang, need_of(books, gang))
    if not found or len(found) > nodes_max(books):
        return
    if _drained_s(books, found) < _drained_s(books, slots) - TOLERANCE:
        books.ledger.unreserve(slots, gang.serial)
        keep(books, gang.serial, found)
        books.matching.reserved[gang.serial] = (kept_s, found)


def reservations(books: Books) -> int:
    """Return how many gangs have nodes reserved for them."""
    if not books.matching.reserved or not books.rows.gangs:
        return 0
    return sum(books.rows.gang_of(serial) is not None for serial in books.matching.reserved)


def nodes_max(books: Books) -> int:
    """Return how many nodes may be reserved for gangs at a time."""
    up = int(books.ledger.nodes.up[: books.ledger.node_count].sum())
    return max(1, int(books.settings.gang_nodes_max * up + TOLERANCE))


def nodes_for(books: Books, gang: Gang, need: Need) -> list[int]:
    """Return few nodes that could hold the gang once empty; none where the cluster could not.

    First those on which the least work is left, as containers are expected to end, and that have
    the most room; if they are too many, the largest.
    """
    capacity, free = capacity_of(books), free_of(books)
    if not len(capacity):
        # A manager started anew hears masters before it hears any node.
        return []
    empty = capacity.copy()
    # Masters stay: what their jobs still need may wait for just these nodes.
    for app in books.app_at:
        if app is not None and app.attempt is not None and app.attempt.master is not None:
            empty[app.attempt.master.node.slot] -= app.attempt.master.demand
    size = shares_of(capacity, capacity.max(axis=0)).sum(axis=1)
    part = np.divide(free, capacity, out=np.ones_like(free), where=capacity > 0).min(axis=1)
    best: list[int] = []
    for keys in ((-part, _work_left(books)), (-size,)):
        order = np.lexsort(keys)
        some = np.asarray(need.usable.any(axis=0))
        order = order[some[order]]
        slots = _shortest(need, order, empty, capacity)
        if slots and (not best or len(slots) < len(best)):
            best = slots
        if best and len(best) <= nodes_max(books):
            break
    return best


def _work_left(books: Books) -> Floats:
    """Return what runs on each node times how long it is expected to, in seconds of a whole node.

    Masters are not counted; of what should have ended already nobody knows how long it takes.
    """
    n = books.ledger.node_count
    runs = [
        (slot, (run.end_s - books.now) * run.count, run.demand)
        for slot, node in enumerate(books.node_at)
        for run in node.holdings.once()
        if run.entry is not None and run.end_s > books.now
    ]
    if not runs:
        return np.zeros(n)
    slots, left_s, demands = map(np.array, zip(*runs, strict=True))
    part = shares_of(demands, books.ledger.nodes.capacity[slots]).max(axis=1)
    return np.asarray(np.bincount(slots, left_s * part, n), np.float64)


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
    ledger = books.ledger
    apps, n, slot = ledger.apps, ledger.app_slots, gang.app
    leaf, ratio = int(apps.queue[slot]), _used_ratio(books)
    same = apps.queue[:n] == leaf
    later = (apps.order[:n] >= apps.order[slot]) & (apps.priority[:n] <= apps.priority[slot])
    needier = ratio[apps.queue[:n]] < ratio[leaf]
    served = apps.active[:n] & (apps.granted_s[:n] > since_s(books, gang))
    return bool((served & ((same & later) | ~(same | needier))).any())
