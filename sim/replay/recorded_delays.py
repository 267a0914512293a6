"""A simulation with the delays of a recorded run: messages, timers, launches and plans take time.

Delays of messages and timers are drawn from what was measured, independently of each other and in
order on each link. What is beyond STALL_QUANTILE or STALL_MEDIANS is left out: a stall of a process
delays all that it does at once, and drawn one by one it would delay a little of everything.
"""

import math
from bisect import bisect_right
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from nm.core import HEARTBEAT
from sim.client import Client
from sim.cluster import Simulation
from sim.engine import Actor, Engine
from sim.network import LinkSettings, Network
from sim.recorder import Recorder
from sim.settings import SimSettings
from weft.model.cluster import ClusterSpec, NodeSpec
from weft.model.ids import AppId
from weft.model.job import Job
from weft.protocol.effects import (
    ClientRequested,
    Effect,
    Launch,
    MakePlan,
    PlanReady,
    Send,
    SetTimer,
    Started,
    TimerFired,
)
from weft.protocol.messages import (
    MANAGER,
    Address,
    MasterLaunch,
    master_address,
    node_address,
)

# Delays beyond this quantile, and beyond so many times the median, count as stalls.
STALL_QUANTILE = 0.95
STALL_MEDIANS = 20.0
_DRAWS = 4096
# Virtual time: without a decision for so long, none comes.
NO_DECISION_MAX_S = 900.0
# What was measured so near in time is what is simulated.
NEAR_S = 0.02
# A tape's clock goes in steps, so events at the same time are set this far apart.
EVENT_SPACING_S = 1e-7
# Only so many messages, those of the run's beginning, are timed.
TIMED_MESSAGES_MAX = 200_000
# A request about a job that is not there yet is made again after so long.
ASKED_AGAIN_S = 0.01
_KINDS = {"rm": "rm", "node": "node", "am": "am"}
BETWEEN = tuple(
    f"{one}-{other}"
    for one, other in (
        ("rm", "node"),
        ("node", "rm"),
        ("rm", "am"),
        ("am", "rm"),
        ("am", "node"),
        ("node", "am"),
    )
)


def kind_of(address: Address) -> str:
    """Return the role that an address is of; empty: nobody's that was measured."""
    return _KINDS.get(address.partition(":")[0], "")


class Delays:
    """Measured delays by what was delayed, s on the cluster's clock.

    Names: BETWEEN for messages, `role.key` for timers, `launch` for masters (from the order to
    their first event), `plan`. `first` has launches and plans of attempts that were seen.
    """

    def __init__(
        self,
        measured: Mapping[str, Sequence[float]],
        launches: Mapping[Address, float] | None = None,
        plans: Mapping[Address, float] | None = None,
    ) -> None:
        self.samples: dict[str, list[float]] = {}
        for name, values in measured.items():
            ordered = sorted(max(0.0, one) for one in values)
            if ordered:
                last = ordered[min(len(ordered) - 1, int(STALL_QUANTILE * len(ordered)))]
                last = min(last, STALL_MEDIANS * ordered[len(ordered) // 2])
                self.samples[name] = ordered[: bisect_right(ordered, last)]
        self.launches = dict(launches or {})
        self.plans = dict(plans or {})
        # When each was, and when nodes beat, on the run's clock.
        self.moments: dict[Hashable, list[tuple[float, float]]] = {}
        self.beats: dict[Address, list[float]] = {}
        self._began_s = math.inf

    def timed(self, began_s: float) -> "Delays":
        """Return the same delays for a simulation that begins at `began_s` of the run's clock.

        It takes from each link and timer what was measured there at that time, stalls included, and
        draws only where nothing was.
        """
        found = Delays(self.samples, self.launches, self.plans)
        found.moments = {key: sorted(values) for key, values in self.moments.items()}
        found.beats, found._began_s = self.beats, began_s
        return found

    def at(self, key: Hashable, now: float) -> float | None:
        """Return what a link or a timer took NEAR_S about a time.

        A link is (source, target), a timer (core, key). None where nothing was measured, or times
        do not count.
        """
        known = self.moments.get(key) if self._began_s < math.inf else None
        if not known:
            return None
        then = now + self._began_s
        place = bisect_right(known, (then, math.inf))
        near = known[max(0, place - 1) : place + 1]
        when, took_s = min(near, key=lambda one: abs(one[0] - then))
        return max(0.0, took_s) if abs(when - then) <= NEAR_S else None

    def beat(self, node: Address, time_s: float) -> float:
        """Return when a node beat NEAR_S about a time; that time if none or times do not count."""
        known = self.beats.get(node) if self._began_s < math.inf else None
        if not known:
            return time_s
        then = time_s + self._began_s
        place = bisect_right(known, then)
        when = min(known[max(0, place - 1) : place + 1], key=lambda one: abs(one - then))
        return when - self._began_s if abs(when - then) <= NEAR_S else time_s

    def median(self, name: str) -> float:
        """Return the usual delay; 0 where none was measured."""
        found = self.samples.get(name)
        return found[len(found) // 2] if found else 0.0


class Draws:
    """Delays drawn from a seed, in blocks: one by one they cost more than an event."""

    def __init__(self, delays: Delays, seed: int) -> None:
        self.delays = delays
        self._rng = np.random.default_rng([seed, 8])
        self._drawn: dict[str, list[float]] = {}

    def next(self, name: str) -> float:
        """Draw one delay, s; 0 where none was measured."""
        drawn = self._drawn.get(name)
        if not drawn:
            found = self.delays.samples.get(name)
            if found is None:
                return 0.0
            places = self._rng.integers(0, len(found), _DRAWS).tolist()
            drawn = self._drawn[name] = [found[place] for place in places]
        return drawn.pop()


class MeasuredNetwork(Network):
    """Links that keep the order and are as slow as they were."""

    def __init__(self, engine: Engine, draws: Draws, seed: int, *, plain: bool) -> None:
        """`plain`: nothing was measured, and messages arrive at once."""
        super().__init__(LinkSettings(), seed)
        self._engine = engine
        self._slow = draws
        self._names: dict[tuple[Address, Address], str] = {}
        # When the last message of each link arrived.
        self._arrived: dict[tuple[Address, Address], float] = {}
        self.watch(not plain)

    def delays(self, source: Address, target: Address, here: str, there: str) -> tuple[float, ...]:
        """Return when a message arrives, s from now."""
        link = (source, target)
        name = self._names.get(link)
        if name is None:
            name = self._names[link] = f"{kind_of(source)}-{kind_of(target)}"
        drawn = super().delays(source, target, here, there)
        if not drawn:
            return drawn
        now = self._engine.now
        took_s = self._slow.delays.at(link, now)
        if took_s is None:
            took_s = self._slow.next(name)
        arrives_s = max(now + took_s, self._arrived.get(link, 0.0))
        self._arrived[link] = arrives_s
        return (arrives_s - now,)


class LateEngine(Engine):
    """Timers go off as late as they did."""

    def __init__(self, draws: Draws, first_beats: dict[Address, float]) -> None:
        """`first_beats`: when cores beat first, where that is known; taken out when they do."""
        super().__init__()
        self._draws = draws
        self._first_beats = first_beats

    def set_timer(self, actor: Actor, key: Hashable, delay_s: float | None) -> None:
        """Set, replace or (None) cancel the timer of a key."""
        if delay_s is None:
            super().set_timer(actor, key, None)
            return
        role = kind_of(actor.address)
        if role and isinstance(key, str):
            delay_s = max(0.0, delay_s)
            late_s = self._draws.delays.at((actor.address, key), self.now + delay_s)
            if late_s is None:
                late_s = self._draws.next(timer_name(role, key))
            delay_s += late_s
        self.set_timer_at(actor, key, self.now + delay_s)

    def set_timer_at(
        self, actor: Actor, key: Hashable, time_s: float, rank: int | None = None
    ) -> None:
        """Set a timer; heartbeats keep their phase, from a first one that may be known."""
        if key == HEARTBEAT:
            first_s = self._first_beats.pop(actor.address, time_s)
            if first_s > self.now:
                time_s = first_s
            time_s = max(self.now, self._draws.delays.beat(actor.address, time_s))
        super().set_timer_at(actor, key, time_s, rank)


def timer_name(role: str, key: str) -> str:
    """Return the name of a role's timer among the delays."""
    return f"{role}.{key}"


@dataclass(frozen=True, slots=True)
class Recorded:
    """What of a recorded run comes again, at times of the simulation, s.

    `apps` are the numbers of the jobs' applications, `nodes` the processes of nodes that came after
    the beginning, `requests` those of clients that changed something.
    """

    apps: Sequence[AppId] = ()
    nodes: Sequence[tuple[float, NodeSpec]] = ()
    requests: Sequence[tuple[float, ClientRequested]] = ()

    @property
    def until_s(self) -> float:
        """When the last of it comes."""
        return max((at_s for at_s, _ in (*self.nodes, *self.requests)), default=0.0)


class MeasuredSimulation(Simulation):
    """As `Simulation`, with delays."""

    # Nothing was measured, so what a simulation leaves out is left out.
    _plain = False

    def __init__(
        self,
        cluster: ClusterSpec,
        jobs: Sequence[Job],
        settings: SimSettings,
        delays: Delays,
        recorder: Recorder | None = None,
        first_beats: Mapping[Address, float] | None = None,
        recorded: "Recorded | None" = None,
    ) -> None:
        """`first_beats`: when nodes beat first, s, by address; else they draw it."""
        self.delays = delays
        self.recorded = recorded or Recorded()
        self._first_beats = dict(first_beats or {})
        # What was asked for is known.
        self.enough = False
        self.draws = Draws(delays, settings.seed)
        super().__init__(cluster, jobs, settings, recorder)

    def run(self) -> Recorder:
        """Drive to the end of the last job, or until nothing but heartbeats happens any more."""
        stages = [stage for row in self.recorder.jobs for stage in row.job.stages]
        longest_s = max((stage.duration_of(0) for stage in stages), default=0.0)
        recorder, patience_s = self.recorder, max(NO_DECISION_MAX_S, 5 * longest_s)
        while recorder.open_jobs and not self.enough and self.engine.now < self.settings.until_s:
            before = (recorder.decisions, recorder.finished_tasks, recorder.open_jobs)
            to_come = any(not row.app and row.finish_s < 0 for row in recorder.jobs)
            to_come |= self.engine.now < self.recorded.until_s
            until_s = min(self.settings.until_s, self.engine.now + patience_s)
            self.engine.run(self._hand_over, until_s)
            after = (recorder.decisions, recorder.finished_tasks, recorder.open_jobs)
            if before == after and not to_come:
                break
        return recorder

    def _make_client(self, jobs: Sequence[Job]) -> Client:
        return Client(jobs, self.recorder, repeat=self._lossy, apps=self.recorded.apps)

    def _start(self) -> None:
        recorded = self.recorded
        if recorded.apps:
            self._records = [{"kind": "next", "app": max(recorded.apps) + 1}]
        self.start_manager()
        later = {spec.node_id for _, spec in recorded.nodes}
        for spec in self.cluster.nodes:
            if spec.node_id not in later:
                self.start_node(spec)
        self.engine.soon(self._outside, Started())
        self.come_again()

    def come_again(self) -> None:
        """Let nodes and requests come when they came."""
        now, recorded = self.engine.now, self.recorded
        for at_s, spec in recorded.nodes:
            self._fault_executor.later(max(0.0, at_s - now), partial(self._comes, spec))
        for number, (at_s, event) in enumerate(recorded.requests):
            again = replace(event, token=f"then-{number}")
            self._fault_executor.later(max(0.0, at_s - now), partial(self._ask, again))

    def _comes(self, spec: NodeSpec) -> None:
        if node_address(spec.node_id) not in self.actors:
            self.start_node(spec)

    def _ask(self, event: ClientRequested) -> None:
        app = getattr(event.request, "app_id", 0)
        if not app or app in self.manager.books.apps:
            self.engine.soon(self.actors[MANAGER], event)
        elif app in self.recorded.apps:
            row = self.recorder.jobs[self.recorded.apps.index(app)]
            if row.finish_s < 0:
                # Its submission is on its way.
                self._fault_executor.later(ASKED_AGAIN_S, partial(self._ask, event))

    def _make_engine(self) -> Engine:
        return LateEngine(self.draws, self._first_beats)

    def _make_network(self) -> Network:
        return MeasuredNetwork(self.engine, self.draws, self.settings.seed, plain=self._plain)

    def _launch(self, actor: Actor, effect: Launch, now: float) -> None:
        item = effect.item
        assert isinstance(item, MasterLaunch), "emulated nodes launch masters only"
        master = self._new_master(actor, item)
        took_s = self.delays.launches.get(master.address)
        if took_s is None:
            took_s = self.delays.median("launch")
        self.engine.at(now + took_s, master, Started())

    def _make_plan(self, actor: Actor, effect: MakePlan, now: float) -> None:
        took_s = self.delays.plans.get(actor.address)
        self.plan_after(actor, effect, self.delays.median("plan") if took_s is None else took_s)

    def plan_after(self, actor: Actor, effect: MakePlan, delay_s: float) -> None:
        """Let a plan be ready after some time."""
        ready = self._plan(effect)
        self.engine.at(self.engine.now + delay_s, actor, ready)


def _said(message: object) -> Hashable:
    """Return what finds a message again: itself, or whose it is if it holds a job or table."""
    try:
        hash(message)
    except TypeError:
        whom = getattr(message, "attempt_id", None) or getattr(message, "node_id", None)
        return (type(message).__name__, whom)
    return message


class Stopwatch:
    """Measures a run's delays from what its cores handled and ordered.

    Tapes may come one after the other: a message is found again by what it says.
    """

    def __init__(self) -> None:
        self._sent: dict[tuple[Address, object], list[tuple[float, str]]] = {}
        self._heard: list[tuple[Address, object, float]] = []
        self._due: dict[tuple[Address, Hashable], float] = {}
        self._launch_ordered_s: dict[Address, float] = {}
        self._began: dict[Address, float] = {}
        self._plan_wanted_s: dict[Address, float] = {}
        self._plans: dict[Address, float] = {}
        self._late: dict[str, list[float]] = {}
        self._moments: dict[Hashable, list[tuple[float, float]]] = {}
        self._beats: dict[Address, list[float]] = {}
        self._last: dict[Address, float] = {}

    def listen(self, core: Address, event: object, now: float, orders: list[Effect]) -> None:
        """Follow an event that a core handled, and its answer."""
        if isinstance(event, TimerFired):
            self._fired(core, event.key, now)
        elif isinstance(event, Started):
            self._began[core] = now
        elif isinstance(event, PlanReady):
            wanted_s = self._plan_wanted_s.pop(core, None)
            if wanted_s is not None:
                self._plans[core] = now - wanted_s
        elif len(self._heard) < TIMED_MESSAGES_MAX:
            # What a core handled at one time, it handled in an order.
            self._last[core] = at_s = max(now, self._last.get(core, 0.0) + EVENT_SPACING_S)
            self._heard.append((core, event, at_s))
        for order in orders:
            if isinstance(order, Send):
                self._sends(core, order.to, order.message, now)
            elif isinstance(order, SetTimer):
                self._set(core, order.key, order.delay_s, now)
            elif isinstance(order, MakePlan):
                self._plan_wanted_s[core] = now
            elif isinstance(order, Launch) and isinstance(order.item, MasterLaunch):
                self._launch_ordered_s[master_address(order.item.attempt_id)] = now

    def _fired(self, core: Address, key: Hashable, now: float) -> None:
        due_s = self._due.pop((core, key), None)
        role = kind_of(core)
        if due_s is not None and role and isinstance(key, str):
            self._late.setdefault(timer_name(role, key), []).append(now - due_s)
            self._moments.setdefault((core, key), []).append((due_s, now - due_s))
            if key == HEARTBEAT and role == "node":
                self._beats.setdefault(core, []).append(now)

    def _set(self, core: Address, key: Hashable, delay_s: float | None, now: float) -> None:
        if delay_s is None:
            self._due.pop((core, key), None)
        else:
            self._due[core, key] = now + max(0.0, delay_s)

    def _sends(self, core: Address, to: Address, message: object, now: float) -> None:
        if len(self._sent) >= TIMED_MESSAGES_MAX:
            return
        self._sent.setdefault((to, _said(message)), []).append((now, core))

    def delays(self) -> Delays:
        """Return what was measured."""
        measured = {name: list(values) for name, values in self._late.items()}
        for core, event, now in self._heard:
            found = self._sent.get((core, _said(event)))
            if found:
                sent_s, source = found.pop(0)
                name = f"{kind_of(source)}-{kind_of(core)}"
                measured.setdefault(name, []).append(now - sent_s)
                self._moments.setdefault((source, core), []).append((sent_s, now - sent_s))
        launches = {
            core: self._began[core] - ordered_s
            for core, ordered_s in self._launch_ordered_s.items()
            if core in self._began
        }
        measured["launch"] = list(launches.values())
        measured["plan"] = list(self._plans.values())
        answer = Delays(measured, launches, self._plans)
        answer.moments, answer.beats = self._moments, self._beats
        return answer
