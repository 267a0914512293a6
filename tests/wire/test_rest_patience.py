"""Who connects and asks for nothing holds a file; not for long."""

import asyncio

from aiohttp import ClientSession, web

from testkit.web import FakeClient
from weft.live.settings import WebSettings
from weft.web.patience import PatientRunner
from weft.web.server import make_app


def test_a_head_that_never_ends_closes_its_connection_and_no_other() -> None:
    async def main() -> None:
        fake = FakeClient(nodes=3, apps=3)
        app = make_app(WebSettings(port=0, watch=False), fake)  # type: ignore[arg-type]
        runner = PatientRunner(app, head_s=0.5, access_log=None)
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
