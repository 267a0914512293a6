"""What stays of an application on a host, and for how long: YARN's deletion service.

Everything here is done on one thread of its own, one folder after the other, as tasks choose how
long it takes. An application's folder is not its tasks', so its time tells when the last container
began there or when it was cleaned.
"""

import asyncio
import contextlib
import os
import re
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from math import inf
from pathlib import Path
from types import MappingProxyType

from nm.process.folders import KEPT, bound_logs, clean
from nm.process.places import FOLDER
from weft.runtime.removing import Left, acting_as, empty

APPLICATION = re.compile(r"application_[0-9]+_[0-9]+")
CONTAINER = "container_"
# The most wall clock time between two looks for logs that are too old.
SWEEP_S = 60.0
# Logs of what runs are looked at so often, in wall clock time.
BOUND_S = 2.0


class Keeper:
    """Cleans the applications' folders below a root. Use it on the event loop's thread.

    `log_retain_s` after its end an application's logs go, too; those that are longer than
    `log_bytes` (0: none is) lose their middle; `debug_delay_s` after its end all else goes. `owner`
    is the user of tasks, with whose rights their files go; `warn` receives what cannot be removed.
    """

    def __init__(
        self,
        root: Path,
        *,
        log_retain_s: float = 10_800.0,
        log_bytes: int = 0,
        debug_delay_s: float = 0.0,
        owner: tuple[int, int] | None = None,
        warn: Callable[[str, Left], None] = lambda place, left: None,
    ) -> None:
        self._root = root
        self._log_retain_s = log_retain_s
        self._log_bytes = log_bytes
        self._debug_delay_s = debug_delay_s
        self._owner = owner
        self._warn = warn
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, "keeper")
        self._apps_to_expire: set[str] = set()
        self._waiting: set[asyncio.TimerHandle] = set()
        self._closed = False

    def begin(self, kept: Mapping[str, Collection[str]] = MappingProxyType({})) -> None:
        """Remove what an earlier process left, but for containers `kept`, by application."""
        before_s = time.time()
        with os.scandir(self._root) as entries:
            found = [one.name for one in entries if APPLICATION.fullmatch(one.name)]
        self._apps_to_expire.update(app for app in found if app not in kept)
        for app in found:
            self._run(self._clean, app, kept.get(app, ()), before_s)

    def over(self, app: str, running: Collection[str] = ()) -> None:
        """Remove what an application left that is over, when that is due."""

        def due() -> None:
            self._waiting.discard(handle)
            self._apps_to_expire.add(app)
            self._run(self._clean, app, frozenset(running), inf)

        handle = self._loop.call_later(self._debug_delay_s, due)
        self._waiting.add(handle)

    async def sweep(self, running: Callable[[], Collection[str]]) -> None:
        """Remove logs that are too old, now and then, but for applications that run here again."""
        while True:
            await asyncio.sleep(min(SWEEP_S, max(1.0, self._log_retain_s / 10)))
            self._apps_to_expire.difference_update(running())
            ready = sorted(self._apps_to_expire)
            # Where no thread can be started, the next round tries again.
            with contextlib.suppress(RuntimeError):
                gone = await self._loop.run_in_executor(self._thread, self._expire, ready)
                self._apps_to_expire.difference_update(gone)

    async def bound(self, running: Callable[[], Collection[Path]]) -> None:
        """Keep logs in the limit while they are written: those in folders of what runs."""
        while self._log_bytes:
            await asyncio.sleep(BOUND_S)
            with contextlib.suppress(RuntimeError):
                await self._loop.run_in_executor(self._thread, self._bound, list(running()))

    async def finish(self) -> None:
        """Wait until all that was to be cleaned so far is."""
        await self._loop.run_in_executor(self._thread, lambda: None)

    def close(self) -> None:
        """Leave what was not cleaned to the next process."""
        self._closed = True
        for handle in self._waiting:
            handle.cancel()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _run(self, act: Callable[..., object], *words: object) -> None:
        # The keeper may be closed.
        with contextlib.suppress(RuntimeError):
            self._loop.run_in_executor(self._thread, act, *words)

    # -- on the thread -----------------------------------------------------------------------------

    def _clean(self, app: str, kept: Collection[str], before_s: float) -> None:
        """Remove what lies in an application's folder, but not `kept` or made since `before_s`."""
        left = Left(goes_on=lambda: not self._closed)
        try:
            place = os.open(self._root / app, FOLDER)
        except OSError:
            return
        try:
            before = os.fstat(place)
            for name in os.listdir(place):
                if name in kept:
                    continue
                if os.stat(name, dir_fd=place, follow_symlinks=False).st_ctime > before_s:
                    continue
                if name.startswith(CONTAINER):
                    clean(place, name, self._owner, self._log_bytes, left)
                elif name in KEPT and not kept:
                    self._remove(place, name, left)
            if before_s == inf:
                os.utime(place)
            else:
                os.utime(place, ns=(before.st_atime_ns, before.st_mtime_ns))
        except OSError as error:
            left.add(app, error)
        finally:
            os.close(place)
        self._tell(app, left)

    def _bound(self, folders: Collection[Path]) -> None:
        with acting_as(self._owner):
            for folder in folders:
                bound_logs(folder, self._log_bytes)

    def _expire(self, apps: Collection[str]) -> list[str]:
        """Remove whole folders of applications that were over long enough; return their names."""
        gone = []
        for app in apps:
            left = Left(goes_on=lambda: not self._closed)
            try:
                since_s = os.stat(self._root / app, follow_symlinks=False).st_mtime
                if time.time() - since_s < self._log_retain_s:
                    continue
                place = os.open(self._root / app, FOLDER)
            except OSError:
                gone.append(app)
                continue
            try:
                for name in os.listdir(place):
                    self._remove(place, name, left)
            finally:
                os.close(place)
            try:
                os.rmdir(self._root / app)
            except OSError as error:
                left.add(app, error)
            gone.append(app)
            self._tell(app, left)
        return gone

    def _remove(self, place: int, name: str, left: Left) -> None:
        """Remove a folder of an application's, which its tasks' user owns but may not take away."""
        try:
            inner = os.open(name, FOLDER, dir_fd=place)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=place)
            return
        try:
            with acting_as(self._owner):
                empty(inner, left)
        finally:
            os.close(inner)
        with contextlib.suppress(OSError):
            os.rmdir(name, dir_fd=place)

    def _tell(self, app: str, left: Left) -> None:
        if left.count:
            # The loop may be closed.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._warn, app, left)
