"""What a Spark event log says, kept small: jobs, stages, and the last good run of each task.

Events are those of Spark 1.2 to 4.x (`JsonProtocol`). Host names, users, paths and query plans
are never kept.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from weft.workloads.imported import Imported

BYTES_PER_MB = 2**20
# The log has a resolution of 1 ms, so that no task's duration is 0.
TASK_MS_MIN = 1
_SQL_ID = "spark.sql.execution.id"
_MALFORMED_SHOWN = 3
_FAULTS = (
    AttributeError,
    LookupError,
    OverflowError,
    RecursionError,
    TypeError,
    ValueError,
)


class TaskRun(NamedTuple):
    """The measures of one task's last successful attempt; None where the log has no such field.

    `duration_ms` is launch to finish, in which the task held its slot. `disk_bytes` are input,
    output and spill, `network_bytes` shuffle read and write.
    """

    duration_ms: int
    run_ms: int
    cpu_ns: int | None
    peak_bytes: int | None
    input_bytes: int
    disk_bytes: int
    network_bytes: int


@dataclass(slots=True)
class StageRun:
    """One stage id: what it is, and what ran of it over all of its attempts.

    `parents` are None where the log does not name them (Spark 1.2 and 1.4). `rdd` is the RDD whose
    partitions it computes; the same one means the same output. The output of a stage that `is_map`
    is shuffled, as its tasks say. `attempts` maps an attempt to its number of tasks, `runs` a
    partition to its task; `reruns` are tasks of partitions that the log hides.
    """

    id: int
    tasks: int
    parents: tuple[int, ...] | None
    rdd: int | None
    submitted: bool = False
    completed: bool = False
    is_map: bool = False
    attempts: dict[int, int] = field(default_factory=dict)
    runs: dict[int, TaskRun] = field(default_factory=dict)
    reruns: list[TaskRun] = field(default_factory=list)

    def last_runs(self) -> list[TaskRun]:
        """Return the known tasks in order of partition; a rerun stands for a missing run."""
        missing = (i for i in range(self.tasks) if i not in self.runs)
        filled = {i: run for run, i in zip(self.reruns, missing, strict=False)} | self.runs
        return [filled[index] for index in sorted(filled)]


@dataclass(slots=True)
class JobRun:
    """One Spark job: the stages that it needs, those included that another job has run.

    `execution` is the SQL execution that it belongs to. `state` is unfinished, succeeded or failed.
    """

    id: int
    stages: tuple[int, ...]
    submitted_ms: int | None
    execution: int | None
    state: str = "unfinished"


@dataclass(slots=True)
class Application:
    """All that is kept of one event log.

    `events` counts those that Spark's listeners write.
    """

    id: str = ""
    name: str = ""
    started_ms: int | None = None
    ended: bool = False
    events: int = 0
    task_cpus: float = 1.0
    jobs: dict[int, JobRun] = field(default_factory=dict)
    stages: dict[int, StageRun] = field(default_factory=dict)

    def read(self, lines: Iterable[tuple[str, bytes]], result: Imported) -> None:
        """Take in every line; a malformed one is counted, and the first few are named."""
        malformed = 0
        for place, line in lines:
            try:
                event = json.loads(line)
                self._take(event, result)
            except _FAULTS as error:
                malformed += 1
                result.dropped["malformed line"] += 1
                if malformed <= _MALFORMED_SHOWN:
                    result.warnings.append(f"{place}: malformed, skipped: {_reason(error)}")
        if malformed > _MALFORMED_SHOWN:
            result.warnings.append(f"{place}: {malformed} malformed lines up to here, all skipped")

    def _take(self, event: Any, result: Imported) -> None:
        if not isinstance(event, dict) or not isinstance(event.get("Event"), str):
            raise TypeError("an event is an object with the key 'Event'")
        name = event["Event"]
        if name.startswith("SparkListener"):
            self.events += 1
        match name:
            case "SparkListenerApplicationStart":
                self.name = _text(event["App Name"])
                self.id = _text(event.get("App ID") or "")
                self.started_ms = _count(event["Timestamp"])
            case "SparkListenerApplicationEnd":
                self.ended = True
            case "SparkListenerEnvironmentUpdate":
                self._environment(event["Spark Properties"])
            case "SparkListenerJobStart":
                self._job_started(event, result)
            case "SparkListenerJobEnd":
                self._job_ended(event, result)
            case "SparkListenerStageSubmitted" | "SparkListenerStageCompleted":
                self._stage_moved(event["Stage Info"], name.endswith("Completed"))
            case "SparkListenerTaskEnd":
                self._task_ended(event, result)

    def _environment(self, properties: Any) -> None:
        pairs = properties.items() if isinstance(properties, dict) else properties
        cpus = dict(pairs).get("spark.task.cpus")
        if cpus is not None:
            self.task_cpus = float(_count(int(cpus))) or 1.0

    def _job_started(self, event: dict[str, Any], result: Imported) -> None:
        stages = tuple(self._stage(info).id for info in event["Stage Infos"])
        execution = (event.get("Properties") or {}).get(_SQL_ID)
        submitted_ms = event.get("Submission Time")
        number = _count(event["Job ID"])
        if number in self.jobs:
            result.dropped["second start of a job"] += 1
            return
        self.jobs[number] = JobRun(
            number,
            tuple(sorted(set(stages))),
            None if submitted_ms is None else _count(submitted_ms),
            None if execution is None else _count(int(execution)),
        )

    def _job_ended(self, event: dict[str, Any], result: Imported) -> None:
        job = self.jobs.get(_count(event["Job ID"]))
        if job is None:
            result.dropped["end of a job whose start the log lacks"] += 1
            return
        succeeded = event["Job Result"]["Result"] == "JobSucceeded"
        job.state = "succeeded" if succeeded else "failed"

    def _stage(self, info: dict[str, Any]) -> StageRun:
        number = _count(info["Stage ID"])
        stage = self.stages.get(number)
        if stage is None:
            parents = info.get("Parent IDs")
            rdds = info.get("RDD Info") or [{}]
            stage = self.stages[number] = StageRun(
                number,
                _count(info["Number of Tasks"]),
                None if parents is None else tuple(_count(parent) for parent in parents),
                None if rdds[0].get("RDD ID") is None else _count(rdds[0]["RDD ID"]),
            )
        return stage

    def _stage_moved(self, info: dict[str, Any], completed: bool) -> None:
        stage = self._stage(info)
        stage.submitted = True
        stage.attempts[_count(info.get("Stage Attempt ID", 0))] = _count(info["Number of Tasks"])
        if completed and "Failure Reason" not in info:
            stage.completed = True

    def _task_ended(self, event: dict[str, Any], result: Imported) -> None:
        stage = self.stages.get(_count(event["Stage ID"]))
        if stage is None:
            result.dropped["task of a stage whose start the log lacks"] += 1
            return
        stage.submitted = True
        metrics = event.get("Task Metrics")
        if event["Task End Reason"]["Reason"] != "Success" or not isinstance(metrics, dict):
            result.dropped["failed task attempt"] += 1
            return
        info = event["Task Info"]
        run = _run(info, metrics)
        stage.is_map = stage.is_map or event.get("Task Type") == "ShuffleMapTask"
        attempt = _count(event.get("Stage Attempt ID", 0))
        # Spark writes this field since 3.3.
        partition = info.get("Partition ID", -1)
        if not isinstance(partition, int) or partition < 0:
            partition = _count(info["Index"])
            if stage.attempts.get(attempt, stage.tasks) != stage.tasks:
                stage.reruns.append(run)
                # The attempt ran some partitions, and nothing says which.
                return
        if partition >= stage.tasks:
            raise ValueError(f"task {partition} of a stage of {stage.tasks} tasks")
        if partition in stage.runs:
            result.dropped["task attempt that a later one replaced"] += 1
        stage.runs[partition] = run


def _run(info: dict[str, Any], metrics: dict[str, Any]) -> TaskRun:
    peak = metrics.get("Peak Execution Memory")
    for item in info.get("Accumulables") or () if peak is None else ():
        if item.get("Name") in ("internal.metrics.peakExecutionMemory", "peakExecutionMemory"):
            peak = int(item.get("Update") or 0)
    cpu = metrics.get("Executor CPU Time")
    read, write = _part(metrics, "Shuffle Read Metrics"), _part(metrics, "Shuffle Write Metrics")
    input_bytes = _count(_part(metrics, "Input Metrics").get("Bytes Read", 0))
    disk = (
        (_part(metrics, "Output Metrics"), "Bytes Written"),
        (metrics, "Disk Bytes Spilled"),
    )
    network = (
        (read, "Remote Bytes Read"),
        (read, "Local Bytes Read"),
        (write, "Shuffle Bytes Written"),
    )
    launched, finished = _count(info["Launch Time"]), _count(info["Finish Time"])
    if finished < launched:
        raise ValueError("a task that finishes before its launch")
    return TaskRun(
        max(TASK_MS_MIN, finished - launched),
        _count(metrics.get("Executor Run Time", 0)),
        None if cpu is None else _count(cpu),
        None if peak is None else _count(peak),
        input_bytes,
        input_bytes + sum(_count(table.get(key, 0)) for table, key in disk),
        sum(_count(table.get(key, 0)) for table, key in network),
    )


def _part(metrics: dict[str, Any], name: str) -> dict[str, Any]:
    part = metrics.get(name)
    return part if isinstance(part, dict) else {}


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise ValueError(f"expected a whole number >= 0, got {str(value)[:40]!r}")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a text, got {type(value).__name__}")
    return "".join(c for c in value if c.isprintable() and not "\ud800" <= c <= "\udfff")


def _reason(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"no {error.args[0]!r}"
    if isinstance(error, json.JSONDecodeError):
        return f"not valid JSON at column {error.pos + 1}: {error.msg}"
    if isinstance(error, UnicodeDecodeError):
        return "not UTF-8 text"
    return str(error)
