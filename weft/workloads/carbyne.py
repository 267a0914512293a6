"""Stage DAGs with six demands per task, in the text format of the Carbyne simulator's workloads.

Demands are fractions of one machine. The format names no resources; the first two are read as CPU
and memory, the other four keep their numbers: `cpu memory r3 r4 r5 r6`, each machine having 1.0.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from weft.model.errors import InputError
from weft.model.job import Edge, EdgeKind, Job, Stage
from weft.workloads.documents import read_lines
from weft.workloads.imported import Imported
from weft.workloads.reading import each_file, expand, gather, task_count, text_amount, unique

FORMAT = "carbyne"
RESOURCES = ("cpu", "memory", "r3", "r4", "r5", "r6")
STAGES_MAX = 100_000
_EDGE_KINDS = {
    "ata": EdgeKind.ALL_TO_ALL,
    # In scatter-gather every task reads a part of every parent task.
    "scg": EdgeKind.ALL_TO_ALL,
    "oto": EdgeKind.ONE_TO_ONE,
}


@dataclass(slots=True)
class _Lines:
    """The lines of one job, consumed from the top; places are file and line."""

    path: Path
    title: str
    number: int
    lines: list[tuple[int, str]]
    at: int = 0

    def next(self, what: str) -> tuple[str, list[str]]:
        if self.at >= len(self.lines):
            raise InputError(f"{self.path} line {self.number}", f"the job ends before its {what}")
        number, line = self.lines[self.at]
        self.at += 1
        return f"{self.path} line {number}", line.split()


def stream(sources: Sequence[Path], result: Imported) -> Iterator[Job]:
    """Yield jobs of text files, a file at a time; malformed jobs are dropped with their reason."""
    yield from each_file(expand(sources), result, lambda path: _read_file(path, result))


def read(sources: Sequence[Path], **options: Any) -> Imported:
    """Return Carbyne's text workloads; raises InputError when no job can be used."""
    return gather(stream, sources, options)


def _read_file(path: Path, result: Imported) -> list[Job]:
    jobs: list[Job] = []
    first: InputError | None = None
    for lines in _split(path):
        if not lines.lines:
            result.dropped["job header without a job"] += 1
            result.warnings.append(f"{path} line {lines.number}: no job under {lines.title!r}")
            continue
        try:
            jobs.append(_job(lines, result))
        except InputError as error:
            first = first or error
            result.dropped["malformed job"] += 1
            result.warnings.append(f"job {lines.title!r} dropped: {error}")
    if not jobs:
        raise first or InputError(str(path), "holds no job of the Carbyne text format")
    return jobs


def _split(path: Path) -> Iterator[_Lines]:
    current: _Lines | None = None
    for number, line in read_lines(path, 2**20):
        if line.startswith("#"):
            if current is not None:
                yield current
            current = _Lines(path, line[1:].strip(), number, [])
        elif line.strip():
            if current is None:
                raise InputError(f"{path} line {number}", "expected a job header, '# <n>: <name>'")
            current.lines.append((number, line))
    if current is not None:
        yield current


def _job(lines: _Lines, result: Imported) -> Job:
    place, header = lines.next("header")
    if len(header) not in (2, 3):
        raise InputError(place, "expected '<number of stages> <dag id> [<arrival time>]'")
    count = task_count(header[0], place)
    if count > STAGES_MAX:
        raise InputError(place, f"{count} stages are more than the limit of {STAGES_MAX}")
    arrival_s = text_amount(header[2], place) if len(header) == 3 else 0.0
    rows = [_stage(*lines.next(f"stage {i + 1} of {count}")) for i in range(count)]
    parents = _edges(lines, [row.name for row in rows], result)
    taken: set[str] = set()
    stages = []
    for row in rows:
        name = unique(row.name, taken)
        if name != row.name:
            result.warnings.append(
                f"{lines.path} line {lines.number}: job {lines.title!r} has two stages "
                f"{row.name!r} (without edges); one is renamed {name!r}"
            )
        stages.append(replace(row, name=name, parents=tuple(parents.get(row.name, ()))))
    title = lines.title.partition(":")[2].strip() or lines.title.strip() or header[1]
    name = f"job-{title}" if title.isdigit() else title
    return Job(name, tuple(stages), arrival_s=arrival_s, history_key=name, resources=RESOURCES)


def _stage(place: str, row: list[str]) -> Stage:
    if len(row) != 9:
        raise InputError(
            place, f"a stage line has 9 fields (name, duration, r1..r6, tasks), this has {len(row)}"
        )
    amounts = [text_amount(field, place) for field in row[1:8]]
    for name, amount in zip(RESOURCES, amounts[1:], strict=True):
        if amount > 1:
            raise InputError(place, f"demand of {amount:g} machines of {name}: over one machine")
    return Stage(
        name=row[0],
        tasks=task_count(row[8], place),
        duration_s=amounts[0],
        demand=dict(zip(RESOURCES, amounts[1:], strict=True)),
    )


def _edges(lines: _Lines, names: list[str], result: Imported) -> dict[str, list[Edge]]:
    place, row = lines.next("number of edges")
    if len(row) != 1:
        raise InputError(place, f"expected the number of edges, got {' '.join(row)[:60]!r}")
    twice = {a for a, b in pairwise(sorted(names)) if a == b}
    known = set(names)
    parents: dict[str, list[Edge]] = {}
    count = int(text_amount(row[0], place))
    for number in range(count):
        place, row = lines.next(f"edge {number + 1} of {count}")
        if len(row) != 3:
            raise InputError(place, "expected '<source stage> <destination stage> <pattern>'")
        source, target, pattern = row
        for name in (source, target):
            if name not in known:
                raise InputError(place, f"the edge names stage {name!r}, which does not exist")
            if name in twice:
                raise InputError(place, f"the edge names {name!r}, which two stages are called")
        if pattern not in _EDGE_KINDS:
            raise InputError(place, f"unknown edge pattern {pattern!r}; known: ata, scg, oto")
        found = parents.setdefault(target, [])
        if any(edge.stage == source for edge in found):
            result.dropped["edge given twice"] += 1
            continue
        found.append(Edge(source, _EDGE_KINDS[pattern]))
    if lines.at < len(lines.lines):
        place = f"{lines.path} line {lines.lines[lines.at][0]}"
        raise InputError(place, "more lines than the job's counts of stages and edges say")
    return parents
