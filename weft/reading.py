"""Checks of single values of an input file; each error names the place of the value."""

import math
from collections.abc import Mapping
from typing import Any

from weft.errors import InputError


def read_table(value: object, place: str, keys: set[str] | None = None) -> Mapping[str, Any]:
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
        raise InputError(place, f"expected a whole number from {low} to {high}, got {value!r}")
    return int(number)
