"""MapReduce job histories: Rumen's JSON jobs, and `.jhist` files (Avro-Json events)."""

from dataclasses import dataclass, field
from typing import Any

from weft.model.errors import InputError
from weft.model.job import Job
from weft.model.resources import read_amount
from weft.workloads.documents import parse_json
from weft.workloads.imported import Imported
from weft.workloads.measured_tasks import MAP, REDUCE, MeasuredTask, job_of_tasks
from weft.workloads.reading import items, table

_PREFIX = "org.apache.hadoop.mapreduce.jobhistory."
_RUMEN_LISTS = (("mapTasks", MAP, "jobMapMB"), ("reduceTasks", REDUCE, "jobReduceMB"))
_SUCCESS = ("SUCCESS", "SUCCEEDED")


def rumen_job(
    entry: dict[str, Any], place: str, default: tuple[float, float], result: Imported
) -> Job:
    """Return a Rumen trace's job: each task with the attempt that succeeded; others are counted.

    Arrival is the submission in s since the epoch. Raises InputError when no task succeeded.
    """
    tasks = []
    for key, kind, memory_key in _RUMEN_LISTS:
        memory = entry.get(memory_key, -1)
        known = isinstance(memory, int | float) and memory > 0
        for i, item in enumerate(items(entry.get(key) or [], f"{place}: {key}")):
            where = f"{place}: {key}[{i}]"
            attempt = _good_attempt(table(item, where), where, result)
            if attempt is None:
                result.dropped["task without a successful attempt"] += 1
                continue
            start, end = (
                read_amount(attempt.get(name), f"{where}.{name}")
                for name in ("startTime", "finishTime")
            )
            memory_mb = read_amount(memory, f"{place}: {memory_key}") if known else default[1]
            host = attempt.get("hostName")
            tasks.append(
                MeasuredTask(
                    kind,
                    _length_s(start, end, where),
                    default[0],
                    memory_mb,
                    host=host if isinstance(host, str) else "",
                )
            )
    if entry.get("otherTasks"):
        result.dropped["set-up or clean-up task"] += len(items(entry["otherTasks"], place))
    if not tasks:
        raise InputError(place, "no task of the job succeeded")
    return job_of_tasks(
        _text(entry.get("jobID")) or "job",
        tasks,
        barrier=True,
        queue=_text(entry.get("queue")),
        user=_text(entry.get("user")),
        arrival_s=read_amount(entry.get("submitTime"), f"{place}: submitTime") / 1000,
    )


def _good_attempt(task: dict[str, Any], where: str, result: Imported) -> dict[str, Any] | None:
    good = None
    for item in items(task.get("attempts") or [], f"{where}.attempts"):
        attempt = table(item, f"{where}.attempts")
        if attempt.get("result") in _SUCCESS:
            good = attempt
        else:
            result.dropped["unsuccessful attempt"] += 1
    return good


def _length_s(start_ms: float, end_ms: float, where: str) -> float:
    if end_ms < start_ms:
        raise InputError(where, "finishes before it starts")
    return (end_ms - start_ms) / 1000


def _text(value: object) -> str:
    return value.replace("\0", "") if isinstance(value, str) else ""


@dataclass(slots=True)
class _History:
    """What the events of one file have said so far."""

    default: tuple[float, float]
    submitted: dict[str, Any] = field(default_factory=dict)
    outcome: str = "unknown"
    # The key of `started_ms` is the attempt, that of `finished` the task.
    started_ms: dict[str, float] = field(default_factory=dict)
    finished: dict[str, MeasuredTask] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    failed_attempts: int = 0

    def take(self, kind: str, data: dict[str, Any], place: str) -> None:
        if kind == "JOB_SUBMITTED":
            self.submitted = data
        elif kind in ("JOB_FINISHED", "JOB_FAILED", "JOB_KILLED", "JOB_ERROR"):
            self.outcome = kind
        elif kind == "TASK_STARTED":
            self.seen.add(_text(data.get("taskid")))
        elif kind.endswith("_ATTEMPT_STARTED"):
            self.started_ms[_text(data.get("attemptId"))] = read_amount(
                data.get("startTime"), f"{place}.startTime"
            )
        elif kind in ("MAP_ATTEMPT_FINISHED", "REDUCE_ATTEMPT_FINISHED"):
            self._finish(data, MAP if kind.startswith("MAP") else REDUCE, place)
        elif kind.endswith(("_ATTEMPT_FAILED", "_ATTEMPT_KILLED")):
            self.failed_attempts += 1

    def _finish(self, data: dict[str, Any], kind: str, place: str) -> None:
        attempt = _text(data.get("attemptId"))
        if attempt not in self.started_ms:
            raise InputError(place, f"attempt {attempt!r} finishes but never started")
        end = read_amount(data.get("finishTime"), f"{place}.finishTime")
        host = "/".join(_text(data.get(key)) for key in ("rackname", "hostname"))
        length_s = _length_s(self.started_ms[attempt], end, place)
        self.finished[_text(data.get("taskid"))] = MeasuredTask(
            kind, length_s, *self.default, host=host
        )


def history_job(text: str, place: str, default: tuple[float, float], result: Imported) -> Job:
    """Return a `.jhist` file's job, arrival in s since the epoch; InputError: nothing finished.

    Lines that cannot be read, failed attempts and tasks that never finished are counted.
    """
    history = _History(default)
    for number, line in enumerate(text.split("\n")[2:], start=3):
        if not line.strip():
            continue
        where = f"{place} line {number}"
        try:
            event = table(parse_json(line, where), where)
            body = table(event.get("event"), f"{where}: event")
            for name, data in body.items():
                if name.startswith(_PREFIX):
                    history.take(_text(event.get("type")), table(data, where), where)
        except InputError as error:
            if "unreadable event" not in result.dropped:
                result.warnings.append(f"{error} (the first unreadable event)")
            result.dropped["unreadable event"] += 1
    if history.failed_attempts:
        result.dropped["unsuccessful attempt"] += history.failed_attempts
    if not history.finished:
        raise InputError(place, f"no task of the job finished ({history.outcome})")
    unfinished = len(history.seen - set(history.finished))
    if unfinished:
        result.dropped["task without a successful attempt"] += unfinished
    if history.outcome != "JOB_FINISHED":
        result.warnings.append(f"{place}: the job did not finish ({history.outcome})")
    submitted = history.submitted
    return job_of_tasks(
        _text(submitted.get("jobid")) or "job",
        list(history.finished.values()),
        barrier=True,
        queue=_text(submitted.get("jobQueueName")),
        user=_text(submitted.get("userName")),
        arrival_s=read_amount(submitted.get("submitTime"), f"{place}: submitTime") / 1000,
    )
