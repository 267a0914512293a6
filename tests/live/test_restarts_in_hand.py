"""A local cluster's pages and sums outlive the processes that tell them."""

import json
import os
import signal
import time
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testkit.builders import job, stage
from weft.client.api import Client
from weft.client.local import LocalCluster, LocalSettings
from weft.model.errors import InputError

SCALE, TASKS, MEMORY_MB = 20.0, 8, 512.0


def read(cluster: LocalCluster, path: str) -> Any:
    with urllib.request.urlopen(f"http://{cluster.web_address}{path}", timeout=30) as answer:
        return json.load(answer)


def told(cluster: LocalCluster, app: int) -> tuple[int, int]:
    """REST's memorySeconds and vcoreSeconds of an application."""
    rows = read(cluster, "/ws/v1/cluster/apps")["apps"]["app"]
    (row,) = [row for row in rows if row["id"].endswith(f"_{app:04d}")]
    return row["memorySeconds"], row["vcoreSeconds"]


def summed(client: Client, app: int) -> tuple[int, ...]:
    """The same as the manager says, before whose words pages may be a moment behind."""
    held_s = client.application(app).held_s
    return tuple(round(held_s[name] / SCALE) for name in ("memory_mb", "vcores"))


def until(true: Callable[[], object], what: str, timeout_s: float = 90.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.05)


def work(name: str, *durations_s: float) -> Any:
    need = {"vcores": 1.0, "memory_mb": MEMORY_MB}
    made = [stage(f"s{i}", TASKS, lasts, need) for i, lasts in enumerate(durations_s)]
    return job(name, *made)


def test_sums_and_history_outlive_a_restart_of_the_manager_and_of_the_pages(
    tmp_path: Path,
) -> None:
    settings = LocalSettings(nodes=4, time_scale=SCALE, state=True, web=True)
    with LocalCluster(settings, tmp_path / "c") as cluster:
        with Client(cluster.address, deadline_s=60.0) as client:
            ended = client.submit(work("ended", 40.0))
            assert client.wait([ended])[ended].final_status == "SUCCEEDED"
            under_way = client.submit(work("under way", 40.0, 900.0))
            until(
                lambda: client.application(under_way).finished_tasks == TASKS,
                "the first stage ends",
            )
        before = told(cluster, ended)
        least = TASKS * 40.0 / SCALE  # seconds of one task's vcore; masters and waits come on top
        assert before[0] >= int(least * MEMORY_MB)
        assert before[1] >= int(least)

        os.kill(cluster.processes["rm"].pid, signal.SIGKILL)
        cluster.processes["rm"].wait()
        cluster.start_manager()
        with Client(cluster.address, deadline_s=60.0) as client:
            until(lambda: client.metrics().nodes.get("RUNNING") == 4, "the nodes are back")
            # the journal has the sum of when it ended, its master's container went a beat later,
            # which is as long as the machine is busy
            kept = summed(client, ended)
            until(lambda: told(cluster, ended) == kept, "pages tell the manager's sums")
            assert kept == pytest.approx(before, rel=0.1, abs=1)
            assert kept[0] >= int(least * MEMORY_MB)
            assert kept[1] >= int(least)
            assert told(cluster, under_way)[0] >= int(least * MEMORY_MB)
            client.kill(under_way)
            client.wait([under_way])
            until(lambda: not client.metrics().containers_running, "its containers are gone")

        samples = read(cluster, "/api/overview")["samples"]
        assert samples
        place, web = cluster.web_address, cluster.processes["web"]
        assert cluster.mend() == ""
        web.send_signal(signal.SIGTERM)
        web.wait()
        assert "started again" in cluster.mend()
        assert cluster.web_address == place
        again = read(cluster, "/api/overview")["samples"]
        assert again[: len(samples) - 2] == samples[: len(samples) - 2]
        assert told(cluster, ended) == kept
        with Client(cluster.address, deadline_s=60.0) as client:
            sums = summed(client, under_way)
            until(lambda: told(cluster, under_way) == sums, "pages tell the manager's sums")
            assert sums[0] >= int(least * MEMORY_MB)
        assert not cluster.failed()


@pytest.mark.parametrize("kind", [{}, {"members": 2}, {"managers": 2}], ids=str)
def test_a_cluster_that_is_started_again_goes_on_by_its_clock(
    kind: dict[str, int], tmp_path: Path
) -> None:
    settings = LocalSettings(nodes=4, time_scale=SCALE, state=True, **kind)

    def submitted(cluster: LocalCluster) -> list[float]:
        """When each application was submitted, unix time."""
        with Client(cluster.address, deadline_s=60.0) as client:
            reports = client.applications()
        return [cluster.epoch_s + report.submitted_s / SCALE for report in reports]

    with LocalCluster(settings, tmp_path / "c") as cluster:
        with Client(cluster.address, deadline_s=60.0) as client:
            client.wait([client.submit(work("ended", 1.0))])
            client.decommission("n1")
            until(lambda: client.metrics().nodes.get("DECOMMISSIONED"), "n1 is out of service")
        before = submitted(cluster)
        assert abs(before[0] - time.time()) < 60.0
    with LocalCluster(settings, tmp_path / "c") as cluster:
        assert submitted(cluster) == before
        with Client(cluster.address, deadline_s=60.0) as client:
            # It is still out of service, and a cluster without it has started all the same.
            assert client.metrics().nodes == {"RUNNING": 3, "DECOMMISSIONED": 1}
    with (
        pytest.raises(InputError, match=r"--time-scale: .* was begun with 20\.0, not 1\.0"),
        LocalCluster(replace(settings, time_scale=1.0), tmp_path / "c"),
    ):
        pass
