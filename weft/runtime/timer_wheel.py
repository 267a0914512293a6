"""Timers that recur, of thousands of cores in one process: what is due together fires together.

A steady timer that is set anew by its own firing counts from when it was due, not from when it was
looked at, so that beats keep their phase (phase + n x interval) however late each is. They fire on
a grid, and all that fire at one point of it share one timer of the loop. Where a core's heartbeat
would say nothing it is left out: the core does not hear of it, and the next one is due as before.
"""

import asyncio
import math
from collections.abc import Callable, Hashable

from weft.protocol.messages import Address

RECURRING_KEYS = frozenset({"heartbeat"})
# Longer timers fire on a grid, up to so much of their delay later: the heartbeats of thousands of
# nodes in one process share rounds, and so batches on the wire.
GRID_FROM_S, GRID_SHARE, GRID_S_MAX = 0.1, 0.01, 0.02


class Beat:
    """A steady timer that is set."""

    __slots__ = ("address", "again", "due_s", "key", "live", "wall_s")

    def __init__(
        self, address: Address, key: Hashable, due_s: float, wall_s: float, *, again: bool
    ) -> None:
        self.address = address
        self.key = key
        # `due_s` is loop time. A timer set by its own firing `again` has its interval as delay.
        self.due_s = due_s
        self.wall_s = wall_s
        self.again = again
        self.live = True

    def cancel(self) -> None:
        """Cancel the beat: it does not fire."""
        self.live = False


class Beats:
    """The steady timers of a shell. Use it on the event loop's thread only."""

    def __init__(
        self,
        fire: Callable[[Address, Hashable], None],
        leaves_out: Callable[[Address], bool],
        idle: Callable[[list[Address]], None],
    ) -> None:
        """`fire` is called for what is due, unless `leaves_out`; `idle` gets those left out.

        Whom `leaves_out` is true of is `silent` until who drives the core takes it out of there.
        """
        self.silent: set[Address] = set()
        self._fire = fire
        self._leaves_out = leaves_out
        self._idle = idle
        # The keys are points of the grid, in loop time.
        self._due_at: dict[float, list[Beat]] = {}
        self._next_due_s: dict[Address, dict[Hashable, float]] = {}

    def remove(self, address: Address) -> None:
        """Forget the phases of a core."""
        self._next_due_s.pop(address, None)
        self.silent.discard(address)

    def due_next(self, address: Address, key: Hashable, wall_s: float, *, again: bool) -> float:
        """Return when a timer is due, loop time; `again`: it is set by its own firing.

        Intervals that the process slept through are left out.
        """
        now_s = asyncio.get_running_loop().time()
        due_s = self._next_due_s.setdefault(address, {})
        at_s = next_beat(due_s.get(key, now_s), wall_s, now_s) if again else now_s + wall_s
        due_s[key] = at_s
        return at_s

    def set(self, beat: Beat) -> None:
        """Have a timer fire at the point of the grid from when it is due."""
        point_s = on_grid(beat.due_s, beat.wall_s)
        point = self._due_at.get(point_s)
        if point is None:
            self._due_at[point_s] = [beat]
            asyncio.get_running_loop().call_at(point_s, self._due, point_s)
        else:
            point.append(beat)

    def _due(self, point_s: float) -> None:
        now_s = asyncio.get_running_loop().time()
        idle: list[Address] = []
        points, leaves_out, silent = self._due_at, self._leaves_out, self.silent
        for beat in points.pop(point_s):
            if not beat.live:
                continue
            address = beat.address
            if beat.again and (address in silent or leaves_out(address)):
                # This is reached for most timers, so it makes few calls.
                silent.add(address)
                due_s = beat.due_s + beat.wall_s
                beat.due_s = due_s if due_s > now_s else next_beat(beat.due_s, beat.wall_s, now_s)
                point = points.get(on_grid(beat.due_s, beat.wall_s))
                if point is None:
                    self.set(beat)
                else:
                    point.append(beat)
                idle.append(address)
            else:
                due = self._next_due_s.get(address)
                if due is not None:
                    due[beat.key] = beat.due_s
                self._fire(address, beat.key)
        if idle:
            self._idle(idle)


def next_beat(due_s: float, wall_s: float, now_s: float) -> float:
    """Return a time that is whole intervals after a beat was due, and later than now."""
    return due_s + wall_s * (1 + max(0.0, now_s - due_s) // wall_s)


def on_grid(at_s: float, wall_s: float) -> float:
    """Return the point of the grid from which a timer that lasts so long fires."""
    grid_s = min(wall_s * GRID_SHARE, GRID_S_MAX)
    return math.ceil(at_s / grid_s) * grid_s
