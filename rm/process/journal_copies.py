"""The state of a Resource Manager looked at, copied while it runs, and put back.

A copy holds what was durable when it was taken. Whoever goes on from one does not know what was
granted and accepted since, and nodes and masters may still live that do. So a restored manager
counts its lives and numbers its applications from further on: nothing that was numbered since the
copy was taken can be taken for something of its own.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from rm.process.durable import mark_of
from rm.process.journal_file import Reading, reading_of
from rm.process.journal_lines import Record
from rm.process.store import CLUSTER_TS, JOURNAL, MARK, Journal, write_whole
from rm.recovery import compact
from weft.model.errors import InputError, WeftError
from weft.model.queues import queues_from_dict
from weft.runtime.kept_clock import CLOCK
from weft.runtime.kept_file import read_kept, read_whole
from weft.wire.tokens import FILE as KEYS

# Lives are counted modulo 256, and fewer than half of them behind is earlier.
LIVES_SKIPPED = 64
APPLICATIONS_SKIPPED = 10_000
# While it is read, a journal is compacted so many times at most.
_TRIES_MAX = 5


class Condition(NamedTuple):
    """What a state folder holds: `lives` of the manager, and applications by state.

    `dropped` says what a crash left at the end. `queues_set`: the tree was set while it ran.
    """

    records: int
    size_bytes: int
    dropped: str
    lives: int
    newest_app: int
    applications: Mapping[str, int]
    queues_set: bool


def check(folder: Path) -> Condition:
    """Return what a state folder holds, of a manager that runs, too.

    Raises WeftError where there is none, or where it is damaged.
    """
    reading, _ = _read(folder)
    try:
        records = compact(reading.records)
        states = _states(records)
        for record in records:
            if record["kind"] == "queues":
                queues_from_dict(record["queues"])
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, InputError) as error:
        what = f"{type(error).__name__}: {error}"
        raise WeftError(f"{folder / JOURNAL}: a record is not of this version ({what})") from None
    if not (read_kept(folder / CLUSTER_TS) or b"").strip().isdigit():
        raise WeftError(
            f"{folder / CLUSTER_TS} is no time in ms: ids of applications begin with it"
        )
    return Condition(
        len(reading.records),
        reading.size,
        reading.dropped,
        sum(int(record.get("count", 1)) for record in records if record["kind"] == "start"),
        _next_app(records) - 1,
        states,
        any(record["kind"] == "queues" for record in records),
    )


def backup(folder: Path, to: Path) -> Condition:
    """Copy a state folder, of a manager that runs, too, into a new one; return what that holds."""
    if to.exists() and any(to.iterdir()):
        raise WeftError(f"{to} is not empty: each backup goes into a folder of its own")
    _copy(folder, to)
    return check(to)


def restore(copy: Path, folder: Path) -> Condition:
    """Put a copy into a state folder that has no journal; return what is there then."""
    check(copy)
    if (folder / JOURNAL).exists():
        raise WeftError(f"{folder} has a journal: end its manager, and move the folder away first")
    _copy(copy, folder)
    journal = Journal(folder, compact)
    try:
        first = _next_app(journal.read()) + APPLICATIONS_SKIPPED
        journal.append([{"kind": "start", "count": LIVES_SKIPPED}, {"kind": "next", "app": first}])
    finally:
        journal.close()
    return check(folder)


def _read(folder: Path) -> tuple[Reading, bytes]:
    """Return what the journal in a folder says, and its bytes."""
    path = folder / JOURNAL
    for _ in range(_TRIES_MAX):
        # What was durable is read first: the journal only grows, but for a compaction, which has
        # another name.
        mark = mark_of(folder / MARK)
        try:
            data = read_whole(path)
        except OSError as error:
            raise WeftError(f"cannot read {path}: {error.strerror}") from None
        reading = reading_of(path, data, mark)
        if mark_of(folder / MARK)[0] in ("", reading.name):
            break
    return reading, data


def _copy(folder: Path, to: Path) -> None:
    """Write what is durable of a state folder into another one."""
    reading, data = _read(folder)
    parts = {JOURNAL: data[: reading.size]}
    for name in (CLUSTER_TS, CLOCK, KEYS):
        if (kept := read_kept(folder / name)) is not None:
            parts[name] = kept
    try:
        to.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, part in parts.items():
            write_whole(to / name, [part])
    except OSError as error:
        raise WeftError(f"cannot write {to}: {error.strerror}") from None


def _next_app(records: Iterable[Record]) -> int:
    return max((int(record["app"]) for record in records if record["kind"] == "next"), default=1)


def _states(records: Iterable[Record]) -> Mapping[str, int]:
    """Return how many applications are in each state: that of their end, or not ended."""
    known: dict[int, str] = {}
    for record in records:
        if record["kind"] == "app":
            known[int(record["app"])] = "not ended"
        elif record["kind"] == "final":
            known[int(record["app"])] = str(record["state"])
    return Counter(known.values())
