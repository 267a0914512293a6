"""A node's face on the node's own host: `python -m weft.yarn.relay --gateway URL --name HOST`.

Foreign masters start a container at the host that it was granted on, for a node's name is also
where its containers run. The gateway serves all nodes' faces at one place, so on several hosts each
runs one of these: it asks the gateway for the ports of the nodes of its name, opens them here, and
passes on what comes, byte by byte. It holds no keys and reads nothing. What is not told on the
command line is read from WEFT_RELAY_GATEWAY, WEFT_RELAY_NAME and WEFT_RELAY_HOST.
"""

import argparse
import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import aiohttp

FACES_INTERVAL_S = 2.0
CHUNK = 1 << 14
CONNECT_S = 10.0
# What a gateway says of all its faces.
FACES_BYTES_MAX = 8 << 20
# Beyond that the connection that was silent for longest makes room.
CONNECTIONS_MAX = 400
FLAGS = {
    "gateway": "URL where launchers ask the gateway",
    "name": "host that this host's nodes go by",
    "host": "address to listen on; empty: that of the name",
}


class Relay:
    """The open ports of one host."""

    def __init__(self, gateway: str, name: str, host: str) -> None:
        """`gateway` is its URL, `name` what this host's nodes go by, `host` where to listen."""
        self._gateway = gateway.rstrip("/")
        self._to = urlsplit(gateway).hostname or ""
        self._name, self._host = name, host
        self._open: dict[int, asyncio.Server] = {}
        # The one over which something passed last is the last.
        self._passing: dict[asyncio.Task[None], None] = {}

    @property
    def ports(self) -> tuple[int, ...]:
        """The ports that are open."""
        return tuple(sorted(self._open))

    @property
    def passing(self) -> int:
        """How many connections are passed on."""
        return len(self._passing)

    async def run(self) -> None:
        """Follow the gateway for ever; while it is away, what is open stays open."""
        timeout = aiohttp.ClientTimeout(total=CONNECT_S)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while True:
                try:
                    async with session.get(f"{self._gateway}/faces") as got:
                        got.raise_for_status()
                        text = await got.content.read(FACES_BYTES_MAX)
                        while more := await got.content.read(FACES_BYTES_MAX - len(text)):
                            text += more
                        await self.follow(json.loads(text))
                except (aiohttp.ClientError, TimeoutError, OSError) as error:
                    print(f"{self._gateway}: {error}", file=sys.stderr)
                except (ValueError, KeyError, TypeError, AttributeError) as error:
                    print(f"{self._gateway}/faces is no list of faces: {error}", file=sys.stderr)
                await asyncio.sleep(FACES_INTERVAL_S)

    async def follow(self, faces: Mapping[str, Any]) -> None:
        """Open what is new and close what is gone; `faces` has host and port by node."""
        wanted = {int(one["port"]) for one in faces.values() if one["host"] == self._name}
        for port in self._open.keys() - wanted:
            self._open.pop(port).close()
        for port in sorted(wanted - self._open.keys()):
            try:
                self._open[port] = await asyncio.start_server(
                    self._caller(port), self._host, port, limit=CHUNK
                )
            except OSError as error:
                print(f"port {port}: {error.strerror or error}", file=sys.stderr)
                continue
            print(f"port {port} passes on to {self._to}:{port}", file=sys.stderr)

    async def close(self) -> None:
        """Close every port and connection."""
        for server in self._open.values():
            server.close()
        for task in list(self._passing):
            task.cancel()
        await asyncio.gather(*self._passing, return_exceptions=True)

    def _caller(self, port: int) -> Any:
        async def called(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            if len(self._passing) >= CONNECTIONS_MAX:
                silent = next(iter(self._passing))
                del self._passing[silent]
                silent.cancel()
            self._passing[task] = None

            def passed() -> None:
                if self._passing.pop(task, self) is None:
                    self._passing[task] = None

            open_here = [writer]
            calls = None
            try:
                async with asyncio.timeout(CONNECT_S):
                    back, forth = await asyncio.open_connection(self._to, port, limit=CHUNK)
                open_here.append(forth)
                calls = asyncio.create_task(_pass(reader, forth, passed))
                # Once the gateway has hung up, nobody hears what the caller says.
                await _pass(back, writer, passed)
            # The gateway is away, or this host's part ends: the caller tries again.
            except (OSError, TimeoutError, asyncio.CancelledError):
                pass
            finally:
                self._passing.pop(task, None)
                if calls is not None:
                    calls.cancel()
                for one in open_here:
                    one.close()

        return called


async def _pass(
    source: asyncio.StreamReader, to: asyncio.StreamWriter, passed: Callable[[], None]
) -> None:
    """Pass on until one end closes, and tell the other; `passed` is called at each piece."""
    with contextlib.suppress(OSError):
        while data := await source.read(CHUNK):
            passed()
            to.write(data)
            await to.drain()
    with contextlib.suppress(OSError, RuntimeError):
        to.write_eof()


async def _serve(relay: Relay) -> None:
    try:
        await relay.run()
    finally:
        await relay.close()


def main(arguments: list[str]) -> None:
    """Run until told to end."""
    parser = argparse.ArgumentParser(prog="weft.yarn.relay", description="A node's face here.")
    for name, words in FLAGS.items():
        told = os.environ.get(f"WEFT_RELAY_{name.upper()}", "")
        needed = not told and name != "host"
        parser.add_argument(f"--{name}", default=told, required=needed, help=words)
    chosen = parser.parse_args(arguments)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(Relay(chosen.gateway, chosen.name, chosen.host or chosen.name)))


if __name__ == "__main__":
    main(sys.argv[1:])
