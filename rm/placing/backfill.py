"""Backfill: asks start out of order where they cannot delay what has a promised start.

The line of `fifo` is gone through once, by estimates: each ask takes the first time at which it
fits for as long as it is expected to run. With `easy` the first application that cannot start whole
is promised the times found so, with `conservative` every application is (Mu'alem and Feitelson,
IEEE TPDS 12(6), 2001). Whoever has no promise starts only now, where it fits beside all that is
promised. The plan is made anew when something has changed: in the order of the line, each ask takes
a sooner time if there is one beside what all others are promised. So a promise moves back only
where tasks run longer than they were estimated to, nodes leave, or one of a higher priority comes.

One line is planned: shares of several queues and limits would each be an order of their own, so a
cluster with them is refused.
"""

from collections.abc import Iterator
from itertools import islice
from math import inf
from typing import NamedTuple

import numpy as np

from rm.dynamic_queues import makes_queues
from rm.ledger.asks import AskEntry
from rm.ledger.columns import Bools
from rm.ledger.queues import QueueTree
from rm.match.protocol import BaseMatcher, Match, Matcher, Placement
from rm.placing import gangs
from rm.placing.allocation import grant
from rm.placing.ends import releases
from rm.placing.feasible import room_for, usable
from rm.placing.gang_room import capacity_of, free_of, pack
from rm.state.books import Books
from weft.model.dag import Floats, Ints
from weft.model.errors import InputError
from weft.model.resources import TOLERANCE

# Applications further back in the line start nothing before these have moved up.
_LINE_MAX = 100
# An ask of many containers is promised the next times at which some of it fits, so many at most.
_TIMES_MAX = 8
# What should have ended by now is expected so much later, s.
_SOON_S = 1e-6
# Sums of the same times in another order differ by less than this, s.
_SAME_S = _SOON_S / 4


def attach(books: Books) -> None:
    """Give the policy a planner where it promises starts, and the one that it is around.

    Raises InputError where the queues do not allow it.
    """
    check_queues(books.matcher, books.queues)
    promises = getattr(books.matcher, "promises", 0)
    policy: object = books.matcher
    while promises and isinstance(policy, BaseMatcher):
        policy.planner = Backfill(books, promises)
        policy = getattr(policy, "inner", None)


def check_queues(policy: Matcher, tree: QueueTree) -> None:
    """Raise InputError where a policy promises starts and queues decide who is next, too."""
    makes = makes_queues(tree)
    if getattr(policy, "promises", 0) and (tree.several or tree.limited or makes):
        what = "limits of queues or users" if tree.limited else "several leaf queues"
        if makes:
            what = "queues that are made at submissions"
        raise InputError("matcher.backfill", f"plans one line; the cluster has {what}")


class Promise(NamedTuple):
    """When an ask starts by the plan, s of cluster time, and how many of it on each node (k, n)."""

    start_s: float
    placed: Ints


class Plan(NamedTuple):
    """What starts now, by node slot and as gangs, and what is promised, by serial.

    Those `without` would be promised a start, but there is no time for them.
    """

    starts: dict[int, list[tuple[AskEntry, int]]]
    gangs: list[tuple[gangs.Gang, Ints]]
    promised: dict[int, list[Promise]]
    without: set[int]


class Backfill:
    """The planner of one manager; `promises` is to how many applications starts are promised."""

    def __init__(self, books: Books, promises: int) -> None:
        self._books = books
        self._promises = promises
        self._plan = Plan({}, [], {}, set())
        # The plan is of this pass over all nodes, and so many containers are booked if nobody but
        # it decided since.
        self._made_in = self._first = -1
        self._booked = 0
        # Nothing starts at this version before this time.
        self._idle_at = -1
        self._idle_until_s = -inf

    def match(self, slot: int) -> Match:
        """Return what starts now on a node slot."""
        books, matching = self._books, self._books.matching
        if self._idle:
            return _match_of(self._plan, slot)
        same_pass = matching.in_pass and matching.passes == self._made_in
        if not same_pass:
            self._first = slot
        if not same_pass or self._booked != books.ledger.by_queue.containers[0]:
            self._made_in = matching.passes if matching.in_pass else -1
            self._booked = int(books.ledger.by_queue.containers[0])
            self._plan = self._made(self._first)
        match = _match_of(self._plan, slot)
        self._booked += sum(placement.copies for placement in match.placements)
        return match

    def would_match(self, slot: int) -> Match:
        """Return what `match` would, were the asks as they are shown now."""
        return _match_of(_Planning(self._books, self._promises, self._plan, slot).plan(), slot)

    def start_gangs(self) -> bool:
        """Start the gangs that start now; return whether nothing is promised beside."""
        books = self._books
        if not self._idle:
            self._plan = self._made(-1)
        for gang, placed in self._plan.gangs:
            for entry, on in zip(gang.entries, placed, strict=True):
                size = float(on.sum())
                for slot in np.flatnonzero(on).tolist():
                    chosen = Placement(entry.row, int(on[slot]), (("gang", size),))
                    grant(books, books.node_at[slot], chosen)
        return not self._plan.promised

    def finds_none(self, serial: int) -> bool:
        """Return whether no end is known that would make room for an ask or a gang."""
        return serial in self._plan.without

    def promised_s(self, entry: AskEntry) -> float | None:
        """Return when an ask is to start by the last plan, s; None where nothing is promised."""
        if entry.ask.gang:
            serial = gangs.of_entry(self._books, entry).serial
        else:
            serial = entry.serial
        promises = self._plan.promised.get(serial)
        return promises[0].start_s if promises else None

    @property
    def _idle(self) -> bool:
        """Whether nothing starts before a promised time that has not come yet."""
        books = self._books
        return books.matching.version == self._idle_at and books.now < self._idle_until_s

    def _made(self, first: int) -> Plan:
        """Return a plan for now in which what starts begins on a node slot, if there is room."""
        plan = _Planning(self._books, self._promises, self._plan, first).plan()
        if not (plan.starts or plan.gangs):
            self._idle_at = self._books.matching.version
            self._idle_until_s = min(
                (promises[0].start_s for promises in plan.promised.values()), default=inf
            )
        return plan


def _match_of(plan: Plan, slot: int) -> Match:
    found = [
        Placement(entry.row, min(count, entry.pending), (("place", float(at)),))
        for at, (entry, count) in enumerate(plan.starts.get(slot, ()))
        if entry.row >= 0
    ]
    return Match(found, settled=not plan.promised)


class _Profile:
    """What each node will have free, by the estimates of what runs and what is planned."""

    def __init__(self, books: Books) -> None:
        self._now = now = books.now
        self._free = free_of(books)
        ends = releases(books, now + _SOON_S)
        self._at_s: Floats = np.array([end.at_s for end in ends], dtype=np.float64)
        self._slots: Ints = np.array([end.slot for end in ends], dtype=np.int64)
        amounts: Floats = np.array([end.amount for end in ends], dtype=np.float64)
        self._amounts = amounts.reshape(len(ends), len(books.types))
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
        end_s = start_s + run_s - _SAME_S
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
            past = self._at_s <= time_s + _SAME_S
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
        self._plan = Plan({}, [], {}, set())
        self._line = list(islice(_line(books), _LINE_MAX))
        self._kept: dict[int, list[Promise]] = {}
        self._keep(before)

    def _keep(self, before: Plan) -> None:
        """Keep what was promised before, as far as there is room for it, from the first on.

        Where one cannot be kept, those behind it are planned anew, lest they stand in its way.
        """
        promised = 0
        for items in self._line:
            any_kept = False
            for wish in (_wish_of(self._books, item) for item in items):
                left = wish.wanted
                for promise in before.promised.get(wish.serial, ()):
                    left -= int(promise.placed.sum())
                    kept = self._held(promise, wish) if left >= 0 else None
                    if kept is None:
                        return
                    self._profile.take(kept, wish.demand, wish.run_s)
                    self._kept.setdefault(wish.serial, []).append(kept)
                    any_kept = True
            promised += any_kept
            if promised >= self._promises:
                return

    def _held(self, promise: Promise, wish: "_Wish") -> Promise | None:
        """Return a promise as it can be held; what ends at its start may not be known yet."""
        if promise.placed.shape != wish.usable.shape or (promise.placed[~wish.usable] > 0).any():
            return None
        first_s = max(promise.start_s, self._books.now)
        for start_s in (first_s, first_s + _SOON_S):
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
        if not wish.wanted:
            return True
        found = self._found(wish, later)
        if later and not found and not kept:
            self._plan.without.add(wish.serial)
        if kept and later and _worth(kept) < _worth(found):
            found = kept
        for promise in found:
            self._profile.take(promise, wish.demand, wish.run_s)
            if promise.start_s > self._books.now:
                self._plan.promised.setdefault(wish.serial, []).append(promise)
            elif wish.gang is not None:
                self._plan.gangs.append((wish.gang, promise.placed))
            else:
                for slot in np.flatnonzero(promise.placed[0]).tolist():
                    start = wish.entry, int(promise.placed[0, slot])
                    self._plan.starts.setdefault(slot, []).append(start)
        return wish.serial not in self._plan.promised

    def _found(self, wish: "_Wish", later: bool) -> list[Promise]:
        """Return the first times at which what is wanted fits; only now unless `later`."""
        books, profile, found = self._books, self._profile, []
        if not room_for(books, wish.entry, self._capacity).any() and wish.gang is None:
            return []
        left = wish.wanted
        for start_s in profile.times(wish.least):
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
            if left == 0 or len(found) == _TIMES_MAX:
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


class _Wish(NamedTuple):
    """An ask, or the gang that it is part of: like containers by row, `demand` (k, d).

    `usable` (k, n) says which nodes each row may use.
    """

    entry: AskEntry
    gang: gangs.Gang | None
    serial: int
    wanted: int
    demand: Floats
    usable: Bools
    total: Floats
    run_s: float

    @property
    def least(self) -> Floats:
        """Less than this (d,) in all of the cluster is no use."""
        return self.demand[0] if self.gang is None else self.total


def _wish_of(books: Books, entry: AskEntry) -> _Wish:
    if not entry.ask.gang:
        wanted = int(books.rows.pending[entry.row])
        demand, total = entry.demand[None, :], entry.demand * wanted
        may_use = usable(books, entry)[None, :]
        run_s = entry.ask.duration_s
        return _Wish(entry, None, entry.serial, wanted, demand, may_use, total, run_s)
    gang = gangs.of_entry(books, entry)
    need = gangs.need_of(books, gang)
    wanted = int(need.wanted.sum())
    run_s = max(part.ask.duration_s for part in gang.entries)
    return _Wish(entry, gang, gang.serial, wanted, need.demand, need.usable, need.total, run_s)


def _worth(promises: list[Promise]) -> tuple[float, float]:
    """Return by what promises for the same containers are compared: fewer of none, then sooner."""
    count = [int(promise.placed.sum()) for promise in promises]
    sum_s = sum(n * promise.start_s for n, promise in zip(count, promises, strict=True))
    return -sum(count), sum_s


def _line(books: Books) -> Iterator[list[AskEntry]]:
    """Yield the pending asks of each application, in the order of the line.

    A gang is told by the first of its asks.
    """
    rows, apps = books.rows, books.ledger.apps
    at = np.flatnonzero(rows.pending[: rows.count] > 0)
    slots = rows.app[at]
    keys = (rows.serial[at], -rows.pri_score[at], apps.order[slots], -apps.priority[slots])
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
