"""What a run leaves behind: the decision log with its digest, and a row per task, job and node.

The recorder hears facts only, so what it says was seen from outside the cores.
"""

import hashlib
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from weft.dag import Floats, Ints
from weft.facts import (
    AppChanged,
    Closed,
    Fact,
    JobProgressed,
    MasterPlanned,
    NodeChanged,
    Placed,
    Remark,
    TaskStopped,
)
from weft.ids import AppId, ContainerId, NodeId
from weft.job import Job
from weft.messages import Outcome

CHUNK = 65_536  # facts are turned into arrays in chunks: a million tuples would fill the memory
_PLACED = struct.Struct("<dqqii")
_CLOSED = struct.Struct("<dqiiii")
ENDED = {"FINISHED", "FAILED", "KILLED"}


@dataclass(slots=True)
class JobRow:
    """One job from arrival to end; times in s, negative: not yet."""

    job: Job
    number: int  # place in the workload
    app: AppId = 0
    state: str = "NEW"
    finish_s: float = -1.0
    diagnostics: str = ""


@dataclass(frozen=True, slots=True)
class TaskColumns:
    """Ends of tasks in the order in which they were seen; one row an attempt."""

    app: Ints
    stage: Ints
    task: Ints
    attempt: Ints
    outcome: Ints
    node: Ints  # position in `nodes`
    container: Ints
    start_s: Floats
    end_s: Floats
    nodes: tuple[NodeId, ...]

    def __len__(self) -> int:
        return len(self.app)


@dataclass(slots=True)
class Recorder:
    """Facts in; `finish` closes the books. `log` takes a line of the decision log at a time."""

    log: Callable[[Mapping[str, Any]], None] | None = None
    on_done: Callable[[], None] | None = None  # told when the last job ended
    jobs: list[JobRow] = field(default_factory=list)
    by_app: dict[AppId, JobRow] = field(default_factory=dict)
    open_jobs: int = 0  # jobs that did not end yet
    decisions: int = 0
    finished_tasks: int = 0
    remarks: list[tuple[float, Remark]] = field(default_factory=list)
    plans: dict[AppId, MasterPlanned] = field(default_factory=dict)
    nodes: dict[NodeId, int] = field(default_factory=dict)
    _hash: Any = field(default_factory=hashlib.sha256)
    _bytes: list[bytes] = field(default_factory=list)
    _names: dict[NodeId, bytes] = field(default_factory=dict)
    _stops: list[tuple[float, TaskStopped]] = field(default_factory=list)
    _chunks: list[tuple[Ints, Floats]] = field(default_factory=list)

    def note(self, now: float, fact: Fact) -> None:
        """Take one fact."""
        kind = type(fact)
        if kind is TaskStopped:
            assert isinstance(fact, TaskStopped)
            if fact.stage >= 0:
                self._stops.append((now, fact))
                if fact.outcome is Outcome.SUCCEEDED:
                    self.finished_tasks += 1
                if len(self._stops) >= CHUNK:
                    self._pack()
        elif kind is Placed:
            assert isinstance(fact, Placed)
            row = _PLACED.pack(now, fact.container, fact.ask, fact.stage, int(fact.kind))
            self._decide(row, fact.node)
        elif kind is Closed:
            assert isinstance(fact, Closed)
            row = _CLOSED.pack(
                now, fact.container, int(fact.outcome), fact.stage, fact.task, fact.attempt
            )
            self._decide(row, fact.node)
        elif kind is AppChanged:
            assert isinstance(fact, AppChanged)
            self._app_changed(now, fact)
        elif kind is Remark:
            assert isinstance(fact, Remark)
            self.remarks.append((now, fact))
        elif kind is MasterPlanned:
            assert isinstance(fact, MasterPlanned)
            self.plans[fact.attempt >> 8] = fact
        elif kind is NodeChanged:
            assert isinstance(fact, NodeChanged)
            self.nodes.setdefault(fact.node, len(self.nodes))
        if self.log is not None and kind is not JobProgressed:
            self.log({"t": now, "fact": kind.__name__, **_plain(fact)})

    def _decide(self, row: bytes, node: NodeId) -> None:
        name = self._names.get(node)
        if name is None:
            name = self._names[node] = node.encode() + b"\0"
        self._bytes.append(row)
        self._bytes.append(name)
        self.decisions += 1
        if len(self._bytes) >= CHUNK:
            self._hash.update(b"".join(self._bytes))
            self._bytes.clear()

    def _app_changed(self, now: float, fact: AppChanged) -> None:
        row = self.by_app.get(fact.app)
        if row is None:
            return
        if fact.state in ENDED and row.finish_s < 0:
            row.finish_s = now
            self._one_less()
        row.state = fact.state
        row.diagnostics = fact.diagnostics or row.diagnostics

    def refused(self, row: JobRow, now: float, problem: str) -> None:
        """A job that the Resource Manager did not accept."""
        row.state, row.finish_s, row.diagnostics = "REFUSED", now, problem
        self._one_less()

    def _one_less(self) -> None:
        self.open_jobs -= 1
        if not self.open_jobs and self.on_done is not None:
            self.on_done()

    def _pack(self) -> None:
        numbers = self.nodes
        table = np.array(
            [
                (
                    fact.container >> 40,
                    fact.stage,
                    fact.task,
                    fact.attempt,
                    fact.outcome,
                    numbers.setdefault(fact.node, len(numbers)),
                    fact.container,
                )
                for _, fact in self._stops
            ],
            dtype=np.int64,
        ).reshape(-1, 7)
        times = np.array([(now - fact.run_s, now) for now, fact in self._stops], dtype=np.float64)
        self._chunks.append((table, times.reshape(-1, 2)))
        self._stops.clear()

    def columns(self) -> TaskColumns:
        """The ends of all tasks as arrays."""
        self._pack()
        table = np.concatenate([table for table, _ in self._chunks])
        times = np.concatenate([times for _, times in self._chunks])
        self._chunks = [(table, times)]
        app, stage, task, attempt, outcome, node, container = table.T
        return TaskColumns(
            app, stage, task, attempt, outcome, node, container, times[:, 0], times[:, 1],
            tuple(self.nodes),
        )  # fmt: skip

    def digest(self) -> str:
        """A hash of the decision log: who was placed where and when, and how it ended."""
        self._hash.update(b"".join(self._bytes))
        self._bytes.clear()
        return str(self._hash.copy().hexdigest())


def _plain(fact: Fact) -> dict[str, Any]:
    return {key: _value(value) for key, value in fact._asdict().items()}


def _value(value: Any) -> Any:
    return value.name.lower() if hasattr(value, "name") else value


def container_app(container: ContainerId) -> AppId:
    """The application of a container."""
    return container >> 40
