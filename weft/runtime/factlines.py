"""Facts as lines of JSON: what `weft events` shows and what an event log holds."""

import json
from pathlib import Path
from typing import Any, TextIO

from weft.model.errors import WeftError
from weft.protocol.facts import Fact
from weft.protocol.messages import AskType, Outcome
from weft.protocol.record import as_dict


def fact_to_dict(fact: Fact, now: float) -> dict[str, Any]:
    """Return a fact as plain data; `now` in s on the cluster's clock, outcomes by name."""
    data = {"fact": type(fact).__name__, "now_s": round(now, 6), **as_dict(fact)}
    for key in ("outcome", "kind"):
        value = data.get(key)
        if isinstance(value, Outcome | AskType):
            data[key] = value.name
    return data


def fact_line(fact: Fact, now: float) -> str:
    """Return a fact as one line of JSON."""
    return json.dumps(fact_to_dict(fact, now), separators=(",", ":"))


class EventLog:
    """Facts appended to a file, one JSON object a line; flushed at least once a second."""

    def __init__(self, path: Path) -> None:
        try:
            self._file: TextIO = path.open("a", encoding="utf-8", buffering=1 << 16)
        except OSError as error:
            raise WeftError(f"cannot write the event log {path}: {error.strerror}") from None

    def write(self, fact: Fact, now: float) -> None:
        """Append one fact."""
        self._file.write(fact_line(fact, now) + "\n")

    def flush(self) -> None:
        """Hand everything to the operating system, so that it survives this process."""
        self._file.flush()

    def close(self) -> None:
        """Flush and close."""
        self._file.close()
