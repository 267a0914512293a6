"""Hostile messages to the faces of live services: `python -m tools.message_fuzz --live COUNT`.

The floods come in rounds. Each has victims of its own, jobs whose masters and containers are spoken
for with true tokens, so that much of what is said gets beyond the question who says it. An honest
job that runs all the while on honest nodes is the witness: after the flood of a face no
process has ended, the nodes are what they were, each of the witness's containers runs where it ran,
every listing answers, another job runs from its start to its end, and nothing of what is over is
left on a node.
"""

import asyncio
import contextlib
import json
import random
import secrets
import time
import urllib.request
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from testkit.flood import Badges, flood
from testkit.mutations import Pool
from weft.client.api import AsyncClient
from weft.client.local import LocalCluster, LocalSettings
from weft.model.errors import WeftError
from weft.model.ids import attempt_id
from weft.model.job import Job, Stage
from weft.wire.tokens import FILE as KEYS_FILE
from weft.wire.tokens import Keys
from weft.yarn import translate

FACES = ("tracker", "master", "client", "node", "am host")
# The witness is a job of so many tasks that runs all the while.
NODES, WITNESS_TASKS = 6, 12
OWN = tuple(f"n{n}" for n in range(1, NODES + 1))
# After so many messages the victims are others.
MESSAGES_PER_ROUND, VICTIMS = 2_000, 3
VICTIMS_S = 5.0
# How long a job may take, and all that is over may take to be gone.
PROBE_JOB_WAIT_S, GONE_WAIT_S = 120.0, 60.0
REST = tuple(f"/ws/v1/cluster/{what}" for what in ("apps", "nodes", "scheduler", "metrics"))
PAGES = (*REST, "/cluster", "/cluster/nodes", "/cluster/scheduler")
REFUSED = "weft_messages_refused"
ENDED = ("FINISHED", "FAILED", "KILLED")


class FuzzError(Exception):
    """What a message did; of a core with the seed and the step that bring it back."""


async def fuzz_live(
    seed: int, count: int, faces: Sequence[str] = FACES
) -> AsyncIterator[tuple[str, int, int, float]]:
    """Yield after each face of a local cluster took about `count` messages.

    Yields face, messages sent, messages refused by a gate, s that the floods took; raises FuzzError
    where a service gives in.
    """
    settings = LocalSettings(
        nodes=NODES,
        nm_processes=2,
        scheduler="fair",
        state=True,
        web=True,
        flags={"rm": ["node_expiry_s=30", "master_expiry_s=30"]},
    )
    with LocalCluster(settings) as cluster:
        client = AsyncClient(cluster.address)
        watch = Watch(cluster, client)
        await watch.begin()
        for face in faces:
            rng = random.Random(f"{seed} {face}")
            sent, refused, took_s = 0, _counted(cluster, REFUSED), 0.0
            for first in range(0, count, MESSAGES_PER_ROUND):
                pool, badges = await watch.victims(face)
                began_s = time.monotonic()
                size = min(MESSAGES_PER_ROUND, count - first)
                sent += await flood(face, _address(cluster, face), rng, pool, size, badges)
                took_s += time.monotonic() - began_s
                await watch.clear(f"flood of {face}")
            await watch.look(f"after the flood of {face}")
            yield face, sent, _counted(cluster, REFUSED) - refused, took_s
        await client.close()


def _address(cluster: LocalCluster, face: str) -> str:
    process = {"node": "nm0", "am host": "am"}.get(face, "rm")
    return str(cluster.ready[process]["address"])


def _counted(cluster: LocalCluster, name: str) -> int:
    """Return the sum of a metric over all processes."""
    total = 0.0
    for ready in cluster.ready.values():
        with urllib.request.urlopen(f"http://{ready['metrics']}/metrics", timeout=60) as page:
            for family in text_string_to_metric_families(page.read().decode()):
                if family.name == name:
                    total += sum(sample.value for sample in family.samples)
    return int(total)


def _read(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=60) as page:
        text: bytes = page.read()
    return text


class Watch:
    """A job that runs all the while, and what the nodes were at first."""

    def __init__(self, cluster: LocalCluster, client: AsyncClient) -> None:
        self.cluster, self.client = cluster, client
        self.witness = 0
        self.runs: set[tuple[int, str]] = set()
        self.nodes: dict[str, tuple[object, ...]] = {}

    async def begin(self) -> None:
        """Start the witness; its number is none that a flood would guess."""
        for _ in range(5):
            await self._job_runs("before the floods")
        lasting = Job("witness", (Stage("w", WITNESS_TASKS, 1e7, {"vcores": 1.0}),))
        self.witness = await self.client.submit(lasting)
        until = time.monotonic() + PROBE_JOB_WAIT_S
        while len(self.runs) < WITNESS_TASKS:
            if time.monotonic() > until:
                raise FuzzError(f"the witness did not start: {len(self.runs)} of {WITNESS_TASKS}")
            await asyncio.sleep(0.05)
            self.runs = await self._containers()
        self.nodes = await self._nodes()

    async def victims(self, face: str) -> tuple[Pool, Badges]:
        """Return jobs that run, and all that a peer needs to speak for them."""
        demand = {"vcores": 0.1, "memory_mb": 64.0}
        stages = (Stage("s0", 12, 1e7, demand), Stage("s1", 9, 0.01, demand))
        # At a node, orders must fit their application.
        count = 1 if face == "node" else VICTIMS
        apps = [await self.client.submit(Job(f"victim-{n}", stages)) for n in range(count)]
        held: dict[int, str] = {}
        # The nodes that strangers made take some containers, which never run.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(VICTIMS_S):
                while len(held) < count * stages[0].tasks:
                    await asyncio.sleep(0.02)
                    tasks = [task for app in apps for task in await self.client.tasks(app)]
                    held = {task.container_id: task.node_id for task in tasks}
        now_s, keys = time.time(), self._keys()
        names = [*OWN[:3], "evil1", "evil2", "evil3"]
        if face != "tracker":
            # Only where the peer must prove its name may the honest names be used.
            names = list(OWN[:3]) if face == "node" else names[3:]
        attempts = [attempt_id(app, number) for app in apps for number in (1, 2)]
        nodes = [keys.node(name, now_s) for name in names if name not in OWN]
        masters = [keys.attempt(attempt, now_s) for attempt in attempts]
        strange = [apps[-1] + 1_000_000 + n for n in range(3)] if face == "am host" else []
        pool = Pool(nodes=names, apps=[*apps, *strange], containers=list(held))

        def signed(node: str, containers: Iterable[int]) -> list[bytes]:
            mine = [number for number in containers if held.get(number) == node]
            return [keys.container(number, node, now_s) for number in mine]

        return pool, Badges(tuple(nodes if face == "tracker" else masters), signed)

    def _keys(self) -> Keys:
        saved = json.loads((self.cluster.folder / "state" / KEYS_FILE).read_text())
        return Keys(time.time(), secrets.token_bytes, saved=saved)

    async def clear(self, when: str) -> None:
        """Read every listing, then kill whatever the flood left running."""
        try:
            apps, nodes = await self.client.applications(), await self.client.nodes()
            await self._pages(when)
            for node in nodes:
                translate.node_report(node, None, int, "").SerializeToString()
            for app in apps:
                translate.report(app, int, "", unmanaged=False).SerializeToString()
                if app.state not in ENDED and app.app_id != self.witness:
                    await self.client.kill(app.app_id)
        except WeftError as error:
            raise FuzzError(f"{when}: {self.cluster.failed() or error}") from error
        except ValueError as error:
            raise FuzzError(f"{when}: clients of YARN are told nothing more: {error}") from error

    async def _pages(self, when: str) -> None:
        """Read what the pages and YARN's REST API list."""
        for path in PAGES:
            url = self.cluster.url.removesuffix("/cluster") + path
            try:
                text = await asyncio.to_thread(_read, url)
                if path.startswith("/ws"):
                    json.loads(text)
            except (OSError, ValueError) as error:
                raise FuzzError(f"{when}: {path}: {self.cluster.failed() or error}") from error

    async def look(self, when: str) -> None:
        """Check that nobody ended, nothing of others changed, listings answer and a job runs."""
        if failed := self.cluster.failed():
            raise FuzzError(f"{when}: {failed}")
        for name in self.cluster.processes:
            if (said := self.cluster.output(name).read_text(errors="replace")).count("Traceback"):
                raise FuzzError(f"{when}: {name}: {said[said.index('Traceback') :][:2_000]}")
        try:
            nodes, runs = await self._nodes(), await self._containers()
            await self.client.applications()
            await self.client.metrics()
            await self.client.queues()
            await self.client.explain(self.witness)
        except WeftError as error:
            raise FuzzError(f"{when}: a listing failed: {error}") from error
        for name, known in self.nodes.items():
            if nodes.get(name) != known:
                raise FuzzError(f"{when}: node {name} was {known}, is {nodes.get(name)}")
        if runs != self.runs:
            raise FuzzError(f"{when}: of the witness's containers changed {self.runs ^ runs}")
        await self._job_runs(when)
        # The witness and its master run on, and nothing else.
        until = time.monotonic() + GONE_WAIT_S
        wanted = {"weft_tasks_running": WITNESS_TASKS + 1, "weft_masters": 1}
        while (left := {name: _counted(self.cluster, name) for name in wanted}) != wanted:
            if time.monotonic() > until:
                raise FuzzError(f"{when}: {left} are left, expected {wanted}")
            await asyncio.sleep(0.2)

    async def _nodes(self) -> dict[str, tuple[object, ...]]:
        """Return each honest node: all that a heartbeat does not change."""
        return {
            node.node_id: (node.address, node.rack, node.labels, node.state, node.capacity)
            for node in await self.client.nodes()
            if node.node_id in OWN
        }

    async def _containers(self) -> set[tuple[int, str]]:
        tasks = await self.client.tasks(self.witness)
        return {(task.container_id, task.node_id) for task in tasks if not task.finished_s}

    async def _job_runs(self, when: str) -> None:
        job = Job("probe", (Stage("a", 12, 0.01, {"vcores": 1.0}),))
        app = await self.client.submit(job)
        ended: Any = await asyncio.wait_for(self.client.wait([app]), PROBE_JOB_WAIT_S)
        if ended[app].final_status != "SUCCEEDED":
            raise FuzzError(f"{when}: {ended[app]}")


async def tell_live(seed: int, count: int, faces: Sequence[str]) -> None:
    """Fuzz and print a line for each face."""
    async for face, sent, refused, took_s in fuzz_live(seed, count, faces):
        print(
            f"{face}: {sent:,} messages ({refused:,} refused at a gate) in {took_s:.0f} s, "
            "everybody went on",
            flush=True,
        )
