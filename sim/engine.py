"""Virtual time: events in the order of (time, serial), so that a run is a function of its input.

What happens at the present instant has a queue of its own: it is younger than everything in the
calendar that is due now. The calendar has slices of time: only the present one is in order, and the
next is put in order, all of it at once, when its time comes (a calendar queue; Brown 1988). With
thousands of timers that costs less than a heap of them all. A slice of very many is a heap, as all
behind the first of a list move when that is taken out.
"""

from bisect import insort
from collections import deque
from collections.abc import Callable, Hashable
from heapq import heappop, heappush
from math import inf, nextafter
from typing import Any, Protocol

from weft.model.errors import InvariantError
from weft.model.ids import AttemptId, NodeId
from weft.protocol.effects import TimerFired

SLICES_PER_S = 16
# With so many entries the present slice becomes a heap; below, a sorted list is faster.
HEAP_ENTRIES_MIN = 4096
# Cores return these, and `sim.process_faults` adds one kind of its own.
Effects = list[Any]
# Identifies a core that sends heartbeats.
Key = NodeId | AttemptId
Door = Callable[[Any, float], Effects]


class Core(Protocol):
    """What every role is: one door."""

    def handle(self, event: Any, now: float) -> Effects:
        """Take an event at a time, answer with effects."""


class HeartbeatSender(Protocol):
    """A core that sends heartbeats."""

    @property
    def silent(self) -> bool:
        """Whether a heartbeat now would say nothing."""


class HasNextEnd(HeartbeatSender, Protocol):
    """One in which tasks end without an order."""

    @property
    def due_s(self) -> float:
        """The time of the next end, of which a heartbeat tells."""


class Actor:
    """A core with an address and its timers; one that is not `alive` hears nothing.

    While it is `suppressed`, its heartbeats are left out (`sim.heartbeat_elision`); `beat` says
    when they fall due. `timers` has the serial number of each key's entry in the calendar.
    """

    __slots__ = ("address", "alive", "beat", "core", "handle", "name", "suppressed", "timers")

    def __init__(self, address: str, core: Core, name: str = "") -> None:
        self.address = address
        self.name = name or address
        self.core = core
        self.handle: Door = core.handle
        self.alive = True
        self.suppressed = False
        self.beat: HeartbeatTimer | None = None
        self.timers: dict[Hashable, int] = {}


class HeartbeatTimer:
    """When one core's heartbeats fall due.

    A negative `rank` goes before all else at the same time. `interval_s` is 0 before the second
    beat; `number` is that of the next beat on the grid. A master's beat was last left out at
    `left_out_s`; a node has its `slot`, and beats at `told_s` at the latest, as something ends
    then.
    """

    __slots__ = (
        "actor",
        "core",
        "interval_s",
        "key",
        "left_out_s",
        "number",
        "offset_s",
        "phase_s",
        "rank",
        "slot",
        "suppressed",
        "told_s",
    )

    def __init__(
        self, actor: Actor, core: HeartbeatSender, key: Key, first_s: float, rank: int
    ) -> None:
        self.actor = actor
        self.core = core
        self.key = key
        self.rank = rank
        self.phase_s = first_s
        self.interval_s = 0.0
        self.number = 0
        self.suppressed = False
        self.left_out_s = -1.0
        self.slot = -1
        self.told_s = -1.0
        self.offset_s = 0.0

    @property
    def next_s(self) -> float:
        """The time of the next beat."""
        return self.phase_s + self.number * self.interval_s

    def after(self, now: float) -> float:
        """Move to the first beat after `now` and answer its time."""
        phase, interval = self.phase_s, self.interval_s
        number = int((now - phase) / interval) + 1
        while phase + number * interval <= now:
            number += 1
        while phase + (number - 1) * interval > now:
            number -= 1
        self.number = number
        return phase + number * interval


# An entry is (time in s, serial number, recipient, event).
Entry = tuple[float, int, Actor, object]
Deliver = Callable[[Actor, object, float], None]
LeftOut = Callable[[Actor], bool]


class Engine:
    """The calendar of future events and the queue of present ones.

    Where a timer of a key in `left_out` is due, its function says whether to leave it out. What is
    due before the end of the present slice, `_end_s`, is in `_near`, in a heap's order if
    `_heaped`, else sorted; what is due after it is in `_later`, by slice, and `_slices` is a heap
    of these slices.
    """

    __slots__ = (
        "_end_s",
        "_heaped",
        "_keys",
        "_later",
        "_near",
        "_serial",
        "_slices",
        "_stopped",
        "before",
        "events",
        "events_max",
        "left_out",
        "now",
        "ready",
    )

    def __init__(self) -> None:
        self.now = 0.0
        self.events = 0
        self.events_max = inf
        # told where time is about to move; answers whether it did something before
        self.before: Callable[[float], bool] | None = None
        self.left_out: dict[Hashable, LeftOut] = {}
        self._near: list[Entry] = []
        self._heaped = False
        self._end_s = 0.0
        self._later: dict[int, list[Entry]] = {}
        self._slices: list[int] = []
        # Events that are still to be delivered at the present instant.
        self.ready: deque[tuple[Actor, object, int]] = deque()
        self._serial = 0
        self._keys: dict[Hashable, TimerFired] = {}
        self._stopped = False

    def soon(self, actor: Actor, event: object) -> None:
        """Deliver an event now, after all that is due now."""
        self.ready.append((actor, event, 0))

    def at(self, time_s: float, actor: Actor, event: object) -> None:
        """Deliver an event at a time that is not before now."""
        self._serial += 1
        self._put((time_s, self._serial, actor, event))

    def set_timer(self, actor: Actor, key: Hashable, delay_s: float | None) -> None:
        """Set, replace or (None) cancel the timer of a key."""
        if delay_s is None:
            actor.timers.pop(key, None)
            return
        self.set_timer_at(actor, key, self.now + delay_s)

    def set_timer_at(
        self, actor: Actor, key: Hashable, time_s: float, rank: int | None = None
    ) -> None:
        """Set a timer for an absolute time; a negative `rank` goes before all else then."""
        if rank is None:
            rank = self._serial = self._serial + 1
        actor.timers[key] = rank
        event = self._keys.get(key) or self._event_of(key)
        if time_s <= self.now:
            self.ready.append((actor, event, rank))
        elif time_s < self._end_s:
            self._put((time_s, rank, actor, event))
        elif time_s < inf:
            # This is `_put` without the call.
            entries = self._later.get(int(time_s * SLICES_PER_S))
            if entries is None:
                self._put((time_s, rank, actor, event))
            else:
                entries.append((time_s, rank, actor, event))

    def _put(self, entry: Entry) -> None:
        """Put an entry into the calendar; what is due at no time is not."""
        time_s = entry[0]
        if time_s < self._end_s:
            if self._heaped:
                heappush(self._near, entry)
            else:
                insort(self._near, entry)
                self._heaped = len(self._near) > HEAP_ENTRIES_MIN
        elif time_s < inf:
            number = int(time_s * SLICES_PER_S)
            if number not in self._later:
                self._later[number] = []
                heappush(self._slices, number)
            self._later[number].append(entry)

    def _turn(self) -> bool:
        """Turn to the next slice of the calendar, as the present one is over; False: none is."""
        if not self._slices:
            return False
        number = heappop(self._slices)
        self._end_s = (number + 1) / SLICES_PER_S
        self._near += sorted(self._later.pop(number))
        self._heaped = len(self._near) > HEAP_ENTRIES_MIN
        return True

    def _event_of(self, key: Hashable) -> TimerFired:
        event = self._keys[key] = TimerFired(key)
        return event

    def stop(self) -> None:
        """Let `run` return after the present event."""
        self._stopped = True

    def run(self, deliver: Deliver, until_s: float = inf) -> None:
        """Deliver messages and timers in order, until none is left, `stop` or time is up."""
        near, ready, before, left_out = self._near, self.ready, self.before, self.left_out
        now, events_max = self.now, self.events_max
        self._stopped = False
        # What is put at this instant is due before the ready events.
        if not near and not self._turn():
            self._end_s = nextafter(now, inf)
            self._stopped = not ready
        while not self._stopped:
            if ready and (not near or near[0][0] > now):
                actor, event, serial = ready.popleft()
            elif near or self._turn():
                time_s = near[0][0]
                if time_s > now:
                    limit_s = time_s if time_s < until_s else until_s
                    if before is not None and limit_s > now and before(limit_s):
                        # It put an event before the next one.
                        now = self.now
                        continue
                    if time_s > until_s:
                        self.now = until_s
                        return
                    self.now = now = time_s
                _, serial, actor, event = heappop(near) if self._heaped else near.pop(0)
            else:
                return
            if not actor.alive:
                continue
            if type(event) is TimerFired:
                key, timers = event.key, actor.timers
                if timers.get(key) != serial:
                    # The timer was replaced or cancelled.
                    continue
                del timers[key]
                events = self.events = self.events + 1
                if key in left_out and left_out[key](actor):
                    continue
            else:
                events = self.events = self.events + 1
            if events > events_max:
                raise InvariantError(f"no rest after {events_max} events")
            deliver(actor, event, now)
