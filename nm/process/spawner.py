"""A small process that starts and reaps the tasks of a node manager, which is a large one.

To start a process from here costs a fifth of what it costs a process with a gigabyte, threads and a
thousand open files, and the node manager's event loop has no part in it. Tasks are children of this
process: it waits for them, ends what is left of their groups, and writes down how they ended where
the node manager wants that, so that the next one knows if this one's is gone. It outlives its node
manager for as long as its tasks run.

It hears and says lists of plain tuples (`marshal`, each list after its length). Orders:
`("run", number, Run)` and `("environment", variables)`. Words: `("began", number, pid)`,
`("failed", number, errno)`, `("ended", number, exit code, CPU s, memory kB or -1)`.

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
from typing import Any

from nm.process.places import make, open_log

LENGTH = 4  # bytes before each list
IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # those who stop a node manager mean it
DEFAULTED = (*IGNORED, signal.SIGPIPE, signal.SIGXFSZ)  # of tasks
READ = 1 << 18
TICK_NS = 10**9 // os.sysconf("SC_CLK_TCK")
FILES_MAX = 8  # of what is written down that stay open
APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
DOORS_MAX = 100  # control groups whose files stay open: tasks need files, too
Run = tuple[Any, ...]  # as `nm.process.spawning.Run` gives it


class Spawner:
    """The loop. `parent` is the node manager's process: nothing is started once it is gone."""

    def __init__(self, link: int, root: str, parent: int) -> None:
        self._link = link
        self._root = root
        self._parent = parent
        self._heard = bytearray()
        self._words: list[tuple[Any, ...]] = []
        self._environment: dict[str, str] = {}
        # pid -> number; the file in which it is written down, and its name there
        self._running: dict[int, tuple[int, str, str]] = {}
        self._files: dict[str, int] = {}  # those files that are open
        self._gone = False  # nobody listens any more
        self._doors: dict[str, list[int]] = {}  # open files by which control groups are entered
        self._nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)

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
        while not (self._gone and not self._running):
            for file, _ in poll.poll():
                if file == wakes:
                    _drain(wakes)
                    self._reap()
                elif not self._listen():
                    poll.unregister(self._link)
            self._say()

    # -- words -------------------------------------------------------------------------------------

    def _listen(self) -> bool:
        try:
            data = os.read(self._link, READ)
        except OSError:
            data = b""
        if not data:
            self._gone = True
            return False
        heard = self._heard
        heard += data
        while len(heard) >= LENGTH:
            end = LENGTH + int.from_bytes(heard[:LENGTH], "little")
            if len(heard) < end:
                break
            for order in marshal.loads(heard[LENGTH:end]):
                if order[0] == "run":
                    self._start(order[1], order[2])
                else:
                    self._environment = order[1]
            del heard[:end]
        return True

    def _say(self) -> None:
        words, self._words = self._words, []
        if words and not self._gone:
            data = memoryview(packed(words))
            try:
                while data:
                    data = data[os.write(self._link, data) :]
            except OSError:
                self._gone = True

    # -- tasks -------------------------------------------------------------------------------------

    def _start(self, number: int, order: Run) -> None:
        if os.getppid() != self._parent:
            return  # the next node manager may have looked already
        file, name, before, after = order[7]
        try:
            pid, start = self._spawn(order)
        except OSError as error:
            self._words.append(("failed", number, error.errno or errno.EIO))
            return
        except ValueError:  # a zero byte in a word
            self._words.append(("failed", number, errno.EINVAL))
            return
        if file:
            self._write(file, f'\nS {before}"pid":{pid},"start":{start}{after}')
        self._running[pid] = (number, file, name)
        self._words.append(("began", number, pid))

    def _spawn(self, order: Run) -> tuple[int, int]:
        """Start a process in a group, a folder and with log files of its own.

        Return its number and when it started, as `started` does. Raises OSError.
        """
        command, variables, folder, note, owner, mode, (groups, home) = order[:7]
        own = None if owner is None else lambda place: os.fchown(place, *owner)
        environment = {**self._environment, **variables}
        place = make(self._root, folder, own, mode)
        files = [place]
        try:
            for name in ("stdout", "stderr"):
                files.append(open_log(place, name, own))
            if note:
                os.write(files[2], f"{note}\n".encode())
            os.fchdir(place)
            actions = [
                (os.POSIX_SPAWN_DUP2, self._nothing, 0),
                (os.POSIX_SPAWN_DUP2, files[1], 1),
                (os.POSIX_SPAWN_DUP2, files[2], 2),
            ]
            if groups:
                self._enter(groups)
            before = _ticks()
            pid = os.posix_spawn(
                found(command[0], environment), command, environment,
                file_actions=actions, setpgroup=0, setsigmask=(), setsigdef=DEFAULTED,
            )  # fmt: skip
            # to ask costs more than all files of the task; most often there is but one answer
            return pid, before if before == _ticks() else started(pid)
        finally:
            if groups:
                with contextlib.suppress(OSError):
                    self._enter(home)
            os.chdir("/")
            for file in files:
                os.close(file)

    def _enter(self, groups: str) -> None:
        """Do as `enter`, by files that stay open, as groups serve many tasks."""
        doors = self._doors.pop(groups, None)
        if doors is None:
            doors = opened(groups)
        self._doors[groups] = doors  # the one of the latest use is the last
        if len(self._doors) > DOORS_MAX:
            for file in self._doors.pop(next(iter(self._doors))):
                os.close(file)
        for file in doors:
            os.write(file, b"0")

    def _reap(self) -> None:
        """Collect those that ended, each with what is left of its group."""
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            pid = ended.si_pid
            with contextlib.suppress(OSError):
                os.killpg(pid, signal.SIGKILL)  # its number is not free before it is reaped
            code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
            number, file, name = self._running.pop(pid, (-1, "", ""))
            if file:  # before it is reaped: who sees it go finds how it ended
                self._write(file, f"\nE {name} {code} .")
            _, _, spent = os.wait4(pid, 0)
            own_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            # until it called exec its memory was this process's
            memory_kb = spent.ru_maxrss if spent.ru_maxrss > own_kb else -1
            if number >= 0:
                cpu_s = spent.ru_utime + spent.ru_stime
                self._words.append(("ended", number, code, cpu_s, memory_kb))

    def _write(self, path: str, text: str) -> None:
        """Add a line to a file that stays open, as many processes share it."""
        file = self._files.pop(path, -1)
        try:
            if file < 0:
                file = os.open(path, APPEND, 0o600)
            self._files[path] = file  # the one of the latest use is the last
            if len(self._files) > FILES_MAX:
                os.close(self._files.pop(next(iter(self._files))))
            os.write(file, text.encode())
        except OSError:
            pass  # a full disk: then nobody will find it again


def packed(words: list[tuple[Any, ...]]) -> bytes:
    """Return a list as it is sent."""
    data = marshal.dumps(words)
    return len(data).to_bytes(LENGTH, "little") + data


def found(program: str, environment: dict[str, str]) -> str:
    """Return a program's file by the task's own PATH; raises OSError where there is none."""
    if "/" in program:
        return program
    problem = errno.ENOENT
    for folder in os.get_exec_path(environment):
        path = os.path.join(folder, program)
        if os.path.isfile(path):
            if os.access(path, os.X_OK):
                return path
            problem = errno.EACCES
    raise OSError(problem, os.strerror(problem), program)


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


def enter(groups: str) -> None:
    """Move this process, and so what it starts next, into control groups; raises OSError."""
    for file in opened(groups):
        try:
            os.write(file, b"0")
        finally:
            os.close(file)


def opened(groups: str) -> list[int]:
    """Return the files by which control groups are entered, open; raises OSError."""
    files: list[int] = []
    try:
        for path in groups.split(":"):
            files.append(os.open(path, os.O_WRONLY | os.O_CLOEXEC))
    except OSError:
        for file in files:
            os.close(file)
        raise
    return files


def _drain(pipe: int) -> None:
    try:
        while len(os.read(pipe, 4096)) == 4096:
            pass
    except BlockingIOError:
        pass


def main() -> None:
    """Run `spawner DESCRIPTOR ROOT PARENT`."""
    descriptor, root, parent = sys.argv[-3:]
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    os.chdir("/")
    link = int(descriptor)
    os.set_inheritable(link, False)
    os.set_blocking(link, True)
    Spawner(link, root, int(parent)).run()
