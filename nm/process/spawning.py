"""The node manager's end of the processes that start tasks (`nm.process.spawner`)."""

import asyncio
import contextlib
import errno
import marshal
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nm.process.spawner import LENGTH_BYTES, OUTSIDE, READ, packed

ROOT = Path(__file__).resolve().parents[2]
CODE = "import sys; sys.path.insert(0, sys.argv[1]); from nm.process.spawner import main; main()"
# In this file below the root is what a spawner says before it dies of a bug.
SPAWNER_LOG = ".spawner.log"
# More spawners must be asked for.
USUAL_SPAWNERS_MAX = 4
# A spawner with so many orders at hand gets help from another one.
BUSY_ORDERS = 8
# Once all its tasks are gone a spawner may take so long to end.
END_TIMEOUT_S = 2.0
Order = tuple[Any, ...]
Numbered = list[tuple[Any, ...]]
# What began, what failed, what ended.
Words = tuple[Numbered, Numbered, Numbered]


class Run(NamedTuple):
    """What a spawner receives once of processes that are started alike.

    `variables` come on top of those that all tasks have, `app` is the folder below the root that
    holds theirs, their stderr begins with the line `note`, `owner` is user and group of their
    folders and files, and `mode` is that of the folders. From their control groups a spawner comes
    back to `home` (as `One.groups`). They are written down in `file` for others to find them again
    (empty: they are not), each with `text` after its number and start.
    """

    command: Sequence[str]
    variables: dict[str, str]
    app: str
    note: str
    owner: tuple[int, int] | None
    mode: int
    home: str
    file: str
    text: str


class One(NamedTuple):
    """What a spawner receives for each of them alone.

    `container` is its name, `folder` is below the container's (empty: that one), and `task` is the
    value of WEFT_TASK (empty: there is none). By `groups`, files separated by colons, the process
    enters its control groups. It is written down under `name` with `text` before its number.
    `instead` is another command, with more variables.
    """

    number: int
    container: str
    folder: str
    task: str
    groups: str = ""
    name: str = ""
    text: str = ""
    instead: tuple[Sequence[str], dict[str, str]] | None = None


class Spawning:
    """One spawner; a new one is started where it ended. Use it on the event loop's thread only.

    `hear` receives the words of one message; `lost` the numbers of the processes whose spawner
    ended: how they end will not be known.
    """

    def __init__(
        self,
        root: Path,
        environment: Mapping[str, str],
        hear: Callable[[Words], None],
        lost: Callable[[Sequence[int]], None],
    ) -> None:
        self._root = root
        self._environment = dict(environment)
        self._hear = hear
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._process: subprocess.Popen[bytes] | None = None
        self._link: socket.socket | None = None
        self._unsent = bytearray()
        self._heard = bytearray()
        self._unended_numbers: set[int] = set()
        # Orders of which it did not say yet what became of them.
        self.waiting = 0
        # They are sent when this turn of the loop is over.
        self._unsent_orders: list[Order] = []

    @property
    def pid(self) -> int:
        """The spawner's process; 0: there is none."""
        return 0 if self._process is None else self._process.pid

    def run(self, run: Run, each: Sequence[One]) -> None:
        """Start processes; words of their beginning and end follow, or of their failure.

        Raises OSError where this host has no process, descriptor or room for who would start them.
        """
        if self._link is None:
            self._start()
        self._unended_numbers.update([one[0] for one in each])
        self.waiting += len(each)
        self._unsent_orders.append(("run", tuple(run), [tuple(one) for one in each]))
        if len(self._unsent_orders) == 1:
            self._loop.call_soon(self._flush)

    def close(self) -> None:
        """Let the spawner go: it does once its tasks have ended."""
        self._flush()
        process, self._process = self._process, None
        if self._link is not None:
            self._loop.remove_reader(self._link)
            self._loop.remove_writer(self._link)
            self._link.close()
            self._link = None
        if process is not None:
            try:
                process.wait(END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                # It stays for its tasks, and nothing waits for its end any more.
                process.returncode = 0

    # -- the other side ----------------------------------------------------------------------------

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        # it may outlive this process, whose output must not stay open
        with contextlib.ExitStack() as kept, theirs, (self._root / SPAWNER_LOG).open("ab") as log:
            kept.callback(ours.close)
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-I",
                    "-S",
                    "-c",
                    CODE,
                    str(ROOT),
                    str(theirs.fileno()),
                    str(self._root),
                    str(os.getpid()),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env={},
                pass_fds=(theirs.fileno(),),
                process_group=0,
            )
            kept.pop_all()
        ours.setblocking(False)
        self._link = ours
        self._unsent.clear()
        self._heard.clear()
        self._loop.add_reader(ours, self._listen)
        self._send([("environment", self._environment)])

    def _flush(self) -> None:
        orders, self._unsent_orders = self._unsent_orders, []
        if orders and self._link is not None:
            self._send(orders)

    def _send(self, orders: list[Order]) -> None:
        self._unsent += packed(orders)
        self._write()

    def _write(self) -> None:
        link, unsent = self._link, self._unsent
        if link is None:
            return
        try:
            while unsent:
                del unsent[: link.send(unsent)]
        except BlockingIOError:
            self._loop.add_writer(link, self._write)
            return
        # A broken link shows when it is read from.
        except OSError:
            unsent.clear()
        self._loop.remove_writer(link)

    def _listen(self) -> None:
        assert self._link is not None
        try:
            data = self._link.recv(READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._ended()
            return
        heard = self._heard
        heard += data
        while len(heard) >= LENGTH_BYTES:
            end = LENGTH_BYTES + int.from_bytes(heard[:LENGTH_BYTES], "little")
            if len(heard) < end:
                return
            words = marshal.loads(heard[LENGTH_BYTES:end])
            del heard[:end]
            began, failed, ended = words
            self._unended_numbers.difference_update(
                [one[0] for one in failed], [one[0] for one in ended]
            )
            self.waiting -= len(began) + len(failed) + sum([1 for one in ended if one[-1]])
            self._hear(words)

    def _ended(self) -> None:
        """End all after the spawner, which never ends without an order."""
        assert self._link is not None
        self._loop.remove_reader(self._link)
        self._loop.remove_writer(self._link)
        self._link.close()
        self._link = None
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
        self._process = None
        lost, self._unended_numbers = sorted(self._unended_numbers), set()
        # They are lost, too: the next spawner must not carry them out.
        self._unsent_orders.clear()
        self.waiting = 0
        self._lost(lost)


def usual_spawners() -> int:
    """Return one a core that this process may use, at most `USUAL_SPAWNERS_MAX`."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(USUAL_SPAWNERS_MAX, cores or 1)


class Spawners:
    """One spawner, and up to `most` where there is much to start.

    The one that starts a process waits until it runs its own program; what one spawner does at a
    time is sent in one message.
    """

    def __init__(self, make: Callable[[], Spawning], most: int = 1) -> None:
        self._make = make
        self._all = [make()]
        self._most = most

    @property
    def pids(self) -> set[int]:
        """The spawners' processes."""
        return {one.pid for one in self._all} - {0}

    def run(self, run: Run, each: Sequence[One]) -> Numbered:
        """Have processes started; words of their beginning and end follow, or of their failure.

        Return the words of the failure of those that no spawner could start.
        """
        first = 0
        while first < len(each):
            chosen, room = self._next(len(each) - first)
            try:
                chosen.run(run, each[first : first + room])
            except OSError as error:
                problem = error.errno or errno.EIO
                return [(one.number, problem, OUTSIDE) for one in each[first:]]
            first += room
        return []

    def _next(self, count: int) -> tuple[Spawning, int]:
        """Return who is to start something, and how much of so many before another one helps."""
        for one in self._all:
            if one.waiting < BUSY_ORDERS:
                return one, BUSY_ORDERS - one.waiting
        if len(self._all) < self._most:
            self._all.append(self._make())
            return self._all[-1], BUSY_ORDERS
        return min(self._all, key=lambda one: one.waiting), -(-count // len(self._all))

    def close(self) -> None:
        """Let the spawners go: they do once their tasks have ended."""
        for one in self._all:
            one.close()
