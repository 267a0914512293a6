"""Dashboards, rules and series agree: Debian's Prometheus scrapes a busy cluster and answers."""

import json
import re
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from testkit.live import chain, until
from weft.client.api import Client
from weft.client.local import LocalCluster, LocalSettings

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy" / "prometheus"
BOARDS = sorted((ROOT / "deploy" / "grafana" / "dashboards").glob("*.json"))

pytestmark = [
    pytest.mark.timeout(400),
    pytest.mark.skipif(
        shutil.which("prometheus") is None or shutil.which("promtool") is None,
        reason="the package prometheus is not installed",
    ),
]


def promtool(*arguments: str) -> None:
    done = subprocess.run(
        ["promtool", *arguments], cwd=RULES, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_accepts_the_configuration() -> None:
    promtool("check", "config", "prometheus.yml")


def test_promtool_accepts_the_rules() -> None:
    promtool("check", "rules", "rules.yml", "alerts.yml")


def test_alerts_fire_when_they_should() -> None:
    promtool("test", "rules", "tests.yml")


class Prometheus:
    """One Prometheus on loopback, with the repository's rules."""

    def __init__(self, folder: Path, targets: dict[str, list[str]]) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{probe.getsockname()[1]}"
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(RULES / "rules.yml"), str(RULES / "alerts.yml")],
            "scrape_configs": [
                {"job_name": job, "static_configs": [{"targets": found}]}
                for job, found in targets.items()
            ],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        with (folder / "prometheus.log").open("wb") as log:
            self.process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={folder / 'data'}",
                    f"--web.listen-address={self.address}",
                    "--log.level=warn",
                ],
                stdout=log,
                stderr=log,
            )

    def ask(self, path: str, **more: str) -> Any:
        """One answer of its API."""
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(more)}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            return json.load(answer)["data"]

    def query(self, expr: str) -> list[Any]:
        """The instant vector of an expression."""
        return list(self.ask("query", query=expr)["result"])

    def serves(self) -> bool:
        """Whether every target was scraped."""
        try:
            targets = self.ask("targets")["activeTargets"]
        except OSError:
            return False
        return bool(targets) and all(target["health"] == "up" for target in targets)

    def stop(self) -> None:
        """End it and wait."""
        self.process.terminate()
        self.process.wait(30)


CLUSTER_FILE = """
nodes: [{count: 8, capacity: {vcores: 8, memory_mb: 16384, disk_mbps: 800, network_mbps: 1000}}]
queues: {root: {prod: {capacity: 0.7}, dev: {capacity: 0.3}}}
"""


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Prometheus, LocalCluster]]:
    """A Prometheus beside a cluster that had jobs in two queues, and still has some."""
    folder = tmp_path_factory.mktemp("prometheus")
    (folder / "cluster.yml").write_text(CLUSTER_FILE)
    settings = LocalSettings(cluster=str(folder / "cluster.yml"), scheduler="graphene", state=True)
    with LocalCluster(settings, folder / "cluster") as cluster, Client(cluster.address) as client:
        targets = {"weft-rm": [], "weft-nm": [], "weft-am": []}  # type: dict[str, list[str]]
        for name, ready in cluster.ready.items():
            targets[f"weft-{name[:2]}"].append(ready["metrics"])
        prometheus = Prometheus(folder, targets)
        try:
            until(prometheus.serves, "every process is scraped")
            for number in range(2):
                client.submit(replace(chain(f"short{number}", 3, 12, 0.5), queue="prod"))
            for queue in ("prod", "dev"):
                client.submit(replace(chain(f"long-{queue}", 2, 400, 3.0), queue=queue))
            until(
                lambda: prometheus.query('weft_apps_ended_total{state="FINISHED"} >= 2'),
                "the short jobs ended",
            )
            time.sleep(3.0)  # rates need two scrapes after something changed
            yield prometheus, cluster
        finally:
            prometheus.stop()


def panels(path: Path) -> list[tuple[str, str]]:
    """(title, PromQL) of every query of a dashboard."""
    return [
        (panel["title"], target["expr"])
        for panel in json.loads(path.read_text())["panels"]
        for target in panel.get("targets", ())
    ]


def test_there_is_a_dashboard_of_each_kind() -> None:
    names = {path.stem for path in BOARDS}
    assert {"cluster", "queues", "jobs", "nodes", "health"} <= names


@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.stem)
def test_every_panel_of_a_dashboard_has_data(
    scraped: tuple[Prometheus, LocalCluster], path: Path
) -> None:
    prometheus, _ = scraped
    for title, expr in panels(path):
        asked = re.sub(r"\$(cluster|queue|node)\b", ".*", expr.replace("$__rate_interval", "1m"))
        until(lambda asked=asked: prometheus.query(asked), f"{title}: {asked}", 60.0)


def test_every_rule_is_evaluated_without_error(scraped: tuple[Prometheus, LocalCluster]) -> None:
    prometheus, _ = scraped
    groups = prometheus.ask("rules")["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len(rules) > 10
    assert not [rule["name"] for rule in rules if rule["health"] == "err"]


def test_no_alert_of_a_breach_fires_on_a_sound_cluster(
    scraped: tuple[Prometheus, LocalCluster],
) -> None:
    prometheus, _ = scraped
    firing = prometheus.query('ALERTS{alertstate="firing"}')
    assert not firing


def test_series_have_base_units_and_few_labels(scraped: tuple[Prometheus, LocalCluster]) -> None:
    prometheus, _ = scraped
    known = prometheus.query('weft_node_capacity{resource="memory"}')
    assert {float(row["value"][1]) for row in known} == {16384.0 * 2**20}
    assert len(known) == 8
    for row in prometheus.query('{__name__=~"weft_.*"}'):
        labels = set(row["metric"]) - {"__name__", "job", "instance"}
        assert len(labels) <= 3, row["metric"]


def test_what_is_gone_has_no_series(scraped: tuple[Prometheus, LocalCluster]) -> None:
    """Ended jobs and removed nodes leave nothing behind."""
    prometheus, cluster = scraped
    assert not prometheus.query('weft_app_tasks{name=~"short.*"}')
    assert len(prometheus.query("weft_node_containers")) == 8
    cluster.processes["nm0"].terminate()  # it says goodbye
    cluster.processes["nm0"].wait(60)
    until(lambda: not prometheus.query("weft_node_containers"), "the nodes' series are gone")
    until(lambda: prometheus.query('weft_nodes{state="SHUTDOWN"} == 8'), "the count stays")
