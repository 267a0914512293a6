"""A small process that starts and reaps the tasks of a node manager, which is a large one.

To start a process from here costs a fifth of what it costs a process with a gigabyte, threads and a
thousand open files, and the node manager's event loop has no part in it. Tasks are children of this
process: it waits for them, ends what is left of their groups, and writes down how they ended where
the node manager wants that, so that the next one knows if this one's is gone. It outlives its node
manager for as long as its tasks run.

It hears and says plain tuples (`marshal`, each message after its length). Orders, a list:
`("run", Run, list of One)` and `("environment", variables)`. Words, three lists: of those that
began `(number, pid)`, of those that could not `(number, errno, where)` with one of `OUTSIDE`,
`INSIDE`, `LIMITED`, and of those that ended `(number, exit code, CPU s, memory kB or -1, how long
in s, pid)`: the last is 0 where it was sent before that it began.

Run by `nm.process.spawning`; it imports next to nothing.
"""

import contextlib
import errno
import marshal
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from nm.process.places import APP_FOLDER_MODE, found, make, open_log, opened, opening, step

# Each message begins with its length in so many bytes.
LENGTH_BYTES = 4
# Who sends these to the node manager's whole group does not mean this process, whose tasks run on.
IGNORED_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# Of tasks: all that can be. What is not named here the C library asks for first, then sets.
DEFAULTED = tuple(sorted(map(int, signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})))
ENCODING, ERRORS = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()
READ = 1 << 18
TICK_NS = 10**9 // os.sysconf("SC_CLK_TCK")
OPEN_RECORDS_MAX = 8
APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
# So many processes are started before it is said and written down that they were.
STARTS_TOGETHER = 8
OPEN_APP_FOLDERS_MAX = 8
# The least time between two messages, unless nothing runs any more.
MESSAGE_INTERVAL_S = 0.005
# Where a start failed: in the node's folders, in what is started, or there under limits.
OUTSIDE, INSIDE, LIMITED = 0, 1, 2
# Tasks need open files, too, so only so many control groups keep theirs open.
OPEN_GROUPS_MAX = 100
# These two are as `nm.process.spawning` sends them.
Run = tuple[Any, ...]
One = tuple[Any, ...]


class Spawner:
    """The loop. `parent` is the node manager's process: nothing is started once it is gone."""

    def __init__(self, link: int, root: str, parent: int) -> None:
        self._link = link
        self._root = root
        self._parent = parent
        self._heard = bytearray()
        self._failures: list[tuple[Any, ...]] = []
        self._ends: list[tuple[Any, ...]] = []
        self._unsaid_pid_by_number: dict[int, int] = {}
        self._last_message_s = 0.0
        # of all tasks, and with it what the last ones had in common
        self._environment: dict[bytes, bytes] = {}
        self._common: tuple[dict[str, str], dict[bytes, bytes]] = ({"": ""}, {})
        # pid -> number; the file in which it is written down, and its name there; since when
        self._running: dict[int, tuple[int, str, str, float]] = {}
        self._open_records: dict[str, int] = {}
        self._manager_gone = False
        # Open files by which control groups are entered.
        self._doors: dict[str, list[int]] = {}
        # Where it comes back to from control groups; empty: it is there.
        self._home = ""
        self._open_app_folders: dict[str, int] = {}
        nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        self._quiet = (os.POSIX_SPAWN_DUP2, nothing, 0)
        self._fresh = [self._quiet, opening("stdout", 1), opening("stderr", 2)]

    def run(self) -> None:
        """Serve until the node manager is gone and all tasks ended."""
        wakes, wake = os.pipe()
        os.set_blocking(wakes, False)
        os.set_blocking(wake, False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        poll = select.poll()
        poll.register(self._link, select.POLLIN)
        poll.register(wakes, select.POLLIN)
        ends = (signal.SIGCHLD,)
        while not (self._manager_gone and not self._running):
            left_ms = self._say_soon()
            # those that end while it does something else are one signal, not one each
            signal.pthread_sigmask(signal.SIG_UNBLOCK, ends)
            found = poll.poll(left_ms)
            signal.pthread_sigmask(signal.SIG_BLOCK, ends)
            for file, _ in found:
                if file == wakes:
                    _drain(wakes)
                    self._reap()
                elif not self._listen():
                    poll.unregister(self._link)

    # -- words -------------------------------------------------------------------------------------

    def _listen(self) -> bool:
        try:
            data = os.read(self._link, READ)
        except OSError:
            data = b""
        if not data:
            self._manager_gone = True
            return False
        heard = self._heard
        heard += data
        while len(heard) >= LENGTH_BYTES:
            end = LENGTH_BYTES + int.from_bytes(heard[:LENGTH_BYTES], "little")
            if len(heard) < end:
                break
            orders = marshal.loads(heard[LENGTH_BYTES:end])
            del heard[:end]
            while orders and orders[0][0] == "environment":
                self._environment = _encoded(orders.pop(0)[1])
            each = [(run, one) for _, run, ones in orders for one in ones]
            for first in range(0, len(each), STARTS_TOGETHER):
                self._start(each[first : first + STARTS_TOGETHER])
        return True

    def _say_soon(self) -> float | None:
        """Say what there is to say, or return in how many ms; None: there is nothing.

        What follows soon is sent with it: to receive a message costs the node manager, and all
        whom it tells, more than a process.
        """
        if not (self._ends or self._failures or self._unsaid_pid_by_number):
            return None
        now = time.monotonic()
        left_s = self._last_message_s + MESSAGE_INTERVAL_S - now
        if left_s > 0 and self._running:
            return left_s * 1e3
        self._last_message_s = now
        self._say()
        return None

    def _say(self) -> None:
        words = (list(self._unsaid_pid_by_number.items()), self._failures, self._ends)
        self._unsaid_pid_by_number, self._failures, self._ends = {}, [], []
        if not self._manager_gone:
            data = memoryview(packed(words))
            try:
                while data:
                    data = data[os.write(self._link, data) :]
            except OSError:
                self._manager_gone = True

    # -- tasks -------------------------------------------------------------------------------------

    def _start(self, orders: list[tuple[Run, One]]) -> None:
        """Start processes, and then say and write down which began.

        Their folders and files are made before, so that no task's control group pays for another's.
        """
        ready: list[tuple[Run, One, list[int]]] = []
        for run, one in orders:
            try:
                ready.append((run, one, self._files_of(run, one)))
            except (OSError, ValueError) as error:
                # a folder inside a container's is the business of what runs there
                self._failed(one[0], error, INSIDE if one[2] else OUTSIDE)
        lines: dict[str, str] = {}
        for run, one, files in ready:
            # The next node manager may have looked already.
            if os.getppid() != self._parent:
                break
            number, file = one[0], run[7]
            try:
                pid, start = self._spawn(run, one, files)
            except (OSError, ValueError) as error:
                self._failed(number, error, LIMITED if one[4] else INSIDE)
                continue
            if file:
                line = f'\nS {one[6]}"pid":{pid},"start":{start}{run[8]}'
                lines[file] = lines.get(file, "") + line
            self._running[pid] = (number, file, one[5], time.monotonic())
            self._unsaid_pid_by_number[number] = pid
        self._leave()
        for _, _, files in ready:
            for place in files:
                os.close(place)
        for file, text in lines.items():
            self._write(file, text)

    def _failed(self, number: int, error: OSError | ValueError, where: int) -> None:
        """Say that a process could not be started; a zero byte in a word is a ValueError."""
        code = errno.EINVAL if isinstance(error, ValueError) else error.errno or errno.EINVAL
        self._failures.append((number, code, where))

    def _files_of(self, run: Run, one: One) -> list[int]:
        """Return a task's folder and log files, open; raises OSError.

        The files of a new folder that are the task's as they are made it opens itself (`_spawn`).
        """
        app, note, owner, mode = run[2:6]
        own = None if owner is None else lambda place: os.fchown(place, *owner)
        parts = (app, one[1], one[2]) if one[2] else (app, one[1])
        place, made = self._folder(parts, own, mode)
        files = [place]
        if made and own is None and not note:
            return files
        try:
            files.append(open_log(place, "stdout", own, first=made))
            files.append(open_log(place, "stderr", own, first=made))
            if note:
                os.write(files[2], f"{note}\n".encode())
        except OSError:
            for file in files:
                os.close(file)
            raise
        return files

    def _spawn(self, run: Run, one: One, files: list[int]) -> tuple[int, int]:
        """Start a process in a group, a folder and with log files of its own.

        Return its number and when it started, as `started` does. Raises OSError.
        """
        command, variables, app = run[:3]
        _, container, folder, task, groups, _, _, instead = one
        if variables is not self._common[0] and variables != self._common[0]:
            self._common = (variables, {**self._environment, **_encoded(variables)})
        environment = self._common[1].copy()
        path = f"{self._root}/{app}/{container}"
        environment[b"WEFT_CONTAINER"] = container.encode()
        path = f"{path}/{folder}" if folder else path
        environment[b"WEFT_WORK_DIR"] = path.encode(ENCODING, ERRORS)
        if task:
            environment[b"WEFT_TASK"] = task.encode()
        if instead is not None:
            command = instead[0]
            environment.update(_encoded(instead[1]))
        if self._home and not groups:
            self._leave()
        if groups:
            self._home = run[6]
            self._enter(groups)
        os.fchdir(files[0])
        program, before = found(command[0], environment), _ticks()
        try:
            pid = self._begin(program, command, environment, files)
        # Another process of the container may have put a file of that name there in between.
        except FileExistsError:
            for name in ("stdout", "stderr"):
                files.append(open_log(files[0], name, None))
            pid = self._begin(program, command, environment, files)
        # to ask costs more than all files of the task; most often there is but one answer
        return pid, before if before == _ticks() else started(pid)

    def _begin(
        self,
        program: str,
        command: Any,
        environment: dict[bytes, bytes],
        files: list[int],
    ) -> int:
        actions: list[Any] = self._fresh
        if len(files) > 1:
            actions = [self._quiet]
            actions += [(os.POSIX_SPAWN_DUP2, files[number], number) for number in (1, 2)]
        return os.posix_spawn(
            program,
            command,
            environment,
            file_actions=actions,
            setpgroup=0,
            setsigmask=(),
            setsigdef=DEFAULTED,
        )

    def _leave(self) -> None:
        """Move out of the folder and the control groups of the last process."""
        os.chdir("/")
        home, self._home = self._home, ""
        if home:
            with contextlib.suppress(OSError):
                self._enter(home)

    def _folder(
        self, parts: tuple[str, ...], own: Callable[[int], None] | None, mode: int
    ) -> tuple[int, bool]:
        """Return a task's folder, open, and whether it was made now; raises OSError.

        The folders of the latest applications stay open, and are made again where they are gone.
        """
        app = self._open_app_folders.pop(parts[0], -1)
        if app < 0:
            app = make(self._root, parts[:1], None, APP_FOLDER_MODE)
        # The one of the latest use is the last.
        self._open_app_folders[parts[0]] = app
        if len(self._open_app_folders) > OPEN_APP_FOLDERS_MAX:
            os.close(self._open_app_folders.pop(next(iter(self._open_app_folders))))
        try:
            place, made = step(app, parts[1], own, mode)
        except FileNotFoundError:
            os.close(self._open_app_folders.pop(parts[0]))
            return make(self._root, parts, own, mode), False
        for part in parts[2:]:
            try:
                inner, made = step(place, part, own, mode)
            finally:
                os.close(place)
            place = inner
        return place, made

    def _enter(self, groups: str) -> None:
        """Do as `places.enter`, by files that stay open, as groups serve many tasks."""
        doors = self._doors.pop(groups, None)
        if doors is None:
            doors = opened(groups)
        # The one of the latest use is the last.
        self._doors[groups] = doors
        if len(self._doors) > OPEN_GROUPS_MAX:
            for file in self._doors.pop(next(iter(self._doors))):
                os.close(file)
        for file in doors:
            os.write(file, b"0")

    def _reap(self) -> None:
        """Collect those that ended, each with what is left of its group."""
        own_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        now = time.monotonic()
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            pid = ended.si_pid
            with contextlib.suppress(OSError):
                # The group's number is not free before its first process is reaped.
                os.killpg(pid, signal.SIGKILL)
            code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
            number, file, name, began_s = self._running.pop(pid, (-1, "", "", now))
            # It is written before the process is reaped, so whoever sees it go finds how it ended.
            if file:
                self._write(file, f"\nE {name} {code} .")
            _, _, spent = os.wait4(pid, 0)
            # until it called exec its memory was this process's
            memory_kb = spent.ru_maxrss if spent.ru_maxrss > own_kb else -1
            if number >= 0:
                cpu_s, lasted_s = spent.ru_utime + spent.ru_stime, now - began_s
                unsaid = self._unsaid_pid_by_number.pop(number, 0)
                self._ends.append((number, code, cpu_s, memory_kb, lasted_s, unsaid))

    def _write(self, path: str, text: str) -> None:
        """Add a line to a file that stays open, as many processes share it."""
        file = self._open_records.pop(path, -1)
        try:
            if file < 0:
                file = os.open(path, APPEND, 0o600)
            # The one of the latest use is the last.
            self._open_records[path] = file
            if len(self._open_records) > OPEN_RECORDS_MAX:
                os.close(self._open_records.pop(next(iter(self._open_records))))
            os.write(file, text.encode())
        # On a full disk it is not written, and no later node manager will find it.
        except OSError:
            pass


def packed(words: Any) -> bytes:
    """Return a message as it is sent."""
    data = marshal.dumps(words)
    return len(data).to_bytes(LENGTH_BYTES, "little") + data


def _encoded(variables: Mapping[str, str]) -> dict[bytes, bytes]:
    return {
        name.encode(ENCODING, ERRORS): value.encode(ENCODING, ERRORS)
        for name, value in variables.items()
    }


def started(pid: int) -> int:
    """Return when a child started, clock ticks since the host's boot; -1: it is not there."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            return int(file.read(4096).rpartition(b")")[2].split()[19])
    except OSError:
        return -1


def _ticks() -> int:
    """Return clock ticks since the host's boot."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // TICK_NS


def _drain(pipe: int) -> None:
    try:
        while len(os.read(pipe, 4096)) == 4096:
            pass
    except BlockingIOError:
        pass


def main() -> None:
    """Run `spawner DESCRIPTOR ROOT PARENT`."""
    descriptor, root, parent = sys.argv[-3:]
    for number in IGNORED_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    os.chdir("/")
    link = int(descriptor)
    os.set_inheritable(link, False)
    os.set_blocking(link, True)
    Spawner(link, root, int(parent)).run()
