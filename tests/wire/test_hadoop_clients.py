"""The face to YARN's clients: what it tells again, and what it keeps of a submission."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testkit.builders import report
from weft.protocol.requests import ApplicationReport, ClusterMetrics, NodeReport, QueueReport
from weft.yarn import clients, rpc, translate
from weft.yarn import hadoop_pb2 as pb
from weft.yarn.admin import AdminFace
from weft.yarn.clients import ClientFace
from weft.yarn.errors import ACCESS_CONTROL, HadoopError
from weft.yarn.store import Store
from weft.yarn.tokens import TokenKeeper

APP = pb.ApplicationId(id=3, cluster_timestamp=7)
RUNNING = report(3, name="j", state="RUNNING", tasks=0, cluster_ts=7)


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
        assert why == "Application application_7_0003 was killed by user anonymous at 10.0.0.9"
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
    caller = rpc.Caller(peer="10.0.0.9:4000")

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
    assert translate.attempt_report(odd, int, "", number=769).rpc_port == -1
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


def test_an_application_is_told_as_yarn_tells_it() -> None:
    """What `yarn application -status` prints of one that waits for its master, and of its end."""
    waits = replace(RUNNING, state="ACCEPTED", attempt_id=769, master_node="n1")
    waits = replace(waits, held_s={"memory_mb": 512.4, "vcores": 2.0})
    made = translate.report(waits, int, "http://w", unmanaged=False)
    assert (made.queue, made.tracking_url) == ("root.default", "N/A")
    assert made.original_tracking_url == "N/A"
    assert (made.usage.memory_seconds, made.usage.vcore_seconds) == (512, 2)
    assert (made.label, made.master_label) == ("<Not set>", "<DEFAULT_PARTITION>")
    assert made.diagnostics.startswith("AM container is launched, waiting")
    assert made.log_aggregation == 1
    (timeout,) = made.timeouts
    assert (timeout.timeout.expires, timeout.timeout.remaining_s) == ("UNLIMITED", -1)
    attempt = translate.attempt_report(waits, int, "http://w", number=769)
    assert attempt.state == translate.ATTEMPT_LAUNCHED
    over = replace(waits, state="FAILED", diagnostics="why", expires_s=1_800_000_000_000.0)
    made = translate.report(over, int, "http://w", unmanaged=False)
    page = "http://w/cluster/app/application_7_0003"
    assert made.tracking_url == made.original_tracking_url == page
    assert made.diagnostics == "why"
    assert made.timeouts[0].timeout.expires == "2027-01-15T08:00:00.000+0000"


def test_an_application_gets_another_end_and_one_that_is_over_keeps_all(tmp_path: Path) -> None:
    """YARN's command line says of neither that it failed."""

    async def conversation(cluster: Any, now: list[float], call: Any) -> None:
        asked: list[tuple[str, Any]] = []

        async def note(what: str, value: Any) -> str:
            asked.append((what, value))
            return "RUNNING"

        cluster.set_expiry = lambda app, at_s: note("expiry", at_s)
        cluster.set_priority = lambda app, priority: note("priority", priority)
        cluster.move = lambda app, queue: note("move", queue)
        cluster.at_s = lambda ms: ms / 1000
        expiry = pb.UpdateTimeouts(application=APP)
        expiry.timeouts.add(type=1, expires="2027-01-15T08:00:00.000+0000")
        priority = pb.SetPriority(application=APP, priority=pb.Priority(priority=5))
        answer = await call("updateApplicationTimeouts", expiry)
        assert answer.timeouts[0].expires == expiry.timeouts[0].expires
        assert (await call("updateApplicationPriority", priority)).priority.priority == 5
        await call("moveApplicationAcrossQueues", pb.Move(application=APP, queue="etl"))
        with pytest.raises(HadoopError, match="The specified Queue: nowhere doesn't exist"):
            await call("moveApplicationAcrossQueues", pb.Move(application=APP, queue="nowhere"))
        expiry.timeouts[0].expires = "soon"
        with pytest.raises(HadoopError, match="expected a time as"):
            await call("updateApplicationTimeouts", expiry)
        assert asked == [("expiry", 1_800_000_000.0), ("priority", 5), ("move", "etl")]

        async def ended(app: int) -> ApplicationReport:
            return replace(RUNNING, state="FAILED", priority=2)

        cluster.application = ended
        assert (await call("updateApplicationPriority", priority)).priority.priority == 2
        expiry.timeouts[0].expires = "2027-01-15T08:00:00.000+0000"
        await call("updateApplicationTimeouts", expiry)
        assert len(asked) == 3

    talk(tmp_path, conversation)


def test_a_queue_has_its_path_and_one_that_is_not_there_is_no_error(tmp_path: Path) -> None:
    async def conversation(cluster: Any, now: list[float], call: Any) -> None:
        found = (await call("getQueueInfo", pb.QueueQuery(name="etl"))).queue
        assert (found.path, found.scheduler) == ("root.etl", "CapacityScheduler")
        assert list(found.labels) == ["*"]
        assert found.max_parallel_apps == 2**31 - 1
        assert not (await call("getQueueInfo", pb.QueueQuery(name="nowhere"))).HasField("queue")

    talk(tmp_path, conversation)


@pytest.mark.parametrize(
    ("administrators", "refused"), [("*", False), ("ada, root", False), ("root", True)]
)
def test_only_administrators_change_nodes(administrators: str, refused: bool) -> None:
    resized: list[int] = []

    class Nodes:
        async def nodes(self) -> list[NodeReport]:
            resized.append(1)
            return []

    client: Any = Nodes()
    face = AdminFace(client, "", administrators, lambda node: None, lambda: ())
    call = face.protocol()["updateNodeResource"].handler
    caller = rpc.Caller(peer="10.0.0.9:4000", user="ada")
    if refused:
        with pytest.raises(HadoopError, match="User ada doesn't have permission to call") as error:
            asyncio.run(call(caller, pb.UpdateNodeResource()))
        assert error.value.java_class == ACCESS_CONTROL
    else:
        asyncio.run(call(caller, pb.UpdateNodeResource()))
    assert resized == [1] * (not refused)
