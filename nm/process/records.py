"""What a node manager writes down of its processes, so that the next one finds them again.

Lines in a few files, their owner's only, in `<root>/.processes`. `S` and a record in JSON: which
container and task, the process's number with its start time and the host's boot (a number alone is
soon another's), and its control group. `E`, a name and an exit code: it ended. Both are written by
who started the process and waits for it (`nm.process.spawner`): any caller that is not its parent
cannot ask the system for it. `T`, a name and an attempt: its container obeys that one from now on.
`F` and a name: the Resource Manager has learned of the end. A line begins with the end of the one
before, and all but records end with a full stop, so that a torn one is known and tears no other. A
file goes when all of its processes are forgotten.
"""

import contextlib
import json
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from weft.model.ids import AttemptId, ContainerId, NodeId
from weft.model.resources import Vector
from weft.protocol.messages import MasterLaunch, TaskLaunch
from weft.protocol.record import changed, record
from weft.runtime.kept_file import read_whole

FOLDER = ".processes"
# A shell tells the end by signal n as this much more.
SIGNALLED = 128
SIGNALS_MAX = 64
# Exit codes, and what stands for one, are below this.
EXIT_CODE_MAX = 1000
NUMBER_MAX = 2**63 - 1
# A process that is about to be started has this number and start.
NO_PROCESS, NO_START = 0, -2
# An end that is not known to have been heard is kept so long.
ENDS_KEPT_S = 60.0
FILE_PROCESSES_MAX = 1000
CACHED_TEXTS_MAX = 1024
_WRITTEN = json.JSONEncoder(separators=(",", ":"))


@record
class Record:
    """One process. `host_boot` and `start` tell it from a later one of the same number.

    `start` counts clock ticks since the host's boot and `began_s` is unix time. `master` is the
    attempt that it is the master of (0: it is a task), `taken_by` the attempt that took its
    container over (0: none).
    """

    node: str
    container_id: ContainerId
    stage: int
    task: int
    attempt: int
    pid: int
    start: int
    host_boot: str
    began_s: float
    cluster_ts: int
    demand: Vector = ()
    granted: Vector = ()
    duration_s: float = 0.0
    reusable: bool = False
    master: int = 0
    group: str = ""
    taken_by: AttemptId = 0

    def around_start(self) -> tuple[str, str]:
        """Return a record's text before and after its number and start.

        Those two are not known before the process runs.
        """
        key = (self.stage, self.task, self.attempt)
        before = before_start(self.container_id, key, self.group, self.taken_by)
        after = (
            f',"host_boot":{_json(self.host_boot)},"began_s":{self.began_s!r},'
            f'"cluster_ts":{self.cluster_ts},"demand":{_json(self.demand)},'
            f'"granted":{_json(self.granted)},"duration_s":{_json(self.duration_s)},'
            f'"reusable":{_json(self.reusable)},"master":{self.master},'
            f'"node":{_json(self.node)}}}'
        )
        return before, after

    @property
    def alive(self) -> bool:
        """Whether that very process is still there."""
        return self.host_boot == host_boot() and started(self.pid) == self.start

    @property
    def there(self) -> bool:
        """Whether it is, or has ended and who started it has not looked yet."""
        return self.host_boot == host_boot() and started(self.pid, dead=True) == self.start


def before_start(
    container_id: ContainerId, key: tuple[int, int, int], group: str, taken_by: AttemptId
) -> str:
    """Return the first half of `Record.around_start`, all in which those of a run differ."""
    stage, task, attempt = key
    return (
        f'{{"container_id":{container_id},"stage":{stage},"task":{task},"attempt":{attempt},'
        f'"group":{_json(group)},"taken_by":{taken_by},'
    )


def of_run(item: TaskLaunch | MasterLaunch, node: NodeId, cluster_ts: int) -> tuple[float, str]:
    """Return when what is about to start began, and the other half: all of a run have it alike."""
    task = item if isinstance(item, TaskLaunch) else None
    record = Record(
        node,
        item.container_id,
        -1,
        -1,
        0,
        NO_PROCESS,
        NO_START,
        host_boot(),
        time.time(),
        cluster_ts,
        item.demand,
        task.granted if task is not None else (),
        task.duration_s if task is not None else 0.0,
        task is not None and task.reusable,
        item.attempt_id if isinstance(item, MasterLaunch) else 0,
    )
    return record.began_s, record.around_start()[1]


_NAMES = [field.name for field in fields(Record)]


class Records:
    """The files of one node manager's processes."""

    def __init__(self, root: Path) -> None:
        self._folder = root / FOLDER
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Files of this process, and processes of the newest one.
        self._made = self._count = 0
        self._newest = ""
        self._names_by_file: dict[str, set[str]] = {}
        self._file_of: dict[str, str] = {}
        # When ends came, by name, monotonic.
        self._ended_s: dict[str, float] = {}

    def begin(self, names: Sequence[str]) -> str:
        """Return the file in which processes that are about to start are to be written down."""
        if not self._newest or self._count >= FILE_PROCESSES_MAX:
            self._made += 1
            self._count = 0
            self._newest = f"{self._folder}/{time.time_ns()}-{os.getpid()}-{self._made}.log"
        self._count += len(names)
        self._names_by_file.setdefault(self._newest, set()).update(names)
        self._file_of.update(dict.fromkeys(names, self._newest))
        return self._newest

    def _hold(self, file: str, name: str) -> None:
        self._names_by_file.setdefault(file, set()).add(name)
        self._file_of[name] = file

    def read(self) -> Iterator[Record]:
        """Return what was written down and is not forgotten; a torn line is none."""
        for path in sorted(self._folder.glob("*.log")):
            with contextlib.suppress(OSError):
                yield from _read(path).values()

    def take(self) -> list[Record]:
        """Return what an earlier process of this node wrote down; it is for this one to forget.

        Of a container's number that was given again only the later process counts.
        """
        found: dict[tuple[int, ...], Record] = {}
        for path in sorted(self._folder.glob("*.log")):
            try:
                records = _read(path)
            # What cannot be read now need not be forgotten now.
            except OSError:
                continue
            for name, one in records.items():
                self._hold(str(path), name)
                task = (one.container_id, one.stage, one.task, one.attempt)
                newest = one
                if task in found:
                    old, newest = sorted((found[task], one), key=lambda each: each.began_s)
                    self.told([name_of(old)])
                found[task] = newest
            if not records:
                path.unlink(missing_ok=True)
        return list(found.values())

    def code(self, name: str) -> int | None:
        """Return how a process ended, below 0 by a signal, or None where that is not known."""
        file = self._file_of.get(name)
        for path in self._folder.glob("*.log") if file is None else (Path(file),):
            with contextlib.suppress(OSError, ValueError):
                _, known, after = read_whole(path).rpartition(f"\nE {name} ".encode())
                code, _, end = after.partition(b"\n")[0].partition(b" ")
                if known and end == b"." and abs(int(code)) <= EXIT_CODE_MAX:
                    return exit_code(int(code))
        return None

    def take_over(self, name: str, attempt: AttemptId) -> None:
        """Write down that the container of a process obeys another attempt; raises OSError."""
        self._write(self._file_of.get(name, ""), f"\nT {name} {attempt} .")

    def ended(self, name: str, code: int) -> None:
        """Note that a process ended, and how, where nobody could write that down."""
        self._ended_s[name] = time.monotonic()
        if self.code(name) is None:
            with contextlib.suppress(OSError):
                self._write(self._file_of.get(name, ""), f"\nE {name} {code} .")

    def told(self, names: Sequence[str]) -> None:
        """Note that processes ended, as their parent reported and wrote down."""
        self._ended_s.update(dict.fromkeys(names, time.monotonic()))

    def never(self, name: str) -> None:
        """Drop a process that was not started."""
        self._forget([name])

    def forget(self, *, heard: bool) -> None:
        """Drop the ends that were reported, or that are long ago."""
        before = time.monotonic() - (1.0 if heard else ENDS_KEPT_S)
        self._forget([name for name, since in self._ended_s.items() if since <= before])

    def _forget(self, names: list[str]) -> None:
        gone: dict[str, list[str]] = {}
        for name in names:
            self._ended_s.pop(name, None)
            file = self._file_of.pop(name, "")
            if file:
                self._names_by_file[file].discard(name)
                gone.setdefault(file, []).append(name)
        for file, forgotten in gone.items():
            with contextlib.suppress(OSError):
                if self._names_by_file[file]:
                    self._write(file, "".join([f"\nF {name} ." for name in forgotten]))
                    continue
                del self._names_by_file[file]
                if file == self._newest:
                    self._newest = ""
                os.unlink(file)

    def clear(self) -> None:
        """Drop everything: nothing runs any more."""
        for path in self._folder.iterdir():
            with contextlib.suppress(OSError):
                path.unlink()
        self._ended_s.clear()
        self._names_by_file.clear()
        self._file_of.clear()
        self._newest = ""

    def _write(self, path: str, text: str) -> None:
        """Add lines to a file that is there: of a process that nobody wrote down nothing is."""
        with contextlib.suppress(FileNotFoundError):
            file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            try:
                os.write(file, text.encode())
            finally:
                os.close(file)


def _read(path: Path) -> dict[str, Record]:
    """Return the records of a file that are not forgotten, by name; raises OSError."""
    found: dict[str, Record] = {}
    lines = read_whole(path).decode("utf-8", "replace").split("\n")
    for line in lines:
        kind, _, rest = line.partition(" ")
        name, *words = rest.split(" ")
        if kind == "S":
            with contextlib.suppress(
                ValueError, TypeError, KeyError, OverflowError, RecursionError
            ):
                record = _record(json.loads(rest))
                found[name_of(record)] = record
        elif not words or words[-1] != "." or name not in found:
            continue
        elif kind == "T":
            with contextlib.suppress(ValueError):
                attempt = int(words[0])
                if 0 < attempt <= NUMBER_MAX:
                    found[name] = changed(found[name], taken_by=attempt)
        elif kind == "F":
            del found[name]
    return found


@lru_cache(CACHED_TEXTS_MAX, typed=True)
def _json(value: str | float | bool | Vector) -> str:
    return _WRITTEN.encode(value)


def exit_code(status: int) -> int:
    """Return the exit code that a shell's status stands for: below 0 an end by signal."""
    signal = status - SIGNALLED
    return -signal if 0 < signal <= SIGNALS_MAX else status


def name_of(record: Record) -> str:
    """Return the name of a process, which no other has: a container's number may be given again."""
    key = (record.stage, record.task, record.attempt)
    return named(record.container_id, key, record.began_s)


def named(container_id: ContainerId, key: tuple[int, int, int], began_s: float) -> str:
    """Return `name_of` of what it tells apart by."""
    stage, task, attempt = key
    return f"{container_id}_{stage}_{task}_{attempt}_{round(began_s * 1e6)}"


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
    """Return a record; raises ValueError, TypeError, KeyError or OverflowError for what is none."""
    amounts = {name: tuple(map(float, data[name])) for name in ("demand", "granted")}
    made = Record(**{**data, **amounts})
    for name in _NAMES:
        value = getattr(made, name)
        if name in ("node", "host_boot", "group"):
            good = isinstance(value, str)
        elif name in ("began_s", "duration_s"):
            good = math.isfinite(value)
        else:
            good = name in amounts or (isinstance(value, int) and abs(value) <= NUMBER_MAX)
        if not good:
            raise ValueError(name)
    return made
