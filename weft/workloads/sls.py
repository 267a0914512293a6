"""Inputs of Hadoop's Scheduler Load Simulator: SLS and SYNTH JSON, Rumen traces, job histories.

Most of these files hold several JSON objects one after the other. SLS jobs of type `dag` carry no
dependencies, only start times: their stages are independent here, and a warning says so.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from weft.model.errors import InputError
from weft.model.job import Job
from weft.model.jobfile import TASKS_MAX
from weft.model.resources import read_amount
from weft.workloads.documents import parse_json_values, read_text
from weft.workloads.hadoop_history import history_job, rumen_job
from weft.workloads.imported import Imported
from weft.workloads.measured_tasks import MeasuredTask, job_of_tasks
from weft.workloads.reading import each_file, expand, gather, items, table, task_count
from weft.workloads.sls_synthetic import synthetic_jobs

FORMAT = "sls"
_COPIES_MAX = 100_000


def stream(
    sources: Sequence[Path], result: Imported, *, vcores: float = 1.0, memory_mb: float = 1024.0
) -> Iterator[Job]:
    """Yield jobs of all files; arrivals of Rumen traces and histories count from the first one's.

    `vcores` and `memory_mb` are the demand of tasks whose file gives none (SLS's own defaults).
    """
    default = (read_amount(vcores, "vcores"), read_amount(memory_mb, "memory_mb"))
    absolute: list[Job] = []

    def parse(path: Path) -> list[Job]:
        text = read_text(path)
        if text.startswith("Avro-Json"):
            absolute.append(history_job(text, str(path), default, result))
            return [absolute[-1]]
        if text.lstrip()[:1] == "<":
            raise InputError(str(path), "is XML, a configuration: it describes no jobs")
        jobs = []
        for number, value in enumerate(parse_json_values(text, str(path))):
            place = f"{path}: object {number + 1}"
            entry = table(value, place)
            if "jobID" in entry:
                absolute.append(rumen_job(entry, place, default, result))
                jobs.append(absolute[-1])
            elif "job.tasks" in entry:
                jobs.extend(_sls_jobs(entry, place, default, result))
            elif "workloads" in entry and "num_jobs" in entry:
                jobs.extend(synthetic_jobs(entry, place, default, result))
            elif "rack" in entry and "nodes" in entry:
                raise InputError(place, "a list of nodes, not of jobs")
            else:
                raise InputError(place, "neither a job of SLS, SYNTH nor Rumen")
        return jobs

    jobs = list(each_file(expand(sources), result, parse))
    known = {id(job) for job in absolute}
    first_s = min((job.arrival_s for job in absolute), default=0.0)
    for job in jobs:
        yield replace(job, arrival_s=round(job.arrival_s - first_s, 3)) if id(job) in known else job


def read(sources: Sequence[Path], **options: Any) -> Imported:
    """Return SLS inputs; options as of `stream`; raises InputError when none is usable."""
    return gather(stream, sources, options)


def _sls_jobs(
    entry: dict[str, Any], place: str, default: tuple[float, float], result: Imported
) -> list[Job]:
    kind = entry.get("yarn.sls.am.type", entry.get("am.type"))
    if not isinstance(kind, str):
        raise InputError(f"{place}: am.type", f"expected a type, got {kind!r}")
    tasks: list[MeasuredTask] = []
    delayed = 0
    for i, item in enumerate(items(entry["job.tasks"], f"{place}: job.tasks")):
        where = f"{place}: job.tasks[{i}]"
        row = table(item, where)
        delayed += "container.request.delay" in row
        copies = task_count(row.get("count", row.get("container.count", 1)), f"{where}.count")
        if len(tasks) + copies > TASKS_MAX // 10:
            raise InputError(where, f"over {TASKS_MAX // 10} tasks in one job")
        tasks.extend([_sls_task(row, where, default)] * copies)
    if kind != "mapreduce":
        result.warnings.append(
            f"{place}: an SLS job of type {kind!r} has no dependencies: its tasks are independent"
        )
    if delayed:
        result.warnings.append(f"{place}: {delayed} container.request.delay are not used")
    name, queue, user = (
        str(entry.get(key, "")).replace("\0", "")
        for key in ("job.id", "job.queue.name", "job.user")
    )
    copies = task_count(entry.get("job.count", 1), f"{place}: job.count")
    if copies > _COPIES_MAX:
        raise InputError(f"{place}: job.count", f"over {_COPIES_MAX} copies of a job")
    job = job_of_tasks(
        name or "job",
        tasks,
        barrier=kind == "mapreduce",
        queue=queue,
        user=user,
        arrival_s=read_amount(entry.get("job.start.ms", 0), f"{place}: job.start.ms") / 1000,
    )
    return [job] * copies


def _sls_task(row: dict[str, Any], where: str, default: tuple[float, float]) -> MeasuredTask:
    length = row.get("duration.ms", row.get("container.duration.ms"))
    if length is None:
        start, end = (
            read_amount(row.get(key), f"{where}.{key}")
            for key in ("container.start.ms", "container.end.ms")
        )
        if end < start:
            raise InputError(f"{where}.container.end.ms", "is before container.start.ms")
        length = end - start
    priority = row.get("container.priority", 0)
    return MeasuredTask(
        kind=str(row.get("container.type") or "task").replace("\0", ""),
        duration_s=read_amount(length, f"{where}.duration.ms") / 1000,
        vcores=read_amount(row.get("container.vcores", default[0]), f"{where}.container.vcores"),
        memory_mb=read_amount(
            row.get("container.memory-mb", row.get("container.memory", default[1])),
            f"{where}.container.memory-mb",
        ),
        priority=priority if isinstance(priority, int) else 0,
        host=str(row.get("container.host") or ""),
    )
