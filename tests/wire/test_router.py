"""A router between clients and members that answer as they are told to."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any

import pytest

from testkit.builders import job, report, stage
from weft.client.calls import AsyncClient, RefusedError
from weft.model.errors import InputError
from weft.protocol.access import Caller
from weft.protocol.requests import (
    ApplicationAccepted,
    ApplicationJob,
    ApplicationReport,
    ClusterMetrics,
    DecommissionNode,
    Done,
    FindSubmission,
    GetMetrics,
    ListApplications,
    Page,
    Refused,
    SubmitApplication,
)
from weft.router import routing
from weft.router.routing import READS_MAX, Member, Router
from weft.wire import codec_job
from weft.wire.server import Server
from weft.wire.services import add_client_service

UP = ClusterMetrics("capacity", 0.0, 1.0, {"RUNNING": 1}, {}, {"vcores": 4.0}, {}, 0, 0)
JOB = job("j", stage("a", 1, 1.0, {"vcores": 1.0}))
Answer = Callable[[Any], Any]


async def _nothing(after: int = 0) -> AsyncIterator[tuple[int, list[str]]]:
    for each in ():
        yield each


def run(test: Callable[..., Any]) -> Callable[..., None]:
    """Run a test on a loop of its own."""

    @wraps(test)
    def on_a_loop(*args: Any, **more: Any) -> None:
        asyncio.run(test(*args, **more))

    return on_a_loop


@asynccontextmanager
async def routed(*answers: Answer, gone: Iterable[str] = ()) -> AsyncIterator[AsyncClient]:
    """A client of a router before members that answer so, and some that are `gone`."""
    servers = []

    async def serve(ask: Callable[[Any, Caller], Any]) -> str:
        server = Server("127.0.0.1", 0)
        add_client_service(server, ask, _nothing)
        servers.append(server)
        return await server.start()

    def member(answer: Answer) -> Callable[[Any, Caller], Any]:
        async def ask(request: Any, caller: Caller) -> Any:
            return UP if isinstance(request, GetMetrics) else answer(request)

        return ask

    router = Router([await serve(member(answer)) for answer in answers] + list(gone))
    await router.look()
    try:
        async with AsyncClient(await serve(router.ask)) as client:
            yield client
    finally:
        await router.close()
        for server in servers:
            await server.stop()


def none(request: Any) -> Any:
    return Refused("not_found", "submission_id", "there is none")


@run
async def test_a_member_that_starts_may_have_a_submission() -> None:
    submitted: list[Any] = []

    def other(request: Any) -> Any:
        if isinstance(request, FindSubmission):
            return none(request)
        submitted.append(request)
        return ApplicationAccepted(2, 7)

    def starts(request: Any) -> Any:
        return Refused("unavailable", "", "the Resource Manager is starting")

    for members in ((starts, other), (other, starts)):
        async with routed(*members) as client:
            with pytest.raises(RefusedError, match="is starting"):
                await client.submit(JOB, submission_id="own")
    assert not submitted


@run
async def test_a_member_whose_answer_was_seen_is_not_missing_from_what_is_listed_next() -> None:
    async def ask(request: Any, caller: Caller) -> Any:
        if isinstance(request, ListApplications):
            return Page((report(1, submitted_s=0.0),))
        return UP if isinstance(request, GetMetrics) else report(1, submitted_s=0.0)

    async def never(request: Any, caller: Caller) -> Any:
        raise AssertionError("it was not there yet")

    async def serve(answer: Callable[[Any, Caller], Any], port: int = 0) -> tuple[Server, str]:
        server = Server("127.0.0.1", port)
        add_client_service(server, answer, _nothing)
        return server, await server.start()

    before, address = await serve(never)
    await before.stop()
    router = Router([address])
    await router.look()
    member, _ = await serve(ask, int(address.rpartition(":")[2]))
    door, at = await serve(router.ask)
    try:
        async with AsyncClient(at) as client:
            assert (await client.application(1)).app_id == 1
            assert [one.app_id for one in await client.applications()] == [1]
    finally:
        await router.close()
        await door.stop()
        await member.stop()


@run
async def test_few_large_answers_are_taken_in_at_a_time() -> None:
    """All that a router asks for is in its memory until the caller takes it."""
    asked, most, go_on = [0], [0], asyncio.Event()

    async def ask(request: Any, caller: Caller) -> Any:
        if isinstance(request, GetMetrics):
            return UP
        asked[0] += 1
        most[0] = max(most[0], asked[0])
        await go_on.wait()
        asked[0] -= 1
        return Page(()) if isinstance(request, ListApplications) else report(1, submitted_s=0.0)

    async def serve(answer: Callable[[Any, Caller], Any]) -> tuple[Server, str]:
        server = Server("127.0.0.1", 0)
        add_client_service(server, answer, _nothing)
        return server, await server.start()

    member, place = await serve(ask)
    router = Router([place])
    await router.look()
    door, at = await serve(router.ask)
    try:
        async with AsyncClient(at) as client:
            calls = [asyncio.create_task(client.applications()) for _ in range(8)]
            calls += [asyncio.create_task(client.application(1)) for _ in range(8)]
            # Whoever asks for little does not wait for them.
            assert (await client.metrics()).scheduler == "capacity"
            while not asked[0]:
                await client.metrics()
            go_on.set()
            await asyncio.gather(*calls)
        assert most[0] <= READS_MAX
    finally:
        await router.close()
        await door.stop()
        await member.stop()


@run
async def test_a_job_passes_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have megabytes, of which a router would make objects for each who asks."""
    decoded: list[int] = []
    usual = codec_job.job_from_dict
    monkeypatch.setattr(codec_job, "job_from_dict", lambda data: decoded.append(1) or usual(data))
    passed: list[Any] = []
    usual_ask = Member.ask

    async def ask(self: Member, *asked: Any) -> Any:
        passed.append(await usual_ask(self, *asked))
        return passed[-1]

    monkeypatch.setattr(Member, "ask", ask)
    async with routed(lambda request: ApplicationJob(JOB)) as client:
        assert await client.job(1) == JOB
    assert isinstance(passed[-1], bytes), "no message was made of it, which is another copy"
    # By the client alone.
    assert len(decoded) == 1


@run
async def test_watchers_of_all_members_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "WATCHERS_MAX", 1)
    router = Router([])
    first, second = router.watch(), router.watch()
    waiting = asyncio.ensure_future(anext(first))
    await asyncio.sleep(0)
    with pytest.raises(InputError, match="1 watchers are the most"):
        await anext(second)
    waiting.cancel()
    await asyncio.wait([waiting])
    await first.aclose()
    assert router._watchers == 0


@run
async def test_a_submission_that_a_member_has_is_found_beside_one_that_is_gone() -> None:
    def has(request: Any) -> Any:
        assert isinstance(request, FindSubmission)
        return ApplicationAccepted(2, 7)

    async with routed(none, has, gone=["127.0.0.1:1"]) as client:
        assert await client.submit(JOB, submission_id="own") == 2


@run
async def test_a_submission_that_is_nowhere_goes_to_one_member() -> None:
    taken: list[int] = []

    def takes(number: int) -> Answer:
        def answer(request: Any) -> Any:
            if isinstance(request, SubmitApplication):
                taken.append(number)
                return ApplicationAccepted(number, 7)
            return none(request)

        return answer

    async with routed(takes(1), takes(2)) as client:
        for _ in range(3):
            await client.submit(JOB, submission_id="own")
    assert len(set(taken)) == 1


@run
async def test_a_name_that_two_members_have_drains_one_node() -> None:
    drained: list[int] = []

    def drains(number: int) -> Answer:
        def answer(request: Any) -> Any:
            assert isinstance(request, DecommissionNode)
            drained.append(number)
            return Done("DECOMMISSIONED")

        return answer

    async with routed(drains(1), drains(2)) as client:
        await client.decommission("n1")
    assert drained == [1]


@pytest.mark.parametrize("limit", [1, 2, 3])
@run
async def test_pages_lose_none_where_a_reserved_number_came_late(limit: int) -> None:
    # Number 3 was reserved, and its job came after that of 5.
    lists = [
        [report(5, submitted_s=10.0), report(3, submitted_s=30.0), report(1, submitted_s=1.0)],
        [report(6, submitted_s=20.0), report(4, submitted_s=15.0), report(2, submitted_s=2.0)],
    ]

    def lists_of(newest: list[ApplicationReport]) -> Answer:
        def answer(request: Any) -> Any:
            assert isinstance(request, ListApplications)
            numbers = [str(one.app_id) for one in newest]
            first = numbers.index(request.page) + 1 if request.page else 0
            part = newest[first : first + request.limit]
            more = first + request.limit < len(newest)
            return Page(tuple(reversed(part)), str(part[-1].app_id) if more else "")

        return answer

    async with routed(*map(lists_of, lists)) as client:
        names, page = [], ""
        while True:
            got: Any = await client._ask(ListApplications((), "", "", limit, page), Page)
            names += [one.name for one in reversed(got.items)]
            page = got.next
            if not page:
                break
    assert sorted(names) == [f"j{number}" for number in range(1, 7)]
