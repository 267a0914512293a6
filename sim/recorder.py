"""What a run leaves behind: the decision log with its digest, and a row per task, job and node.

The recorder hears facts only, so what it says was seen from outside the cores.
"""

import hashlib
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, get_args

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
from weft.messages import AskType, Outcome

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


class _Names(dict[NodeId, bytes]):
    """A node's name as the hash takes it."""

    def __missing__(self, node: NodeId) -> bytes:
        name = self[node] = node.encode() + b"\0"
        return name


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
    altruistic: list[ContainerId] = field(default_factory=list)  # granted to ALTRUISTIC asks
    remarks: list[tuple[float, Remark]] = field(default_factory=list)
    plans: dict[AppId, MasterPlanned] = field(default_factory=dict)
    nodes: dict[NodeId, int] = field(default_factory=dict)
    _hash: Any = field(default_factory=hashlib.sha256)
    _bytes: list[bytes] = field(default_factory=list)
    _names: _Names = field(default_factory=_Names)
    _stops: list[tuple[float, TaskStopped]] = field(default_factory=list)
    _chunks: list[tuple[Ints, Floats]] = field(default_factory=list)

    def listeners(self) -> dict[type, Callable[[float, Any], None]]:
        """Who takes a kind of fact: a simulation asks once, and makes no call for other kinds."""
        kinds: dict[type, Callable[[float, Any], None]] = {
            TaskStopped: self._task_stopped,
            Placed: self._placed,
            Closed: self._closed,
            AppChanged: self._app_changed,
            Remark: self._remark,
            MasterPlanned: self._planned,
            NodeChanged: self._node_changed,
        }
        if self.log is None:
            return kinds
        logged = (fact for fact in get_args(Fact) if fact is not JobProgressed)
        return {kind: partial(self._logged, kinds.get(kind)) for kind in logged}

    def _logged(self, take: Callable[[float, Any], None] | None, now: float, fact: Fact) -> None:
        if take is not None:
            take(now, fact)
        if self.log is not None:
            self.log({"t": now, "fact": type(fact).__name__, **_plain(fact)})

    def _task_stopped(self, now: float, fact: TaskStopped) -> None:
        if fact.stage >= 0:
            self._stops.append((now, fact))
            if fact.outcome is Outcome.SUCCEEDED:
                self.finished_tasks += 1
            if len(self._stops) >= CHUNK:
                self._pack()

    def _placed(self, now: float, fact: Placed) -> None:
        container, node, ask, stage, _, kind, _, _ = fact
        if kind is AskType.ALTRUISTIC:
            self.altruistic.append(container)
        self._decide(_PLACED.pack(now, container, ask, stage, kind), node)

    def _closed(self, now: float, fact: Closed) -> None:
        container, node, outcome, stage, task, attempt = fact
        self._decide(_CLOSED.pack(now, container, outcome, stage, task, attempt), node)

    def _remark(self, now: float, fact: Remark) -> None:
        self.remarks.append((now, fact))

    def _planned(self, now: float, fact: MasterPlanned) -> None:
        self.plans[fact.attempt >> 8] = fact

    def _node_changed(self, now: float, fact: NodeChanged) -> None:
        self.nodes.setdefault(fact.node, len(self.nodes))

    def _decide(self, row: bytes, node: NodeId) -> None:
        rows = self._bytes
        rows.append(row)
        rows.append(self._names[node])
        self.decisions += 1
        if len(rows) >= CHUNK:
            self._hash.update(b"".join(rows))
            rows.clear()

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
