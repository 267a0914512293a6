"""Limits and measures of real containers: cgroups v2, or v1 where that is what the host has.

A container is one group below the node manager's own. Its processes are put there before they
become the command, so that nothing they start escapes; a group is removed when its last process
ended. A host without writable controllers runs without limits (`find` says why).
"""

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PERIOD_US, QUOTA_US_MIN = 100_000, 1_000
# Puts the shell into every group named by $1 (split at colons), then becomes the command.
ENTER = 'IFS=:; for f in $0; do echo $$ >"$f" || exit 126; done; unset IFS; exec "$@"'


@dataclass(frozen=True, slots=True)
class Use:
    """What a group used: CPU time in s since it was made, memory in bytes now."""

    cpu_s: float
    memory_bytes: float


class Cgroups:
    """The groups of one node's containers, each under its name."""

    def __init__(self, v2: bool, parents: Mapping[str, Path]) -> None:
        """`parents`: the folder of each controller (`cpu`, `memory`, v1 also `cpuacct`)."""
        self.v2 = v2
        self._parents = dict(parents)
        for folder in self._folders():
            folder.mkdir(parents=True, exist_ok=True)

    def remove(self) -> None:
        """The node manager ends: its own folders go where nothing is left in them."""
        for folder in self._folders():
            with contextlib.suppress(OSError):
                folder.rmdir()

    def open(self, name: str, cores: float, memory_bytes: float) -> str:
        """Make a group, with limits where they are above 0; answers where a process enters it.

        The answer is for `ENTER`: files separated by colons. Raises OSError.
        """
        for folder in self._folders():
            (folder / name).mkdir(parents=True, exist_ok=True)
        quota_us = max(QUOTA_US_MIN, round(cores * PERIOD_US))
        if cores > 0 and self.v2:
            self._write("cpu", name, "cpu.max", f"{quota_us} {PERIOD_US}")
        elif cores > 0:
            self._write("cpu", name, "cpu.cfs_period_us", str(PERIOD_US))
            self._write("cpu", name, "cpu.cfs_quota_us", str(quota_us))
        if memory_bytes > 0:
            file = "memory.max" if self.v2 else "memory.limit_in_bytes"
            self._write("memory", name, file, str(round(memory_bytes)))
            # with swap a limit would slow the machine down instead of ending the hog
            extra = "memory.swap.max" if self.v2 else "memory.memsw.limit_in_bytes"
            with contextlib.suppress(OSError):
                if (self._parents["memory"] / name / extra).exists():
                    swap = "0" if self.v2 else str(round(memory_bytes))
                    self._write("memory", name, extra, swap)
        return ":".join(str(folder / name / "cgroup.procs") for folder in self._folders())

    def use(self, name: str) -> Use:
        """What a group uses; zeros where it is gone."""
        if self.v2:
            cpu_s = self._field("cpu", name, "cpu.stat", "usage_usec") / 1e6
            return Use(cpu_s, self._number("memory", name, "memory.current"))
        cpu_s = self._number("cpuacct", name, "cpuacct.usage") / 1e9
        return Use(cpu_s, self._number("memory", name, "memory.usage_in_bytes"))

    def killed_for_memory(self, name: str) -> bool:
        """Whether the kernel killed a process of the group for its memory limit."""
        file = "memory.events" if self.v2 else "memory.oom_control"
        return self._field("memory", name, file, "oom_kill") > 0

    def processes(self, name: str) -> list[int]:
        """The processes of a group."""
        found = self._read("memory", name, "cgroup.procs")
        return [int(line) for line in found.splitlines()]

    def close(self, name: str) -> bool:
        """Remove a group; False: a process of it still ends, try again."""
        gone = True
        for folder in self._folders():
            try:
                (folder / name).rmdir()
            except FileNotFoundError:
                continue
            except OSError:
                gone = False
        return gone

    def _folders(self) -> list[Path]:
        return sorted(set(self._parents.values()))

    def _write(self, controller: str, name: str, file: str, text: str) -> None:
        (self._parents[controller] / name / file).write_text(text)

    def _read(self, controller: str, name: str, file: str) -> str:
        try:
            return (self._parents[controller] / name / file).read_text()
        except (OSError, KeyError):
            return ""

    def _number(self, controller: str, name: str, file: str) -> float:
        return float(self._read(controller, name, file) or 0)

    def _field(self, controller: str, name: str, file: str, key: str) -> float:
        for line in self._read(controller, name, file).splitlines():
            found, _, value = line.partition(" ")
            if found == key:
                return float(value)
        return 0.0


def find(node: str, proc: Path = Path("/proc")) -> tuple[Cgroups | None, str]:
    """The groups that this process may make for a node; or None, and why."""
    mounts = [line.split() for line in _lines(proc / "mounts")]
    own = dict(_own_groups(proc))
    name = f"weft-{node}"
    try:
        for _, mount, kind, *_ in mounts:
            if kind == "cgroup2":
                here = _below(Path(mount), own.get("", "/"))
                if {"cpu", "memory"} <= set(_text(here / "cgroup.controllers").split()):
                    return _second(here, name), ""
        v1: dict[str, Path] = {
            controller: _below(Path(mount), own.get(controller, "/")) / name
            for _, mount, kind, options, *_ in mounts
            if kind == "cgroup"
            for controller in options.split(",")
            if controller in ("cpu", "cpuacct", "memory")
        }
        if len(v1) == 3:
            return Cgroups(False, v1), ""
    except OSError as error:
        return None, f"control groups cannot be written: {error.strerror or error}"
    return None, "no control groups for CPU and memory"


def _second(here: Path, name: str) -> Cgroups:
    """cgroup v2: a group that has children may hold no processes, so this one moves aside."""
    control = here / "cgroup.subtree_control"
    if not {"cpu", "memory"} <= set(_text(control).split()):
        if _text(here / "cgroup.procs").strip() and (here / "cgroup.type").exists():
            aside = here / "weft-manager"
            aside.mkdir(exist_ok=True)
            (aside / "cgroup.procs").write_text(str(os.getpid()))
        control.write_text("+cpu +memory")
    parent = here / name
    parent.mkdir(exist_ok=True)
    (parent / "cgroup.subtree_control").write_text("+cpu +memory")
    return Cgroups(True, {"cpu": parent, "memory": parent})


def _own_groups(proc: Path) -> list[tuple[str, str]]:
    """(controller, path) of this process; the controller is "" for v2."""
    found = []
    for line in _lines(proc / "self" / "cgroup"):
        _, controllers, path = line.split(":", 2)
        found += [(controller, path) for controller in controllers.split(",")]
    return found


def _below(mount: Path, path: str) -> Path:
    """This process's folder; the mount itself where a namespace hides the way to it."""
    inner = mount / path.lstrip("/")
    return inner if inner.is_dir() else mount


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _lines(path: Path) -> list[str]:
    return _text(path).splitlines()
