"""For tests only: the REST API over a cluster that stands still."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import ClientSession, web

from testkit.web import CLUSTER_TS, FakeClient
from weft.runtime.role_settings import WebSettings
from weft.web.server import make_app

# It runs.
APP = f"application_{CLUSTER_TS}_0006"
Ask = Callable[..., Awaitable[tuple[int, Any]]]


def over_http(
    test: Callable[[Ask, FakeClient], Awaitable[None]], fake: FakeClient | None = None
) -> None:
    """Run a test against the real server with a fake manager behind it."""

    async def main() -> None:
        client = fake or FakeClient(nodes=20, apps=10)
        settings = WebSettings(port=0, watch=False)  # type: ignore[call-arg]
        made = make_app(settings, client)  # type: ignore[arg-type]
        runner = web.AppRunner(made, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        root = f"http://127.0.0.1:{runner.addresses[0][1]}"
        async with ClientSession(root) as session:

            async def ask(path: str, method: str = "GET", **more: Any) -> tuple[int, Any]:
                async with session.request(method, path, allow_redirects=False, **more) as got:
                    text = await got.text()
                    return got.status, json.loads(text) if "json" in got.content_type else text

            try:
                await test(ask, client)
            finally:
                await runner.cleanup()

    asyncio.run(main())
