"""A pretended cluster around one master, for tests: it grants, runs and ends whatever is asked."""

import heapq
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from am.ask.registry import Asker, asker
from am.core import ApplicationMaster, MasterSettings
from weft.effects import MakePlan, PlanReady, Send, SetTimer, Started, Stop, TimerFired
from weft.ids import attempt_id, container_id
from weft.job import Edge, EdgeKind, Job, Stage, one_to_one_parents
from weft.messages import (
    Ask,
    AttemptAccepted,
    AttemptFinished,
    AttemptRegistered,
    AttemptUnregistered,
    Container,
    ContainerEnd,
    ContainersAsked,
    ContainersGranted,
    FinishedTask,
    ItemAnswer,
    Outcome,
    StartAnswered,
    StartContainers,
    StopContainers,
    TaskLaunch,
)
from weft.plan import Plan
from weft.resources import DEFAULT_RESOURCE_TYPES, ResourceTypes, Vector

ATTEMPT = attempt_id(1, 1)
SLOT: Vector = (16.0, 65536.0, 800.0, 1000.0)


def stage(name: str, tasks: int, *parents: str | Edge, **fields: Any) -> Stage:
    """A stage of small tasks; parents by name are barriers."""
    fields.setdefault("duration_s", 10.0)
    fields.setdefault("demand", {"vcores": 1.0, "memory_mb": 1024.0})
    edges = tuple(p if isinstance(p, Edge) else Edge(p) for p in parents)
    return Stage(name=name, tasks=tasks, parents=edges, **fields)


def chain(parent: str) -> Edge:
    """A one_to_one edge."""
    return Edge(parent, EdgeKind.ONE_TO_ONE)


def accepted(job: Job, **fields: Any) -> AttemptAccepted:
    """The answer to a registration on a cluster of ten like machines."""
    given: dict[str, Any] = {
        "attempt_id": ATTEMPT,
        "job": job,
        "types": DEFAULT_RESOURCE_TYPES,
        "machines": ((SLOT, 10),),
        "share": tuple(10 * amount for amount in SLOT),
        "finished": (),
        "heartbeat_s": 1.0,
        "prompt": True,
        "cluster_ts": 0,
        "seed": 7,
    }
    return AttemptAccepted(**{**given, **fields})


@dataclass(slots=True)
class Row:
    """What the pretended manager knows of one ask."""

    ask: Ask
    request: int
    granted: int = 0

    @property
    def pending(self) -> int:
        """Containers still to grant."""
        return max(0, self.ask.total - self.granted)


class PretendedCluster:
    """Virtual time around one master: `slots` tasks run at once, each as long as its truth.

    `plan` answers MakePlan (None: an error); `outcome_of` decides how a launch ends.
    """

    def __init__(
        self,
        job: Job,
        *,
        asker_name: str | Asker = "all_ready",
        settings: MasterSettings | None = None,
        slots: int = 100,
        plan: Callable[[MakePlan], Plan | None] = lambda order: None,
        outcome_of: Callable[[TaskLaunch, str], Outcome] = lambda launch, node: Outcome.SUCCEEDED,
        check: bool = True,
        **fields: Any,
    ) -> None:
        self.job = job
        self.answer = accepted(job, **fields)
        policy = asker(asker_name) if isinstance(asker_name, str) else asker_name
        self.master = ApplicationMaster(
            ATTEMPT, settings or MasterSettings(), policy, np.random.default_rng(1)
        )
        self.now = 0.0
        self.free = slots
        self.rows: dict[int, Row] = {}
        self.starts: list[tuple[float, TaskLaunch, str]] = []
        self.ends: list[tuple[float, TaskLaunch]] = []
        self.verdict: AttemptFinished | None = None
        self.stopped = False
        self.messages = 0
        self._plan = plan
        self._outcome_of = outcome_of
        self._check = check
        self._heap: list[tuple[float, int, Any]] = []
        self._serial = 0
        self._timers: dict[Hashable, int] = {}
        self._running: dict[int, tuple[TaskLaunch, str, float]] = {}
        self._granted: set[int] = set()
        self._containers = 1
        self._response = 0
        self._acks: list[int] = []

    @property
    def types(self) -> ResourceTypes:
        """The cluster's resource types."""
        return self.answer.types

    def run(self, until_s: float = 1e9, events_max: int = 10_000_000) -> "PretendedCluster":
        """Run until the master stops, nothing is left, or the time is up."""
        if not self._serial:
            self._later(0.0, Started())
        while self._heap and not self.stopped and events_max:
            time, serial, event = heapq.heappop(self._heap)
            if isinstance(event, TimerFired) and self._timers.get(event.key) != serial:
                continue
            if time > until_s:
                break
            events_max -= 1
            self.now = time
            if isinstance(event, int):
                self._end(event)
            elif event == "grant":
                self._grant()
            else:
                self._tell(event)
        return self

    def _later(self, delay_s: float, event: Any) -> int:
        self._serial += 1
        heapq.heappush(self._heap, (self.now + delay_s, self._serial, event))
        return self._serial

    def _tell(self, event: Any) -> None:
        for effect in self.master.handle(event, self.now):
            if isinstance(effect, Send):
                self.messages += 1
                self._receive(effect.message)
            elif isinstance(effect, SetTimer):
                self._timers.pop(effect.key, None)
                if effect.delay_s is not None:
                    key = TimerFired(effect.key)
                    self._timers[effect.key] = self._later(effect.delay_s, key)
            elif isinstance(effect, MakePlan):
                plan = self._plan(effect)
                self._later(0.0, PlanReady(plan, "" if plan else "no plan"))
            elif isinstance(effect, Stop):
                self.stopped = True
        if self._check:
            self.master.check()

    def _receive(self, message: Any) -> None:
        if isinstance(message, AttemptRegistered):
            self._later(0.0, self.answer)
        elif isinstance(message, ContainersAsked):
            self._acks.append(message.request_id)
            for ask in message.asks:
                row = self.rows.setdefault(ask.ask_id, Row(ask, message.request_id))
                if message.request_id >= row.request:
                    row.ask, row.request = ask, message.request_id
            for container in message.releases:
                self._release(container)
            self._later(0.0, "grant")
        elif isinstance(message, StartContainers):
            self._start(message)
        elif isinstance(message, StopContainers):
            for container in message.containers:
                self._release(container)
        elif isinstance(message, AttemptFinished):
            self.verdict = message
            self._later(0.0, AttemptUnregistered(ATTEMPT))

    def _start(self, message: StartContainers) -> None:
        answers = []
        for launch in message.items:
            answers.append(ItemAnswer(launch.container_id, launch.stage, launch.task))
            if launch.container_id in self._running:
                continue
            self.starts.append((self.now, launch, message.node_id))
            self._running[launch.container_id] = (launch, message.node_id, self.now)
            self._later(launch.duration_s, launch.container_id)
        self._later(0.0, StartAnswered(message.node_id, ATTEMPT, tuple(answers)))

    def _release(self, container: int) -> None:
        if container in self._granted:
            running = self._running.pop(container, None)
            launch = running[0] if running else None
            self._close(container, launch, Outcome.KILLED if launch else Outcome.RELEASED)

    def _end(self, container: int) -> None:
        running = self._running.pop(container, None)
        if running is not None:
            launch, node, _ = running
            self._close(container, launch, self._outcome_of(launch, node))

    def _close(self, container: int, launch: TaskLaunch | None, outcome: Outcome) -> None:
        self._granted.discard(container)
        self.free += 1
        end = ContainerEnd(container, outcome)
        if launch is not None:
            self.ends.append((self.now, launch))
            end = ContainerEnd(
                container, outcome, int(outcome is not Outcome.SUCCEEDED), launch.stage,
                launch.task, launch.attempt, launch.duration_s,
            )  # fmt: skip
        self._answer(ended=(end,))
        self._later(0.0, "grant")

    def _answer(self, **fields: Any) -> None:
        self._response += 1
        acks, self._acks = tuple(self._acks), []
        self._later(0.0, ContainersGranted(ATTEMPT, self._response, acks, **fields))

    def _grant(self) -> None:
        granted = []
        for row in sorted(self.rows.values(), key=lambda r: (r.ask.kind, -r.ask.pri_score)):
            while row.pending and self.free:
                row.granted += 1
                self.free -= 1
                self._containers += 1
                number = container_id(ATTEMPT, self._containers)
                self._granted.add(number)
                granted.append(Container(number, f"n{number % 10}", row.ask.ask_id))
        if granted:
            self._answer(containers=tuple(granted))


def finished(*tasks: tuple[int, int]) -> tuple[FinishedTask, ...]:
    """Tasks that an earlier attempt finished."""
    return tuple(FinishedTask(stage, task, 1.0) for stage, task in tasks)


def messages_of(effects: Sequence[Any], kind: type) -> list[Any]:
    """The sent messages of one kind."""
    return [e.message for e in effects if isinstance(e, Send) and isinstance(e.message, kind)]


def assert_ran_in_order(cluster: PretendedCluster) -> None:
    """Every task succeeded exactly once, none began before its parents ended."""
    job = cluster.job
    ended: Mapping[tuple[int, int], float] = {(e.stage, e.task): at for at, e in cluster.ends}
    assert len(ended) == job.task_count
    for at, launch, _ in cluster.starts:
        for parent, kind in job.parents_of(launch.stage):
            count = job.stages[parent].tasks
            needed: Sequence[int] = range(count)
            if kind is EdgeKind.ONE_TO_ONE:
                needed = one_to_one_parents(count, job.stages[launch.stage].tasks, launch.task)
            assert all(ended[parent, task] <= at for task in needed)
