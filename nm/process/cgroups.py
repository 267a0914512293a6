"""Limits and measures of real containers: cgroups v2, or v1 where that is what the host has.

A container is in one group below the node manager's own. Who starts its first process is in there
for that moment, so that it begins there and nothing that it starts escapes. A group whose container
ended serves the next one (`nm.process.limits`): to make one and remove it costs more than a small
process. A host without writable controllers runs without limits (`find` says why). Disk bandwidth
is limited as well where the I/O controller and the work folder's disk are there. With v1 that holds
reads and direct writes only: the kernel writes buffered data later, for nobody in particular.
"""

import contextlib
import os
import resource
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nm.process.folders import find_disk, lines_of, text_of
from nm.process.places import FOLDER, PLAIN, READ_BYTES, GroupFiles, OpenFiles, read

# A node manager whose own group has children moves into this one below it.
MANAGER_GROUP = "weft-manager"
# Outside of a kernel's file system, as in tests, the file is made.
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
# What is measured is measured again, so files of so many groups stay open.
OPEN_FILES_MAX = 200
# Groups whose files stay open: at most so many, and of how many of the process's files one.
KEPT_GROUPS_MAX, FILES_PER_KEPT_GROUP = 256, 32
PERIOD_US, QUOTA_US_MIN = 100_000, 1_000
# So much of an ended container's memory may stay in its group.
LEFT_BYTES_MAX = 1 << 20
# A folder without folders has so many links.
EMPTY_LINKS = 2


@dataclass(frozen=True, slots=True)
class Use:
    """What a group used: CPU time in s and disk I/O in bytes since it was made, memory now.

    `io_bytes` is 0 where disks are not limited either.
    """

    cpu_s: float
    memory_bytes: float
    io_bytes: float = 0.0


class Cgroups:
    """The groups of one node's containers, each under its name."""

    def __init__(self, v2: bool, parents: Mapping[str, Path], disk: str = "") -> None:
        """`parents`: the folder of each controller.

        They are `cpu`, `memory` and with v1 `cpuacct`, and where they are there `io` and `pids`.

        `disk` is the number of the disk to limit, as 254:0; empty: none is.
        """
        self.v2 = v2
        self.disk = disk
        self.why_no_disk_limit = ""
        self.cpu_by_share = False
        # Processes and threads that a group may have; 0: any number.
        self.processes_max = 0
        self._files = OpenFiles(OPEN_FILES_MAX)
        # Groups that serve again; the one of the latest use is the last.
        self._kept: dict[str, GroupFiles] = {}
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._kept_max = (
            KEPT_GROUPS_MAX
            if files < 0
            else max(1, min(KEPT_GROUPS_MAX, files // FILES_PER_KEPT_GROUP))
        )
        self._kills = "memory.events" if v2 else "memory.oom_control"
        self._parents = dict(parents)
        self._roots = sorted({str(parent) for parent in parents.values()})
        # where this process is, as `open` says it: a group that has children may hold none in v2
        aside = [folder.parent / MANAGER_GROUP for folder in self._folders()]
        outside = [place if v2 and place.is_dir() else place.parent for place in aside]
        # who enters has one thread; v1 takes it alone without halting all that begins and ends
        self._door = "cgroup.procs" if v2 else "tasks"
        self.home = ":".join(str(folder / self._door) for folder in outside)
        self._make_roots()
        if disk:
            self._try_disk()

    def _make_roots(self) -> None:
        for folder in self._folders():
            folder.mkdir(parents=True, exist_ok=True)
            # Groups of version 2 have the controllers that the one above passes on.
            if self.v2:
                switch = " ".join(f"+{controller}" for controller in self._parents)
                (folder / "cgroup.subtree_control").write_text(switch)

    def _try_disk(self) -> None:
        """Try a disk limit now, so that a kernel that refuses it does not fail the first task."""
        name = "weft-try"
        try:
            self.open(name, 0.0, 0.0)
            for controller, file, text in self._limits(0.0, 0.0, 1e12):
                self._write(controller, name, file, text)
        except OSError as error:
            self.disk, self.why_no_disk_limit = "", f"disk {self.disk}: {error.strerror or error}"
        finally:
            self.close(name)

    def remove(self) -> None:
        """Remove this node manager's folders where nothing is left in them."""
        for folder in self._folders():
            with contextlib.suppress(OSError):
                folder.rmdir()

    def open(self, name: str, cores: float, memory_bytes: float, disk_bps: float = 0.0) -> str:
        """Make a group, with limits where they are above 0; return where a process enters it.

        `disk_bps` holds for reads and for writes each, bytes/s. The answer is files separated by
        colons: who writes 0 into each is in the group. Raises OSError.
        """
        try:
            self._make(name)
        # An ending process of this node may have removed the folders while they were empty.
        except FileNotFoundError:
            self._make_roots()
            self._make(name)
        if cores > 0 and not (self.v2 or self.cpu_by_share):
            self._write("cpu", name, "cpu.cfs_period_us", str(PERIOD_US))
        for controller, file, text in self._limits(cores, memory_bytes, disk_bps):
            self._write(controller, name, file, text)
        # with swap a limit would slow the machine down instead of ending the hog
        extra = "memory.swap.max" if self.v2 else "memory.memsw.limit_in_bytes"
        with contextlib.suppress(OSError):
            if memory_bytes > 0 and (self._parents["memory"] / name / extra).exists():
                swap = "0" if self.v2 else str(round(memory_bytes))
                self._write("memory", name, extra, swap)
        return self.doors(name)

    def _make(self, name: str) -> None:
        for root in self._roots:
            with contextlib.suppress(FileExistsError):
                os.mkdir(f"{root}/{name}")

    def doors(self, name: str) -> str:
        """Return where a process enters a group, as `open` answers it."""
        return ":".join([f"{root}/{name}/{self._door}" for root in self._roots])

    def renew(self, name: str, cores: float, memory_bytes: float, disk_bps: float = 0.0) -> bool:
        """Have an empty group begin anew for the next container; return whether it can.

        Its limits are set again, as a task that may write them could have lifted them. It cannot
        begin anew where too much of the last container is still in it: memory that nobody gave back
        (pages of files, most often), groups that it made, or a kill that would be taken for the
        next one's. CPU time of which the last one left nothing is there in full again.
        """
        try:
            kept = self._kept_open(name, (cores, memory_bytes, disk_bps))
            for folder in kept.folders:
                if os.fstat(folder).st_nlink > EMPTY_LINKS:
                    return False
            if int(os.pread(kept.usage, READ_BYTES, 0)) > LEFT_BYTES_MAX:
                return False
            if _field(os.pread(kept.kills, READ_BYTES, 0).decode(), "oom_kill"):
                return False
            if self.refusals(name):
                return False
            for file, text in kept.limit_files:
                os.pwrite(file, text, 0)
        except (OSError, ValueError):
            return False
        return True

    def _kept_open(self, name: str, wanted: tuple[float, float, float]) -> GroupFiles:
        """Return the files of a group that serves again, open; raises OSError.

        Those of the groups of the latest use stay open.
        """
        kept = self._kept.pop(name, None)
        if kept is None or kept.wanted != wanted:
            if kept is not None:
                kept.close()
            kept = GroupFiles(wanted)
            try:
                for root in self._roots:
                    kept.folders.append(os.open(f"{root}/{name}", FOLDER))
                memory = f"{self._parents['memory']}/{name}"
                usage = "memory.current" if self.v2 else "memory.usage_in_bytes"
                kept.usage = os.open(f"{memory}/{usage}", PLAIN)
                kept.kills = os.open(f"{memory}/{self._kills}", PLAIN)
                for controller, file, text in self._limits(*wanted):
                    path = f"{self._parents[controller]}/{name}/{file}"
                    kept.limit_files.append(
                        (os.open(path, os.O_WRONLY | os.O_CLOEXEC), text.encode())
                    )
            except OSError:
                kept.close()
                raise
        self._kept[name] = kept
        if len(self._kept) > self._kept_max:
            self._kept.pop(next(iter(self._kept))).close()
        return kept

    def names(self) -> list[str]:
        """Return all groups that are there, of whichever process of this node."""
        found: set[str] = set()
        for root in self._roots:
            with contextlib.suppress(OSError), os.scandir(root) as entries:
                found |= {entry.name for entry in entries if entry.is_dir()}
        return sorted(found)

    def use(self, name: str) -> Use:
        """Return what a group uses; zeros where it is gone."""
        io_bytes = self._io_bytes(name) if self.disk else 0.0
        if self.v2:
            cpu_s = _field(self._read("cpu", name, "cpu.stat"), "usage_usec") / 1e6
            return Use(cpu_s, self._number("memory", name, "memory.current"), io_bytes)
        cpu_s = self._number("cpuacct", name, "cpuacct.usage") / 1e9
        return Use(cpu_s, self._number("memory", name, "memory.usage_in_bytes"), io_bytes)

    def _limits(
        self, cores: float, memory_bytes: float, disk_bps: float
    ) -> list[tuple[str, str, str]]:
        """Return what is written for the limits that are above 0: controller, file and text.

        To write the limit of CPU once more gives back what was spent of it.
        """
        found: list[tuple[str, str, str]] = []
        if cores > 0 and self.cpu_by_share:
            weight = min(10_000, max(1, round(100 * cores)))
            share = min(1 << 18, max(2, round(1024 * cores)))
            found.append(
                ("cpu", "cpu.weight", str(weight)) if self.v2 else ("cpu", "cpu.shares", str(share))
            )
        elif cores > 0:
            quota_us = max(QUOTA_US_MIN, round(cores * PERIOD_US))
            found.append(
                ("cpu", "cpu.max", f"{quota_us} {PERIOD_US}")
                if self.v2
                else ("cpu", "cpu.cfs_quota_us", str(quota_us))
            )
        if memory_bytes > 0:
            file = "memory.max" if self.v2 else "memory.limit_in_bytes"
            found.append(("memory", file, str(round(memory_bytes))))
        if self.limits_processes:
            found.append(("pids", "pids.max", str(self.processes_max)))
        if disk_bps > 0 and self.disk:
            rate = max(1, round(disk_bps))
            if self.v2:
                found.append(("io", "io.max", f"{self.disk} rbps={rate} wbps={rate}"))
            else:
                found += [
                    ("io", f"blkio.throttle.{way}_bps_device", f"{self.disk} {rate}")
                    for way in ("read", "write")
                ]
        return found

    def _io_bytes(self, name: str) -> float:
        """Return bytes read and written on the disk: `254:0 rbytes=1 wbytes=2 ...`, or v1's way."""
        file = "io.stat" if self.v2 else "blkio.throttle.io_service_bytes"
        total = 0.0
        for line in self._read("io", name, file).splitlines():
            disk, *words = line.split()
            if disk == self.disk and self.v2:
                pairs = dict(word.partition("=")[::2] for word in words)
                total += float(pairs.get("rbytes", 0)) + float(pairs.get("wbytes", 0))
            elif disk == self.disk and words[0] in ("Read", "Write"):
                total += float(words[1])
        return total

    def memory_kills(self, name: str) -> int:
        """Return how many processes of the group the kernel killed for its memory limit."""
        return int(_field(self._read("memory", name, self._kills), "oom_kill"))

    @property
    def limits_processes(self) -> bool:
        """Whether the kernel holds groups to a number of processes."""
        return self.processes_max > 0 and "pids" in self._parents

    def refusals(self, name: str) -> int:
        """Return how many processes were not started as the group has as many as it may."""
        return int(_field(self._read("pids", name, "pids.events"), "max"))

    def halt(self, name: str) -> None:
        """Have nothing more start in a group: what forks as fast as it is killed never ends."""
        if "pids" in self._parents:
            with contextlib.suppress(OSError):
                self._write("pids", name, "pids.max", "0")

    def processes(self, name: str) -> list[int]:
        """Return the processes of a group."""
        # Version 1 repeats through an open file for a second what it said before, so it is opened
        # anew.
        try:
            file = os.open(f"{self._parents['memory']}/{name}/cgroup.procs", PLAIN)
        except OSError:
            return []
        try:
            return [int(line) for line in read(file).splitlines()]
        except OSError:
            return []
        finally:
            os.close(file)

    def close(self, name: str) -> bool:
        """Remove a group; False: a process of it still ends, try again."""
        gone = True
        self._files.close_in([f"{parent}/{name}" for parent in self._parents.values()])
        kept = self._kept.pop(name, None)
        if kept is not None:
            kept.close()
        for root in self._roots:
            try:
                os.rmdir(f"{root}/{name}")
            except FileNotFoundError:
                continue
            except OSError:
                gone = False
        return gone

    def _folders(self) -> list[Path]:
        return [Path(root) for root in self._roots]

    def _write(self, controller: str, name: str, file: str, text: str) -> None:
        path = os.open(f"{self._parents[controller]}/{name}/{file}", _WRITE, 0o644)
        try:
            os.write(path, text.encode())
        finally:
            os.close(path)

    def _read(self, controller: str, name: str, file: str) -> str:
        try:
            path = f"{self._parents[controller]}/{name}/{file}"
            return self._files.use(path, os.O_RDONLY, read).decode()
        except (OSError, KeyError):
            return ""

    def _number(self, controller: str, name: str, file: str) -> float:
        return float(self._read(controller, name, file) or 0)


def _field(text: str, key: str) -> float:
    for line in text.splitlines():
        found, _, value = line.partition(" ")
        if found == key:
            return float(value)
    return 0.0


def find(
    node: str, proc: Path = Path("/proc"), work: Path | None = None, sys: Path = Path("/sys")
) -> tuple[Cgroups | None, str]:
    """Return the groups that this process may make for a node; or None, and why.

    Disk bandwidth on the disk of the folder `work` is limited where it can be.
    """
    mounts = [line.split() for line in lines_of(proc / "mounts")]
    own = dict(_own_groups(proc))
    name = f"weft-{node}"
    disk, why_no_disk_limit = ("", "no work folder") if work is None else find_disk(work, proc, sys)
    try:
        for _, mount, kind, *_ in mounts:
            if kind == "cgroup2":
                here = _below(Path(mount), own.get("", "/"))
                if {"cpu", "memory"} <= set(text_of(here / "cgroup.controllers").split()):
                    return _with_reason(_second(here, name, disk), why_no_disk_limit), ""
        v1: dict[str, Path] = {
            controller: _below(Path(mount), own.get(controller, "/")) / name
            for _, mount, kind, options, *_ in mounts
            if kind == "cgroup"
            for controller in options.split(",")
            if controller in ("cpu", "cpuacct", "memory", "blkio", "pids")
        }
        if {"cpu", "cpuacct", "memory"} <= set(v1):
            groups = v1.pop("blkio", None)
            if groups is None:
                return _with_reason(Cgroups(False, v1), why_no_disk_limit or _NO_IO), ""
            parents = v1 | {"io": groups} if disk else v1
            return _with_reason(Cgroups(False, parents, disk), why_no_disk_limit), ""
    except OSError as error:
        return None, f"control groups cannot be written: {error.strerror or error}"
    return None, "no control groups for CPU and memory"


_NO_IO = "no control groups for I/O"


def _with_reason(groups: Cgroups, why_no_disk_limit: str) -> Cgroups:
    groups.why_no_disk_limit = groups.why_no_disk_limit or (
        "" if groups.disk else why_no_disk_limit
    )
    return groups


def _second(here: Path, name: str, disk: str) -> Cgroups:
    """Return groups by cgroup v2: one with children may hold no processes, so this one moves."""
    control = here / "cgroup.subtree_control"
    there = text_of(here / "cgroup.controllers").split()
    wanted = ["cpu", "memory", *(["pids"] if "pids" in there else [])]
    limits_io = bool(disk) and "io" in there
    if limits_io:
        wanted.append("io")
    switch = " ".join(f"+{controller}" for controller in wanted)
    if not set(wanted) <= set(text_of(control).split()):
        if text_of(here / "cgroup.procs").strip() and (here / "cgroup.type").exists():
            aside = here / MANAGER_GROUP
            aside.mkdir(exist_ok=True)
            (aside / "cgroup.procs").write_text(str(os.getpid()))
        control.write_text(switch)
    groups = Cgroups(True, dict.fromkeys(wanted, here / name), disk if limits_io else "")
    if disk and not limits_io:
        groups.why_no_disk_limit = _NO_IO
    return groups


def _own_groups(proc: Path) -> list[tuple[str, str]]:
    """Return (controller, path) of this process; the controller is "" for v2."""
    found = []
    for line in lines_of(proc / "self" / "cgroup"):
        _, controllers, path = line.split(":", 2)
        found += [(controller, path) for controller in controllers.split(",")]
    return found


def _below(mount: Path, path: str) -> Path:
    """Return this process's folder; the mount itself where a namespace hides the way to it."""
    inner = mount / path.lstrip("/")
    return inner if inner.is_dir() else mount
