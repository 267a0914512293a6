"""Checks of single values of an input file; each error names the place of the value."""

import math
import re
from collections.abc import Mapping

from weft.model.errors import InputError
from weft.model.json_types import Table

NAME_BYTES_MAX = 1024
# Linux takes no longer argument of a command.
ARGUMENT_BYTES_MAX = 128 * 1024 - 1
# A name has no control characters (C0, DEL, C1), and no halves of UTF-16 pairs, which no encoding
# can carry.
_NO_NAME = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_HALF = re.compile("[\ud800-\udfff]")


def name_problem(text: str) -> str:
    """Return what keeps a text from being a name; empty: nothing."""
    found = _NO_NAME.search(text)
    if found is not None:
        what = "half a UTF-16 pair" if found[0] >= "\ud800" else "a control character"
        return f"must not contain {what} (U+{ord(found[0]):04X} at {found.start()})"
    if len(text) * 4 > NAME_BYTES_MAX and (size := len(text.encode())) > NAME_BYTES_MAX:
        return f"{size} bytes are more than the limit of {NAME_BYTES_MAX} for a name"
    return ""


def read_name(value: object, place: str, *, empty: bool = False) -> str:
    """Check a name: a text of at most 1 kB without control characters; raises InputError."""
    text = read_text(value, place, empty=empty)
    if problem := name_problem(text):
        raise InputError(place, problem)
    return text


def read_word(value: object, place: str) -> str:
    """Check a word of a command: anything that can be an argument; raises InputError."""
    text = read_text(value, place, empty=True)
    if (found := _HALF.search(text)) is not None:
        raise InputError(
            place, f"must not contain half a UTF-16 pair (U+{ord(found[0]):04X} at {found.start()})"
        )
    if len(text) * 4 > ARGUMENT_BYTES_MAX and (size := len(text.encode())) > ARGUMENT_BYTES_MAX:
        raise InputError(place, f"{size} bytes are more than a command's word may have")
    return text


def read_table(value: object, place: str, keys: set[str] | None = None) -> Table:
    """Check a table of named values, with no key but `keys`; raises InputError."""
    if not isinstance(value, Mapping):
        raise InputError(place, f"expected a table of named values, got {type(value).__name__}")
    for key in value:
        if not isinstance(key, str):
            raise InputError(place, f"expected names as keys, got {key!r}")
        if keys is not None and key not in keys:
            raise InputError(f"{place}.{key}", f"unknown key; known: {', '.join(sorted(keys))}")
    return value


def read_text(value: object, place: str, *, empty: bool = False) -> str:
    """Check a text, by default not empty; raises InputError."""
    if not isinstance(value, str):
        raise InputError(place, f"expected a text, got {value!r}")
    if not value and not empty:
        raise InputError(place, "must not be empty")
    if "\0" in value:
        raise InputError(place, "must not contain a NUL character")
    return value


def read_integer(value: object, place: str, low: int, high: int = 2**31 - 1) -> int:
    """Check a whole number in [low, high]; raises InputError."""
    whole = isinstance(value, int) or (
        isinstance(value, float) and math.isfinite(value) and value == int(value)
    )
    if isinstance(value, bool) or not whole:
        raise InputError(place, f"expected a whole number, got {value!r}")
    number = int(value)  # type: ignore[call-overload]
    if not low <= number <= high:
        shown = f"{number}" if abs(number) < 10**30 else "a far larger one"
        raise InputError(place, f"expected a whole number from {low} to {high}, got {shown}")
    return int(number)
