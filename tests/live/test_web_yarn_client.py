"""A client that was written for YARN, and knows nothing of Weft, works against a live cluster."""

import json
import time
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from testkit.live import until
from weft.client.api import Client
from weft.client.local import LocalCluster, LocalSettings
from weft.model.job import Job, Stage
from weft.model.queues import queues_from_dict

yarn_api_client = pytest.importorskip("yarn_api_client", reason="yarn-api-client is not installed")

QUEUES = """
nodes: [{count: 3, capacity: {vcores: 8, memory_mb: 16384}}]
queues: {root: {prod: {capacity: 0.7}, dev: {capacity: 0.3}}}
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    file = tmp_path_factory.mktemp("yarn") / "cluster.yaml"
    file.write_text(QUEUES)
    with LocalCluster(LocalSettings(cluster=str(file), web=True)) as made:
        yield made
        assert not made.failed()
        assert "Traceback" not in made.output("web").read_text()


@pytest.fixture(scope="module")
def manager(cluster: LocalCluster) -> Any:
    return yarn_api_client.ResourceManager([cluster.url.removesuffix("/cluster")])


def submission(manager: Any, **more: Any) -> dict[str, Any]:
    new = manager.cluster_new_application().data
    most = new["maximum-resource-capability"]
    assert (most["memory"], most["vCores"]) == (16384, 8)
    return {"application-id": new["application-id"], "application-name": "t", **more}


def command(manager: Any, seconds: float, **more: Any) -> dict[str, Any]:
    spec = {"commands": {"command": "true"}}
    more = {"queue": "dev", "weft-duration-s": seconds, "am-container-spec": spec} | more
    return submission(manager, **more)


def test_every_read_call_works(manager: Any, cluster: LocalCluster) -> None:
    body = command(manager, 60)
    app = body["application-id"]
    manager.cluster_submit_application(body)
    containers = until(lambda: _running(manager, app), "its task runs")
    info = manager.cluster_information().data["clusterInfo"]
    assert (info["state"], str(info["id"])) == ("STARTED", app.split("_")[1])
    metrics = manager.cluster_metrics().data["clusterMetrics"]
    assert (metrics["activeNodes"], metrics["totalVirtualCores"]) == (3, 24)
    assert manager.cluster_scheduler_queue("dev")["numActiveApplications"] == 1
    assert manager.cluster_scheduler_queue("nowhere") is None
    queue = manager.cluster_scheduler_queue("prod")
    part = manager.cluster_queue_partition(queue, "")
    assert manager.cluster_scheduler_queue_availability(part, 50.0)
    listed = manager.cluster_applications(states=["RUNNING"], queue="dev").data["apps"]["app"]
    assert app in [a["id"] for a in listed]
    found = manager.cluster_application_statistics(states=["RUNNING"]).data["appStatInfo"]
    assert found["statItem"][0]["count"] >= 1
    shown = manager.cluster_application(app).data["app"]
    assert abs(shown["startedTime"] / 1000 - time.time()) < 300, "ms since the epoch"
    assert shown["trackingUrl"] == f"{cluster.url}/app/{app}"
    attempts = manager.cluster_application_attempts(app).data["appAttempts"]["appAttempt"]
    first = attempts[0]["appAttemptId"]
    assert manager.cluster_application_attempt_info(app, first).data["appAttempt"]["id"] == 1
    one = containers[-1]["containerId"]
    own = manager.cluster_application_attempt_container_info(app, first, one).data["container"]
    assert (own["allocatedMB"], own["containerState"]) == (1024, "RUNNING")
    nodes = manager.cluster_nodes(states=["RUNNING"]).data["nodes"]["node"]
    assert len(nodes) == 3
    assert manager.cluster_node(nodes[0]["id"]).data["node"]["nodeHostName"] == "n1"
    assert manager.cluster_application_timeouts(app).data["timeouts"]["timeout"]
    assert manager.cluster_application_timeout(app, "LIFETIME").data["timeout"]
    assert manager.cluster_scheduler_conf_mutation().data["property"]
    assert manager.scheduler_activities().data["activities"]
    assert manager.application_activities(app).data["appActivities"]["applicationId"] == app
    assert manager.cluster_reservations().data == {"reservations": []}
    _node_calls(cluster, app, one, own["nodeId"])
    manager.cluster_application_kill(app)


def _running(manager: Any, app: str) -> list[dict[str, Any]]:
    """The containers of a first attempt beside its master, once there are any."""
    if manager.cluster_application_state(app).data["state"] != "RUNNING":
        return []
    found = manager.cluster_application_attempt_containers(app, "1").data
    return [c for c in found["containers"]["container"] if c["allocatedMB"] == 1024]


def _node_calls(cluster: LocalCluster, app: str, container: str, holder: str) -> None:
    node = yarn_api_client.NodeManager(cluster.url.removesuffix("/cluster"))
    assert node.node_information().data["nodeInfo"]["nodeHealthy"] is True
    assert "app" in node.node_applications(state="RUNNING").data["apps"]
    assert node.node_application(app).data["app"]["id"] == app
    assert "container" in node.node_containers().data["containers"]
    found = node.node_container(container).data["container"]
    assert (found["nodeId"], found["totalMemoryNeededMB"]) == (holder, 1024)
    assert node.auxiliary_services().data == {"services": []}


def test_a_submission_gets_the_id_that_it_was_promised(manager: Any, cluster: LocalCluster) -> None:
    with Client(cluster.address) as client:
        body = command(manager, 0.1)
        passed_by = client.submit(Job("other", (Stage("s", 1, 0.1, {"vcores": 1.0}),), "prod"))
        manager.cluster_submit_application(body)
        manager.cluster_submit_application(body)  # repeated: the same application
        app = int(body["application-id"].rpartition("_")[2])
        assert passed_by == app + 1
        assert client.wait([app])[app].final_status == "SUCCEEDED"
        assert manager.cluster_application(body["application-id"]).data["app"]["progress"] == 100.0
        names = [r.name for r in client.applications() if r.app_id >= app]
        assert sorted(names) == ["other", "t"]


def test_a_whole_job_rides_in_a_submission(manager: Any, cluster: LocalCluster) -> None:
    stages = [
        {"name": "a", "tasks": 4, "duration_s": 0.1, "demand": {"vcores": 1}},
        {"name": "b", "tasks": 2, "duration_s": 0.1, "demand": {"vcores": 1}, "parents": ["a"]},
    ]
    body = submission(manager, queue="prod", **{"weft-job": {"name": "dag", "stages": stages}})
    manager.cluster_submit_application(body)
    app = int(body["application-id"].rpartition("_")[2])
    with Client(cluster.address) as client:
        report = client.wait([app])[app]
    assert (report.name, report.final_status, report.finished_tasks) == ("dag", "SUCCEEDED", 6)
    assert report.queue == "root.prod"
    _page_data(cluster, body["application-id"])


def _page_data(cluster: LocalCluster, app: str) -> None:
    """What the application's page reads: every task's times, and a preferred schedule."""

    def read(path: str) -> Any:
        with urlopen(cluster.url.removesuffix("/cluster") + path) as answer:
            return json.load(answer)

    shown = read(f"/api/apps/{app}")
    spans = [s for s in shown["spans"] if s[0] >= 0]
    assert sorted((stage, task) for stage, task, *_ in spans) == [
        (0, 0),
        (0, 1),
        (0, 2),
        (0, 3),
        (1, 0),
        (1, 1),
    ]
    ends = {stage: max(s[5] for s in spans if s[0] == stage) for stage in (0, 1)}
    assert all(s[4] >= ends[0] for s in spans if s[0] == 1), "the barrier holds on the page too"
    plan = read(f"/api/apps/{app}/plan")
    assert plan["planner"] == "bfs"
    assert len(plan["tasks"]) == 6
    assert plan["makespan_s"] == pytest.approx(0.2)


def test_move_priority_and_kill_do_what_they_say(manager: Any) -> None:
    body = command(manager, 120)
    app = body["application-id"]
    manager.cluster_submit_application(body)
    assert manager.cluster_change_application_queue(app, "prod").data == {"queue": "root.prod"}
    assert manager.cluster_get_application_queue(app).data == {"queue": "root.prod"}
    assert manager.cluster_change_application_priority(app, 8).data == {"priority": 8}
    assert manager.cluster_get_application_priority(app).data == {"priority": 8}
    with pytest.raises(yarn_api_client.errors.APIError, match="BadRequestException"):
        manager.cluster_change_application_queue(app, "nowhere")
    manager.cluster_application_kill(app)
    until(lambda: manager.cluster_application_state(app).data["state"] == "KILLED", "it is killed")
    assert manager.cluster_application_kill(app).data == {"state": "KILLED"}


def test_queues_and_a_node_are_changed_over_rest(cluster: LocalCluster) -> None:
    base = cluster.url.removesuffix("/cluster")

    def send(method: str, path: str, body: Any) -> Any:
        headers = {"Content-Type": "application/json"}
        asked = Request(base + path, json.dumps(body).encode(), headers, method=method)
        with urlopen(asked) as answer:
            return json.load(answer)

    with Client(cluster.address) as client:
        more = {"prod": {"capacity": 0.6}, "dev": {"capacity": 0.3}, "new": {"capacity": 0.1}}
        for query, queues in (("?dry_run=1", 2), ("", 3)):
            told = send("PUT", f"/api/queues{query}", {"root": more})
            assert [one["change"] for one in told["changes"]] == ["changed", "added"]
            assert len(client.queues().children) == queues
        with pytest.raises(HTTPError) as refused:
            send("PUT", "/api/queues", {"root": {"prod": {"capacity": 3}}})
        assert "expected a fraction from 0 to 1, got 3" in refused.value.read().decode()
        small = {"resource": {"memory": 8192, "vCores": 2}, "overCommitTimeout": -1}
        send("POST", "/ws/v1/cluster/nodes/n3/resource", small)
        sizes = {node.node_id: node.capacity for node in client.nodes()}
        assert sizes["n3"] == {"vcores": 2.0, "memory_mb": 8192.0}
        with pytest.raises(HTTPError) as refused:
            send("POST", "/ws/v1/cluster/nodes/n3/resource", {"resource": {"vCores": 99}})
        assert "offers 8" in refused.value.read().decode()
        client.update_node("n3", own=True)
        client.set_queues(queues_from_dict({"root": {"prod": {"capacity": 0.7}, "dev": None}}))


@pytest.mark.parametrize(
    ("change", "problem"),
    [({"queue": "nowhere"}, "unknown queue"), ({"resource": {"vCores": 99}}, "fits on no node")],
)
def test_a_refused_submission_says_why(manager: Any, change: Any, problem: str) -> None:
    with pytest.raises(yarn_api_client.errors.APIError, match=problem):
        manager.cluster_submit_application(command(manager, 1, **change))
