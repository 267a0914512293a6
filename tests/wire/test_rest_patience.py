"""Who connects and asks for nothing holds a file; not for long."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import ClientSession, web

from testkit.web import FakeClient
from weft.runtime.http_server import PatientRunner
from weft.runtime.role_settings import WebSettings
from weft.web.server import make_app


@pytest.mark.slow
def test_a_head_that_never_ends_closes_its_connection_and_no_other() -> None:
    async def main() -> None:
        fake = FakeClient(nodes=3, apps=3)
        app = make_app(WebSettings(port=0, watch=False), fake)  # type: ignore[arg-type]
        runner = PatientRunner(app, head_s=0.5, access_log=None, shutdown_timeout=0.2)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        try:
            slow = [await asyncio.open_connection(host, port) for _ in range(20)]
            for _, writer in slow:
                writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nX-More: ")
            async with ClientSession(f"http://{host}:{port}") as session:
                asked = await session.get("/api/live")  # a stream that lasts
                async with asyncio.timeout(60):
                    assert [await reader.read() for reader, _ in slow] == [b""] * 20
                    assert (await asked.content.readline()).startswith(b"data: ")
                assert not asked.content.at_eof(), "who asked is served on"
                async with session.get("/ws/v1/cluster/info") as answer:
                    assert answer.status == 200
                asked.close()
            for _, writer in slow:
                writer.close()
        finally:
            await runner.cleanup()

    asyncio.run(main())


class Place:
    """Where a connection is kept: once it is closed, the next may be kept in the same one."""

    closed = 0

    def force_close(self) -> None:
        self.closed += 1


def test_who_asks_is_not_closed_for_the_connection_that_was_in_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def answer(request: Any) -> Any:
        return web.Response()

    runner, place = PatientRunner(web.Application(), head_s=20.0), Place()
    due: list[tuple[float, asyncio.TimerHandle]] = []
    loop, clock = asyncio.new_event_loop(), [0.0]

    def later(delay_s: float, call: Any, *given: Any) -> asyncio.TimerHandle:
        made = asyncio.TimerHandle(clock[0] + delay_s, call, given, loop)
        due.append((made.when(), made))
        return made

    monkeypatch.setattr(loop, "call_later", later)
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: loop)
    connect = runner._watched(lambda: place)
    connect()
    asyncio.run(runner._asked(SimpleNamespace(protocol=place, content=None), answer))  # type: ignore[arg-type]
    clock[0] = 19.9
    connect()  # the first has gone
    for when, timer in due:
        if when <= 20.0 and not timer.cancelled():
            timer._run()
    assert place.closed == 0, "it has been there for a tenth of a second"
    for _, timer in due:
        if not timer.cancelled():
            timer._run()
    assert place.closed == 1
    loop.close()
