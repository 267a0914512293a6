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

from nm.process.spawner import LENGTH, OUTSIDE, READ, packed

ROOT = Path(__file__).resolve().parents[2]
CODE = "import sys; sys.path.insert(0, sys.argv[1]); from nm.process.spawner import main; main()"
LOG = ".spawner.log"  # below the root: what it says before it dies of a bug
MOST = 4  # spawners, unless more are wanted
BUSY = 8  # orders of one spawner before another one helps
END_S = 2.0  # for a spawner to go once all its tasks are gone
Order = tuple[Any, ...]
Numbered = list[tuple[Any, ...]]
Words = tuple[Numbered, Numbered, Numbered]  # of what began, failed, ended


class Run(NamedTuple):
    """What a spawner is told once of processes that are started alike."""

    command: Sequence[str]
    variables: dict[str, str]  # beside those of all tasks
    app: str  # the folder below the root that theirs are in
    note: str  # a line that their stderr begins with
    owner: tuple[int, int] | None  # user and group of their folders and files
    mode: int  # of the folders
    home: str  # where to come back to from their control groups, as `One.groups`
    file: str  # in which they are written down for others to find them again; empty: they are not
    text: str  # of what is written down, from the process's number and start on


class One(NamedTuple):
    """What a spawner is told of each of them by itself."""

    number: int
    container: str  # its name
    folder: str  # below the container's; empty: that one
    task: str  # value of WEFT_TASK; empty: it is not told
    groups: str = ""  # files by which its control groups are entered, separated by colons
    name: str = ""  # by which it is written down
    text: str = ""  # of what is written down, up to the process's number
    instead: tuple[Sequence[str], dict[str, str]] | None = None  # command, and more variables


class Spawning:
    """One spawner; a new one is started where it ended. Use it on the event loop's thread only.

    `hear` is told the words of one message; `lost` the numbers of the processes whose spawner
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
        self._open: set[int] = set()  # numbers that did not end
        self.waiting = 0  # orders of which it did not say yet what became of them
        self._orders: list[Order] = []  # to be sent when this turn of the loop is over

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
        self._open.update([one[0] for one in each])
        self.waiting += len(each)
        self._orders.append(("run", tuple(run), [tuple(one) for one in each]))
        if len(self._orders) == 1:
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
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.returncode = 0  # it stays for its tasks, and is nobody's business now

    # -- the other side ----------------------------------------------------------------------------

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        # it may outlive this process, whose output must not stay open
        with contextlib.ExitStack() as kept, theirs, (self._root / LOG).open("ab") as log:
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
        orders, self._orders = self._orders, []
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
        except OSError:  # it is told of when it is read from
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
        while len(heard) >= LENGTH:
            end = LENGTH + int.from_bytes(heard[:LENGTH], "little")
            if len(heard) < end:
                return
            words = marshal.loads(heard[LENGTH:end])
            del heard[:end]
            began, failed, ended = words
            self._open.difference_update([one[0] for one in failed], [one[0] for one in ended])
            self.waiting -= len(began) + len(failed) + sum([1 for one in ended if one[-1]])
            self._hear(words)

    def _ended(self) -> None:
        """End all after the spawner, which never ends by itself."""
        assert self._link is not None
        self._loop.remove_reader(self._link)
        self._loop.remove_writer(self._link)
        self._link.close()
        self._link = None
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
        self._process = None
        lost, self._open = sorted(self._open), set()
        self._orders.clear()  # they are lost, too: the next one must not carry them out
        self.waiting = 0
        self._lost(lost)


def usual_spawners() -> int:
    """Return one a core that this process may use, at most `MOST`."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(MOST, cores or 1)


class Spawners:
    """One spawner, and up to `most` where there is much to start.

    Whoever starts a process waits until it runs its own program; what one spawner does at a time is
    said in one message.
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

        Return the words of the failure of those that no spawner could be had for.
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
            if one.waiting < BUSY:
                return one, BUSY - one.waiting
        if len(self._all) < self._most:
            self._all.append(self._make())
            return self._all[-1], BUSY
        return min(self._all, key=lambda one: one.waiting), -(-count // len(self._all))

    def close(self) -> None:
        """Let the spawners go: they do once their tasks have ended."""
        for one in self._all:
            one.close()
