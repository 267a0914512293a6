"""The Resource Manager's journal: records as lines, durable when `append` returns.

`rm.process.journal_lines` says how a line looks; the first (number 0) says the version of the
format and names the file. Journals of earlier versions (1: lines of JSON, 2: without the places in
batches and a name) are read, and written anew.

A crash may tear the last batch, never an earlier one, and what it tore was not yet durable, so
nobody was told: it is dropped, with a word. Anything else is damage, which is an error that names
the line: nothing is started on half of the truth. What was durable is also known from a mark beside
the journal (`rm.process.durable`), which tells zeros at the end, or an end that is missing, apart
from a torn batch. Compaction writes a new file beside the journal and renames it, so a crash leaves
one of the two; until the folder is synced that may be the former one, so nothing is added to the
new one before.
"""

import contextlib
import errno
import os
import re
import secrets
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

import structlog

from rm.process.durable import Durable
from rm.process.journal_file import VERSION, header_of, reading_of
from rm.process.journal_lines import Record, line_of
from weft.model.errors import WeftError
from weft.runtime.interfaces import StoreUnavailableError
from weft.runtime.kept_clock import CLOCK, KeptClock, clock_in
from weft.runtime.kept_file import open_kept, read_kept, read_whole, write_kept

Compact: TypeAlias = Callable[[Iterable[Record]], list[Record]]

JOURNAL, MARK, CLUSTER_TS = "journal.jsonl", "durable", "cluster_ts"
# The journal is compacted again after growing by so much.
COMPACT_AFTER_BYTES = 32 * 1024 * 1024
_ADD = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
_log = structlog.get_logger()


class Journal:
    """An append-only file in a folder; `compact` gives the same knowledge in fewer records."""

    def __init__(self, folder: Path, compact: Compact = list) -> None:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise WeftError(f"cannot make the state folder {folder}: {error.strerror}") from None
        self._path = folder / JOURNAL
        self._compact = compact
        self._lock = _lock(folder / "lock")
        # Commands and environments of all jobs are in there.
        _only_ours(folder, 0o700)
        self._durable = Durable(self._path.with_name(MARK))
        _only_ours(self._durable.path, 0o600)
        self._file = self._open()
        # It is the name in the file's header, and empty where there is none yet.
        self._name = ""
        # The file is cut to this size, which leaves out the bytes at its end that are no records;
        # -1 leaves it as it is.
        self._cut_to_bytes = -1
        # The folder is synced before anything is added.
        self._folder_due = True
        # Not every file system can sync a folder.
        self._folder_syncs = True
        # The next record has this number; below 0 it is not known yet.
        self._next_record = -1
        self._compacted_bytes = 0
        # It says what `read` left out, if anything.
        self.dropped = ""

    def cluster_ts(self, fresh: int) -> int:
        """Return the start of the cluster, ms since the epoch.

        It is `fresh` the first time, then always that. Ids of applications keep their names over
        restarts.
        """
        path = self._path.with_name(CLUSTER_TS)
        data = read_kept(path)
        text = (data or b"").decode("ascii", "replace").strip()
        if re.fullmatch(r"[0-9]{1,15}", text):
            return int(text)
        if text or (data is not None and os.fstat(self._file).st_size):
            raise WeftError(
                f"{path} holds {text!r:.40}, which is no time in ms: the file was damaged. It is "
                "the middle number of every application's id; write it back"
            )
        write_kept(path, f"{fresh}\n".encode())
        self._folder_due = True
        return fresh

    def keep_clock(self, clock: KeptClock) -> None:
        """Keep the clock beside the journal; raises InputError where another one is there."""
        folder = self._path.parent
        kept = clock_in(folder)
        if kept is None:
            write_kept(folder / CLOCK, f"{clock.text}\n".encode())
            self._folder_due = True
        else:
            kept.check(clock, folder)

    def read(self) -> list[Record]:
        """Return every durable record, oldest first.

        The file is compacted on the way where the disk has room for that. Raises WeftError for a
        line that is no record or not in its place: the file was damaged.
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
            # `append` tries again, and says why it cannot.
            with contextlib.suppress(OSError):
                self._cut()
        return fewer

    def append(self, records: Sequence[Record]) -> None:
        """Write records and wait until they are on the disk.

        Raises StoreUnavailableError, and leaves the file as it was, where the disk takes nothing;
        what it could not put back then is put back before anything else is written.
        """
        if self._next_record < 0:
            self._records()
        try:
            self._cut()
            self._sync_folder()
        except OSError as error:
            raise self._unavailable(error) from None
        size = os.fstat(self._file).st_size
        first = max(self._next_record, 1)
        lines = [line_of(first + n, record, n) for n, record in enumerate(records)]
        if not size:
            self._name = secrets.token_hex(8)
            lines.insert(0, header_of(self._name))
        view = memoryview(b"".join(lines))
        try:
            while view:
                view = view[os.write(self._file, view) :]
            os.fdatasync(self._file)
        except OSError as error:
            # Half a record would be in the way of the next one.
            self._cut_to_bytes = size
            with contextlib.suppress(OSError):
                self._cut()
            raise self._unavailable(error) from None
        self._next_record = first + len(records)
        size = os.fstat(self._file).st_size
        self._durable.write(self._name, size)
        if size > 2 * self._compacted_bytes + COMPACT_AFTER_BYTES:
            try:
                self._rewrite(self._compact(self._records()[0]))
            except OSError:
                # There is no room for a second file, so it is compacted later.
                self._compacted_bytes = size
            except WeftError as error:
                # Who runs knows all of it, and ends no sooner than it must.
                _log.error(
                    "the journal is not compacted, and will not be read again", why=str(error)
                )
                self._compacted_bytes = size

    def close(self) -> None:
        """Close the files; another Resource Manager may use the folder then."""
        # Readers take what is left for a torn batch.
        with contextlib.suppress(OSError):
            self._cut()
        os.close(self._file)
        self._durable.close()
        os.close(self._lock)

    def _open(self) -> int:
        try:
            file = open_kept(self._path, _ADD | os.O_CREAT)
        except OSError as error:
            raise WeftError(f"cannot open {self._path}: {error.strerror}") from None
        _only_ours(self._path, 0o600)
        return file

    def _cut(self) -> None:
        """Take away what is no record at the file's end; raises OSError, and it is still due."""
        if self._cut_to_bytes < 0:
            return
        if os.fstat(self._file).st_size > self._cut_to_bytes:
            os.ftruncate(self._file, self._cut_to_bytes)
        self._cut_to_bytes = -1

    def _sync_folder(self) -> None:
        """Make the names of files durable where due; raises OSError, and it is still due."""
        if self._folder_due and self._folder_syncs:
            folder = os.open(self._path.parent, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(folder)
            except OSError as error:
                if error.errno not in (errno.EINVAL, errno.ENOTSUP):
                    raise
                self._folder_syncs = False
                _log.warning(
                    "the file system of the state folder cannot sync folders: if the machine goes "
                    "down, the names of files in it are as durable as it makes them",
                    folder=str(self._path.parent),
                )
            finally:
                os.close(folder)
        self._folder_due = False

    def _unavailable(self, error: OSError) -> StoreUnavailableError:
        return StoreUnavailableError(f"cannot write {self._path}: {error.strerror}")

    def _records(self) -> tuple[list[Record], bool]:
        """Return all records, and whether the version is an earlier one; WeftError for damage."""
        try:
            data = read_whole(self._path)
        except OSError as error:
            raise WeftError(f"cannot read {self._path}: {error.strerror}") from None
        found = reading_of(self._path, data, self._durable.read())
        self._name, self.dropped = found.name, found.dropped
        self._cut_to_bytes = found.size if found.torn and found.version > 1 else -1
        self._next_record = max(1, len(found.records) + 1) if found.version > 1 else -1
        return found.records, found.version != VERSION

    def _rewrite(self, records: Sequence[Record]) -> None:
        """Put fewer records in the file's place; raises OSError, and the file is as it was."""
        fresh = self._path.with_suffix(".new")
        name = secrets.token_hex(8)
        header = header_of(name)
        file = -1
        try:
            write_whole(
                fresh, [header, *(line_of(n, record) for n, record in enumerate(records, 1))]
            )
            file = os.open(fresh, _ADD)
            fresh.replace(self._path)
        except OSError:
            if file >= 0:
                os.close(file)
            with contextlib.suppress(OSError):
                fresh.unlink(missing_ok=True)
            raise
        # From here on the former file has no name: whatever fails, this is the journal.
        former, self._file = self._file, file
        self._name, self._cut_to_bytes = name, -1
        self._next_record = len(records) + 1
        self._compacted_bytes = os.fstat(self._file).st_size
        self._durable.write(name, self._compacted_bytes)
        self._folder_due = True
        with contextlib.suppress(OSError):
            os.close(former)
        # `append` tries again, and says why it cannot.
        with contextlib.suppress(OSError):
            self._sync_folder()


def write_whole(path: Path, parts: Iterable[bytes]) -> None:
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
    """Lock the journal, as two managers on one would destroy it; return the open file."""
    import fcntl

    try:
        file = open_kept(path, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise WeftError(
            f"cannot write to {path.name} in the state folder {path.parent}: {error.strerror}"
        ) from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        raise WeftError(
            f"the state folder {path.parent} is in use by another Resource Manager"
        ) from None
    return file
