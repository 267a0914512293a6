"""Queues of a live cluster change under load: seen at once, nothing lost, kept over a crash."""

import json
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from lab import cli
from testkit.live import Cluster, Part, chain, recorded, until
from weft.client.api import Client, RefusedError
from weft.client.local import LocalCluster, LocalSettings
from weft.model.errors import InputError
from weft.model.ids import app_of_container
from weft.model.queues import queues_from_dict

NODES = 500
SPEC = {
    "nodes": [{"count": NODES, "capacity": {"vcores": 4, "memory_mb": 8192}}],
    "queues": {"root": {"prod": {"capacity": 0.5}, "dev": {"capacity": 0.5}}},
}
# The time that the issue of a change and its sight may be apart, s.
VISIBLE_S = 1.0


def file_of(folder: Path, queues: object, name: str = "queues.json") -> str:
    path = folder / name
    path.write_text(json.dumps(queues))
    return str(path)


def weft(*arguments: str) -> str:
    """Run a command; return all that it printed."""
    done = CliRunner().invoke(cli.weft, list(arguments), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return str(done.output)


@pytest.fixture
def manager(cluster: Cluster, tmp_path: Path) -> Part:
    file = file_of(tmp_path, SPEC, "cluster.json")
    return cluster.manager(f"--cluster={file}", f"--state-dir={tmp_path / 'state'}")


def tree(step: int) -> dict[str, object]:
    """Return the queues of a step: sizes, a maximum, and a third queue that comes and goes."""
    more = {"new": {"capacity": 0.1, "state": "STOPPED"}} if step % 2 else {}
    part = 0.2 + 0.05 * step
    dev = {"capacity": 0.9 - part, "max_capacity": 0.95 - part / 2}
    return {"queues": {"root": {"prod": {"capacity": part}, "dev": dev, **more}}}


@pytest.mark.slow
def test_queues_are_set_under_load_and_no_container_is_lost(
    tmp_path: Path,
) -> None:
    settings = LocalSettings(cluster=file_of(tmp_path, SPEC), events=True, time_scale=4.0)
    folder = tmp_path / "cluster"
    with LocalCluster(settings, folder) as cluster, Client(cluster.address) as client:
        apps = {
            client.submit(replace(chain(f"{queue}{n}", 2, 300, 24.0), queue=queue)): 600
            for n, queue in enumerate(("prod", "dev") * 3)
        }
        until(lambda: client.metrics().containers_running > NODES, "the cluster is busy")
        took_s: list[float] = []
        for step in range(6):
            wanted = tree(step)
            file = file_of(tmp_path, wanted)
            began_s = time.monotonic()
            weft("queues", "--apply", file, "--rm", cluster.address)
            shares = {q.name: q.capacity for q in client.queues().children}
            took_s.append(time.monotonic() - began_s)
            spec = queues_from_dict(wanted["queues"])
            assert shares == {f"root.{q.name}": q.capacity for q in spec.children}
        assert min(took_s) < VISIBLE_S, took_s
        ended = client.wait(list(apps))
        assert {report.final_status for report in ended.values()} == {"SUCCEEDED"}
        ran: Counter[tuple[int, int, int]] = Counter()
        for event in recorded(folder):
            assert event["fact"] != "Closed" or event["outcome"] in ("SUCCEEDED", "RELEASED"), event
            if event["fact"] == "TaskStopped" and event["stage"] >= 0:
                ran[app_of_container(event["container"]), event["stage"], event["task"]] += 1
        assert Counter(app for app, *_ in ran) == apps
        assert set(ran.values()) == {1}


def test_the_queues_that_were_set_last_are_there_after_a_kill(
    cluster: Cluster, manager: Part, tmp_path: Path
) -> None:
    with Client(manager.address) as client:
        prod = client.submit(replace(chain("prod", 1, 1, 1.0), queue="prod"))
        last = queues_from_dict({"root": {"prod": {"capacity": 0.1}, "new": {"submit": ["ann"]}}})
        with pytest.raises(RefusedError, match=r"queue root\.prod cannot go"):
            client.set_queues(queues_from_dict({"root": {"new": None}}))
        told = client.set_queues(last)
        assert [(one.queue, one.change) for one in told.changes] == [
            ("root.prod", "changed"),
            ("root.new", "added"),
            ("root.dev", "removed"),
        ]
        manager.kill()
        port = manager.address.rpartition(":")[2]
        again = cluster.manager(
            f"--cluster={tmp_path / 'cluster.json'}",
            f"--state-dir={tmp_path / 'state'}",
            f"--port={port}",
        )
        shares = {queue.name: queue.capacity for queue in client.queues().children}
        assert shares == {"root.prod": 0.1, "root.new": 0.9}
        assert client.application(prod).queue == "root.prod"
        until(lambda: "not those of the settings" in again.log.read_text(), "it says so")


def test_the_command_shows_what_changes_and_refuses_what_cannot_be(
    cluster: Cluster, manager: Part, tmp_path: Path
) -> None:
    at = ("--rm", manager.address)
    wanted = file_of(tmp_path, {"root": {"prod": {"capacity": 0.3}, "new": {"capacity": 0.2}}})
    dry = weft("queues", "--apply", wanted, "--dry-run", *at)
    assert "nothing was changed: --dry-run" in dry
    assert "root.prod  capacity 0.5 -> 0.3" in dry
    assert "root.new   capacity 0.2" in dry
    assert "removed  root.dev" in dry
    assert "dev" in weft("queues", *at)
    assert weft("queues", "--apply", wanted, *at) in dry
    assert "the queues are as the file has them" in weft("queues", "--apply", wanted, *at)
    assert "dev" not in weft("queues", *at)
    xml = tmp_path / "capacity-scheduler.xml"
    prefix = "yarn.scheduler.capacity.root"
    rows = {
        f"{prefix}.queues": "prod,ml",
        f"{prefix}.prod.capacity": "75",
        f"{prefix}.ml.capacity": "25",
        f"{prefix}.ml.state": "STOPPED",
    }
    text = "".join(
        f"<property><name>{k}</name><value>{v}</value></property>" for k, v in rows.items()
    )
    xml.write_text(f"<configuration>{text}</configuration>")
    changes = json.loads(weft("queues", "--apply", str(xml), "--json", *at))["changes"]
    # The cluster's own maxima are root's.
    assert [(one["queue"], one["change"]) for one in changes] == [
        ("root", "changed"),
        ("root.prod", "changed"),
        ("root.ml", "added"),
        ("root.new", "removed"),
    ]
    twice = file_of(tmp_path, {"root": {"a": {"placement": {"rules": []}}}})
    with pytest.raises(InputError, match=r"queues.root.a.placement: belongs to the root queue"):
        weft("queues", "--apply", twice, *at)
