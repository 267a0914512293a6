"""Real containers held to what they were granted, and measured.

With control groups a container gets the CPU quota, the memory and, where the host can, the disk
bandwidth that it asked for, and an out-of-memory kill is distinguished from a failure; without, its
processes are measured one by one.
"""

import contextlib
import itertools
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import psutil

from nm.process.cgroups import Cgroups, Use
from nm.process.records import started
from weft.model.ids import ContainerId
from weft.model.resources import Vector

GROUP_PREFIX = "container-group"
# So many groups may wait for a container, for at most so long; so many amounts stay known.
CACHED_MAX, FREE_GROUP_KEPT_S = 256, 60.0
BYTES_PER_MEMORY_MB = float(1 << 20)
# The resource of disk bandwidth, in MB/s.
DISK_RESOURCE, BYTES_PER_DISK_MB = "disk_mbps", 1e6
_group_numbers = itertools.count(1)
# Cores, memory in bytes and disk in bytes/s; 0: no limit.
_Amounts = tuple[float, float, float]


class Limits:
    """The limits of one host's containers. `names` are the cluster's resource types in order.

    A container has at most `processes_max` processes and threads (0: any number). A group that its
    container left empty serves the next container of the same limits.
    """

    def __init__(
        self, names: Sequence[str], groups: Cgroups | None, processes_max: int = 0
    ) -> None:
        self.processes_max = processes_max
        if groups is not None:
            groups.processes_max = processes_max
        # The Resource Manager replaces them by its own.
        self.names = list(names)
        self._groups = groups
        self._amounts_by_demand: dict[Vector, _Amounts] = {}
        self._known_names = self.names
        self._group_of: dict[ContainerId, str] = {}
        self._closing: set[str] = set()
        self._limits_of_own: dict[str, _Amounts] = {}
        # Groups without a container by their limits, the newest last, and since when they are, the
        # oldest first.
        self._free_by_limits: dict[_Amounts, list[str]] = {}
        self._free_since: dict[str, float] = {}
        # of no other process of this node, which may have been killed and left its groups
        self._mark = f"{GROUP_PREFIX}-{os.getpid()}-{started(os.getpid())}"
        # wall clock and CPU time, s; I/O, bytes
        self._last: dict[ContainerId, tuple[float, float, float]] = {}
        self._memory_kills_told: dict[ContainerId, int] = {}
        self._refusals_told: dict[ContainerId, int] = {}
        if groups is not None:
            self._closing.update(filter(_is_left, groups.names()))

    def enter(self, container: ContainerId, demand: Vector) -> tuple[str, str]:
        """Give a container a group; return its name, and where the first process enters it.

        The latter is files separated by colons. Both are empty where there are no groups or this
        one cannot be made.
        """
        groups = self._groups
        if groups is None:
            return "", ""
        wanted = self._wanted(demand)
        # A reusable container has its group already.
        known = self._group_of.get(container, "")
        name = known or self._used_before(groups, wanted)
        if name and self._limits_of_own.get(name) == wanted:
            self._group_of[container] = name
            return name, groups.doors(name)
        name = name or f"{self._mark}-{next(_group_numbers)}"
        try:
            doors = groups.open(name, *wanted)
        except OSError:
            if not known:
                self._closing.add(name)
            return "", ""
        # The limits of such a group are mixed now, so nobody else has it after this container.
        if known:
            self._limits_of_own.pop(known, None)
        else:
            self._limits_of_own[name] = wanted
        self._group_of[container] = name
        return name, doors

    def _used_before(self, groups: Cgroups, wanted: _Amounts) -> str:
        """Return a group of these limits in which nothing of its last container is left, or ""."""
        free = self._free_by_limits.get(wanted, [])
        while free:
            name = free.pop()
            del self._free_since[name]
            if groups.renew(name, *wanted):
                return name
            self._remove(name)
        return ""

    @property
    def home(self) -> str:
        """Place where the starter of grouped processes comes back to, as `enter` says it."""
        return "" if self._groups is None else self._groups.home

    def find(self, container: ContainerId, name: str) -> None:
        """Note that a container of an earlier node manager is in this group, if still there."""
        # The processes of a group are killed at its end, so the name must be one of ours.
        named = name.startswith(GROUP_PREFIX) and "/" not in name
        if named and self._groups is not None and self._groups.processes(name):
            self._group_of[container] = name
            self._closing.discard(name)

    def killed_for_memory(self, container: ContainerId) -> bool:
        """Return whether the kernel killed one of the container's processes for its limit anew.

        Kills count since this was last asked: in a reusable container, those before were of tasks
        that ended before.
        """
        return self._anew(container, Cgroups.memory_kills, self._memory_kills_told)

    def refused_a_process(self, container: ContainerId) -> bool:
        """Return whether the container had as many processes as it may when one more was to start.

        Counted anew each time, as kills for memory are.
        """
        return self._anew(container, Cgroups.refusals, self._refusals_told)

    def _anew(
        self,
        container: ContainerId,
        count: Callable[[Cgroups, str], int],
        told: dict[ContainerId, int],
    ) -> bool:
        name = self._group_of.get(container)
        if not name or self._groups is None:
            return False
        now, before = count(self._groups, name), told.get(container, 0)
        if now > before:
            told[container] = now
        return now > before

    def crowded(
        self, running: Mapping[ContainerId, Iterable[int]]
    ) -> list[tuple[ContainerId, list[int]]]:
        """Return containers that the kernel did not hold to their number of processes.

        Each comes with the process groups that have more, by the first process of each.
        """
        held = self._groups is not None and self._groups.limits_processes
        if self.processes_max <= 0 or (held and all(one in self._group_of for one in running)):
            return []
        count = Counter(_process_groups())
        found = []
        for container, pids in running.items():
            many = [pid for pid in pids if count[pid] > self.processes_max]
            if many and not (held and container in self._group_of):
                found.append((container, many))
        return found

    def close(self, container: ContainerId) -> None:
        """Kill what left an ended container's process group.

        The group, once empty, is free for another container.
        """
        self._last.pop(container, None)
        self._memory_kills_told.pop(container, None)
        self._refusals_told.pop(container, None)
        name = self._group_of.pop(container, None)
        if name is not None and self._groups is not None:
            self._empty(self._groups, name)

    def _empty(self, groups: Cgroups, name: str) -> None:
        processes = groups.processes(name)
        if processes:
            groups.halt(name)
        for pid in processes:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if processes or name not in self._limits_of_own:
            self._closing.add(name)
            return
        self._closing.discard(name)
        self._free_by_limits.setdefault(self._limits_of_own[name], []).append(name)
        self._free_since[name] = time.monotonic()

    def sweep(self) -> None:
        """Free the groups of ended containers whose last process is gone by now.

        Remove those that another process of this node left, or that nobody wanted for long.
        """
        groups = self._groups
        if groups is None:
            return
        for name in list(self._closing):
            if name in self._limits_of_own:
                self._empty(groups, name)
            elif groups.close(name):
                self._closing.discard(name)
        while self._free_since:
            name, since = next(iter(self._free_since.items()))
            if since > time.monotonic() - FREE_GROUP_KEPT_S and len(self._free_since) <= CACHED_MAX:
                break
            del self._free_since[name]
            self._free_by_limits[self._limits_of_own[name]].remove(name)
            self._remove(name)

    def _remove(self, name: str) -> None:
        limits = self._limits_of_own.pop(name)
        if not self._free_by_limits.get(limits, True):
            del self._free_by_limits[limits]
        if self._groups is not None and not self._groups.close(name):
            self._closing.add(name)

    def end(self) -> None:
        """Remove the groups, as the node manager ends."""
        if self._groups is not None:
            self.sweep()
            for name in {*self._limits_of_own, *self._closing}:
                self._groups.close(name)
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
                "memory_mb": use.memory_bytes / BYTES_PER_MEMORY_MB,
                DISK_RESOURCE: max(0.0, use.io_bytes - io_bytes) * per_s / BYTES_PER_DISK_MB,
            }
            found.append((container, tuple(amounts.get(name, 0.0) for name in self.names)))
        return tuple(found)

    def _wanted(self, demand: Vector) -> _Amounts:
        """Return the limits of a demand, of which there are but few."""
        if self._known_names is not self.names:
            self._known_names = self.names
            self._amounts_by_demand.clear()
        known = self._amounts_by_demand.get(demand)
        if known is None:
            if len(self._amounts_by_demand) >= CACHED_MAX:
                self._amounts_by_demand.clear()
            cores = self._amount(demand, "vcores")
            memory = self._amount(demand, "memory_mb") * BYTES_PER_MEMORY_MB
            known = self._amounts_by_demand[demand] = (
                cores,
                memory,
                self._amount(demand, DISK_RESOURCE) * BYTES_PER_DISK_MB,
            )
        return known

    def _amount(self, demand: Vector, name: str) -> float:
        position = self.names.index(name) if name in self.names else len(demand)
        return demand[position] if position < len(demand) else 0.0


def _is_left(name: str) -> bool:
    """Return whether a group is of a process that is gone."""
    made, _, number = name.removeprefix(f"{GROUP_PREFIX}-").rpartition("-")
    pid, _, start = made.partition("-")
    if not (
        name.startswith(GROUP_PREFIX) and pid.isdigit() and start.isdigit() and number.isdigit()
    ):
        return False
    return started(int(pid)) != int(start)


def _process_groups() -> Iterator[int]:
    """Yield the process group of each process of this host."""
    for pid in psutil.pids():
        with contextlib.suppress(OSError):
            yield os.getpgid(pid)


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
