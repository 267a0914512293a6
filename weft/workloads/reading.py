"""What importers share: finding files, collecting jobs, and reading numbers of untrusted rows."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from weft.model.errors import InputError
from weft.model.job import Job
from weft.model.jobfile import TASKS_MAX
from weft.workloads.buckets import BUCKETS, Buckets
from weft.workloads.imported import Imported

# It is called with (sources, result, **options) and fills the result as it goes.
Stream = Callable[..., Iterator[Job]]
# Such an amount of a row is still a number when multiplied by a unit.
AMOUNT_MAX = 1e18


def gather(stream: Stream, sources: Sequence[Path], options: Mapping[str, Any]) -> Imported:
    """Run a streaming importer to its end and hold all of its jobs."""
    result = Imported()
    result.jobs.extend(stream(sources, result, **options))
    return result


def expand(sources: Sequence[Path]) -> list[Path]:
    """Return the files meant: a folder stands for its files, sorted, hidden ones left out."""
    files: list[Path] = []
    for source in sources:
        path = Path(source)
        if not path.is_dir():
            files.append(path)
            continue
        files.extend(
            found
            for found in sorted(path.rglob("*"))
            if found.is_file()
            and not any(part.startswith(".") for part in found.relative_to(path).parts)
        )
    if not files:
        raise InputError(", ".join(map(str, sources)) or "sources", "no file to read")
    return files


def each_file(
    files: Sequence[Path], result: Imported, parse: Callable[[Path], list[Job]]
) -> Iterator[Job]:
    """Yield jobs file by file; an unusable file is warned about and counted, the others are read.

    Raises InputError with the first reason when no file gave a job.
    """
    first: InputError | None = None
    found = False
    for path in files:
        try:
            jobs = parse(path)
        except InputError as error:
            first = first or error
            if not any(str(error) in warning for warning in result.warnings):
                result.warnings.append(str(error))
            result.dropped["unusable file"] += 1
            continue
        found = found or bool(jobs)
        yield from jobs
    if not found:
        raise first or InputError(str(files[0]), "holds no job that can be used")


def in_order(
    jobs: Iterable[Job], span_s: tuple[float, float], jobs_max: int, result: Imported
) -> Iterator[Job]:
    """Yield jobs by arrival, in bounded memory; the first one arrives at 0.

    `span_s` holds all arrivals. At most `jobs_max` are given (0: all); the rest is said.
    """
    ordered = Buckets()
    low_s, wide_s = span_s[0], max(span_s[1] - span_s[0], 1e-9)
    for job in jobs:
        part = min(1.0, max(0.0, (job.arrival_s - low_s) / wide_s))
        ordered.add(int(part * (BUCKETS - 1)), job)
    given = left_out = 0
    first_s: float | None = None
    for some in ordered.drain():
        some.sort(key=lambda job: (job.arrival_s, job.name))
        for job in some:
            if jobs_max and given >= jobs_max:
                left_out += 1
                continue
            given += 1
            first_s = job.arrival_s if first_s is None else first_s
            yield replace(job, arrival_s=job.arrival_s - first_s)
    if left_out:
        result.warnings.append(f"{left_out} jobs after the first {jobs_max} (option jobs_max)")


def text_amount(text: str, place: str) -> float:
    """Return a number of a text row, from 0 to `AMOUNT_MAX`; raises InputError."""
    try:
        number = float(text)
    except ValueError:
        raise InputError(place, f"expected a number, got {text[:40]!r}") from None
    if not math.isfinite(number) or number < 0:
        raise InputError(place, f"expected a finite number >= 0, got {text[:40]!r}")
    if number > AMOUNT_MAX:
        raise InputError(place, f"{text[:40]!r} is more than the limit of {AMOUNT_MAX:g}")
    return number


def task_count(value: object, place: str) -> int:
    """Return how many tasks a stage has, of a number or text: 1 to TASKS_MAX; raises InputError."""
    number = text_amount(str(value)[:400], place)
    if isinstance(value, bool) or number != int(number) or not 1 <= number <= TASKS_MAX:
        raise InputError(place, f"expected a count from 1 to {TASKS_MAX}, got {str(value)[:40]!r}")
    return int(number)


def table(value: object, place: str) -> dict[str, Any]:
    """Return a JSON object; raises InputError when the value is anything else."""
    if not isinstance(value, dict):
        raise InputError(place, f"expected an object, got {type(value).__name__}")
    return value


def items(value: object, place: str) -> list[Any]:
    """Return a JSON array; raises InputError when the value is anything else."""
    if not isinstance(value, list):
        raise InputError(place, f"expected a list, got {type(value).__name__}")
    return value


def unique(name: str, taken: set[str]) -> str:
    """Return a name that is not yet taken: the name itself, else with the first free number."""
    free, number = name, 1
    while free in taken:
        number += 1
        free = f"{name}_{number}"
    taken.add(free)
    return free
