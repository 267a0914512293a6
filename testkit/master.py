"""A pretended cluster around one master, for tests: it grants, runs and ends whatever is asked."""

import heapq
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from am.ask.registry import Asker, HoldAsker, asker
from am.core import ApplicationMaster, MasterSettings
from am.job_state import JobState
from am.work import JobExecution
from weft.model.ids import attempt_id, container_id
from weft.model.job import Edge, EdgeKind, Job, Stage, TaskPairs
from weft.model.plan import Plan
from weft.model.resources import DEFAULT_RESOURCE_TYPES, Vector
from weft.protocol.effects import (
    MakePlan,
    Note,
    PlanReady,
    Send,
    SetTimer,
    Started,
    Stop,
    TimerFired,
)
from weft.protocol.messages import (
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
    TaskEnd,
    TaskLaunch,
    TasksEnded,
    launches_of,
)
from weft.protocol.outbox import Outbox

ATTEMPT = attempt_id(1, 1)
# A key is (stage, task, attempt).
TaskKey = tuple[int, int, int]
SLOT: Vector = (16.0, 65536.0, 800.0, 1000.0)


def work_of(
    answer: AttemptAccepted, one: Asker, rng: np.random.Generator | None = None
) -> JobExecution:
    """Return a job that was accepted, breadth first, with nothing asked for yet."""
    state = JobState(answer.attempt_id, MasterSettings(planner=""), answer)
    work = JobExecution(state, one, rng or np.random.default_rng(0))
    work.adopt(None)
    return work


def stage(name: str, tasks: int, *parents: str | Edge, **fields: Any) -> Stage:
    """Return a stage of small tasks; parents by name are barriers."""
    fields.setdefault("duration_s", 10.0)
    fields.setdefault("demand", {"vcores": 1.0, "memory_mb": 1024.0})
    edges = tuple(p if isinstance(p, Edge) else Edge(p) for p in parents)
    return Stage(name=name, tasks=tasks, parents=edges, **fields)


def chain(parent: str) -> Edge:
    """Return a one_to_one edge."""
    return Edge(parent, EdgeKind.ONE_TO_ONE)


def pairs(parent: str, *rows: tuple[int, int]) -> Edge:
    """Return an edge with exactly these pairs of tasks."""
    return Edge(parent, EdgeKind.PAIRS, TaskPairs.of(rows))


def random_edge(rng: np.random.Generator, parent: Stage, tasks: int) -> Edge:
    """Return an edge of any kind from a stage to one with so many tasks."""
    kind = list(EdgeKind)[int(rng.integers(len(EdgeKind)))]
    if kind is not EdgeKind.PAIRS:
        return Edge(parent.name, kind)
    every = [(above, below) for above in range(parent.tasks) for below in range(tasks)]
    chosen = rng.choice(len(every), int(rng.integers(1, len(every) + 1)), replace=False)
    return pairs(parent.name, *(every[i] for i in chosen))


def accepted(job: Job, **fields: Any) -> AttemptAccepted:
    """Return the answer to a registration on a cluster of ten identical machines."""
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

    `plan` answers MakePlan (None: an error), `outcome_of` decides how a launch ends, `luck` how
    long a (stage, task, attempt) takes instead of its truth. With `chaos` every message may be
    lost, doubled or late; the pretended manager repeats what it owes.
    """

    def __init__(
        self,
        job: Job,
        *,
        asker_name: str | Asker | HoldAsker = "all_ready",
        settings: MasterSettings | None = None,
        slots: int = 100,
        plan: Callable[[MakePlan], Plan | None] = lambda order: None,
        outcome_of: Callable[[TaskLaunch, str], Outcome] = lambda launch, node: Outcome.SUCCEEDED,
        plan_after_s: float = 0.0,
        luck: Mapping[tuple[int, int, int], float] | None = None,
        check: bool = True,
        chaos: np.random.Generator | None = None,
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
        self.ends: list[tuple[float, TaskLaunch, Outcome]] = []
        self.verdict: AttemptFinished | None = None
        self.stopped = False
        self.sent: list[tuple[float, Any]] = []
        self.notes: list[Any] = []
        self.granted: dict[int, str] = {}
        self.running: dict[int, TaskLaunch] = {}
        # These tasks run in reusable containers.
        self.inside: dict[int, dict[TaskKey, TaskLaunch]] = {}
        self._begun: set[tuple[int, TaskKey]] = set()
        self._plan = plan
        self._plan_after_s = plan_after_s
        self._luck = luck or {}
        self._outcome_of = outcome_of
        # A task that is LOST has this exit code.
        self.lost_code = 1
        self._check = check
        self._chaos = chaos
        self._heap: list[tuple[float, int, Any]] = []
        self._serial = 0
        self._timers: dict[Hashable, int] = {}
        self._dead: set[int] = set()
        self._ran: set[int] = set()
        # What is measured of a task.
        self.uses: Callable[[TaskLaunch], Vector] = lambda launch: ()
        # False once the manager has restarted, so that the attempt must register again.
        self.known = True
        # The manager restarted so often.
        self.epoch = 0
        self._containers = 1
        self._acks: list[int] = []
        self._owed: Outbox[tuple[str, int], Container | ContainerEnd] = Outbox(2.0)

    def run(self, until_s: float = 1e9) -> "PretendedCluster":
        """Run until the master stops, nothing is left, or the time is up."""
        if not self._serial:
            self._later(0.0, Started())
            if self._chaos is not None:
                self._later(1.0, self._tick)
        while self._heap and not self.stopped:
            if self._heap[0][0] > until_s:
                break
            self.now, serial, event = heapq.heappop(self._heap)
            if isinstance(event, TimerFired) and self._timers.get(event.key) != serial:
                continue
            if callable(event):
                event()
            else:
                self.tell(event)
        return self

    def tell(self, event: Any) -> list[Any]:
        """Hand the master one event and do what it orders."""
        effects = self.master.handle(event, self.now)
        for effect in effects:
            if isinstance(effect, Send):
                self.sent.append((self.now, effect.message))
                self._deliver(partial(self._receive, effect.message))
            elif isinstance(effect, SetTimer):
                self._timers.pop(effect.key, None)
                if effect.delay_s is not None:
                    key = TimerFired(effect.key)
                    self._timers[effect.key] = self._later(effect.delay_s, key)
            elif isinstance(effect, MakePlan):
                plan = self._plan(effect)
                self._later(self._plan_after_s, PlanReady(plan, "" if plan else "no plan"))
            elif isinstance(effect, Note):
                self.notes.append(effect.fact)
            elif isinstance(effect, Stop):
                self.stopped = True
        if self._check:
            self.master.check()
        return effects

    def _later(self, delay_s: float, event: Any) -> int:
        self._serial += 1
        heapq.heappush(self._heap, (self.now + delay_s, self._serial, event))
        return self._serial

    def _deliver(self, event: Any) -> None:
        """Deliver over the network: at once, or with chaos lost, doubled or late."""
        if self._chaos is None:
            self._later(0.0, event)
            return
        for _ in range(int(self._chaos.choice([0, 1, 1, 1, 1, 2]))):
            late_s = float(self._chaos.choice([0.0, 0.1, 1.0, 7.0]))
            self._later(late_s, event)

    def _tick(self) -> None:
        self._flush()
        self._later(1.0, self._tick)

    def _receive(self, message: Any) -> None:
        if isinstance(message, AttemptRegistered):
            self.known = True
            self._deliver(replace(self.answer, epoch=self.epoch))
        elif isinstance(message, ContainersAsked):
            if self.known and message.epoch == self.epoch:
                self._asked(message)
            else:
                self._resync()
        elif isinstance(message, StartContainers):
            self._start(message)
        elif isinstance(message, StopContainers):
            for container in message.containers:
                self.release(container)
        elif isinstance(message, AttemptFinished):
            self.verdict = message
            self._deliver(AttemptUnregistered(ATTEMPT))

    def _asked(self, message: ContainersAsked) -> None:
        self._acks.append(message.request_id)
        self._owed.acknowledge(message.acks)
        for ask in message.asks:
            row = self.rows.setdefault(ask.ask_id, Row(ask, message.request_id))
            if message.request_id >= row.request:
                row.ask, row.request = ask, message.request_id
        for container in message.releases:
            self.release(container)
        self._grant()

    def _start(self, message: StartContainers) -> None:
        answers = []
        for launch in (one for item in message.items for one in launches_of(item)):
            container = launch.container_id
            ran = container in self._ran
            gone = container in self._dead and (launch.reusable or not ran)
            error = "stopped before it was started" if gone else ""
            answers.append(ItemAnswer(container, launch.stage, launch.task, error))
            if error or (ran and not launch.reusable):
                continue
            # It was granted before the manager restarted.
            if container not in self.granted:
                self.granted[container] = message.node_id
                self.free -= 1
            self._ran.add(container)
            key = (launch.stage, launch.task, launch.attempt)
            lasts_s = self._luck.get(key, launch.duration_s)
            if launch.reusable:
                if (container, key) in self._begun:
                    continue
                self._begun.add((container, key))
                self.inside.setdefault(container, {})[key] = launch
                self._later(lasts_s, partial(self._task_out, container, key))
            else:
                self.running[container] = launch
                self._later(lasts_s, partial(self._run_out, container))
            self.starts.append((self.now, launch, message.node_id))
        self._deliver(StartAnswered(message.node_id, ATTEMPT, tuple(answers)))

    def release(self, container: int, outcome: Outcome = Outcome.KILLED) -> None:
        """End a container from outside."""
        if container in self.granted:
            idle = container not in self.running and not self.inside.get(container)
            for key in list(self.inside.get(container, ())):
                self._task_out(container, key, Outcome.KILLED)
            self._close(container, Outcome.RELEASED if idle else outcome)

    def forget(self) -> None:
        """Restart the manager: it knows running containers, but no ask and no unstarted grant."""
        idle = [c for c in self.granted if c not in self.running and c not in self.inside]
        for container in idle:
            del self.granted[container]
            self.free += 1
        self.known = False
        self.epoch += 1
        self.rows.clear()
        self._acks.clear()
        owed, self._owed = self._owed, Outbox(2.0, 1_000_000 * (1 + int(self.now)))
        _, fresh = owed.take(1e12)
        for item in fresh:
            if isinstance(item, ContainerEnd):
                # several tasks of one reusable container may have ended
                what = f"end {item.stage} {item.task} {item.attempt}"
                self._owed.put((what, item.container_id), item)

    def _resync(self) -> None:
        """Tell an attempt to register that asks for what it registered with another manager for."""
        self._deliver(ContainersGranted(ATTEMPT, 0, resync=True, epoch=self.epoch))

    def _run_out(self, container: int) -> None:
        launch = self.running.get(container)
        if launch is not None:
            self._close(container, self._outcome_of(launch, self.granted[container]))

    def _task_out(self, container: int, key: TaskKey, outcome: Outcome | None = None) -> None:
        """End a task in a reusable container: told directly, and relayed by the manager."""
        launch = self.inside.get(container, {}).pop(key, None)
        if launch is None:
            return
        node = self.granted[container]
        how = self._outcome_of(launch, node) if outcome is None else outcome
        code = self._code(how)
        self.ends.append((self.now, launch, how))
        use = self.uses(launch)
        direct = TaskEnd(container, *key, how, code, launch.duration_s, use=use)
        self._deliver(TasksEnded(node, ATTEMPT, (direct,)))
        relayed = ContainerEnd(container, how, code, *key, launch.duration_s)
        self._owed.put((f"task {key}", container), relayed)
        self._flush()

    def _close(self, container: int, outcome: Outcome) -> None:
        self.granted.pop(container, None)
        self._dead.add(container)
        self.free += 1
        launch = self.running.pop(container, None)
        end = ContainerEnd(container, outcome)
        if launch is not None:
            self.ends.append((self.now, launch, outcome))
            end = ContainerEnd(
                container,
                outcome,
                self._code(outcome),
                launch.stage,
                launch.task,
                launch.attempt,
                launch.duration_s,
            )
        self._owed.put(("end", container), end)
        self._grant()
        self._flush()

    def _code(self, outcome: Outcome) -> int:
        return self.lost_code if outcome is Outcome.LOST else int(outcome is not Outcome.SUCCEEDED)

    def _flush(self) -> None:
        response, items = self._owed.take(self.now)
        acks, self._acks = tuple(self._acks), []
        containers = tuple(item for item in items if isinstance(item, Container))
        ended = tuple(item for item in items if isinstance(item, ContainerEnd))
        if items or acks:
            self._deliver(ContainersGranted(ATTEMPT, response, acks, containers, ended))

    def _grant(self) -> None:
        if not self.free:
            return
        for row in sorted(self.rows.values(), key=lambda r: (r.ask.kind, -r.ask.pri_score)):
            while row.pending and self.free:
                row.granted += 1
                self.free -= 1
                self._containers += 1
                number = container_id(ATTEMPT, self._containers)
                self.granted[number] = f"n{number % 10}"
                granted = Container(number, self.granted[number], row.ask.ask_id)
                self._owed.put(("grant", number), granted)
        if self._owed.fresh:
            self._flush()


def finished(*tasks: tuple[int, int]) -> tuple[FinishedTask, ...]:
    """Return tasks that an earlier attempt finished."""
    return tuple(FinishedTask(stage, task, 1.0) for stage, task in tasks)


def messages_of(effects: Sequence[Any], kind: type) -> list[Any]:
    """Return the sent messages of one kind."""
    return [e.message for e in effects if isinstance(e, Send) and isinstance(e.message, kind)]


def assert_ran_in_order(cluster: PretendedCluster, once: bool = True) -> None:
    """Check that every task succeeded (exactly once), none begun before its parents ended."""
    job = cluster.job
    done = [(e.stage, e.task) for _, e, how in cluster.ends if how is Outcome.SUCCEEDED]
    assert len(set(done)) == job.task_count
    assert not once or len(done) == len(set(done))
    ended: dict[tuple[int, int], float] = {}
    for at, launch, how in cluster.ends:
        if how is Outcome.SUCCEEDED:
            ended.setdefault((launch.stage, launch.task), at)
    for at, launch, _ in cluster.starts:
        for parent, edge in job.edges_of(launch.stage):
            sizes = job.stages[parent].tasks, job.stages[launch.stage].tasks
            needed = edge.parent_tasks(*sizes, launch.task)
            assert all(ended[parent, task] <= at for task in needed)
