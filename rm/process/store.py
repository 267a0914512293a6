"""The Resource Manager's journal: records as lines of JSON, durable when `append` returns.

A crash may tear the last line, never an earlier one: it was not yet durable, so nobody was told.
Compaction writes a new file beside the journal and renames it, so a crash leaves one of the two.
"""

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from weft.errors import WeftError

Record: TypeAlias = Mapping[str, Any]
Compact: TypeAlias = Callable[[Iterable[Record]], list[Record]]

GROWTH_BYTES = 32 * 1024 * 1024  # the journal is compacted again after growing by so much


class Journal:
    """An append-only file in a folder; `compact` gives the same knowledge in fewer records."""

    def __init__(self, folder: Path, compact: Compact = list) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise WeftError(f"cannot make the state folder {folder}: {error.strerror}") from None
        self._path = folder / "journal.jsonl"
        self._compact = compact
        self._lock = _lock(folder / "lock")
        self._file = self._open()
        self._compacted_bytes = 0

    def cluster_ts(self, fresh: int) -> int:
        """The start of the cluster, ms since the epoch: `fresh` the first time, then always that.

        Ids of applications keep their names over restarts.
        """
        path = self._path.with_name("cluster_ts")
        try:
            return int(path.read_text("ascii"))
        except (FileNotFoundError, ValueError):
            path.write_text(f"{fresh}\n", "ascii")
            return fresh

    def read(self) -> list[Record]:
        """Every durable record, oldest first; compacts the file on the way.

        Raises WeftError for a line in the middle that is no record: the file was damaged.
        """
        records = self._records()
        fewer = self._compact(records)
        self._rewrite(fewer)
        return fewer

    def append(self, records: Sequence[Record]) -> None:
        """Write records and wait until they are on the disk."""
        data = "".join(json.dumps(r, separators=(",", ":")) + "\n" for r in records).encode()
        view = memoryview(data)
        while view:
            view = view[os.write(self._file, view) :]
        os.fdatasync(self._file)
        if os.fstat(self._file).st_size > 2 * self._compacted_bytes + GROWTH_BYTES:
            self._rewrite(self._compact(self._records()))

    def close(self) -> None:
        """Close the files; another Resource Manager may use the folder then."""
        os.close(self._file)
        os.close(self._lock)

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def _records(self) -> list[Record]:
        lines = self._path.read_bytes().split(b"\n")
        torn = lines.pop()  # empty after a whole last line
        records: list[Record] = []
        for number, line in enumerate(lines, 1):
            try:
                records.append(json.loads(line))
            except ValueError:
                if number == len(lines) and not torn:
                    break  # torn inside a batch that ended with a newline of its own
                raise WeftError(f"{self._path}: line {number} is no record") from None
        return records

    def _rewrite(self, records: Iterable[Record]) -> None:
        fresh = self._path.with_suffix(".new")
        with fresh.open("wb") as file:
            for record in records:
                file.write(json.dumps(record, separators=(",", ":")).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._path)
        folder = os.open(self._path.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
        os.close(self._file)
        self._file = self._open()
        self._compacted_bytes = os.fstat(self._file).st_size


def _lock(path: Path) -> int:
    """Two managers on one journal would destroy it."""
    import fcntl

    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        raise WeftError(
            f"the state folder {path.parent} is in use by another Resource Manager"
        ) from None
    return file
