"""Preferred schedules, drawn by the offline planner in a process of its own, one at a time.

A master keeps its plan to itself; the same planner over the same job and the nodes that run now
gives the same kind of schedule. The planner is found by its command, as any user would.
"""

import asyncio
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from weft.model.errors import WeftError
from weft.model.ids import AppId
from weft.model.job import Job
from weft.model.jobfile import job_to_dict
from weft.protocol.requests import NodeReport
from weft.runtime.commands import run_command

TASKS_MAX = 2_000
NODES_MAX = 200
KEPT_MAX = 200


class Plans:
    """Schedules by application, each drawn once."""

    def __init__(self, planner: str, limit_s: float) -> None:
        self.planner = planner
        self.limit_s = limit_s
        self._drawn: dict[AppId, asyncio.Task[dict[str, Any]]] = {}
        self._one = asyncio.Lock()

    async def draw(self, app: AppId, job: Job, nodes: Iterable[NodeReport]) -> dict[str, Any]:
        """Return the schedule of a job on the nodes that run; raises WeftError saying why not."""
        if app not in self._drawn:
            if len(self._drawn) >= KEPT_MAX:
                self._drawn.pop(next(iter(self._drawn))).cancel()
            self._drawn[app] = asyncio.ensure_future(self._draw(job, list(nodes)))
        try:
            return await asyncio.shield(self._drawn[app])
        # Another time it may be possible.
        except WeftError:
            self._drawn.pop(app, None)
            raise

    def forget(self) -> None:
        """Forget all: another cluster's applications have the old ones' numbers."""
        for task in self._drawn.values():
            task.cancel()
        self._drawn.clear()

    async def _draw(self, job: Job, nodes: list[NodeReport]) -> dict[str, Any]:
        sizes = Counter(tuple(n.capacity.items()) for n in nodes if n.state == "RUNNING")
        if not self.limit_s:
            raise WeftError("preferred schedules are switched off (--plan-limit-s)")
        if not sizes:
            raise WeftError("no node runs")
        if job.task_count > TASKS_MAX or sizes.total() > NODES_MAX:
            raise WeftError(
                f"{job.task_count} tasks on {sizes.total()} nodes are too many to draw here "
                f"({TASKS_MAX} and {NODES_MAX}); `weft plan` takes its time"
            )
        cluster = {"nodes": [{"count": n, "capacity": dict(size)} for size, n in sizes.items()]}
        async with self._one:
            with tempfile.TemporaryDirectory(prefix="weft-web-") as folder:
                return await self._run(Path(folder), job, cluster)

    async def _run(self, folder: Path, job: Job, cluster: dict[str, Any]) -> dict[str, Any]:
        files = {name: folder / f"{name}.json" for name in ("job", "cluster", "plan")}
        files["job"].write_text(json.dumps(job_to_dict(job)), "utf-8")
        files["cluster"].write_text(json.dumps(cluster), "utf-8")
        command = [
            *(sys.executable, "-m", "weft", "plan", str(files["job"])),
            *("--cluster", str(files["cluster"])),
            *("--planner", self.planner),
            *("--time-limit-s", str(self.limit_s / 2)),
            *("--workers", "1"),
            *("--out", str(files["plan"])),
        ]
        said = bytearray()
        try:
            code = await run_command(command, said.extend, self.limit_s, errors=True)
        except TimeoutError:
            raise WeftError(f"{self.planner} took longer than {self.limit_s:g} s") from None
        if code:
            lines = said.decode(errors="replace").strip().splitlines() or ["it failed"]
            raise WeftError(f"{self.planner}: {lines[-1]}")
        made: dict[str, Any] = json.loads(files["plan"].read_text("utf-8"))
        return made

    async def close(self) -> None:
        """End what is being drawn."""
        for task in self._drawn.values():
            task.cancel()
        await asyncio.gather(*self._drawn.values(), return_exceptions=True)
