"""A master's own graph reaches the Resource Manager: from the pages it names to its heartbeat."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import structlog
from aiohttp import web

from testkit.hadoop import FakeManager, foreign_master
from weft.hadoop import hadoop_pb2 as pb
from weft.hadoop.asks import DURATION_S
from weft.hadoop.graphs import Graphs, History
from weft.hadoop.web import serve
from weft.ids import format_app
from weft.messages import (
    ContainersAsked,
)

STAGE = {
    "stageId": 0, "attemptId": 0, "status": "ACTIVE", "numTasks": 8, "numActiveTasks": 2,
    "numCompleteTasks": 2, "executorRunTime": 6_000, "executorDeserializeTime": 0, "name": "a",
    "submissionTime": "2026-01-01T00:00:10.000GMT",
}  # fmt: skip


def ask(count: int) -> Any:
    return pb.ResourceRequest(
        priority=pb.Priority(priority=1), resource_name="*", num_containers=count,
        capability=pb.Resource(memory=1_000, virtual_cores=2),
    )  # fmt: skip


async def pages(answer: Callable[[], web.Response]) -> tuple[web.AppRunner, str]:
    """A Spark driver's pages, with one application's stages."""

    async def stages(request: web.Request) -> web.Response:
        assert request.path == f"/api/v1/applications/{format_app(7, 3)}/stages"
        return answer()

    app = web.Application()
    app.router.add_get("/{tail:.*}", stages)
    runner, port = await serve(app, "127.0.0.1", 0)
    return runner, f"http://127.0.0.1:{port}"


async def until(look: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(20):
        while not await look():
            await asyncio.sleep(0.02)


def test_remaining_work_and_path_are_told_and_a_run_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.hadoop.graphs.LOOK_S", 0.05)
    history = History(tmp_path / "history")
    told = [STAGE]

    async def conversation() -> None:
        runner, url = await pages(lambda: web.json_response(told))
        manager = FakeManager()
        master = foreign_master(manager, name="etl", kind="SPARK")
        graphs = Graphs(history, structlog.get_logger())
        task = asyncio.create_task(graphs.run([master]))
        beats = 0

        async def beat(asks: tuple[Any, ...] = ()) -> ContainersAsked:
            nonlocal beats
            await master.allocate(pb.Allocate(response_id=beats, asks=asks))
            beats += 1
            return manager.asked[-1]

        await master.register(pb.Register(tracking_url=""))
        # without pages: what is outstanding, 3 x 600 s x (2 / 10 + 1000 / 10000)
        first = await beat((ask(3),))
        assert first.remaining_work == pytest.approx(3 * DURATION_S * 0.3)
        assert first.remaining_path_s == 0.0
        master.tracking_url = url

        async def follows() -> bool:
            # 4 tasks of 3 s, each with half an executor
            asked = await beat()
            known = asked.remaining_work == pytest.approx(4 * 3.0 * 0.15)
            return known and asked.remaining_path_s == 3.0

        await until(follows)
        told[0] = {
            **STAGE, "status": "COMPLETE", "numActiveTasks": 0, "numCompleteTasks": 8,
            "executorRunTime": 24_000, "completionTime": "2026-01-01T00:00:30.000GMT",
        }  # fmt: skip

        async def nothing_left() -> bool:
            return (await beat()).remaining_work == 0.0

        await until(nothing_left)
        await master.finish(pb.Finish(final_status=1))

        async def kept() -> bool:
            return bool(history.find("ada", "etl"))

        await until(kept)
        task.cancel()
        await runner.cleanup()

    asyncio.run(conversation())
    (known,) = history.find("ada", "etl")
    assert (known.tasks, known.task_s) == (8, 3.0)
    assert not history.find("bob", "etl")
    (file,) = (tmp_path / "history").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_text(json.dumps({"stages": [["a", 0, 1, 1.0, [5]]]}))
    assert history.find("ada", "etl") == (), "damage is no history"


def test_pages_that_say_nonsense_harm_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.hadoop.graphs.LOOK_S", 0.01)
    odd: list[Callable[[], web.Response]] = [
        lambda: web.Response(text="no json"), lambda: web.json_response({"x": 1}),
        lambda: web.json_response([1, None]), lambda: web.Response(status=500),
        lambda: web.Response(text="[" * 100_000), lambda: web.Response(body=b"\xff\xfe"),
        lambda: web.json_response([{**STAGE, "numTasks": "many"}]),
    ]  # fmt: skip
    served = 0

    def answer() -> web.Response:
        nonlocal served
        served += 1
        return odd[served % len(odd)]()

    async def conversation() -> None:
        runner, url = await pages(answer)
        manager = FakeManager()
        master = foreign_master(manager, name="odd", kind="SPARK")
        await master.register(pb.Register(tracking_url=url))
        graphs = Graphs(History(tmp_path), structlog.get_logger())
        task = asyncio.create_task(graphs.run([master]))

        async def enough() -> bool:
            assert not task.done()
            return served > 3 * len(odd)

        await until(enough)
        await master.allocate(pb.Allocate(response_id=0, asks=[ask(1)]))
        assert manager.asked[-1].remaining_path_s == 0.0
        task.cancel()
        await runner.cleanup()

    asyncio.run(conversation())
