"""A run to be looked at again: the events of its Resource Manager, live or simulated.

Cores are functions of their events, so these few are the whole run: `Rerun` brings a fresh manager
to where it stood before any of them. Going forward feeds what lies between, going back begins anew.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rm.core import LIVENESS_TIMER, ResourceManager
from rm.making import ManagerParts
from sim.cluster import Simulation
from sim.recorder import Recorder
from sim.settings import SimSettings
from weft.model.cluster import ClusterSpec
from weft.model.errors import WeftError
from weft.model.ids import AppId
from weft.model.job import Job
from weft.model.resources import ResourceTypes
from weft.protocol.effects import Effect, TimerFired
from weft.protocol.event_unions import ManagerTold
from weft.protocol.messages import MANAGER
from weft.tape.made import from_data
from weft.tape.rows import CoreAdded, Handled, Row

Make = Callable[[], ResourceManager]
Answered = Callable[[ManagerTold, float, list[Effect], ResourceManager], None]


class Seen(NamedTuple):
    """When nodes (by slot) and masters last sent a beat, s, where a simulation left some out."""

    nodes: tuple[float, ...]
    masters: tuple[tuple[AppId, float], ...]


class Step(NamedTuple):
    """An event that a manager handled at `now`, s; with `begin` another life of it begins first."""

    event: ManagerTold
    now: float
    begin: Make | None = None
    seen: Seen | None = None


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """All events that a manager received, and what they are about.

    `cluster_ts` is in ms since the epoch (0: simulated). `says` tells people where the run comes
    from.
    """

    name: str
    scheduler: str
    types: ResourceTypes
    steps: Sequence[Step]
    cluster_ts: int = 0
    simulated: bool = False
    says: str = ""


class Rerun:
    """A manager that can be brought to any moment of a run."""

    def __init__(
        self, steps: Sequence[Step], dress: Callable[[ResourceManager], None] | None = None
    ) -> None:
        """`dress` is notified of every manager before its first step."""
        self._steps = steps
        self._dress = dress
        self._manager: ResourceManager | None = None
        self._fed_steps = 0

    @property
    def at(self) -> int:
        """Number of steps that its manager has taken (in `answered`: before the one passed)."""
        return self._fed_steps

    @property
    def now(self) -> float:
        """Time when the last step was taken, s on the run's clock."""
        return self._steps[self._fed_steps - 1].now if self._fed_steps else 0.0

    @property
    def manager(self) -> ResourceManager:
        """The manager as it stands; raises WeftError before the first step."""
        if self._manager is None:
            raise WeftError("the run has not begun")
        return self._manager

    def seek(self, number: int, answered: Answered | None = None) -> None:
        """Go behind the first `number` steps; `answered` learns of each that is fed now."""
        if number < self._fed_steps:
            self._manager, self._fed_steps = None, 0
        if number > self._fed_steps:
            # What lies before the manager's last start does not matter, unless somebody listens.
            first = self._fed_steps
            if answered is None:
                lives = range(number - 1, self._fed_steps - 1, -1)
                first = next(
                    (i for i in lives if self._steps[i].begin is not None), self._fed_steps
                )
            for place in range(first, min(number, len(self._steps))):
                self._feed(self._steps[place], answered)
                self._fed_steps = place + 1

    def forget(self) -> None:
        """Begin anew the next time: somebody changed the manager."""
        self._manager, self._fed_steps = None, 0

    def _feed(self, step: Step, answered: Answered | None) -> None:
        if step.begin is not None:
            self._manager = step.begin()
            if self._dress is not None:
                self._dress(self._manager)
        manager = self.manager
        if step.seen is not None:
            _see(manager, step.seen)
        try:
            orders = manager.handle(step.event, step.now)
        except Exception:
            # It failed so when it ran, too, which its log tells.
            return
        if answered is not None:
            answered(step.event, step.now, orders, manager)


def _see(manager: ResourceManager, seen: Seen) -> None:
    for slot, at_s in enumerate(seen.nodes):
        manager.books.ledger.heard_of(slot, at_s)
    for number, at_s in seen.masters:
        app = manager.books.apps.get(number)
        if app is not None and app.attempt is not None:
            app.attempt.seen_s = at_s


def of_tapes(name: str, tapes: Iterable[Iterable[Row]]) -> RecordedRun:
    """Return the run of a manager's tapes, the oldest first; raises WeftError if they are empty."""
    steps: list[Step] = []
    parts: ManagerParts | None = None
    for rows in tapes:
        begin: Make | None = None
        for row in rows:
            if isinstance(row, CoreAdded):
                parts = from_data(ManagerParts, row.made)
                begin = parts.make
            elif isinstance(row, Handled) and row.address == MANAGER:
                steps.append(Step(row.event, row.now, begin))
                begin = None
    if parts is None or not steps:
        raise WeftError(f"{name}: tells of no Resource Manager that ran")
    return RecordedRun(name, parts.matcher, parts.types, steps, parts.cluster_ts)


class Watched(Simulation):
    """A simulation that keeps the events of its manager."""

    def __init__(
        self,
        cluster: ClusterSpec,
        jobs: Sequence[Job],
        settings: SimSettings,
        recorder: Recorder | None = None,
    ) -> None:
        self.steps: list[Step] = []
        super().__init__(cluster, jobs, settings, recorder)

    def start_manager(self) -> None:
        """Start it, and listen at its door."""
        if MANAGER in self.actors:
            return
        super().start_manager()
        actor, lives = self.actors[MANAGER], self._manager_lives
        handle, steps = actor.handle, self.steps
        begin: list[Make | None] = [lambda: self.make_manager(lives)]

        def heard(event: ManagerTold, now: float) -> list[Effect]:
            seen = None
            if type(event) is TimerFired and event.key == LIVENESS_TIMER:
                seen = _seen(self.manager)
            steps.append(Step(event, now, begin[0], seen))
            begin[0] = None
            return handle(event, now)

        actor.handle = heard


def _seen(manager: ResourceManager) -> Seen:
    books = manager.books
    nodes = books.ledger.nodes.seen_s[: books.ledger.node_count].tolist()
    masters = [(a.app_id, a.attempt.seen_s) for a in books.apps.values() if a.attempt is not None]
    return Seen(tuple(nodes), tuple(masters))


def of_simulation(name: str, scheduler: str, run: Watched) -> RecordedRun:
    """Return the run of a simulation that is over."""
    return RecordedRun(name, scheduler, run.cluster.types, run.steps, simulated=True)


def until(steps: Sequence[Step], at_s: float) -> int:
    """Return how many steps were taken by a time, s."""
    return bisect_right(steps, at_s, key=lambda step: step.now)
