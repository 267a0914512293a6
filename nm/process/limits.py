"""Real containers held to what they were granted, and measured.

With control groups a container gets the CPU quota, the memory and, where the host can, the disk
bandwidth that it asked for, and an out-of-memory kill is told apart from a failure; without, its
processes are measured one by one.
"""

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import psutil

from nm.process.cgroups import Cgroups, Use
from weft.ids import ContainerId
from weft.resources import Vector

MEMORY_MB = float(1 << 20)  # bytes
DISK, DISK_MB = "disk_mbps", 1e6  # MB/s


class Limits:
    """The limits of one host's containers. `names` are the cluster's resource types in order."""

    def __init__(self, names: Sequence[str], groups: Cgroups | None) -> None:
        self.names = list(names)  # replaced when the Resource Manager tells its own
        self._groups = groups
        self._group_of: dict[ContainerId, str] = {}
        self._closing: set[str] = set()
        # wall clock and CPU time, s; I/O, bytes
        self._last: dict[ContainerId, tuple[float, float, float]] = {}

    def enter(self, container: ContainerId, name: str, demand: Vector) -> str:
        """Make a container's group; answers where its first process enters it, files separated by
        colons, or nothing where there are no groups or this one cannot be made.
        """
        if self._groups is None:
            return ""
        try:
            cores = self._amount(demand, "vcores")
            memory = self._amount(demand, "memory_mb") * MEMORY_MB
            disk_bps = self._amount(demand, DISK) * DISK_MB
            files = self._groups.open(name, cores, memory, disk_bps)
        except OSError:
            return ""
        self._group_of[container] = name
        self._closing.discard(name)
        return files

    @property
    def home(self) -> str:
        """Place where the starter of grouped processes comes back to, as `enter` says it."""
        return "" if self._groups is None else self._groups.home

    def find(self, container: ContainerId, name: str) -> None:
        """Note that a container of an earlier node manager is in this group, if still there."""
        if self._groups is not None and self._groups.processes(name):
            self._group_of[container] = name

    def killed_for_memory(self, container: ContainerId) -> bool:
        """Return whether the kernel killed a process of the container for its limit."""
        name = self._group_of.get(container)
        return bool(name and self._groups and self._groups.killed_for_memory(name))

    def close(self, container: ContainerId) -> None:
        """Kill what left a container's process group, and remove its group."""
        self._last.pop(container, None)
        name = self._group_of.pop(container, None)
        if name is not None and self._groups is not None:
            for pid in self._groups.processes(name):
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            self._closing.add(name)
        self.sweep()

    def sweep(self) -> None:
        """Remove the groups of ended containers whose last process is gone by now."""
        if self._groups is not None and self._closing:
            self._closing = {name for name in self._closing if not self._groups.close(name)}

    def end(self) -> None:
        """Remove the groups, as the node manager ends."""
        self.sweep()
        if self._groups is not None:
            self._groups.remove()

    def measure(
        self, running: Mapping[ContainerId, Iterable[int]]
    ) -> tuple[tuple[ContainerId, Vector], ...]:
        """Return what containers use: mean since the last call for CPU and disk, now for memory."""
        self.sweep()
        found = []
        for container, pids in running.items():
            name = self._group_of.get(container)
            if name is not None and self._groups is not None:
                use = self._groups.use(name)
            else:
                use = _use_of(pids)
            now_s = time.monotonic()
            now = (now_s, use.cpu_s, use.io_bytes)
            before_s, cpu_s, io_bytes = self._last.get(container, now)
            self._last[container] = now
            per_s = 1 / (now_s - before_s) if now_s > before_s else 0.0
            amounts = {
                "vcores": max(0.0, use.cpu_s - cpu_s) * per_s,
                "memory_mb": use.memory_bytes / MEMORY_MB,
                DISK: max(0.0, use.io_bytes - io_bytes) * per_s / DISK_MB,
            }
            found.append((container, tuple(amounts.get(name, 0.0) for name in self.names)))
        return tuple(found)

    def _amount(self, demand: Vector, name: str) -> float:
        position = self.names.index(name) if name in self.names else len(demand)
        return demand[position] if position < len(demand) else 0.0


def startable(program: str, environment: Mapping[str, str], folder: Path) -> bool:
    """Return whether a program is found and may be executed, as execvp would see it."""
    if "/" in program:
        return os.access(folder / program, os.X_OK)
    return shutil.which(program, path=environment.get("PATH")) is not None


def _use_of(pids: Iterable[int]) -> Use:
    """Return what processes and their children use; those that ended meanwhile do not count."""
    cpu_s = memory = 0.0
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            first = psutil.Process(pid)
            for process in (first, *first.children(recursive=True)):
                with contextlib.suppress(psutil.Error), process.oneshot():
                    times = process.cpu_times()
                    cpu_s += times.user + times.system + times.children_user
                    memory += process.memory_info().rss
    return Use(cpu_s, memory)
