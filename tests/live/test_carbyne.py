"""Carbyne live: shares travel to masters and both types of ask back, over gRPC, and can be seen."""

from pathlib import Path

import pytest

from testkit.live import assert_ran_right, recorded, series, until
from weft.client.api import Client
from weft.client.local import LocalCluster, LocalSettings
from weft.model.ids import app_of_container
from weft.model.job import Edge, Job, Stage
from weft.protocol.requests import StageExplanation

DEMAND = {"vcores": 1.0, "memory_mb": 1024.0}
NODE_MB = 16384.0


def grants(cluster: LocalCluster) -> dict[str, float]:
    """What the Resource Manager granted, by type of ask, from its metrics."""
    lines = series(cluster.ready["rm"]["metrics"]).splitlines()
    found = [line.split() for line in lines if line.startswith("weft_grants_total{")]
    return {name.split('"')[1]: float(value) for name, value in found}


def explained(client: Client, app: int) -> dict[str, StageExplanation]:
    return {stage.stage: stage for stage in client.explain(app).stages}


def test_what_may_wait_is_told_apart_from_what_must_run(tmp_path: Path) -> None:
    """While another job holds everything: the long task must run, the short ones may wait."""
    filler = Job("filler", (Stage("all", 16, 3600.0, DEMAND),))
    stages = (Stage("long", 1, 3600.0, DEMAND), Stage("short", 5, 0.1, DEMAND))
    settings = LocalSettings(cluster=f"2x8vcores,{NODE_MB:g}memory_mb", scheduler="carbyne")
    with LocalCluster(settings, tmp_path / "c") as cluster, Client(cluster.address) as client:
        first = client.submit(filler)
        until(lambda: client.application(first).running_containers >= 15, "the cluster is taken")
        app = client.submit(Job("generous", stages))
        until(lambda: {"long", "short"} <= set(explained(client, app)), "both stages wait")
        until(lambda: explained(client, app)["short"].altruistic == 5, "the short ones may wait")
        assert explained(client, app)["long"].altruistic == 0
        before = grants(cluster)
        client.kill(first)
        until(lambda: client.application(app).finished_tasks == 5, "the leftover is taken")
        after = grants(cluster)
        assert after["ALTRUISTIC"] >= before.get("ALTRUISTIC", 0.0) + 5
        assert after["DEFAULT"] > before["DEFAULT"]
        assert not cluster.failed()


@pytest.mark.parametrize("pace", ["prompt", "yarn"])
@pytest.mark.parametrize("scheduler", ["carbyne", "carbyne_graphene"])
def test_jobs_end_in_order_and_in_both_types(scheduler: str, pace: str, tmp_path: Path) -> None:
    """A wide stage beside a long task, then one behind both: the wide one may wait for a while."""
    jobs = [
        Job(
            name,
            (
                Stage("long", 1, 20.0, DEMAND),
                Stage("wide", tasks, 3.0, DEMAND),
                Stage("last", 4, 3.0, DEMAND, (Edge("long"), Edge("wide"))),
            ),
        )
        for name, tasks in (("a", 30), ("b", 12))
    ]
    settings = LocalSettings(
        cluster=f"3x8vcores,{NODE_MB:g}memory_mb",
        scheduler=scheduler,
        pace=pace,
        time_scale=10.0,
        events=True,
    )
    with LocalCluster(settings, tmp_path / "c") as cluster:
        with Client(cluster.address) as client:
            apps = [client.submit(job) for job in jobs]
            reports = client.wait(apps)
        assert not cluster.failed()
    events = recorded(cluster.folder)
    kinds = set()
    for app, job in zip(apps, jobs, strict=True):
        assert reports[app].final_status == "SUCCEEDED", reports[app].diagnostics
        assert_ran_right(events, app, job, NODE_MB)
        placed = [e for e in events if e["fact"] == "Placed"]
        kinds |= {e["kind"] for e in placed if app_of_container(e["container"]) == app}
    assert len(kinds) == 2, kinds
