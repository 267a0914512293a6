"""Real tasks: each command runs as its own process group, in its own folder, and is reaped whole.

What a command leaves behind is killed with it: when the first process ends, the rest of its group
goes too, before the group's number can be used again. A node manager that died without a chance to
stop its tasks is followed by one that finds them (`nm.process.records`) and keeps them; what is not
written down is killed by `kill_orphans`, which finds it by its environment.
"""

import asyncio
import contextlib
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from nm.process.folders import KEPT, clean, log_size, logs, make, open_log, read_log
from nm.process.isolation import Isolation
from nm.process.leftovers import ROOT_VARIABLE, kill_orphans
from nm.process.limits import Limits, startable
from nm.process.records import (
    NO_PROCESS,
    NO_START,
    Record,
    Records,
    exit_code,
    host_boot,
    name_of,
    process_name,
    started,
    waited_for,
)
from weft.effects import ProcessEnded
from weft.ids import AppId, ContainerId, app_of_container, format_app, format_container
from weft.messages import NODE_ENDED, MasterLaunch, Outcome, TaskLaunch
from weft.resources import Vector

LAUNCHER = "weft.hadoop.launcher"  # it keeps files for all containers of an application
SECRET = ("WEFT_TLS_", "WEFT_TOKEN", "WEFT_NM_")
NOT_FOUND, NOT_EXECUTABLE = 127, 126  # as shells answer
UNKNOWN = -1000  # exit code of a process of which nobody knows how it ended
POLL_S = 0.02  # where the system has no pidfd
NO_COMMAND = "weft: this stage has no command; the task only sleeps for its {:g} s"
TaskKey = tuple[int, int, int]


class _Process:
    __slots__ = (
        "began_s", "container_id", "found", "key", "pid", "pidfd", "recorded", "stopping", "timer",
    )  # fmt: skip

    def __init__(self, container_id: ContainerId, key: TaskKey, pid: int, began_s: float) -> None:
        self.found = False  # an earlier node manager started it
        self.recorded = False  # a shell waits for it and writes its exit code down
        self.began_s = began_s  # on the event loop's clock
        self.container_id = container_id
        self.key = key
        self.pid = pid  # also the number of its group
        self.pidfd = -1
        self.stopping = False
        self.timer: asyncio.TimerHandle | None = None


class ProcessHost:
    """The processes of one host's containers. Use it on the event loop's thread only.

    `on_ended` is told of every end. Folders: `<root>/<application>/<container>/` with `stdout` and
    `stderr`; in reusable containers one sub-folder a task. Stopping is SIGTERM to the group, then
    SIGKILL after `grace_s` of wall-clock time. Choose a root on a quick file system: two files and
    a folder a task can cost more than the process.
    """

    def __init__(
        self,
        root: Path,
        on_ended: Callable[[ProcessEnded], None],
        *,
        cluster_ts: int = 0,
        grace_s: float = 5.0,
        environment: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        records: Records | None = None,
        isolation: Isolation | None = None,
    ) -> None:
        self._records = records if hasattr(os, "pidfd_open") and host_boot() else None
        self.root = root.resolve()
        self.cluster_ts = cluster_ts
        self._on_ended = on_ended
        self._grace_s = grace_s
        self._limits = limits
        self._isolation = isolation if isolation is not None and isolation.on else None
        given = os.environ if environment is None else environment
        # who this node is to the others is no business of its tasks
        self._environment = {k: v for k, v in given.items() if not k.startswith(SECRET)}
        self._environment[ROOT_VARIABLE] = str(self.root)
        self._names: tuple[str, ...] = ()  # the cluster's resource types, once they are known
        self._running: dict[ContainerId, dict[TaskKey, _Process]] = {}
        self._loop = asyncio.get_running_loop()
        self._polling = False
        self.root.mkdir(parents=True, exist_ok=True)

    def __len__(self) -> int:
        return sum(map(len, self._running.values()))

    @property
    def pids(self) -> set[int]:
        """The processes that were started here, without what they started."""
        return {process.pid for group in self._running.values() for process in group.values()}

    def holds(self, container: str) -> bool:
        """Whether a container, by its name, still runs."""
        return any(format_container(self.cluster_ts, each) == container for each in self._running)

    def follow(self, cluster_ts: int, names: Sequence[str]) -> None:
        """Learn the cluster's start, ms since the epoch, and its resource types."""
        self.cluster_ts = cluster_ts
        self._names = tuple(names)
        if self._limits is not None:
            self._limits.names = list(names)

    # -- starting ----------------------------------------------------------------------------------

    def start(self, item: TaskLaunch, node_id: str = "") -> None:
        """Run a task; where it cannot be started, its end says why.

        A task without a command sleeps for its duration, and its stderr says so.
        """
        key = (item.stage, item.task, item.attempt)
        name = f"{item.stage}-{item.task}-{item.attempt}" if item.reusable else ""
        command = item.command or ("sleep", f"{item.duration_s:.6f}")
        variables = dict(item.environment)
        variables.setdefault("WEFT_STAGE", str(item.stage))
        variables.setdefault("WEFT_TASK", str(item.task))
        variables.setdefault("WEFT_ATTEMPT", str(item.attempt))
        variables["WEFT_NODE"] = node_id
        demand = item.granted or item.demand
        note = "" if item.command else NO_COMMAND.format(item.duration_s)
        self.run(
            item.container_id, command, variables, key=key, folder=name, demand=demand, note=note,
            item=item, node_id=node_id,
        )  # fmt: skip

    def run(
        self,
        container_id: ContainerId,
        command: Sequence[str],
        variables: Mapping[str, str],
        *,
        key: TaskKey = (-1, -1, 0),
        folder: str = "",
        demand: Vector = (),
        note: str = "",
        item: TaskLaunch | MasterLaunch | None = None,
        node_id: str = "",
        own: bool = False,
    ) -> None:
        """Run any command in a container (a master, for example); `demand` limits it.

        What is Weft's `own` is not kept from the node, whose certificate it shows. `note` is a line
        that its stderr begins with. What is started for an `item` is written down, for the next
        node manager to find.
        """
        path = self.folder(container_id) / folder
        environment = self._environment | dict(variables)
        environment["WEFT_CONTAINER"] = format_container(self.cluster_ts, container_id)
        environment["WEFT_WORK_DIR"] = str(path)
        environment["WEFT_PYTHON"] = sys.executable  # one that can import weft
        held, isolation = command, self._isolation
        name = process_name(container_id, key)
        found = startable(command[0], environment, path)
        if isolation is not None and found and not own:
            environment.update(isolation.environment())
            held = isolation.wrap(command, path, self._seen(container_id, command))
        recorded = found and self._records is not None and item is not None
        if recorded:
            assert self._records is not None
            self._records.exit_file(name).unlink(missing_ok=True)
            held = waited_for(held, self._records.exit_file(name))
        group = ""
        if self._limits is not None and demand:
            group = format_container(self.cluster_ts, container_id)
            held = self._limits.enter(container_id, group, demand, held, environment, path)
        if item is not None and recorded:
            self._write(item, key, NO_PROCESS, group, node_id)
        try:
            pid = self._spawn(held, environment, path, note)
        except OSError as error:
            if recorded and self._records is not None:
                self._records.drop(name)
            code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
            problem = f"{command[0]}: cannot be started: {error.strerror or error}"
            end = ProcessEnded(container_id, Outcome.FAILED, code, problem, (), *key)
            self._loop.call_soon(self._on_ended, end)
            return
        process = _Process(container_id, key, pid, self._loop.time())
        process.recorded = recorded
        if item is not None and process.recorded:
            self._write(item, key, pid, group, node_id)
        self._running.setdefault(container_id, {})[key] = process
        self._watch(process)

    def _spawn(
        self, command: Sequence[str], environment: Mapping[str, str], folder: Path, note: str
    ) -> int:
        """Start a process in its own group (vfork and exec: about 0.4 ms); raises OSError."""
        own = None if self._isolation is None else self._isolation.own
        place = make(self.root, folder.relative_to(self.root).parts, own, 0o700)
        files = [place]
        try:
            for name in ("stdout", "stderr"):
                files.append(open_log(place, name, own))
            if note:
                os.write(files[2], f"{note}\n".encode())
            started = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=files[1],
                stderr=files[2],
                cwd=folder,
                env=environment,
                process_group=0,
                close_fds=True,
            )
        finally:
            for file in files:
                os.close(file)
        started.returncode = 0  # reaped by its pidfd, not by Popen
        return started.pid

    def _seen(self, container_id: ContainerId, command: Sequence[str]) -> list[Path]:
        """The folders that a container's tasks share: its own, and what its application keeps."""
        folder = self.folder(container_id)
        if not any(LAUNCHER in word for word in command[:3]):
            return [folder]
        kept = [folder.parent / name for name in KEPT]
        assert self._isolation is not None
        for path in kept:
            os.close(make(self.root, path.relative_to(self.root).parts, self._isolation.own, 0o700))
        return [folder, *kept]

    def _write(
        self, item: TaskLaunch | MasterLaunch, key: TaskKey, pid: int, group: str, node_id: str
    ) -> None:
        """Before a process is started without its number, so that its end is known however soon
        its node manager dies; then again with it.
        """
        assert self._records is not None
        record = Record(
            node_id, item.container_id, *key, pid, started(pid) if pid else NO_START,
            host_boot(), time.time(),
            self.cluster_ts, item.demand,
            item.granted if isinstance(item, TaskLaunch) else (),
            item.duration_s if isinstance(item, TaskLaunch) else 0.0,
            isinstance(item, TaskLaunch) and item.reusable,
            item.attempt_id if isinstance(item, MasterLaunch) else 0, group,
        )  # fmt: skip
        with contextlib.suppress(OSError):  # a full disk: then nobody will find it again
            self._records.write(record)

    # -- finding again -----------------------------------------------------------------------------

    def find(self) -> tuple[list[Record], list[ProcessEnded]]:
        """Keep the processes that an earlier node manager left; those that ended meanwhile, too.

        Answers all that were written down, and the ends of those that are gone. Whatever else that
        node manager started is killed. Call it before anything is started.
        """
        if self._records is None:
            return [], []
        found = list(self._records.read())
        ends = []
        for record in found:
            if not self._keep(record):
                ends.append(self._gone(record))
        return found, ends

    def _keep(self, record: Record) -> bool:
        if not record.alive:
            return False
        key = (record.stage, record.task, record.attempt)
        ran_s = time.time() - record.began_s
        process = _Process(record.container_id, key, record.pid, self._loop.time() - ran_s)
        process.found = process.recorded = True
        try:
            process.pidfd = os.pidfd_open(record.pid)
        except OSError:
            return False
        if not record.alive:  # it ended in between, and its number may be another's
            os.close(process.pidfd)
            return False
        self.cluster_ts = record.cluster_ts
        if self._limits is not None and record.group:
            self._limits.find(record.container_id, record.group)
        self._running.setdefault(record.container_id, {})[key] = process
        self._loop.add_reader(process.pidfd, self._reap, process)
        return True

    def _gone(self, record: Record) -> ProcessEnded:
        """How a process ended while no node manager watched it."""
        assert self._records is not None
        key = (record.stage, record.task, record.attempt)
        code = self._records.code(name_of(record))
        if code is not None and code != UNKNOWN:
            self._records.ended(name_of(record), code)
            outcome = Outcome.SUCCEEDED if code == 0 else Outcome.FAILED
            return ProcessEnded(record.container_id, outcome, code, _how(code), (), *key)
        self._records.ended(name_of(record), UNKNOWN)
        why = "it was gone when its node manager was back, and how it ended is not known"
        if record.host_boot != host_boot():
            why = "its host was started anew"
            return ProcessEnded(record.container_id, Outcome.LOST, NODE_ENDED, why, (), *key)
        return ProcessEnded(record.container_id, Outcome.LOST, UNKNOWN, why, (), *key)

    def forget(self, *, heard: bool) -> None:
        """Drop what is written down of processes whose ends were heard of."""
        if self._records is not None:
            self._records.forget(heard=heard)

    # -- stopping ----------------------------------------------------------------------------------

    def stop(self, container_id: ContainerId) -> None:
        """Stop all processes of a container; their ends follow."""
        for process in self._running.get(container_id, {}).values():
            if not process.stopping:
                process.stopping = True
                _signal(process.pid, signal.SIGTERM)
                process.timer = self._loop.call_later(
                    self._grace_s, _signal, process.pid, signal.SIGKILL
                )

    async def close(self, grace_s: float | None = None) -> None:
        """Stop everything and wait until all of it is gone."""
        for container_id in list(self._running):
            self.stop(container_id)
        waited_s = self._grace_s if grace_s is None else grace_s
        until = self._loop.time() + waited_s
        while self._running and self._loop.time() < until:
            await asyncio.sleep(0.01)
        for group in list(self._running.values()):
            for process in group.values():
                _signal(process.pid, signal.SIGKILL)
        while self._running:
            await asyncio.sleep(0.005)
        if self._limits is not None:
            self._limits.end()
        if self._records is not None:
            self._records.clear()

    # -- files -------------------------------------------------------------------------------------

    def folder(self, container_id: ContainerId) -> Path:
        """The work folder of a container."""
        app = format_app(self.cluster_ts, app_of_container(container_id))
        return self.root / app / format_container(self.cluster_ts, container_id)

    def clean(self, app: AppId) -> None:
        """Remove what an application that brought its master along left here, but for logs."""
        folder = self.root / format_app(self.cluster_ts, app)
        self._loop.run_in_executor(None, clean, folder)

    def logs(self, container_id: ContainerId) -> list[str]:
        """Names of a container's log files, relative to its folder."""
        return logs(self.folder(container_id))

    def log_size(self, container_id: ContainerId, name: str) -> int:
        """Bytes of a log file so far."""
        return log_size(self.folder(container_id), name)

    def read_log(
        self, container_id: ContainerId, name: str, offset: int = 0, size: int = 1 << 20
    ) -> bytes:
        """A piece of a log file; raises FileNotFoundError for a name that `logs` does not give."""
        return read_log(self.folder(container_id), name, offset, size)

    # -- reaping -----------------------------------------------------------------------------------

    def _watch(self, process: _Process) -> None:
        if hasattr(os, "pidfd_open"):
            process.pidfd = os.pidfd_open(process.pid)
            self._loop.add_reader(process.pidfd, self._reap, process)
        elif not self._polling:
            self._polling = True
            self._loop.call_later(POLL_S, self._poll)

    def _poll(self) -> None:
        for group in list(self._running.values()):
            for process in list(group.values()):
                found = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if found is not None:
                    self._reap(process)
        self._polling = bool(self._running)
        if self._polling:
            self._loop.call_later(POLL_S, self._poll)

    def _reap(self, process: _Process) -> None:
        """The first process of a group ended: end the rest, then collect it."""
        if process.pidfd >= 0:
            self._loop.remove_reader(process.pidfd)
            os.close(process.pidfd)
        if process.timer is not None:
            process.timer.cancel()
        if process.found:
            code, spent = self._found_code(process), None
        else:
            _signal(process.pid, signal.SIGKILL)  # its number is not free before the next line
            _, status, spent = os.wait4(process.pid, 0)
            code = os.waitstatus_to_exitcode(status)
            sandboxed = self._isolation is not None and self._isolation.sandboxed
            code = exit_code(code) if process.recorded or sandboxed else code
        for_memory = self._left(process)
        if process.recorded and self._records is not None:
            self._records.ended(process_name(process.container_id, process.key), code)
        message = _how(code)
        outcome = Outcome.SUCCEEDED if code == 0 else Outcome.FAILED
        if code != 0:
            outcome = Outcome.KILLED if process.stopping else Outcome.FAILED
            if code == UNKNOWN and not process.stopping:
                outcome, message = Outcome.LOST, "how it ended is not known"
            if for_memory and not process.stopping:
                outcome = Outcome.OUT_OF_MEMORY
                message = f"out of memory: over the container's limit ({message})"
        use = tuple(-1.0 for _ in self._names)
        if spent is not None:
            use = self._use(spent, self._loop.time() - process.began_s)
        end = ProcessEnded(process.container_id, outcome, code, message, use, *process.key)
        self._on_ended(end)

    def _found_code(self, process: _Process) -> int:
        """How a process ended that is not this one's child; what it leaves behind is killed."""
        assert self._records is not None
        kill_orphans(self.root, only=process.pid)
        code = self._records.code(process_name(process.container_id, process.key))
        if code is not None:
            return code
        return -signal.SIGKILL if process.stopping else UNKNOWN

    def _use(self, spent: resource.struct_rusage, lasted_s: float) -> Vector:
        """What a process and those that it waited for used: mean cores, the largest one's memory.

        Until it called exec, the process was a copy of this one, and its memory counts as its own:
        what does not go beyond that says nothing. Nothing is known of other resources.
        """
        own_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        cores = (spent.ru_utime + spent.ru_stime) / max(lasted_s, 1e-3)
        known = {"vcores": cores}
        if spent.ru_maxrss > own_kb:
            known["memory_mb"] = spent.ru_maxrss / 1024.0
        return tuple([known.get(name, -1.0) for name in self._names])

    def _left(self, process: _Process) -> bool:
        """Forget a process that ended; True: its container ran into its memory limit."""
        container = process.container_id
        group, limits = self._running[container], self._limits
        del group[process.key]
        for_memory = limits is not None and limits.killed_for_memory(container)
        if not group:
            del self._running[container]
            if limits is not None:
                limits.close(container)
        return for_memory

    def measure(self) -> tuple[tuple[ContainerId, Vector], ...]:
        """What containers use now, in the cluster's resource types; empty without `limits`."""
        if self._limits is None:
            return ()
        running = {
            container: [process.pid for process in group.values()]
            for container, group in self._running.items()
        }
        return self._limits.measure(running)


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _how(code: int) -> str:
    if code == 0:
        return ""
    return f"exit code {code}" if code > 0 else f"ended by {_signal_name(-code)}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
