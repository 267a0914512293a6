"""Real tasks: each command runs as its own process group, in its own folder, and is reaped whole.

What a command leaves behind is killed with it: when the first process ends, the rest of its group
goes too, before the group's number can be used again. A node manager that died without a chance to
stop its tasks is followed by one that finds them (`nm.process.records`) and keeps them; what is not
written down is killed by `kill_orphans`, which finds it by its environment.
"""

import asyncio
import contextlib
import errno
import os
import signal
import sys
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from nm.process.disks import EXHAUSTED, OWN_FOLDERS, Disk
from nm.process.folders import KEPT, log_size, logs, read_log, share
from nm.process.isolation import Isolation, hindrance, steers
from nm.process.leftovers import ROOT_VARIABLE, kill_orphans
from nm.process.limits import Limits
from nm.process.places import make
from nm.process.records import (
    Record,
    Records,
    before_start,
    exit_code,
    host_boot,
    name_of,
    named,
    of_run,
)
from nm.process.running import RunningProcess, TaskKey
from nm.process.signals import how, is_there, send
from nm.process.spawner import INSIDE, LIMITED, OUTSIDE
from nm.process.spawning import One, Run, Spawners, Spawning, Words
from weft.model.ids import (
    AppId,
    AttemptId,
    ContainerId,
    app_of_container,
    format_app,
    format_container,
    format_containers,
)
from weft.model.resources import Vector
from weft.protocol.effects import ProcessEnded
from weft.protocol.messages import (
    NODE_ENDED,
    NODE_FAULT,
    MasterLaunch,
    Outcome,
    TaskLaunch,
    started_by,
)
from weft.protocol.record import changed
from weft.runtime.role_settings import ENV_WHITELIST

# It keeps files for all containers of an application.
LAUNCHER = "weft.yarn.launcher"
SECRET = ("WEFT_TLS_", "WEFT_TOKEN", "WEFT_NM_")
# Shells answer with these exit codes.
NOT_FOUND, NOT_EXECUTABLE = 127, 126
UNKNOWN_EXIT_CODE = -1000
# Another node manager's spawner may take a moment to write down how its process ended.
END_POLL_S, END_POLLS_MAX = 0.01, 500
NO_COMMAND = "weft: this stage has no command; the task only sleeps for its {:g} s"
SPAWNER_GONE = "the process that starts and watches tasks was ended"
# Tasks find an interpreter here that can import weft.
_PYTHON = {"WEFT_PYTHON": sys.executable}
# Containers, each with the task that is to run there.
Each = Sequence[tuple[ContainerId, TaskKey]]


class ProcessHost:
    """The processes of one host's containers. Use it on the event loop's thread only.

    `on_ended` gets every end, of several at once; before them `on_fault` of why this host
    could not start something that another one could. Folders:
    `<root>/<application>/<container>/` with `stdout` and `stderr`; in reusable containers one
    sub-folder a task. Stopping is SIGTERM to the group, then SIGKILL after `grace_s` of wall-clock
    time. Choose a root on a quick file system: two files and a folder a task can cost more than
    the process.
    """

    def __init__(
        self,
        root: Path,
        on_ended: Callable[[Sequence[ProcessEnded]], None],
        *,
        cluster_ts: int = 0,
        grace_s: float = 5.0,
        limits: Limits | None = None,
        records: Records | None = None,
        isolation: Isolation | None = None,
        spawners: int = 1,
        on_fault: Callable[[str], None] = lambda why: None,
        whitelist: Sequence[str] = ENV_WHITELIST,
    ) -> None:
        """`whitelist`: patterns of the variables that tasks are given of this process's own."""
        self._on_fault = on_fault
        self._records = records if hasattr(os, "pidfd_open") and host_boot() else None
        self.root = root.resolve()
        self.cluster_ts = cluster_ts
        self._on_ended = on_ended
        self._grace_s = grace_s
        self._limits = limits
        self._isolation = isolation if isolation is not None and isolation.on else None
        # who this node is to the others is no business of anything that it starts
        self._own = {name: os.environ[name] for name in os.environ if not name.startswith(SECRET)}
        self._environment = {
            name: value
            for name, value in self._own.items()
            if any(fnmatchcase(name, passed) for passed in whitelist)
        }
        self._root = self._environment[ROOT_VARIABLE] = str(self.root)
        # of the cluster's resource types, once they are known: use that nobody knows; positions
        self._unknown: Vector = ()
        self._vcores = self._memory = -1
        self._running: dict[ContainerId, dict[TaskKey, RunningProcess]] = {}
        self._taken_by: dict[ContainerId, AttemptId] = {}
        self._loop = asyncio.get_running_loop()
        self._newest_order = 0
        self._unended_by_order: dict[int, RunningProcess] = {}
        self.root.mkdir(parents=True, exist_ok=True)
        self._disk = Disk(self.root)
        share(self.root, self._isolation.own if self._isolation is not None else None)
        parts = (self.root, self._environment, self._hear, self._lost)
        self._spawning = Spawners(lambda: Spawning(*parts), spawners)

    def __len__(self) -> int:
        return sum(map(len, self._running.values()))

    @property
    def pids(self) -> set[int]:
        """The processes that were started for it, and the spawners; not what they started."""
        found = {process.pid for group in self._running.values() for process in group.values()}
        return (found | self._spawning.pids) - {0}

    def holds(self, container: str) -> bool:
        """Return whether a container, by its name, still runs."""
        return any(format_container(self.cluster_ts, each) == container for each in self._running)

    def follow(self, cluster_ts: int, names: Sequence[str]) -> None:
        """Learn the cluster's start, ms since the epoch, and its resource types."""
        self.cluster_ts = cluster_ts
        self._unknown = (-1.0,) * len(names)
        places = {name: place for place, name in enumerate(names)}
        self._vcores, self._memory = places.get("vcores", -1), places.get("memory_mb", -1)
        if self._limits is not None:
            self._limits.names = list(names)

    # -- starting ----------------------------------------------------------------------------------

    def start(self, item: TaskLaunch, node_id: str = "") -> None:
        """Run a task, or each of a run; where one cannot be started, its end says why.

        A task without a command sleeps for its duration, and its stderr says so.
        """
        command = item.command or ("sleep", f"{item.duration_s:.6f}")
        variables = dict(item.environment)
        variables.setdefault("WEFT_STAGE", str(item.stage))
        variables.setdefault("WEFT_ATTEMPT", str(item.attempt))
        variables["WEFT_NODE"] = node_id
        tasks = item.tasks or (item.task,)
        keys = [(item.stage, task, item.attempt) for task in tasks]
        self._run(
            list(zip(started_by(item), keys, strict=True)),
            command,
            variables,
            demand=item.granted or item.demand,
            item=item,
            node_id=node_id,
            note="" if item.command else NO_COMMAND.format(item.duration_s),
        )

    def run(
        self,
        container_id: ContainerId,
        command: Sequence[str],
        variables: dict[str, str],
        *,
        demand: Vector = (),
        item: MasterLaunch | None = None,
        node_id: str = "",
        own: bool = False,
    ) -> None:
        """Run any command in a container (a master, for example); `demand` limits it.

        What is Weft's `own` is not kept from the node, whose certificate it shows. What is started
        for an `item` is written down, for the next node manager to find.
        """
        each = [(container_id, (-1, -1, 0))]
        self._run(each, command, variables, demand=demand, item=item, node_id=node_id, own=own)

    def _run(  # noqa: PLR0915
        self,
        each: Each,
        command: Sequence[str],
        variables: dict[str, str],
        *,
        demand: Vector,
        item: TaskLaunch | MasterLaunch | None,
        node_id: str,
        note: str = "",
        own: bool = False,
    ) -> None:
        """Run a command in each of some containers of one attempt, with consecutive ids."""
        first = each[0][0]
        app = format_app(self.cluster_ts, app_of_container(first))
        names = format_containers(self.cluster_ts, first, len(each))
        inner = isinstance(item, TaskLaunch) and item.reusable
        told = "WEFT_TASK" not in variables
        # a master of Weft's own is a part of this host's, and is told what this process was
        variables = {**(self._own if own else {}), **variables, **_PYTHON}
        isolation, limits = self._isolation, self._limits
        apart = None if own else isolation
        everything: dict[str, str] = {}
        later: dict[str, str] = {}
        if apart is not None:
            everything = self._environment | variables
            later = {name: value for name, value in variables.items() if steers(name)}
            variables = {name: variables[name] for name in variables if name not in later}
        group = enter = file = after = ""
        written = [""] * len(each)
        began_s, records = 0.0, None if item is None else self._records
        if records is not None and item is not None:
            began_s, after = of_run(item, node_id, self.cluster_ts)
            written = [named(container, key, began_s) for container, key in each]
            file = records.begin(written)
        orders = []
        for (container, key), name, called in zip(each, names, written, strict=True):
            folder = f"{key[0]}-{key[1]}-{key[2]}" if inner else ""
            instead = None
            problem = 0
            if apart is not None:
                path = Path("/".join((self._root, app, name, folder)))
                seen = self._seen(container, command)
                problem = hindrance(command[0], everything, path)
                instead = apart.wrap(command, path, seen, later), apart.environment()
            if limits is not None and demand:
                group, enter = limits.enter(container, demand)
            process = RunningProcess(container, key, command[0])
            process.written = called
            self._running.setdefault(container, {})[key] = process
            self._newest_order += 1
            self._unended_by_order[self._newest_order] = process
            # The problem is told here, as the tools that keep the task apart would not name it so.
            if problem:
                self._loop.call_soon(self._hear, ([], [(self._newest_order, problem, INSIDE)], []))
                continue
            text = ""
            if records is not None:
                text = before_start(container, key, group, self._taken_by.get(container, 0))
            task = str(key[1]) if told and key[1] >= 0 else ""
            one = One(self._newest_order, name, folder, task, enter, called, text, instead)
            orders.append(one)
        account = None if isolation is None else isolation.account
        owner = None if account is None else (account.uid, account.gid)
        home = "" if limits is None else limits.home
        run = Run(command, variables, app, note, owner, 0o700, home, file, after)
        failed = self._spawning.run(run, orders)
        if failed:
            self._loop.call_soon(self._hear, ([], failed, []))

    def _seen(self, container_id: ContainerId, command: Sequence[str]) -> list[Path]:
        """Return the folders that a container's tasks share: its own, and its application's."""
        folder = self.folder(container_id)
        if not any(LAUNCHER in word for word in command[:3]):
            return [folder]
        kept = [folder.parent / name for name in KEPT]
        assert self._isolation is not None
        for path in kept:
            os.close(make(self.root, path.relative_to(self.root).parts, self._isolation.own, 0o700))
        return [folder, *kept]

    def taken_over(self, container_id: ContainerId, attempt: AttemptId) -> None:
        """Note whom a container obeys from now on, also for the next node manager."""
        if self._taken_by.get(container_id) == attempt:
            return
        self._taken_by[container_id] = attempt
        for process in self._running.get(container_id, {}).values():
            self._note_taken(process)

    def _note_taken(self, process: RunningProcess) -> None:
        attempt = self._taken_by.get(process.container_id, 0)
        if attempt and process.pid and process.written and self._records is not None:
            # A full disk loses this note, but this process still knows.
            with contextlib.suppress(OSError):
                self._records.take_over(process.written, attempt)

    def keep_taken(self, held: Callable[[ContainerId], bool]) -> None:
        """Forget containers that are held no more."""
        for number in [number for number in self._taken_by if not held(number)]:
            del self._taken_by[number]

    # -- finding again -----------------------------------------------------------------------------

    def find(self) -> tuple[list[Record], list[ProcessEnded]]:
        """Keep the processes that an earlier node manager left; those that ended meanwhile, too.

        Answers all that were written down, and the ends of those that are gone. Whatever else that
        node manager started is killed. Call it before anything is started.
        """
        if self._records is None:
            return [], []
        found = self._records.take()
        ends = []
        for record in found:
            if not self._keep(record):
                ends.append(self._gone(record))
        return found, ends

    def _keep(self, record: Record) -> bool:
        if not record.there:
            return False
        key = (record.stage, record.task, record.attempt)
        process = RunningProcess(record.container_id, key, "", record.pid)
        process.written = name_of(record)
        try:
            process.pidfd = os.pidfd_open(record.pid)
        except OSError:
            return False
        # If it ended in between, its number may be another's.
        if not record.there:
            os.close(process.pidfd)
            return False
        self.cluster_ts = record.cluster_ts
        if record.taken_by:
            self._taken_by[record.container_id] = record.taken_by
        if self._limits is not None and record.group:
            self._limits.find(record.container_id, record.group)
        self._running.setdefault(record.container_id, {})[key] = process
        self._loop.add_reader(process.pidfd, self._found_ended, process)
        return True

    def _gone(self, record: Record) -> ProcessEnded:
        """Return how a process ended while no node manager watched it."""
        assert self._records is not None
        key = (record.stage, record.task, record.attempt)
        code = self._records.code(name_of(record))
        if code is not None and code != UNKNOWN_EXIT_CODE:
            self._records.ended(name_of(record), code)
            outcome = Outcome.SUCCEEDED if code == 0 else Outcome.FAILED
            return ProcessEnded(record.container_id, outcome, code, how(code), (), *key)
        self._records.ended(name_of(record), UNKNOWN_EXIT_CODE)
        why = "it was gone when its node manager was back, and how it ended is not known"
        if record.host_boot != host_boot():
            why = "its host was started anew"
            return ProcessEnded(record.container_id, Outcome.LOST, NODE_ENDED, why, (), *key)
        return ProcessEnded(record.container_id, Outcome.LOST, UNKNOWN_EXIT_CODE, why, (), *key)

    def forget(self, *, heard: bool) -> None:
        """Drop what is written down of processes whose ends were reported."""
        if self._records is not None:
            self._records.forget(heard=heard)

    # -- stopping ----------------------------------------------------------------------------------

    def stop(self, container_id: ContainerId) -> None:
        """Stop all processes of a container; their ends follow."""
        for process in self._running.get(container_id, {}).values():
            if not process.stopping:
                process.stopping = True
                # A process that has not begun is told to end when it has.
                if process.pid:
                    self._terminate(process)

    def _terminate(self, process: RunningProcess) -> None:
        send(process.pid, signal.SIGTERM)
        process.timer = self._loop.call_later(self._grace_s, send, process.pid, signal.SIGKILL)

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
                send(process.pid, signal.SIGKILL)
        while self._running:
            await asyncio.sleep(0.005)
        self._spawning.close()
        if self._limits is not None:
            self._limits.end()
        if self._records is not None:
            self._records.clear()

    # -- files -------------------------------------------------------------------------------------

    def folder(self, container_id: ContainerId) -> Path:
        """Return the work folder of a container."""
        app = format_app(self.cluster_ts, app_of_container(container_id))
        return self.root / app / format_container(self.cluster_ts, container_id)

    def application(self, app: AppId) -> str:
        """Return the name of an application's folder."""
        return format_app(self.cluster_ts, app)

    def running(self, app: AppId) -> list[str]:
        """Return the names of containers' folders of an application in which something runs."""
        running = [each for each in self._running if app_of_container(each) == app]
        return [format_container(self.cluster_ts, each) for each in running]

    def applications(self) -> set[str]:
        """Return the names of folders of applications of which something runs."""
        return {self.application(app) for app in set(map(app_of_container, self._running))}

    def folders(self) -> list[Path]:
        """Return the folders of containers in which something runs."""
        return [self.folder(each) for each in self._running]

    def logs(self, container_id: ContainerId) -> list[str]:
        """Return names of a container's log files, relative to its folder."""
        return logs(self.folder(container_id))

    def log_size(self, container_id: ContainerId, name: str) -> int:
        """Return bytes of a log file so far."""
        return log_size(self.folder(container_id), name)

    def read_log(
        self, container_id: ContainerId, name: str, offset: int = 0, size: int = 1 << 20
    ) -> tuple[bytes, int]:
        """Return a piece of a log file, and where the next begins.

        Raises FileNotFoundError for a name not in `logs`.
        """
        return read_log(self.folder(container_id), name, offset, size)

    # -- ends --------------------------------------------------------------------------------------

    def _hear(self, words: Words) -> None:
        """Handle what a spawner says became of processes."""
        began, failed, ended = words
        for number, pid in began:
            process = self._unended_by_order[number]
            process.pid = pid
            self._note_taken(process)
            if process.stopping:
                self._terminate(process)
        ends = [self._failed(*one) for one in failed]
        told = []
        sandboxed = self._isolation is not None and self._isolation.sandboxed
        for number, code, *spent, pid in ended:
            process = self._unended_by_order.pop(number)
            process.pid = process.pid or pid
            if process.written:
                told.append(process.written)
            ends.append(self._ended(process, exit_code(code) if sandboxed else code, spent))
        if self._records is not None:
            self._records.told(told)
        if ends:
            self._on_ended(ends)

    def _failed(self, number: int, problem: int, where: int) -> ProcessEnded:
        """Return the end of a process that could not be started; `problem` is the system's.

        What this host lacks is not held against the task: its end counts as the node's fault.
        """
        process = self._unended_by_order.pop(number)
        if process.written and self._records is not None:
            self._records.never(process.written)
        self._left(process)
        container, key, why = process.container_id, process.key, os.strerror(problem)
        ours = OWN_FOLDERS if where == OUTSIDE else EXHAUSTED
        # in a group of so little memory no process can be made
        if problem in ours and (where != LIMITED or problem != errno.ENOMEM):
            self._on_fault(f"tasks cannot be started: {why}")
            text = f"its node could not start it: {why}"
            return ProcessEnded(container, Outcome.LOST, NODE_FAULT, text, (), *key)
        code = NOT_FOUND if problem == errno.ENOENT else NOT_EXECUTABLE
        text = f"{process.program}: cannot be started: {why}"
        return ProcessEnded(container, Outcome.FAILED, code, text, (), *key)

    def _lost(self, numbers: Sequence[int]) -> None:
        """End the processes of a spawner that is gone: nobody would know how they end.

        Of what it did it may have written down more than it said, and begun more than that.
        """
        folders: list[Path] = []
        known = {} if self._records is None else {name_of(r): r for r in self._records.read()}
        for number in numbers:
            process = self._unended_by_order.pop(number)
            record, code = known.get(process.written), None
            if record is not None and self._records is not None:
                process.pid = record.pid if record.alive else process.pid
                code = self._records.code(process.written)
            send(process.pid, signal.SIGKILL)
            if not process.pid and code is None:
                folder = self.folder(process.container_id)
                folders += (folder, folder / "-".join(map(str, process.key)))
            code = UNKNOWN_EXIT_CODE if code is None else code
            if process.written and self._records is not None:
                self._records.ended(process.written, code)
            end = self._ended(process, code, None)
            if end.outcome is Outcome.LOST:
                # One of those that it ran may have ended it: nodes that do so are counted.
                self._on_fault(SPAWNER_GONE)
                end = changed(end, exit_code=NODE_FAULT, message=f"its node failed: {SPAWNER_GONE}")
            self._on_ended([end])
        if folders:
            kill_orphans(self.root, folders=[str(folder) for folder in folders])

    def _found_ended(self, process: RunningProcess, tries: int = 0) -> None:
        """Handle the end of a process of an earlier node manager, once it is written down how."""
        assert self._records is not None
        if process.pidfd >= 0:
            self._loop.remove_reader(process.pidfd)
            os.close(process.pidfd)
            process.pidfd = -1
            # The processes that it leaves behind are killed.
            kill_orphans(self.root, only=process.pid)
        # asked before: how it ended is written down before it goes
        there = is_there(process.pid)
        code = self._records.code(process.written)
        if code is None and tries < END_POLLS_MAX and there:
            self._loop.call_later(END_POLL_S, self._found_ended, process, tries + 1)
            return
        if code is None:
            code = -signal.SIGKILL if process.stopping else UNKNOWN_EXIT_CODE
        self._records.ended(process.written, code)
        self._on_ended([self._ended(process, code, None)])

    def _ended(
        self, process: RunningProcess, code: int, spent: Sequence[Any] | None
    ) -> ProcessEnded:
        """Return an end. `spent`: CPU in s, memory in kB (negative: not known), and how long."""
        if process.timer is not None:
            process.timer.cancel()
        for_memory, crowded = self._left(process, failed=code != 0)
        message = how(code)
        if crowded:
            message = f"more than {crowded} processes ({message})"
        outcome = Outcome.SUCCEEDED if code == 0 else Outcome.FAILED
        if code != 0:
            outcome = Outcome.KILLED if process.stopping else Outcome.FAILED
            if code == UNKNOWN_EXIT_CODE and not process.stopping:
                outcome, message = Outcome.LOST, "how it ended is not known"
            if for_memory and not process.stopping:
                outcome = Outcome.OUT_OF_MEMORY
                message = f"out of memory: over the container's limit ({message})"
            elif outcome is Outcome.FAILED and self._disk.full:
                outcome, message = Outcome.LOST, f"its node's disk is full ({message})"
                code = NODE_FAULT
                self._on_fault("tasks fail on a full disk")
        use = self._unknown if spent is None else self._use(*spent)
        return ProcessEnded(process.container_id, outcome, code, message, use, *process.key)

    def _use(self, cpu_s: float, memory_kb: int, lasted_s: float) -> Vector:
        """Return what a process and those that it waited for used: mean cores, largest memory.

        Nothing is known of other resources.
        """
        used = [*self._unknown]
        if self._vcores >= 0:
            used[self._vcores] = cpu_s / max(lasted_s, 1e-3)
        if self._memory >= 0 and memory_kb >= 0:
            used[self._memory] = memory_kb / 1024.0
        return tuple(used)

    def _left(self, process: RunningProcess, *, failed: bool = False) -> tuple[bool, int]:
        """Forget a process that ended; answers at which of its container's limits it failed.

        The first says whether at that of memory, the second is that of processes, or 0.
        """
        container = process.container_id
        group, limits = self._running[container], self._limits
        del group[process.key]
        for_memory, crowded = False, 0
        if failed and limits is not None:
            for_memory = limits.killed_for_memory(container)
            if process.crowded or limits.refused_a_process(container):
                crowded = limits.processes_max
        if not group:
            del self._running[container]
            if limits is not None:
                limits.close(container)
        return for_memory, crowded

    def measure(self) -> tuple[tuple[ContainerId, Vector], ...]:
        """Return what containers use now, in the cluster's resource types; () without `limits`."""
        if self._limits is None:
            return ()
        running = {
            container: [process.pid for process in group.values() if process.pid]
            for container, group in self._running.items()
        }
        for container, groups in self._limits.crowded(running):
            for process in self._running[container].values():
                if process.pid in groups:
                    process.crowded = True
                    send(process.pid, signal.SIGKILL)
        return self._limits.measure(running)
