"""Live services under single hostile messages: refused, told in a line, and the cluster goes on."""

import asyncio
import json
import re
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testkit.live import Cluster, Part, chain, series, until, wait_for_nodes
from tools.live_fuzz import FACES, fuzz_live
from weft.client.api import Client
from weft.model.errors import WeftError
from weft.protocol.messages import (
    NodeHeartbeated,
    NodeRegistered,
    RunningContainer,
    StartContainers,
    TaskLaunch,
)
from weft.wire import channel, codec
from weft.wire.client_pb2 import SubmitApplicationRequest
from weft.wire.client_pb2_grpc import ResourceManagerClientStub
from weft.wire.containers_pb2_grpc import ContainerManagerStub
from weft.wire.tokens import TimeTold
from weft.wire.tracker_pb2_grpc import NodeTrackerStub

pytestmark = pytest.mark.timeout(400)


class Live:
    """A small cluster, and raw stubs to its services."""

    def __init__(self, folder: Path) -> None:
        self.cluster = Cluster(folder)
        self.manager = self.cluster.manager("--scheduler=fair", f"--state-dir={folder / 'state'}")
        self.host = self.cluster.host(self.manager)
        self.nodes = self.cluster.nodes(
            self.manager,
            "--cluster=3x4vcores,8192memory_mb",
            "--nodes=3",
            f"--am-host={self.host.address}",
        )
        self.client = Client(self.manager.address, 120.0)
        wait_for_nodes(self.client, 3)

    def close(self) -> None:
        self.client.close()
        self.cluster.close()

    def works(self) -> None:
        """Nobody ended, every listing answers, and a job runs to its end."""
        for part in (self.manager, self.host, self.nodes):
            assert part.process.poll() is None, (
                f"{part.role} ended:\n{part.log.read_text()[-3000:]}"
            )
        job = chain("probe", 1, 3, 0.01)
        app = self.client.submit(job)
        assert self.client.wait([app])[app].final_status == "SUCCEEDED"
        assert len(self.client.nodes(["RUNNING"])) == 3
        self.client.applications()
        self.client.metrics()
        self.client.queues()
        for one in self.client.applications()[-3:]:
            self.client.explain(one.app_id)
            self.client.containers(one.app_id)
        assert "Traceback" not in self.manager.log.read_text()

    def said(self, part: Part, *words: str) -> None:
        """One line of the log has all the words."""
        until(
            lambda: any(
                all(w in line for w in words) for line in part.log.read_text().splitlines()
            ),
            f"a line with {words}",
            20,
        )


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    one = Live(tmp_path_factory.mktemp("hostile"))
    yield one
    one.close()


def answers_of(batch: Any) -> list[Any]:
    """What a batch of the manager says, but for what time it is."""
    return [one for one in codec.decode_node_orders(batch) if not isinstance(one, TimeTold)]


def tracker(address: str, *messages: Any) -> list[Any]:
    """Say something to the manager as a node; what it answers within a moment."""

    async def say() -> list[Any]:
        dialled = channel.dial(address)
        call = NodeTrackerStub(dialled).Track()
        await call.write(codec.encode_node_reports(messages))
        got: list[Any] = []
        if isinstance(messages[0], NodeRegistered):
            batch = await asyncio.wait_for(call.read(), 20)
            got.extend(answers_of(batch))
        else:  # it is not answered: another call is, after it
            await call.write(codec.encode_node_reports([NodeHeartbeated("nobody", 1)]))
            await asyncio.wait_for(call.read(), 20)
        call.cancel()
        await dialled.close()
        return got

    return asyncio.run(say())


def submit_raw(address: str, text: str) -> str:
    """Submit a job's text; the status and details, or "OK"."""
    import grpc

    async def submit() -> str:
        dialled = channel.dial(address)
        try:
            await ResourceManagerClientStub(dialled).SubmitApplication(
                SubmitApplicationRequest(job_json=text.encode()), timeout=20
            )
            return "OK"
        except grpc.aio.AioRpcError as error:
            return f"{error.code().name}: {error.details()}"
        finally:
            await dialled.close()

    return asyncio.run(submit())


def stage(**fields: Any) -> str:
    """A job file with one stage."""
    one = {"name": "a", "tasks": 1, "duration_s": 1, "demand": {"vcores": 1}} | fields
    return json.dumps({"name": "p", "stages": [one]})


def registered(name: str, running: Sequence[RunningContainer] = (), **fields: Any) -> Any:
    more = {"capacity": {"vcores": 4.0, "memory_mb": 8192.0}, "labels": ()} | fields
    return NodeRegistered(name, "127.0.0.1:9", "r", running=tuple(running), **more)


BAD_JOBS = [
    (stage(duration_s=1e308), "stages[0].duration_s"),
    (stage(duration_s=None), "stages[0].duration_s"),
    (stage(duration_s=float("nan")), "stages[0].duration_s"),
    (stage(name="\ud800"), "stages[0].name"),
    (stage(name="x" * 2000), "stages[0].name"),
    (stage(name="a\x1b[31mb"), "stages[0].name"),
    (stage(demand={"vcores": 1e300}), "stages[0].demand.vcores"),
    (stage(demand={"vcores": -1}), "stages[0].demand.vcores"),
    (stage(tasks=10**9), "stages[0].tasks"),
    (stage(tasks=1_000_000, gang=True, demand={}), "stages[0].tasks"),
    (stage().replace('"tasks": 1', '"tasks": ' + "9" * 5000), "job"),
    (stage(command=["echo", "\udfff"]), "stages[0].command[1]"),
    (json.dumps({"name": "p", "user": "\ud800", "stages": []}), "stages"),
    ("[" * 100_000, "job"),
]


def test_jobs_that_break_a_rule_are_refused_with_their_place(live: Live) -> None:
    for text, place in BAD_JOBS:
        answer = submit_raw(live.manager.address, text)
        assert answer.startswith("INVALID_ARGUMENT"), (text[:80], answer)
        assert place in answer, (place, answer)
    for size, code in (
        (15_000_000, "INVALID_ARGUMENT"),
        (40_000_000, ("RESOURCE_EXHAUSTED", "UNAVAILABLE")),
    ):
        big = json.dumps({"name": "n" * size, "stages": []})
        assert submit_raw(live.manager.address, big).startswith(code)
    live.works()
    live.said(live.manager, "refused a message", "SubmitApplication", "stages[0].duration_s")
    text = series(live.manager.ready["metrics"])
    assert re.search(r"weft_messages_refused_total\{.*SubmitApplication.*\} [1-9]", text)


def test_a_job_of_a_million_tasks_without_demand_is_granted_in_rounds(live: Live) -> None:
    app = live.client.submit(chain_of_nothing())
    until(lambda: live.client.application(app).running_containers > 1_000, "some run")
    held = live.client.application(app).running_containers
    assert held <= 30_000 + 1, "more than three nodes may hold"
    live.client.kill(app)
    until(lambda: live.client.application(app).state == "KILLED", "killed")
    live.works()


def chain_of_nothing() -> Any:
    from dataclasses import replace

    job = chain("nothing", 1, 1_000_000, 1000.0)
    return replace(job, stages=(replace(job.stages[0], demand={}),))


HOSTILE_NODES = [
    registered("x1", [RunningContainer((1 << 40 | 1 << 32) + 7, (7e6,) * 8, ())]),  # A1
    registered("x1", [RunningContainer((1 << 40 | 1 << 32) + 7, (7e6,) * 1000, ())]),
    registered("x1", [RunningContainer((1 << 40 | 1 << 32) + 7, (7e6,) * 20_000, ())]),
    registered("x1", [RunningContainer((1 << 40 | 1 << 32) + 7, (-1e9, 1.0, 0.0, 0.0), ())]),  # B4
    registered("x1", capacity={"vcores": -4.0}),  # A10
    registered("x1", capacity={"vcores": float("nan")}),  # B6
    registered("x1", capacity={"vcores": float("inf")}),
    registered("x1", capacity={"vcores": -1e12}, labels=("gpu",)),  # B7
    registered("x1", labels=tuple(f"l{i}" for i in range(62))),  # B8
    registered("a\x00b"),
    registered("x" * 3000),
    registered("x1", life=2**60),
    NodeHeartbeated("n1", 1, use=(1.0,)),  # A9
    NodeHeartbeated("n1", 1, use=(float("nan"),) * 4),
]


def test_nodes_that_break_a_rule_are_refused_and_nothing_else_changes(live: Live) -> None:
    before = {n.node_id: (n.capacity, n.allocated) for n in live.client.nodes()}
    for message in HOSTILE_NODES:
        answers = tracker(live.manager.address, message)
        if isinstance(message, NodeRegistered):
            assert [a.shutdown[:12] for a in answers] == ["its registra"], (message, answers)
    assert {n.node_id: (n.capacity, n.allocated) for n in live.client.nodes()} == before
    live.said(live.manager, "refused a message", "NodeHeartbeated", "use")
    live.works()
    with urllib.request.urlopen(f"http://{live.manager.ready['metrics']}/metrics") as answer:
        assert answer.status == 200


def test_one_bad_message_of_a_batch_takes_no_other_with_it(live: Live) -> None:
    batch = codec.encode_node_reports([NodeHeartbeated("nobody", 1)])
    batch.items.add()  # says nothing
    end = batch.items.add().heartbeat
    end.node_id = "nobody"
    end.ended.add(container_id=1, outcome=-1)

    async def say() -> list[Any]:
        dialled = channel.dial(live.manager.address)
        call = NodeTrackerStub(dialled).Track()
        await call.write(batch)
        got = answers_of(await call.read())
        call.cancel()
        await dialled.close()
        return got

    assert [a.resync for a in asyncio.run(say())] == [True]
    live.works()


def test_an_operator_may_not_ask_for_a_time_beyond_all_clocks(live: Live) -> None:
    with pytest.raises(WeftError, match="timeout_s"):
        live.client.decommission("n1", 1e308)
    live.client.decommission("n1", 9e15)  # more than a loop takes: clamped
    live.client.recommission("n1")
    live.works()


def test_start_orders_that_break_a_rule_are_answered_and_no_node_ends(live: Live) -> None:
    def launch(**fields: Any) -> TaskLaunch:
        return replace(TaskLaunch(99 << 40 | 1 << 32 | 5, 0, 0, 0, 1.0, (1.0, 1.0)), **fields)

    bad = [
        launch(duration_s=1e308),
        launch(duration_s=float("nan")),
        launch(demand=(-1.0, 1.0)),
        launch(demand=(1.0,) * 9),
        launch(granted=(1.0,) * 9),
        launch(granted=(float("inf"), 0.0)),
        launch(container_id=0),
    ]

    async def start(item: TaskLaunch) -> list[Any]:
        dialled = channel.dial(live.nodes.address)
        request = codec.encode_starts("me", [StartContainers(99 << 8 | 1, "n1", (item,))])
        answer = await ContainerManagerStub(dialled).StartContainers(request, timeout=20)
        await dialled.close()
        return codec.decode_answers(answer)

    for item in bad:
        (answer,) = asyncio.run(start(item))
        assert answer.items[0].error.startswith("refused"), (item, answer)
    live.works()


def test_a_flood_changes_nothing_of_others() -> None:
    """A short run of `make fuzz-messages`: hostile peers with true tokens of their own jobs.

    Without the two faces after whose floods nodes and masters that never were must expire.
    """
    faces = [face for face in FACES if face not in {"tracker", "master"}]

    async def floods() -> dict[str, int]:
        return {face: sent async for face, sent, _, _ in fuzz_live(7, 150, faces)}

    sent = asyncio.run(floods())
    assert list(sent) == faces
    assert min(sent.values()) > 100
