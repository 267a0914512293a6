"""A long way to a service: `delay.py LISTEN TARGET DELAY_S` hands TCP on, each way so much later.

The kernel's own delay (netem) is not everywhere; this shows a distance to whoever dials it. It
keeps the order and the bytes, so TLS goes through.
"""

import asyncio
import sys
from collections.abc import Sequence


def split(address: str) -> tuple[str, int]:
    """Return host and port of host:port."""
    host, _, port = address.rpartition(":")
    return host, int(port)


async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float) -> None:
    """Write everything that is read `delay_s` later, the end included."""
    loop = asyncio.get_running_loop()
    waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(1024)

    async def write() -> None:
        while True:
            due_s, data = await waiting.get()
            await asyncio.sleep(max(0.0, due_s - loop.time()))
            if not data:
                writer.close()
                return
            writer.write(data)
            await writer.drain()

    writing = asyncio.ensure_future(write())
    try:
        while data := await reader.read(1 << 16):
            await waiting.put((loop.time() + delay_s, data))
    except OSError:
        pass
    await waiting.put((loop.time() + delay_s, b""))
    await writing


async def serve(listen: str, target: str, delay_s: float) -> None:
    """Serve until killed."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(*split(target))
        except OSError:
            writer.close()
            return
        ways = carry(reader, far_writer, delay_s), carry(far_reader, writer, delay_s)
        await asyncio.gather(*ways, return_exceptions=True)

    server = await asyncio.start_server(connected, *split(listen))
    print("ready", flush=True)
    async with server:
        await server.serve_forever()


def main(arguments: Sequence[str]) -> None:
    """Run with three arguments."""
    listen, target, delay_s = arguments
    asyncio.run(serve(listen, target, float(delay_s)))


if __name__ == "__main__":
    main(sys.argv[1:])
