"""What a journal's file says: its records, and whether the rest is what a crash left, or damage."""

import json
from pathlib import Path
from typing import NamedTuple

from rm.process.journal_lines import Record, Sound, line_of, problem_of, sound
from weft.model.errors import WeftError

VERSION = 3
_HEADER, _NAME = "weft_journal", "name"


class Reading(NamedTuple):
    """The records of a journal, without its header, and its name.

    They have `size` bytes, and `torn` more follow, which are no records: `dropped` says so.
    """

    records: list[Record]
    size: int
    torn: int
    name: str
    version: int
    dropped: str


def header_of(name: str) -> bytes:
    """Return the first line of a journal: its version, and a name of its own."""
    return line_of(0, {_HEADER: VERSION, _NAME: name})


def reading_of(path: Path, data: bytes, mark: tuple[str, int]) -> Reading:
    """Return what a journal's bytes say; raises WeftError for damage.

    `mark` is the name of the journal that has so many durable bytes (`rm.process.durable`).
    """
    if data.startswith(b"{"):
        return _of_version_1(path, data)
    kept = sound(data)
    header = kept.records[0] if kept.records else {}
    version = header.get(_HEADER, VERSION)
    if version not in (2, VERSION):
        raise WeftError(f"{path}: written in version {version}; this one reads 1 to {VERSION}")
    name = header.get(_NAME, "")
    if problem := problem_of(data, kept):
        raise _damaged(path, len(kept.records), problem)
    _check_durable(path, data, kept, name, mark)
    torn = len(data) - kept.size
    dropped = f"a torn last write ({torn} bytes)" if torn else ""
    return Reading(kept.records[1:], kept.size, torn, name, version, dropped)


def _check_durable(path: Path, data: bytes, kept: Sound, own: str, mark: tuple[str, int]) -> None:
    """Raise WeftError where something is missing that was durable."""
    name, size = mark
    if not name or (kept.records and name != own) or kept.size >= size:
        return
    if data[kept.size :].strip(b"\0"):
        raise _damaged(path, len(kept.records), "it was durable")
    left = "the rest is missing" if len(data) < size else "the rest is zeros"
    raise WeftError(
        f"{path}: {size} bytes were durable, {kept.size} can be read ({left}): the file "
        f"was damaged. To go on with the {len(kept.records)} lines that can, remove "
        f"{path.with_name('durable')}"
    )


def _damaged(path: Path, number: int, what: str) -> WeftError:
    return WeftError(
        f"{path}: line {number + 1} is no record: {what}; the file was damaged. "
        f"Keep what is before it with: head -n {number} (the rest is lost then; remove "
        f"{path.with_name('durable')} as well)"
    )


def _of_version_1(path: Path, data: bytes) -> Reading:
    # A crash may leave a file longer than what was written.
    whole = data.rstrip(b"\0")
    *lines, torn = whole.split(b"\n")
    dropped = f"a torn last line ({len(torn)} bytes)" if torn else ""
    records: list[Record] = []
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
            if not isinstance(record, dict):
                raise ValueError(line)
            records.append(record)
        except ValueError:
            if number == len(lines) and not torn:
                dropped = f"a torn last line ({len(line)} bytes)"
                # It is torn inside a batch that ended with a newline of its own.
                break
            raise WeftError(f"{path}: line {number} is no record") from None
    return Reading(records, len(data), 0, "", 1, dropped)
