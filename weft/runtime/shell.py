"""The live shell: one mailbox in one asyncio task drives any number of cores.

The shell drains the mailbox in rounds. Effects of a round are done in order; those that follow a
`Persist` wait until it is durable, and all that persists in one round shares one commit. Timers
live inside the process, so they are set at once: nobody else can see them.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

from weft.protocol.effects import (
    Clean,
    Effect,
    Kill,
    Launch,
    MakePlan,
    Note,
    Persist,
    Send,
    SetTimer,
    Stop,
    TimerFired,
)
from weft.protocol.messages import Address
from weft.runtime.clock import Clock
from weft.runtime.durability import Keeping, Out
from weft.runtime.interfaces import Outside, Store
from weft.runtime.tape import Tape
from weft.runtime.timer_wheel import GRID_FROM_S, RECURRING_KEYS, Beat, Beats, on_grid

# A round is short, so that what its events caused is sent soon and other processes work on it while
# this one continues.
ROUND_EVENTS_MAX = 500
ROUND_S = 0.002
# What streams bring can take longer than rounds that short, and then more comes than is ever
# handled: a round that follows another may last as long as all else did between them.
ROUND_S_MAX = 0.01
# A zero-delay timer fires at once, but not more often than this: under load it gathers more.
GATHER_S = 0.002
# uvloop rounds to whole milliseconds: a timer that fires early only has to be set again.
ROUNDED_S = 0.001
# Loops take no delay of any length; a core whose timer fires early looks at its clock and waits on.
TIMER_S_MAX = 365 * 86_400.0


class Core(Protocol):
    """What every role's core is."""

    def handle(self, event: Any, now: float, /) -> list[Effect]:
        """Handle an event; return what to do."""
        ...

    def check(self) -> None:
        """Raise where the books contradict themselves."""
        ...


# Told how long a core took for each of so many events of a type, s, and how long they waited, s.
Meter = Callable[[str, float, float, int], None]
# Given (to, message) before the world is; True means that it was taken.
Collector = Callable[[Address, Any], bool]

Done = Callable[[], None]

_Entry = tuple[Address, Sequence[Any], float, Collector | None, Done | None]


class Shell:
    """Drives cores by address. All methods are called on the loop's thread."""

    def __init__(
        self,
        clock: Clock,
        outside: Outside,
        store: Store | None = None,
        meter: Meter | None = None,
        checked: bool = False,
        exact: bool = False,
        tape: Tape | None = None,
        leaves_out: Callable[[Core], bool] | None = None,
    ) -> None:
        """`leaves_out`: of which cores the steady timers may be left out; `Outside.idle` is told.
        It is asked again once a core has handled an event, as nothing else changes one.

        `checked`: every core checks its books after every event, which is slow.

        `tape` is told of every event that a core handled.

        `exact`: timers fire when they are due, neither gathered, on a grid nor behind messages, and
        rounds do not go by how long they take. For a stepped clock, on which a late timer costs
        parity with the simulator and an early one costs nothing.
        """
        self.clock = clock
        self._outside = outside
        self._keeping = (
            None if store is None else Keeping(store, outside, self._carry_out, self._awake)
        )
        self._meter = meter
        self._checked = checked
        self._exact = exact
        self._tape = tape
        self._cores: dict[Address, Core] = {}
        self._leaves_out = leaves_out
        self._beats = Beats(self._fire, self._says_nothing, outside.idle)
        self._mailbox: deque[_Entry] = deque()
        # `_handled` counts entries of the mailbox; a future of `_followed` waits for that number.
        self._handled = 0
        self._followed: deque[tuple[int, asyncio.Future[None]]] = deque()
        # `_over` is a future while the shell runs.
        self._over: asyncio.Future[None] | None = None
        self._round_scheduled = False
        # The last round ended at this time with more to handle; None if with nothing.
        self._left_s: float | None = None
        self._timers: dict[Address, dict[Hashable, asyncio.TimerHandle | Beat | None]] = {}
        # `_due` are timers of this round; `_fired` has the loop time when zero-delay ones fired.
        self._due: list[tuple[Address, Hashable]] = []
        self._fired: dict[Address, dict[Hashable, float]] = {}
        self._firing: tuple[Address, Hashable] | None = None
        self._ending = False

    # -- cores and events --------------------------------------------------------------------------

    def add(self, address: Address, core: Core, made: Any = None) -> None:
        """Drive one more core; `made` is the dataclass of all that it was made with, for a tape."""
        self._cores[address] = core
        if self._tape is not None and made is not None:
            self._tape.add(address, made)
        self._timers[address] = {}
        self._fired[address] = {}

    def remove(self, address: Address) -> None:
        """Forget a core with its timers; events for it are dropped from now on."""
        core = self._cores.pop(address, None)
        if self._tape is not None and core is not None:
            self._tape.remove(address)
        self._fired.pop(address, None)
        self._beats.remove(address)
        for handle in self._timers.pop(address, {}).values():
            if handle is not None:
                handle.cancel()

    def __contains__(self, address: Address) -> bool:
        return address in self._cores

    @property
    def addresses(self) -> list[Address]:
        """The cores that are driven."""
        return list(self._cores)

    def core(self, address: Address) -> Core | None:
        """Return a core by address, to be looked at only."""
        return self._cores.get(address)

    def post(
        self,
        address: Address,
        event: Any,
        collector: Collector | None = None,
        handled: Done | None = None,
    ) -> None:
        """Put an event into the mailbox.

        `collector` sees first what its handling sends; `handled` is called then in any case.
        """
        self._mailbox.append((address, (event,), time.perf_counter(), collector, handled))
        self._awake()

    def post_all(self, address: Address, events: Sequence[Any]) -> None:
        """Put events of one type into the mailbox, at least one, to be handled in one turn."""
        self._mailbox.append((address, events, time.perf_counter(), None, None))
        self._awake()

    def handled(self) -> asyncio.Future[None]:
        """Return what is done once all that is in the mailbox now was handled."""
        done = asyncio.get_running_loop().create_future()
        if self._mailbox:
            self._followed.append((self._handled + len(self._mailbox), done))
        else:
            done.set_result(None)
        return done

    # -- the loop ----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Drain the mailbox until `end` is called; raises what a core raised."""
        self._over = asyncio.get_running_loop().create_future()
        self._awake()
        try:
            await self._over
        finally:
            self._over = None

    def _awake(self) -> None:
        """Have a round follow, after what streams and timers have to do now."""
        if self._over is not None and not self._round_scheduled:
            self._round_scheduled = True
            self._over.get_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._round_scheduled, over = False, self._over
        if over is None or over.done():
            return
        try:
            if self._failure is not None:
                # A store that cannot write must end the process.
                raise self._failure
            if self._mailbox or self._due:
                self._round()
        except Exception as error:
            over.set_exception(error)
            return
        if self._ending:
            over.set_result(None)
        elif self._mailbox or self._due or self._failure is not None:
            self._left_s = time.perf_counter()
            self._awake()

    @property
    def _failure(self) -> Exception | None:
        return None if self._keeping is None else self._keeping.failure

    def end(self) -> None:
        """Let `run` return after the round under way."""
        self._ending = True
        if self._keeping is not None:
            self._keeping.ending = True
        self._awake()

    async def settle(self) -> None:
        """Wait until everything persisted so far is durable and its effects are done."""
        if self._keeping is not None:
            await self._keeping.settle()

    def _round(self) -> None:
        out: list[Out] = []
        mailbox = self._mailbox
        due, self._due = self._due, []
        until_s, most = self._bounds()
        for _ in range(min(len(mailbox), most)):
            address, events, posted_s, collector, handled = mailbox.popleft()
            self._handled += 1
            if type(events[0]) is TimerFired:
                self._handle_timer(address, events[0], posted_s, out)
            else:
                self._handle(address, events, posted_s, collector, out)
            if handled is not None:
                handled()
            if time.perf_counter() > until_s:
                break
        followed = self._followed
        while followed and followed[0][0] <= self._handled:
            _, done = followed.popleft()
            if not done.done():
                done.set_result(None)
        # A zero-delay timer collects what arrived together: it fires after the round's events.
        self._due, fresh = [], self._due
        for address, key in due + fresh:
            self._handle_timer(address, TimerFired(key), time.perf_counter(), out)
        if self._keeping is None:
            self._carry_out([item for item in out if type(item[1]) is not Persist])
        else:
            self._keeping.do(out)

    def _bounds(self) -> tuple[float, int]:
        """Return until when a round may go on, by `perf_counter`, and with how many events."""
        left_s, self._left_s = self._left_s, None
        if self._exact:
            return math.inf, ROUND_EVENTS_MAX
        now_s = time.perf_counter()
        share_s = ROUND_S if left_s is None else min(max(ROUND_S, now_s - left_s), ROUND_S_MAX)
        return now_s + share_s, int(ROUND_EVENTS_MAX * share_s / ROUND_S)

    def _handle_timer(
        self, address: Address, event: TimerFired, posted_s: float, out: list[Out]
    ) -> None:
        """Have a core handle a timer that went off, unless it was replaced since."""
        key, timers = event.key, self._timers.get(address)
        if timers is not None and key in timers and timers[key] is None:
            del timers[key]
            self._fired[address][key] = asyncio.get_running_loop().time()
            self._firing = (address, key)
            self._handle(address, (event,), posted_s, None, out)
            self._firing = None

    def _handle(
        self,
        address: Address,
        events: Sequence[Any],
        posted_s: float,
        collector: Collector | None,
        out: list[Out],
    ) -> None:
        core = self._cores.get(address)
        if core is None:
            return
        self._beats.silent.discard(address)
        began_s, now = time.perf_counter(), self.clock.now()
        for event in events:
            if not self._carry(address, core, event, now, collector, out):
                return
        if self._meter is not None:
            took_s, count = time.perf_counter() - began_s, len(events)
            self._meter(type(events[0]).__name__, took_s / count, began_s - posted_s, count)

    def _carry(
        self,
        address: Address,
        core: Core,
        event: Any,
        now: float,
        collector: Collector | None,
        out: list[Out],
    ) -> bool:
        """Have a core handle an event; return whether it lived through it."""
        try:
            effects = core.handle(event, now)
            if self._checked:
                core.check()
            for effect in effects:
                if type(effect) is SetTimer:
                    self._set_timer(address, effect.delay_s, effect.key)
        except Exception as error:
            # A bug of one core must not end the others.
            if self._tape is not None:
                self._tape.failed(address, event, now, error)
            self.remove(address)
            self._outside.failed(address, error)
            return False
        if self._tape is not None:
            self._tape.handled(address, event, now, effects)
        for effect in effects:
            kind = type(effect)
            if kind is SetTimer:
                continue
            if kind is Send and collector is not None and collector(effect.to, effect.message):  # type: ignore[union-attr]
                continue
            else:
                out.append((address, effect, now))
        return True

    # -- timers ------------------------------------------------------------------------------------

    def _set_timer(self, address: Address, delay_s: float | None, key: Hashable) -> None:
        timers = self._timers.get(address)
        if timers is None:
            return
        old = timers.pop(key, None)
        if old is not None:
            old.cancel()
        if delay_s is None:
            return
        loop = asyncio.get_running_loop()
        if math.isnan(delay_s):
            raise ValueError(f"a timer's delay is no number: {key!r}")
        if delay_s <= 0:
            again_s = self._fired[address].get(key, 0.0) + GATHER_S
            if again_s > loop.time() and not self._exact:
                timers[key] = loop.call_at(again_s, self._fire, address, key)
                return
            timers[key] = None
            self._due.append((address, key))
            self._awake()
            return
        wall_s = min(self.clock.wall_s(delay_s), TIMER_S_MAX)
        at_s = loop.time() + wall_s
        if key in RECURRING_KEYS:
            again = self._firing == (address, key)
            at_s = self._beats.due_next(address, key, wall_s, again=again)
            if wall_s >= GRID_FROM_S and not self._exact:
                beat = timers[key] = Beat(address, key, at_s, wall_s, again=again)
                self._beats.set(beat)
                return
        if wall_s >= GRID_FROM_S and not self._exact:
            at_s = on_grid(at_s, wall_s)
        elif not self._exact:
            at_s += ROUNDED_S
        timers[key] = loop.call_at(at_s, self._fire, address, key)

    def _says_nothing(self, address: Address) -> bool:
        return self._leaves_out is not None and self._leaves_out(self._cores[address])

    def _fire(self, address: Address, key: Hashable) -> None:
        """Put a timer that fired into the next round; until then it can be replaced."""
        timers = self._timers.get(address)
        if timers is not None and key in timers:
            timers[key] = None
            if key in RECURRING_KEYS and not self._exact:
                # Those of many cores could take all of the time, so they queue behind other events.
                self.post(address, TimerFired(key))
            else:
                self._due.append((address, key))
                self._awake()

    # -- effects -----------------------------------------------------------------------------------

    def _carry_out(self, out: list[Out]) -> None:
        outside = self._outside
        sends: list[tuple[Address, Any]] = []
        for address, effect, now in out:
            kind = type(effect)
            if kind is Send:
                sends.append((effect.to, effect.message))  # type: ignore[union-attr]
            elif kind is Note:
                outside.note(address, effect.fact, now)  # type: ignore[union-attr]
            elif isinstance(effect, Launch):
                outside.launch(address, effect.item)
            elif isinstance(effect, Kill):
                outside.kill(address, effect.container_id)
            elif isinstance(effect, Clean):
                outside.clean(address, effect.app_id)
            elif isinstance(effect, MakePlan):
                outside.plan(address, effect)
            elif isinstance(effect, Stop):
                if sends:
                    # Its last messages go out first.
                    outside.send(sends)
                    sends = []
                self.remove(address)
                outside.stopped(address, effect.reason)
        if sends:
            outside.send(sends)
