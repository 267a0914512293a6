"""Training and inference jobs of Alibaba's cluster-trace-gpu-v2020 (PAI; NSDI 2022).

A task of `pai_task_table` (a role: `worker`, `ps`) is a stage, its instances are the tasks; roles
run at the same time, so that a job has no edges. `pai_job_table` says when a job was submitted,
`pai_instance_table` how long each instance ran. The tables have no header as published (the
columns stand in files of their own, `*.header`); with one, they are read as well.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from weft.model.errors import InputError
from weft.model.job import Job, Stage
from weft.workloads.buckets import Buckets, bucket_of
from weft.workloads.imported import Imported
from weft.workloads.reading import expand, gather, in_order, task_count, unique
from weft.workloads.table_rows import Row, amount, columns_of, needed, no_table, rows_of, text

FORMAT = "alibaba_gpu2020"
TASKS = (
    "job_name",
    "task_name",
    "inst_num",
    "status",
    "start_time",
    "end_time",
    "plan_cpu",
    "plan_mem",
    "plan_gpu",
    "gpu_type",
)
JOBS = ("job_name", "inst_id", "user", "status", "start_time", "end_time")
INSTANCES = (
    "job_name",
    "task_name",
    "inst_name",
    "worker_name",
    "inst_id",
    "status",
    "start_time",
    "end_time",
    "machine",
)
FORMS = (TASKS, JOBS, INSTANCES)
NAMES = {"pai_task_table": TASKS, "pai_job_table": JOBS, "pai_instance_table": INSTANCES}
STATUSES = ("Terminated", "Failed", "Running", "Waiting")
_PERCENT_PER_UNIT = 100.0
_MB_PER_GB = 1024.0


class _Task(NamedTuple):
    job: str
    name: str
    instances: int
    start_s: float
    duration_s: float
    demand: dict[str, float]


class _Submitted(NamedTuple):
    job: str
    user: str
    start_s: float


class _Instance(NamedTuple):
    job: str
    task: str
    duration_s: float


class _Bad(NamedTuple):
    """A job with an unusable task: the others would run without it, so that it is dropped."""

    job: str


@dataclass(slots=True)
class _Scan:
    result: Imported
    plan_cpu: float
    plan_mem: float
    rows: Buckets = field(default_factory=Buckets)
    counts: Counter[str] = field(default_factory=Counter)
    first_s: float = float("inf")
    last_s: float = 0.0

    def planned(self, row: Row, name: str, default: float) -> float:
        """Return a planned amount, or the stated default where it is blank."""
        value = amount(row, name)
        if value is None:
            self.counts[f"rows with a blank {name}, for which {default:g} is assumed"] += 1
            return default
        return value


def stream(
    sources: Sequence[Path],
    result: Imported,
    *,
    plan_cpu: float = 600.0,
    plan_mem: float = 29.3,
    gang: bool = False,
    instances_max: int = 0,
    jobs_max: int = 0,
) -> Iterator[Job]:
    """Yield jobs in order of arrival, in bounded memory; the first one arrives at 0.

    `plan_cpu` (100 = one core) and `plan_mem` (GB) replace blank values; a blank `plan_gpu` is no
    GPU. `gang` has all instances of a role start together. `instances_max` caps the tasks of a
    stage and `jobs_max` the jobs; 0 is no cap.
    """
    if min(plan_cpu, plan_mem, instances_max, jobs_max) < 0:
        raise InputError("options", "expected numbers >= 0")
    scan = _Scan(result, plan_cpu, plan_mem)
    files = _tables(expand(sources), result)
    for form in FORMS:
        for path in files[form]:
            _read(path, form, scan)
    if not files[JOBS]:
        result.warnings.append(
            "alibaba_gpu2020: no pai_job_table: a job arrives when the first of its tasks was "
            "launched, which is after it waited"
        )
    if not files[INSTANCES]:
        result.warnings.append(
            "alibaba_gpu2020: no pai_instance_table: all instances of a task last as long as it"
        )
    jobs = (job for rows in scan.rows.drain() for job in _jobs(rows, scan, gang, instances_max))
    given = 0
    for job in in_order(jobs, (scan.first_s, scan.last_s), jobs_max, result):
        given += 1
        yield job
    if given:
        result.warnings.append(
            "alibaba_gpu2020: gpu_type is what a task got, not what it asked for: it is left out; "
            "a part of a GPU is a part of its machine's GPUs together"
        )
    what = scan.counts.items()
    result.warnings.extend(f"alibaba_gpu2020: {count} {said}" for said, count in what)
    if not given and not jobs_max:
        why = result.why() if result.dropped else "the tables are empty"
        raise InputError(", ".join(map(str, sources)), f"no job that can be used; {why}")


def read(sources: Sequence[Path], **options: Any) -> Imported:
    """Return the jobs; the options are those of `stream`; raises InputError when none is usable."""
    return gather(stream, sources, options)


def _tables(files: Sequence[Path], result: Imported) -> dict[tuple[str, ...], list[Path]]:
    """Return the files by form, told by their columns."""
    found: dict[tuple[str, ...], list[Path]] = {form: [] for form in FORMS}
    refused = None
    for path in files:
        try:
            columns = columns_of(path, FORMS)
            form = next((form for form in FORMS if set(form) <= set(columns)), None)
            if form is None:
                raise InputError(str(path), no_table(columns, NAMES))
            found[form].append(path)
        except InputError as error:
            refused = refused or error
            result.warnings.append(str(error))
            result.dropped["unusable file"] += 1
    if not found[TASKS]:
        need = "no pai_task_table: without it no task has a plan"
        raise refused or InputError(", ".join(map(str, files)), need)
    return found


def _read(path: Path, form: tuple[str, ...], scan: _Scan) -> None:
    for place, row in rows_of(path, scan.result, FORMS, form):
        job = text(row, "job_name")
        try:
            if not job:
                raise InputError("job_name", "is blank")
            if form is TASKS:
                scan.rows.add(bucket_of(job), _task(row, job, place, scan))
            elif form is JOBS:
                start_s = needed(amount(row, "start_time"), "start_time")
                scan.rows.add(bucket_of(job), _Submitted(job, text(row, "user"), start_s))
                _seen(scan, start_s)
            elif (lasted := _lasted(row)) is not None:
                scan.rows.add(bucket_of(job), _Instance(job, text(row, "task_name"), lasted))
        except InputError as error:
            scan.result.drop("malformed row", f"{place}: {error}")
            if job and form is TASKS:
                scan.rows.add(bucket_of(job), _Bad(job))


def _seen(scan: _Scan, start_s: float) -> None:
    scan.first_s, scan.last_s = min(scan.first_s, start_s), max(scan.last_s, start_s)


def _lasted(row: Row) -> float | None:
    """Return seconds from start to end, None where the row has no end."""
    start_s, end_s = amount(row, "start_time"), amount(row, "end_time")
    if start_s is None or end_s is None or end_s < start_s:
        return None
    return end_s - start_s


def _task(row: Row, job: str, place: str, scan: _Scan) -> _Task | _Bad:
    status = text(row, "status")
    if status not in STATUSES:
        raise InputError("status", f"unknown: {status[:40]!r}")
    lasted, start_s = _lasted(row), amount(row, "start_time")
    if lasted is None or start_s is None:
        scan.result.drop(f"row without a start and an end (status {status})", place)
        return _Bad(job)
    if status != "Terminated":
        scan.counts[f"rows of status {status} are used, as they have times"] += 1
    demand = {
        "vcores": scan.planned(row, "plan_cpu", scan.plan_cpu) / _PERCENT_PER_UNIT,
        "memory_mb": scan.planned(row, "plan_mem", scan.plan_mem) * _MB_PER_GB,
    }
    gpus = (amount(row, "plan_gpu") or 0.0) / _PERCENT_PER_UNIT
    if gpus:
        demand["gpus"] = gpus
    count = task_count(text(row, "inst_num"), "inst_num")
    _seen(scan, start_s)
    return _Task(job, text(row, "task_name") or "task", count, start_s, lasted, demand)


def _jobs(rows: list[Any], scan: _Scan, gang: bool, instances_max: int) -> Iterator[Job]:
    """Yield the jobs of one bucket, which holds all rows of each of its jobs."""
    tasks: dict[str, list[_Task]] = {}
    submitted: dict[str, _Submitted] = {}
    lasted: dict[tuple[str, str], list[float]] = {}
    bad: set[str] = set()
    for row in rows:
        if isinstance(row, _Task):
            tasks.setdefault(row.job, []).append(row)
        elif isinstance(row, _Submitted):
            submitted.setdefault(row.job, row)
        elif isinstance(row, _Instance):
            lasted.setdefault((row.job, row.task), []).append(row.duration_s)
        else:
            bad.add(row.job)
    for name, group in tasks.items():
        if name in bad:
            reason = "row of a job that has an unusable row"
            scan.result.drop(reason, f"job {name}", len(group))
            continue
        said = submitted.get(name)
        first_s = min(task.start_s for task in group)
        taken: set[str] = set()
        stages = tuple(
            _stage(
                task,
                unique(task.name, taken),
                lasted.get((name, task.name), []),
                scan,
                gang,
                instances_max,
            )
            for task in group
        )
        arrival_s = min(first_s, said.start_s) if said else first_s
        yield Job(name, stages, user=said.user if said else "", arrival_s=arrival_s)


def _stage(
    task: _Task, name: str, lasted: list[float], scan: _Scan, gang: bool, instances_max: int
) -> Stage:
    count = task.instances
    if instances_max and count > instances_max:
        what = "instances over the cap of a stage (option instances_max)"
        scan.counts[what] += count - instances_max
        count = instances_max
    if len(lasted) != task.instances:
        if lasted:
            scan.counts["tasks have other numbers of instances in pai_instance_table"] += 1
        return Stage(name, count, task.duration_s, task.demand, gang=gang)
    own = tuple(lasted[:count])
    return Stage(name, count, fmean(own), task.demand, actual_duration_s=own, gang=gang)
