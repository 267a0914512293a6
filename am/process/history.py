"""What past runs of recurring jobs taught, kept in a file that several processes may share."""

import fcntl
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from am.estimates import History, merge_history
from weft.model.errors import WeftError
from weft.protocol.messages import Address
from weft.runtime.kept_file import read_kept
from weft.runtime.tape import Tape

# Beyond so many recurring jobs, the one longest unseen is forgotten.
HISTORY_KEYS_MAX = 10_000


class TapedHistory(Mapping[str, Mapping[str, Mapping[str, float]]]):
    """A history that tells a tape what a master looks up in it."""

    def __init__(self, history: History, tape: Tape, master: Address) -> None:
        self._history, self._tape, self._master = history, tape, master

    def __getitem__(self, key: str) -> Mapping[str, Mapping[str, float]]:
        found = self._history[key]
        self._tape.given(self._master, key, found)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._history)

    def __len__(self) -> int:
        return len(self._history)


class HistoryFile:
    """Estimates by history key; without a path they last as long as the process."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._known: dict[str, Any] = {}
        self.read()

    def read(self) -> History:
        """Return what is known now; raises WeftError for a file that holds something else."""
        if self._path is not None:
            self._known = self._load(self._path)
        return self._known

    def add(self, key: str, record: Mapping[str, Mapping[str, float]]) -> None:
        """Take in one finished run."""
        if not key or not record:
            return
        if self._path is None:
            self._known = _merged(self._known, key, record)
            return
        try:
            with self._path.with_suffix(".lock").open("w") as lock:
                # Closing the file frees the lock.
                fcntl.flock(lock, fcntl.LOCK_EX)
                self._known = _merged(self._load(self._path), key, record)
                fresh = self._path.with_suffix(".new")
                fresh.write_text(json.dumps(self._known), "utf-8")
                fresh.replace(self._path)
        except OSError as error:
            raise WeftError(f"cannot write {self._path}: {error.strerror}") from None

    @staticmethod
    def _load(path: Path) -> dict[str, Any]:
        try:
            data = read_kept(path)
            known = {} if data is None else json.loads(data)
        except ValueError as error:
            raise WeftError(f"cannot read the history {path}: {error}") from None
        if not isinstance(known, dict):
            raise WeftError(f"cannot read the history {path}: expected a table of jobs")
        return known


def _merged(known: History, key: str, record: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    merged = merge_history(known, key, record)
    # The newest come last.
    merged[key] = merged.pop(key)
    if len(merged) > HISTORY_KEYS_MAX:
        del merged[next(iter(merged))]
    return merged
