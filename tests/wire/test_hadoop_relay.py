"""A node's face on the node's own host: what is said there reaches the gateway, and back."""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from weft.yarn.relay import Relay
from weft.yarn.store import Store


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def talk(conversation: Callable[[Relay, int], Awaitable[None]]) -> None:
    """A gateway on 127.0.0.1 that answers in capitals, and a relay on 127.0.0.2."""

    async def face(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data.upper())
            await writer.drain()
        writer.close()

    async def both() -> None:
        server = await asyncio.start_server(face, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        relay = Relay("http://127.0.0.1:1", "worker-1", "127.0.0.2")
        await conversation(relay, port)
        await relay.close()
        server.close()

    asyncio.run(asyncio.wait_for(both(), 20))


def test_only_this_hosts_nodes_are_served_and_bytes_pass_both_ways() -> None:
    async def conversation(relay: Relay, port: int) -> None:
        other = {"host": "worker-2", "port": free_port()}
        await relay.follow({"n1": {"host": "worker-1", "port": port}, "n2": other})
        assert relay.ports == (port,)
        reader, writer = await asyncio.open_connection("127.0.0.2", port)
        for word in (b"start", b"x" * 100_000):
            writer.write(word)
            assert await reader.readexactly(len(word)) == word.upper()
        writer.write_eof()
        assert await reader.read() == b"", "the end is passed on"
        writer.close()
        await relay.follow({"n2": other})
        assert relay.ports == ()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.2", port)

    talk(conversation)


def test_a_gateway_that_is_away_costs_its_caller_a_connection_only() -> None:
    async def conversation(relay: Relay, port: int) -> None:
        gone = free_port()
        await relay.follow({"n1": {"host": "worker-1", "port": gone}})
        reader, writer = await asyncio.open_connection("127.0.0.2", gone)
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
        assert relay.ports == (gone,)

    talk(conversation)


def test_nodes_keep_their_ports_over_a_restart(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert store.port("n1") == 0
    store.keep_port("n1", 8045)
    store.keep_port("n2", 8046)
    assert (Store(tmp_path).port("n1"), Store(tmp_path).port("n2")) == (8045, 8046)
    store.keep_port("n3", 8045)
    assert (store.port("n1"), store.port("n3")) == (0, 8045), "one port is one node's"
    (tmp_path / "ports.json").write_text('{"n1": "x", "n2": 70000}')
    assert (store.port("n1"), store.port("n2")) == (0, 0)


def test_the_connection_that_was_silent_for_longest_makes_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("weft.yarn.relay.CONNECTIONS_MAX", 2)

    async def conversation(relay: Relay, port: int) -> None:
        await relay.follow({"n1": {"host": "worker-1", "port": port}})

        async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"x")
            assert await reader.readexactly(1) == b"X"

        first = await asyncio.open_connection("127.0.0.2", port)
        await speak(*first)
        second = await asyncio.open_connection("127.0.0.2", port)
        await speak(*second)
        await speak(*first)
        third = await asyncio.open_connection("127.0.0.2", port)
        await speak(*third)
        assert await second[0].read() == b"", "it was silent for longest"
        await speak(*first)
        for _, writer in (first, second, third):
            writer.close()

    talk(conversation)


def test_a_caller_is_let_go_when_the_gateway_hangs_up() -> None:
    async def conversation(relay: Relay, port: int) -> None:
        async def hangs_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.close()

        gateway = await asyncio.start_server(hangs_up, "127.0.0.1", 0)
        there = gateway.sockets[0].getsockname()[1]
        await relay.follow({"n1": {"host": "worker-1", "port": there}})
        reader, writer = await asyncio.open_connection("127.0.0.2", there)
        assert await reader.read() == b""
        while relay.passing:
            await asyncio.sleep(0.01)
        writer.close()
        gateway.close()

    talk(conversation)


def test_a_port_in_use_costs_no_other_one() -> None:
    async def conversation(relay: Relay, port: int) -> None:
        with contextlib.closing(socket.socket()) as taken:
            taken.bind(("127.0.0.2", 0))
            taken.listen()
            used = taken.getsockname()[1]
            both = {
                "n1": {"host": "worker-1", "port": used},
                "n2": {"host": "worker-1", "port": port},
            }
            await relay.follow(both)
            assert relay.ports == (port,)
        await relay.follow(both)
        assert relay.ports == tuple(sorted((port, used)))

    talk(conversation)
