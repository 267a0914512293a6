"""Production DAGs of Alibaba's cluster-trace-v2018, in the forms in which they are handed on.

A row is a task in Alibaba's words and a stage in ours; its instances are our tasks. The columns
are those of `batch_task.csv` (schema: `trace_2018.md` of the trace): no header there, while
derived files have one. Dependencies stand in the name: `J3_1_2` waits for tasks 1 and 2 of its
job. Rows of a job need not be together: files larger than the memory go through `buckets`.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from weft.model.errors import InputError
from weft.model.job import Edge, Job, Stage
from weft.model.jobfile import TASKS_MAX
from weft.workloads.buckets import BUCKETS, Buckets, bucket_of
from weft.workloads.documents import read_lines
from weft.workloads.imported import Imported
from weft.workloads.reading import expand, gather, text_amount, unique
from weft.workloads.table_rows import no_table

FORMAT = "alibaba2018"
BATCH_TASK = (
    "task_name",
    "instance_num",
    "job_name",
    "task_type",
    "status",
    "start_time",
    "end_time",
    "plan_cpu",
    "plan_mem",
)
DURATIONS = ("job_name", "task_name", "mean_instance_duration_s")
TASK_USAGE = (
    "job",
    "name",
    "instances",
    "status",
    "start_time",
    "end_time",
    "expected_duration",
    "actual_duration",
    "cpu_requested",
    "cpu_usage",
    "mem_requested",
    "mem_usage",
)
HOUR_SLICE = (
    "job_submit_s",
    "job_name",
    "task_name",
    "duration_s",
    "plan_cpu",
    "plan_mem",
    "instance_num",
)
STATUSES = ("Terminated", "Failed", "Running", "Waiting", "Ready", "Cancelled")
_NAME = re.compile(r"[A-Za-z]+(\d+)((?:_\d+)*)(_.*)?")
_CPU_PER_CORE = 100.0


class _Row(NamedTuple):
    """One row of whatever form; amounts are of one instance, in the trace's units."""

    file: int
    job: str
    name: str
    instances: int
    start_s: float
    duration_s: float
    # The duration was computed as end - start.
    by_clock: bool
    cpu: float
    memory: float
    cpu_used: float | None
    memory_used: float | None


class _Duration(NamedTuple):
    job: str
    name: str
    duration_s: float


class _Bad(NamedTuple):
    """A job with an unusable row: its DAG would have a hole, so that it is dropped."""

    file: int
    job: str
    reason: str


@dataclass(slots=True)
class _Scan:
    """The first pass: options, what the rows spread into, and what was seen on the way."""

    result: Imported
    plan_cpu: float
    plan_mem: float
    rows: Buckets = field(default_factory=Buckets)
    first_s: dict[int, float] = field(default_factory=dict)
    last_s: dict[int, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    # It counts the rows of all files.
    seen: int = 0

    def count(self, what: str, amount: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + amount

    def planned(self, text: str, default: float, what: str) -> float:
        """Return a planned amount, or the stated default where it is blank."""
        if text:
            return text_amount(text, what)
        self.count(f"rows with a blank {what}, for which {default:g} is assumed")
        return default


def stream(
    sources: Sequence[Path],
    result: Imported,
    *,
    machine_memory_mb: float = 393216.0,
    plan_cpu: float = 100.0,
    plan_mem: float = 0.39,
    instances_max: int = 0,
    jobs_max: int = 0,
) -> Iterator[Job]:
    """Yield jobs in order of arrival, in bounded memory; arrivals count from each file's first.

    `plan_mem` of the trace is in percent of a machine whose size is not published:
    `machine_memory_mb` is assumed. `plan_cpu` (100 = one core) and `plan_mem` replace blank
    values. `instances_max` caps the tasks of a stage and `jobs_max` the jobs; 0 is no cap.
    """
    if min(machine_memory_mb, plan_cpu, plan_mem, instances_max, jobs_max) < 0:
        raise InputError("options", "expected numbers >= 0")
    scan = _Scan(result, plan_cpu, plan_mem)
    refused: InputError | None = None
    for number, path in enumerate(expand(sources)):
        seen = scan.seen
        try:
            _scan_file(path, number, scan)
        except InputError as error:
            if scan.seen > seen:
                # A part of its rows must not pass for the whole.
                raise
            refused = refused or error
            result.warnings.append(str(error))
            result.dropped["unusable file"] += 1
    if not scan.first_s:
        why = f"; {result.why()}" if result.dropped else ""
        raise refused or InputError(", ".join(map(str, sources)), f"no row that can be used{why}")
    result.warnings.append(
        "alibaba2018: memory is published in percent of a machine: "
        f"{machine_memory_mb:g} MB a machine is assumed (option machine_memory_mb)"
    )
    span_s = max(scan.last_s[n] - scan.first_s[n] for n in scan.first_s)
    ordered = Buckets()
    for rows in scan.rows.drain():
        for job in _jobs(rows, scan, machine_memory_mb / 100, instances_max):
            ordered.add(int(job.arrival_s / (span_s or 1) * (BUCKETS - 1)), job)
    given = 0
    for jobs in ordered.drain():
        jobs.sort(key=lambda job: (job.arrival_s, job.name))
        left = jobs if not jobs_max else jobs[: max(0, jobs_max - given)]
        given += len(left)
        if len(left) < len(jobs):
            scan.count(f"jobs after the first {jobs_max} (option jobs_max)", len(jobs) - len(left))
        yield from left
    result.warnings.extend(f"alibaba2018: {count} {what}" for what, count in scan.counts.items())
    if not given and not jobs_max:
        why = f"; {result.why()}" if result.dropped else ""
        raise InputError(", ".join(map(str, sources)), f"no job that can be used{why}")


def read(sources: Sequence[Path], **options: Any) -> Imported:
    """Return Alibaba's batch jobs; options as of `stream`; raises InputError when none is."""
    return gather(stream, sources, options)


def _scan_file(path: Path, number: int, scan: _Scan) -> None:
    reader: Callable[[list[str], int, _Scan], _Row | _Duration | _Bad] | None = None
    columns = 0
    for line_number, line in read_lines(path, 2**16):
        if not line.strip():
            continue
        fields = line.split(",")
        if reader is None:
            reader, columns, header = _form(fields, path)
            if header:
                continue
        scan.seen += 1
        where = f"{path} line {line_number}"
        if len(fields) != columns:
            scan.result.drop(f"row that has not {columns} columns", where)
            continue
        try:
            row = reader(fields, number, scan)
        except InputError as error:
            scan.result.drop("malformed row", f"{where}: {error}")
            continue
        if isinstance(row, _Bad):
            scan.result.drop(row.reason, where)
        elif isinstance(row, _Row):
            scan.first_s[number] = min(row.start_s, scan.first_s.get(number, row.start_s))
            scan.last_s[number] = max(row.start_s, scan.last_s.get(number, row.start_s))
        scan.rows.add(bucket_of(row.job), row)
    if reader is None:
        raise InputError(str(path), "is empty")


def _form(fields: list[str], path: Path) -> tuple[Any, int, bool]:
    """Return which of the four forms a file has, by its first line, and if that is a header."""
    names = tuple(name.strip() for name in fields)
    for columns, reader in (
        (DURATIONS, _duration),
        (TASK_USAGE, _task_usage),
        (HOUR_SLICE, _hour_slice),
        (BATCH_TASK, _batch_task),
    ):
        if names == columns:
            return reader, len(columns), True
    if len(fields) == len(BATCH_TASK) and fields[4] in STATUSES:
        return _batch_task, len(BATCH_TASK), False
    why = "neither batch_task rows nor a header of a known form"
    forms = {"batch_task": BATCH_TASK, "hour_slice": HOUR_SLICE, "task_usage": TASK_USAGE}
    if set(names) & set(sum(forms.values(), ())):
        why += f": it {no_table(names, forms)}"
    raise InputError(f"{path} line 1", why)


def _instances(text: str) -> int:
    number = text_amount(text, "instances")
    if number != int(number) or not 1 <= number <= TASKS_MAX:
        raise InputError("instances", f"expected a count from 1 to {TASKS_MAX}, got {text[:40]!r}")
    return int(number)


def _batch_task(fields: list[str], file: int, scan: _Scan) -> _Row | _Bad:
    name, instances, job, _, status, start, end, cpu, memory = fields
    if status not in STATUSES:
        raise InputError("status", f"unknown: {status[:40]!r}")
    if not instances:
        return _Bad(file, job, f"row without instances (status {status})")
    start_s, end_s = text_amount(start, "start_time"), text_amount(end, "end_time")
    if end_s < start_s or (not end_s and status != "Terminated"):
        return _Bad(file, job, f"row without an end (status {status})")
    if status != "Terminated":
        scan.count(f"rows of status {status} are used, as they have times")
    return _Row(
        file,
        job,
        name,
        _instances(instances),
        start_s,
        end_s - start_s,
        True,
        scan.planned(cpu, scan.plan_cpu, "plan_cpu"),
        scan.planned(memory, scan.plan_mem, "plan_mem"),
        None,
        None,
    )


def _duration(fields: list[str], file: int, scan: _Scan) -> _Duration:
    return _Duration(fields[0], fields[1], text_amount(fields[2], "mean_instance_duration_s"))


def _task_usage(fields: list[str], file: int, scan: _Scan) -> _Row | _Bad:
    """Return a row; usage is summed over the instances here, so it is divided by their number."""
    job, name, instances, status, start, _, _, actual, cpu, cpu_used, memory, memory_used = fields
    if not instances:
        return _Bad(file, job, f"row without instances (status {status})")
    count = _instances(instances)
    return _Row(
        file,
        job,
        name,
        count,
        text_amount(start, "start_time"),
        text_amount(actual, "actual_duration"),
        False,
        scan.planned(cpu, scan.plan_cpu, "plan_cpu"),
        scan.planned(memory, scan.plan_mem, "plan_mem"),
        text_amount(cpu_used, "cpu_usage") / count if cpu_used else None,
        text_amount(memory_used, "mem_usage") / count if memory_used else None,
    )


def _hour_slice(fields: list[str], file: int, scan: _Scan) -> _Row | _Bad:
    submit, job, name, duration, cpu, memory, instances = fields
    if not instances:
        return _Bad(file, job, "row without instances")
    return _Row(
        file,
        job,
        name,
        _instances(instances),
        text_amount(submit, "job_submit_s"),
        text_amount(duration, "duration_s"),
        True,
        scan.planned(cpu, scan.plan_cpu, "plan_cpu"),
        scan.planned(memory, scan.plan_mem, "plan_mem"),
        None,
        None,
    )


def _jobs(
    rows: list[_Row | _Duration | _Bad], scan: _Scan, memory_mb: float, instances_max: int
) -> Iterator[Job]:
    """Yield the jobs of one bucket, which holds all rows of each of its jobs."""
    tasks: dict[tuple[int, str], list[_Row]] = {}
    bad: set[tuple[int, str]] = set()
    means: dict[tuple[str, str], float] = {}
    for row in rows:
        if isinstance(row, _Duration):
            means[row.job, row.name] = row.duration_s
        elif isinstance(row, _Bad):
            bad.add((row.file, row.job))
        else:
            tasks.setdefault((row.file, row.job), []).append(row)
    for key, group in tasks.items():
        if key in bad:
            scan.result.drop("row of a job that has an unusable row", f"job {key[1]}", len(group))
            continue
        try:
            yield _job(group, means, scan, memory_mb, instances_max)
        except InputError as error:
            scan.result.drop(
                "row of a job whose DAG cannot be read", f"job {key[1]}: {error}", len(group)
            )


def _job(
    rows: list[_Row],
    means: dict[tuple[str, str], float],
    scan: _Scan,
    memory_mb: float,
    instances_max: int,
) -> Job:
    parents = _parents(rows, scan)
    taken: set[str] = set()
    stages = []
    for row, edges in zip(rows, parents, strict=True):
        duration_s = row.duration_s
        if row.by_clock and (row.job, row.name) in means:
            duration_s = means[row.job, row.name]
        elif row.by_clock:
            scan.count("stages last end - start, which includes waiting for their parents")
        if duration_s == 0:
            scan.count("stages last 0 s: under the trace's clock of 1 s")
        tasks = row.instances
        if instances_max and tasks > instances_max:
            scan.count(
                "instances over the cap of a stage (option instances_max)", tasks - instances_max
            )
            tasks = instances_max
        used = {}
        if row.cpu_used is not None and row.memory_used is not None:
            used = {
                "vcores": row.cpu_used / _CPU_PER_CORE,
                "memory_mb": row.memory_used * memory_mb,
            }
        demand = {"vcores": row.cpu / _CPU_PER_CORE, "memory_mb": row.memory * memory_mb}
        stages.append(
            Stage(
                unique(row.name, taken),
                tasks,
                duration_s,
                demand,
                edges,
                actual_demand=used or None,
            )
        )
    first = rows[0]
    arrival_s = min(row.start_s for row in rows) - scan.first_s[first.file]
    return Job(first.job, tuple(stages), arrival_s=arrival_s)


def _parents(rows: list[_Row], scan: _Scan) -> list[tuple[Edge, ...]]:
    """Return edges from the numbers in the tasks' names; raises InputError for one held by two."""
    numbered: dict[int, str] = {}
    wanted: list[list[int]] = []
    for row in rows:
        match = _NAME.fullmatch(row.name)
        if match is None or len(row.name) > 1000:
            scan.count("stages have names without DAG information: they wait for nothing")
            wanted.append([])
            continue
        number = int(match[1])
        if number in numbered:
            raise InputError(row.name, f"has the number of {numbered[number]!r}")
        numbered[number] = row.name
        above = [int(text) for text in match[2].split("_") if text]
        wanted.append([parent for parent in dict.fromkeys(above) if parent != number])
        if len(wanted[-1]) < len(above):
            scan.count(
                "edges are named twice or lead from a task to itself", len(above) - len(wanted[-1])
            )
        if match[3] == "_":
            scan.count("stages have a name that is cut off: parents may be missing")
    answer = []
    for numbers in wanted:
        known = [number for number in numbers if number in numbered]
        if len(known) < len(numbers):
            scan.count("edges name a task that the files do not have", len(numbers) - len(known))
        answer.append(tuple(Edge(numbered[number]) for number in known))
    return answer
