"""Public workflows and queries run on a live cluster, each task once, in order, within capacity."""

import os
from pathlib import Path

import pytest

from am.plan.bounds.bounds import bounds_of
from testkit.recorded import TOLERANCE_S, Recorded
from weft.client.api import Client
from weft.client.local import LocalCluster, LocalSettings
from weft.model.dag import Machines, dag_of_job
from weft.model.job import Job
from weft.model.resources import DEFAULT_RESOURCE_TYPES
from weft.workloads import tpch, wfformat

DATA = Path(os.environ.get("WEFT_DATA", Path(__file__).resolve().parents[2].parent / "shared/data"))
SCALE = 200.0
WALL_S = 6.0  # of the longest job's critical path; WEFT_LIVE_ALL=1 takes every file
CAPACITY = [16.0, 65536.0, 800.0, 1000.0]


def public_jobs() -> list[Job]:
    """Every WfFormat file and TPC-H query that is short enough, found by listing."""
    flows = sorted((DATA / "wfinstances").rglob("*.json*"))
    queries = sorted((DATA / "tpch/2g").glob("*.json.gz"))
    if not flows or not queries:
        pytest.skip(f"no public inputs in {DATA}")
    jobs = wfformat.read(flows).jobs + tpch.read(queries).jobs
    if os.environ.get("WEFT_LIVE_ALL"):
        return jobs
    machines = Machines.alike(20, CAPACITY)
    short = []
    for job in jobs:
        bound = bounds_of(dag_of_job(job, DEFAULT_RESOURCE_TYPES), machines)
        if job.task_count <= 2500 and bound.cp_len_s <= SCALE * WALL_S:
            short.append(job)
    return short


@pytest.mark.timeout(900)
def test_public_workflows_run_once_in_order_within_capacity(tmp_path: Path) -> None:
    """Judged by the node managers' event logs, not by the scheduler's own books."""
    jobs = public_jobs()
    assert len(jobs) >= 25
    settings = LocalSettings(nodes=20, time_scale=SCALE, events=True, nm_processes=2)
    with LocalCluster(settings, tmp_path) as cluster:
        with Client(cluster.address) as client:
            apps = [client.submit(job) for job in jobs]
            reports = client.wait(apps)
        assert not cluster.failed()
    recorded = Recorded.of(tmp_path)
    for app, job in zip(apps, jobs, strict=True):
        assert reports[app].final_status == "SUCCEEDED", f"{job.name}: {reports[app].diagnostics}"
        recorded.check_once(app, job)
        recorded.check_precedence(app, job, TOLERANCE_S * SCALE)
    rigid = [kind.kind.value == "rigid" for kind in DEFAULT_RESOURCE_TYPES]
    recorded.check_capacity(CAPACITY, rigid)
