"""A live cluster is asked when its jobs will end, and what it said is kept beside what came."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from lab.cli import weft
from testkit.live import Cluster, chain, wait_for_nodes
from weft.client.api import Client


def asked(*arguments: str) -> Any:
    said = CliRunner().invoke(weft, ["predict", "--json", *arguments], catch_exceptions=False)
    return json.loads(said.stdout)


def test_jobs_of_a_live_cluster_are_predicted(cluster: Cluster, tmp_path: Path) -> None:
    """The second job waits for the first: it starts when that ends, and ends as much later."""
    manager = cluster.manager("--scheduler=fifo")
    host = cluster.host(manager, "--scheduler=fifo")
    cluster.nodes(manager, f"--am-host={host.address}", "--cluster=1x4.5vcores,8192memory_mb")
    record = tmp_path / "record.jsonl"
    with Client(manager.address) as client:
        wait_for_nodes(client, 1)
        apps = [client.submit(chain(name, 2, 8, 2.0)) for name in ("first", "second")]
        here = (f"--rm={manager.address}", f"--record={record}", "--draws=10")
        told = asked(*here)
        assert told["past"] is None
        assert [one["app"] for one in told["predictions"]] == apps
        assert told["predictions"][1]["name"] == "second"
        for one in told["predictions"]:
            assert told["now_s"] <= one["end"]["early_s"] <= one["end"]["usual_s"]
            assert one["end"]["usual_s"] <= one["end"]["late_s"] < told["now_s"] + 60
        first, second = (one["end"]["usual_s"] for one in told["predictions"])
        assert second - first == pytest.approx(8.0, abs=3.0), "two stages of two waves each"
        assert len(asked(*here, "second")["predictions"]) == 1
        ended = client.wait(apps)
        assert {report.final_status for report in ended.values()} == {"SUCCEEDED"}
        later = asked(*here)
        assert later["predictions"] == []
        assert later["past"]["predictions"] == 3
        refused = CliRunner().invoke(weft, ["predict", *here, "first"])
        assert "has ended" in str(refused.exception)


def test_a_time_before_any_node_came_says_when_one_did(cluster: Cluster, tmp_path: Path) -> None:
    tape = f"--tape={tmp_path / 'tapes'}"
    manager = cluster.manager("--scheduler=fifo", tape)
    host = cluster.host(manager, "--scheduler=fifo", tape)
    cluster.nodes(manager, f"--am-host={host.address}", "--cluster=1x4.5vcores,8192memory_mb")
    with Client(manager.address) as client:
        wait_for_nodes(client, 1)
        client.wait([client.submit(chain("one", 1, 2, 0.1))])
    for part in reversed(cluster.parts):
        part.stop()
    words = ["predict", "--tape", str(tmp_path / "tapes"), "--at", "+0"]
    said = CliRunner().invoke(weft, words)
    assert "no node had come by" in str(said.exception)
    assert "the first did at" in str(said.exception)
