"""A master's own graph reaches the Resource Manager: from the pages it names to its heartbeat."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog
from aiohttp import web

from testkit.hadoop import FakeManager, foreign_master
from weft.model.ids import format_app
from weft.protocol.messages import ContainersAsked
from weft.runtime.http_server import serve
from weft.yarn import hadoop_pb2 as pb
from weft.yarn.asks import UNKNOWN_DURATION_S
from weft.yarn.graphs import Graphs, History

STAGE = {
    "stageId": 0,
    "attemptId": 0,
    "status": "ACTIVE",
    "numTasks": 8,
    "numActiveTasks": 2,
    "numCompleteTasks": 2,
    "executorRunTime": 6_000,
    "executorDeserializeTime": 0,
    "name": "a",
    "submissionTime": "2026-01-01T00:00:10.000GMT",
}

# Two cores a task of the second kind of executor, one of others.
ENVIRONMENT = {
    "sparkProperties": [["spark.app.name", "etl"]],
    "resourceProfiles": [
        {"id": 0, "taskResources": {"cpus": {"amount": 1.0}}},
        {"id": 1, "taskResources": {"cpus": {"amount": 2.0}}},
    ],
}


def ask(count: int, priority: int = 0, memory: int = 1_000, cores: int = 2) -> Any:
    return pb.ResourceRequest(
        priority=pb.Priority(priority=priority),
        resource_name="*",
        num_containers=count,
        capability=pb.Resource(memory=memory, virtual_cores=cores),
    )


async def pages(answer: Callable[[], web.Response]) -> tuple[web.AppRunner, str]:
    """A Spark driver's pages, with one application's stages."""

    async def stages(request: web.Request) -> web.Response:
        base = f"/api/v1/applications/{format_app(7, 3)}"
        if request.path == f"{base}/environment":
            return web.json_response(ENVIRONMENT)
        assert request.path == f"{base}/stages"
        return answer()

    app = web.Application()
    app.router.add_get("/{tail:.*}", stages)
    runner, port = await serve(app, "127.0.0.1", 0)
    return runner, f"http://127.0.0.1:{port}"


@asynccontextmanager
async def followed(
    answer: Callable[[], web.Response], history: History
) -> AsyncIterator[tuple[FakeManager, Any, str, asyncio.Task[None]]]:
    """A Spark application that has yet to register, its pages' address, and who looks at them."""
    runner, url = await pages(answer)
    manager = FakeManager()
    master = foreign_master(manager, name="etl", kind="SPARK")
    looks = asyncio.create_task(Graphs(history, structlog.get_logger()).run([master]))
    try:
        yield manager, master, url, looks
    finally:
        looks.cancel()
        await runner.cleanup()


async def until(look: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(20):
        while not await look():
            await asyncio.sleep(0.02)


@pytest.mark.slow
def test_remaining_work_and_path_are_told_and_a_run_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.yarn.graphs.INTERVAL_S", 0.05)
    history = History(tmp_path / "history")
    told = [STAGE]

    async def conversation() -> None:
        beats = 0
        told_pages = followed(lambda: web.json_response(told), history)
        async with told_pages as (manager, master, url, _):

            async def beat(asks: tuple[Any, ...] = ()) -> ContainersAsked:
                nonlocal beats
                await master.allocate(pb.Allocate(response_id=beats, asks=asks))
                beats += 1
                return manager.asked[-1]

            await master.register(pb.Register(tracking_url=""))
            # without pages: what is outstanding, 3 x 600 s x (2 / 10 + 1000 / 10000)
            first = await beat((ask(3),))
            assert first.remaining_work == pytest.approx(3 * UNKNOWN_DURATION_S * 0.3)
            assert first.remaining_path_s == 0.0
            master.tracking_url = url

            async def follows() -> bool:
                # 4 tasks of 3 s, each with half an executor
                asked = await beat()
                known = asked.remaining_work == pytest.approx(4 * 3.0 * 0.15)
                return known and asked.remaining_path_s == 3.0

            await until(follows)
            told[0] = {
                **STAGE,
                "status": "COMPLETE",
                "numActiveTasks": 0,
                "numCompleteTasks": 8,
                "executorRunTime": 24_000,
                "completionTime": "2026-01-01T00:00:30.000GMT",
            }

            async def nothing_left() -> bool:
                return (await beat()).remaining_work == 0.0

            await until(nothing_left)
            await master.finish(pb.Finish(final_status=1))

            async def kept() -> bool:
                return bool(history.find("ada", "etl"))

            await until(kept)

    asyncio.run(conversation())
    (known,) = history.find("ada", "etl")
    assert (known.tasks, known.task_s) == (8, 3.0)
    assert not history.find("bob", "etl")
    (file,) = (tmp_path / "history").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_text(json.dumps({"stages": [["a", 0, 1, 1.0, [5]]]}))
    assert history.find("ada", "etl") == (), "damage is no history"


@pytest.mark.slow
def test_pages_that_say_nonsense_harm_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.yarn.graphs.INTERVAL_S", 0.01)
    odd: list[Callable[[], web.Response]] = [
        lambda: web.Response(text="no json"),
        lambda: web.json_response({"x": 1}),
        lambda: web.json_response([1, None]),
        lambda: web.Response(status=500),
        lambda: web.Response(text="[" * 100_000),
        lambda: web.Response(body=b"\xff\xfe"),
        lambda: web.json_response([{**STAGE, "numTasks": "many"}]),
    ]
    served = 0

    def answer() -> web.Response:
        nonlocal served
        served += 1
        return odd[served % len(odd)]()

    async def conversation() -> None:
        async with followed(answer, History(tmp_path)) as (manager, master, url, looks):
            await master.register(pb.Register(tracking_url=url))

            async def enough() -> bool:
                assert not looks.done()
                return served > 3 * len(odd)

            await until(enough)
            await master.allocate(pb.Allocate(response_id=0, asks=[ask(1)]))
            assert manager.asked[-1].remaining_path_s == 0.0

    asyncio.run(conversation())


def test_each_kind_of_executor_counts_with_its_own_demand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's resource profiles: each stage's work is of the executors that it needs.

    The containers that the first stages need come first, and none is taken to be held 600 s.
    """
    monkeypatch.setattr("weft.yarn.graphs.INTERVAL_S", 0.05)
    later = {
        **STAGE,
        "stageId": 1,
        "name": "b",
        "status": "PENDING",
        "numCompleteTasks": 0,
        "numActiveTasks": 0,
        "executorRunTime": 0,
        "numTasks": 6,
        "resourceProfileId": 1,
        "submissionTime": None,
    }

    async def conversation() -> None:
        told_pages = followed(lambda: web.json_response([STAGE, later]), History(tmp_path))
        async with told_pages as (manager, master, url, _):
            await master.register(pb.Register(tracking_url=url))
            both = [ask(2), ask(3, 1, 4_000, 4)]
            await master.allocate(pb.Allocate(response_id=0, asks=both))
            first = {one.demand: one for one in manager.asked[-1].asks}
            assert {one.duration_s for one in first.values()} == {UNKNOWN_DURATION_S}
            beats, told = 1, dict(first)

            async def known() -> bool:
                nonlocal beats
                await master.allocate(pb.Allocate(response_id=beats))
                beats += 1
                told.update({one.demand: one for one in manager.asked[-1].asks})
                return all(one.duration_s < UNKNOWN_DURATION_S for one in told.values())

            await until(known)
            # (2 / 10 + 1000 / 10000) / 2 slots, and (4 / 10 + 4000 / 10000) / 2: two cores a task
            work = 4 * 3.0 * 0.15 + 6 * 3.0 * 0.4
            assert manager.asked[-1].remaining_work == pytest.approx(work)
            assert manager.asked[-1].remaining_path_s == 6.0
            now, then = sorted(told.values(), key=lambda one: one.demand)
            # until the path's end; then six tasks of 3 s by two in three executors
            assert (now.duration_s, now.pri_score) == (6.0, 1.0)
            assert (then.duration_s, then.pri_score) == (3.0, 0.5)
            assert [one.total for one in (now, then)] == [2, 3], "nothing is asked for twice"

    asyncio.run(conversation())


@pytest.mark.slow
def test_without_pages_the_event_log_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.yarn.graphs.INTERVAL_S", 0.05)
    lines = (Path(__file__).parents[1] / "unit/spark_events.jsonl").read_text().splitlines()
    log = tmp_path / "logs" / f"{format_app(7, 3)}.inprogress"
    log.parent.mkdir()

    async def conversation() -> None:
        manager = FakeManager()
        master = foreign_master(manager, name="etl", kind="SPARK")
        history = History(tmp_path / "history")
        graphs = Graphs(history, structlog.get_logger(), events=log.parent)
        task = asyncio.create_task(graphs.run([master]))
        await master.register(pb.Register(tracking_url="http://127.0.0.1:1"))  # nobody answers
        await master.allocate(pb.Allocate(response_id=0, asks=[ask(1)]))
        beats = 1

        async def path() -> float:
            nonlocal beats
            await master.allocate(pb.Allocate(response_id=beats))
            beats += 1
            return float(manager.asked[-1].remaining_path_s)

        assert await path() == 0.0
        log.write_text("\n".join(lines[:13]) + "\n")

        async def follows() -> bool:
            return await path() > 0.0

        await until(follows)
        log.write_text("\n".join(lines) + "\n")

        async def nothing_left() -> bool:
            return await path() == 0.0

        await until(nothing_left)
        await master.finish(pb.Finish(final_status=1))

        async def kept() -> bool:
            return [known.parents for known in history.find("ada", "etl")] == [(), (), (0, 1), (2,)]

        await until(kept)
        task.cancel()

    asyncio.run(conversation())
