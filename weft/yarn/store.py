"""What the gateway must not forget: the launch contexts of applications and containers.

One file each, 0600 in a folder of 0700, written whole and renamed; gone when its application is.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from weft.model.ids import AppId
from weft.runtime.kept_file import read_kept, write_kept

_CONTEXT, _LAUNCHES, _PORTS = "context.json", "launch", "ports.json"


class Store:
    """A folder with one sub-folder for each application that is not over."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._apps = root / "apps"
        self._unmanaged: dict[AppId, bool] = {}
        self._apps.mkdir(parents=True, exist_ok=True)
        for folder in (root, self._apps):
            folder.chmod(0o700)

    def applications(self) -> Iterator[AppId]:
        """Yield the applications that have a folder."""
        for folder in self._apps.iterdir():
            if folder.name.isdigit():
                yield int(folder.name)

    def keep(self, app: AppId, data: dict[str, Any]) -> None:
        """Keep an application's submission."""
        write_private(self._folder(app) / _CONTEXT, data)

    def application(self, app: AppId) -> dict[str, Any] | None:
        """Return an application's submission, None where there is none."""
        return _read(self._folder(app) / _CONTEXT)

    def unmanaged(self, app: AppId) -> bool:
        """Return whether an application's client runs its master itself."""
        known = self._unmanaged.get(app)
        if known is None:
            data = self.application(app)
            known = bool((data or {}).get("unmanaged"))
            if data is not None:
                self._unmanaged[app] = known
        return known

    def keep_launch(self, app: AppId, container: str, data: dict[str, Any]) -> None:
        """Keep what a container is to run."""
        write_private(self._folder(app) / _LAUNCHES / f"{container}.json", data)

    def launch(self, app: AppId, container: str) -> dict[str, Any] | None:
        """Return what a container is to run, None where nothing was said."""
        return _read(self._folder(app) / _LAUNCHES / f"{container}.json")

    def forget(self, app: AppId) -> None:
        """Remove the folder of an application that is over."""
        self._unmanaged.pop(app, None)
        folder = self._folder(app)
        for path in sorted(folder.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink(missing_ok=True)
        if folder.exists():
            folder.rmdir()

    def port(self, node: str) -> int:
        """Return the port of a node's face, 0 where it never had one."""
        known = (_read(self.root / _PORTS) or {}).get(node)
        return known if isinstance(known, int) and 0 < known < 1 << 16 else 0

    def keep_port(self, node: str, port: int) -> None:
        """Keep the port of a node's face for the next start; another node's claim to it goes."""
        known = _read(self.root / _PORTS) or {}
        if known.get(node) != port:
            rest = {name: old for name, old in known.items() if old != port}
            write_private(self.root / _PORTS, rest | {node: port})

    def _folder(self, app: AppId) -> Path:
        return self._apps / str(app)


def write_private(path: Path, data: dict[str, Any]) -> None:
    """Write a file that only this user reads, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_kept(path, json.dumps(data).encode())


def _read(path: Path) -> dict[str, Any] | None:
    data = read_kept(path)
    try:
        found = None if data is None else json.loads(data)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
