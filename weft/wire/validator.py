"""The gate of a service: what breaks a rule is refused as a message, told in one line and counted.

A refused message changes nothing. Messages of other senders in the same batch go on.
"""

import re
import time
from collections.abc import Callable, Iterable
from typing import Any

from weft.model.errors import InputError
from weft.wire import rules

# In between, on the wall clock, a peer's similar refusals are only counted.
REPORT_INTERVAL_S = 10.0
# They are remembered by (peer, message, field).
REPORTS_REMEMBERED_MAX = 1_000
_INDEX = re.compile(r"\[\d+\]")

# Told (peer, message's type, field, what is wrong, how many similar ones before were not told).
Tell = Callable[[str, str, str, str, int], None]
# It gets the message's type and the field without positions.
Count = Callable[[str, str], None]


class Gate:
    """Checks what arrives at one face of a service."""

    def __init__(
        self,
        tell: Tell | None = None,
        count: Count | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """`clock` is in s of wall clock. Without `tell` and `count` it refuses silently."""
        self._tell = tell or (lambda *_: None)
        self._count = count or (lambda *_: None)
        self._clock = clock or time.monotonic
        self._told: dict[tuple[str, str, str], tuple[float, int]] = {}
        self.refused = 0

    def passes(self, message: Any, d: int, peer: str) -> bool:
        """Return whether a message keeps the rules; if not, it is told and counted."""
        try:
            rules.check(message, d)
        except InputError as error:
            self.refuse(type(message).__name__, peer, error)
            return False
        return True

    def sift(self, batch: Iterable[Any], d: int, peer: str) -> list[Any]:
        """Return the messages that keep the rules."""
        return [message for message in batch if self.passes(message, d, peer)]

    def refuse(self, message: str, peer: str, error: Exception) -> None:
        """Tell and count a message that was refused; `message` is the name of its type."""
        field = error.place if isinstance(error, InputError) else ""
        problem = error.problem if isinstance(error, InputError) else str(error)
        plain = _INDEX.sub("[]", field)
        self.refused += 1
        self._count(message, plain)
        key, now = (peer, message, plain), self._clock()
        since, silent = self._told.get(key, (-REPORT_INTERVAL_S, 0))
        if now - since < REPORT_INTERVAL_S:
            self._told[key] = (since, silent + 1)
            return
        if len(self._told) >= REPORTS_REMEMBERED_MAX:
            self._told.clear()
        self._told[key] = (now, 0)
        self._tell(peer, message, field, problem, silent)
