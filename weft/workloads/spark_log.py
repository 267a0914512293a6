"""Spark event logs (1.2 to 4.x): the stages that ran, with measured durations and demands.

A stage whose output exists already is skipped by Spark; it is no work, so it is no stage here. Its
children wait for the stage that made the output if that one is in the same job (found by its RDD),
else for nothing. Only edges that the log shows are made: it shows shuffles, it does not show that
a driver waited for one Spark job before it started the next, nor broadcasts.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from weft.model.errors import InputError
from weft.model.job import Edge, Job, Stage
from weft.model.jobfile import TASKS_MAX
from weft.model.resources import read_amount
from weft.workloads.imported import Imported
from weft.workloads.reading import each_file, gather
from weft.workloads.spark_events import BYTES_PER_MB, Application, JobRun, StageRun, TaskRun
from weft.workloads.spark_files import Log, find_logs, read_events

FORMAT = "spark"
GROUPS = ("job", "execution", "application")
# Even a task that only waits holds something.
VCORES_MIN = 0.01
_MIDDLES: dict[str, Callable[[Sequence[float]], float]] = {"mean": fmean, "median": median}


@dataclass(frozen=True, slots=True)
class _Choice:
    group: str
    middle: Callable[[Sequence[float]], float]
    memory_base_mb: float


def stream(
    sources: Sequence[Path],
    result: Imported,
    *,
    group: str = "job",
    estimate: str = "mean",
    memory_base_mb: float = 512.0,
) -> Iterator[Job]:
    """Yield jobs of event logs, a log at a time: files, folders of files, of rolling logs.

    `group` says what one DAG is: `job` a Spark job, `execution` all Spark jobs of one SQL
    execution (a Spark job without one stands alone), `application` the whole log.
    `estimate` is `mean` or `median` of a stage's tasks, as schedulers are told it; the truth is
    each task's own time from launch to finish, s.
    Demands: vcores are CPU time over run time; memory_mb is the stage's largest peak execution
    memory and `memory_base_mb`, a task's share of the process, which no log tells; disk_mbps are
    input, output and spill, network_mbps are shuffle bytes read and written, both in MB (2**20
    bytes) per second of task time.
    `arrival_s` counts from the start of the application.
    """
    if group not in GROUPS:
        raise InputError("group", f"expected one of {', '.join(GROUPS)}, got {group!r}")
    if estimate not in _MIDDLES:
        raise InputError("estimate", f"expected mean or median, got {estimate!r}")
    base_mb = read_amount(memory_base_mb, "memory_base_mb")
    choice = _Choice(group, _MIDDLES[estimate], base_mb)
    logs = find_logs(sources, result)
    result.warnings.append(
        f"memory_mb is each stage's peak execution memory and {base_mb:g} MB for a task's share "
        "of the process (option memory_base_mb)"
    )
    rest = iter(logs)
    names = [log.name for log in logs]
    yield from each_file(names, result, lambda _: _read_log(next(rest), result, choice))


def read(sources: Sequence[Path], **options: Any) -> Imported:
    """Return Spark event logs; options as of `stream`; raises InputError without any job."""
    return gather(stream, sources, options)


def _read_log(log: Log, result: Imported, choice: _Choice) -> list[Job]:
    result.warnings.extend(log.warnings)
    application = Application()
    application.read(read_events(log, result), result)
    if not application.events:
        raise InputError(str(log.name), "is no Spark event log: it has no SparkListener event")
    if not application.jobs:
        raise InputError(
            str(log.name),
            "the log has no job: no SparkListenerJobStart event"
            + ("" if application.started_ms is not None else "; the start of the log is missing"),
        )
    if not application.ended:
        result.warnings.append(
            f"{log.name}: no end of the application: the log is cut off, or it was still running"
        )
    return _Builder(log.name, application, result, choice).jobs()


class _Builder:
    """Turns one application into jobs, and counts what it leaves out."""

    def __init__(
        self, log: Path, application: Application, result: Imported, choice: _Choice
    ) -> None:
        self._log = log
        self._application = application
        self._result = result
        self._choice = choice
        # A stage belongs to the first job that lists it.
        self._owner: dict[int, int] = {}

    def jobs(self) -> list[Job]:
        """Return all jobs; raises InputError where the log does not hold the edges."""
        groups = self._groups()
        for run in self._application.jobs.values():
            for number in run.stages:
                self._owner.setdefault(number, run.id)
        for _, members in groups:
            self._refuse_hidden_edges(members)
        if self._choice.group == "application" and len(self._application.jobs) > 1:
            self._warn(
                f"{len(self._application.jobs)} Spark jobs are one DAG; the log does not show "
                "which of them waited for others, so only shuffles are edges"
            )
        if self._application.started_ms is None:
            self._warn("no start of the application: arrivals count from its first job")
        self._count_strays()
        built = [job for job in (self._build(name, runs) for name, runs in groups) if job]
        if not built:
            raise InputError(str(self._log), "no stage of any job has finished in this log")
        return built

    def _count_strays(self) -> None:
        for number, stage in self._application.stages.items():
            if number not in self._owner:
                self._drop("stage of a job whose start the log lacks")
                self._drop("task of a job whose start the log lacks", len(stage.last_runs()))

    def _groups(self) -> list[tuple[str, list[JobRun]]]:
        label = self._application.id or self._application.name or self._log.name
        runs = sorted(self._application.jobs.values(), key=lambda job: job.id)
        if self._choice.group == "application":
            return [(label, runs)]
        groups: dict[str, list[JobRun]] = {}
        for run in runs:
            by_sql = self._choice.group == "execution" and run.execution is not None
            key = f"{label}-sql{run.execution}" if by_sql else f"{label}-job{run.id}"
            groups.setdefault(key, []).append(run)
        return list(groups.items())

    def _refuse_hidden_edges(self, members: list[JobRun]) -> None:
        numbers = {number for run in members for number in run.stages}
        hidden = any(self._application.stages[number].parents is None for number in numbers)
        if hidden and len(numbers) > 1:
            raise InputError(
                str(self._log),
                f"job {members[0].id} has {len(numbers)} stages, and the log does not say how "
                "they depend on each other (no 'Parent IDs', as before Spark 1.5): refused",
            )

    def _build(self, name: str, members: list[JobRun]) -> Job | None:
        self._warn_states(name, members)
        runs = self._kept(name, members)
        if not runs:
            self._drop("job without a finished stage")
            return None
        sources = self._sources(runs, members)
        stages = []
        for number, tasks in runs.items():
            parents = sorted(self._edges(number, sources))
            stages.append(self._stage(number, tasks, parents))
        run = members[0]
        input_mb = sum(t.input_bytes for tasks in runs.values() for t in tasks) / BYTES_PER_MB
        try:
            return Job(
                name,
                tuple(stages),
                arrival_s=self._arrival_s(members),
                history_key=self._history_key(run),
                input_mb=round(input_mb, 3),
            )
        except InputError as error:
            self._drop("malformed job")
            self._warn(f"{name} dropped: {error}")
            return None

    def _history_key(self, run: JobRun) -> str:
        """Return the key by which an application that recurs runs its jobs in the same order."""
        name = self._application.name or self._log.name
        if self._choice.group == "application":
            return str(name)
        return f"{name}#{run.id}"

    def _warn_states(self, name: str, members: list[JobRun]) -> None:
        for run in members:
            if run.state != "succeeded":
                state = "failed" if run.state == "failed" else "has no end in the log"
                self._warn(f"{name}: Spark job {run.id} {state}; its finished stages are used")

    def _kept(self, name: str, members: list[JobRun]) -> dict[int, list[TaskRun]]:
        """Return the stages that ran for these jobs and finished, by id, with their tasks' runs."""
        jobs = {run.id for run in members}
        open_jobs = {run.id for run in members if run.state == "unfinished"}
        kept: dict[int, list[TaskRun]] = {}
        for number in sorted({number for run in members for number in run.stages}):
            stage = self._application.stages[number]
            tasks = stage.last_runs()
            if self._owner[number] not in jobs:
                self._drop("stage that an earlier job shares and has run")
            elif not stage.submitted:
                waiting = self._owner[number] in open_jobs
                self._drop("stage not run yet" if waiting else "skipped stage, its output existed")
            elif not stage.completed and len(tasks) < stage.tasks:
                self._drop("stage that did not finish")
            elif stage.tasks > TASKS_MAX:
                raise InputError(str(self._log), f"stage {number} has {stage.tasks} tasks")
            elif not tasks:
                self._drop("stage without a task in the log")
            else:
                kept[number] = self._complete(name, stage, tasks)
        return kept

    def _complete(self, name: str, stage: StageRun, tasks: list[TaskRun]) -> list[TaskRun]:
        """Return all of a finished stage's tasks; those that the log lacks are given the mean."""
        missing = stage.tasks - len(tasks)
        if missing <= 0:
            return tasks
        mean_ms = round(fmean(task.duration_ms for task in tasks))
        self._drop("task whose end the log lacks", missing)
        self._warn(
            f"{name}: stage {stage.id} finished, but the log has {len(tasks)} of its "
            f"{stage.tasks} tasks; the others are given their mean of {mean_ms} ms"
        )
        return tasks + [TaskRun(mean_ms, 0, None, None, 0, 0, 0)] * missing

    def _sources(
        self, kept: dict[int, list[TaskRun]], members: list[JobRun]
    ) -> dict[int, tuple[int, ...]]:
        """Return for each stage of the jobs the kept stages that its children wait for."""
        # The last stage that wrote (RDD, number of tasks).
        makers: dict[tuple[int, int], int] = {}
        jobs = {run.id for run in members}
        sources: dict[int, tuple[int, ...]] = {}
        for number in sorted({number for run in members for number in run.stages}):
            stage = self._application.stages[number]
            if number in kept:
                sources[number] = (number,)
                if stage.is_map and stage.rdd is not None:
                    makers[stage.rdd, stage.tasks] = number
            elif not stage.submitted and stage.rdd is not None:
                maker = makers.get((stage.rdd, stage.tasks))
                sources[number] = () if maker is None else (maker,)
            elif stage.submitted and self._owner[number] in jobs:
                # It ran, but has no task.
                above = (sources.get(parent, ()) for parent in stage.parents or ())
                sources[number] = tuple(sorted({source for found in above for source in found}))
            else:
                sources[number] = ()
        return sources

    def _edges(self, number: int, sources: dict[int, tuple[int, ...]]) -> set[int]:
        parents: set[int] = set()
        for parent in self._application.stages[number].parents or ():
            found = sources.get(parent, ())
            parents.update(found)
            if not found:
                self._drop("edge to output that another job had made")
        return parents

    def _stage(self, number: int, tasks: list[TaskRun], parents: list[int]) -> Stage:
        durations_s = tuple(task.duration_ms / 1000 for task in tasks)
        return Stage(
            f"stage{number}",
            len(tasks),
            round(self._choice.middle(durations_s), 4),
            self._demand(tasks),
            tuple(Edge(f"stage{parent}") for parent in parents),
            actual_duration_s=durations_s,
        )

    def _demand(self, tasks: list[TaskRun]) -> dict[str, float]:
        measured = [task for task in tasks if task.cpu_ns is not None and task.run_ms > 0]
        if measured:
            cpu_ms = sum(task.cpu_ns or 0 for task in measured) / 1e6
            vcores = cpu_ms / sum(task.run_ms for task in measured)
            # A task is one thread; more than 1 comes from rounding to ms.
            vcores = min(max(vcores, VCORES_MIN), 1.0)
        else:
            vcores = self._application.task_cpus
            self._drop("measure of CPU time that a stage lacks: given spark.task.cpus")
        peaks = [task.peak_bytes for task in tasks if task.peak_bytes is not None]
        if not peaks:
            self._drop("measure of memory that a stage lacks: given memory_base_mb")
        total_s = sum(task.duration_ms for task in tasks) / 1000
        rate = 1 / BYTES_PER_MB / total_s
        return {
            "vcores": round(vcores, 3),
            "memory_mb": math.ceil(self._choice.memory_base_mb + max(peaks, default=0) / 2**20),
            "disk_mbps": round(sum(task.disk_bytes for task in tasks) * rate, 3),
            "network_mbps": round(sum(task.network_bytes for task in tasks) * rate, 3),
        }

    def _arrival_s(self, members: list[JobRun]) -> float:
        submissions = [run.submitted_ms for run in members if run.submitted_ms is not None]
        if not submissions:
            self._drop("time of submission that a job lacks: given 0")
            return 0.0
        start = self._application.started_ms
        if start is None:
            every = (run.submitted_ms for run in self._application.jobs.values())
            start = min(ms for ms in every if ms is not None)
        return max(0, min(submissions) - start) / 1000

    def _drop(self, reason: str, rows: int = 1) -> None:
        self._result.dropped[reason] += rows

    def _warn(self, text: str) -> None:
        self._result.warnings.append(f"{self._log}: {text}")
