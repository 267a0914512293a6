"""A scrape stays small and says only what is there, however many nodes and jobs come and go."""

import asyncio
from typing import Any

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from rm.__main__ import make_manager
from rm.core import ResourceManager
from rm.instruments import instrument
from rm.metrics import ManagerMetrics
from weft.effects import ClientRequested, Note, Recovered
from weft.ids import attempt_id
from weft.live.exposition import SERIES_MAX, Exposition, base_unit
from weft.live.settings import RmSettings
from weft.live.testing import chain
from weft.messages import (
    Ask,
    AskType,
    AttemptRegistered,
    ContainersAsked,
    NodeRegistered,
    NodeUnregistered,
)
from weft.requests import KillApplication, SubmitApplication

NODES, BYTES_MAX = 1_000, 5_000_000
CAPACITY = {"vcores": 16.0, "memory_mb": 65536.0, "disk_mbps": 800.0, "network_mbps": 1000.0}


class Churning:
    """A manager whose nodes and jobs come and go, with its metrics."""

    def __init__(self, out: Exposition) -> None:
        self.manager: ResourceManager = make_manager(RmSettings(), 1)
        self.metrics = ManagerMetrics(out)
        self.now = 0.0
        self.made = 0
        self.first = 1  # the oldest node that is up
        instrument(out, self.manager)
        self.tell(Recovered(()))

    def tell(self, event: Any) -> None:
        """Hand in an event and count its facts."""
        for effect in self.manager.handle(event, self.now):
            if isinstance(effect, Note):
                self.metrics.note(effect.fact, self.now)

    def add_nodes(self, count: int) -> None:
        """Hosts whose names were never seen before."""
        for _ in range(count):
            self.made += 1
            self.tell(NodeRegistered(f"host-{self.made:06d}", "h:1", "rack", (), CAPACITY))

    def remove_nodes(self, count: int) -> None:
        """The oldest hosts say goodbye."""
        for number in range(self.first, self.first + count):
            self.tell(NodeUnregistered(f"host-{number:06d}"))
        self.first += count

    def run_jobs(self, first: int, count: int) -> None:
        """Jobs that ask, and are killed a minute later."""
        for number in range(first, first + count):
            job = chain(f"job-{number}", 1, 10, 1.0)
            self.tell(ClientRequested(str(number), SubmitApplication(job, str(number))))
        for number in range(max(1, first - count), first):
            self.tell(ClientRequested(str(number), KillApplication(number, "")))


def scrape(out: Exposition) -> Any:
    """As Prometheus would, on a thread of its own."""
    return asyncio.get_running_loop().run_in_executor(None, generate_latest, out.registry)


def test_a_scrape_of_a_thousand_nodes_is_small_and_stays_so_over_an_hour_of_churn() -> None:
    async def main() -> list[int]:
        out = Exposition()
        out.serve("127.0.0.1", 0)
        churning = Churning(out)
        churning.add_nodes(NODES)
        sizes = []
        for minute in range(60):
            churning.now = 60.0 * minute + 1.0
            churning.run_jobs(1 + 20 * minute, 20)
            churning.add_nodes(20)
            churning.remove_nodes(20)
            if minute % 10 == 9:
                sizes.append(len(await scrape(out)))
        text = (await scrape(out)).decode()
        assert "weft_series_refused_total 0.0" in text
        nodes = [line for line in text.splitlines() if line.startswith("weft_node_containers{")]
        assert len(nodes) == NODES
        return sizes

    sizes = asyncio.run(main())
    assert max(sizes) < BYTES_MAX
    assert max(sizes) - min(sizes) < 0.01 * max(sizes)


def test_names_follow_the_conventions() -> None:
    """Base units, a known prefix, and no counter without `_total`."""

    async def main() -> str:
        out = Exposition()
        out.serve("127.0.0.1", 0)
        churning = Churning(out)
        churning.add_nodes(2)
        churning.run_jobs(1, 1)
        master = attempt_id(1, 1)
        churning.tell(AttemptRegistered(master))
        ask = Ask(1, 3, (1.0, 1.0, 0.0, 0.0), 1.0, 1.0, AskType.DEFAULT, 0)
        churning.tell(ContainersAsked(master, 1, asks=(ask,), remaining_work=3.0))
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


def test_resources_are_told_in_base_units() -> None:
    assert base_unit("memory_mb") == ((("resource", "memory"), ("unit", "bytes")), 2.0**20)
    assert base_unit("vcores") == ((("resource", "cpu"), ("unit", "cores")), 1.0)
    assert base_unit("gpus") == ((("resource", "gpus"), ("unit", "units")), 1.0)


def test_a_family_does_not_grow_without_bound() -> None:
    out = Exposition()
    for number in range(SERIES_MAX + 5):
        out.count("weft_anything", "Anything", 1, (("name", str(number)),))
    text = generate_latest(out.registry).decode()
    assert "weft_series_refused_total 5.0" in text
