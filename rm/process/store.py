"""The Resource Manager's journal: records as lines, durable when `append` returns.

A line is `<CRC-32 of the rest, 8 hex digits> <sequence number> <JSON>`; the first (number 0) says
the version of the format. A journal without it is of version 1 (lines of JSON): it is read, and
written anew when it is compacted.

A crash may tear the last line, never an earlier one, and what it tore was not yet durable, so
nobody was told: it is dropped, with a word. Anything else that does not fit its checksum or its
number is damage, which is an error that names the line: nothing is started on half of the truth.
Compaction writes a new file beside the journal and renames it, so a crash leaves one of the two.
"""

import contextlib
import json
import os
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from weft.errors import WeftError
from weft.live.shell import StoreUnavailableError

Record: TypeAlias = Mapping[str, Any]
Compact: TypeAlias = Callable[[Iterable[Record]], list[Record]]

VERSION = 2
GROWTH_BYTES = 32 * 1024 * 1024  # the journal is compacted again after growing by so much
_HEADER = "weft_journal"


class Journal:
    """An append-only file in a folder; `compact` gives the same knowledge in fewer records."""

    def __init__(self, folder: Path, compact: Compact = list) -> None:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise WeftError(f"cannot make the state folder {folder}: {error.strerror}") from None
        self._path = folder / "journal.jsonl"
        self._compact = compact
        self._lock = _lock(folder / "lock")
        _only_ours(folder, 0o700)  # commands and environments of all jobs are in there
        self._file = self._open()
        self._next = -1  # number of the next record; below 0: not known yet
        self._compacted_bytes = 0
        self.dropped = ""  # what `read` left out, if anything

    def cluster_ts(self, fresh: int) -> int:
        """The start of the cluster, ms since the epoch: `fresh` the first time, then always that.

        Ids of applications keep their names over restarts.
        """
        path = self._path.with_name("cluster_ts")
        with contextlib.suppress(FileNotFoundError, ValueError):
            return int(path.read_text("ascii"))
        try:
            _write(path, [f"{fresh}\n".encode()])
        except OSError as error:
            raise WeftError(f"cannot write {path}: {error.strerror}") from None
        return fresh

    def read(self) -> list[Record]:
        """Every durable record, oldest first; compacts the file on the way where there is room.

        Raises WeftError for a line that is no record or not in its place: the file was damaged.
        """
        records, old = self._records()
        try:
            fewer = self._compact(records)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            what = f"{type(error).__name__}: {error}"
            raise WeftError(f"{self._path}: a record is not of this version ({what})") from None
        try:
            self._rewrite(fewer)
        except OSError as error:
            if old:
                why = f"version 1 cannot be migrated to {VERSION}: {error.strerror}"
                raise WeftError(f"{self._path}: {why}") from None
            self._cut(os.fstat(self._file).st_size - self._torn)
        return fewer

    def append(self, records: Sequence[Record]) -> None:
        """Write records and wait until they are on the disk.

        Raises StoreUnavailableError, and leaves the file as it was, where the disk takes nothing.
        """
        if self._next < 0:
            self._records()
        size = os.fstat(self._file).st_size
        lines = [] if size else [_line(0, {_HEADER: VERSION})]
        first = max(self._next, 1)
        lines += [_line(first + n, record) for n, record in enumerate(records)]
        view = memoryview(b"".join(lines))
        try:
            while view:
                view = view[os.write(self._file, view) :]
            os.fdatasync(self._file)
        except OSError as error:
            with contextlib.suppress(OSError):
                self._cut(size)  # half a record would be in the way of the next one
            raise StoreUnavailableError(f"cannot write {self._path}: {error.strerror}") from None
        self._next = first + len(records)
        size = os.fstat(self._file).st_size
        if size > 2 * self._compacted_bytes + GROWTH_BYTES:
            try:
                self._rewrite(self._compact(self._records()[0]))
            except OSError:  # no room for a second file: later, then
                self._compacted_bytes = size

    def close(self) -> None:
        """Close the files; another Resource Manager may use the folder then."""
        os.close(self._file)
        os.close(self._lock)

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        try:
            file = os.open(self._path, flags, 0o600)
        except OSError as error:
            raise WeftError(f"cannot open {self._path}: {error.strerror}") from None
        _only_ours(self._path, 0o600)
        return file

    def _cut(self, size: int) -> None:
        os.ftruncate(self._file, size)

    def _records(self) -> tuple[list[Record], bool]:
        """All records, and whether the file is of version 1; raises WeftError for damage."""
        try:
            data = self._path.read_bytes()
        except OSError as error:
            raise WeftError(f"cannot read {self._path}: {error.strerror}") from None
        whole = data.rstrip(b"\0")  # a crash may leave a file longer than what was written
        lines = whole.split(b"\n")
        torn = lines.pop()  # empty after a whole last line
        self._torn = len(data) - len(whole) + len(torn)
        self.dropped = f"a torn last line ({len(torn)} bytes)" if torn else ""
        if whole.startswith(b"{"):
            return self._records_of_version_1(lines, torn), True
        records: list[Record] = []
        for number, line in enumerate(lines):
            records.append(self._record(number, line))
        if torn and _parsed(torn[:-1])[0] >= 0 and _parsed(torn)[0] < 0:
            raise self._damaged(len(lines), "its end is damaged")
        if records:
            version = records.pop(0).get(_HEADER)
            if version != VERSION:
                raise WeftError(
                    f"{self._path}: written in version {version}; this one reads 1 and {VERSION}"
                )
        self._next = len(records) + 1
        return records, False

    def _record(self, number: int, line: bytes) -> Record:
        found, record = _parsed(line)
        if found < 0:
            raise self._damaged(number, "it does not fit its checksum")
        if found != number:
            raise self._damaged(number, f"record {number} is missing: this is {found}")
        return record

    def _damaged(self, number: int, what: str) -> WeftError:
        return WeftError(
            f"{self._path}: line {number + 1} is no record: {what}; the file was damaged. "
            f"What comes before is kept by: head -n {number} (the rest is lost then)"
        )

    def _records_of_version_1(self, lines: list[bytes], torn: bytes) -> list[Record]:
        records: list[Record] = []
        for number, line in enumerate(lines, 1):
            try:
                record = json.loads(line)
                if not isinstance(record, dict):
                    raise ValueError(line)
                records.append(record)
            except ValueError:
                if number == len(lines) and not torn:
                    self.dropped = f"a torn last line ({len(line)} bytes)"
                    break  # torn inside a batch that ended with a newline of its own
                raise WeftError(f"{self._path}: line {number} is no record") from None
        return records

    def _rewrite(self, records: Sequence[Record]) -> None:
        """Put fewer records in the file's place; raises OSError, and the file is as it was."""
        fresh = self._path.with_suffix(".new")
        header = _line(0, {_HEADER: VERSION})
        try:
            _write(fresh, [header, *(_line(n, record) for n, record in enumerate(records, 1))])
        except OSError:
            fresh.unlink(missing_ok=True)
            raise
        fresh.replace(self._path)
        folder = os.open(self._path.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
        os.close(self._file)
        self._file = self._open()
        self._next = len(records) + 1
        self._compacted_bytes = os.fstat(self._file).st_size


def _line(number: int, record: Record) -> bytes:
    text = f"{number} {json.dumps(record, separators=(',', ':'))}".encode()
    return b"%08x %b\n" % (zlib.crc32(text), text)


def _parsed(line: bytes) -> tuple[int, Record]:
    """The number and record of a line without its newline; -1: it does not fit its checksum."""
    try:
        if line[8:9] != b" " or b"%08x" % zlib.crc32(line[9:]) != line[:8]:
            return -1, {}
        number, _, text = line[9:].partition(b" ")
        record = json.loads(text)
        return (int(number), record) if isinstance(record, dict) else (-1, {})
    except ValueError:
        return -1, {}


def _write(path: Path, parts: Iterable[bytes]) -> None:
    """Write a file of ours whole and durably; raises OSError."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(file, "wb") as out:
        for part in parts:
            out.write(part)
        out.flush()
        os.fsync(out.fileno())


def _only_ours(path: Path, mode: int) -> None:
    """Take others' rights to a file of an earlier version away, where that is ours to do."""
    with contextlib.suppress(OSError):
        if path.stat().st_mode & 0o077:
            path.chmod(mode)


def _lock(path: Path) -> int:
    """Two managers on one journal would destroy it."""
    import fcntl

    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise WeftError(
            f"cannot write to the state folder {path.parent}: {error.strerror}"
        ) from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        raise WeftError(
            f"the state folder {path.parent} is in use by another Resource Manager"
        ) from None
    return file
