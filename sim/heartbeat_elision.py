"""Heartbeats that would change nothing are left out, and the run stays the same.

Why that is exact. A beat of a *silent* core carries nothing (its own `silent` says so), and the
Resource Manager's answer to it does something only if it owes the sender something, or if a node's
beat could lead to a grant: a master waits for a node, a gang may start, starving asks are due to be
looked at, or something is pending that may fit (`rm.placing.allocation` asks for a node again only
if the books' version changed since it found nothing there). So a silent core is *suppressed*, and:

* a master's beat that is due while messages are on their way to the manager takes its place behind
  them, and only there it is known whether the manager owes the master something;
* a node of whose tasks one ends just when a beat is due tells of it in that beat;
* an event that makes it speak, or an item that the manager owes it, arms its next beat again;
* before virtual time moves on, the suppressed nodes whose beats lie on the way are looked at in the
  order of their beats, and one that could lead to a grant beats as it would have;
* before the manager looks for silent nodes and masters, the suppressed ones count as seen, and one
  that is armed again as seen at its last beat.

Beats keep their phase: they lie on the grid `phase + n x interval`, suppressed or not; at one
instant they come before all else, nodes in the order of their start, then masters. With loss, delay
or faults nothing is suppressed, and in prompt pace no master is.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import chain, islice
from math import inf, nextafter
from typing import cast

import numpy as np

from nm.core import HEARTBEAT
from rm.placing.allocation import MAY_GRANT, NO_ROOM, heartbeat_outlook, outlook, slots_with_room
from rm.state.books import Books
from sim.engine import (
    Actor,
    Deliver,
    Effects,
    Engine,
    HasNextEnd,
    HeartbeatSender,
    HeartbeatTimer,
    Key,
)
from sim.heartbeat_order import ENDS_NEXT, MASTERS_NEXT, NODES_FIRST, place_by_rank
from weft.model.dag import Floats
from weft.model.ids import AppId, app_of_attempt
from weft.protocol.effects import TimerFired
from weft.protocol.messages import MANAGER

BEAT = TimerFired(HEARTBEAT)
# The key of the timer for the beat at which a task ends.
AT_END = "a beat at an end"
# After so many looks at single nodes for one floor, all nodes are looked at.
_SCAN_ALL_AFTER = 8
# Times are rounded in the search for a place in the ring.
_PLACE_TOLERANCE_S = 1e-7


class HeartbeatElision:
    """Keeps every heartbeat on its grid; with `skip`, leaves out those that change nothing."""

    def __init__(self, engine: Engine, deliver: Deliver, *, skip: bool) -> None:
        self._engine = engine
        self._deliver = deliver
        self._skip = skip
        self._books: Books | None = None
        self._beats: dict[Key, HeartbeatTimer] = {}
        self._joined: dict[Actor, tuple[Key, HeartbeatSender]] = {}
        # `_ring` sorts suppressed nodes by their places in the interval, then by slot.
        self._ring: list[HeartbeatTimer] = []
        self._places: list[float] = []
        # The slot of a node is 1 where it is in the ring.
        self._suppressed = bytearray()
        self._interval_s = 0.0
        # The applications of the masters that are suppressed.
        self._masters: dict[Key, AppId] = {}
        # The slot is 1 where a node in the ring has no room for `_least`.
        self._full_nodes = bytearray()
        self._full_count = 0
        # The newest floor of the asks that suppressed nodes were compared with, and how many one by
        # one.
        self._least: Floats | None = None
        self._single_looks = 0
        self._nodes = 0
        self._ends = ENDS_NEXT
        self._prompt = False
        # Beats that wait for their turn are addressed to this actor.
        self._deferred = Actor("beats", self)
        self.left_out = 0

    def watch(self, books: Books) -> None:
        """Follow what a manager owes."""
        self._books, self._prompt = books, books.settings.prompt
        if self._skip:
            books.on_owed = self._owed
            self._engine.before = self._before

    def join(self, actor: Actor, key: Key, core: HeartbeatSender) -> None:
        """Note that an actor's core beats; `key` is its node id or attempt id."""
        self._joined[actor] = key, core

    def leave(self, actor: Actor) -> None:
        """Forget an actor that beats no more."""
        self._joined.pop(actor, None)
        beat, actor.beat = actor.beat, None
        if beat is not None:
            del self._beats[beat.key]
            if beat.suppressed:
                self._resume(beat)

    # -- timers ------------------------------------------------------------------------------------

    def arm(self, actor: Actor, delay_s: float) -> None:
        """Note that a core set its heartbeat timer."""
        beat = actor.beat
        if beat is None:
            key, core = self._joined[actor]
            beat = HeartbeatTimer(actor, core, key, self._engine.now + delay_s, self._rank(key))
            actor.beat = self._beats[key] = beat
        elif beat.interval_s != delay_s:
            beat.phase_s, beat.interval_s = self._engine.now + delay_s, delay_s
            beat.number = 0
        else:
            beat.number += 1
        time_s = beat.phase_s + beat.number * beat.interval_s
        self._engine.set_timer_at(actor, HEARTBEAT, time_s, beat.rank)

    def _rank(self, key: Key) -> int:
        if isinstance(key, str):
            self._nodes += 1
            return NODES_FIRST + self._nodes
        return MASTERS_NEXT + int(key)

    def leaves_out(self, actor: Actor) -> bool:
        """Return whether the beat that is due changes nothing; the core is suppressed then."""
        books, beat = self._books, actor.beat
        if beat is None or not beat.core.silent or books is None or not beat.interval_s:
            return False
        if not isinstance(beat.key, str):
            return self._puts_off(actor)
        node = books.nodes.get(beat.key)
        now = self._engine.now
        if self._engine.ready or node is None or node.outbox.owes or _ends_s(beat) <= now:
            # A message on its way now may change what this beat would do.
            return False
        expected = heartbeat_outlook(books, node, now)
        if expected == MAY_GRANT:
            return False
        beat.slot = slot = node.slot
        beat.offset_s = beat.phase_s % beat.interval_s
        self._interval_s = beat.interval_s
        self._suppress(beat)
        if slot >= len(self._suppressed):
            more = bytes(slot + 1)
            self._suppressed += more
            self._full_nodes += more
        self._suppressed[slot] = 1
        if expected == NO_ROOM:
            self._mark_full(slot, books.rows.floor())
        beat.suppressed = actor.suppressed = True
        self.left_out += 1
        self._foresee(beat)
        return True

    def _foresee(self, beat: HeartbeatTimer) -> None:
        """Have a suppressed node beat where a task ends just when a beat is due, and tell of it."""
        due_s = _ends_s(beat)
        if due_s == inf:
            return
        time_s = beat.after(nextafter(due_s, -inf))
        if time_s - due_s < _PLACE_TOLERANCE_S and time_s != beat.told_s:
            beat.told_s = time_s
            self._ends += 1
            self._engine.set_timer_at(beat.actor, AT_END, time_s, self._ends)

    def ends(self, actor: Actor) -> bool:
        """Let a suppressed node beat with whose beat an end falls together."""
        beat, now = actor.beat, self._engine.now
        if beat is not None and beat.suppressed and beat.told_s == now:
            self._beat(beat, now)
        return True

    def _puts_off(self, actor: Actor) -> bool:
        """Return whether a silent master's beat waits behind what is on its way to the manager.

        What the manager takes in before it may make it owe the master something. Nothing makes the
        master itself speak meanwhile: it has no other timer, and no message is on its way to it.
        """
        deferred, ready = self._deferred, self._engine.ready
        if self._prompt or actor.timers:
            # In prompt pace any message makes the manager match.
            return False
        for target, _, _ in reversed(ready):
            if target is deferred:
                # What is before it was looked at when it was put there.
                break
            if target.address != MANAGER:
                return False
        ready.append((deferred, actor, 0))
        return True

    def handle(self, actor: Actor, now: float) -> Effects:
        """Let a master beat whose turn it is; if that changes nothing, suppress it instead."""
        beat, ready = actor.beat, self._engine.ready
        if beat is not None and not self._leaves_out_master(beat, now):
            before = len(ready)
            self._deliver(actor, BEAT, now)
            # Its turn is now.
            ready.rotate(len(ready) - before)
        return []

    def _leaves_out_master(self, beat: HeartbeatTimer, now: float) -> bool:
        books, key = self._books, beat.key
        assert books is not None
        assert not isinstance(key, str)
        app = books.apps.get(app_of_attempt(key))
        attempt = None if app is None else app.attempt
        if attempt is None or attempt.attempt_id != key or attempt.acks or attempt.outbox.owes:
            return False
        self._masters[key] = attempt.app.app_id
        beat.left_out_s = now
        beat.suppressed = beat.actor.suppressed = True
        self.left_out += 1
        return True

    def heard(self, actor: Actor) -> None:
        """Wake a suppressed core that took in an event, if it has something to say."""
        beat = actor.beat
        if beat is None or not beat.suppressed:
            return
        if not beat.core.silent:
            self._wake(beat, self._engine.now)
        elif beat.slot >= 0:
            self._foresee(beat)

    def seen(self, actor: Actor) -> bool:
        """Note suppressed actors as alive, before the manager looks for silent ones."""
        books, now = self._books, self._engine.now
        if books is None:
            return False
        books.ledger.heard_of_all(np.flatnonzero(np.frombuffer(self._suppressed, np.bool_)), now)
        for number in self._masters.values():
            app = books.apps.get(number)
            if app is not None and app.attempt is not None:
                app.attempt.seen_s = now
        return False

    def _owed(self, key: Key) -> None:
        """Wake a suppressed node or master that the manager owes something.

        What a node's beat made it owe a master, a beat of now fetches, if that was not left out.
        """
        beat, now = self._beats.get(key), self._engine.now
        if beat is None or not beat.suppressed:
            return
        if isinstance(key, str) or beat.left_out_s == now or beat.after(nextafter(now, -1.0)) > now:
            self._wake(beat, now)
        else:
            self._resume(beat)
            ready, deferred = self._engine.ready, self._deferred
            ready.insert(place_by_rank(ready, deferred, beat.rank), (deferred, beat.actor, 0))

    def _wake(self, beat: HeartbeatTimer, now: float) -> None:
        self._resume(beat)
        time_s = beat.after(now)
        self._heard_at(beat, beat.phase_s + (beat.number - 1) * beat.interval_s)
        self._engine.set_timer_at(beat.actor, HEARTBEAT, time_s, beat.rank)

    def _heard_at(self, beat: HeartbeatTimer, time_s: float) -> None:
        """Note a beat that was left out as received, as the manager counts from it to the next."""
        books, key = self._books, beat.key
        assert books is not None
        if isinstance(key, str):
            books.ledger.heard_of(beat.slot, time_s)
            return
        app = books.apps.get(app_of_attempt(key))
        if app is not None and app.attempt is not None and app.attempt.attempt_id == key:
            app.attempt.seen_s = time_s

    def _suppress(self, beat: HeartbeatTimer) -> None:
        """Put a node's beats into the ring."""
        ring, places, offset_s = self._ring, self._places, beat.offset_s
        at = bisect_right(places, offset_s)
        while at and places[at - 1] == offset_s and ring[at - 1].slot > beat.slot:
            at -= 1
        ring.insert(at, beat)
        places.insert(at, offset_s)

    def _resume(self, beat: HeartbeatTimer) -> None:
        beat.suppressed = beat.actor.suppressed = False
        if beat.slot < 0:
            del self._masters[beat.key]
            return
        if self._full_nodes[beat.slot]:
            self._full_nodes[beat.slot] = 0
            self._full_count -= 1
        ring, places = self._ring, self._places
        at = bisect_left(places, beat.offset_s)
        while at < len(ring) and ring[at] is not beat and places[at] == beat.offset_s:
            at += 1
        if at < len(ring) and ring[at] is beat:
            del ring[at], places[at]
            self._suppressed[beat.slot] = 0

    # -- suppressed nodes on the way ---------------------------------------------------------------

    def _before(self, limit_s: float) -> bool:
        """Let the first suppressed node that matters beat, if one does, before time is `limit_s`.

        One at most: its beat is an event, after which anything may be different, and time then
        tries to move on again. Most often no node matters, and the way to know that without a look
        at each is the floor of the asks, the least that any of them needs: a node without room for
        the floor stays without, as a suppressed node gains none. While the floor is the same
        object, those that were held against it are passed over (`_full_nodes`), all of them in one
        comparison where each was.
        """
        books, ring = self._books, self._ring
        if books is None or not ring:
            return False
        rows, matching, prompt = books.rows, books.matching, self._prompt
        due_s = inf if prompt else matching.reserve_at
        floor: Floats | None = None
        if not books.waiting:
            if not rows.live:
                return limit_s >= due_s and self._first_after(due_s, limit_s)
            if not (prompt or limit_s >= due_s or (rows.gangs and matching.gangs_due)):
                # Only room for this floor can make a beat matter.
                floor = rows.floor()
                if floor is self._least and self._full_count == len(ring):
                    return False
        now, interval = self._engine.now, self._interval_s
        start = bisect_left(self._places, now % interval - _PLACE_TOLERANCE_S)
        # At the start of the scan are beats that were sent just now, so they come last.
        passed: list[HeartbeatTimer] = []
        tight = self._full_nodes
        for beat in self._on_the_way(start, now, limit_s):
            if tight[beat.slot] and floor is self._least:
                continue
            time_s = beat.after(now)
            if time_s - now >= interval - 2 * _PLACE_TOLERANCE_S:
                passed.append(beat)
                continue
            if time_s > limit_s:
                return False
            if time_s >= due_s or self._matters(beat, floor):
                return self._beat(beat, time_s)
        for beat in passed:
            time_s = beat.after(now)
            if time_s <= limit_s and (time_s >= due_s or self._matters(beat, floor)):
                return self._beat(beat, time_s)
        return limit_s >= due_s and self._first_after(due_s, limit_s)

    def _mark_full(self, slot: int, floor: Floats) -> None:
        """Note that a suppressed node lacks room for the asks' floor, and after a few look at all.

        Most floors last for many beats, and then one look at all suppressed nodes, which gain no
        room until they beat, costs less than one at each where its beat lies on the way.
        """
        marks = self._full_nodes
        if floor is not self._least:
            self._least, self._full_count, self._single_looks = floor, 0, 0
            marks[:] = bytes(len(marks))
        if not marks[slot]:
            marks[slot] = 1
            self._full_count += 1
        self._single_looks += 1
        books = self._books
        if self._single_looks == _SCAN_ALL_AFTER and books is not None:
            marks[:] = self._suppressed
            among = bytes(marks).ljust(books.ledger.node_count, b"\0")
            fits = slots_with_room(books, np.frombuffer(among, np.bool_), floor)
            np.frombuffer(marks, np.bool_)[fits] = False
            self._full_count = len(self._ring) - len(fits)

    def _on_the_way(self, start: int, now: float, limit_s: float) -> Iterable[HeartbeatTimer]:
        """Yield suppressed nodes whose beats may lie in (now, limit_s], in the order of those."""
        ring, interval = self._ring, self._interval_s
        end_s = limit_s % interval + _PLACE_TOLERANCE_S
        if limit_s - now >= interval - 2 * _PLACE_TOLERANCE_S or end_s >= interval:
            return chain(islice(ring, start, None), islice(ring, 0, start))
        end = bisect_right(self._places, end_s)
        if end_s > now % interval:
            return ring[start:end]
        return chain(islice(ring, start, None), islice(ring, 0, end))

    def _first_after(self, from_s: float, limit_s: float) -> bool:
        """Let the first suppressed node from a time on beat, if that is before the limit."""
        ring, now = self._ring, self._engine.now
        from_s = now if from_s <= now else nextafter(from_s, 0.0)
        start = bisect_left(self._places, from_s % self._interval_s - _PLACE_TOLERANCE_S)
        count = len(ring)
        near = [place % count for place in range(start - 1, start + 3)]
        first_s, place = min([(ring[place].after(from_s), place) for place in near])
        return first_s <= limit_s and self._beat(ring[place], first_s)

    def _beat(self, beat: HeartbeatTimer, time_s: float) -> bool:
        self._engine.now = time_s
        beat.after(self._engine.now - 0.5 * beat.interval_s)
        self._resume(beat)
        self._engine.events += 1
        self._deliver(beat.actor, BEAT, time_s)
        return True

    def _matters(self, beat: HeartbeatTimer, floor: Floats | None = None) -> bool:
        """Return whether a node's beat could lead to a grant; True where it is not certain.

        `floor`: what asks need at least, where that alone keeps a node from a grant.
        """
        books = self._books
        assert books is not None
        node = books.node_at[beat.slot]
        if floor is None:
            expected = heartbeat_outlook(books, node, self._engine.now)
        else:
            expected = outlook(books, node)
        if expected == NO_ROOM:
            self._mark_full(beat.slot, books.rows.floor())
        return expected == MAY_GRANT


def _ends_s(beat: HeartbeatTimer) -> float:
    """Return when the next task ends on a node."""
    return cast("HasNextEnd", beat.core).due_s
