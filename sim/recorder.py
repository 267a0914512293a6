"""What a run leaves behind: the decision log with its digest, and a row per task, job and node.

The recorder hears facts only, so what it says was seen from outside the cores.
"""

import hashlib
import struct
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any, Final, get_args

import numpy as np

from weft.model.dag import Floats, Ints
from weft.model.ids import (
    ATTEMPT_BITS,
    CONTAINER_BITS,
    AppId,
    AttemptId,
    ContainerId,
    NodeId,
    app_of_attempt,
    attempt_of_container,
    number_of_container,
)
from weft.model.job import Job
from weft.model.json_types import Json, Table
from weft.protocol.facts import (
    AppChanged,
    AttemptChanged,
    Closed,
    ClosedRun,
    Fact,
    JobProgressed,
    MasterPlanned,
    NodeChanged,
    Placed,
    PlacedRun,
    Remark,
    RunFact,
    StoppedRun,
    TaskStopped,
    facts_of,
)
from weft.protocol.messages import AskType, Outcome
from weft.protocol.record import as_dict

HASH_CHUNK_BYTES = 1 << 20
_STOPPED = struct.Struct("<qqqqqqdd")
_ROW = np.dtype("i8,i8,i8,i8,i8,i8,f8,f8")
_PLACED = struct.Struct("<dqqii")
_CLOSED = struct.Struct("<dqiiii")
# A row of decisions has its fields at these offsets, in bytes.
_CONTAINER_AT, _TASK_AT, _TASK_BYTES = 8, 24, 4
# Consecutive low bytes can be copied from here into every row of a run at once.
_BYTES = bytearray(range(256))
_SUCCEEDED: Final = Outcome.SUCCEEDED
_PREEMPTED: Final = Outcome.PREEMPTED
_ALTRUISTIC: Final = AskType.ALTRUISTIC
# Takes one kind of fact, with its time.
Take = Callable[[float, Any], None]
ENDED = {"FINISHED", "FAILED", "KILLED"}


@dataclass(slots=True)
class JobRow:
    """One job from arrival to end; times in s, negative: not yet.

    `number` is its place in the workload; `final_status` is SUCCEEDED, FAILED, KILLED, or empty
    while it has not ended.
    """

    job: Job
    number: int
    app: AppId = 0
    state: str = "NEW"
    finish_s: float = -1.0
    diagnostics: str = ""
    final_status: str = ""

    @property
    def end(self) -> str:
        """State in which it ended, or in which it was when the run ended."""
        return self.final_status or self.state


@dataclass(frozen=True, slots=True)
class TaskColumns:
    """Ends of tasks in the order in which they were seen; one row an attempt.

    `node` is a position in `nodes`.
    """

    app: Ints
    stage: Ints
    task: Ints
    attempt: Ints
    outcome: Ints
    node: Ints
    container: Ints
    start_s: Floats
    end_s: Floats
    nodes: tuple[NodeId, ...]

    def __len__(self) -> int:
        return len(self.app)


class _Names(dict[NodeId, bytes]):
    """A node's name as the hash takes it."""

    def __missing__(self, node: NodeId) -> bytes:
        name = self[node] = node.encode() + b"\0"
        return name


@dataclass(slots=True)
class Recorder:
    """Facts in; `finish` closes the books. `log` takes a line of the decision log at a time.

    `on_done` is called when the last job ended; `open_jobs` did not end yet. `altruistic` has what
    was granted to ALTRUISTIC asks, `preempted` the containers that the node will call KILLED.
    `masters_s` sums the container seconds of masters that ended; `masters` has since when the
    others are there. Applications in `_unheard` ended before their clients were notified. Decisions
    in `_bytes` were not hashed yet.
    """

    log: Callable[[Table], None] | None = None
    on_done: Callable[[], None] | None = None
    jobs: list[JobRow] = field(default_factory=list)
    by_app: dict[AppId, JobRow] = field(default_factory=dict)
    open_jobs: int = 0
    decisions: int = 0
    finished_tasks: int = 0
    altruistic: list[ContainerId] = field(default_factory=list)
    remarks: list[tuple[float, Remark]] = field(default_factory=list)
    plans: dict[AppId, MasterPlanned] = field(default_factory=dict)
    preempted: set[ContainerId] = field(default_factory=set)
    masters_s: float = 0.0
    masters: dict[AttemptId, float] = field(default_factory=dict)
    nodes: dict[NodeId, int] = field(default_factory=dict)
    _unheard: dict[AppId, AppChanged] = field(default_factory=dict)
    _hash: Any = field(default_factory=hashlib.sha256)
    _bytes: bytearray = field(default_factory=bytearray)
    _names: _Names = field(default_factory=_Names)
    # A row of each end of tasks, as `_STOPPED` packs it, and the numbers of its tasks.
    _stops: bytearray = field(default_factory=bytearray)
    _stopped_tasks: "array[int]" = field(default_factory=partial(array, "q"))

    def listeners(self) -> dict[type, Take]:
        """Return who takes each kind of fact: a simulation asks once, and makes no other calls."""
        kinds: dict[type, Take] = {
            TaskStopped: self._task_stopped,
            Placed: self._placed,
            Closed: self._closed,
            AppChanged: self._app_changed,
            AttemptChanged: self._attempt_changed,
            Remark: self._remark,
            MasterPlanned: self._planned,
            NodeChanged: self._node_changed,
        }
        if self.log is None:
            return kinds | {
                StoppedRun: self._stopped_run,
                PlacedRun: self._placed_run,
                ClosedRun: self._closed_run,
            }
        logged = (fact for fact in get_args(Fact) if fact is not JobProgressed)
        single = {kind: partial(self._logged, kinds.get(kind)) for kind in logged}
        return {**single, **{run: partial(_each, single) for run in get_args(RunFact)}}

    def _logged(self, take: Take | None, now: float, fact: Fact) -> None:
        if take is not None:
            take(now, fact)
        if self.log is not None:
            self.log({"t": now, "fact": type(fact).__name__, **_plain(fact)})

    def _task_stopped(self, now: float, fact: TaskStopped) -> None:
        if fact.stage >= 0:
            self._stopped(now, fact, (fact.task,))

    def _stopped_run(self, now: float, fact: StoppedRun) -> None:
        self._stopped(now, fact, fact.tasks)

    def _stopped(self, now: float, fact: TaskStopped | StoppedRun, tasks: tuple[int, ...]) -> None:
        count, outcome, began_s = len(tasks), fact.outcome, now - fact.run_s
        number = self.nodes.get(fact.node)
        if number is None:
            number = self.nodes[fact.node] = len(self.nodes)
        self._stops += _STOPPED.pack(
            count, fact.stage, fact.attempt, outcome, number, fact.container, began_s, now
        )
        self._stopped_tasks.extend(tasks)
        if outcome is _SUCCEEDED:
            self.finished_tasks += count

    def _placed(self, now: float, fact: Placed) -> None:
        if fact.kind is _ALTRUISTIC:
            self.altruistic.append(fact.container)
        rows = self._bytes
        rows += _PLACED.pack(now, fact.container, fact.ask, fact.stage, fact.kind)
        rows += self._names[fact.node]
        self.decisions += 1
        if len(rows) >= HASH_CHUNK_BYTES:
            self._digest_rows()

    def _placed_run(self, now: float, fact: PlacedRun) -> None:
        first, count, ask, stage, kind = fact.container, fact.count, fact.ask, fact.stage, fact.kind
        if kind is _ALTRUISTIC:
            self.altruistic.extend(range(first, first + count))
        rows = self._bytes
        row = _PLACED.pack(now, first, ask, stage, kind) + self._names[fact.node]
        rows += _rows_of_run(row, first, count)
        self.decisions += count
        if len(rows) >= HASH_CHUNK_BYTES:
            self._digest_rows()

    def _closed(self, now: float, fact: Closed) -> None:
        container, outcome, stage = fact.container, fact.outcome, fact.stage
        if stage < 0 and number_of_container(container) == 1:
            # This is a master's own container.
            self.masters_s += now - self.masters.pop(attempt_of_container(container), now)
        if outcome is _PREEMPTED:
            self.preempted.add(container)
        rows = self._bytes
        rows += _CLOSED.pack(now, container, outcome, stage, fact.task, fact.attempt)
        rows += self._names[fact.node]
        self.decisions += 1
        if len(rows) >= HASH_CHUNK_BYTES:
            self._digest_rows()

    def _closed_run(self, now: float, fact: ClosedRun) -> None:
        first, outcome, tasks = fact.container, fact.outcome, fact.tasks
        count = len(tasks)
        if outcome is _PREEMPTED:
            self.preempted.update(range(first, first + count))
        row = _CLOSED.pack(now, first, outcome, fact.stage, tasks[0], fact.attempt)
        row += self._names[fact.node]
        closed = _rows_of_run(row, first, count)
        numbers, step = bytearray(struct.pack(f"<{count}i", *tasks)), len(row)
        for at in range(_TASK_BYTES):
            closed[_TASK_AT + at :: step] = numbers[at::_TASK_BYTES]
        rows = self._bytes
        rows += closed
        self.decisions += count
        if len(rows) >= HASH_CHUNK_BYTES:
            self._digest_rows()

    def _attempt_changed(self, now: float, fact: AttemptChanged) -> None:
        if fact.state == "ALLOCATED":
            self.masters[fact.attempt] = now

    def masters_until(self, end_s: float) -> float:
        """Return how long containers of masters were held until `end_s`, in container seconds."""
        return self.masters_s + sum(max(0.0, end_s - since) for since in self.masters.values())

    def _remark(self, now: float, fact: Remark) -> None:
        self.remarks.append((now, fact))

    def _planned(self, now: float, fact: MasterPlanned) -> None:
        self.plans[app_of_attempt(fact.attempt)] = fact

    def _node_changed(self, now: float, fact: NodeChanged) -> None:
        self.nodes.setdefault(fact.node, len(self.nodes))

    def _digest_rows(self) -> None:
        self._hash.update(self._bytes)
        self._bytes.clear()

    def _app_changed(self, now: float, fact: AppChanged) -> None:
        row = self.by_app.get(fact.app)
        if row is None:
            if fact.state in ENDED:
                self._unheard[fact.app] = fact
            return
        if fact.state in ENDED and row.finish_s < 0:
            row.finish_s = now
            self._one_less()
        row.state = fact.state
        if row.finish_s >= 0 and not row.final_status:
            row.final_status = fact.final_status
        row.diagnostics = fact.diagnostics or row.diagnostics

    def accepted(self, row: JobRow, app: AppId, now: float) -> None:
        """Note that the client's job was accepted; it may have ended meanwhile."""
        row.app = app
        self.by_app[app] = row
        ended = self._unheard.pop(app, None)
        if ended is not None:
            self._app_changed(now, ended)

    def refused(self, row: JobRow, now: float, problem: str) -> None:
        """Note a job that the Resource Manager did not accept."""
        row.state, row.finish_s, row.diagnostics = "REFUSED", now, problem
        self._one_less()

    def _one_less(self) -> None:
        self.open_jobs -= 1
        if not self.open_jobs and self.on_done is not None:
            self.on_done()

    def columns(self) -> TaskColumns:
        """Return the ends of all tasks as arrays."""
        rows = np.frombuffer(bytes(self._stops), dtype=_ROW)
        counts = rows["f0"]
        columns = [np.repeat(rows[name], counts) for name in (_ROW.names or ())[1:]]
        stage, attempt, outcome, node, container, start_s, end_s = columns
        task = np.array(self._stopped_tasks, np.int64)
        container += np.arange(len(task)) - np.repeat(np.cumsum(counts) - counts, counts)
        app = container >> (ATTEMPT_BITS + CONTAINER_BITS)
        if self.preempted:
            taken = np.isin(container, list(self.preempted)) & (outcome == Outcome.KILLED)
            outcome[taken] = Outcome.PREEMPTED
        return TaskColumns(
            app, stage, task, attempt, outcome, node, container, start_s, end_s, tuple(self.nodes)
        )

    def digest(self) -> str:
        """Return a hash of the decision log: who was placed where and when, and how it ended."""
        self._digest_rows()
        return str(self._hash.copy().hexdigest())


def _rows_of_run(row: bytes, first: ContainerId, count: int) -> bytearray:
    """Return the rows of `count` containers with consecutive ids, of which `row` is the first."""
    rows, step, low = bytearray(row * count), len(row), first & 255
    if low + count <= len(_BYTES):
        # Consecutive ids mostly differ in one byte only.
        rows[_CONTAINER_AT::step] = _BYTES[low : low + count]
        return rows
    for place in range(count):
        struct.pack_into("<q", rows, _CONTAINER_AT + place * step, first + place)
    return rows


def _each(take: Mapping[type, Take], now: float, noted: Fact | RunFact) -> None:
    for fact in facts_of(noted):
        take[type(fact)](now, fact)


def _plain(fact: Fact) -> Json:
    return {key: _value(value) for key, value in as_dict(fact).items()}


def _value(value: object) -> object:
    return value.name.lower() if isinstance(value, Enum) else value
