"""For tests only: Chromium, and pages served to it from a thread of their own."""

import asyncio
import shutil
import ssl
import threading
from collections.abc import Callable
from typing import Any

from aiohttp import web

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
]
# This is a limit, never a measure, because the machine may be busy.
PATIENCE_MS = 30_000


class Served:
    """An application on a free port of loopback, as long as it is not closed."""

    def __init__(
        self, make: Callable[[], web.Application], secured: ssl.SSLContext | None = None
    ) -> None:
        self.url = ""
        self._secured = secured
        self._make = make
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._runner = self.do(self._start())

    def do(self, work: Any) -> Any:
        """Run a coroutine beside the server and return what it answers."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def soon(self, call: Callable[..., Any], *arguments: Any) -> None:
        """Have something called beside the server."""
        self._loop.call_soon_threadsafe(call, *arguments)

    async def _start(self) -> web.AppRunner:
        runner = web.AppRunner(self._make(), access_log=None, shutdown_timeout=0.5)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=self._secured).start()
        self.url = f"http{'s' * (self._secured is not None)}://127.0.0.1:{runner.addresses[0][1]}"
        return runner

    async def _end(self) -> None:
        await self._runner.cleanup()
        # aiohttp cancels what does not end in time, and does not wait for it.
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for one in rest:
            one.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    def close(self) -> None:
        """End the server and its thread."""
        self.do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
