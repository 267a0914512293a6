"""A foreign master's run once more: its asks at their times, its containers held as long as then.

In the place of `am.work` where the job brings a recording (`weft.model.recording`). What a
container is for is not known, so one that is lost is wanted again for as long, and one beyond those
that the recorded run was granted is given back. The master ends when all were held and everything
is acknowledged.
"""

from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple

from am.settings import MasterSettings
from weft.model.errors import InvariantError
from weft.model.ids import AttemptId, ContainerId, NodeId
from weft.model.plan import Plan
from weft.model.recording import Asked, Recording, Request, Told
from weft.model.resources import ResourceTypes, Vector
from weft.protocol.effects import Effect, Send
from weft.protocol.facts import Fact
from weft.protocol.messages import (
    Ask,
    AskType,
    AttemptAccepted,
    Container,
    ContainerEnd,
    ContainersAsked,
    FinishedTask,
    Outcome,
    Preemption,
    StartAnswered,
    StartContainers,
    StopContainers,
    TaskLaunch,
    TasksEnded,
    containers_of,
    ends_of,
    node_address,
)
from weft.protocol.outbox import Outbox

# What runs in an open job's container is nobody's task.
_NO_TASK: Final = -1


class RequestRow:
    """One request, and what was granted under it.

    `place` is its index among the requests; `holds` are the holding times, s, of containers that
    were not granted yet. The recorded master wanted `total` by now, and `lost` more in place of
    lost ones. `granted` counts all lives of the manager, `base` of those the earlier ones, which
    this life does not count.
    """

    __slots__ = (
        "base",
        "demand",
        "granted",
        "holds",
        "lost",
        "place",
        "request",
        "said",
        "told",
        "total",
    )

    def __init__(self, place: int, request: Request, types: ResourceTypes) -> None:
        self.place = place
        self.request = request
        self.demand: Vector = types.vector(request.demand)
        self.holds = deque(request.held_s)
        self.said: Asked | None = None
        self.total = 0
        self.lost = 0
        self.granted = 0
        self.base = 0
        self.told = -1

    @property
    def wanted(self) -> int:
        """The total as this life of the manager counts it."""
        return max(self.total + self.lost, self.granted) - self.base


class Running(NamedTuple):
    """A container that is held."""

    node: NodeId
    boot: int
    row: RequestRow
    held_s: float


class Counts:
    """What is done, as containers; each counts as a task does elsewhere."""

    __slots__ = ("failed", "finished", "remaining_work", "running", "tasks")

    def __init__(self, tasks: int) -> None:
        self.tasks = tasks
        self.running = self.finished = self.failed = 0
        self.remaining_work = 0.0

    @property
    def done(self) -> bool:
        """Whether every container was held."""
        return self.finished == self.tasks


class RecordedLauncher:
    """Start orders, repeated until answered."""

    def __init__(self, attempt_id: AttemptId, *, lossless: bool) -> None:
        self._attempt, self._lossless = attempt_id, lossless
        self.held: dict[ContainerId, Running] = {}
        # When each container was last ordered, s.
        self._unanswered: dict[ContainerId, float] = {}
        self._starts: list[ContainerId] = []
        self._stops: list[tuple[NodeId, ContainerId]] = []
        # `flush` itself looks whether there is something to send.
        self.due = True

    @property
    def waits(self) -> bool:
        """Whether a node owes an answer."""
        return bool(self._unanswered)

    def start(self, number: ContainerId, running: Running, now: float) -> None:
        """Hold a container from now on; the order leaves with the next `flush`."""
        self.held[number] = running
        if not self._lossless:
            self._unanswered[number] = now
        self._starts.append(number)

    def answered(self, number: ContainerId) -> None:
        """Note that a container's node has the order."""
        self._unanswered.pop(number, None)

    def drop(self, number: ContainerId) -> Running | None:
        """Forget a container and return it; None: it was not held."""
        self._unanswered.pop(number, None)
        return self.held.pop(number, None)

    def stop_all(self) -> None:
        """Order the end of everything."""
        self._stops += [(running.node, number) for number, running in self.held.items()]

    def repeat(self, now: float, resend_after_s: float) -> None:
        """Order again what was not answered for too long."""
        for number, sent_s in self._unanswered.items():
            if now - sent_s >= resend_after_s:
                self._unanswered[number] = now
                self._starts.append(number)

    def flush(self, effects: list[Effect]) -> None:
        """Turn the orders into messages."""
        for number in self._starts:
            running = self.held.get(number)
            if running is None:
                continue
            need = running.row.demand
            launch = TaskLaunch(number, _NO_TASK, _NO_TASK, 0, running.held_s, need, granted=need)
            order = StartContainers(self._attempt, running.node, (launch,), running.boot)
            effects.append(Send(node_address(running.node), order))
        for node, number in self._stops:
            effects.append(Send(node_address(node), StopContainers(self._attempt, node, (number,))))
        self._starts, self._stops = [], []


class RequestTable:
    """Requests by ask id, and what is owed to the Resource Manager."""

    def __init__(self, rows: list[RequestRow], resend_s: float, *, lossless: bool) -> None:
        # The manager of this epoch knows these asks.
        self.epoch = 0
        self.rows = rows
        self.outbox: Outbox[int, Ask | ContainerId] = Outbox(resend_s, lossless=lossless)
        self._lossless = lossless
        self._first_ask_id = 1
        self._acks: list[int] = []

    def row(self, ask_id: int) -> RequestRow | None:
        """Return the request of an ask id; None for an earlier life of the manager."""
        place = ask_id - self._first_ask_id
        return self.rows[place] if 0 <= place < len(self.rows) else None

    def say(self, row: RequestRow) -> None:
        """Tell a request whose total or estimates changed."""
        assert row.said is not None
        row.told = row.wanted
        number, request = self._first_ask_id + row.place, row.request
        ask = Ask(
            number,
            row.told,
            row.demand,
            row.said.duration_s,
            row.said.pri_score,
            AskType.DEFAULT,
            0,
            request.nodes,
            request.racks,
            request.label,
            False,
            request.strict,
        )
        self.outbox.put(number, ask)

    def release(self, number: ContainerId) -> None:
        """Give a container back."""
        self.outbox.put(number, number)

    def received(self, response_id: int, acks: tuple[int, ...]) -> None:
        """Note a response and what it acknowledges."""
        if not self._lossless:
            self._acks.append(response_id)
            self.outbox.acknowledge(acks)

    def restart(self) -> None:
        """Ask under new ids for what is outstanding, as a restarted manager knows nothing."""
        self.outbox.clear()
        self._acks.clear()
        self._first_ask_id += len(self.rows)
        for row in self.rows:
            row.base = row.granted
            if row.said is not None and row.wanted:
                self.say(row)

    def take(self, now: float) -> tuple[int, tuple[int, ...], list[Ask], list[ContainerId]]:
        """Return the next request's number, acknowledgements, asks and releases."""
        number, items = self.outbox.take(now)
        acks, self._acks = tuple(self._acks), []
        asks = [item for item in items if isinstance(item, Ask)]
        return number, acks, asks, [item for item in items if not isinstance(item, Ask)]


class NoGangs(NamedTuple):
    """A recorded master starts nothing together."""

    stages: tuple[int, ...] = ()


class NoEstimates:
    """Nothing is estimated, so nothing is learned."""

    def record(self) -> Mapping[str, Mapping[str, float]]:
        """Return nothing: a recorded master estimates nothing."""
        return {}


class RecordedState:
    """Of what `am.job_state` knows of a job, what a recorded one has."""

    def __init__(self) -> None:
        self.verdict: tuple[bool, str] | None = None
        self.notes: list[Fact] = []
        self.racks: dict[NodeId, str] = {}
        self.gangs = NoGangs()
        self.estimates = NoEstimates()

    def follow_share(self, share: Vector) -> None:
        """Do nothing: a recorded master ignores its share."""

    def finish_early(self, done: FinishedTask) -> None:
        """Do nothing: an open job has no tasks."""


class RecordedExecution:
    """The running part of a master that does what a recorded one did."""

    def __init__(
        self,
        attempt_id: AttemptId,
        settings: MasterSettings,
        recording: Recording,
        accepted: AttemptAccepted,
        now: float,
    ) -> None:
        rows = [RequestRow(n, one, accepted.types) for n, one in enumerate(recording.requests)]
        self.attempt_id = attempt_id
        self.recording = recording
        self.book = RequestTable(rows, settings.resend_s, lossless=settings.lossless)
        self.launcher = RecordedLauncher(attempt_id, lossless=settings.lossless)
        self.progress = Counts(recording.containers)
        self.state = RecordedState()
        # `_ended_s` is the last container's end.
        self._began_s = self._ended_s = now
        self._asks = deque(recording.asks)
        self._told = deque(recording.told)
        self._now_told = Told(0.0, 0.0, 0.0, 0.0)
        self._news = True
        self._seen: set[ContainerId] = set()

    # -- time --------------------------------------------------------------------------------------

    def adopt(self, plan: Plan | None) -> None:
        """Do nothing: there is nothing to plan."""

    def settle(self, now: float) -> float | None:
        """Say what is due; return when the next is, s from now."""
        asks, told, began_s = self._asks, self._told, self._began_s
        while asks and began_s + asks[0].at_s <= now:
            said = asks.popleft()
            row = self.book.rows[said.request]
            row.said, row.total = said, said.total
            self.book.say(row)
        while told and began_s + told[0].at_s <= now:
            self._now_told = told.popleft()
            self.progress.remaining_work = self._now_told.work_s
            self._news = True
        due = [began_s + rows[0].at_s for rows in (asks, told) if rows]
        if not asks and self.progress.done and self.state.verdict is None:
            end_s = self._ended_s + self.recording.tail_s
            if not self.progress.tasks:
                end_s = began_s + self.recording.lasted_s
            if end_s <= now:
                words = "" if self.recording.succeeded else "as recorded"
                self.state.verdict = (self.recording.succeeded, words)
                return None
            due.append(end_s)
        return max(0.0, min(due) - now) if due else None

    def wake(self) -> None:
        """Do nothing: `settle` sees what is due."""

    def consult(self, now: float) -> float | None:
        """Return None: there is nothing to decide."""
        return None

    # -- the manager -------------------------------------------------------------------------------

    @property
    def wants_to_ask(self) -> bool:
        """Whether there is something to tell the manager."""
        return self._news or self.book.outbox.fresh > 0

    @property
    def silent(self) -> bool:
        """Whether the next heartbeat would say nothing."""
        return not (self._news or self.book.outbox.owes or self.launcher.waits)

    def message(self, now: float) -> ContainersAsked:
        """Return the next request; it is also the heartbeat."""
        self._news = False
        number, acks, asks, releases = self.book.take(now)
        told = self._now_told
        return ContainersAsked(
            self.attempt_id,
            number,
            acks,
            tuple(asks),
            tuple(releases),
            told.progress,
            told.work_s,
            None,
            told.path_s,
            self.book.epoch,
        )

    def restart(self, now: float) -> None:
        """Ask again, as a restarted manager knows no ask."""
        self.book.restart()

    def holdings(self) -> tuple[tuple[ContainerId, NodeId], ...]:
        """Return the containers held, with their nodes."""
        return tuple((number, one.node) for number, one in self.launcher.held.items())

    # -- containers --------------------------------------------------------------------------------

    def take(self, containers: tuple[Container, ...], now: float) -> None:
        """Hold what was granted for as long as it was held, or give it back."""
        for one in containers_of(containers):
            number = one.container_id
            if number in self._seen:
                continue
            self._seen.add(number)
            row = self.book.row(one.ask_id)
            if row is not None:
                row.granted += 1
            if row is None or not row.holds or self.state.verdict is not None:
                self.book.release(number)
                continue
            self.progress.running += 1
            running = Running(one.node_id, one.boot, row, row.holds.popleft())
            self.launcher.start(number, running, now)

    def start_answered(self, event: StartAnswered, now: float) -> None:
        """Want elsewhere what was refused."""
        for item in event.items:
            for number in range(item.container_id, item.container_id + item.count):
                self.launcher.answered(number)
                if item.error and number in self.launcher.held:
                    self.book.release(number)
                    self._lost(number)

    def tasks_ended(self, event: TasksEnded, now: float) -> None:
        """Do nothing: no reusable containers are held here."""

    def preempted(self, notices: tuple[Preemption, ...]) -> None:
        """Do nothing: containers that are taken back are wanted again once they end."""

    def ended(self, ends: tuple[ContainerEnd, ...], now: float) -> None:
        """Handle ends of containers, or of runs of them."""
        for one in [one for end in ends for one in ends_of(end)]:
            self._seen.add(one.container_id)
            if one.outcome is not Outcome.SUCCEEDED:
                self._lost(one.container_id)
            elif self.launcher.drop(one.container_id) is not None:
                self.progress.running -= 1
                self.progress.finished += 1
                self._ended_s = now

    def _lost(self, number: ContainerId) -> None:
        """Want another container for as long, as this one was not held to its end."""
        running = self.launcher.drop(number)
        if running is None:
            return
        self.progress.running -= 1
        self.progress.failed += 1
        running.row.holds.appendleft(running.held_s)
        running.row.lost += 1
        self.book.say(running.row)

    def stop_all(self) -> None:
        """Order the end of everything that runs."""
        self.launcher.stop_all()

    def speculate(self, now: float) -> None:
        """Do nothing: there are no second copies."""

    def check(self) -> None:
        """Raise InvariantError where the counts contradict each other."""
        waiting = sum(len(row.holds) for row in self.book.rows)
        held = len(self.launcher.held)
        counts = self.progress
        if held != counts.running or waiting + held + counts.finished != counts.tasks:
            raise InvariantError(
                f"{waiting} wait, {held} held, {counts.finished} done of {counts.tasks}"
            )
