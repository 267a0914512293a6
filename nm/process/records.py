"""What a node manager writes down of its processes, so that the next one finds them again.

One small file a process, its owner's only, in `<root>/.processes`: which container and task, the
process's number with its start time and the host's boot (a number alone is soon another's), and its
control group. That file and, beside it, the exit code are written by who started the process and
waits for it (`nm.process.spawner`): whoever is not its parent cannot ask the system for it. A file
goes when the Resource Manager has heard of the end.
"""

import contextlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from weft.ids import AttemptId, ContainerId
from weft.record import as_dict
from weft.resources import Vector

FOLDER = ".processes"
SIGNALLED = 128  # a shell tells the end by signal n as this much more
SIGNALS_MAX = 64
NO_PROCESS, NO_START = 0, -2  # of one that is about to be started
KEPT_S = 60.0  # an end that is not known to have been heard is kept so long


@dataclass(frozen=True, slots=True)
class Record:
    """One process. `host_boot` and `start` tell it from a later one of the same number."""

    node: str
    container_id: ContainerId
    stage: int
    task: int
    attempt: int
    pid: int
    start: int  # clock ticks since the host's boot
    host_boot: str
    began_s: float  # unix time
    cluster_ts: int
    demand: Vector = ()
    granted: Vector = ()
    duration_s: float = 0.0
    reusable: bool = False
    master: int = 0  # the attempt that it is the master of; 0: a task
    group: str = ""
    taken_by: AttemptId = 0  # the attempt that took its container over; 0: none

    def around_start(self) -> tuple[str, str]:
        """Return what a record's file holds before and after its number and start,
        as they are not known before the process runs.
        """
        text = json.dumps(as_dict(self), separators=(",", ":"))
        before, _, after = text.partition(f'"pid":{self.pid},"start":{self.start}')
        return before, after

    @property
    def alive(self) -> bool:
        """Whether that very process is still there."""
        return self.host_boot == host_boot() and started(self.pid) == self.start

    @property
    def there(self) -> bool:
        """Whether it is, or has ended and who started it has not looked yet."""
        return self.host_boot == host_boot() and started(self.pid, dead=True) == self.start


class Records:
    """The files of one node manager's processes."""

    def __init__(self, root: Path) -> None:
        self._folder = root / FOLDER
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._ended: dict[str, float] = {}  # names, since when (monotonic)

    def exit_file(self, name: str) -> Path:
        """Return where a process's exit code is found."""
        return self._folder / f"{name}.exit"

    def file(self, record: Record) -> Path:
        """Return where a process is written down."""
        return self._folder / f"{name_of(record)}.json"

    def write(self, record: Record) -> None:
        """Write a process down; raises OSError.

        What is there is written over in one go: whoever dies here leaves the one or the other.
        """
        path = self.file(record)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            data = json.dumps(as_dict(record), separators=(",", ":")).encode()
            os.write(file, data.ljust(os.fstat(file).st_size))
        finally:
            os.close(file)

    def take_over(self, name: str, attempt: AttemptId) -> None:
        """Write down that the container of a process obeys another attempt; raises OSError."""
        with contextlib.suppress(FileNotFoundError, ValueError, TypeError, KeyError):
            record = _record(json.loads((self._folder / f"{name}.json").read_text()))
            if record.taken_by != attempt:
                self.write(replace(record, taken_by=attempt))

    def read(self) -> Iterator[Record]:
        """Yield what an earlier process of this node wrote down; a torn file is removed."""
        for path in sorted(self._folder.glob("*.json")):
            try:
                yield _record(json.loads(path.read_text()))
            except (OSError, ValueError, TypeError, KeyError):
                path.unlink(missing_ok=True)

    def code(self, name: str) -> int | None:
        """Return how a process ended, below 0 by a signal; None where that is not known."""
        try:
            found = int(self.exit_file(name).read_text())
        except (OSError, ValueError):
            return None
        return exit_code(found)

    def ended(self, name: str, code: int) -> None:
        """Note how a process ended."""
        self._ended[name] = time.monotonic()
        path = self.exit_file(name)
        if not path.exists():  # the shell was killed with it
            with contextlib.suppress(OSError):
                file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
                os.write(file, str(code).encode())
                os.close(file)

    def forget(self, *, heard: bool) -> None:
        """Drop the ends that were heard of, or that are long ago."""
        before = time.monotonic() - (1.0 if heard else KEPT_S)
        for name in [name for name, since in self._ended.items() if since <= before]:
            del self._ended[name]
            self.drop(name)

    def clear(self) -> None:
        """Drop everything: nothing runs any more."""
        for path in self._folder.iterdir():
            path.unlink(missing_ok=True)
        self._ended.clear()

    def drop(self, name: str) -> None:
        """Remove all that is known of a process."""
        (self._folder / f"{name}.json").unlink(missing_ok=True)
        self.exit_file(name).unlink(missing_ok=True)


def exit_code(status: int) -> int:
    """Return the exit code that a shell's status stands for: below 0 an end by signal."""
    signal = status - SIGNALLED
    return -signal if 0 < signal <= SIGNALS_MAX else status


def name_of(record: Record) -> str:
    """Return the name of a process's files."""
    return process_name(record.container_id, (record.stage, record.task, record.attempt))


def process_name(container: ContainerId, key: tuple[int, int, int]) -> str:
    """Return the name of the files of a task in a container."""
    return f"{container}_{'_'.join(map(str, key))}"


def started(pid: int, *, dead: bool = False) -> int:
    """Return when a process started, clock ticks since the host's boot; -1: it is not there.

    One that is dead and was not waited for is only with `dead`.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return -1
    return -1 if fields[0] in "ZX" and not dead else int(fields[19])


@cache
def host_boot() -> str:
    """Return a name of the host's run since it was switched on."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _record(data: Mapping[str, Any]) -> Record:
    amounts = {name: tuple(map(float, data[name])) for name in ("demand", "granted")}
    return Record(**{**data, **amounts})
