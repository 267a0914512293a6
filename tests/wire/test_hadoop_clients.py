"""The face to YARN's clients: what it tells again, and what it keeps of a submission."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from weft.protocol.requests import ApplicationReport, ClusterMetrics, NodeReport, QueueReport
from weft.yarn import clients, rpc, translate
from weft.yarn import hadoop_pb2 as pb
from weft.yarn.clients import ClientFace
from weft.yarn.store import Store
from weft.yarn.tokens import TokenKeeper

APP = pb.ApplicationId(id=3, cluster_timestamp=7)
RUNNING = ApplicationReport(
    app_id=3,
    name="j",
    user="ada",
    queue="root.default",
    priority=0,
    state="RUNNING",
    final_status="UNDEFINED",
    progress=0.0,
    attempt_id=0,
    master_node="",
    submitted_s=0.0,
    started_s=0.0,
    finished_s=0.0,
    tasks=0,
    finished_tasks=0,
    running_containers=0,
    pending_containers=0,
    allocated={},
    cluster_ts=7,
)


class Cluster:
    """A gateway whose manager counts what it is asked."""

    cluster_ts, web, names = 7, "", ("vcores", "memory_mb")

    def __init__(self, folder: Path) -> None:
        self.client, self.store, self.keeper = self, Store(folder), TokenKeeper()
        self.asked = 0
        self.jobs: list[Any] = []

    async def application(self, app: int) -> ApplicationReport:
        self.asked += 1
        return RUNNING

    async def kill(self, app: int, why: str) -> str:
        return "KILLED"

    async def submit(self, job: Any, submission_id: str, app: int) -> int:
        self.jobs.append((submission_id, app))
        return app

    async def queues(self) -> QueueReport:
        leaf = QueueReport("root.etl", 0.5, 1.0, 0.25, "RUNNING", 1, 2, {"memory_mb": 512.0}, 3)
        whole = {"memory_mb": 512.0, "vcores": 1.0}
        return QueueReport("root", 1.0, 1.0, 0.125, "RUNNING", 1, 2, whole, 3, children=(leaf,))

    async def metrics(self) -> ClusterMetrics:
        return ClusterMetrics(
            "capacity", 0.0, 0.0, {}, {}, {"memory_mb": 4096.0, "vcores": 8.0}, {}, 2, 3
        )

    async def applications(self) -> list[ApplicationReport]:
        states = ("RUNNING", "FINISHED", "FINISHED", "KILLED")
        of_etl = [replace(RUNNING, queue="root.etl", state=s, running_containers=2) for s in states]
        return [*of_etl, replace(RUNNING, queue="root.etl2", state="FAILED")]

    def unix_ms(self, cluster_s: float) -> int:
        return int(cluster_s * 1000)

    def master_environment(self, app: int) -> tuple[tuple[str, str], ...]:
        return ()


def talk(folder: Path, conversation: Callable[..., Awaitable[None]]) -> None:
    cluster: Any = Cluster(folder)
    now = [100.0]
    protocol = ClientFace(cluster, clock=lambda: now[0]).protocol()
    caller = rpc.Caller(peer="here")

    async def call(method: str, request: Any) -> Any:
        return await protocol[method].handler(caller, request)

    asyncio.run(conversation(cluster, now, call))


def test_a_report_is_told_again_for_a_moment_but_never_after_a_change(tmp_path: Path) -> None:
    async def conversation(cluster: Any, now: list[float], call: Any) -> None:
        request = pb.OneApplication(application=APP)
        for _ in range(5):
            answer = await call("getApplicationReport", request)
        assert (answer.report.name, cluster.asked) == ("j", 1)
        now[0] += 2 * clients.REPORT_AGE_MAX_S
        await call("getApplicationReport", request)
        assert cluster.asked == 2
        await call("forceKillApplication", pb.Kill(application=APP))
        await call("getApplicationReport", request)
        assert cluster.asked == 4, "the kill's own look, and a new one"

    talk(tmp_path, conversation)


def test_a_submission_said_again_changes_nothing_of_the_first(tmp_path: Path) -> None:
    async def conversation(cluster: Any, now: list[float], call: Any) -> None:
        for command in ("first", "second"):
            context = pb.SubmissionContext(application=APP, name="j", unmanaged=True)
            context.master.command.append(command)
            await call("submitApplication", pb.Submission(context=context))
        assert cluster.store.application(3)["commands"] == ["first"]
        assert cluster.store.unmanaged(3)
        assert cluster.jobs == [("hadoop-7-3", 3)] * 2

    talk(tmp_path, conversation)


@pytest.mark.parametrize("port", ["99999999999", "65536", "-1", "²", "9" * 900, ""])
def test_no_master_makes_the_list_of_applications_fail(port: str) -> None:
    """What it told of itself is shown as far as YARN's records can hold it."""
    odd = replace(
        RUNNING,
        master_address=f"h:{port}",
        attempt_id=769,
        final_status="evil",
        priority=-(2**31),
        allocated={"vcores": 2.0**53, "memory_mb": 2.0**53},
        state="FINISHED",
    )
    made = translate.report(odd, int, "", unmanaged=False)
    assert (made.rpc_port, translate.FINAL_STATES[made.final_status]) == (-1, "FAILED")
    assert translate.attempt_report(odd, int, number=769).rpc_port == -1
    assert made.SerializeToString()


def test_no_node_makes_the_list_of_nodes_fail() -> None:
    huge = {"vcores": 2.0**53, "memory_mb": 2.0**53, "disk_mbps": 1e300}
    node = NodeReport("n1", "h:1", "r", (), "RUNNING", huge, huge, {}, 1, 0.0)
    made = translate.node_report(node, pb.NodeId(host="h", port=1), int, "")
    assert made.capability.virtual_cores == 2**31 - 1
    assert made.capability.memory == 2**53
    assert made.SerializeToString()


def test_queues_tell_what_yarn_top_shows(tmp_path: Path) -> None:
    """It sums over the root's children; what a queue does not tell it shows as -1."""

    async def conversation(cluster: Any, now: list[float], call: Any) -> None:
        asked = pb.QueueQuery(name="root", children=True)
        root = (await call("getQueueInfo", asked)).queue
        assert (root.statistics.apps_submitted, root.statistics.apps_failed) == (5, 1)
        etl = root.children[0].statistics
        assert (etl.apps_submitted, etl.apps_running, etl.apps_pending) == (4, 1, 2)
        assert (etl.apps_completed, etl.apps_killed, etl.apps_failed) == (2, 1, 0)
        assert (etl.available_memory_mb, etl.available_vcores) == (3584, 8)
        assert (etl.allocated_memory_mb, etl.pending_containers) == (512, 3)

    talk(tmp_path, conversation)
