"""A scrape stays small and quick and says what is there, however much comes and goes."""

import asyncio
import gzip
import socket
import time
import urllib.request
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rm.__main__ import make_manager
from rm.core import LIVENESS_TIMER, ResourceManager
from rm.process.instruments import instrument
from rm.process.metrics import ManagerMetrics
from testkit.live import chain
from weft.model.errors import WeftError
from weft.protocol.effects import ClientRequested, Note, Recovered, Send, SetTimer, TimerFired
from weft.protocol.facts import facts_of
from weft.protocol.messages import (
    Ask,
    AskType,
    AttemptFinished,
    AttemptRegistered,
    Container,
    ContainerEnd,
    ContainersAsked,
    ContainersGranted,
    NodeAnswered,
    NodeHeartbeated,
    NodeRegistered,
    NodeUnregistered,
    Outcome,
    containers_of,
)
from weft.protocol.requests import SubmitApplication
from weft.runtime.exposition import SERIES_MAX, Exposition, base_unit
from weft.runtime.role_settings import RmSettings

NODES, BYTES_MAX, SCRAPE_S_MAX = 1_000, 5_000_000, 0.3
CAPACITY = {"vcores": 16.0, "memory_mb": 65536.0, "disk_mbps": 800.0, "network_mbps": 1000.0}


class Churning:
    """A manager whose nodes and jobs come and go, with its metrics.

    Its masters are obedient: once launched they ask for their ten tasks, and a minute later all
    that was granted has succeeded.
    """

    def __init__(self, out: Exposition) -> None:
        self.manager: ResourceManager = make_manager(RmSettings(), 1)
        self.metrics = ManagerMetrics(out)
        self.now = 0.0
        self.made = 0
        self.first = 1  # the oldest node that is up
        self.submitted = 0
        self.beats = 0
        self.masters: dict[int, tuple[str, int]] = {}  # attempt -> node, container
        self.granted: dict[int, list[Container]] = {}
        instrument(out, self.manager)
        self.tell(Recovered(()))

    def tell(self, event: Any) -> None:
        """Hand in an event, count its facts, keep its orders, and let the matcher run."""
        effects = list(self.manager.handle(event, self.now))
        for effect in effects:  # it grows on the way
            if isinstance(effect, Note):
                for fact in facts_of(effect.fact):
                    self.metrics.note(fact, self.now)
            elif isinstance(effect, SetTimer) and effect.delay_s == 0:
                effects += self.manager.handle(TimerFired(effect.key), self.now)
            elif isinstance(effect, Send) and isinstance(effect.message, NodeAnswered):
                for launch in effect.message.start:
                    place = (effect.message.node_id, launch.container_id)
                    self.masters[launch.attempt_id] = place
            elif isinstance(effect, Send) and isinstance(effect.message, ContainersGranted):
                attempt = effect.message.attempt_id
                self.granted.setdefault(attempt, []).extend(
                    containers_of(effect.message.containers)
                )

    def add_nodes(self, count: int) -> None:
        """Hosts whose names were never seen before."""
        for _ in range(count):
            self.made += 1
            self.tell(NodeRegistered(f"host-{self.made:06d}", "h:1", "rack", (), CAPACITY))

    def remove_nodes(self, count: int) -> None:
        """The oldest hosts say goodbye, whatever they run."""
        for number in range(self.first, self.first + count):
            self.tell(NodeUnregistered(f"host-{number:06d}"))
        self.first += count

    def beat(self, node: str, *ended: ContainerEnd) -> None:
        """A node's report, with another measured use each time."""
        self.beats += 1
        use = (self.beats % 16, 1000.0 + self.beats % 7, 0.125, 3.5)
        self.tell(NodeHeartbeated(node, self.beats, ended=tuple(ended), use=use))

    def beat_all(self) -> None:
        """Every node that is up."""
        for number in range(self.first, self.made + 1):
            self.beat(f"host-{number:06d}")

    def run_jobs(self, count: int) -> None:
        """What ran ends, new jobs come, and their masters ask."""
        for attempt, containers in list(self.granted.items()):
            for task, container in enumerate(containers):
                end = ContainerEnd(container.container_id, Outcome.SUCCEEDED, 0, 0, task, 0, 60.0)
                self.beat(container.node_id, end)
            if containers:
                del self.granted[attempt]
                self.tell(AttemptFinished(attempt, True))
                node, own = self.masters.pop(attempt)
                self.beat(node, ContainerEnd(own, Outcome.SUCCEEDED))
        for _ in range(count):
            self.submitted += 1
            job = chain(f"job-{self.submitted}", 1, 10, 60.0)
            request = SubmitApplication(job, str(self.submitted))
            self.tell(ClientRequested(str(self.submitted), request))
        for attempt in [a for a in self.masters if a not in self.granted]:
            self.tell(AttemptRegistered(attempt))
            ask = Ask(1, 10, (1.0, 512.0, 0.0, 0.0), 60.0, 1.0, AskType.DEFAULT, 0)
            self.tell(ContainersAsked(attempt, 1, asks=(ask,), remaining_work=600.0))


def scrape(out: Exposition) -> Any:
    """As Prometheus would, on a thread of its own."""
    return asyncio.get_running_loop().run_in_executor(None, out.text)


def test_a_scrape_of_a_thousand_nodes_is_small_and_quick_and_stays_so_over_an_hour_of_churn() -> (
    None
):
    """Every minute of virtual time 20 hosts are replaced and 20 jobs run to their end."""

    async def main() -> tuple[list[int], list[float]]:
        out = Exposition()
        out.serve("127.0.0.1", 0)
        churning = Churning(out)
        churning.add_nodes(NODES)
        churning.beat_all()
        sizes, took_s = [], []
        for minute in range(60):
            churning.now = 60.0 * minute + 1.0
            churning.run_jobs(20)
            churning.add_nodes(20)
            churning.remove_nodes(20)
            if minute % 10 == 9:
                churning.beat_all()
                for _ in range(3):
                    began_s = time.process_time()  # both threads', however busy the machine is
                    sizes.append(len(await scrape(out)))
                    took_s.append(time.process_time() - began_s)
        text = (await scrape(out)).decode()
        series = {
            name: float(value)
            for name, _, value in (line.rpartition(" ") for line in text.splitlines())
            if not name.startswith("#")
        }
        assert series["weft_series_refused_total"] == 0
        assert sum(name.startswith("weft_node_containers{") for name in series) == NODES
        assert sum(name.startswith("weft_node_used{") for name in series) == 4 * NODES
        helps = [line.split(maxsplit=3)[2:] for line in text.splitlines() if "# HELP" in line]
        assert [name for name, words in helps if words in (name, name.replace("_", " "))] == []
        live = [name for name in series if name.startswith("weft_app_tasks{")]
        assert 0 < len(live) <= 5 * 20, "of the last minutes: ended jobs have no series"
        ended = series['weft_containers_ended_total{outcome="SUCCEEDED"}']
        assert ended > 0.8 * 59 * 20 * 11, "the churn is real"
        assert series['weft_nodes{state="SHUTDOWN"}'] == 60 * 20
        return sizes, took_s

    sizes, took_s = asyncio.run(main())
    assert max(sizes) < BYTES_MAX
    assert max(sizes) - min(sizes) < 0.02 * max(sizes)
    by_look = [min(took_s[i : i + 3]) for i in range(0, len(took_s), 3)]
    assert max(by_look) < SCRAPE_S_MAX
    assert by_look[-1] < 2 * by_look[0], "no slower after an hour"


def test_what_a_scrape_tells_of_the_books_waits_for_no_timer() -> None:
    """The manager's look at silent nodes and masters changes no number while nothing happens."""

    async def told(out: Exposition) -> list[str]:
        lines: list[str] = (await scrape(out)).decode().splitlines()
        return [line for line in lines if line.startswith("weft_")]

    async def main() -> None:
        out = Exposition()
        out.serve("127.0.0.1", 0)
        churning = Churning(out)
        churning.add_nodes(3)
        churning.run_jobs(2)
        churning.beat_all()
        before = await told(out)
        assert 'weft_nodes{state="RUNNING"} 3.0' in before
        churning.tell(TimerFired(LIVENESS_TIMER))
        assert await told(out) == before

    asyncio.run(main())


def test_a_scrape_over_http_is_what_prometheus_takes() -> None:
    """Compressed if wanted, at any path, with label texts that no name can break."""

    async def main() -> None:
        out = Exposition()
        address = out.serve("127.0.0.1", 0)
        out.gauge("weft_odd", 'A "gauge" with a \\ and\na line', 1.5, (("name", 'a"b\\c\nd'),))
        out.gauge("weft_odd", "", float("inf"), (("name", "more"),))
        out.count("weft_deeds", "Deeds", 2)
        out.histogram("weft_wait_seconds", "Waits", (("kind", "x"),), (0.5, 1.0)).observe(0.7, 3)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

        def get(*headers: tuple[str, str]) -> tuple[Any, bytes]:
            request = urllib.request.Request(f"http://{address}/metrics", headers=dict(headers))
            with opener.open(request, timeout=30) as answer:
                return answer.headers, answer.read()

        loop = asyncio.get_running_loop()
        plain, body = await loop.run_in_executor(None, get)
        assert plain["Content-Type"].startswith("text/plain; version=0.0.4")
        _, packed = await loop.run_in_executor(None, get, ("Accept-Encoding", "gzip"))
        families = {f.name: f for f in text_string_to_metric_families(body.decode())}
        again = text_string_to_metric_families(gzip.decompress(packed).decode())
        assert {f.name for f in again} == set(families)
        odd = families["weft_odd"]
        assert odd.documentation == 'A "gauge" with a \\ and\na line'
        assert {s.labels["name"]: s.value for s in odd.samples} == {
            'a"b\\c\nd': 1.5,
            "more": float("inf"),
        }
        assert [(s.name, s.value) for s in families["weft_deeds"].samples] == [
            ("weft_deeds_total", 2.0)
        ]
        wait = {
            (s.name.removeprefix("weft_wait_seconds"), s.labels.get("le")): s.value
            for s in families["weft_wait_seconds"].samples
        }
        assert wait == {
            ("_bucket", "0.5"): 0.0,
            ("_bucket", "1.0"): 3.0,
            ("_bucket", "+Inf"): 3.0,
            ("_count", None): 3.0,
            ("_sum", None): pytest.approx(2.1),
        }
        assert "process_cpu_seconds" in families

    asyncio.run(main())


def test_a_port_in_use_is_said_in_one_line() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(WeftError, match=f"cannot serve metrics on 127.0.0.1:{port}: address"):
            Exposition().serve("127.0.0.1", port)


def test_names_follow_the_conventions() -> None:
    """Base units, a known prefix, and no counter without `_total`."""

    async def main() -> str:
        out = Exposition()
        out.serve("127.0.0.1", 0)
        churning = Churning(out)
        churning.add_nodes(2)
        for _ in range(3):
            churning.run_jobs(1)
        return str((await scrape(out)).decode())

    families = list(text_string_to_metric_families(asyncio.run(main())))
    assert len(families) > 25
    for family in families:
        if not family.name.startswith("weft_"):
            continue
        assert family.documentation
        assert not family.name.endswith(("_ms", "_mb", "_percent", "_total", "_count", "_sum"))
        if family.type == "histogram":
            assert family.name.endswith("_seconds"), family.name


def test_rounding_is_not_overbooking() -> None:
    """An alert fires on any overbooked memory, so sums of fractions must not look like some."""

    async def main() -> dict[str, float]:
        out = Exposition()
        out.serve("127.0.0.1", 0)
        churning = Churning(out)
        churning.add_nodes(2)
        held = churning.manager.books.ledger.nodes.w["held"]
        held[0] = (16.0 * (1 + 1e-15), 65536.0 * (1 + 1e-15), 0.0, 0.0)
        held[1] = (20.0, 65536.0, 0.0, 0.0)
        lines = (await scrape(out)).decode().splitlines()
        found = [line.rpartition(" ") for line in lines if "_overbooked{" in line]
        return {name.split('"')[1]: float(value) for name, _, value in found}

    over = asyncio.run(main())
    assert over == {"cpu": 4.0, "memory": 0.0, "disk": 0.0, "network": 0.0}


def test_resources_are_told_in_base_units() -> None:
    assert base_unit("memory_mb") == ((("resource", "memory"), ("unit", "bytes")), 2.0**20)
    assert base_unit("vcores") == ((("resource", "cpu"), ("unit", "cores")), 1.0)
    assert base_unit("gpus") == ((("resource", "gpus"), ("unit", "units")), 1.0)


def test_a_family_does_not_grow_without_bound() -> None:
    out = Exposition()
    for number in range(SERIES_MAX + 5):
        out.count("weft_anything", "Anything", 1, (("name", str(number)),))
    text = out.text().decode()
    assert "weft_series_refused_total 5.0" in text
