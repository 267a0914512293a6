"""Control groups of the hosts: a subtree for each, made before it starts, removed after its end."""

import contextlib
import os
import time
from pathlib import Path

from tools.testbed.words import Skip

# Controllers have these names in version 1 of cgroups.
NEEDED, WELCOME = {"cpu", "cpuacct", "memory"}, {"blkio"}
# The host's own processes are in the first, those of the role's supervisor in the second.
LEAVES = ("system", "weft")
PATIENCE_S = 20.0


class Groups:
    """`<controller>/<name>/<host>/<leaf>` in version 1, `<name>/<host>/<leaf>` in version 2."""

    def __init__(self, name: str) -> None:
        """Make the groups; raises Skip where the controllers are missing or not to be written."""
        self.v2, bases = _bases()
        self._roots = [base / name for base in bases]
        try:
            for root in self._roots:
                root.mkdir(exist_ok=True)
                self._open(root)
        except OSError as error:
            self.remove()
            raise Skip(f"control groups cannot be made: {error}") from None

    def make(self, host: str) -> None:
        """Make a host's subtree."""
        for root in self._roots:
            (root / host).mkdir()
            self._open(root / host)
            for leaf in LEAVES:
                (root / host / leaf).mkdir()

    def folders(self, host: str, leaf: str) -> list[str]:
        """Return a leaf's folder in every hierarchy."""
        return [str(root / host / leaf) for root in self._roots]

    def left(self, host: str) -> list[str]:
        """Return groups that something made below the host's leaf for Weft."""
        found: list[str] = []
        for root in self._roots:
            # `os.walk` passes over what goes meanwhile.
            for folder, inner, _ in os.walk(root / host / "weft"):
                found += [f"{folder}/{name}" for name in inner]
        return sorted(found)

    def remove(self) -> list[str]:
        """Remove everything, waiting for the last processes to go; what stayed."""
        give_up = time.monotonic() + PATIENCE_S
        while left := self._remove():
            if time.monotonic() > give_up:
                break
            time.sleep(0.05)
        return left

    def _remove(self) -> list[str]:
        for root in self._roots:
            for path in sorted(root.rglob("*"), key=lambda p: -len(p.parts)):
                if path.is_dir():
                    with contextlib.suppress(OSError):
                        path.rmdir()
            with contextlib.suppress(OSError):
                root.rmdir()
        return [str(root) for root in self._roots if root.exists()]

    def _open(self, folder: Path) -> None:
        """Say in version 2 which controllers the groups below one have."""
        if not self.v2:
            return
        there = (folder / "cgroup.controllers").read_text().split()
        for controller in {"cpu", "memory", "io"} & set(there):
            (folder / "cgroup.subtree_control").write_text(f"+{controller}")


def _bases() -> tuple[bool, list[Path]]:
    """Return whether it is version 2, and where this process may make groups. Raises Skip."""
    own = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        own.update(dict.fromkeys(controllers.split(","), path))
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    for _, mount, kind, *_ in mounts:
        if kind == "cgroup2":
            # only the root may have processes and controllers for groups below at once
            control = Path(mount) / "cgroup.subtree_control"
            if {"cpu", "memory"} <= set(control.read_text().split() if control.exists() else ()):
                return True, [Path(mount)]
    bases = {}
    for _, mount, kind, options, *_ in mounts:
        found = set(options.split(",")) & (NEEDED | WELCOME) if kind == "cgroup" else set()
        for controller in found:
            inner = Path(mount) / own.get(controller, "/").lstrip("/")
            bases[controller] = inner if inner.is_dir() else Path(mount)
    if not set(bases) >= NEEDED:
        raise Skip("no control groups for CPU and memory")
    return False, sorted(set(bases.values()))
