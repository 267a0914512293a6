"""When an application is killed, done or not, as YARN writes it."""

import time
from datetime import UTC, datetime

from weft.model.errors import InputError

# The end of the year 9999: no later time can be written.
_LAST_MS = 253_402_300_799_999


def told(at_ms: int | None) -> tuple[str, int]:
    """Return a Unix time, ms, as YARN writes it, and how long that is from now, s; None: never."""
    if at_ms is None:
        return "UNLIMITED", -1
    at_ms = min(at_ms, _LAST_MS)
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    text = f"{at:%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03d}+0000"
    return text, max(0, round(at_ms / 1000 - time.time()))


def read_ms(text: str) -> float:
    """Read a time as YARN writes it, Unix time in ms; raises InputError."""
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%f%z").timestamp() * 1000
    except (ValueError, OverflowError):
        wanted = "expected a time as 2026-01-31T23:59:59.999+0000"
        raise InputError("expiry", f"{wanted}, got {text!r}") from None
