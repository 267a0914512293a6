"""Weft's Resource Manager core on a scenario, by its own door: the same loop as the driver's."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lab.yarn.cases import Case
from rm.core import PREEMPT_TIMER, ResourceManager
from rm.ledger.view import View
from rm.match.protocol import Held, Matcher, PreemptionTerms
from rm.match.registry import make_matcher
from rm.match.yarn.base import BooksMatcher
from rm.match.yarn.books import Request
from rm.match.yarn.fair_matcher import YarnFairMatcher
from rm.match.yarn.matcher import YarnMatcher
from rm.settings import ManagerSettings
from weft.model.ids import AttemptId, app_of_attempt, attempt_id, attempt_of_container
from weft.model.job import Job, MasterSpec
from weft.model.resources import Vector
from weft.protocol.effects import (
    ClientRequested,
    Effect,
    Note,
    Recovered,
    Send,
    SetTimer,
    TimerFired,
)
from weft.protocol.event_unions import ManagerTold
from weft.protocol.facts import Placed, facts_of
from weft.protocol.messages import (
    Ask,
    AskType,
    AttemptAccepted,
    AttemptFinished,
    AttemptRegistered,
    ContainerEnd,
    ContainersAsked,
    ContainersGranted,
    NodeAnswered,
    NodeHeartbeated,
    NodeRegistered,
    Outcome,
)
from weft.protocol.requests import ApplicationAccepted, SubmitApplication

Row = tuple[Any, ...]
FOREVER = 1 << 29


@dataclass(slots=True)
class Answer:
    """What was decided, as the driver tells it."""

    grants: list[Row] = field(default_factory=list)
    reserved_after: list[Row] = field(default_factory=list)
    preemptions: list[Row] = field(default_factory=list)
    headroom: list[Row] = field(default_factory=list)
    rejected: list[Row] = field(default_factory=list)
    queues: list[Row] = field(default_factory=list)


class _Watched(BooksMatcher):
    """Decides as it does, and tells of what it preempts."""

    loop: "Loop"

    def preempt(
        self,
        view: View,
        held: Callable[[int], Iterable[Held]],
        terms: PreemptionTerms,
        now: float,
    ) -> tuple[list[int], list[int]]:
        """Choose, and tell."""
        told, killed = super().preempt(view, held, terms, now)
        self.loop.preempted(told, killed)
        return told, killed


class WatchedMatcher(_Watched, YarnMatcher):
    """The Capacity Scheduler's."""


class WatchedFairMatcher(_Watched, YarnFairMatcher):
    """The Fair Scheduler's."""


class Loop:
    """A closed loop of rounds: applications and asks come, nodes report, masters are answered."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.matcher = self.make_matcher({**case.preset.matcher_options, **case.matcher})
        known = {"heartbeat_s": 1.0, "recovery": False, **case.manager}
        settings = ManagerSettings(**known)
        spec = case.cluster
        rng = np.random.default_rng(1)
        self.manager = ResourceManager(0, spec.types, spec.queues, self.matcher, settings, rng)
        self.now = 0.0
        self.answer = Answer()
        self._timers: list[tuple[float, Any]] = []
        self._requests: Counter[Any] = Counter()
        self._acks: defaultdict[Any, list[int]] = defaultdict(list)
        self._runs: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)
        self._stops: defaultdict[str, list[int]] = defaultdict(list)
        self._attempts: dict[int, AttemptId] = {}
        self._numbers: dict[AttemptId, int] = {}
        self._up: set[int] = set()
        self._starts: list[tuple[str, Any]] = []
        self._epochs: dict[AttemptId, int] = {}
        self._sent: set[tuple[int, int]] = set()
        self._granted: Counter[tuple[int, int]] = Counter()
        self._lasts: dict[tuple[int, int], float] = {}
        self._began: dict[int, int] = {}
        self._headroom: dict[AttemptId, Vector] = {}

    def make_matcher(self, options: Mapping[str, Any]) -> Matcher:
        """Return the matcher that decides."""
        kinds: dict[str, type[WatchedMatcher | WatchedFairMatcher]] = {
            "yarn": WatchedMatcher,
            "yarn_fair": WatchedFairMatcher,
        }
        kind = kinds.get(self.case.preset.matcher)
        if kind is None:
            return make_matcher(self.case.preset.matcher, options)
        made = kind(**dict(options))
        made.loop = self
        return made

    def preempted(self, told: list[int], killed: list[int]) -> None:
        """Note what a round of preemption chose and what it stopped."""
        for what, numbers in (("PREEMPT_CONTAINER", told), ("KILL_CONTAINER", killed)):
            for number in numbers:
                self.answer.preemptions.append((int(self.now), what, *self.place_of(number)))

    def place_of(self, number: int) -> tuple[str, int, int]:
        """Return a running container's node, the scenario's application, and its priority."""
        run = self.manager.books.holdings[number]
        priority = 0 if run.entry is None else run.entry.ask.ask_id - 1
        return run.node.node_id, self._numbers[attempt_of_container(number)], priority

    def run(self) -> Answer:
        """Run all rounds; return what was decided."""
        self.begin()
        for number in range(self.case.rounds):
            self.open_round(number)
            for node in self.case.cluster.nodes:
                self.heartbeat(number, node.node_id)
            self.close_round(number)
        return self.answer

    def begin(self) -> None:
        """Register all nodes."""
        self._tell(Recovered())
        names = self.case.cluster.types.names
        for node in self.case.cluster.nodes:
            capacity = dict(zip(names, node.capacity, strict=True))
            self._tell(NodeRegistered(node.node_id, "", node.rack, node.labels, capacity))

    def open_round(self, number: int) -> None:
        """Let applications and asks come that are due."""
        self.now = float(number)
        due = sorted(
            (at, key)
            for at, key in self._timers
            if at <= self.now and isinstance(key, str) and key != PREEMPT_TIMER
        )
        self._timers = [one for one in self._timers if one[0] > self.now]
        for _, key in due:
            self._hear(self._tell(TimerFired(key)))
        for told in self.case.data["applications"]:
            if told.get("at", 0) == number:
                self._submit(told)
        for told in self.case.data["applications"]:
            if told["id"] in self._up:
                self._ask(number, told)
        if isinstance(self.matcher, YarnFairMatcher):
            self.matcher.update(self.manager.books.view, self.now)
        if self.manager.books.settings.preemption:
            self._hear(self._tell(TimerFired(PREEMPT_TIMER)))

    def heartbeat(self, number: int, node: str) -> None:
        """Let a node report what ended, and be matched."""
        stopped = set(self._stops.pop(node, ()))
        over = [(at, c) for at, c in self._runs[node] if at <= number or c in stopped]
        self._runs[node] = [one for one in self._runs[node] if one not in over]
        ends = [
            ContainerEnd(c, Outcome.SUCCEEDED if at <= number else Outcome.KILLED) for at, c in over
        ]
        effects = self.tell_beat(self._beat(node, tuple(ends)))
        rows = [
            self._placed(number, node, fact)
            for effect in effects
            if isinstance(effect, Note)
            for fact in facts_of(effect.fact)
            if isinstance(fact, Placed)
        ]
        self._hear(effects)
        for at, launch in self._starts:
            app = self._numbers[launch.attempt_id]
            rows.append(self._row(number, at, app, 0, launch.demand))
            self._runs[at].append((float(FOREVER * 4), launch.container_id))
            self._began[launch.container_id] = number
            self._hear(self._tell(AttemptRegistered(launch.attempt_id)))
        self.answer.grants += self._in_order(rows)
        self._starts.clear()
        self._kept(number, node)

    def close_round(self, number: int) -> None:
        """Let masters call, and applications end."""
        for told in self.case.data["applications"]:
            app = told["id"]
            if app in self._attempts and self._registered(app):
                self._up.add(app)
            # YARN asks the scheduler for the headroom at this point, for its master's container.
            elif app in self._attempts:
                slot = self.manager.books.apps[app_of_attempt(self._attempts[app])].slot
                self.matcher.headroom(self.manager.books.view, slot)
        for told in self.case.data["applications"]:
            if told["id"] in self._up:
                self._hear(self._tell(self._call(self._attempts[told["id"]], ())))
                if self.case.data.get("tells_headroom") or self.case.data.get("headroom"):
                    vector = self._headroom.get(self._attempts[told["id"]], ())
                    self.answer.headroom.append((number, told["id"], *map(int, vector)))
            if told["id"] in self._up and number >= told.get("until", FOREVER):
                self._end(number, told["id"])

    def tell_beat(self, event: NodeHeartbeated) -> list[Effect]:
        """Hand in a node's heartbeat."""
        return self._tell(event)

    # -- inside ------------------------------------------------------------------------------------

    def _tell(self, event: ManagerTold) -> list[Effect]:
        effects = list(self.manager.handle(event, self.now))
        for effect in effects:
            if isinstance(effect, SetTimer) and effect.delay_s is not None:
                self._timers.append((self.now + effect.delay_s, effect.key))
        return effects

    def _beat(self, node: str, ended: tuple[ContainerEnd, ...]) -> NodeHeartbeated:
        self._requests[node] += 1
        acks, self._acks[node] = tuple(self._acks[node]), []
        return NodeHeartbeated(node, self._requests[node], acks, ended)

    def _call(self, attempt: AttemptId, asks: tuple[Ask, ...]) -> ContainersAsked:
        self._requests[attempt] += 1
        acks, self._acks[attempt] = tuple(self._acks[attempt]), []
        epoch = self._epochs.get(attempt, 0)
        return ContainersAsked(attempt, self._requests[attempt], acks, asks, epoch=epoch)

    def _hear(self, effects: list[Effect]) -> None:
        for effect in effects:
            if not isinstance(effect, Send):
                continue
            message = effect.message
            if isinstance(message, ContainersGranted):
                if message.response_id:
                    self._acks[message.attempt_id].append(message.response_id)
                if message.headroom:
                    self._headroom[message.attempt_id] = message.headroom
            elif isinstance(message, NodeAnswered):
                if message.response_id:
                    self._acks[message.node_id].append(message.response_id)
                self._starts += [(message.node_id, launch) for launch in message.start]
                self._stops[message.node_id] += message.stop
            elif isinstance(message, AttemptAccepted):
                self._epochs[message.attempt_id] = message.epoch

    def _submit(self, told: dict[str, Any]) -> None:
        am = told.get("am")
        names = self.case.cluster.types.names
        demand = {k: v for k, v in _amounts(am).items() if k in names} if am else {}
        job = Job(
            told.get("name", "app"),
            (),
            queue=told.get("queue", "default"),
            user=told.get("user", "u"),
            priority=told.get("priority", 0),
            master=MasterSpec(demand, ("x",) if am else (), label=(am or {}).get("label", "")),
        )
        request = SubmitApplication(job, f"s{told['id']}")
        effects = self._tell(ClientRequested(f"t{told['id']}", request))
        answers = [e.message for e in effects if isinstance(e, Send) and e.to.startswith("client:")]
        accepted = next((one for one in answers if isinstance(one, ApplicationAccepted)), None)
        app = None if accepted is None else self.manager.books.apps[accepted.app_id]
        path = "" if app is None else self.manager.books.queue_of(app)
        self.answer.queues.append((told["id"], path))
        if accepted is None:
            self.answer.rejected.append((int(self.now), told["id"], str(answers)))
            return
        attempt = attempt_id(accepted.app_id, 1)
        self._attempts[told["id"]], self._numbers[attempt] = attempt, told["id"]
        self._hear(effects)
        if not am:
            self._hear(self._tell(AttemptRegistered(attempt)))
            self._up.add(told["id"])

    def _end(self, number: int, app: int) -> None:
        """Let an application be done; its master ends before its node's next heartbeat.

        YARN frees at once what its node has not told of: that ends by then, too.
        """
        attempt = self._attempts.pop(app)
        self._up.discard(app)
        master = self.manager.books.apps[app_of_attempt(attempt)].attempt
        assert master is not None
        if (held := master.master) is not None:
            runs = self._runs[held.node.node_id]
            runs.remove((float(FOREVER * 4), held.container_id))
            runs.append((float(number + 1), held.container_id))
        for runs in self._runs.values():
            for at, (end, container) in enumerate(runs):
                if attempt_of_container(container) == attempt and self._began[container] == number:
                    runs[at] = (min(end, number + 1.0), container)
        self._hear(self._tell(AttemptFinished(attempt, True)))

    def _registered(self, app: int) -> bool:
        return self._attempts[app] in self._epochs

    def _ask(self, number: int, told: dict[str, Any]) -> None:
        names, asks = self.case.cluster.types.names, []
        for place, ask in enumerate(told["asks"]):
            key = (told["id"], place)
            if key in self._sent or number < ask.get("at", told.get("at", 0)):
                continue
            self._sent.add(key)
            priority = ask.get("pri", 1)
            own = (told["id"], priority)
            self._lasts[own] = float(ask.get("dur", FOREVER))
            hosts, racks = ask.get("hosts") or {}, ask.get("racks") or {}
            amounts = _amounts(ask)
            asks.append(
                Ask(
                    priority + 1,
                    self._granted[own] + ask.get("count", 1),
                    tuple(float(amounts[name]) for name in names),
                    self._lasts[own],
                    1.0 / (1 + priority),
                    AskType.DEFAULT,
                    0,
                    tuple(hosts),
                    tuple(rack.strip("/") for rack in racks),
                    ask.get("label", ""),
                    strict=ask.get("relax", True) is False,
                    counts=(*hosts.values(), *racks.values()),
                )
            )
        attempt = self._attempts[told["id"]]
        if asks:
            self._hear(self._tell(self._call(attempt, tuple(asks))))

    def _in_order(self, rows: list[Row]) -> list[Row]:
        """Return a heartbeat's grants as they were decided: masters are told after all others."""
        if not isinstance(self.matcher, BooksMatcher) or not any(row[3] == 0 for row in rows):
            return rows
        found: list[Row] = []
        for request in self.matcher.granted_last():
            names = self.names(request)
            row = next(one for one in rows if (one[2], one[3]) == names)
            rows.remove(row)
            found.append(row)
        return found + rows

    def names(self, request: Request) -> tuple[int, int]:
        """Return the scenario's application and priority of a request."""
        app = self.manager.books.app_at[request.app.slot]
        assert app is not None
        assert app.attempt is not None
        priority = 0 if request.entry is None else request.entry.ask.ask_id - 1
        return self._numbers[app.attempt.attempt_id], priority

    def _placed(self, number: int, node: str, fact: Placed) -> Row:
        app = self._numbers[attempt_of_container(fact.container)]
        own = (app, fact.ask - 1)
        self._granted[own] += 1
        self._runs[node].append((number + self._lasts[own], fact.container))
        self._began[fact.container] = number
        return self._row(number, node, app, fact.ask - 1, fact.demand)

    def _row(self, number: int, node: str, app: int, priority: int, demand: Vector) -> Row:
        held = dict(zip(self.case.cluster.types.names, demand, strict=True))
        memory, vcores = int(held.get("memory_mb", 0)), int(held.get("vcores", 0))
        return (number, node, app, priority, memory, vcores)

    def _kept(self, number: int, node: str) -> None:
        if not isinstance(self.matcher, BooksMatcher):
            return
        kept = self.matcher.kept(self.manager.books.nodes[node].slot)
        if kept is not None:
            self.answer.reserved_after.append((number, node, *self.names(kept)))


def _amounts(of: dict[str, Any]) -> dict[str, float]:
    return {"memory_mb": of["mem"], "vcores": of.get("vcores", 1)}
