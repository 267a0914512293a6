"""YARN's field names, status codes and errors, over a cluster that stands still."""

import asyncio
from typing import Any
from xml.etree import ElementTree

import pytest

from testkit.rest import APP, Ask, over_http
from testkit.web import CLUSTER_TS, FakeClient
from weft.model.errors import InputError
from weft.web.change_routes import job_of

BASE = "/ws/v1/cluster"


def test_collections_are_wrapped_as_hadoop_documents_them() -> None:
    async def check(ask: Ask, _: FakeClient) -> None:
        shapes = {
            "": ("clusterInfo",),
            "/info": ("clusterInfo",),
            "/metrics": ("clusterMetrics",),
            "/apps": ("apps", "app"),
            "/nodes": ("nodes", "node"),
            "/scheduler": ("scheduler", "schedulerInfo"),
            "/appstatistics": ("appStatInfo", "statItem"),
            f"/apps/{APP}": ("app",),
            f"/apps/{APP}/state": ("state",),
            f"/apps/{APP}/queue": ("queue",),
            f"/apps/{APP}/priority": ("priority",),
            f"/apps/{APP}/appattempts": ("appAttempts", "appAttempt"),
            f"/apps/{APP}/appattempts/1/containers": ("containers", "container"),
        }
        for path, keys in shapes.items():
            status, data = await ask(BASE + path)
            assert status == 200, path
            for key in keys:
                assert next(iter(data)) == key, path
                data = data[key]
        _, info = await ask(f"{BASE}/info")
        assert info["clusterInfo"]["state"] == "STARTED"
        assert info["clusterInfo"]["id"] == CLUSTER_TS

    over_http(check)


def test_leaf_queues_have_no_queues_and_percentages_are_of_the_parent() -> None:
    async def check(ask: Ask, _: FakeClient) -> None:
        _, data = await ask(f"{BASE}/scheduler")
        root = data["scheduler"]["schedulerInfo"]
        assert (root["type"], root["queueName"], root["capacity"]) == (
            "capacityScheduler",
            "root",
            100.0,
        )
        prod, dev = root["queues"]["queue"]
        assert "queues" not in prod
        assert (dev["queueName"], dev["capacity"], dev["maxCapacity"]) == ("dev", 30.0, 50.0)
        assert dev["absoluteUsedCapacity"] == 41.0
        assert dev["type"] == "capacitySchedulerLeafQueueInfo"

    over_http(check)


@pytest.mark.parametrize(
    ("query", "numbers"),
    [
        ("states=FINISHED,killed", [4, 5, 9, 10]),
        ("state=RUNNING", [1, 6]),
        ("finalStatus=FAILED", [3, 8]),
        ("user=ada", [3, 6, 9]),
        ("queue=root.dev", [1, 3, 5, 7, 9]),
        ("queue=prod&limit=2", [8, 10]),
        (f"queue=prod&limit=2&before=application_{CLUSTER_TS}_0008", [4, 6]),
        (f"before=application_{CLUSTER_TS}_0001", []),
        ("name=query 7", [7]),
        ("applicationTypes=WEFT,SPARK&limit=1", [10]),
        ("applicationTypes=MAPREDUCE", []),
        ("startedTimeBegin=40000&startedTimeEnd=56000", [5, 6, 7]),
        ("finishedTimeBegin=1", [3, 4, 5, 8, 9, 10]),
    ],
)
def test_applications_are_filtered_as_hadoop_documents(query: str, numbers: list[int]) -> None:
    async def check(ask: Ask, _: FakeClient) -> None:
        status, data = await ask(f"{BASE}/apps?{query}")
        assert status == 200
        assert [int(a["id"].rpartition("_")[2]) for a in data["apps"]["app"]] == numbers

    over_http(check)


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "name"),
    [
        ("GET", "/apps?states=DONE", None, 400, "BadRequestException"),
        ("GET", "/apps?limit=0", None, 400, "BadRequestException"),
        ("GET", "/apps?before=soon", None, 400, "BadRequestException"),
        ("GET", "/apps?startedTimeBegin=soon", None, 400, "BadRequestException"),
        ("GET", "/apps/application_1_x", None, 400, "BadRequestException"),
        ("GET", "/apps/application_1_0001", None, 404, "NotFoundException"),
        ("GET", f"/apps/application_{CLUSTER_TS}_9999", None, 404, "NotFoundException"),
        ("GET", f"/apps/{APP}/appattempts/9", None, 404, "NotFoundException"),
        ("GET", f"/apps/{APP}/timeouts/FOREVER", None, 400, "BadRequestException"),
        ("GET", "/nodes/nowhere:1", None, 404, "NotFoundException"),
        ("GET", "/nothing", None, 404, "NotFoundException"),
        ("DELETE", "/apps", None, 405, "MethodNotAllowedException"),
        ("PUT", f"/apps/{APP}/state", {"state": "RUNNING"}, 400, "BadRequestException"),
        ("PUT", f"/apps/{APP}/state", [], 400, "BadRequestException"),
        ("PUT", f"/apps/{APP}/priority", {"priority": "high"}, 400, "BadRequestException"),
        ("PUT", f"/apps/{APP}/queue", {}, 400, "BadRequestException"),
        ("PUT", f"/apps/{APP}/timeout", {"timeout": {}}, 400, "BadRequestException"),
        (
            "PUT",
            f"/apps/{APP}/timeout",
            {"timeout": {"type": "LIFETIME", "expiryTime": "soon"}},
            400,
            "BadRequestException",
        ),
        (
            "PUT",
            f"/apps/{APP}/timeout",
            {"type": "LIFETIME", "expiryTime": "1969-12-31T23:00:00Z"},
            400,
            "BadRequestException",
        ),
        ("POST", "/apps", {}, 400, "BadRequestException"),
        ("POST", "/apps", {"application-id": APP}, 400, "BadRequestException"),
        ("PUT", "/scheduler-conf", {}, 400, "BadRequestException"),
        ("POST", "/delegation-token", {"renewer": "me"}, 403, "ForbiddenException"),
    ],
)
def test_errors_are_remote_exceptions(
    method: str, path: str, body: Any, status: int, name: str
) -> None:
    async def check(ask: Ask, _: FakeClient) -> None:
        more = {} if body is None else {"json": body}
        got, data = await ask(BASE + path, method, **more)
        error = data["RemoteException"]
        assert (got, error["exception"]) == (status, name)
        assert error["message"]
        assert error["javaClassName"].endswith(f".{name}")

    over_http(check)


def test_a_manager_that_cannot_be_reached_is_said_and_comes_back() -> None:
    async def check(ask: Ask, fake: FakeClient) -> None:
        fake.down = True
        status, data = await ask(f"{BASE}/info")
        assert status == 503
        assert "cannot be reached" in data["RemoteException"]["message"]
        fake.down = False
        assert (await ask(f"{BASE}/info"))[0] == 200

    over_http(check)


def test_another_sites_page_and_plain_forms_change_nothing() -> None:
    async def check(ask: Ask, fake: FakeClient) -> None:
        path, body = f"{BASE}/apps/{APP}/state", '{"state": "KILLED"}'
        json_type = {"Content-Type": "application/json"}
        other = json_type | {"Origin": "http://evil.example"}
        assert (await ask(path, "PUT", data=body, headers=other))[0] == 403
        form = {"Content-Type": "text/plain"}
        assert (await ask(path, "PUT", data=body, headers=form))[0] == 415
        strange = {"Content-Type": "application/json; charset=utf-99"}
        status, told = await ask(path, "PUT", data=body, headers=strange)
        assert status == 415
        assert "utf-99" in told["RemoteException"]["message"]
        assert fake.calls["kill"] == 0
        assert (await ask(path, "PUT", data=body, headers=json_type))[0] == 202
        assert (await ask(path, "PUT", data=body, headers=json_type))[0] == 200, "it is over"

    over_http(check)


def test_xml_is_given_to_who_asks_for_it() -> None:
    async def check(ask: Ask, _: FakeClient) -> None:
        xml = {"Accept": "application/xml"}
        _, text = await ask(f"{BASE}/nodes?states=RUNNING", headers=xml)
        root = ElementTree.fromstring(text)
        assert (root.tag, len(root.findall("node"))) == ("nodes", 17)
        _, text = await ask(f"{BASE}/apps/{APP}/state", headers=xml)
        assert ElementTree.fromstring(text).findtext("state") == "RUNNING"
        status, text = await ask(f"{BASE}/apps/x", headers=xml)
        assert status == 400
        assert ElementTree.fromstring(text).findtext("exception") == "BadRequestException"

    over_http(check)


def test_many_readers_at_once_cost_the_manager_one_call() -> None:
    async def check(ask: Ask, fake: FakeClient) -> None:
        before = fake.calls["nodes"]
        await asyncio.gather(*(ask(f"{BASE}/nodes") for _ in range(20)))
        assert fake.calls["nodes"] - before <= 2

    over_http(check)


def test_nodes_speak_for_themselves_under_their_own_path() -> None:
    async def check(ask: Ask, _: FakeClient) -> None:
        _, data = await ask("/ws/v1/node/info")
        assert data["nodeInfo"]["nodeHostName"] == "n1", "the first that runs"
        _, data = await ask("/node/n7/ws/v1/node")
        assert data["nodeInfo"]["nodeHealthy"] is False
        _, data = await ask("/node/n3/ws/v1/node/containers")
        held = data["containers"]["container"]
        assert {c["nodeId"] for c in held} <= {"n3"}
        assert (await ask("/node/nowhere/ws/v1/node"))[0] == 404

    over_http(check)


def test_a_command_becomes_a_job_of_one_task() -> None:
    body = {
        "application-name": "hello",
        "queue": "dev",
        "priority": 3,
        "max-app-attempts": 5,
        "resource": {"memory": 2048, "vCores": 2},
        "am-container-spec": {
            "commands": {"command": "echo $GREETING 1><LOG_DIR>/out"},
            "environment": {"entry": [{"key": "GREETING", "value": "hello there"}]},
        },
    }
    job = job_of(body, "ada")
    (stage,) = job.stages
    assert (job.name, job.queue, job.user, job.priority) == ("hello", "dev", "ada", 3)
    assert stage.demand == {"vcores": 2.0, "memory_mb": 2048.0}
    assert stage.command[:4] == ("env", "GREETING=hello there", "sh", "-c")


def test_a_weft_job_rides_in_the_body() -> None:
    table = {"name": "q", "stages": [{"name": "s", "tasks": 3, "duration_s": 1}]}
    job = job_of({"queue": "dev", "weft-job": table}, "ada")
    assert (job.name, job.queue, job.user, job.task_count) == ("q", "dev", "ada", 3)
    with pytest.raises(InputError, match=r"weft-job\.stages"):
        job_of({"weft-job": {"name": "q", "stages": []}})


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"am-container-spec": {}}, "am-container-spec.commands"),
        ({"am-container-spec": {"commands": {"command": []}}}, "commands.command"),
        ({"priority": 1.5}, "priority"),
        ({"resource": {"memory": -1}}, "resource.memory"),
        ({"resource": []}, "resource"),
        ({"application-name": 7}, "application-name"),
        ({"unmanaged-AM": True}, "unmanaged-AM"),
        ({"max-app-attempts": 0}, "max-app-attempts"),
    ],
)
def test_a_wrong_submission_is_named_by_its_place(change: dict[str, Any], place: str) -> None:
    body = {"am-container-spec": {"commands": {"command": "true"}}} | change
    with pytest.raises(InputError) as error:
        job_of(body)
    assert place in error.value.place
