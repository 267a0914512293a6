"""Follow the graphs of Spark applications, so that schedulers know what is left of them.

While an application runs, its stages are read from the REST API of its own pages, where its master
says that they are; where those cannot be reached, from its event log. What a run that succeeded
looked like is kept by user and name.
"""

import asyncio
import contextlib
import hashlib
import json
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from weft.model.errors import WeftError
from weft.yarn.events import EventLog
from weft.yarn.masters import ForeignMaster
from weft.yarn.stages import Known, Stage, outline, read_stages, stages_left
from weft.yarn.store import write_private

KIND = "SPARK"
# The interval between two requests to one application grows with the time that they take, up to the
# second of these: requests take this share of the time.
INTERVAL_S, INTERVAL_MAX_S = 2.0, 10.0
REQUEST_TIME_SHARE = 0.1
TIMEOUT_S = 10.0
BYTES_MAX = 32 << 20
AT_ONCE = 8
KEPT_RUNS_MAX = 1_000


class History:
    """How applications ran before: one file a name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def find(self, user: str, name: str) -> tuple[Known, ...]:
        """Return an earlier run's stages; nothing where there was none or it cannot be read."""
        try:
            rows = json.loads(self._path(user, name).read_text("utf-8"))["stages"]
            found = tuple(_known(*row) for row in rows)
        except (OSError, ValueError, KeyError, TypeError):
            return ()
        right = all(0 <= p < at for at, known in enumerate(found) for p in known.parents)
        return found if right else ()

    def keep(self, user: str, name: str, stages: Sequence[Known]) -> None:
        """Keep a run; the oldest go beyond `KEPT_RUNS_MAX`."""
        rows = [[*k.key, k.tasks, k.task_s, k.parents, k.profile] for k in stages]
        write_private(self._path(user, name), {"user": user, "name": name, "stages": rows})
        files = sorted(self._folder.glob("*.json"), key=lambda path: path.stat().st_mtime)
        for path in files[: max(0, len(files) - KEPT_RUNS_MAX)]:
            path.unlink(missing_ok=True)

    def _path(self, user: str, name: str) -> Path:
        digest = hashlib.sha256(f"{user}\0{name}".encode("utf-8", "replace")).hexdigest()
        return self._folder / f"{digest[:24]}.json"


# The arguments are a row of the file.
def _known(
    key: str, nth: int, tasks: int, task_s: float, parents: Sequence[int], profile: int = 0
) -> Known:
    return Known(
        (str(key), int(nth)), int(tasks), float(task_s), tuple(map(int, parents)), int(profile)
    )


class _Followed:
    def __init__(self, master: ForeignMaster, before: tuple[Known, ...]) -> None:
        self.master, self.before = master, before
        self.stages: list[Stage] = []
        self.next_request_s = 0.0
        # Pages of an application may answer only to the address of Weft's pages.
        self.from_web_only = False
        self.log: EventLog | None = None
        self.task_cores_by_profile: dict[int, float] = {}


class Graphs:
    """Follows every application of type SPARK that told where its pages are."""

    def __init__(
        self, history: History, log: Any, web_host: str = "", events: Path | None = None
    ) -> None:
        """`web_host`: where Weft's pages are, the one place that Spark's pages let in.

        `events`: the folder of Spark's event logs.
        """
        self._history, self._log, self._web_host = history, log, web_host
        self._events = events
        self._followed: dict[int, _Followed] = {}
        self._room = asyncio.Semaphore(AT_ONCE)

    async def run(self, masters: Iterable[ForeignMaster]) -> None:
        """Look at all of them, again and again; `masters` is asked for anew each time."""
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        host = self._web_host if self._web_host.replace(".", "").isdigit() else "127.0.0.1"
        bound = aiohttp.TCPConnector(local_addr=(host, 0))
        async with (
            aiohttp.ClientSession(timeout=timeout) as plain,
            aiohttp.ClientSession(timeout=timeout, connector=bound) as from_web,
        ):
            while True:
                await asyncio.gather(*(self._turn(m, plain, from_web) for m in list(masters)))
                self._retire({master.attempt for master in masters})
                await asyncio.sleep(INTERVAL_S / 2)

    async def _turn(
        self, master: ForeignMaster, plain: aiohttp.ClientSession, from_web: aiohttp.ClientSession
    ) -> None:
        if master.kind != KIND or not (master.tracking_url or self._events):
            return
        found = self._followed.get(master.attempt)
        if found is None:
            before = self._history.find(master.user, master.name)
            found = self._followed[master.attempt] = _Followed(master, before)
        began_s = time.monotonic()
        if master.done or began_s < found.next_request_s:
            return
        async with self._room:
            try:
                try:
                    await self._look(found, from_web if found.from_web_only else plain)
                except Exception:
                    if not await self._read(found):
                        raise
            # Whatever an application's pages send concerns that application alone.
            except Exception as error:
                why = f"{type(error).__name__}: {error}"
                self._log.debug("no stages", application=master.app_name, reason=why)
        took_s = time.monotonic() - began_s
        found.next_request_s = began_s + min(
            INTERVAL_MAX_S, max(INTERVAL_S, took_s / REQUEST_TIME_SHARE)
        )

    async def _look(self, found: _Followed, session: aiohttp.ClientSession) -> None:
        base = address_of(found.master)
        items = await self._get(found, session, f"{base}/stages")
        if items is None:
            return
        stages = read_stages(items)
        if any(stage.profile not in found.task_cores_by_profile for stage in stages):
            with contextlib.suppress(aiohttp.ClientError, TimeoutError, ValueError):
                found.task_cores_by_profile = read_cpus(
                    await self._get(found, session, f"{base}/environment")
                )
            found.task_cores_by_profile.update(
                {s.profile: 1.0 for s in stages if s.profile not in found.task_cores_by_profile}
            )
        self._take(found, stages)

    async def _get(self, found: _Followed, session: aiohttp.ClientSession, address: str) -> Any:
        """Ask an application's pages; None: they let in only the host of Weft's pages."""
        async with session.get(
            address, allow_redirects=False, cookies={"proxy-user": "weft"}
        ) as got:
            if got.status in (301, 302, 303, 307) and not found.from_web_only:
                found.from_web_only, found.next_request_s = True, 0.0
                return None
            if got.status != 200:
                raise ValueError(f"{address}: {got.status}")
            data = bytearray()
            async for chunk in got.content.iter_chunked(1 << 16):
                data += chunk
                if len(data) > BYTES_MAX:
                    raise ValueError(f"{address}: more than {BYTES_MAX} bytes")
        return json.loads(data)

    async def _read(self, found: _Followed) -> bool:
        """Read on in the application's event log; return whether there is one."""
        if self._events is None:
            return False
        if found.log is None:
            found.log = EventLog(self._events, found.master.app_name)
        odd = found.log.odd
        if not await asyncio.to_thread(found.log.read):
            return False
        if found.log.odd and not odd:
            self._log.warning(
                "an event log has lines that cannot be read",
                application=found.master.app_name,
                lines=found.log.odd,
                reason=found.log.why_odd,
            )
        found.task_cores_by_profile = found.log.events.cpus
        self._take(found, read_stages(found.log.events.stages()))
        return True

    def _take(self, found: _Followed, stages: list[Stage]) -> None:
        found.stages = stages
        left = stages_left(stages, found.before)
        found.master.follow(left, found.task_cores_by_profile)
        self._log.debug("stages", application=found.master.app_name, left=left)

    def _retire(self, live: set[int]) -> None:
        """Keep what those looked like that are over."""
        for attempt, found in list(self._followed.items()):
            master = found.master
            if not master.done and attempt in live:
                continue
            if attempt not in live:
                del self._followed[attempt]
            if master.done == "SUCCEEDED" and found.stages:
                stages, found.stages = found.stages, []
                # The odd data of one application harm no other.
                try:
                    self._history.keep(master.user, master.name, outline(stages))
                except (WeftError, ValueError, ArithmeticError) as error:
                    self._log.warning("a run is not kept", name=master.name, reason=str(error))


def read_cpus(data: Any) -> dict[int, float]:
    """Read the cores of a task by resource profile from `/environment` of Spark's REST API."""
    found: dict[int, float] = {}
    try:
        usual = float(dict(data["sparkProperties"]).get("spark.task.cpus", 1))
        for profile in data.get("resourceProfiles", ()):
            asked = profile.get("taskResources", {}).get("cpus", {})
            found[int(profile["id"])] = float(asked.get("amount", usual))
    except (KeyError, TypeError, ValueError, AttributeError):
        return found
    return found


def address_of(master: ForeignMaster) -> str:
    """Return where an application is told of; raises ValueError where nothing can ask."""
    base = master.tracking_url
    if "://" not in base:
        base = f"http://{base}"
    if urlsplit(base).scheme not in ("http", "https"):
        raise ValueError(f"no reader for {base}")
    return f"{base.rstrip('/')}/api/v1/applications/{master.app_name}"
