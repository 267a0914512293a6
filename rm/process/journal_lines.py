"""Lines of the journal, and whether the end of a file was torn by a crash or is damaged.

A line is `<CRC-32 of the rest, 8 hex digits> <number>[+<place in its batch>] <JSON>`. A batch is
what one `append` wrote and synced: records of the next one are only written once it is durable.
So a crash can tear the last batch and no other, and leaves no byte there that was not written: the
file ends early, or whole sectors (to the end, or between others) read as zeros. What does not fit
that is damage.
"""

import json
import re
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

Record: TypeAlias = Mapping[str, Any]

# A disk writes so many bytes or none of them.
SECTOR_BYTES = 512
_ZEROS = re.compile(rb"\0+")


class Line(NamedTuple):
    """A line that was read.

    `number` is the record's, or -1 where the line does not fit its checksum; `first` is that of the
    first record of its batch.
    """

    number: int
    first: int
    record: Record


class Sound(NamedTuple):
    """What a file holds up to the first line that is no record or not in its place.

    The header is the first of `records`; their lines have `size` bytes.
    """

    records: list[Record]
    size: int


NO_LINE = Line(-1, -1, {})


def line_of(number: int, record: Record, place: int = 0) -> bytes:
    """Return the line of a record; `place` is its position in its batch."""
    named = f"{number}+{place}" if place else str(number)
    text = f"{named} {json.dumps(record, separators=(',', ':'))}".encode()
    return b"%08x %b\n" % (zlib.crc32(text), text)


def parsed(line: bytes) -> Line:
    """Return a parsed line without its newline; `NO_LINE` where it does not fit its checksum."""
    try:
        if line[8:9] != b" " or b"%08x" % zlib.crc32(line[9:]) != line[:8]:
            return NO_LINE
        named, _, text = line[9:].partition(b" ")
        number, _, place = named.partition(b"+")
        record = json.loads(text)
        if not isinstance(record, dict):
            return NO_LINE
        return Line(int(number), int(number) - int(place or 0), record)
    except (ValueError, RecursionError):
        return NO_LINE


def sound(data: bytes) -> Sound:
    """Return the records from the beginning on, each in its place."""
    records: list[Record] = []
    size = 0
    for line in data.split(b"\n")[:-1]:
        found = parsed(line)
        if found.number != len(records):
            break
        records.append(found.record)
        size += len(line) + 1
    return Sound(records, size)


def problem_of(data: bytes, kept: Sound) -> str:
    """Return why what follows the sound records cannot be what a crash left; empty: it can."""
    place, number = kept.size, len(kept.records)
    *lines, last = data[place:].split(b"\n")
    for position, line in enumerate(lines):
        found = parsed(line)
        if found.number >= 0:
            if position == 0:
                return f"record {number} is missing: this is {found.number}"
            if found.first > number:
                return f"it was durable before record {found.number} was written"
        elif not _left_out(data, place, place + len(line), kept.size):
            return "it does not fit its checksum"
        place += len(line) + 1
    if parsed(last[:-1]).number >= 0 and parsed(last).number < 0:
        return "its end is damaged"
    return ""


def _left_out(data: bytes, first: int, end: int, written: int) -> bool:
    """Return whether data[first:end] has zeros: whole sectors, from `written` on, or to the end."""
    runs = list(_ZEROS.finditer(data, first, end))
    for run in runs:
        if run.end() == len(data):
            continue
        if run.end() % SECTOR_BYTES or (run.start() % SECTOR_BYTES and run.start() != written):
            return False
    return bool(runs)
