"""Backfill: asks start out of order where they cannot delay what has a promised start.

The line of `fifo` is gone through once, by estimates: each ask takes the first time at which it
fits for as long as it is expected to run. With `easy` the first application that cannot start whole
is promised the times found so, with `conservative` every application is (Mu'alem and Feitelson,
IEEE TPDS 12(6), 2001). Whoever has no promise starts only now, where it fits beside all that is
promised. The plan is made anew when something has changed: in the order of the line, each ask takes
a sooner time if there is one beside what all others are promised. So a promise moves back only
where tasks run longer than they were estimated to, nodes leave, or somebody goes before.
"""

from collections.abc import Iterator
from itertools import islice
from math import inf
from typing import NamedTuple

import numpy as np

from rm.ledger.asks import AskEntry
from rm.ledger.columns import Bools
from rm.match.candidates import limits_of, shares_of
from rm.match.limit_kernels import ADMITTED, Limits, held_back
from rm.match.protocol import NOTHING, BaseMatcher, Match, Placement
from rm.placing import gangs
from rm.placing.allocation import grant
from rm.placing.feasible import room_for
from rm.placing.gang_room import capacity_of, free_of, pack
from rm.state.books import Books
from weft.model.dag import Floats, Ints
from weft.model.resources import TOLERANCE

# Applications further back in the line start nothing before these have moved up.
_LINE_MAX = 500


def attach(books: Books) -> None:
    """Give the policy a planner where it promises starts, and the one that it is around."""
    promises = getattr(books.matcher, "promises", 0)
    policy: object = books.matcher
    while promises and isinstance(policy, BaseMatcher):
        policy.planner = Backfill(books, promises)
        policy = getattr(policy, "inner", None)


class Promise(NamedTuple):
    """When an ask starts by the plan, s of cluster time, and how many of it on each node (k, n)."""

    start_s: float
    placed: Ints


class Plan(NamedTuple):
    """What starts now, by node slot and as gangs, and what is promised, by serial."""

    starts: dict[int, list[tuple[AskEntry, int]]]
    gangs: list[tuple[gangs.Gang, Ints]]
    promised: dict[int, list[Promise]]


class Backfill:
    """The planner of one manager; `promises` is to how many applications starts are promised."""

    def __init__(self, books: Books, promises: int) -> None:
        self._books = books
        self._promises = promises
        self._plan = Plan({}, [], {})
        self._made_at: tuple[float, int] = (-inf, -1)
        self._first = -1
        self._answered: set[int] = set()

    def match(self, slot: int) -> Match:
        """Return what starts now on a node slot."""
        plan = self._current(slot)
        if slot in self._answered:
            # What was answered is booked by now, perhaps in part.
            plan = self._plan = self._made()
            self._answered.clear()
        self._answered.add(slot)
        return _match_of(plan, slot)

    def would_match(self, slot: int) -> Match:
        """Return what `match` would, were the asks as they are shown now."""
        return _match_of(_Planning(self._books, self._promises, self._plan, slot).plan(), slot)

    def start_gangs(self) -> None:
        """Start the gangs that start now."""
        books = self._books
        for gang, placed in self._current(-1).gangs:
            for entry, on in zip(gang.entries, placed, strict=True):
                size = float(on.sum())
                for slot in np.flatnonzero(on).tolist():
                    chosen = Placement(entry.row, int(on[slot]), (("gang", size),))
                    grant(books, books.node_at[slot], chosen)
        self._plan.gangs.clear()

    def promised_s(self, entry: AskEntry) -> float | None:
        """Return when an ask is to start by the last plan, s; None where nothing is promised."""
        if entry.ask.gang:
            serial = gangs.of_entry(self._books, entry).serial
        else:
            serial = entry.serial
        promises = self._plan.promised.get(serial)
        return promises[0].start_s if promises else None

    def _current(self, slot: int) -> Plan:
        """Return the plan for now; what it starts may be granted in part already."""
        now_at = self._books.now, self._books.matching.version
        if now_at != self._made_at:
            self._made_at, self._first = now_at, slot
            self._plan = self._made()
            self._answered.clear()
        return self._plan

    def _made(self) -> Plan:
        return _Planning(self._books, self._promises, self._plan, self._first).plan()


def _match_of(plan: Plan, slot: int) -> Match:
    found = [
        Placement(entry.row, min(count, entry.pending), (("place", float(at)),))
        for at, (entry, count) in enumerate(plan.starts.get(slot, ()))
        if entry.row >= 0
    ]
    return Match(found) if found else NOTHING


class _Profile:
    """What each node will have free, by the estimates of what runs and what is planned."""

    def __init__(self, books: Books) -> None:
        self._now = now = books.now
        self._free = free_of(books)
        soon = float(np.nextafter(now, inf))
        last_s: dict[int, float] = {}
        held = [holding for node in books.node_at for holding in node.holdings.once()]
        for holding in held:
            if holding.entry is not None:
                slot = holding.entry.app
                last_s[slot] = max(last_s.get(slot, soon), holding.end_s)
        at_s, slots, amounts = [], [], []
        for holding in held:
            at_s.append(max(holding.end_s, soon))
            if holding.entry is None:
                # A master ends with its application, as far as that is known.
                app = holding.attempt.app.slot if holding.attempt is not None else -1
                at_s[-1] = last_s.get(app, inf)
            slots.append(holding.node.slot)
            amounts.append(holding.demand * holding.count)
        d = len(books.types)
        self._at_s: Floats = np.array(at_s, dtype=np.float64)
        self._slots: Ints = np.array(slots, dtype=np.int64)
        self._amounts: Floats = np.array(amounts, dtype=np.float64).reshape(len(slots), d)
        self._begins: list[float] = []
        self._kept: dict[float, Floats] = {}

    def take(self, promise: Promise, demand: Floats, run_s: float, sign: int = 1) -> None:
        """Plan containers of rows of `demand` (k, d) from their start on, for `run_s`.

        With a `sign` of -1 what was planned so is given back.
        """
        by_node = sign * (promise.placed.T @ demand)
        nodes = np.flatnonzero(promise.placed.any(axis=0))
        at_s = [promise.start_s + run_s]
        amounts = [by_node[nodes]]
        self._kept.clear()
        if promise.start_s <= self._now:
            self._free = self._free - by_node
        else:
            if sign > 0:
                self._begins.append(promise.start_s)
            else:
                self._begins.remove(promise.start_s)
            at_s.append(promise.start_s)
            amounts.append(-by_node[nodes])
        self._at_s = np.concatenate((self._at_s, np.repeat(at_s, len(nodes))))
        self._slots = np.concatenate((self._slots, np.tile(nodes, len(at_s))))
        self._amounts = np.concatenate((self._amounts, *amounts))

    def holds(self, promise: Promise, demand: Floats, run_s: float, capacity: Floats) -> bool:
        """Return whether there is room for all that is promised."""
        room = self.during(promise.start_s, run_s) + TOLERANCE * capacity
        return bool((promise.placed.T @ demand <= room).all())

    def during(self, start_s: float, run_s: float) -> Floats:
        """Return what each node has free throughout a time, shape (n, d); may be below 0."""
        # Sums of the same times in another order differ in their last bits.
        end_s = start_s + run_s - TOLERANCE * max(1.0, start_s + run_s)
        least = self._free_at(start_s)
        for begin_s in self._begins:
            if start_s < begin_s < end_s:
                least = np.minimum(least, self._free_at(begin_s))
        return least

    def times(self, need: Floats) -> Iterator[float]:
        """Yield when something (d,) might fit as far as sums tell: now, then whenever one ends."""
        order = np.argsort(self._at_s, kind="stable")
        at_s = self._at_s[order]
        free = self._free.sum(axis=0) + np.cumsum(self._amounts[order], axis=0)
        last = np.append(at_s[1:] != at_s[:-1], True) if len(at_s) else np.zeros(0, np.bool_)
        enough = (free >= need * (1 - TOLERANCE) - TOLERANCE).all(axis=1)
        yield self._now
        yield from at_s[last & enough & np.isfinite(at_s)].tolist()

    def _free_at(self, time_s: float) -> Floats:
        found = self._kept.get(time_s)
        if found is None:
            found = self._free.copy()
            past = self._at_s <= time_s
            np.add.at(found, self._slots[past], self._amounts[past])
            self._kept[time_s] = found
        return found


class _Planning:
    """One way through the line, during which nothing changes."""

    def __init__(self, books: Books, promises: int, before: Plan, first: int) -> None:
        self._books = books
        self._promises = promises
        self._first = first
        self._capacity = capacity_of(books)
        self._profile = _Profile(books)
        self._limits = limits_of(books.view)
        self._plan = Plan({}, [], {})
        self._line = list(islice(_line(books), _LINE_MAX))
        self._kept: dict[int, list[Promise]] = {}
        self._keep(before)

    def _keep(self, before: Plan) -> None:
        """Keep what was promised before, as far as there is room for it."""
        books, promised = self._books, 0
        for items in self._line:
            any_kept = False
            for wish in (_wish_of(books, item) for item in items):
                promises = before.promised.get(wish.serial, ())
                left = wish.wanted
                for promise in promises:
                    left -= int(promise.placed.sum())
                    same = promise.placed.shape == (len(wish.demand), len(self._capacity))
                    kept = self._held(promise, wish) if same and left >= 0 else None
                    if kept is None:
                        break
                    self._profile.take(kept, wish.demand, wish.run_s)
                    self._kept.setdefault(wish.serial, []).append(kept)
                    any_kept = True
            promised += any_kept
            if promised >= self._promises:
                return

    def _held(self, promise: Promise, wish: "_Wish") -> Promise | None:
        """Return a promise as it can be held; what ends at its start may not be known yet."""
        now = self._books.now
        times = [promise.start_s] if promise.start_s > now else [now, float(np.nextafter(now, inf))]
        for start_s in times:
            kept = promise._replace(start_s=start_s)
            if self._profile.holds(kept, wish.demand, wish.run_s, self._capacity):
                return kept
        return None

    def plan(self) -> Plan:
        """Return what starts now and what is promised."""
        promised = 0
        for items in self._line:
            later = promised < self._promises
            whole = True
            for item in items:
                wish = _wish_of(self._books, item)
                kept = self._kept.pop(wish.serial, [])
                for promise in kept:
                    self._profile.take(promise, wish.demand, wish.run_s, -1)
                whole &= self._plan_wish(wish, kept, later)
            promised += not whole
        return self._plan

    def _plan_wish(self, wish: "_Wish", kept: list[Promise], later: bool) -> bool:
        """Plan what is wanted; return whether nothing of it waits for a promised time."""
        books = self._books
        wanted = self._may_take(wish)
        if wanted == 0 or (wish.gang is not None and wanted < wish.wanted):
            return True
        found = self._found(wish, wanted, later)
        if kept and later and _worth(kept) < _worth(found):
            found = kept
        for promise in found:
            self._profile.take(promise, wish.demand, wish.run_s)
            if promise.start_s > books.now:
                self._plan.promised.setdefault(wish.serial, []).append(promise)
                continue
            self._count(wish, int(promise.placed.sum()))
            if wish.gang is not None:
                self._plan.gangs.append((wish.gang, promise.placed))
                continue
            for slot in np.flatnonzero(promise.placed[0]).tolist():
                start = wish.entry, int(promise.placed[0, slot])
                self._plan.starts.setdefault(slot, []).append(start)
        return wish.serial not in self._plan.promised

    def _found(self, wish: "_Wish", wanted: int, later: bool) -> list[Promise]:
        """Return the first times at which what is wanted fits; only now unless `later`."""
        books, profile, found = self._books, self._profile, []
        if wish.gang is None and not room_for(books, wish.entry, self._capacity).any():
            return []
        left = wanted
        least = wish.demand[0] if wish.gang is None else wish.total
        for start_s in profile.times(least):
            if start_s > books.now and not later:
                break
            room = np.maximum(profile.during(start_s, wish.run_s), 0.0)
            if wish.gang is not None:
                placed = pack(gangs.need_of(books, wish.gang), room, self._capacity)
                if placed is not None:
                    return [Promise(start_s, placed)]
                continue
            count = self._in_order(np.minimum(room_for(books, wish.entry, room), left), left)
            if not count.any():
                continue
            promise = Promise(start_s, count[None, :])
            found.append(promise)
            profile.take(promise, wish.demand, wish.run_s)
            left -= int(count.sum())
            if left == 0:
                break
        for promise in found:
            profile.take(promise, wish.demand, wish.run_s, -1)
        return found

    def _in_order(self, count: Ints, wanted: int) -> Ints:
        """Return how many of `wanted` go on each node: first on the one that is asked about."""
        order = np.arange(len(count))
        if self._first >= 0:
            order = np.concatenate(([self._first], np.delete(order, self._first)))
        before = np.cumsum(count[order]) - count[order]
        placed = np.zeros_like(count)
        placed[order] = np.clip(wanted - before, 0, count[order])
        return placed

    def _may_take(self, wish: "_Wish") -> int:
        """Return how many containers the limits of an application's queues and user admit."""
        limits = self._limits
        if not limits.binds:
            return wish.wanted
        if wish.gang is not None:
            fits = gangs.within_limits(self._books, wish.entry.app, wish.total)
            return wish.wanted if fits else 0
        work, admitted = shares_of(wish.demand[0], self._books.ledger.total), 0
        trial = _copied(limits)
        while admitted < wish.wanted and held_back(trial, wish.entry.app, work) == ADMITTED:
            _count(trial, wish.entry.app, work, 1)
            admitted += 1
        return admitted

    def _count(self, wish: "_Wish", count: int) -> None:
        """Count containers as held from now on."""
        if self._limits.binds:
            amount = wish.total * (count / wish.wanted)
            work = shares_of(amount, self._books.ledger.total)
            _count(self._limits, wish.entry.app, work, count)


class _Wish(NamedTuple):
    """An ask, or the gang that it is part of: like containers by row, `demand` (k, d)."""

    entry: AskEntry
    gang: gangs.Gang | None
    serial: int
    wanted: int
    demand: Floats
    total: Floats
    run_s: float


def _wish_of(books: Books, entry: AskEntry) -> _Wish:
    if not entry.ask.gang:
        wanted = int(books.rows.pending[entry.row])
        demand, run_s = entry.demand[None, :], entry.ask.duration_s
        return _Wish(entry, None, entry.serial, wanted, demand, entry.demand * wanted, run_s)
    gang = gangs.of_entry(books, entry)
    demand = np.array([part.demand for part in gang.entries])
    count = np.array([part.pending for part in gang.entries])
    run_s = max(part.ask.duration_s for part in gang.entries)
    return _Wish(entry, gang, gang.serial, int(count.sum()), demand, count @ demand, run_s)


def _worth(promises: list[Promise]) -> tuple[float, float]:
    """Return by what promises for the same containers are compared: fewer of none, then sooner."""
    count = [int(promise.placed.sum()) for promise in promises]
    sum_s = sum(n * promise.start_s for n, promise in zip(count, promises, strict=True))
    return -sum(count), sum_s


def _copied(limits: Limits) -> Limits:
    """Return limits whose counts may be changed."""
    return limits._replace(
        queue_held=limits.queue_held.copy(),
        user_held=limits.user_held.copy(),
        queue_tasks=limits.queue_tasks.copy(),
        user_tasks=limits.user_tasks.copy(),
    )


def _count(limits: Limits, app: int, work: Floats, count: int) -> None:
    """Count containers, `work` (d,) of C in all, as held by an application's user and queues."""
    user, queue = limits.user[app], limits.queue[app]
    limits.user_held[user] += work
    limits.user_tasks[user] += count
    while queue >= 0:
        limits.queue_held[queue] += work
        limits.queue_tasks[queue] += count
        queue = limits.parent[queue]


def _line(books: Books) -> Iterator[list[AskEntry]]:
    """Yield the pending asks of each application, in the order of the line.

    A gang is told by the first of its asks. Applications of queues within their guarantee stand in
    front.
    """
    rows, apps, ledger, tree = books.rows, books.ledger.apps, books.ledger, books.queues
    at = np.flatnonzero(rows.pending[: rows.count] > 0)
    slots = rows.app[at]
    above: Bools = np.zeros(len(at), dtype=np.bool_)
    if tree.several:
        leaf = apps.queue[slots]
        held = ledger.by_queue.held[leaf] + rows.demand[at]
        most = tree.capacity[leaf][:, None] * ledger.total * (1 + TOLERANCE) + TOLERANCE
        above = np.asarray(((held > most) & (rows.demand[at] > 0)).any(axis=1))
    first_above: dict[int, bool] = {}
    for slot, over in zip(slots.tolist(), above.tolist(), strict=True):
        first_above[slot] = first_above.get(slot, True) and over
    behind = np.array([first_above[slot] for slot in slots.tolist()], dtype=np.bool_)
    keys = (rows.serial[at], -rows.pri_score[at], apps.order[slots], -apps.priority[slots], behind)
    items: list[AskEntry] = []
    seen: set[tuple[int, int]] = set()
    for row in at[np.lexsort(keys)].tolist():
        entry = rows.entries[row]
        if entry is None:
            continue
        if items and items[0].app != entry.app:
            yield items
            items = []
        if entry.ask.gang:
            if (entry.app, entry.ask.stage) in seen:
                continue
            seen.add((entry.app, entry.ask.stage))
        items.append(entry)
    if items:
        yield items
