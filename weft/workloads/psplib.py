"""Single-mode instances of PSPLIB (`.sm`): resource-constrained projects, a yardstick for planners.

Kolisch and Sprecher 1996. A project is a job, an activity a stage of one task, a period a second;
the availabilities of the renewable resources are one machine that all tasks have in common.
Archives (`.tar.gz`, `.tar`) of such files are read as folders of them.
"""

import re
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.model.errors import InputError
from weft.model.job import Edge, Job, Stage
from weft.model.jobfile import TASKS_MAX
from weft.workloads.documents import plain_name, read_text
from weft.workloads.imported import Imported
from weft.workloads.reading import each_file, expand, gather

FORMAT = "psplib"
# The largest published instance has 25 kB.
_INSTANCE_BYTES_MAX = 16 << 20
_KINDS = ("renewable", "nonrenewable", "doubly constrained")


@dataclass(frozen=True, slots=True)
class Instance:
    """A project as a job, with the capacity of its one machine by resource."""

    job: Job
    capacity: dict[str, float]


def stream(sources: Sequence[Path], result: Imported, *, share: bool = False) -> Iterator[Job]:
    """Yield one job an instance; with `share`, demands are fractions of the availabilities.

    The availabilities are no part of a job: absolute demands need a cluster of one machine that has
    them, fractions any of one machine with 1 of each resource.
    """
    yield from each_file(
        expand(sources),
        result,
        lambda path: [_shared(i) if share else i.job for i in instances(path)],
    )


def read(sources: Sequence[Path], **options: Any) -> Imported:
    """Return PSPLIB's files; options as of `stream`; raises InputError when none is usable."""
    return gather(stream, sources, options)


def instances(path: Path) -> list[Instance]:
    """Return the instances of a file or archive, by name; raises InputError with file and line."""
    if not path.name.endswith((".tar.gz", ".tgz", ".tar")):
        return [parse(read_text(path), _name(plain_name(path)), str(path))]
    found = []
    try:
        with tarfile.open(path) as archive:
            members = [m for m in archive if m.isfile() and m.name.endswith(".sm")]
            for member in sorted(members, key=lambda m: m.name):
                place = f"{path}: {member.name}"
                content = archive.extractfile(member)
                if content is None or member.size > _INSTANCE_BYTES_MAX:
                    raise InputError(place, f"is larger than {_INSTANCE_BYTES_MAX} bytes")
                text = content.read().decode("utf-8", errors="replace")
                found.append(parse(text, _name(member.name), place))
    except (OSError, EOFError, tarfile.TarError) as error:
        raise InputError(str(path), f"is no readable archive: {error}") from None
    if not found:
        raise InputError(str(path), "holds no .sm file")
    return found


def parse(text: str, name: str, place: str) -> Instance:
    """Return one instance from its text; raises InputError."""
    rows = _Rows(text, place)
    jobs = rows.count("jobs (incl. supersource/sink )", 1, TASKS_MAX)
    kinds = [rows.count(kind, 0, 64) for kind in _KINDS]
    if kinds[0] < 1 or kinds[1] or kinds[2]:
        raise InputError(place, "expected renewable resources only, as single-mode sets have")
    names = [f"r{k + 1}" for k in range(kinds[0])]
    parents: list[list[int]] = [[] for _ in range(jobs)]
    rows.find("PRECEDENCE RELATIONS:", 2)
    for number in range(1, jobs + 1):
        row = rows.numbers(3)
        if row[0] != number or row[1] != 1 or len(row) != 3 + row[2]:
            raise rows.wrong(f"expected job {number}, 1 mode, the number of successors, and them")
        for child in row[3:]:
            if not 1 <= child <= jobs:
                raise rows.wrong(f"names an unknown successor {child}")
            parents[child - 1].append(number)
    rows.find("REQUESTS/DURATIONS:", 3)
    stages = []
    for number in range(1, jobs + 1):
        row = rows.numbers(3 + len(names))
        if row[0] != number or row[1] != 1 or len(row) != 3 + len(names):
            raise rows.wrong(f"expected job {number}, mode 1, a duration and {len(names)} requests")
        demand = {key: float(need) for key, need in zip(names, row[3:], strict=True)}
        above = tuple(Edge(f"a{parent}") for parent in parents[number - 1])
        stages.append(Stage(f"a{number}", 1, float(row[2]), demand, above))
    rows.find("RESOURCEAVAILABILITIES:", 2)
    row = rows.numbers(len(names))
    if len(row) != len(names):
        raise InputError(place, f"{len(row)} availabilities for {len(names)} resources")
    capacity = {key: float(most) for key, most in zip(names, row, strict=True)}
    for stage in stages:
        for key, need in stage.demand.items():
            if need > capacity[key]:
                problem = f"activity {stage.name} requests {need:g} of {key}, there are"
                raise InputError(place, f"{problem} {capacity[key]:g}")
    try:
        return Instance(Job(name, tuple(stages), resources=tuple(names)), capacity)
    except InputError as error:
        raise InputError(place, str(error)) from None


def _name(file: str) -> str:
    return file.rpartition("/")[2].removesuffix(".sm")


def _shared(instance: Instance) -> Job:
    """Return the job with demands as fractions of the machine."""
    capacity = instance.capacity
    stages = tuple(
        Stage(
            stage.name,
            1,
            stage.duration_s,
            {key: need / max(capacity[key], 1.0) for key, need in stage.demand.items()},
            stage.parents,
        )
        for stage in instance.job.stages
    )
    return Job(instance.job.name, stages, resources=instance.job.resources)


class _Rows:
    """The lines of an instance, read from top to bottom."""

    def __init__(self, text: str, place: str) -> None:
        self._lines = text.splitlines()
        self._place = place
        self._next_line = 0

    def wrong(self, problem: str) -> InputError:
        """Return an error about the line read last."""
        return InputError(f"{self._place}:{self._next_line}", problem)

    def find(self, title: str, skip: int) -> None:
        """Go on `skip` lines at or after the line that begins with a title."""
        for number in range(self._next_line, len(self._lines)):
            if self._lines[number].strip() == title:
                self._next_line = number + skip
                return
        raise InputError(self._place, f"has no line {title!r}")

    def count(self, title: str, least: int, most: int) -> int:
        """Return the number behind `title :` in the head."""
        pattern = re.compile(rf"\s*(?:-\s*)?{re.escape(title)}\s*:\s*(\d{{1,9}})\b")
        for line in self._lines[:40]:
            found = pattern.match(line)
            if found and least <= int(found[1]) <= most:
                return int(found[1])
        raise InputError(self._place, f"expected {title!r} with a number from {least} to {most}")

    def numbers(self, least: int) -> list[int]:
        """Return the next line as whole numbers, at least `least`."""
        if self._next_line >= len(self._lines):
            raise InputError(self._place, "ends too early")
        words = self._lines[self._next_line].split()
        self._next_line += 1
        if len(words) < least or not all(
            w.isascii() and w.isdigit() and len(w) < 10 for w in words
        ):
            raise self.wrong(f"expected at least {least} whole numbers")
        return [int(word) for word in words]
