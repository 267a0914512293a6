"""Jobs of Google's cluster traces of 2019 (version 3), as exported from BigQuery.

Read are the tables `instance_events` and, where they are there, `collection_events`, as lines of
JSON, Parquet or CSV (schema: `clusterdata_trace_format_v3.proto` of google/cluster-data). A
collection of type JOB is a stage, its instances are the tasks. Collections that may start only
after others (`start_after_collection_ids`) are one job with them; all others are jobs by
themselves. Times are in microseconds, requests in parts of the largest machine.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from weft.model.errors import InputError
from weft.model.job import Edge, Job, Stage, TaskOverride
from weft.workloads.buckets import Buckets, bucket_of
from weft.workloads.imported import Imported
from weft.workloads.reading import expand, gather, in_order
from weft.workloads.table_rows import Row, amount, columns_of, needed, rows_of, text, whole

FORMAT = "google2019"
INSTANCE_EVENTS = (
    "time",
    "type",
    "collection_id",
    "scheduling_class",
    "missing_type",
    "collection_type",
    "priority",
    "alloc_collection_id",
    "instance_index",
    "machine_id",
    "alloc_instance_index",
    "resource_request",
    "constraint",
)
COLLECTION_EVENTS = (
    "time",
    "type",
    "collection_id",
    "scheduling_class",
    "missing_type",
    "collection_type",
    "priority",
    "alloc_collection_id",
    "user",
    "collection_name",
    "collection_logical_name",
    "parent_collection_id",
    "start_after_collection_ids",
    "max_per_machine",
    "max_per_switch",
    "vertical_scaling",
    "scheduler",
)
EVENTS = (
    "SUBMIT",
    "QUEUE",
    "ENABLE",
    "SCHEDULE",
    "EVICT",
    "FAIL",
    "FINISH",
    "KILL",
    "LOST",
    "UPDATE_PENDING",
    "UPDATE_RUNNING",
)
SUBMIT, SCHEDULE, EVICT, FAIL, FINISH, KILL, LOST = 0, 3, 4, 5, 6, 7, 8
_ENDS = (EVICT, FAIL, FINISH, KILL, LOST)
_AFTER_TRACE_US = 2**63 - 1
# Columns of a flattened CSV begin so.
_FLAT = ("resource_request.", "resource_request_")


class _Event(NamedTuple):
    """One event of an instance; what it requests is None where the row does not say it."""

    collection: int
    instance: int
    time_us: int
    kind: int
    cpus: float | None
    memory: float | None


class _Collection(NamedTuple):
    """What a collection's events say of it, apart from the order."""

    collection: int
    time_us: int
    user: str
    logical_name: str
    priority: int


@dataclass(slots=True)
class _Scan:
    """The rows by job, the order of collections, and what was seen on the way."""

    result: Imported
    rows: Buckets = field(default_factory=Buckets)
    after: dict[int, tuple[int, ...]] = field(default_factory=dict)
    # It is the parent in the union-find; roots are absent.
    above: dict[int, int] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    first_us: int = _AFTER_TRACE_US
    last_us: int = 0

    def root(self, collection: int) -> int:
        """Return the collection that stands for all that are joined with this one."""
        while collection in self.above:
            above = self.above[collection]
            self.above[collection] = self.above.get(above, above)
            collection = above
        return collection

    def join(self, collection: int, after: tuple[int, ...]) -> None:
        """Note that a collection starts after others: they are of one job."""
        self.after[collection] = after
        for other in after:
            one, two = sorted((self.root(collection), self.root(other)))
            if one != two:
                self.above[two] = one

    def add(self, row: _Event | _Collection) -> None:
        """Put a row to those of its job."""
        if 0 < row.time_us < _AFTER_TRACE_US:
            self.first_us = min(self.first_us, row.time_us)
            self.last_us = max(self.last_us, row.time_us)
        self.rows.add(bucket_of(str(self.root(row.collection))), row)


@dataclass(frozen=True, slots=True)
class _Options:
    machine_vcores: float
    machine_memory_mb: float
    killed: bool
    instances_max: int


def stream(
    sources: Sequence[Path],
    result: Imported,
    *,
    machine_vcores: float = 0.0,
    machine_memory_mb: float = 0.0,
    killed: bool = False,
    instances_max: int = 0,
    jobs_max: int = 0,
) -> Iterator[Job]:
    """Yield jobs in order of arrival, in bounded memory; the first one arrives at 0.

    Demands are `cpus` and `memory`, parts of the largest machine; with `machine_vcores` and
    `machine_memory_mb` (of that machine: Google does not publish it) `vcores` and `memory_mb`. A
    task lasts from its last SCHEDULE to its FINISH; with `killed`, a KILL counts as an end, too.
    `instances_max` caps the tasks of a collection and `jobs_max` the jobs; 0 is no cap.
    """
    if min(machine_vcores, machine_memory_mb, instances_max, jobs_max) < 0:
        raise InputError("options", "expected numbers >= 0")
    if (machine_vcores > 0) != (machine_memory_mb > 0):
        raise InputError("options", "machine_vcores and machine_memory_mb belong together")
    scan = _Scan(result)
    instances, collections = _tables(expand(sources), result)
    for path in collections:
        _read_collections(path, scan, order=True)
    for path in collections:
        _read_collections(path, scan, order=False)
    for path in instances:
        _read_instances(path, scan)
    if not collections:
        result.warnings.append(
            "google2019: no collection_events: no user, no priority, no order between collections; "
            "each collection is a job of one stage"
        )
    chosen = _Options(machine_vcores, machine_memory_mb, killed, instances_max)
    jobs = (job for rows in scan.rows.drain() for job in _jobs(rows, scan, chosen))
    given = 0
    for job in in_order(jobs, (scan.first_us / 1e6, scan.last_us / 1e6), jobs_max, result):
        given += 1
        yield job
    result.warnings.extend(f"google2019: {count} {what}" for what, count in scan.counts.items())
    if not given and not jobs_max:
        why = result.why() if result.dropped else "the tables are empty"
        raise InputError(", ".join(map(str, sources)), f"no job that can be used; {why}")


def read(sources: Sequence[Path], **options: Any) -> Imported:
    """Return Google's jobs; options as of `stream`; raises InputError when none is usable."""
    return gather(stream, sources, options)


def _tables(files: Sequence[Path], result: Imported) -> tuple[list[Path], list[Path]]:
    """Return the files of instance_events and those of collection_events, told by their columns."""
    instances: list[Path] = []
    collections: list[Path] = []
    refused = None
    for path in files:
        try:
            names = columns_of(path)
            if "collection_id" not in names or "time" not in names or "type" not in names:
                raise InputError(str(path), "has no columns time, type and collection_id")
            (instances if "instance_index" in names else collections).append(path)
        except InputError as error:
            refused = refused or error
            result.warnings.append(str(error))
            result.dropped["unusable file"] += 1
    if not instances:
        need = "no instance_events: without them no task has a start, an end or a request"
        raise refused or InputError(", ".join(map(str, files)), need)
    return instances, collections


def _read_collections(path: Path, scan: _Scan, order: bool) -> None:
    """Read a table of collection events: first the order between collections, then the rest."""
    # Both passes read a row; only the second reports it.
    rejected = Imported() if order else scan.result
    for place, row in rows_of(path, rejected, (), COLLECTION_EVENTS):
        try:
            collection = int(needed(whole(row, "collection_id"), "collection_id"))
            if order:
                after = _ids(row.get("start_after_collection_ids"))
                if after:
                    scan.join(collection, after)
                continue
            if _kind(row) != SUBMIT or whole(row, "collection_type") == 1:
                continue
            time_us = int(needed(whole(row, "time"), "time"))
            priority = whole(row, "priority") or 0
            names = text(row, "user"), text(row, "collection_logical_name")
            scan.add(_Collection(collection, time_us, *names, priority))
        except InputError as error:
            rejected.drop("malformed row of collection_events", f"{place}: {error}")


def _ids(value: object) -> tuple[int, ...]:
    """Return ids of a repeated field, as a list or, flattened, as a text."""
    values = value if isinstance(value, list) else re.findall(r"\d{1,20}", str(value or ""))
    try:
        return tuple(dict.fromkeys(int(str(each)[:25]) for each in values))
    except ValueError:
        raise InputError("start_after_collection_ids", "expected whole numbers") from None


def _kind(row: Row) -> int:
    """Return the type of an event, a number or a name."""
    name = text(row, "type")
    if name in EVENTS:
        return EVENTS.index(name)
    kind = whole(row, "type")
    if kind is None or not 0 <= kind < len(EVENTS):
        raise InputError("type", f"expected a type of event from 0 to 10, got {name[:40]!r}")
    return kind


def _read_instances(path: Path, scan: _Scan) -> None:
    for place, row in rows_of(path, scan.result, (), (*INSTANCE_EVENTS, *_flat_names())):
        try:
            if whole(row, "collection_type") == 1:
                scan.counts["events of alloc sets, which are reservations and no jobs"] += 1
                continue
            cpus, memory = _request(row)
            event = _Event(
                int(needed(whole(row, "collection_id"), "collection_id")),
                int(needed(whole(row, "instance_index"), "instance_index")),
                int(needed(whole(row, "time"), "time")),
                _kind(row),
                cpus,
                memory,
            )
        except InputError as error:
            scan.result.drop("malformed row of instance_events", f"{place}: {error}")
            continue
        if event.kind == SUBMIT and row.get("constraint") not in (None, "", [], "[]"):
            scan.counts["instances with constraints on machines, which are left out"] += 1
        if whole(row, "missing_type"):
            scan.counts["events that Google filled in (missing_type)"] += 1
        scan.add(event)


def _flat_names() -> tuple[str, ...]:
    return tuple(prefix + name for prefix in _FLAT for name in ("cpus", "memory"))


def _request(row: Row) -> tuple[float | None, float | None]:
    """Return the cpus and memory that an event says, nested or in flattened columns."""
    nested = row.get("resource_request")
    if isinstance(nested, Mapping):
        return amount(nested, "cpus"), amount(nested, "memory")
    if isinstance(nested, str) and nested.strip():
        raise InputError("resource_request", f"expected an object, got {nested[:40]!r}")
    prefix = next((p for p in _FLAT if p + "cpus" in row), _FLAT[0])
    return amount(row, prefix + "cpus"), amount(row, prefix + "memory")


# -- jobs ------------------------------------------------------------------------------------------


class _Task(NamedTuple):
    """An instance that ran to its end."""

    duration_s: float
    request: tuple[float, float]


def _jobs(rows: list[Any], scan: _Scan, options: _Options) -> Iterator[Job]:
    """Yield the jobs of one bucket, which holds all rows of each of its collections."""
    events: dict[int, dict[int, list[_Event]]] = {}
    about: dict[int, _Collection] = {}
    for row in rows:
        if isinstance(row, _Collection):
            about.setdefault(row.collection, row)
        else:
            events.setdefault(row.collection, {}).setdefault(row.instance, []).append(row)
    jobs: dict[int, dict[int, list[_Task]]] = {}
    for collection, instances in events.items():
        tasks = [
            task
            for index, seen in sorted(instances.items())
            if (task := _task(collection, index, seen, scan, options)) is not None
        ]
        if tasks:
            jobs.setdefault(scan.root(collection), {})[collection] = tasks
    for root, stages in jobs.items():
        arrival_us = min(
            about[c].time_us
            if c in about
            else min(e.time_us for i in events[c].values() for e in i)
            for c in stages
        )
        try:
            yield _job(stages, about, arrival_us / 1e6, scan, options)
        except InputError as error:
            rows_lost = sum(len(seen) for c in stages for seen in events[c].values())
            why = f"collection {root}: {error}"
            scan.result.drop("event of collections that are no job", why, rows_lost)


def _task(
    collection: int, index: int, seen: list[_Event], scan: _Scan, options: _Options
) -> _Task | None:
    """Return what an instance's last run was; None where the trace does not tell it."""
    seen.sort(key=lambda event: (event.time_us, event.kind))
    start_us, runs = 0, 0
    end: _Event | None = None
    cpus: float | None = None
    memory: float | None = None
    for event in seen:
        if event.cpus is not None and event.memory is not None:
            cpus, memory = event.cpus, event.memory
        if event.kind == SCHEDULE:
            start_us, end, runs = event.time_us, None, runs + 1
        elif event.kind in _ENDS and end is None:
            end = event
    place = f"collection {collection}, instance {index}"
    if end is None or end.kind not in ((FINISH, KILL) if options.killed else (FINISH,)):
        how = "no end in the trace" if end is None else f"last event {EVENTS[end.kind]}"
        scan.result.drop(f"event of an instance that did not finish ({how})", place, len(seen))
        return None
    if not 0 < start_us <= end.time_us < _AFTER_TRACE_US:
        reason = "event of an instance whose start or end is outside the trace"
        scan.result.drop(reason, place, len(seen))
        return None
    if cpus is None or memory is None:
        scan.result.drop("event of an instance without a resource_request", place, len(seen))
        return None
    if runs > 1:
        scan.counts["runs before an instance's last one (evicted or failed) are left out"] += (
            runs - 1
        )
    return _Task((end.time_us - start_us) / 1e6, (cpus, memory))


def _job(
    stages: Mapping[int, list[_Task]],
    about: Mapping[int, _Collection],
    arrival_s: float,
    scan: _Scan,
    options: _Options,
) -> Job:
    """Return joined collections as one job; raises InputError where their order is circular."""
    made = []
    for collection, tasks in sorted(stages.items()):
        wanted = scan.after.get(collection, ())
        known = [other for other in wanted if other in stages]
        if len(known) < len(wanted):
            lost = "collections to start after are not in the files, or none of their tasks is used"
            scan.counts[lost] += len(wanted) - len(known)
        # A single stage has the same name whenever its job recurs.
        name = f"c{collection}" if len(stages) > 1 else "tasks"
        made.append(_stage(name, tasks, known, scan, options))
    first = min(stages)
    said = about.get(first)
    user, logical, priority = (said.user, said.logical_name, said.priority) if said else ("", "", 0)
    return Job(
        str(first),
        tuple(made),
        user=user,
        priority=priority,
        arrival_s=arrival_s,
        history_key=logical if len(made) == 1 else "",
        resources=tuple(made[0].demand),
    )


def _stage(
    name: str, tasks: list[_Task], parents: list[int], scan: _Scan, options: _Options
) -> Stage:
    """Return a collection's instances; those that request unlike most override."""
    most = options.instances_max
    if most and len(tasks) > most:
        scan.counts["instances over the cap of a collection (option instances_max)"] += (
            len(tasks) - most
        )
        tasks = tasks[:most]
    ((usual, _),) = Counter(task.request for task in tasks).most_common(1)
    same = all(task.request == usual for task in tasks)
    overrides = (
        ()
        if same
        else tuple(
            TaskOverride(demand=None if t.request == usual else _demand(t.request, options))
            for t in tasks
        )
    )
    durations = tuple(task.duration_s for task in tasks)
    return Stage(
        name,
        len(tasks),
        sum(durations) / len(durations),
        _demand(usual, options),
        tuple(Edge(f"c{parent}") for parent in parents),
        actual_duration_s=durations,
        overrides=overrides,
    )


def _demand(request: tuple[float, float], options: _Options) -> dict[str, float]:
    cpus, memory = request
    if options.machine_vcores:
        return {
            "vcores": cpus * options.machine_vcores,
            "memory_mb": memory * options.machine_memory_mb,
        }
    return {"cpus": cpus, "memory": memory}
