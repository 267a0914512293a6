"""A recorded cluster as it stood at a time: its cores, timers, messages under way, and what
arrived.

Every core is fed its own tape up to then (`sim.replay.verify`). What was ordered and had not
happened yet is put together from all tapes: a message that was sent and not received is on its way.
Later events on the tapes are kept aside: jobs, clients' requests, and how long things took.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil, floor

from rm.core import ResourceManager
from sim.replay.recorded_delays import Delays, Stopwatch
from sim.replay.verify import Core, Replay
from sim.replay.whatif import Seen, look, whole
from weft.model.errors import InputError
from weft.model.ids import ContainerId, app_of_attempt
from weft.protocol.effects import (
    Effect,
    Launch,
    MakePlan,
    PlanReady,
    ProcessEnded,
    Send,
    SetTimer,
    TimerFired,
)
from weft.protocol.messages import MANAGER, Address, MasterLaunch, TaskLaunch, launches_of
from weft.tape.rows import Handled, Row

# What was sent longer ago and was not heard is lost.
DELIVERY_MAX_S = 10.0
# Reads a tape from its beginning.
Tape = Callable[[], Iterable[Row]]


@dataclass(frozen=True, slots=True)
class Sent:
    """A message and who sent it, when."""

    source: Address
    to: Address
    message: object
    sent_s: float


@dataclass(frozen=True, slots=True)
class Running:
    """A process that a node was ordered to start."""

    node: Address
    item: TaskLaunch | MasterLaunch
    began_s: float


@dataclass(slots=True)
class Cut:
    """A cluster at `now`, s on its clock.

    `seen` and `delays` are of the whole run. `timers` has when each is due, `plans` since when each
    is wanted. Cores in `begun` were there at some time. `ends`, of processes, come from the rest of
    the tapes.
    """

    now: float
    seen: Seen
    delays: Delays
    cores: dict[Address, Core] = field(default_factory=dict)
    timers: dict[Address, dict[Hashable, float]] = field(default_factory=dict)
    under_way: list[Sent] = field(default_factory=list)
    plans: dict[Address, tuple[MakePlan, float]] = field(default_factory=dict)
    processes: dict[ContainerId, Running] = field(default_factory=dict)
    begun: set[Address] = field(default_factory=set)
    ends: dict[ContainerId, float] = field(default_factory=dict)

    @property
    def manager(self) -> ResourceManager:
        """The Resource Manager."""
        core = self.cores[MANAGER]
        assert isinstance(core, ResourceManager)
        return core


def survey(managers: Sequence[Tape], others: Sequence[Tape], at_s: float) -> Cut:
    """Return what all tapes of a run hold of the events after a time, without any cores yet.

    Raises InputError for tapes that tell of no job.
    """
    stopwatch = Stopwatch()
    cut = Cut(at_s, Seen(), Delays({}))
    cut.seen = look(managers, lambda *told: _later(cut, stopwatch, *told))
    for tape in others:
        whole(Replay(on_answer=lambda *told: _later(cut, stopwatch, *told)).run(tape()))
    cut.delays = stopwatch.delays()
    return cut


def stand(surveyed: Cut, tapes: Sequence[Tape]) -> Cut:
    """Return the cluster as it stood, with cores made anew: each call makes others.

    Raises InputError for a time at which no manager ran, and for masters that are on no tape.
    """
    cut = Cut(
        surveyed.now,
        surveyed.seen,
        surveyed.delays,
        ends=surveyed.ends,
    )
    _Past(cut).feed(tapes)
    at_s = cut.now
    if not isinstance(cut.cores.get(MANAGER), ResourceManager):
        raise InputError("--at", f"no Resource Manager ran at {at_s:g} s{_lives(tapes)}")
    foreign = [
        one.item.attempt_id
        for one in cut.processes.values()
        if isinstance(one.item, MasterLaunch) and one.item.command
    ]
    if foreign:
        names = ", ".join(str(app_of_attempt(attempt)) for attempt in foreign)
        raise InputError("--at", f"application {names} has a master of its own, on no tape")
    return cut


def _lives(tapes: Sequence[Tape]) -> str:
    """Return when managers ran, as the end of a sentence."""
    lives = []
    for tape in tapes:
        rows = (row for row in tape() if isinstance(row, Handled) and row.address == MANAGER)
        times = [row.now for row in rows]
        if times:
            # Rounded to what lies within.
            lives.append(f"from {ceil(times[0] * 10) / 10:.1f} to {floor(times[-1] * 10) / 10:.1f}")
    return f"; one ran {', '.join(lives)} s" if lives else ""


def _later(
    cut: Cut, stopwatch: Stopwatch, core: Address, event: object, now: float, orders: list[Effect]
) -> None:
    """Follow an event of the whole run; later events are kept."""
    stopwatch.listen(core, event, now, orders)
    if now > cut.now and isinstance(event, ProcessEnded):
        cut.ends.setdefault(event.container_id, now)


class _Past:
    """Takes the tapes in up to the cut, one after the other."""

    def __init__(self, cut: Cut) -> None:
        self._cut = cut
        self._sent: list[Sent] = []
        self._heard: Counter[tuple[Address, object]] = Counter()
        # Whether the process whose tape is read lives beyond the cut.
        self._lives = False
        self._timers: dict[Address, dict[Hashable, float]] = {}
        self._plans: dict[Address, tuple[MakePlan, float]] = {}
        self._processes: dict[ContainerId, Running] = {}

    def feed(self, tapes: Iterable[Tape]) -> None:
        """Feed all processes of the run; what the dead ones sent may still be under way."""
        cut = self._cut
        for tape in tapes:
            self._lives = False
            self._timers, self._plans, self._processes = {}, {}, {}
            replay = Replay(on_answer=self._answered)
            replay.run(self._until(tape()))
            if not self._lives:
                continue
            begun = {where: core for where, core in replay.cores.items() if where in self._timers}
            cut.cores.update(begun)
            cut.timers.update({where: self._timers[where] for where in begun})
            cut.plans.update({w: plan for w, plan in self._plans.items() if w in begun})
            cut.processes.update(self._processes)
        for one in self._sent:
            key = _key(one.to, one.message)
            if self._heard[key]:
                self._heard[key] -= 1
            elif one.to in cut.cores:
                cut.under_way.append(one)

    def _until(self, rows: Iterable[Row]) -> Iterator[Row]:
        for row in rows:
            if isinstance(row, Handled) and row.now > self._cut.now:
                self._lives = True
                return
            yield row

    def _answered(self, core: Address, event: object, now: float, orders: list[Effect]) -> None:
        recent = now >= self._cut.now - DELIVERY_MAX_S
        timers = self._timers.setdefault(core, {})
        self._cut.begun.add(core)
        if isinstance(event, TimerFired):
            timers.pop(event.key, None)
        elif isinstance(event, PlanReady):
            self._plans.pop(core, None)
        elif isinstance(event, ProcessEnded):
            self._processes.pop(event.container_id, None)
        elif recent:
            self._heard[_key(core, event)] += 1
        for order in orders:
            if isinstance(order, SetTimer):
                timers.pop(order.key, None)
                if order.delay_s is not None:
                    timers[order.key] = now + max(0.0, order.delay_s)
            elif isinstance(order, Send):
                if recent:
                    self._sent.append(Sent(core, order.to, order.message, now))
            elif isinstance(order, MakePlan):
                self._plans[core] = (order, now)
            elif isinstance(order, Launch):
                begun = order.item
                for item in launches_of(begun) if isinstance(begun, TaskLaunch) else (begun,):
                    self._processes[item.container_id] = Running(core, item, now)


def _key(to: Address, message: object) -> tuple[Address, object]:
    """Return what identifies a message; registrations and jobs hold mappings and are rare."""
    try:
        hash(message)
    except TypeError:
        return to, type(message).__name__
    return to, message
