"""What pages and REST tell of a live job is what the manager's event log holds, restarts or not."""

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from testkit.live import Cluster, Part, chain, recorded, until, wait_for_nodes
from weft.client.api import Client
from weft.model.ids import app_of_attempt, app_of_container, format_app
from weft.model.job import Job, Stage

MEMORY_MB = 32768.0
NODES = 8
NODE = f"--cluster=1x16vcores,{MEMORY_MB:.0f}memory_mb,800disk_mbps,1000network_mbps"
MASTER = {"vcores": 0.1, "memory_mb": 256.0}  # what `python -m rm` gives a master


def read(web: Part, path: str) -> Any:
    """JSON of the web process."""
    url = f"http://{web.address}{path}"
    request = urllib.request.Request(url, headers={"Accept": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())


def wait_until_read_up(web: Part, facts: list[dict[str, Any]], app: int) -> None:
    """The web process learned the newest end of an application's containers."""
    ended = len([f for f in facts if f["fact"] == "Closed" and f["stage"] >= 0 and mine(f, app)])
    name = format_app(cluster_ts(web), app)
    until(lambda: read(web, f"/api/apps/{name}")["spans_known"] >= ended, "the facts arrive")


def cluster_ts(web: Part) -> int:
    return int(read(web, "/ws/v1/cluster/info")["clusterInfo"]["id"])


def mine(fact: dict[str, Any], app: int) -> bool:
    return bool(app_of_container(fact["container"]) == app)


def spans_of(facts: list[dict[str, Any]], app: int) -> list[list[Any]]:
    """The spans that an event log proves: [stage, task, attempt, node, start, end, state]."""
    ends = {f["container"]: f for f in facts if f["fact"] == "Closed"}
    found = []
    for fact in facts:
        if fact["fact"] != "Placed" or not mine(fact, app):
            continue
        end = ends[fact["container"]]
        times = [round(fact["now_s"], 3), round(end["now_s"], 3)]
        task = [fact["stage"], end["task"], end["attempt"], fact["node"]]
        found.append([*task, *times, end["outcome"]])
    return sorted(found)


def held_s(facts: list[dict[str, Any]], app: int, types: list[str]) -> dict[str, float]:
    """Amount x s by resource, of tasks and master."""
    ends = {f["container"]: f["now_s"] for f in facts if f["fact"] == "Closed"}
    total = dict.fromkeys(types, 0.0)
    for fact in facts:
        if fact["fact"] == "Placed" and mine(fact, app):
            lasted_s = ends[fact["container"]] - fact["now_s"]
            for name, amount in zip(types, fact["demand"], strict=True):
                total[name] += amount * lasted_s
    begun = next(
        f["now_s"]
        for f in facts
        if f["fact"] == "AttemptChanged"
        and f["state"] == "ALLOCATED"
        and app_of_attempt(f["attempt"]) == app
    )
    master = [f for f in facts if f["fact"] == "Closed" and f["stage"] < 0 and mine(f, app)]
    for name, amount in MASTER.items():
        total[name] += amount * (master[0]["now_s"] - begun)
    return total


def running(facts: list[dict[str, Any]], node: str) -> set[int]:
    """Containers of tasks that a node holds by the event log."""
    held: set[int] = set()
    for fact in facts:
        if fact["fact"] == "Placed" and fact["node"] == node:
            held.add(fact["container"])
        elif fact["fact"] == "Closed":
            held.discard(fact["container"])
    return held


def assert_told(web: Part, facts: list[dict[str, Any]], app: int) -> None:
    """Page and REST of an ended application equal the event log."""
    wait_until_read_up(web, facts, app)
    name = format_app(cluster_ts(web), app)
    page = read(web, f"/api/apps/{name}")
    assert page["spans_whole"]
    assert sorted(span[:7] for span in page["spans"]) == spans_of(facts, app)
    types = list(page["app"]["held_s"])
    told = read(web, f"/ws/v1/cluster/apps/{name}")["app"]
    proved = held_s(facts, app, types)
    assert told["memorySeconds"] == pytest.approx(proved["memory_mb"], abs=1.0)
    assert told["vcoreSeconds"] == pytest.approx(proved["vcores"], abs=1.0)
    stages = {span[0] for span in page["spans"]}
    tries = [read(web, f"/api/apps/{name}/stages/{stage}") for stage in sorted(stages)]
    assert sum(len(one["tries"]) for one in tries) == len(page["spans"])
    assert all(one["whole"] for one in tries)


def assert_nodes_told(web: Part, facts: list[dict[str, Any]]) -> None:
    """Node pages list what runs by the event log, and the masters."""
    for number in range(1, NODES + 1):
        rows = read(web, f"/api/nodes/n{number}")["containers"]
        assert len([row for row in rows if row[3] >= 0]) == len(running(facts, f"n{number}"))
        held = read(web, f"/api/nodes/n{number}")["row"][4]
        assert len(rows) == held, "masters as well"


def test_two_thousand_tasks_are_told_as_the_event_log_has_them(
    cluster: Cluster, tmp_path: Path
) -> None:
    manager = cluster.manager()
    host = cluster.host(manager)
    cluster.nodes(manager, f"--am-host={host.address}", f"--nodes={NODES}", NODE)
    flags = [f"--manager={manager.address}", "--plan-limit-s=0"]
    file = f"--history={tmp_path / 'history.db'}"
    web = cluster.start("weft.web", *flags, file)
    log = cluster.folder
    with Client(manager.address, deadline_s=120.0) as client:  # the books are checked at each event
        wait_for_nodes(client, NODES)
        job = chain("many", 4, 500, 0.1)
        first = client.submit(job)
        long = Job("long", (Stage("s", 12, 600.0, {"vcores": 1.0, "memory_mb": 512.0}),))
        lasting = client.submit(long)
        until(lambda: client.application(lasting).running_containers == 13, "the long job runs")
        assert client.wait([first])[first].final_status == "SUCCEEDED"
        until(lambda: client.metrics().containers_running == 13, "only the long one is left")
        facts = recorded(log, "*-rm.jsonl")
        assert len(spans_of(facts, first)) >= 2000
        assert_told(web, facts, first)
        assert_nodes_told(web, facts)

        assert web.stop() == 0
        unseen = client.submit(chain("unseen", 2, 200, 0.05))  # while nobody watches
        client.wait([unseen])
        until(lambda: client.metrics().containers_running == 13, "it is gone")
        again = cluster.start("weft.web", *flags, file)
        fresh = cluster.start("weft.web", *flags)  # knows but what the manager keeps
        facts = recorded(log, "*-rm.jsonl")
        for one in (again, fresh):
            assert_told(one, facts, first)
            assert_told(one, facts, unseen)
            assert_nodes_told(one, facts)
        client.kill(lasting)
        client.wait([lasting])
        until(lambda: not client.metrics().containers_running, "it is gone")
        until(lambda: not read(again, "/api/nodes/n1")["containers"], "its page knows")
    assert again.stop() == 0
