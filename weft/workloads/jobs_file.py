"""Weft's own job files, read and written: JSON, YAML, or JSON lines, plain, gzip or zstd.

A `.json` or `.yaml` file holds one job, a list of jobs, or `{jobs: [...]}`; a YAML file may hold
several documents. A `.jsonl` file holds one job a line and is read and written line by line, so
that a workload may be larger than the memory.
"""

import gzip
import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
import zstandard

from weft.model.errors import InputError, WeftError
from weft.model.job import Job
from weft.model.jobfile import job_from_dict, job_to_dict
from weft.workloads.documents import (
    load_document,
    load_documents,
    parse_json,
    plain_name,
    read_lines,
)
from weft.workloads.imported import Imported
from weft.workloads.reading import gather

__all__ = ["FORMAT", "load_document", "load_jobs", "read", "read_jobs", "stream", "write_jobs"]

FORMAT = "weft"


def read_jobs(path: Path | str) -> Iterator[Job]:
    """Yield the jobs of one file, in file order; raises InputError with file and place.

    A `.jsonl` file is read as it is consumed, so its faults surface where they stand.
    """
    path = Path(path)
    if plain_name(path).lower().endswith((".jsonl", ".ndjson")):
        found = False
        for number, line in read_lines(path):
            if line.strip():
                found = True
                place = f"{path} line {number}"
                yield _job(parse_json(line, place), place, "")
        if not found:
            raise InputError(str(path), "holds no job")
        return
    items = [item for document in load_documents(path) for item in _items(document, str(path))]
    if not items:
        raise InputError(str(path), "holds no job")
    for place, item in items:
        yield _job(item, str(path), place)


def load_jobs(paths: Iterable[Path | str]) -> list[Job]:
    """Return all jobs of several files, in order; raises InputError with file and place."""
    return [job for path in paths for job in read_jobs(path)]


def stream(sources: Sequence[Path], result: Imported) -> Iterator[Job]:
    """Yield what `read_jobs` does, for several files: one bad job refuses the import."""
    for path in sources:
        yield from read_jobs(path)


def read(sources: Sequence[Path], **options: Any) -> Imported:
    """Return job files as an import; raises InputError with file and place."""
    return gather(stream, sources, options)


def write_jobs(path: Path | str, jobs: Iterable[Job]) -> int:
    """Write jobs and return how many; the file appears whole or not at all.

    The suffix decides: `.jsonl` (one job a line, consumed as they come), `.json`, `.yaml`; each
    may be followed by `.gz` or `.zst`. The same jobs give the same bytes.
    """
    path = Path(path)
    name = plain_name(path).lower()
    kinds = {".jsonl": _jsonl, ".ndjson": _jsonl, ".json": _json, ".yaml": _yaml, ".yml": _yaml}
    suffix = Path(name).suffix
    if suffix not in kinds:
        raise InputError(str(path), "the name must end in .jsonl, .json or .yaml (.gz, .zst)")
    count = 0

    def counted() -> Iterator[dict[str, Any]]:
        nonlocal count
        for job in jobs:
            count += 1
            yield job_to_dict(_finite(job))

    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with _packed(partial, path.suffix.lower()) as out:
            for piece in kinds[suffix](counted()):
                out.write(piece)
        os.replace(partial, path)
    except OSError as error:
        raise WeftError(f"{path}: cannot be written: {error.strerror or error}") from None
    finally:
        partial.unlink(missing_ok=True)
    return count


def _finite(job: Job) -> Job:
    """Return the job; raises InputError where a number of it is infinite or none."""
    for stage in job.stages:
        demands = (stage.demand, stage.actual_demand or {})
        numbers = (job.arrival_s, stage.duration_s, *(v for each in demands for v in each.values()))
        if not all(map(math.isfinite, numbers)):
            raise InputError(f"job {job.name!r}: {stage.name}", "holds a number that is not finite")
    return job


def _items(document: Any, place: str) -> list[tuple[str, Any]]:
    if isinstance(document, dict) and set(document) == {"jobs"}:
        if not isinstance(document["jobs"], list):
            raise InputError(f"{place}: jobs", "expected a list of jobs")
        return [(f"jobs[{i}]", job) for i, job in enumerate(document["jobs"])]
    if isinstance(document, list):
        return [(f"jobs[{i}]", job) for i, job in enumerate(document)]
    return [("", document)]


def _job(data: Any, place: str, path: str) -> Job:
    try:
        return job_from_dict(data, path)
    except InputError as error:
        raise InputError(f"{place}: {error.place}", error.problem) from None


def _jsonl(tables: Iterator[dict[str, Any]]) -> Iterator[bytes]:
    for table in tables:
        yield json.dumps(table, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def _json(tables: Iterator[dict[str, Any]]) -> Iterator[bytes]:
    jobs = list(tables)
    document: Any = jobs[0] if len(jobs) == 1 else {"jobs": jobs}
    yield json.dumps(document, indent=1, allow_nan=False).encode() + b"\n"


def _yaml(tables: Iterator[dict[str, Any]]) -> Iterator[bytes]:
    jobs = list(tables)
    document: Any = jobs[0] if len(jobs) == 1 else {"jobs": jobs}
    yield yaml.dump(document, Dumper=_Dumper, sort_keys=False, encoding="utf-8", allow_unicode=True)


class _Dumper(yaml.CSafeDumper):  # type: ignore[misc, name-defined, unused-ignore]
    """Writes no aliases, since none are read."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: _Dumper, value: str) -> Any:
    """Return a text quoted, unless no reader of any YAML version could take it for another type."""
    style = None if re.fullmatch(r"[A-Za-z_][\w-]{5,}", value) else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


@contextmanager
def _packed(path: Path, suffix: str) -> Iterator[Any]:
    with path.open("wb") as raw:
        if suffix == ".gz":
            with gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as out:
                yield out
        elif suffix in (".zst", ".zstd"):
            with zstandard.ZstdCompressor().stream_writer(raw, closefd=False) as packed:
                yield packed
        else:
            yield raw
