"""Virtual time: events in the order of (time, serial), so that a run is a function of its input.

What happens at the present instant skips the heap: it is younger than everything in the heap that
is due now, so a queue keeps the same order for less.
"""

from collections import deque
from collections.abc import Callable, Hashable
from heapq import heappop, heappush
from math import inf
from typing import Any, Protocol

from weft.effects import TimerFired
from weft.errors import InvariantError
from weft.ids import AttemptId, NodeId

Effects = list[Any]  # of a core, and of `sim.outages`, which puts one of its own among them
Key = NodeId | AttemptId  # of what beats
Door = Callable[[Any, float], Effects]


class Core(Protocol):
    """What every role is: one door."""

    def handle(self, event: Any, now: float) -> Effects:
        """Take an event at a time, answer with effects."""


class Beating(Protocol):
    """A core that sends heartbeats."""

    @property
    def silent(self) -> bool:
        """Whether a heartbeat now would say nothing."""


class Actor:
    """A core with an address and its timers; one that is not `alive` hears nothing."""

    __slots__ = ("address", "alive", "beat", "core", "handle", "name", "parked", "timers")

    def __init__(self, address: str, core: Core, name: str = "") -> None:
        self.address = address
        self.name = name or address
        self.core = core
        self.handle: Door = core.handle
        self.alive = True
        self.parked = False  # its heartbeats are left out (`sim.idle`)
        self.beat: Beat | None = None  # when they fall due
        self.timers: dict[Hashable, int] = {}  # key -> serial of its entry in the heap


class Beat:
    """When one core's heartbeats fall due."""

    __slots__ = (
        "actor", "core", "interval_s", "key", "number", "offset_s", "parked", "phase_s", "rank",
        "slot",
    )  # fmt: skip

    def __init__(self, actor: Actor, core: Beating, key: Key, first_s: float, rank: int) -> None:
        self.actor = actor
        self.core = core
        self.key = key
        self.rank = rank  # negative: before all else at the same time
        self.phase_s = first_s
        self.interval_s = 0.0  # unknown before the second beat
        self.number = 0  # of the next beat on the grid
        self.parked = False
        self.slot = -1
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


Deliver = Callable[[Actor, object, float], None]
LeftOut = Callable[[Actor], bool]


class Engine:
    """The heap of future events and the queue of present ones."""

    __slots__ = (
        "_due", "_heap", "_keys", "_serial", "_stopped", "before", "events", "events_max",
        "left_out", "now", "ready",
    )  # fmt: skip

    def __init__(self) -> None:
        self.now = 0.0
        self.events = 0
        self.events_max = inf
        # told where time is about to move; answers whether it did something before
        self.before: Callable[[float], bool] | None = None
        self.left_out: dict[Hashable, LeftOut] = {}  # asked where a timer of that key is due
        self._heap: list[tuple[float, int, Actor, object]] = []
        # what is still to be delivered at the present instant
        self.ready: deque[tuple[Actor, object, int]] = deque()
        self._serial = 0
        self._keys: dict[Hashable, TimerFired] = {}
        self._stopped = False
        self._due = False  # the first of the heap is to be delivered before what is `ready`

    def soon(self, actor: Actor, event: object) -> None:
        """Deliver an event now, after all that is due now."""
        self.ready.append((actor, event, 0))

    def at(self, time_s: float, actor: Actor, event: object) -> None:
        """Deliver an event at a time that is not before now."""
        self._serial += 1
        heappush(self._heap, (time_s, self._serial, actor, event))
        if time_s <= self.now:
            self._due = True

    def set_timer(self, actor: Actor, key: Hashable, delay_s: float | None) -> None:
        """Set, replace or (None) cancel the timer of a key."""
        if delay_s is None:
            actor.timers.pop(key, None)
            return
        serial = self._serial = actor.timers[key] = self._serial + 1
        event = self._keys.get(key) or self._event_of(key)
        time_s = self.now + delay_s
        if time_s > self.now:
            heappush(self._heap, (time_s, serial, actor, event))
        else:
            self.ready.append((actor, event, serial))

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
        else:
            heappush(self._heap, (time_s, rank, actor, event))

    def _event_of(self, key: Hashable) -> TimerFired:
        event = self._keys[key] = TimerFired(key)
        return event

    def stop(self) -> None:
        """Let `run` return after the present event."""
        self._stopped = True

    def run(self, deliver: Deliver, until_s: float = inf) -> None:
        """Deliver messages and timers in order, until none is left, `stop` or time is up."""
        heap, ready, before, left_out = self._heap, self.ready, self.before, self.left_out
        now, events_max = self.now, self.events_max
        self._stopped, self._due = False, bool(heap) and heap[0][0] <= now
        while not self._stopped:
            if ready and not self._due:
                actor, event, serial = ready.popleft()
            elif heap:
                time_s = heap[0][0]
                if time_s > now:
                    if before is not None and before(time_s):  # put something before it
                        now = self.now
                        self._due = heap[0][0] <= now
                        continue
                    if time_s > until_s:
                        self.now = until_s
                        return
                    self.now = now = time_s
                _, serial, actor, event = heappop(heap)
                self._due = bool(heap) and heap[0][0] <= now
            else:
                return
            if not actor.alive:
                continue
            events = self.events
            if events >= events_max:
                raise InvariantError(f"no rest after {events} events")
            if type(event) is TimerFired:
                key, timers = event.key, actor.timers
                if timers.get(key) != serial:
                    continue  # replaced or cancelled
                del timers[key]
                self.events = events + 1
                if key in left_out and left_out[key](actor):
                    continue
            else:
                self.events = events + 1
            deliver(actor, event, now)
