"""Standard Workload Format 2.2 (`.swf`), of the Parallel Workloads Archive.

A line is a rigid parallel job in 18 fields, and -1 stands for what is not known. It becomes a job
of one stage, a gang where it has several processors: a task a processor. The requested time is what
schedulers are told, the run time what is true; the requested memory, in kB a processor, is the
demand, or else the used memory. Lines that begin with `;` are comments, some of which say how large
the machine was.
"""

import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from weft.model.errors import InputError
from weft.model.job import Job, Stage
from weft.model.jobfile import TASKS_MAX
from weft.workloads.documents import read_lines
from weft.workloads.imported import Imported
from weft.workloads.reading import expand, gather

FORMAT = "swf"
FIELDS = 18
_HEADER = re.compile(r";\s*(\w+):\s*(.*?)\s*$")
_CANCELLED = 5
_MACHINE = ("MaxNodes", "MaxProcs")


class Record(NamedTuple):
    """The fields that are used, by their names in the definition; times in s, memory in kB."""

    number: int
    submit_s: float
    run_s: float
    allocated: int
    used_memory_kb: float
    requested: int
    requested_s: float
    requested_memory_kb: float
    status: int
    user: int
    queue: int
    preceding: int


_POSITIONS = (1, 2, 4, 5, 7, 8, 9, 10, 11, 12, 15, 17)


def stream(
    sources: Sequence[Path], result: Imported, *, gangs: bool = True, queues: bool = False
) -> Iterator[Job]:
    """Yield a job a line, in the order of the files; the first submission is at 0 s.

    `gangs=false`: a job's tasks may start one by one. `queues=true`: jobs keep the log's queue
    numbers as `q1`, `q2`, ..., which the cluster then needs.
    """
    first_s: float | None = None
    for path in expand(sources):
        header: dict[str, str] = {}
        for number, line in read_lines(path):
            place = f"{path} line {number}"
            if found := _HEADER.match(line):
                header[found[1]] = found[2]
            if not line.strip() or line.lstrip().startswith(";"):
                continue
            record = _record(line)
            if isinstance(record, str):
                result.drop(record, place)
                continue
            if why := _unusable(record):
                result.drop(why, place)
                continue
            if record.preceding > 0:
                result.drop("waits for another job, which jobs here cannot", place, 0)
            first_s = record.submit_s if first_s is None else first_s
            yield _job(record, max(0.0, record.submit_s - first_s), gangs, queues)
        if machine := ", ".join(f"{name} {header[name]}" for name in _MACHINE if name in header):
            result.warnings.append(f"{path}: its machine had {machine}")
    if first_s is None:
        why = f": {first}" if (first := result.why()) else ""
        raise InputError(str(sources[0]), f"holds no job that can be used{why}")


def read(sources: Sequence[Path], **options: Any) -> Imported:
    """Return the logs' jobs; options as of `stream`; raises InputError when none is usable."""
    return gather(stream, sources, options)


def _record(line: str) -> Record | str:
    """Return what a line says, or why it is none."""
    fields = line.split()
    if len(fields) < FIELDS:
        return f"expected {FIELDS} fields, got {len(fields)}"
    values = [_number(fields[at - 1]) for at in _POSITIONS]
    for at, value in zip(_POSITIONS, values, strict=True):
        if math.isnan(value):
            return f"field {at} is no number"
    kinds = Record.__annotations__.values()
    return Record(*(kind(value) for kind, value in zip(kinds, values, strict=True)))


def _number(text: str) -> float:
    """Return a finite number; NaN for what is none."""
    try:
        number = float(text)
    except ValueError:
        return math.nan
    return number if math.isfinite(number) else math.nan


def _unusable(record: Record) -> str:
    """Return why a line is no job; "": it is one."""
    processors = _processors(record)
    if record.submit_s < 0:
        return "no time of submission"
    if record.run_s < 0 or (record.status == _CANCELLED and record.run_s == 0):
        return "it never ran"
    if processors < 1:
        return "no number of processors"
    return f"more than {TASKS_MAX} processors" if processors > TASKS_MAX else ""


def _processors(record: Record) -> int:
    return record.requested if record.requested > 0 else record.allocated


def _job(record: Record, arrival_s: float, gangs: bool, queues: bool) -> Job:
    memory_kb = next((m for m in (record.requested_memory_kb, record.used_memory_kb) if m > 0), 0)
    estimate_s = record.requested_s if record.requested_s >= 0 else record.run_s
    processors = _processors(record)
    stage = Stage(
        "run",
        processors,
        estimate_s,
        {"vcores": 1.0, "memory_mb": memory_kb / 1024.0},
        actual_duration_s=record.run_s,
        gang=gangs and processors > 1,
    )
    return Job(
        f"job{record.number}",
        (stage,),
        arrival_s=arrival_s,
        user=f"user{record.user}" if record.user >= 0 else "",
        queue=f"q{record.queue}" if queues and record.queue >= 0 else "default",
    )
